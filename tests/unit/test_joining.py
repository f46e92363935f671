"""What brings two programs nearer to each other before they are compared: windows gone, loops joined."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut.errors import PartitionError
from offcut.proof.normal_forms.loop_fusion import fuse_loops_like, fuse_ranges
from offcut.proof.normal_forms.parts_in_sequence import changed_part, parts_in_sequence
from offcut.proof.normal_forms.reduction_init import reorder_terms_like
from offcut.proof.normal_forms.window_expansion import expand_windows
from tests.facade import check_equal

HEAD = """program p
size n in 0:40
input A: float32[n, 9]
output B: float32[n, 9]
"""
ROWS = """local S: float32[n, 9]
for i in 0:n
  alloc S[{window}]
    for j in 0:9
      S[i, j] = exp(A[i, j])
    for j in 0:9
      B[i, j] = S[{read}, 8 - j]
"""
ONE_ROW = "i +: 1, 0 +: 9"


def rows(window: str = ONE_ROW, read: str = "i") -> oc.Program:
    return oc.parse(HEAD + ROWS.format(window=window, read=read))


@pytest.mark.parametrize(
    ("window", "read"),
    [
        ("0 +: n, 0 +: 9", "max(i - 1, 0)"),
        ("i +: 1, 0 +: 9", "max(i - 1, 0)"),
        ("0 +: 1, 0 +: 9", "i"),
    ],
    ids=["all rows in each iteration", "the row before", "the first row"],
)
def test_a_window_stays_where_an_iteration_may_see_another_one_s(window: str, read: str) -> None:
    program = rows(window, read)
    assert expand_windows(program) == program


TWO = """local S: float32[n, 9]
for i in 0:n
  for j in 0:9
    S[i, j] = exp(A[i, j])
for i in 0:n
  for j in 0:9
    B[i, j] = S[{read}, 8 - j]
"""
ONE = TWO.replace("for i in 0:n\n  for j in 0:9\n    B", "  for j in 0:9\n    B")


def test_loops_of_other_names_are_joined() -> None:
    two = TWO.replace(
        "for i in 0:n\n  for j in 0:9\n    B[i, j]", "for k in 0:n\n  for j in 0:9\n    B[k, j]"
    )
    assert two != TWO
    one, renamed = (oc.parse(HEAD + text.format(read=r)) for text, r in ((ONE, "i"), (two, "k")))
    assert fuse_loops_like(one, renamed) == one
    oc.prove_equal(renamed, one)
    taken = oc.parse(
        HEAD
        + two.replace("for j in 0:9\n    B[k, j]", "for i in 0:9\n    B[k, i]")
        .format(read="k")
        .replace("8 - j", "8 - i")
    )
    assert fuse_loops_like(one, taken) == taken


@pytest.mark.parametrize(
    ("read", "until"), [("n - 1 - i", "n"), ("min(i + 1, n - 1)", "n"), ("i", "n - 1")]
)
def test_loops_of_other_ranges_or_that_meet_in_other_rows_are_not_joined(
    read: str, until: str
) -> None:
    texts = TWO.replace(
        "for i in 0:n\n  for j in 0:9\n    B", f"for i in 0:{until}\n  for j in 0:9\n    B"
    )
    two, one = (oc.parse(HEAD + text.format(read=read)) for text in (texts, ONE))
    assert fuse_loops_like(one, two) == two
    with pytest.raises(PartitionError):
        oc.prove_equal(two, one)


BLOCKS = """local S: float32[n, 9]
if n <= 20
  for i_block in 0:(n + 3)//4
    alloc S[4*i_block +: 4, 0 +: 9]
      for i in 4*i_block:min(4*i_block + 4, n)
        for j in 0:9
          S[i, j] = exp(A[i, j])
      for i in 4*i_block:min(4*i_block + 4, n)
        for j in 0:9
          B[i, j] = S[{read}, 8 - j]
else
  for i in 0:n
    alloc S[i +: 1, 0 +: 9]
      for j in 0:9
        S[i, j] = exp(A[i, j])
      for j in 0:9
        B[i, j] = S[i, 8 - j]
