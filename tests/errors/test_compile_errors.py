"""Every refusal of `compile`, `Kernel.plan`, `Kernel.source` and `with_constants`, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import build
from conftest import refusals

import offcut as oc
from offcut import Kernel, Tensor
from offcut.partition.strategies.catalog import SHIFT

n, m = oc.dim("n", min=1, max=64), oc.dim("m", max=64)
even = oc.dim("even", min=4, max=64, multiple_of=4)
A, B = oc.placeholder((n, 8), name="A"), oc.placeholder((8, 12), name="B")
V = oc.placeholder((2 * n + 1,), name="V")
E = oc.placeholder((even,), name="E")
k = oc.reduce_axis(8, "k")
r, L = oc.reduce_axis(600, "r"), oc.placeholder((n, 600), name="L")
C = oc.compute((n, 12), lambda i, j: oc.sum(A[i, k] * B[k, j], axis=k), name="C")
D = oc.compute((n,), lambda i: V[2 * i], name="D")
F = oc.compute((even,), lambda i: E[i], name="F")
b = np.ones((8, 12), "float32")


LEAST = """\
program least
size n in 1:65
input A: float32[n]
output B: float32[min(n, 4)]
for i in 0:min(n, 4)
  B[i] = A[i]
"""


def row(extent: Any, fn: Callable[[Any], Any] | None = None) -> Tensor:
    X = oc.placeholder((extent,), name="X")
    return oc.compute((extent,), fn or (lambda i: X[i] + 1.0), name="Y")


def hiding(features: str) -> Kernel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFCUT_HIDE_FEATURES", features)
        return oc.compile(C)


def described_as(machine: str) -> object:
    """Compile on a host that is described so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFCUT_MACHINE", machine)
        return oc.compile(C)


def under(fact: Any, output: Tensor) -> Kernel:
    with oc.assume(fact):
        return oc.compile(output)


def two() -> Tensor:
    P, Q = oc.placeholder((n,), name="P"), oc.placeholder((m,), name="Q")
    return oc.compute((n, m), lambda i, j: P[i] + Q[j], name="Y")


def refused(call: Callable[[], Any], text: str, kind: type[oc.OffcutError]) -> None:
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == text
    assert type(error.value) is kind


