"""A sum and what reads it, as two stages by hand: in a window of one tile, or at each point of a tile; and what is refused."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from compiled import Array, floats, same_bits
from conftest import edge_sizes, refusals, rejection

import offcut as oc
from tests.agree import agree, computed
from tests.facade import WORKSPACE
from tests.machines import EAGER, host_threads

ROWS, DEPTH, WIDTH = 14, 9, 72
TAILS = ("guard", "cut", "mask", "pad", "shift", "ladder", "balance", "even", "mix")
KERNEL = "fma_float32_avx512"

pytestmark = pytest.mark.isa("avx512f")


class Case(NamedTuple):
    """What reads the sum ``S = A @ W``.

    inputs  A, W and what else the readers read
    value   of arrays in float64, what the last of them computes
    """

    outputs: tuple[oc.Tensor, ...]
    inputs: tuple[oc.Tensor, ...]
    value: Callable[..., Any]


def dense(width: int = WIDTH) -> tuple[oc.Tensor, oc.Tensor, oc.Tensor]:
    """The operands of a product of symbolic height, and the product ``S``."""
    a = oc.placeholder((oc.dim("n", max=4096), DEPTH), name="A")
    w, k = oc.placeholder((DEPTH, width), name="W"), oc.reduce_axis(DEPTH, name="k")
    size = (a.shape[0], width)
    return a, w, oc.compute(size, lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="S")


def relu(width: int = WIDTH) -> Case:
    a, w, s = dense(width)
    c = oc.compute(s.shape, lambda i, j: oc.maximum(s[i, j], 0.0), name="C")
    return Case((c,), (a, w), lambda a, w: np.maximum(a @ w, 0))


def silu() -> Case:
    """Bias, and x/(1 + exp(-x)) of it."""
    (a, w, s), bias = dense(), oc.placeholder((WIDTH,), name="b")

    def of(x: Any, exp: Any) -> Any:
        return x / (1.0 + exp(-x))

    c = oc.compute(s.shape, lambda i, j: of(s[i, j] + bias[j], oc.exp), name="C")
    return Case((c,), (a, w, bias), lambda a, w, b: of(a @ w + b, np.exp))


def neighbours() -> Case:
    """A reader of two elements of each row."""
    a, w, s = dense()
    size = (s.shape[0], WIDTH - 1)
    c = oc.compute(size, lambda i, j: s[i, j] - s[i, j + 1], name="C")
    return Case((c,), (a, w), lambda a, w: (a @ w)[:, :-1] - (a @ w)[:, 1:])


def both() -> Case:
    """A sum that is a result, as its reader is."""
    a, w, s = dense()
    c = oc.compute(s.shape, lambda i, j: oc.maximum(s[i, j], 0.0), name="C")
    return Case((s, c), (a, w), lambda a, w: (a @ w, np.maximum(a @ w, 0)))


def partial_reader() -> Case:
    """A reader of all but the last column of a result."""
    a, w, s = dense()
    c = oc.compute((s.shape[0], WIDTH - 1), lambda i, j: s[i, j], name="C")
    return Case((s, c), (a, w), lambda a, w: (a @ w, (a @ w)[:, :-1]))


def row_peaks(width: int = WIDTH) -> Case:
    """A reader of a whole row."""
    (a, w, s), r = dense(width), oc.reduce_axis(width, name="r")
    c = oc.compute((s.shape[0],), lambda i: oc.max(s[i, r], axis=r), name="C")
    return Case((c,), (a, w), lambda a, w: (a @ w).max(1, initial=-np.inf))


def softmax() -> Case:
    """Four readers, two of which read a whole row."""
    (a, w, s), r, q = dense(), oc.reduce_axis(WIDTH, name="r"), oc.reduce_axis(WIDTH, name="q")
    p = oc.compute((s.shape[0],), lambda i: oc.max(s[i, r], axis=r), name="P")
    e = oc.compute(s.shape, lambda i, j: oc.exp(s[i, j] - p[i]), name="E")
    t = oc.compute((s.shape[0],), lambda i: oc.sum(e[i, q], axis=q), name="T")
    c = oc.compute(s.shape, lambda i, j: e[i, j] / t[i], name="C")

    def value(a: Array, w: Array) -> Array:
        e = np.exp(a @ w - (a @ w).max(1, keepdims=True, initial=-np.inf))
        return e / e.sum(1, keepdims=True)

    return Case((c,), (a, w), value)


SPLITS = """\
split C.i {tail} 14 as i_tile i_in
split C.j ladder 32 as j_tile j_in
order C i_tile j_tile i_in j_in
"""
WINDOW = f"at S C.j_tile\ncover S at i {KERNEL}(i=i, j=j, p=k)\ncover C at i_in vectors\n"
POINTS = f"at S C.j_in\ncover C at i_in {KERNEL}(i=i_in, j=j_in, p=k)\n"
VECTORS = "at S C.j_in\ncover C at i_in vectors\n"
BY_HEIGHT = """\
split C.i balance 14 as i_tile i_in
split C.j ladder 192 then ladder by i_in 1..1: 64 32 16, 2..9: 48 32 16, 10..14: 32 16 as j_group j_tile j_in
order C j_group i_tile j_tile i_in j_in
"""
PANELS = "stage read W for S as P layout panels(0, 1, 16)\n"
ROW_PEAKS = f"""\
split C.i {{tail}} 14 as i_tile i_in
order C i_tile i_in
split S.j ladder 32 as j_tile j_in
order S j_tile i j_in
at S C.i_tile
cover S at i {KERNEL}(i=i, j=j_in, p=k)
cover C at i_in vectors
"""
SOFTMAX = f"""\
split C.i {{tail}} 14 as i_tile i_in
order C i_tile i_in j
at T C.i_tile
at E C.i_tile
at P C.i_tile
at S C.i_tile
cover S at i {KERNEL}(i=i, j=j, p=k)
cover P at i vectors
cover E at i vectors
cover T at i vectors
cover C at i_in vectors
"""


def kernel_of(case: Case, lines: str, **options: Any) -> oc.Kernel:
    schedule = oc.Schedule.parse("schedule C\n" + lines)
    assert oc.Schedule.parse(str(schedule)) == schedule
    return oc.compile(case.outputs, inputs=case.inputs, schedule=schedule, **options)


def arrays_of(case: Case, n: int) -> list[Array]:
    shapes = [[int(str(e)) if str(e).isdigit() else n for e in one.shape] for one in case.inputs]
    return [floats(number, *shape) for number, shape in enumerate(shapes)]


def check(case: Case, kernel: oc.Kernel) -> None:
    """Check what a kernel gives at every way a size can sit against a tile, against numpy in float64."""
    for n in edge_sizes(ROWS):
        arrays = arrays_of(case, n)
        results, exact = kernel(*arrays), computed(case.value, *arrays)
        for one, wanted in zip(
            *((x if isinstance(x, tuple) else (x,)) for x in (results, exact)), strict=True
        ):
            agree(one, wanted, what=f"n = {n}")


@pytest.mark.every(5)
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("lines", [WINDOW, POINTS, VECTORS], ids=["window", "points", "vectors"])
def test_a_sum_is_what_its_reader_reads_whatever_the_tail(lines: str, tail: str) -> None:
    check(relu(), kernel_of(relu(), SPLITS.format(tail=tail) + lines))


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("case", "lines"),
    [
        (silu, SPLITS.format(tail="balance") + WINDOW),
        (silu, SPLITS.format(tail="mask") + POINTS),
        (relu, BY_HEIGHT + WINDOW),
        (relu, BY_HEIGHT + POINTS),
        (relu, PANELS + SPLITS.format(tail="ladder") + WINDOW),
        (
            relu,
            PANELS
            + SPLITS.format(tail="ladder")
            + "at S C.j_tile\nat P C.j_tile\n"
            + WINDOW.partition("\n")[2],
        ),
        (neighbours, SPLITS.format(tail="ladder") + WINDOW),
        (both, SPLITS.format(tail="shift") + WINDOW),
        (both, SPLITS.format(tail="ladder") + POINTS),
        (row_peaks, ROW_PEAKS.format(tail="balance")),
        (row_peaks, ROW_PEAKS.format(tail="mask")),
        (softmax, SOFTMAX.format(tail="ladder")),
        (softmax, SOFTMAX.format(tail="balance")),
    ],
)
def test_readers_of_several_kinds_are_right(case: Callable[[], Case], lines: str) -> None:
    check(case(), kernel_of(case(), lines))


@pytest.mark.every(4)
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("lines", [POINTS, VECTORS])
def test_by_hand_it_is_proved_and_interpreted_the_same(lines: str, tail: str) -> None:
    """`oc.compile` reads these lines as a nest; here they are applied one by one."""
    case = relu()
    s = oc.create_schedule(case.outputs, inputs=case.inputs)
    s.with_microkernels(oc.target("cpu").microkernels())
    s.apply(oc.Schedule.parse("schedule C\n" + SPLITS.format(tail=tail) + lines))
    if tail == "balance":  # others say the height of their tails otherwise
        nest = kernel_of(case, SPLITS.format(tail=tail) + lines)
        assert str(s.lower()) == re.sub("; A=A, B=W, C=S", "", str(nest.loops))
    for n in (0, 1, 13, 15, 29):
        a, w = arrays_of(case, n)
        agree(s.run({"A": a, "W": w}, n=n), computed(case.value, a, w), what=f"n = {n}")


def test_by_hand_more_than_one_element_at_a_point_is_refused() -> None:
    case = neighbours()
    s = oc.create_schedule(case.outputs, inputs=case.inputs)
    s.apply(oc.Schedule.parse("schedule C\n" + SPLITS.format(tail="ladder") + VECTORS))
    with rejection("""\
