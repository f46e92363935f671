"""Programs whose conditions were separated, compared or lowered wrongly, and what they are now."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import rejection, slow

import offcut as oc
from offcut import Kernel
from offcut.core.program import Choose, Program, walk
from offcut.errors import PartitionError
from offcut.partition import separate
from offcut.proof import equivalence
from offcut.proof.by_instances.pairing import UNDECIDED
from offcut.proof.by_structure.places import NotStructural
from offcut.proof.by_structure.structure import check_structure
from offcut.proof.equivalence import check_equal
from tests.facade import WORKSPACE, forget_proofs


def program(file: str) -> Program:
    """The program in that file beside this one."""
    return oc.parse(Path(__file__).with_name(f"{file}.offcut").read_text())


def same_values(cut: Program, source: Program, inputs: dict[str, Any], **sizes: int) -> bool:
    """Whether the interpreter gets one result from both."""
    return np.array_equal(cut.run(inputs, **sizes), source.run(inputs, **sizes))


@pytest.mark.parametrize("file", ["separated_wrongly_1", "separated_wrongly_2"])
def test_loops_that_start_below_zero_are_proved_side_by_side(file: str) -> None:
    source = program(file)
    cut = oc.partition(source)
    for n, m in ((0, 0), (1, 4), (6, 0), (9, 2)):
        given = {"G": np.arange(n, dtype=np.int32)}
        assert same_values(cut.loops, source, given, n=n, m=m)


def test_a_select_by_an_index_and_by_data_is_cut() -> None:
    source = program("clamped_and_data")
    cut = oc.partition(source, tile={"i": 4})
    for n in (1, 2, 3, 8, 13):
        given = {"A": np.arange(n, dtype=np.int32) % 3 - 1}
        assert same_values(cut.loops, source, given)


SELECT = """\
program f
size n in 1:4097
input A: int32[n]
output B: int32[n]
for i in 0:n
  B[i] = where({condition}, A[max(0, i - 1)], A[min(n - 1, i + 1)] * 2)
"""
HALVES = """\
program f
size n in 1:4097
input A: int32[n]
output B: int32[n]
for i in 0:n//2
  B[2*i + 1] = {odd}
for i in 0:(n + 1)//2
  B[2*i] = {even}
