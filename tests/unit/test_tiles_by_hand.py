"""`cover C at i vectors` by hand: tiles with roles and masks, as the nests of a processor have them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from tests.agree import agree, computed
from tests.unit.test_blocks import stages_of_softmax

ROWS, COLUMNS = 3, 8
SIZES = [(0, 0), (1, 1), (2, 7), (3, 8), (4, 9), (9, 24), (14, 29)]


def dense() -> tuple[list[oc.Tensor], oc.Tensor]:
    """int32 rows of 5 times 5 rows of symbolic width."""
    n, m, k = oc.dim("n", max=64), oc.dim("m", max=64), oc.reduce_axis(5, name="k")
    a, w = oc.placeholder((n, 5), "int32", "A"), oc.placeholder((5, m), "int32", "W")
    return [a, w], oc.compute((n, m), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")


def scheduled(*lines: str) -> oc.schedule.HandSchedule:
    inputs, result = dense()
    text = "\n".join(("schedule C", *lines))
    return oc.create_schedule(result, inputs=inputs).apply(oc.Schedule.parse(text))


@pytest.mark.parametrize("tail", ["mask", "shift", "balance"])
def test_tiles_that_run_as_vectors_are_proved_and_compute_the_same(tail: str) -> None:
    s = scheduled(
        f"split C.i {tail} {ROWS} as io ii",
        f"split C.j {tail} {COLUMNS} as jo ji",
        "order C io jo ii ji",
        "cover C at ii vectors",
    )
    s.lower()  # proved for all sizes
    random = np.random.default_rng(0)
    for n, m in SIZES:
        a = random.integers(-9, 9, (n, 5)).astype("int32")
        w = random.integers(-9, 9, (5, m)).astype("int32")
        assert np.array_equal(s.run({"A": a, "W": w}, n=n, m=m), a @ w), (n, m)


def test_the_decisions_of_a_processor_make_the_same_program_by_hand() -> None:
    inputs, y = stages_of_softmax()
    kernel = oc.compile(y, inputs=inputs, records=False)
    lines = [one for one in str(kernel.schedule).splitlines() if not one.startswith("bind")]
    assert sum("vectors" in one for one in lines) == 4
    s = oc.create_schedule(y, inputs=inputs).apply(oc.Schedule.parse("\n".join(lines)))
    assert str(s.loops) == str(kernel.loops).replace("  @lane", "")


TRIANGLE = """program y
size n in 0:33
input L: int32[n, n]
output y: int32[n]
for i in 0:n
  y[i] = 0
  for j in 0:i + 1
    y[i] += L[i, j]
"""


def test_a_tile_is_a_box() -> None:
    program = TRIANGLE.replace("output y: int32[n]", "output y: int32[n, n]").replace(
        "  y[i] = 0\n", ""
    )
    program = program.replace("y[i] += L[i, j]", "y[i, j] = L[i, j]")
    with rejection("""\
PartitionError: cover: cannot run y by vectors
  at       line 2: cover y vectors
  because  the bounds of j depend on i, another loop of its tile
  help     an order that names the loops around the tile, j among them"""):
        oc.create_schedule(oc.parse(program)).apply(
            oc.Schedule.parse("schedule y\ncover y vectors")
        )


REFUSED = refusals(
    """\
a loop that is bound
given ('split C.j mask 8 as jo ji', 'bind C.ji unroll', 'order C i jo ji', 'cover C at ji vectors')
cover: cannot run C by vectors
  at       line 5: cover C at ji vectors
  because  ji is run by unroll
  help     an order that names the loops around the tile, ji among them

two covers
given ('cover C vectors', 'cover C at j vectors')
cover: cannot run C by vectors
  at       line 3: cover C at j vectors
  because  line 2: cover C vectors has decided it

loops that are fused
given ('split C.j cut 4 as jo ji', 'fuse C.jo C.ji as t', 'order C i t', 'cover C at t vectors')
cover: cannot run C by vectors
  at       line 5: cover C at t vectors
  because  t is not the innermost part of a loop: its values are not consecutive
  help     an order that names the loops around the tile, t among them

a split behind the cover
given ('order C i j', 'cover C at j vectors', 'split C.j mask 8 as jo ji')
split: cannot change the loops that vectors run
  at       line 4: split C.j mask 8 as jo ji
  because  its tile has the loops j, k
  help     this decision before the cover