PartitionError: compute_at: cannot compute S at each point of a tile of C
  at       stage S
  because  C reads S[i, j] and S[i, j + 1] at one point
  help     at S C.j_tile"""):
        s.lower()


@pytest.mark.parametrize("lines", [WINDOW, POINTS])
def test_small_windows_lie_on_the_stack(lines: str) -> None:
    for tail in ("balance", "mask", "guard"):
        kernel = kernel_of(relu(64), SPLITS.format(tail=tail) + lines)
        assert workspace(kernel, 1000) == 0, tail


def workspace(kernel: oc.Kernel, n: int) -> int:
    """Return the bytes of scratch of a call."""
    return int(WORKSPACE(kernel.entry.workspace)((ctypes.c_int64 * 1)(n)))


def test_a_large_window_has_room_for_the_tallest_tile_alone() -> None:
    kernel = kernel_of(row_peaks(2016), ROW_PEAKS.format(tail="balance"))
    assert workspace(kernel, 14) == workspace(kernel, 4000) > 14 * 2016 * 4


@pytest.mark.every(2)
@pytest.mark.parametrize("lines", [WINDOW, POINTS])
@pytest.mark.parametrize("tail", ["ladder", "balance"])
def test_two_threads_have_the_bits_of_one(tail: str, lines: str) -> None:
    binds = "bind * thread\n" if lines == POINTS else ""  # a nest has the units that its lines name
    with host_threads(**EAGER):
        shared = kernel_of(relu(), SPLITS.format(tail=tail) + lines + binds, threads=2)
    alone = kernel_of(relu(), SPLITS.format(tail=tail) + lines)
    assert "@thread" in str(shared.loops)
    for n in edge_sizes(ROWS):
        a, w = arrays_of(relu(), n)
        assert same_bits(shared(a, w), alone(a, w)), n


def test_what_is_left_of_a_shared_loop_is_shared_by_its_inner_loops() -> None:
    """Windows inside of these are of one thread, so no loop runs in step for them."""
    shared = kernel_of(relu(), SPLITS.format(tail="cut") + WINDOW, threads=2)
    loops = [line.strip() for line in str(shared.loops).splitlines() if " in 0:n//14" in line]
    assert loops == ["for i_tile in 0:n//14  @body  @thread"]


def test_options_may_place_stages() -> None:
    def option(label: str, seconds: str) -> str:
        lines = (SPLITS.format(tail=label) + WINDOW).splitlines()
        return "\n".join(
            (f"  option {label} costs {seconds}", *("    " + line for line in lines), "")
        )

    text = "choose\n" + option("ladder", "1e-09*float64(n)") + option("balance", "2e-08")
    check(relu(), kernel_of(relu(), text))


REFUSED = refusals(
    """\