"""


@pytest.mark.parametrize(
    ("condition", "odd", "even"),
    [
        (
            "i % 2 == 0 and A[i] > 0",
            "A[min(n - 1, 2*i + 2)] * 2",
            "where(A[2*i] > 0, A[max(0, 2*i - 1)], A[min(n - 1, 2*i + 1)] * 2)",
        ),
        (
            "i % 2 == 0 or A[i] > 0",
            "where(A[2*i + 1] > 0, A[2*i], A[min(n - 1, 2*i + 2)] * 2)",
            "A[max(0, 2*i - 1)]",
        ),
    ],
)
def test_conditions_that_a_loop_decides_are_left_out_of_those_that_data_decides(
    condition: str, odd: str, even: str
) -> None:
    source = oc.parse(SELECT.format(condition=condition))
    assert check_equal(source, oc.parse(HALVES.format(odd=odd, even=even)))
    with pytest.raises(oc.PartitionError, match="matches no statement of the source"):
        check_equal(source, oc.parse(HALVES.format(odd=even, even=odd)))


def test_an_instance_that_is_not_found_is_not_said_to_be_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = program("separated_wrongly_1")
    emitted = oc.partition(source).loops
    monkeypatch.setattr(equivalence, "is_same_shape", lambda *_: False)
    forget_proofs()
    with pytest.raises(oc.PartitionError) as refused:
        check_equal(source, emitted)
    assert refused.value.refused == UNDECIDED
    assert refused.value.because == (
        "the proof does not see through G[k4] = 1: with n = 8, m = 0, runs show no difference"
    )


def test_options_whose_costs_depend_on_a_loop_are_compared_in_it() -> None:
    source = program("contraction_601")
    cut = oc.partition(source, tile={"j": 2}, tail="mix").loops
    assert any(isinstance(stmt, Choose) for stmt in walk(cut.body))
    random = np.random.default_rng(0)
    for m, n, k in ((0, 1, 2), (5, 4, 3), (9, 7, 5)):
        given = {
            "T": random.integers(-4, 5, (m, k)).astype("float64"),
            "C": random.integers(-4, 5, (k, n)).astype("float64"),
            "R": random.integers(-4, 5, n).astype("float64"),
        }
        out = np.zeros((m, n))
        oc.compile(cut)(*given.values(), out=out)
        rows = slice(0, max(0, m - 2))
        wanted = source.run(given)
        for i in range(m)[rows]:
            assert np.array_equal(out[i, min(i, n) :], wanted[i, min(i, n) :])


def test_values_inside_of_tiles_are_read_with_the_axes_of_the_tiles() -> None:
    source = program("contraction_410")
    tails = {"j2": "mix", "i": "version"}
    kernel = oc.compile(oc.partition(source, tile={"j2": (1, 1), "i": 14}, tail=tails).loops)
    random = np.random.default_rng(0)
    for m, n in ((0, 0), (3, 5), (17, 9)):
        t = random.integers(-4, 5, (m, 1)).astype("float32")
        c = random.integers(-4, 5, (1, n)).astype("float32")
        found, wanted = kernel(t, c, K=0), source.run({"T": t, "C": c}, K=0)
        for i in range(m):
            assert np.array_equal(found[i, min(i, n) :], wanted[i, min(i, n) :])


@pytest.mark.parametrize("file", ["index_i_minus_i", "index_j_minus_j"])
def test_an_index_that_mentions_no_loop_once_it_is_folded_is_of_no_loop(file: str) -> None:
    source = program(file)
    assert oc.partition(source).explain()
    kernel = oc.compile(source)
    for n, m in ((1, 1), (2, 5), (7, 7)):
        shape = (n,) if file == "index_i_minus_i" else (n, m)
        given = np.arange(n * m, dtype=np.int32)[: np.prod(shape)].reshape(shape)
        wanted = source.run({source.buffers[0].name: given}, n=n, m=m)
        assert np.array_equal(kernel(given.copy(), n=n, m=m), wanted)


STEPS = """\
program f
size n in 1:40
size m in 1:40
input X: int32[400]
inout G: int32[400]
for i in 0:m
  for j in 0:n
    G[i] = X[{index}] + int32(i)
