"""Every refusal of a schedule, word for word, with its witness; what is accepted is in unit/test_schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut.describe.microkernel import Microkernel
from offcut.errors import OffcutError
from offcut.schedule import HandSchedule

n, m, d = oc.dim("n", max=64), oc.dim("m", max=64), oc.dim("d", max=64)

SEIDEL = """\
program seidel
size t in 0:10
size n in 3:40
inout A: float64[n, n]
for s in 0:t
  for i in 1:n - 1
    for j in 1:n - 1
      A[i, j] = (A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]) / 5.0
"""
JACOBI = """\
program jacobi
size t in 0:10
size n in 3:40
inout A: float64[n]
local B: float64[n]
for s in 0:t
  for i in 1:n - 1
    B[i] = (A[i - 1] + A[i] + A[i + 1]) / 3.0
  for i in 1:n - 1
    A[i] = B[i]
"""
TWICE = """\
size n in 0:9
output C: int32[n]
for i in 0:n
  C[i] = 1
for i in 0:n
  C[i] += 2
"""
CUT = """\
size n in 0:9
output C: int32[n]
tile i in 0 +: n
  C[i] = 1
"""


def matmul(rows: Any, columns: Any, depth: Any, dtype: str = "float32", op: Any = oc.sum) -> Any:
    A, B = oc.placeholder((depth, rows), dtype, "A"), oc.placeholder((depth, columns), dtype, "B")
    k = oc.reduce_axis(depth, name="k")
    return oc.compute((rows, columns), lambda y, x: op(A[k, y] * B[k, x], axis=k), name="C")


def product(*sizes: int) -> HandSchedule:
    return oc.create_schedule(matmul(*(sizes or (n, m, d))))


def text(program: str) -> HandSchedule:
    return oc.create_schedule(oc.parse(program))


def chain() -> HandSchedule:
    """A, then B element by element, then D, then E, a sum by row."""
    A = oc.placeholder((n, m), name="A")
    B = oc.compute((n, m), lambda i, j: A[i, j] * 2.0, name="B")
    D = oc.compute((n, m), lambda i, j: B[i, j] + 1.0, name="D")
    r = oc.reduce_axis(m, "r")
    return oc.create_schedule(oc.compute((n,), lambda i: oc.sum(D[i, r], axis=r), name="E"))


def fork() -> HandSchedule:
    """B, which D and E read."""
    A = oc.placeholder((n,), name="A")
    B = oc.compute((n,), lambda i: A[i] * 2.0, name="B")
    D = oc.compute((n,), lambda i: B[i] + 1.0, name="D")
    return oc.create_schedule([D, oc.compute((n,), lambda i: B[i] - 1.0, name="E")])


def gemm(single: bool = False) -> Microkernel:
    w, v, r = (
        oc.placeholder((8, 8), name="w"),
        oc.placeholder((8, 8), name="x"),
        oc.reduce_axis(8, "r"),
    )
    block = oc.compute((8, 8), lambda i, j: oc.sum(w[r, i] * v[r, j], axis=r), name="block")
    whole = oc.hardware_intrinsic("gemm8x8")
    three = whole, oc.hardware_intrinsic("fill_zero"), oc.hardware_intrinsic("gemm8x8_add")
    return oc.decl_tensor_intrin(block, lambda inputs, outputs: whole if single else three)


def declared(lowering: Any, extent: Any = 4) -> Microkernel:
    X = oc.placeholder((extent,), name="X")
    return oc.decl_tensor_intrin(oc.compute((extent,), lambda i: X[i], name="Y"), lowering)


def covered() -> tuple[HandSchedule, tuple[Any, ...]]:
    """A product whose inner loops yi, xi, ki an instruction runs."""
    s = product()
    axes = s["C"].tile("y", "x", "k", 8, 8, 8)
    s["C"].tensorize("yi", gemm())
    return s, axes


REFUSED = refusals(
    """
>>> product()['A']
schedule: cannot tell the stage of A
  because  no stage writes it
  help     stages: C

>>> text(TWICE)['C']
schedule: cannot tell the stage of C
  because  C_0, C_1 write it
  help     stages: C_0, C_1