"""


def test_blocks_that_read_a_row_of_another_iteration_are_not_those_rows() -> None:
    read = "4*(i//4)"
    blocks = oc.parse(HEAD + BLOCKS.format(read=read))
    assert str(fuse_ranges(blocks)).count("for i in 4*i_block") == 2
    before = oc.parse(HEAD + BLOCKS.format(read="max(i - 1, 0)"))
    assert "alloc" in str(expand_windows(before))
    with pytest.raises(PartitionError, match="with n = 2, "):
        oc.prove_equal(oc.parse(HEAD + TWO.format(read="i")), blocks)


DOUBLED = """program d
size n in 0:40
input A: float32[n]
local S: float32[n]
output B: float32[n]
"""
ALL = """for i in 0:n
  S[i] = A[i]{twice}
for i in 0:n
  B[i] = S[i] + 1.0
"""
AGAIN = {
    "in turn": """for i in 0:n
  alloc S[i +: 1]
    S[i] = A[i]{twice}
  alloc S[i +: 1]
    B[i] = S[i] + 1.0
""",
    "one inside of the other": """for i in 0:n
  alloc S[i +: 1]
    S[i] = A[i]{twice}
    alloc S[i +: 1]
      B[i] = S[i] + 1.0
""",
    "of all, one inside of the other": """alloc S[0 +: n]
  for i in 0:n
    S[i] = A[i]{twice}
  alloc S[0 +: n]
    for i in 0:n
      B[i] = S[i] + 1.0
""",
    "read outside of the inner one": """for i in 0:n
  alloc S[i +: 1]
    alloc S[i +: 1]
      S[i] = A[i]{twice}
    B[i] = S[i] + 1.0
""",
    "under a condition": """for i in 0:n
  alloc S[i +: 1]
    S[i] = A[i]{twice}
  if i >= 0
    alloc S[i +: 1]
      B[i] = S[i] + 1.0
""",
    "of a block": """for i_block in 0:(n + 3)//4
  alloc S[4*i_block +: 4]
    for i in 4*i_block:min(4*i_block + 4, n)
      S[i] = A[i]{twice}
  alloc S[4*i_block +: 4]
    for i in 4*i_block:min(4*i_block + 4, n)
      B[i] = S[i] + 1.0
""",
    "in loops of their own": """for i in 0:n
  alloc S[i +: 1]
    S[i] = A[i]{twice}
for i in 0:n
  alloc S[i +: 1]
    B[i] = S[i] + 1.0
""",
}


@pytest.mark.every(2)
@pytest.mark.parametrize("how", AGAIN)
def test_a_window_that_is_opened_again_holds_nothing_of_before(how: str) -> None:
    twice = "" if how in ("in turn", "of a block") else " * 2.0"  # copied, or computed
    source, emitted = (oc.parse(DOUBLED + one.format(twice=twice)) for one in (ALL, AGAIN[how]))
    with pytest.raises(PartitionError, match=r"with n = 1, .* reads S\[0\] of nothing"):
        oc.prove_equal(source, emitted)


def test_windows_in_turn_that_share_no_element_are_parts_of_one_array() -> None:
    halves = """for t in 0:n//4
  alloc S[4*t +: 4]
    for i in 4*t:4*t + 4
      S[i] = A[i] * 2.0
    for i in 4*t:4*t + 4
      B[i] = S[i] + 1.0
