"""`cover C at i vectors` by hand: tiles with roles and masks, as the nests of a processor have them, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
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


@pytest.mark.parametrize("tail", ["mask", "shift", "balance", "guard"])
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