>>> text(CUT)
create_schedule: cannot schedule a program that is cut already
  at       tile i in 0 +: n
  because  a schedule is made of plain loops, conditions and stores

>>> product()['C'].split('z', 8)
split: cannot take z as an axis
  at       stage C
  because  C has no such loop
  help     loops of C: y, x, k

an axis that is split
>>> s = product()
>>> s['C'].split('y', 8)
>>> s['C'].split('y', 4)
split: cannot take y as an axis
  at       stage C
  because  it is split into yo and yi
  help     loops of C: yo, yi, x, k

an axis that is fused
>>> s = product(8, 8, 8)
>>> s['C'].reorder('k', 'y', 'x')
>>> s['C'].fuse('y', 'x')
>>> s['C'].unroll('y')
unroll: cannot take y as an axis
  at       stage C
  because  y and x are fused into y_x
  help     loops of C: y_x, k

an axis of another stage
>>> s = product()
>>> CL = s.cache_write('C', 'acc')
>>> yo, _ = s['C'].split('y', 8)
>>> CL.reorder(yo, 'x')
reorder: cannot take yo as an axis of CL
  at       stage CL
  because  it is an axis of C
  help     loops of CL: y, x, k

>>> product()['C'].split('y', 0)
split: cannot split by 0
  at       axis C.y
  because  a factor is an int from 1 to 2**31 - 1: isl decides no symbolic tile size
  help     split("y", 8)

>>> product()['C'].split('y', 8, tail='round')
split: cannot take tail='round'
  at       axis C.y
  because  there is no such strategy
  help     guard, exact, cut, mask, pad, shift, ladder, balance, even, residue, version, mix

>>> product()['C'].split('y', 8, tail='exact')
split: cannot take tail="exact"
  at       axis C.y
  because  with d = 0, n = 1, m = 0, 8 does not divide the extent n
  help     tail="cut" separates the last n % 8 iterations
  help     assume(n % 8 == 0) if every caller guarantees it

an exact split of what is split
>>> s = product()
>>> yo, _ = s['C'].split('y', 8)
>>> s['C'].split(yo, 2, tail='exact')
split: cannot take tail="exact"
  at       axis C.yo
  because  the extent of yo is not one number at all sizes
  help     tail="cut"

>>> product()['C'].split('k', 8, tail='shift')
split: cannot take tail="shift" on a sum
  at       axis C.k
  because  with d = 9, 8 does not divide the extent d, and the last tile would run C[y, x] += A[k, y] * B[k, x] again
  help     any tail but shift meets each term once

>>> product()['C'].tile('y', 'x', 8)
tile: cannot tile by 'y', 'x', 8
  at       stage C
  because  each axis has one factor: first the axes, then the factors
  help     tile("y", "x", 8, 8)

>>> product()['C'].fuse('y', 'k')
fuse: cannot fuse y and k
  at       stage C
  because  k is not directly inside y: y > x
  help     an order brings two loops together

>>> product()['C'].fuse('x', 'y')
fuse: cannot fuse x and y
  at       stage C
  because  y is not directly inside x: y > x
  help     an order brings two loops together
  help     fuse("y", "x")

>>> product()['C'].fuse('y', 'x')
fuse: cannot fuse y and x
  at       stage C
  because  the extent of x is symbolic, and isl knows no // and % by a size
  help     split("x", 8) first, and fuse with its inner loop

>>> product()['C'].reorder('y', 'x', 'y')
reorder: cannot reorder y, x, y
  at       stage C
  because  y is listed twice
  help     loops of C: y, x, k

>>> product()['C'].bind('y', 'thread 3')
bind: cannot bind y to 'thread 3'
  at       axis C.y
  because  a hardware index is a name
  help     bind("y", "blockIdx.x")
  help     bind("y", "threadIdx.x")

a row that reads itself is no vector
>>> s = text(SEIDEL)
>>> s['A'].vectorize('j')
>>> s.lower()
partition: cannot run loop j as @lane
  at       A[i, j] = (A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]) / 5.0
  because  with t = 1, n = 4, A[i, j] = (A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]) / 5.0 at s = 0, i = 1, j = 1 writes what the instance s = 0, i = 1, j = 2 reads
  help     the loop without @lane