a window inside of a tile that reads more than a point
given neighbours, SPLITS.format(tail='ladder') + VECTORS
schedule: cannot compute S at each point of C
  at       line 2: split C.i ladder 14 as i_tile i_in
  because  C reads other elements of S than the one at its point, or has other axes
  help     at S in a loop around the tile

a loop of the tile that is not its innermost
given relu, SPLITS.format(tail='ladder') + 'at S C.i_in\\ncover C at i_in vectors'
cover: cannot run C by vectors
  at       line 6: cover C at i_in vectors
  because  S is computed inside of i_in
  help     an order that names the loops around the tile, i_in among them

a cover of its own at each point
given relu, SPLITS.format(tail='ladder') + f'at S C.j_in\\ncover S at i {KERNEL}(i=i, j=j, p=k)\\ncover C at i_in vectors'
cover: cannot run C by vectors
  at       line 7: cover C at i_in vectors
  because  S is computed inside of j_in
  help     an order that names the loops around the tile, j_in among them

a cover of what is computed at each point
given relu, SPLITS.format(tail='ladder') + f'cover C at i_in vectors\\nat S C.j_in\\ncover S at i {KERNEL}(i=i, j=j, p=k)'
cover: cannot run S by fma_float32_avx512
  at       line 7: cover S at i fma_float32_avx512(i=i, j=j, p=k)
  because  it is computed at each point of the tile of C, and what covers that runs both
  help     at S in a loop around the tile