a unit behind the cover
given ('order C i j', 'cover C at j vectors', 'bind C.j unroll')
bind: cannot change the loops that vectors run
  at       line 4: bind C.j unroll
  because  j is a loop of its tile""",
    globals(),
)


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_run_as_vectors_is_refused_by_its_line(what: str) -> None:
    lines, text = REFUSED[what]
    with rejection(f"PartitionError: {text}"):
        scheduled(*lines)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (
            ("at C D.i", "cover C vectors"),
            "schedule: cannot cover C\n"
            "  at       line 3: cover C vectors\n"
            "  because  no nest that computes it is a sequence of whole arrays, each from those before\n"
            "  help     cover C at i vectors, i the outermost of its loops that are a tile\n"
            "  help     separate, split and bind, for loops as they stand",
        ),
        (
            ("cover D vectors",),
            "schedule: cannot find a nest of D\n"
            "  at       line 2: cover D vectors\n"
            "  because  each element of it is computed as soon as that of C is, in one nest\n"
            "  help     cover C …",
        ),
    ],
)
def test_a_cover_of_a_stage_that_no_nest_begins_with_is_refused(
    lines: tuple[str, ...], text: str
) -> None:
    n = oc.dim("n", max=64)
    x = oc.placeholder((n, 24), name="X")
    c = oc.compute((n, 24), lambda i, j: 2 * x[i, j] + 1, name="C")
    d = oc.compute((n, 24), lambda i, j: oc.maximum(c[i, j], 0.0), name="D")

    with rejection(f"PartitionError: {text}"):
        oc.compile(d, inputs=[x], schedule=oc.Schedule.parse("\n".join(("schedule D", *lines))))


# Loops whose bounds depend on a loop of the same tile, split by hand: full tiles ask nothing, and run no instance
# outside of the bounds.


T = 4
EDGES = (0, 1, T - 1, T, T + 1, 3 * T, 3 * T + 5)

# bounds of j -> whether an instance is one
SHAPES: dict[str, Callable[[int, int, int], bool]] = {
    "0:i + 1": lambda i, j, n: j <= i,
    "i:n": lambda i, j, n: i <= j < n,
    "n - i:n": lambda i, j, n: n - i <= j < n,
    "max(i - 2, 0):min(i + 3, n)": lambda i, j, n: i - 2 <= j <= i + 2,
    "i//2:i": lambda i, j, n: i // 2 <= j < i,
}
STRATEGIES = ("cut", "ladder", "ladder of 4 2 1", "balance", "mask", "guard", "even")


def program(bounds: str, inside: str = "") -> oc.Program:
    """Return a program that adds to each element (i, j) that its bounds hold, once for each k of `inside`."""
    sums = (
        f"    for k in {inside}\n      C[i, j] += A[i, k]" if inside else "    C[i, j] += A[i, j]"
    )
    return oc.parse(
        f"program p\nsize n in 0:65\ninput A: int32[n, n]\ninout C: int32[n, n]\n"
        f"for i in 0:n\n  for j in {bounds}\n{sums}\n"
    )


def scheduled_program(source: oc.Program, *lines: str) -> oc.schedule.HandSchedule:
    text = "\n".join(("schedule p", *lines))
    return oc.create_schedule(source).apply(oc.Schedule.parse(text))


# Each strategy on two shapes, and each shape by two strategies at least.
@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("strategy", "bounds"),
    sorted({*zip(STRATEGIES, cycle(SHAPES)), *zip(STRATEGIES, cycle(reversed(SHAPES)))}),
)
def test_every_instance_of_a_triangle_runs_once(bounds: str, strategy: str) -> None:
    size = "" if " of " in strategy else f" {T}"
    lines = (
        f"split C.i ladder {T} as io ii",
        f"split C.j {strategy}{size} as jo ji",
        "order C io jo ii ji",
    )
    loops = scheduled_program(program(bounds), *lines).lower()  # proved for all sizes
    for n in EDGES:
        a = np.random.default_rng(n).integers(1, 9, (n, n)).astype("int32")
        c = np.zeros((n, n), "int32")
        held = np.array([[SHAPES[bounds](i, j, n) for j in range(n)] for i in range(n)])
        got = loops.run({"A": a, "C": c}, n=n)
        assert np.array_equal(got, np.where(held.reshape(n, n), a, 0)), n


def test_full_tiles_of_a_triangle_ask_nothing_and_others_stay_in_the_rows_of_the_tile() -> None:
    lines = f"split C.i cut {T} as io ii", f"split C.j cut {T} as jo ji", "order C io jo ii ji"
    text = str(scheduled_program(program("0:i + 1"), *lines).loops).split(
        "for io in 0:n//4  @body\n"
    )[1]
    assert text.startswith("""\
  for jo in 0:io  @body
    for ii in 0:4
      for ji in 0:4
        C[4*io + ii, 4*jo + ji] += A[4*io + ii, 4*jo + ji]
  for jo in 0:1
    for ii in 0:4
      for ji in 0:4
        if 4*io + 4*jo + ji < 4*io + ii + 1