a sum is not parallel
>>> s = product()
>>> s['C'].parallel('k')
>>> s.lower()
partition: cannot run loop k as @thread
  at       C[y, x] += A[k, y] * B[k, x]
  because  with d = 2, n = 1, m = 1, C[y, x] += A[k, y] * B[k, x] at y = 0, x = 0, k = 0 writes what the instance y = 0, x = 0, k = 1 overwrites
  help     the loop without @thread
  help     rfactor(k) in a schedule reduces in parts that run together

a sum in order is no vector
>>> s = product()
>>> s['C'].vectorize('k')
>>> s.lower(reassociate=False)
partition: cannot run loop k as @lane
  at       C[y, x] += A[k, y] * B[k, x]
  because  with d = 2, n = 1, m = 1, C[y, x] += A[k, y] * B[k, x] at y = 0, x = 0, k = 0 writes what the instance y = 0, x = 0, k = 1 overwrites
  help     the loop without @lane
  help     reassociate=True

a loop is not moved out of time
>>> s = text(JACOBI)
>>> s['A'].reorder('i', 's')
>>> s.lower()
prove: the emitted program does not compute what the source does
  at       jacobi
  because  with t = 2, n = 3, B[1] = (A[0] + A[1] + A[2]) / 3.0 (s = 1, i = 1) reads A[1] of the initial A[1], not of B[1] = (A[0] + A[1] + A[2]) / 3.0 (s = 0, i = 1)

an output is not computed inside
>>> s = product()
>>> CL = s.cache_write('C', 'acc')
>>> s['C'].compute_at(CL, 'y')
compute_at: cannot compute C at CL.y
  at       stage C
  because  C is output: all of it is wanted
  help     cache_write(C, scope) makes a local buffer that computes it

a result of other elements is not computed beside
>>> A = oc.placeholder((8, 6), 'float32', name='A')
>>> B = oc.compute((8, 6), lambda i, j: A[i, j] + 1.0, name='B')
>>> C = oc.compute((8,), lambda i: A[i, 0] * 2.0, name='C')
>>> s = oc.create_schedule([B, C])
>>> s['B'].compute_at('C', 'i')
compute_at: cannot compute B at C.i
  at       stage B
  because  it is a result, and has other elements than C

a stage is computed in its reader only
>>> s = chain()
>>> s['B'].compute_at('E', 'i')
compute_at: cannot compute B at E.i
  at       stage B
  because  E does not read it
  help     B is read by D

a stage of two readers is not in one
>>> s = fork()
>>> s['B'].compute_at('D', 'i')
compute_at: cannot compute B at D.i
  at       stage B
  because  E reads it too, outside of D

a stage has a window
>>> s = product()
>>> CL = s.cache_write('C', 'acc')
>>> CL.compute_at('C', 'y', depth=0)
compute_at: cannot compute CL at C.y
  at       stage CL
  because  a depth is a number of windows, at least 1, not 0
  help     depth=2

>>> text(JACOBI)['B'].compute_at('A', 'i')
compute_at: cannot compute B at A.i_
  at       stage B
  because  B and A are one nest

>>> product()['C'].compute_inline()
compute_inline: cannot inline C
  at       stage C
  because  C is output: all of it is wanted

>>> product().cache_write('C', 'acc').compute_inline()
compute_inline: cannot inline CL
  at       stage CL
  because  it is a reduction, which takes more than one store
  help     CL computed at a loop of its reader

>>> product().cache_write('C', 'acc buffer')
cache_write: cannot cache C in 'acc buffer'
  because  a memory is known by its name, an identifier
  help     "acc_buffer"
  help     "shared"

>>> chain().cache_read('A', 'in', ['E'])
cache_read: cannot let E read a copy of A
  at       stage E
  because  it does not read A
  help     A is read by B

>>> chain().cache_read('A', 'in', [])
cache_read: cannot cache A for nobody
  because  readers is empty, and B reads A