"""


def test_a_loop_in_steps_that_is_cut_again_is_proved() -> None:
    head = "program f\nsize n in 1:40\ninput X: int32[n]\ninout G: int32[n]\n"
    source = oc.parse(f"{head}for i in 0:n\n  G[0] = X[i//2]\n")
    emitted = f"""\
{head}for i_2 in 0:min(3, n//2)
  G[0] = X[i_2]
  G[0] = X[i_2]
for i_2 in 3:n//2
  G[0] = X[i_2]
  G[0] = X[i_2]
for i in 2*(n//2):n
  G[0] = X[i//2]
"""
    check_structure(source, oc.parse(emitted))
    with pytest.raises(NotStructural):
        check_structure(source, oc.parse(emitted.replace("in 3:n//2", "in 4:n//2")))


def test_what_steps_do_not_decide_is_not_cut_into_steps_again() -> None:
    source = oc.parse(
        STEPS.format(index="0").replace("G[i] =", "if max(j, i - 30)//2 > 0\n      G[i] =")
    )
    assert len(str(oc.partition(source).loops).splitlines()) < 40


ENDLESS = """\
program p
size n in 0:60
size m in 0:60
input I: uint8[n]
input T: int32[m + 4, m]
output O: int32[n]
for i in 0:n
  if m > 0
    let q in 1:10 = m//((m + 8)//9)
      for t in 0:(m + 8)//9 + q * ((m + 8)//9) - m
        for j in (q + 1) * (m - q * ((m + 8)//9)) + q * t:(q + 1) * (m - q * ((m + 8)//9)) + q * t + q
          if index(I[i]) < m + 4 and 0 <= j and j < m
            O[i] max= T[index(I[i]), j]
"""


def test_a_loop_is_not_cut_without_end_where_its_parts_run_nothing() -> None:
    source = oc.parse(ENDLESS)
    cut = separate(source, 16)
    assert any("cut at too many places" in note.text for note in cut.notes)
    for m in (0, 1, 9, 13):
        table = np.arange((m + 4) * m, dtype=np.int32).reshape(m + 4, m)
        given = {"I": np.arange(9, dtype=np.uint8) % 5, "T": table}
        assert same_values(cut.program, source, given)


# Tiles whose heights are bounded values are asked with each value, where sets do not tell otherwise.


ELIMINATION = """size n in 0:60
inout A: int32[n, n]
for k in 0:n
  for i in k + 1:n
    for j in k + 1:n
      A[i, j] -= A[i, k] * A[k, j]
"""


@pytest.mark.parametrize("tail", ["balance", slow("mix")])
@pytest.mark.parametrize("tile", [{"i": 3}, slow({"j": 3}), {"i": 3, "j": 2}], ids=str)
def test_rows_below_a_pivot_are_cut_into_tiles_of_nearly_one_height(
    tile: dict[str, int], tail: str
) -> None:
    kernel = oc.compile(oc.partition(oc.parse(ELIMINATION), tile=tile, tail=tail).loops)
    for n in (0, 1, 2, 3, 4, 11):
        a = np.random.default_rng(n).integers(-2, 3, (n, n)).astype("int32")
        wanted = a.copy()
        for k in range(n):
            wanted[k + 1 :, k + 1 :] -= np.outer(wanted[k + 1 :, k], wanted[k, k + 1 :])
        np.testing.assert_array_equal(kernel(a), wanted)


# An array between stages may have an extent below 0 at a size of 0: it takes no scratch, and none from the others.


_PANELS = 64 * 32  # bytes of the kernel in panels: 16 channels as 64 rows, 24 columns as 32


def _thinned(threads: int) -> Kernel:
    """A 1×1 convolution of stride 2: of its input 2*((h + 1)//2) - 1 rows are copied."""
    n, h, w = (oc.dim(name, max=64) for name in "nhw")
    x = oc.placeholder((n, 16, h, w), "int8", name="X")
    k = oc.placeholder((24, 16, 1, 1), "int8", name="K")
    return oc.compile(oc.ops.conv2d(x, k, stride=2), inputs=[x, k], threads=threads)


@pytest.mark.isa("amx-int8")
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_scratch_holds_the_arrays_that_have_elements(threads: int) -> None:
    kernel, weights = _thinned(threads), np.ones((24, 16, 1, 1), "int8")
    asked = WORKSPACE(kernel.entry.workspace)
    for n, h, w in ((1, 0, 3), (64, 0, 64), (64, 64, 0), (64, 0, 0), (2, 3, 5)):
        assert asked((ctypes.c_int64 * 3)(n, h, w)) >= _PANELS
        found = kernel(np.ones((n, 16, h, w), "int8"), weights)
        assert found.shape == (n, 24, (h + 1) // 2, (w + 1) // 2)
        assert (found == 16).all()


# Literals of elements in conditions round and wrap as elements do: sets do not take them for integers.


HOLD = ["float32(0.5) > 0.2", "0.5 > 0.2", "int8(100) + 100 < 0", "float64(0.5) - 1.0 < 0.0"]


def stored(condition: str, index: str) -> oc.Program:
    return oc.parse(
        "program p\nsize n in 0:100\noutput C: float32[n]\nfor i in 0:n\n"
        f"  if {condition}\n    C[{index}] = 1\n"
    )


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("condition", HOLD)
def test_an_access_behind_one_is_asked_at_the_call(condition: str, cut: bool) -> None:
    inside, outside = stored(condition, "i"), stored(condition, "i + 40")
    if cut:
        inside, outside = (oc.partition(p, {"i": 4}, "mask").loops for p in (inside, outside))
    assert np.array_equal(oc.compile(inside)(n=9), np.ones(9))
    with pytest.raises(oc.CallError, match="leads outside of an array"):
        oc.compile(outside)(n=9)


@pytest.mark.parametrize(
    "condition", ["int8(100) + 100 > 0", "float32(-0.5) >= 0.0", "-0.5 >= 0.0"]
)
def test_one_that_fails_does_not_count_as_one_that_holds(condition: str) -> None:
    plain, guarded = stored("n >= 0", "i"), stored(condition, "i")
    with pytest.raises(PartitionError):
        check_equal(plain, guarded)
    assert not oc.compile(guarded)(n=0).size


# Arithmetic of elements inside ``index(…)`` is that of their type, at most an index at last.


EXPRESSIONS = {
    "index(x[i]*0.5)": lambda x, k, j: (x * np.float32(0.5)).astype(int),
    "index(x[i] - 0.9)": lambda x, k, j: np.trunc(x - np.float32(0.9)).astype(int),
    "index(int32(x[i]*0.5))": lambda x, k, j: (x * np.float32(0.5)).astype(int),
    "index(k[i]*2)//2": lambda x, k, j: k,
    "index(7 - k[i])": lambda x, k, j: 7 - k,
    "index(j[i] + 100) % 7": lambda x, k, j: (j + np.int8(100)) % 7,
    "index(x[i]*0.5) + i - i": lambda x, k, j: (x * np.float32(0.5)).astype(int),
}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_index_is_what_its_elements_say(text: str, cut: bool) -> None:
    program = oc.parse(
        "program p\nsize n in 0:99\ninput x: float32[n]\ninput k: int32[n]\ninput j: int8[n]\n"
        f"input V: float32[n]\noutput C: float32[n]\nfor i in 0:n\n  C[i] = V[{text}]\n"
    )
    loops = oc.partition(program, tile={"i": 4}, tail="mask").loops if cut else program
    x, k = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.int32)[::-1].copy()
    j, v = np.arange(8, dtype=np.int8), np.arange(8, dtype=np.float32) * 10
    wanted = v[EXPRESSIONS[text](x, k, j)]
    given = {"x": x, "k": k, "j": j, "V": v}
    np.testing.assert_array_equal(program.run(given), wanted)
    np.testing.assert_array_equal(oc.compile(loops)(x, k, j, v), wanted)


def test_a_choice_of_nothing_runs() -> None:
    program = oc.parse(
        "program p\noutput C: float32[1]\nchoose\n  option a costs 0\n  option b costs 1\n"
    )
    assert oc.compile(program)().shape == (1,)


@pytest.mark.parametrize("clamped", [True, False])
def test_an_index_between_the_ends_of_its_axis_asks_nothing(clamped: bool) -> None:
    n, m = oc.dim("n", min=1, max=99), oc.dim("m", min=0, max=99)
    X, P = oc.placeholder((n,), "float32", name="X"), oc.placeholder((m,), "int32", name="P")

    def place(i: Any) -> Any:
        meant = oc.index(P[i]) + 1
        return oc.maximum(oc.minimum(meant, n - 1), 0) if clamped else meant

    kernel = oc.compile(oc.compute((m,), lambda i: X[place(i)], name="Y"), inputs=[X, P])
    assert ("outside" in kernel.source("loops")) is not clamped
    x, p = np.arange(5, dtype=np.float32), np.array([-9, -1, 0, 3, 4, 2**31 - 1] * 11, np.int32)
    if clamped:
        wide = np.clip(p.astype(np.int64) + 1, 0, 4)
        np.testing.assert_array_equal(kernel(x, p), x[wide])
        return
    with pytest.raises(oc.CallError, match="leads outside of an array"):
        kernel(x, p)


# A bound that is read from memory may be another one when it is read again: it shows nothing of a window.


CHANGED = """
program p
size n in 1:1000
inout p: int32[1]
local L: float32[2000]
output A: float32[1]
alloc L[0 +: n]
  for i in 0:n - index(p[0])
    p[0] = int32(1000)
    for j in 0:index(p[0])
      L[i + j] = 1.0
      A[0] = L[i + j]
"""
COUNTED = """
program p
size n in 1:100
input p: int32[1]
local L: float32[n]
output A: float32[1]
alloc L[0 +: index(p[0])]
  for j in 0:index(p[0])
    L[j] = 1.0
    A[0] = L[j]
"""


@pytest.mark.parametrize("text", [CHANGED, COUNTED], ids=["changed", "counted"])
def test_a_window_of_what_memory_says_is_not_seen_to_hold_its_accesses(text: str) -> None:
    with rejection(
        "PartitionError: compile: cannot compile p\n  at       alloc L\n"
        "  because  nothing shows that all that is accessed of L lies in a window of it\n"
        "  help     a larger window, or L without alloc, which holds all of it"
    ):
        oc.compile(oc.parse(text))


def test_without_a_window_such_bounds_are_checked_at_the_call() -> None:
    kernel = oc.compile(oc.parse(CHANGED.replace("alloc L[0 +: n]", "if 0 < n")))
    assert kernel(np.array([900], "int32"), n=901)[1].tolist() == [1.0]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_to_no_key_at_all_gives_zeros(causal: bool) -> None:
    s = oc.dim("s", max=8)
    shapes = {"Q": (1, s, 7), "K": (1, 0, 7), "V": (1, 0, 2)}
    q, k, v = (oc.placeholder(shape, name=name) for name, shape in shapes.items())
    kernel = oc.compile(oc.ops.attention(q, k, v, causal=causal), inputs=[q, k, v])
    found = kernel(*(np.ones(shape, "float32") for shape in ((1, 3, 7), (1, 0, 7), (1, 0, 2))))
    np.testing.assert_array_equal(found, np.zeros((1, 3, 2)))


READ = """program p
size n in 0:200
size m in 0:200
input p: int64[n]
input x: int8[n]
inout c: int8[n]
for i in 1:n - 1
  for j in 0:m
    for k in 0:index(p[i])
      c[k] += where(k <= j, x[i], x[k])
"""


@pytest.mark.every(5)
@pytest.mark.parametrize("tile", [{}, {"j": 8}, {"i": 8}])
def test_where_an_answer_changes_is_not_read_from_memory(tile: dict[str, int]) -> None:
    program = oc.parse(READ)
    with pytest.raises(oc.PartitionError, match="cannot read the bound"):
        oc.partition(program, tile=tile, copies=4)
    kept = oc.partition(program, tile=tile)  # the condition stays where it is
    p, x, c = np.array([4, 2, 7, 0, 3, 6, 9, 9, 1]), np.arange(9, dtype=np.int8), np.zeros(9, "i1")
    given = {"p": p, "x": x, "c": c}
    np.testing.assert_array_equal(kept.loops.run(given, m=10), program.run(given, m=10))
    oc.compile(program)


def test_what_is_asked_before_is_known_in_either_form() -> None:
    """An index is read only where a condition holds, in a loop that is asked first."""
    kernel = oc.compile(
        oc.parse(
            "program p\nsize n in 0:200\ninput p: int64[n]\ninput x: float32[n]\ninout c: float32[n]\n"
            "for i in 0:n\n  for k in 0:index(p[i])\n    c[k] += where(i != 3, 1.0, x[index(p[k])])\n"
        )
    )
    p, x, c = np.array([1, 2, 0, 3, 1]), np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    wanted = c.copy()
    for i in range(5):
        for k in range(p[i]):
            wanted[k] += 1.0 if i != 3 else x[p[k]]
    np.testing.assert_array_equal(kernel(p, x, c), wanted)