DESCRIBED: dict[str, tuple[Callable[[], Any], str]] = refusals(
    """\
>>> oc.compile(C, records=True)
compile: cannot take records=True
  because  records are a file
  help     records="tuned.sqlite"
  help     records=False looks nothing up

>>> oc.compile(C, records='tuned.sqlite', strategy='cut')
compile: cannot take records= beside strategy=
  because  records give a schedule, and it would say otherwise
  help     one of the two

>>> oc.compile([])
compile: cannot compute nothing
  because  no output is given

>>> oc.compile(A)
compile: cannot compute A: float32[n, 8]
  because  an output is a tensor defined by compute
  help     the loops of a partition are compile(p.loops), of a schedule compile(s.lower())
  help     a text is a program by parse(text)

>>> oc.compile(oc.partition(C))
compile: cannot compute <partition C: no pieces, 0 by microkernels>
  because  an output is a tensor defined by compute
  help     the loops of a partition are compile(p.loops), of a schedule compile(s.lower())
  help     a text is a program by parse(text)

>>> oc.compile(C, inputs=[A])
compile: cannot compute without B
  because  inputs lists A
  help     inputs=[A, B]

>>> oc.compile(C, inputs=[1])
compile: cannot take 1 as an input
  because  an input is a placeholder
  help     inputs=[A, W], what placeholder gives

>>> oc.compile(C, inputs=[A, B], constants={'B': [[1.0], [1.0, 2.0]]})
compile: cannot take this list as a constant
  at       B
  because  numpy says of it: setting an array element with a sequence. The requested array has an inhomogeneous shape after 1 dimensions. The detected shape was (2,) + inhomogeneous part.
  help     a numpy array of the placeholder's element type

>>> oc.compile(C, inputs=[A, B], constants={'B': np.ma.masked_array(b)})
compile: cannot take this MaskedArray as a constant
  at       B
  because  it is a masked array
  help     a numpy array of the placeholder's element type

>>> oc.compile(C, inputs=[A, B], constants={'W': b})
compile: cannot take a constant for 'W'
  because  the inputs are A, B

>>> oc.compile(C, inputs=[A, B], constants={'B': b.astype('float64')})
compile: cannot take a constant of float64, rank 2
  at       B
  because  it is described as B: float32[8, 12]
  help     B.astype("float32")

>>> oc.compile(C, inputs=[A, B], constants={'B': b.tolist()})
compile: cannot take a constant of float64, rank 2
  at       B
  because  it is described as B: float32[8, 12]
  help     numpy.array(…, "float32")

>>> oc.compile(C, inputs=[A, B], constants={'B': b[:, :11]})
compile: cannot take a constant of shape (8, 11)
  at       B, axis 1
  because  its extent is 12, not 11

>>> oc.compile(D, constants={'V': np.ones(8, 'float32')})
compile: cannot take a constant with extent 8
  at       V, axis 0
  because  no integer n makes its extent 2*n + 1 equal 8

>>> oc.compile(D, constants={'V': np.ones(1, 'float32')})
compile: cannot take a constant with extent 1
  at       V, axis 0
  because  n = 0 is not in 1…64

>>> oc.compile(F, constants={'E': np.ones(6, 'float32')})
compile: cannot take a constant with extent 6
  at       E, axis 0
  because  even = 6 is not a multiple of 4

>>> oc.compile(oc.parse(LEAST))
compile: cannot take the extent min(n, 4) of an argument
  at       tensor B
  because  a call checks sums of multiples of sizes and of their quotients by positive ints
  help     2*n + 1, (n + 3)//4 and 2*(n//2) are accepted

>>> under(n // 2 <= m // 3, two())
compile: cannot check n < 2*(m//3) + 2 at a call
  because  it is not affine

>>> build(C, inputs=[A, B], strategy='cut').source('ptx')
source: cannot show 'ptx'
  because  there is no such form
  help     "loops"
  help     "llvm"
  help     "asm"

>>> build(C, inputs=[A, B], strategy='cut').with_constants({'B': b})
with_constants: cannot take constants for B
  because  the kernel was compiled with none

>>> held().with_constants({})
with_constants: cannot take constants for nothing
  because  the kernel was compiled with B

>>> held().with_constants({'B': b.astype('int8')})
with_constants: cannot take a constant of int8, shape (8, 12)
  at       B
  because  the kernel was compiled for float32, shape (8, 12)
""",
    globals(),
)
TARGETS: dict[str, tuple[Callable[[], Any], str]] = refusals(
    """\
>>> oc.compile(C, target='tpu')
compile: cannot compile for target='tpu'
  because  there is no such target
  help     target="accelerator", target="cpu", target="cuda", target="gemmini", target="interpret", target="vta", target="vta-osdi18"

>>> oc.compile(C, target=3)
compile: cannot compile for target=3
  because  a target is a name, or an offcut.backends.target.Target
  help     target="accelerator", target="cpu", target="cuda", target="gemmini", target="interpret", target="vta", target="vta-osdi18"

>>> oc.target('tpu')
target: cannot plan for 'tpu'
  because  there is no such target
  help     target="accelerator", target="cpu", target="cuda", target="gemmini", target="interpret", target="vta", target="vta-osdi18"

>>> oc.target('interpret', machine='zen4')
target: cannot interpret for machine='zen4'
  because  the interpreter runs programs as they stand, on any machine
  help     oc.target("cpu", machine=…)

>>> oc.compile(C, target='interpret', strategy='mask')
compile: cannot take strategy= for target='interpret'
  because  it has one way to run a program

>>> oc.compile(C, target='interpret').schedule
schedule: cannot show the schedule of C
  because  target='interpret' decides nothing that a schedule says

>>> oc.compile(C, target='interpret').export('anywhere')
export: cannot export for target='interpret'
  because  it makes no code that runs without Python

>>> oc.compile(C, target=oc.target('cpu', machine='neoverse-n1'))()
C: cannot run code for neoverse-n1 here
  because  this machine lacks aarch64
  help     save(path), or export(folder), for a machine like that one

>>> hiding('sse2')
OFFCUT_HIDE_FEATURES: cannot hide sse2
  because  every 64-bit x86 processor has it, and so has all code for one
  help     OFFCUT_HIDE_FEATURES=avx512f
  help     OFFCUT_HIDE_FEATURES=avx512f,avx2

>>> described_as('neoverse-n1')
OFFCUT_MACHINE: cannot describe this host as neoverse-n1
  because  that is aarch64, and this host is x86_64
  help     avx2, cascade-lake, sapphire-rapids, zen4, zen5
  help     target("cpu", machine=…) plans for another architecture

>>> oc.compile(C, threads='2')
compile: cannot run on threads='2'
  because  it is an int in 1…1024: the most threads that one call may use
  help     threads=2
""",
    globals(),
)
CUTS: dict[str, tuple[Callable[[], Any], str]] = refusals(
    """\
>>> oc.compile(C, strategy='laddder')
compile: cannot take strategy='laddder'
  at       every axis of rows
  because  there is no such strategy
  help     did you mean ladder?
  help     auto, guard, exact, cut, mask, pad, shift, ladder, balance, even, residue, version, mix

>>> oc.compile(C, strategy=('ladder', ()))
compile: cannot take strategy=('ladder', ())
  at       every axis of rows
  because  it has no heights
  help     "ladder" alone
  help     ("ladder", (4, 2, 1))

>>> oc.compile(C, strategy={'i': ['mask', 'cut']})
compile: cannot take strategy=['mask', 'cut']
  at       axis i
  because  the tail of one axis is treated by one strategy, and this is a list
  help     "mask"
  help     "cut"
  help     strategy=['mask', 'cut'], for the rows of products

>>> oc.compile(C, strategy={'i': 'mask', 'j': 'auto'})
compile: cannot take strategy='auto'
  at       axis j
  because  an axis that is not named is the target's to decide on: auto says that of all
  help     leave j out
  help     strategy="auto"

>>> oc.compile(C, strategy={'row': 'shift'})
partition: cannot find the axis 'row'
  because  no axis has that name
  help     C.i, C.j, C.k

>>> oc.compile(C, strategy={'i': 'exact'}, target=oc.target('cpu', machine='cascade-lake'))
split: cannot take tail="exact"
  at       axis C.i
  because  with n = 1, 14 does not divide the extent n
  help     tail="cut" separates the last n % 14 iterations
  help     assume(n % 14 == 0) if every caller guarantees it

>>> oc.compile(oc.compute((n,), lambda i: oc.sum(L[i, r], axis=r), name='R'), strategy={'r': 'shift'})
split: cannot take tail="shift" on a sum
  at       axis R.r
  because  256 does not divide the extent 600, and the last tile would run R[i] += L[i, r] again
  help     any tail but shift meets each term once
""",
    globals(),
)
CALLS: dict[str, tuple[Callable[[], Any], str]] = refusals(
    """\
>>> held().plan()
plan: cannot do without n
  because  the sizes of C are n
  help     plan(n=…)

>>> held().plan(q=2)
plan: cannot take q
  because  the sizes of C are n
  help     plan(n=…)

>>> held().plan(n=0)
plan: cannot take n = 0
  because  n is in 1…64

>>> build(F).plan(even=6)
plan: cannot take even = 6
  because  even is in 4…64, a multiple of 4

>>> held().plan(n='3')
plan: cannot take n = '3'
  because  a size is an integer
""",
    globals(),
)