>>> text(SEIDEL).cache_read('A', 'in', ['A'])
cache_read: cannot read a copy of A
  at       stage A
  because  A writes A, and the copy would be of what was before
  help     a buffer that a stage reads and writes is updated in place

>>> text(SEIDEL).cache_write('A', 'in')
cache_write: cannot compute A in a buffer of its own
  at       stage A
  because  it is updated in place: what was in it before is read

a cache after the loops
>>> s = product()
>>> s['C'].split('y', 8)
>>> s.cache_write('C', 'acc')
cache_write: cannot compute C in a buffer of its own
  at       stage C
  because  its loops are scheduled already
  help     caches come first, then loops

>>> product()['C'].rfactor('y')
rfactor: cannot factor y out of C
  at       stage C
  because  y is not a reduction axis of C
  help     reduction axes: k

>>> product()['C'].rfactor('k')
rfactor: cannot factor k out of C
  at       stage C
  because  nothing is reduced inside k
  help     split("k", 8)

>>> chain()['B'].rfactor('i')
rfactor: cannot factor i out of B
  at       stage B
  because  B is not one reduction with its start

a reduction is factored before the rest
>>> s = product()
>>> s['C'].split('y', 8)
>>> ko, _ = s['C'].split('k', 8)
>>> s['C'].rfactor(ko)
rfactor: cannot factor ko out of C
  at       stage C
  because  its loops are scheduled already
  help     split the reduction axis, then rfactor, then the rest

>>> product()['C'].tensorize('y', 'gemm8x8')
tensorize: cannot run 'gemm8x8'
  at       axis C.y
  because  it is not a declared instruction
  help     decl_tensor_intrin(computation, lowering)

an instruction of another extent
>>> s = product()
>>> s['C'].tile('y', 'x', 'k', 8, 4, 8)
>>> s['C'].tensorize('yi', gemm())
tensorize: cannot run C from yi inwards by gemm8x8
  at       axis C.yi
  because  xi has 4 iterations, and the declared extent is 8
  help     split("x", 8)

>>> product()['C'].reorder('k', 'y', 'x').tensorize('k', gemm())
tensorize: cannot run C from k inwards by gemm8x8
  at       axis C.k
  because  k has d iterations, and the declared extent is 8
  help     split("k", 8)

an instruction of more axes
>>> s = product()
>>> s['C'].tile('y', 'x', 8, 8)
>>> s['C'].tensorize('xi', gemm())
tensorize: cannot run C from xi inwards by gemm8x8
  at       axis C.xi
  because  it has 2 loops, xi, k, and gemm8x8 computes i, j, r

an instruction on an outer loop
>>> s = product()
>>> s['C'].tile('y', 'x', 'k', 8, 8, 8)
>>> s['C'].tensorize('ko', gemm())
tensorize: cannot run C from ko inwards by gemm8x8
  at       axis C.ko
  because  ko is not the innermost part of a loop: its values are not consecutive
  help     an order of the loops with the inner ones below ko

an instruction that reads the transpose
>>> A, B = (oc.placeholder((8, 8), name='A'), oc.placeholder((8, 8), name='B'))
>>> k = oc.reduce_axis(8, 'k')
>>> C = oc.compute((8, 8), lambda y, x: oc.sum(A[y, k] * B[k, x], axis=k), name='C')
>>> oc.create_schedule(C)['C'].tensorize('y', gemm())
tensorize: cannot run C from y inwards by gemm8x8
  at       axis C.y
  because  layout: A[y, k] does not lie side by side along y

>>> oc.create_schedule(matmul(8, 8, 8, 'int32'))['C'].tensorize('y', gemm())
tensorize: cannot run C from y inwards by gemm8x8
  at       axis C.y
  because  term: its elements are int32, and those of gemm8x8 float32

>>> oc.create_schedule(matmul(8, 8, 8, op=oc.max))['C'].tensorize('y', gemm())
tensorize: cannot run C from y inwards by gemm8x8
  at       axis C.y
  because  term: it is a reduction by max, and gemm8x8 reduces by sum