alloc S[4*(n//4) +: n % 4]
  for i in 4*(n//4):n
    S[i] = A[i] * 2.0
  for i in 4*(n//4):n
    B[i] = S[i] + 1.0
"""
    emitted = oc.parse(DOUBLED + halves)
    assert "alloc" not in str(expand_windows(emitted))


def test_a_window_in_a_tile_stays_where_nothing_touches_it_either() -> None:
    tile = """tile i in 0 +: n
  alloc S[i +: 1]
    B[i] = A[i] + 1.0
"""
    emitted = oc.parse(DOUBLED + tile)
    assert expand_windows(emitted) == emitted
    with pytest.raises(PartitionError, match="its lanes would share it"):
        oc.prove_equal(oc.parse(DOUBLED + "for i in 0:n\n  B[i] = A[i] + 1.0\n"), emitted)


# Programs whose parts meet in whole arrays are compared part by part; what does not meet so is compared as a whole.


PARTS_HEAD = """program p
size n in 0:100
input A: float32[n]
local S: float32[n]
local T: float32[n]
output Y: float32[n]
"""
FIRST = """for i in 0:n
  S[i] = A[i] * 2.0
"""
SECOND = """for i in 0:n
  T[i] = S[n - 1 - i] + 1.0
"""
THIRD = """for i in 0:n
  Y[i] = T[i] * S[i]
"""
SHIFTED = """for i_tile in 0:n//8
  tile i in 8*i_tile +: 8
    S[i] = A[i] * 2.0
if n >= 8 and n % 8 != 0
  tile i in n - 8 +: 8
    S[i] = A[i] * 2.0
if n < 8
  for i in 0:n
    S[i] = A[i] * 2.0
"""
SOURCE = oc.parse(PARTS_HEAD + FIRST + SECOND + THIRD)


def shifted(*others: str) -> oc.Program:
    """Return the program whose first part is in tiles, of which the last moves back, as its statements there are one."""
    return oc.parse(
        PARTS_HEAD
        + "for b in 0:1\n"
        + "".join(f"  {s}\n" for s in SHIFTED.splitlines())
        + "".join(others)
    )


def test_parts_that_meet_in_whole_arrays_are_compared_each_with_sizes() -> None:
    pairs = parts_in_sequence(SOURCE, shifted(SECOND, THIRD))
    assert [[b.name for b in one.results] for one, _ in pairs] == [["S"], ["T"], ["Y"]]
    for old, new in (("1.0", "2.0"), ("n - 1 - i", "i"), ("0:n", "1:n")):
        with pytest.raises(PartitionError, match=r"with n = [12]"):
            check_equal(SOURCE, shifted(SECOND.replace(old, new), THIRD))


def test_a_window_and_an_array_that_is_stored_after_it_was_read_meet_nothing() -> None:
    source = oc.parse(
        PARTS_HEAD.replace("input A", "inout A") + FIRST + "for i in 0:n\n  A[i] = 1.0\n"
    )
    assert parts_in_sequence(source, source) == []
    windowed = "for i in 0:n\n  alloc S[i +: 1]\n    S[i] = A[i]\n    Y[i] = S[i]\n"
    emitted = oc.parse(PARTS_HEAD + windowed + "for i in 0:n\n  T[i] = S[i]\n")
    assert parts_in_sequence(oc.parse(PARTS_HEAD + windowed), emitted) == []
    changed = oc.parse(PARTS_HEAD + FIRST + windowed.replace("= S[i]", "= 1.0*S[i]"))
    assert changed_part(oc.parse(PARTS_HEAD + FIRST + windowed), changed) is None


def test_what_differs_of_two_programs_is_compared_with_what_arrays_hold_before() -> None:
    more = "for i in 0:n\n  S[i] += A[i]\n"
    source, emitted = (
        oc.parse(PARTS_HEAD + FIRST + one + THIRD.replace("T[i] * ", ""))
        for one in (more, more.replace("for i in 0:n", "tile i in 0 +: n"))
    )
    part = changed_part(source, emitted)
    assert part is not None
    assert [b.kind.value for b in part[0].buffers if b.name == "S"] == ["inout"]
    assert check_equal(source, emitted)


UPDATE = """for i in 0:n
  if A[i] > 0.0
    S[i] = S[i] + A[i]
"""


def test_an_array_that_is_stored_again_is_an_input_and_a_result_of_the_second_part() -> None:
    head = "program p\nsize n in 0:100\ninput A: float32[n]\noutput S: float32[n]\n"

    def whole(first: str, second: str) -> oc.Program:
        return oc.parse(head + first + second)

    one_by_one = whole(FIRST, UPDATE)
    wrapped = "for b in 0:1\n" + "".join(f"  {line}\n" for line in SHIFTED.splitlines())
    emitted = whole(wrapped, UPDATE)
    pairs = parts_in_sequence(one_by_one, emitted)
    kinds = [{b.name: b.kind.value for b in one.buffers} for one, _ in pairs]
    assert kinds == [{"A": "input", "S": "output"}, {"A": "input", "S": "inout"}]
    assert all(first.buffers == second.buffers for first, second in pairs)
    assert check_equal(one_by_one, emitted)
    for wrong in (UPDATE.replace("+", "-"), UPDATE.replace("> 0.0", "> 1.0"), FIRST, ""):
        with pytest.raises(PartitionError, match=r"n = [12]"):
            check_equal(one_by_one, whole(wrapped, wrong))


def test_elements_that_nobody_reads_may_differ() -> None:
    """The parts differ there, and the whole does not."""
    reader = "for i in 0:n//2\n  Y[i] = S[i]\nfor i in n//2:n\n  Y[i] = 0.0\n"
    source = oc.parse(PARTS_HEAD + FIRST + reader)
    emitted = oc.parse(PARTS_HEAD + FIRST.replace("0:n", "0:n//2") + reader)
    assert check_equal(source, emitted)


def test_a_statement_is_left_out_where_it_may_stand_elsewhere() -> None:
    other = "for j in 0:n\n  Y[j] = A[j]\n"
    head = PARTS_HEAD + "output Z: float32[n]\n"
    read = "for i in 0:n\n  Z[i] = S[i]\n"
    part = changed_part(
        oc.parse(head + FIRST + other + read),
        oc.parse(head + other + FIRST + read.replace("Z[i] = S", "Z[i] = 1.0*S")),
    )
    assert part is not None
    assert [len(one.body) for one in part] == [1, 1]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("for j in 0:n\n  T[j] = A[j]\n", "stores what is passed"),
        ("for j in 0:n\n  Y[j] = T[j]\n", "reads what is passed"),
    ],
)
def test_a_statement_stays_where_it_must_not_pass_another(statement: str, kind: str) -> None:
    head, read = PARTS_HEAD + "output Z: float32[n]\n", "for i in 0:n\n  Z[i] = T[i]\n"
    source = oc.parse(head + FIRST + "for i in 0:n\n  T[i] = 0.0\n" + SECOND + statement + read)
    emitted = oc.parse(head + FIRST + "for i in 0:n\n  T[i] = 0.0\n" + statement + SECOND + read)
    part = changed_part(source, emitted)
    assert part is not None, kind
    assert len(part[0].body) == len(part[1].body) >= 2
    with pytest.raises(PartitionError, match="with n = 1"):
        check_equal(source, emitted)


# Sums are compared in the order of the emitted program, where their terms may be added in any.


SUM = """program p
size n in 0:40
input A: {dtype}[n, 5, 7]
output C: {dtype}[n]
for i in 0:n
  C[i] = {zero}
  for {first}
    for {second}
      C[i] {update} {term}
"""
J, K = "j in 0:5", "k in 0:7"


def summed(first: str, second: str, dtype: str = "float32", **text: str) -> oc.Program:
    zero = "0.0" if "float" in dtype else "0"
    said = {"zero": zero, "update": "+=", "term": "A[i, j, k]"} | text
    return oc.parse(SUM.format(first=first, second=second, dtype=dtype, **said))


SORTED = {  # by the kind and the update: whether the order of the source may be another one
    "float32": (False, {}),
    "float32 in any order": (True, {"reassociate": True}),
    "int32": (True, {}),
    "float32 max=": (True, {}),
    "float32 min=": (True, {}),
    "int32 of the sum": (False, {"reassociate": True}),
}


@pytest.mark.parametrize("what", SORTED)
def test_sums_are_put_in_the_order_of_the_other_where_that_changes_nothing(what: str) -> None:
    dtype, sorts, options = what.split()[0], *SORTED[what]
    text = {"term": "A[i, j, k] * C[i]"} if "of the sum" in what else {}
    text |= {"update": what.split()[1]} if what.endswith("=") else {}
    source, emitted = (summed(*at, dtype=dtype, **text) for at in ((J, K), (K, J)))
    made = reorder_terms_like(emitted, source, **{"reassociate": False, **options})
    assert made == (emitted if sorts else source)
    if sorts:
        oc.prove_equal(source, emitted, **options)
    else:
        with pytest.raises(PartitionError):
            oc.prove_equal(source, emitted, **options)


def test_loops_whose_bounds_depend_on_each_other_stay_in_order() -> None:
    source, emitted = summed(J, "k in 0:j + 1"), summed("k in 0:5", "j in k:5")
    assert reorder_terms_like(emitted, source, reassociate=True) == source