def held() -> Kernel:
    return build(C, inputs=[A, B], constants={"B": b}, strategy="cut")


@pytest.mark.parametrize("what", DESCRIBED)
def test_a_description_that_does_not_fit_is_refused(what: str) -> None:
    refused(*DESCRIBED[what], oc.DescribeError)


@pytest.mark.parametrize("what", TARGETS)
def test_a_target_that_is_not_there_is_refused(what: str) -> None:
    refused(*TARGETS[what], oc.TargetError)


@pytest.mark.parametrize("what", CUTS)
def test_a_cut_that_is_not_legal_is_refused(what: str) -> None:
    refused(*CUTS[what], oc.PartitionError)


@pytest.mark.parametrize("what", CALLS)
def test_a_plan_of_sizes_that_do_not_fit_is_refused(what: str) -> None:
    refused(*CALLS[what], oc.CallError)


@pytest.mark.parametrize("constants", [[1], "x", 0])
def test_constants_of_a_program_are_arrays_by_name(constants: Any) -> None:
    program = oc.parse("size n in 0:9\noutput y: float32[n]\nfor i in 0:n\n  y[i] = 1.0\n")
    kernel = oc.compile(program)
    calls: dict[str, Callable[[], object]] = {
        "compile": lambda: oc.compile(program, constants=constants),
        "with_constants": lambda: kernel.with_constants(constants),
    }
    for op, call in calls.items():
        text = (
            f"{op}: cannot take constants={constants!r}\n"
            "  because  constants are arrays by the names of their placeholders\n"
            '  help     constants={"W": w}'
        )
        refused(call, text, oc.DescribeError)


def test_what_lies_beside_each_refusal_is_accepted() -> None:
    kernel = held()
    assert kernel.plan(n=64).pieces
    assert kernel.with_constants({"B": 2 * b}).plan(n=1).pieces
    assert build(F).plan(even=8).pieces
    assert build(D, constants={"V": np.arange(9, dtype="float32")})().tolist() == [0, 2, 4, 6]
    assert build(F, constants={"E": np.arange(4, dtype=">f4")})().tolist() == [0, 1, 2, 3]
    by_value = build(F, strategy={"i": SHIFT})
    assert by_value.source() == build(F, strategy={"i": "shift"}).source()
    assert build(row((n + 3) // 4))(np.ones(1, "float32"), n=3).tolist() == [2.0]
    assert under(n <= m, two())(np.ones(2, "float32"), np.ones(3, "float32")).sum() == 12
    assert build(C, target="cpu", threads=1, strategy={"i": "shift", "C.j": "cut"}).plan(n=3).pieces