an instruction that always starts anew
>>> s = product()
>>> s['C'].tile('y', 'x', 'k', 8, 8, 8)
>>> s['C'].tensorize('yi', gemm(single=True))
tensorize: cannot run C from yi inwards by gemm8x8
  at       axis C.yi
  because  ko adds to what was started outside the tile, and gemm8x8 has one instruction for the whole reduction
  help     a lowering that returns three: body, reset, update

an instruction on a marked loop
>>> s = product(8, 8, 8)
>>> s['C'].vectorize('x')
>>> s['C'].tensorize('y', gemm())
tensorize: cannot run C from y inwards by gemm8x8
  at       axis C.y
  because  x is marked: an instruction runs it

>>> covered()[0]['C'].split('ki', 2)
split: cannot change the loops that gemm8x8 runs
  at       stage C
  because  it was given yi, xi, ki, and the loops from yi inwards would be yi, xi, kio, kii
  help     this decision before the cover

>>> covered()[0]['C'].tile('yi', 'xi', 2, 2)
split: cannot change the loops that gemm8x8 runs
  at       stage C
  because  it was given yi, xi, ki, and the loops from yi inwards would be gone
  help     this decision before the cover

>>> covered()[0]['C'].reorder('yi', 'ko')
reorder: cannot reorder yi, ko
  at       stage C
  because  order C yo xo ko yi xi ki has decided it
  help     one order of these loops

>>> covered()[0]['C'].unroll('xi')
unroll: cannot change the loops that gemm8x8 runs
  at       stage C
  because  xi is marked: an instruction runs it

>>> covered()[0]['C'].tensorize('xi', gemm())
tensorize: cannot run C from xi inwards by gemm8x8
  at       axis C.xi
  because  cover C at yi gemm8x8 has decided it

an instruction that no tile fits
>>> s = product()
>>> s['C'].tile('y', 'x', 'k', 8, 8, 8, tail='balance')
>>> s['C'].tensorize('yi', gemm())
>>> s.lower()
tensorize: cannot run C by gemm8x8
  at       axis C.yi
  because  no tile has exactly the extents that it declares, 8, 8, 8 (tail=balance)
  help     tail="pad", "mask" or "cut" of these splits

a name that two stages give to loops of their own
>>> B = oc.compute((n, m), lambda y, x: oc.placeholder((n, m), name='A')[y, x] + 1.0, name='B')
>>> C = oc.compute((n, m), lambda x, y: B[x, y] + 1.0, name='C')
>>> oc.create_schedule(C)['C'].split('x', 4)
split: cannot take x as an axis
  at       stage C
  because  C calls the loop y so, and another of its loops, which a stage that it shares them with named, has that name
  help     loops of C: y, x

>>> declared(lambda inputs, outputs: oc.hardware_intrinsic('copy'), n)
decl_tensor_intrin: cannot declare Y
  at       tensor Y, axis 0
  because  its extent is n, and an instruction has a fixed shape

>>> declared(lambda inputs, outputs: None)
decl_tensor_intrin: cannot lower Y to None
  because  a lowering returns one instruction, or three: body, reset, update
  help     hardware_intrinsic("gemm8x8", inputs[0].access_ptr("r"), …)

>>> oc.decl_tensor_intrin(oc.placeholder((4,), name='X'), lambda inputs, outputs: None)
decl_tensor_intrin: cannot declare X: float32[4]
  because  an instruction is declared by a tensor that compute defines

>>> declared(lambda inputs, outputs: inputs[0].access_ptr('x'))
access_ptr: cannot access X as 'x'
  because  a mode is one of r, w, rw

>>> oc.hardware_intrinsic('fill zero')
hardware_intrinsic: cannot name an instruction 'fill zero'
  because  a name is an ASCII identifier

>>> oc.hardware_intrinsic('fill_zero', 3)
hardware_intrinsic: cannot take 3 as an operand of fill_zero
  because  an operand is a pointer
  help     inputs[0].access_ptr("r")