a stage that is placed in a covered tile, not at its points
given relu, SPLITS.format(tail='ladder') + 'cover C at i_in vectors\\nat S C.i_in'
at: cannot change the loops that vectors run
  at       line 6: at S C.i_in
  because  S would be computed inside of its tile
  help     this decision before the cover

a tile higher than the microkernel
given relu, SPLITS.format(tail='ladder').replace('14', '20') + WINDOW
compile: cannot cover a tile by fma_float32_avx512
  at       line 6: cover S at i fma_float32_avx512(i=i, j=j, p=k)
  because  extents: up to 20 instances along i are more than its 14
  help     without @cover(…) it runs as vectors

the loops of the reader
given relu, SPLITS.format(tail='ladder') + WINDOW.replace('i=i, j=j', 'i=i_in, j=j_in')
cover: cannot run S from i inwards by fma_float32_avx512
  at       line 6: cover S at i fma_float32_avx512(i=i_in, j=j_in, p=k)
  because  i_in is not a loop of its tile
  help     its loops are i, j, k

a result of which not all is read
given partial_reader, SPLITS.format(tail='ladder') + WINDOW
at: cannot compute S at C.j_tile
  at       line 5: at S C.j_tile
  because  S is output: all of it is wanted, and C reads S[i, j] for j in 0:71
  help     stage write S as SL makes a local buffer that computes it

a result in several windows
given both, SPLITS.format(tail='ladder') + WINDOW.replace('C.j_tile', 'C.j_tile depth 2')
at: cannot keep S in a window
  at       line 5: at S C.j_tile depth 2
  because  S is output: it lies in its own array
  help     at S C.j_tile""",
    globals(),
)


@pytest.mark.parametrize(("case", "lines", "text"), REFUSED.values(), ids=REFUSED)
def test_a_place_that_is_not_legal_is_refused_by_its_line(
    case: Callable[[], Case], lines: str, text: str
) -> None:
    with rejection(f"PartitionError: {text}"):
        kernel_of(case(), lines)