""")


# A stage that reads a sum at each point shares the loops of the sum: lines about it may name its axes as it does,
# on every target.


EMULATED = oc.target("cuda", machine="h200", device="emulated")


def relu_of_product(*names: str) -> tuple[oc.Tensor, list[oc.Tensor]]:
    """``R = max(A @ W, 0)``, whose axes have these names, of the product `S`, whose axes are i and j."""
    n, k = oc.dim("n", max=64), oc.reduce_axis(8, name="k")
    a, w = oc.placeholder((n, 8), name="A"), oc.placeholder((8, 24), name="W")
    s = oc.compute((n, 24), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="S")
    r = oc.compute((n, 24), lambda *at: oc.maximum(s[at], 0.0), axes=names, name="R")
    return r, [a, w]


@pytest.mark.every(4)
@pytest.mark.parametrize("target", ["cpu", EMULATED], ids=["cpu", "emulated"])
@pytest.mark.parametrize("axes", ["r c", "i j"])
def test_a_line_may_name_an_axis_as_its_own_stage_or_as_the_sum_does(
    axes: str, target: str | oc.Target
) -> None:
    r, inputs = relu_of_product("r", "c")
    rows, columns = axes.split()
    schedule = oc.Schedule.parse(
        f"schedule R\nsplit R.{rows} mask 4 as a b\norder R a {columns} b\nat S R.a"
    )
    by_hand = oc.create_schedule(r).apply(schedule).lower()
    kernel = oc.compile(r, inputs=inputs, schedule=schedule, target=target)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 24), dtype=np.float32)
    for n in (0, 1, 3, 4, 5, 17):
        x = rng.standard_normal((n, 8), dtype=np.float32)
        agree(kernel(x, w), computed(lambda x, w: np.maximum(x @ w, 0), x, w))
    assert "for a in 0:n//4" in str(by_hand)
    replayed = oc.Schedule.parse(str(kernel.schedule))
    again = oc.compile(r, inputs=inputs, schedule=replayed, target=target)
    assert again.loops == kernel.loops


@pytest.mark.parametrize("target", ["cpu", EMULATED], ids=["cpu", "emulated"])
def test_where_the_two_stages_cross_their_names_a_printed_schedule_is_replayed(
    target: str | oc.Target,
) -> None:
    r, inputs = relu_of_product("j", "i")
    kernel = oc.compile(r, inputs=inputs, target=target)
    replayed = oc.Schedule.parse(str(kernel.schedule))
    assert oc.compile(r, inputs=inputs, schedule=replayed, target=target).loops == kernel.loops


# A schedule that says a thing twice is refused by the second line, or by the line that holds both.


ONE_SPLIT = """schedule S
split S.r balance 14 as a b
split S.c mask 32 as e d
order S a e b d
cover S at b fma_float32_avx512(i=b, j=d, p=k)"""


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize("height", [14, 8])
def test_an_axis_is_split_once_whatever_its_loops_are_called(height: int) -> None:
    k = oc.reduce_axis(21, name="k")
    a = oc.placeholder((oc.dim("n", max=99), 21), name="A")
    w = oc.placeholder((21, 50), name="W")
    s = oc.compute((a.shape[0], 50), lambda r, c: oc.sum(a[r, k] * w[k, c], axis=k), name="S")
    oc.compile(s, inputs=[a, w], schedule=oc.Schedule.parse(ONE_SPLIT))
    first, split, *rest = ONE_SPLIT.splitlines()
    again = f"split S.r balance {height} as a b"
    twice = oc.Schedule.parse("\n".join((first, split, again, *rest)))
    with pytest.raises(oc.OffcutError) as refused:
        oc.compile(s, inputs=[a, w], schedule=twice)
    assert (
        str(refused.value)
        == f"""\
split: cannot take r as an axis
  at       line 3: {again}
  because  it is split into r_tile and r_in
  help     loops of S: r_tile, r_in, c_tile, c_in"""
    )


@pytest.mark.parametrize(
    ("pairs", "name"),
    [("j=b, j=d, p=k", "j"), ("i=b, p=k, p=k", "p"), ("i=b; A=A, A=W", "A")],
)
def test_a_cover_says_once_what_an_axis_or_an_operand_is(pairs: str, name: str) -> None:
    with pytest.raises(oc.OffcutError) as refused:
        oc.Schedule.parse(f"schedule S\ncover S at b m({pairs})")
    assert (
        str(refused.value)
        == f"""\
parse: cannot read a schedule
  at       line 2: cover S at b m({pairs})
  because  it says twice what {name} of m is"""
    )