""",
    globals(),
)


@pytest.mark.parametrize(("call", "text"), REFUSED.values(), ids=REFUSED)
def test_a_schedule_is_refused_word_for_word(call: Callable[[], None], text: str) -> None:
    with pytest.raises(OffcutError) as refused:
        call()
    assert str(refused.value) == text


def test_a_refused_primitive_changes_nothing() -> None:
    s = product()
    before = s.lower()
    with pytest.raises(OffcutError):
        s["C"].tile("y", "x", 8, 0)
    assert s.lower() == before


@pytest.mark.parametrize("factor", [16, 64, 100])
def test_a_sum_whose_last_tile_is_not_moved_back_may_be_split_by_shift(factor: int) -> None:
    s = product(5, 4, 64)
    s["C"].split("k", factor, tail="shift")
    s.lower()


CHOICE = """\
schedule C
choose
  option rows{rows}
    split C.i ladder 8 as i_tile ii
  option whole{whole}
    order C i j"""


def scaled() -> oc.Tensor:
    a = oc.placeholder((oc.dim("n", min=1, max=64), 12), name="A")
    return oc.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="C")


def refusal(text: str, **options: object) -> str:
    with pytest.raises(oc.OffcutError) as refused:
        oc.compile(scaled(), schedule=oc.Schedule.parse(text), **options)  # type: ignore[arg-type]
    return str(refused.value)


COSTS = " costs 1e-09*float64(n)"
TILED = "schedule C\nsplit C.i guard 8 as i_tile i_in\norder C i_tile i_in j\n"
LINES = refusals(
    """
given CHOICE.format(rows=COSTS, whole='')
choose: cannot compare the option whole
  at       line 5: option whole
  because  a call takes the cheapest, and it says no cost
  help     option whole costs 1e-09*float64(n)

given CHOICE.format(rows=COSTS, whole=COSTS) + '\\nbind C.i thread'
bind: cannot decide about C behind its options
  at       line 7: bind C.i thread
  because  each option says already how it runs, and this would be of none of them
  help     the same line in each option
  help     the line before choose

given TILED + 'cover C at i_in vectors\\nbind C.i_tile warp'
schedule: cannot bind C.i_tile to warp
  at       line 5: bind C.i_tile warp
  because  the target has no such unit
  help     lane, lane tree for sums, thread, unroll, serial
""",
    globals(),
)


@pytest.mark.parametrize("what", LINES)
def test_a_line_that_a_processor_does_not_do_is_refused(what: str) -> None:
    text, expected = LINES[what]
    assert refusal(text) == expected


@pytest.mark.parametrize("target", ["cpu", "interpret"])
def test_a_schedule_of_another_program_is_refused_on_every_target(target: str) -> None:
    assert refusal("schedule D\nbind C.i serial", target=target) == (
        "schedule: cannot apply a schedule of D to C\n"
        "  at       line 1: schedule D\n"
        "  because  it was written for another program\n"
        "  help     schedule C"
    )


def test_options_with_costs_are_taken_by_the_sizes_of_a_call() -> None:
    costs = {"rows": " costs 1e-09*float64(n)", "whole": " costs 1e-08"}
    kernel = oc.compile(scaled(), schedule=oc.Schedule.parse(CHOICE.format(**costs)))
    assert "option rows costs" in kernel.source("loops")
    for n in (1, 7, 8, 9, 64):
        a = np.arange(12.0 * n, dtype="float32").reshape(n, 12)
        np.testing.assert_array_equal(kernel(a), 2 * a)


@pytest.mark.parametrize("count", [2, True])
def test_decisions_that_a_schedule_does_not_have_are_not_taken(count: Any) -> None:
    s = product()
    s["C"].split("y", 8)
    with pytest.raises(OffcutError) as refused:
        s.after(count)
    assert str(refused.value) == (
        f"after: cannot take the first {count!r} decisions\n"
        "  because  the schedule has 1\n"
        "  help     a number from 0 to 1"
    )


def test_an_order_of_a_loop_that_there_is_not_is_refused_before_what_stands_behind_it() -> None:
    n = oc.dim("n", max=64)
    a, k = oc.placeholder((n, 37), name="A"), oc.reduce_axis(37, name="k")
    w = oc.placeholder((37, 29), name="W")
    c = oc.compute((n, 29), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")
    text = "schedule C\nsplit C.i ladder 8 as it ii\norder C zork j ii\ncover C at ii vectors"
    with rejection(
        "PartitionError: order: cannot take zork as an axis\n"
        "  at       line 3: order C zork j ii\n"
        "  because  C has no such loop\n"
        "  help     loops of C: it, ii, j, k"
    ):
        oc.compile(c, inputs=[a, w], schedule=oc.Schedule.parse(text))


COVERED = """\
schedule Y
split Y.i balance 6 as i_tile i_in
split Y.j ladder 32 then ladder by i_in 1..3: 16 8, 4..6: 8 as j_group j_tile j_in
order Y j_group i_tile j_tile i_in j_in
at S Y.j_in
cover Y at i_in fma_float32(i=i_in, j=j_in, p=k)"""
EDITED = {
    "columns around rows": (
        "j_group i_tile j_tile",
        "j_group j_tile i_tile",
        """\
PartitionError: split: cannot split j by the height of i_in
  at       line 4: order Y j_group j_tile i_tile i_in j_in
  because  j_tile is not inside of the tiles of i_in, or not around j_in
  help     an order with j_tile inside of the loop over these, around j_in""",
    ),
    "rows as columns": (
        "i=i_in, j=j_in",
        "i=j_in, j=i_in",
        """\
PartitionError: schedule: cannot cover S by fma_float32
  at       line 6: cover Y at i_in fma_float32(i=j_in, j=i_in, p=k)
  because  its rows are j, whose tiles depend on the height of the tiles around
  help     the other axis as rows, j as columns""",
    ),
}


@pytest.mark.parametrize("edit", EDITED)
def test_tiles_by_the_height_of_others_are_refused_where_these_are_not_around(edit: str) -> None:
    old, new, text = EDITED[edit]
    a, w = oc.placeholder((n, 9), name="A"), oc.placeholder((9, 40), name="W")
    k = oc.reduce_axis(9, name="k")
    s = oc.compute((n, 40), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="S")
    y = oc.compute((n, 40), lambda i, j: oc.maximum(s[i, j], 0.0), name="Y")
    target = oc.target("cpu", machine="avx2")
    name = next(one.name for one in target.microkernels() if one.name.startswith("fma_float32"))
    assert old in COVERED
    schedule = oc.Schedule.parse(COVERED.replace(old, new).replace("fma_float32", name))
    with rejection(text.replace("fma_float32", name)):
        oc.compile(y, inputs=[a, w], target=target, schedule=schedule)


def test_a_stage_is_placed_once() -> None:
    x = oc.placeholder((n, 40), name="X")
    m = oc.compute((n, 40), lambda i, j: oc.exp(x[i, j]), name="M")
    y = oc.compute((n, 40), lambda i, j: m[i, j] * m[i, 0], name="Y")
    schedule = oc.Schedule.parse("""\
schedule Y
cover M vectors
order Y i
cover Y vectors
at M Y.i
at M Y.i""")
    with rejection("""\
PartitionError: at: cannot compute M in two places
  at       line 6: at M Y.i
  because  line 5: at M Y.i has decided it"""):
        oc.compile(y, inputs=[x], schedule=schedule)


LINES_OF_DENSE = """\
schedule Y
split Y.i balance 6 as i_tile i_in
split Y.j ladder 32 as j_tile j_in
order Y i_tile j_tile i_in j_in
cover Y at i_in vectors
"""


def line_at_end(line: str, threads: int, columns: int = 40) -> oc.Kernel:
    """Return an element-wise program in tiles, with one more line of its schedule."""
    a = oc.placeholder((n, columns), name="A")
    y = oc.compute((n, columns), lambda i, j: oc.tanh(a[i, j]), name="Y")
    schedule = oc.Schedule.parse(LINES_OF_DENSE + line)
    return oc.compile(y, inputs=[a], schedule=schedule, threads=threads)


def test_a_loop_that_a_line_runs_serially_is_bound_to_nothing() -> None:
    shared, serial = (line_at_end(line, 2) for line in ("bind * thread", "bind Y.i_tile serial"))
    assert "@thread" in str(shared.loops)
    assert "@thread" not in str(serial.loops)
    assert str(serial.schedule).count("Y.i_tile") == 1
    again = oc.Schedule.parse(str(serial.schedule))
    assert again == serial.schedule
    by_hand = oc.create_schedule(
        oc.compute((n,), lambda i: oc.placeholder((n,), name="A")[i] + 1.0, name="Y")
    )
    by_hand["Y"].bind("i", "serial")
    assert str(by_hand.schedule) == "schedule Y\nbind Y.i serial"
    assert "serial" not in str(oc.compile(by_hand.lower()).loops)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_loop_in_a_tile_is_not_bound_to_threads_however_many_there_are(threads: int) -> None:
    with rejection("""\
PartitionError: bind: cannot bind Y.i_in to thread
  at       line 6: bind Y.i_in thread
  because  it lies in a tile, which one thread runs
  help     a loop around the tile"""):
        line_at_end("bind Y.i_in thread", threads)


def test_a_line_whose_loop_is_one_tile_is_noted() -> None:
    kernel = line_at_end("bind Y.j_tile thread", 2, columns=8)
    note = "bind Y.j_tile thread: no loop of that name is left to bind"
    assert note in str(kernel.plan(n=20)).splitlines()
    with pytest.raises(oc.PartitionError, match=r"cannot find the loop Y\.z"):
        line_at_end("bind Y.z serial", 2)


def convolution(padding: int) -> oc.Tensor:
    """Return a convolution of 3 by 3, of images that are padded so far."""
    n, wide = oc.dim("n", min=1, max=64), 10 - 2 * padding
    X = oc.placeholder((n, wide, wide, 8), name="X")
    W = oc.placeholder((3, 3, 8, 16), name="W")
    r, s, c = (oc.reduce_axis(extent, name) for extent, name in ((3, "r"), (3, "s"), (8, "c")))

    def element(b: oc.Expr, y: oc.Expr, x: oc.Expr) -> oc.Expr:
        inside = (y + r >= 1) & (y + r <= wide) & (x + s >= 1) & (x + s <= wide)
        read = X[b, y + r - padding, x + s - padding, c]
        return oc.where(inside, read, 0.0) if padding else read

    return oc.compute(
        (n, 8, 8, 16),
        lambda b, y, x, k: oc.sum(element(b, y, x) * W[r, s, c, k], axis=(r, s, c)),
        name="Y",
    )


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize(
    ("lines", "first", "help"),
    [
        ("order Y r s c\norder Y s r c", "r s c", ""),
        ("order Y x r s c", "x r s c", "  help     order Y r s c\n"),
    ],
    ids=["two orders of a sum", "terms and a loop"],
)
def test_an_order_that_leaves_no_nest_is_refused_by_its_line(
    lines: str, first: str, help: str
) -> None:
    Y = convolution(1)
    text = str(oc.compile(Y, strategy="mask").schedule)
    before = text.index("split Y.")
    edited = f"{text[:before]}{lines}\n{text[before:]}"
    number = text[:before].count("\n") + 1
    with rejection(
        f"PartitionError: schedule: cannot order Y by {', '.join(first.split())}\n"
        f"  at       line {number}: order Y {first}\n"
        "  because  the nest that is covered has one order of the terms of its sum, and one of its loops; this is neither, and "
        "applied by hand it leaves no nest\n"
        f"{help}  help     without this line"
    ):
        oc.compile(Y, schedule=oc.Schedule.parse(edited))


@pytest.mark.parametrize("order", ["r s c", "x r s c"])
def test_terms_of_a_sum_among_the_loops_of_its_nest_are_refused_with_both_orders(
    order: str,
) -> None:
    Y = convolution(0)
    with rejection(f"""\
PartitionError: schedule: cannot run Y in loops over r, s, c
  at       line 2: order Y {order}
  because  its sum adds them up inside of its tiles; their order is a line of its own, before that of its loops
  help     order Y r s c
  help     order Y b y x k"""):
        oc.compile(Y, schedule=oc.Schedule.parse(f"schedule Y\norder Y {order}\ncover Y vectors"))
    accepted = "schedule Y\norder Y s r c\norder Y b y x k\ncover Y vectors"
    assert "for s in 0:3" in str(oc.compile(Y, schedule=oc.Schedule.parse(accepted)).loops)
