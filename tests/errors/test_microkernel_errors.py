"""What is no microkernel, what no external function, and covers that are wrong: each refused with the question that fails."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from math import nan
from typing import Any

import numpy as np
import pytest
from compiled import contraction
from conftest import refusals, rejection
from foreign import Own, product

import offcut as oc
from offcut import Microkernel, Tensor
from offcut.backends.cpu.external import declaration
from offcut.core.layout import Digit, Layout
from offcut.errors import DescribeError
from offcut.search.job_runner import JobResult, JobStatus
from tests.facade import Place, TileShape, family_of, multiples
from tests.toy_target import Toy


def small_product(depth: int | None = None) -> oc.Tensor:
    m, n = oc.dim("m", min=1, max=4), oc.dim("n", min=1, max=4)
    k = oc.dim("k") if depth is None else depth
    p = oc.reduce_axis(k, name="p")
    a, b = oc.placeholder((m, k), name="A"), oc.placeholder((k, n), name="B")
    return oc.compute((m, n), lambda i, j: oc.sum(a[i, p] * b[p, j], axis=p), name="C")


def copied() -> oc.Tensor:
    m, n = oc.dim("m", min=1, max=4), oc.dim("n", min=1, max=4)
    a = oc.placeholder((m, n), name="A")
    return oc.compute((m, n), lambda i, j: a[i, j], name="C")


GIVEN: dict[str, Any] = {
    "name": "unit",
    "computes": small_product(),
    "tiles": (TileShape((4, 4), 4.0, 4.0),),
}

REFUSED = refusals(
    r"""
given {'computes': 3}
it computes 3, and no tensor that compute defines

given {'predicates': {'i', 'zz'}}
its predicates have zz, which is not an axis of it
  help     it has i, j, p

given {'bounds': {'q': 3}}
its bounds have q, which is not an axis of it
  help     it has i, j, p

given {'operands': {'W': Place()}}
its operands have W, which is not an operand of it
  help     it has A, B, C

given {'tiles': ()}
it has no tiles

given {'tiles': (TileShape((4, 4), nan, 4.0),)}
TileShape(extents=(4, 4), cycles=nan, startup=4.0) has no instances, or takes no time that there is

given {'tiles': (TileShape((4,), 4.0, 4.0),)}
TileShape(extents=(4,), cycles=4.0, startup=4.0) has 1 extents, and its result 2 axes

given {'tiles': (4,)}
4 is not a tile
  help     TileShape((4, 8), cycles=4.0, startup=4.0)

given {'bounds': {'i': (3, 1)}}
no extent of i is from 3 to 1

given {'bounds': {'i': '4'}}
the extents of i are '4'
  help     bounds={'i': (1, 14)}
  help     bounds={'i': multiples(16)}

given {'accumulate': 'maybe'}
accumulate is 'maybe'
  help     accumulate='fresh'
  help     accumulate='adds'
  help     accumulate='both'

given {'issue': 'later'}
issue is 'later'
  help     issue='sync'
  help     issue='async'

given {'operands': {'A': 'shared'}}
A lies in 'shared'
  help     operands={'A': Place()}

given {'operands': {'A': Place('shared')}}
the memories of A are 'shared'
  help     memories=('shared',)

given {'operands': {'A': Place(by='mail')}}
A is handed over by 'mail'
  help     by='plain'
  help     by='fragment'
  help     by='descriptor'
  help     by='immediate'

given {'operands': {'A': Place(beside='q')}}
A lies side by side along q, which is not an axis of it

given {'operands': {'A': Place(layout=Layout((('word', (Digit(0, 1, None, 1),)),), (4,)))}}
A has 2 axes, and its layout 1

given {'tiles': (TileShape((4, 4), 4.0, 4.0), TileShape((5, 4), 4.0, 4.0))}
TileShape(extents=(5, 4), cycles=4.0, startup=4.0) has 5 along i, and it computes from 1 to 4
  help     TileShape of from 1 to 4 along i

given {'bounds': {'i': (1, 8)}}
its bounds have from 1 to 8 along i, and its longest tile has 4
  help     bounds={'i': (1, 4)}
  help     repeats={'i'}

given {'bounds': {'p': 0}}
no extent of p is 0

given {'bounds': {'i': True}}
the extents of i are True
  help     bounds={'i': (1, 14)}
  help     bounds={'i': multiples(16)}

given {'computes': small_product(16), 'bounds': {'p': (1, 17)}}
its bounds have from 1 to 17 along p, and it computes 16
  help     bounds={'p': (1, 16)}
  help     repeats={'p'}

given {'computes': small_product(16), 'bounds': {'p': multiples(32)}}
its bounds have at least 32, multiples of 32 along p, and it computes 16
  help     bounds={'p': (16, 16)}
  help     repeats={'p'}

given {'predicates': 'ij'}
its predicates are 'ij'
  help     it has i, j, p

given {'repeats': 3}
its repeats are 3
  help     it has i, j, p

given {'computes': copied(), 'reset': 'zero'}
its reset is zero, and it reduces nothing
  help     reset=None

given {'computes': copied(), 'update': 'add'}
its update is add, and it reduces nothing
  help     update=None

given {'reset': 'unit'}
its reset and what it starts have one name, unit

given {'update': 'add', 'accumulate': 'fresh'}
its update is add, and accumulate is 'fresh': it never adds
  help     accumulate='both'
  help     update=None

given {'reset': 'to zero'}
its reset is 'to zero'
  help     letters, digits, `_`, `.` and `-`

given {'name': 'm x;)'}
its name is 'm x;)'
  help     letters, digits, `_`, `.` and `-`

given {'operands': {'A': Place(layout='rows')}}
the layout of A is 'rows'
  help     layout=panels(16)
  help     layout=None

given {'operands': {'A': Place(by='immediate')}}
A has 2 axes, and is a constant of the instruction
""",
    globals() | {"Digit": Digit, "Layout": Layout, "nan": nan},
)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_microkernel_is_refused(case: str) -> None:
    changed, because = REFUSED[case]
    with pytest.raises(DescribeError) as refused:
        Microkernel(**GIVEN | changed)
    name = (GIVEN | changed)["name"]
    assert str(refused.value) == f"microkernel: cannot declare {name}\n  because  {because}"


def test_a_microkernel_is_declared() -> None:
    assert Microkernel(**GIVEN).depth == "p"


def test_extents_end_where_the_computation_does() -> None:
    made = Microkernel(**GIVEN | {"computes": small_product(16), "bounds": {"p": multiples(4)}})
    assert str(made.extents_of("p")) == "from 4 to 16, multiples of 4"
    x = oc.dim("x", min=1, max=8)
    a = oc.placeholder((x + 2,), name="A")
    taps = oc.compute((x + 2,), lambda i: a[i] * 2.0, name="C")
    with pytest.raises(DescribeError, match="has 11 along i, and it computes from 3 to 10"):
        Microkernel("unit", taps, (TileShape((11,), 4.0, 4.0),))


DECLARED: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "an operand written": (
        lambda a, b, c: oc.hardware_intrinsic("one", a("w"), b("r"), c("w")),
        "body one\n  because  it writes A, and computes C",
    ),
    "no result": (
        lambda a, b, c: oc.hardware_intrinsic("one", a("r"), b("r")),
        "body one\n  because  it writes nothing, and computes C",
    ),
    "an operand left out": (
        lambda a, b, c: oc.hardware_intrinsic("one", a("r"), c("w")),
        "body one\n  because  it does not read B, which C is computed from",
    ),
    "a reset that reads": (
        lambda a, b, c: (
            oc.hardware_intrinsic("one", a("r"), b("r"), c("w")),
            oc.hardware_intrinsic("zero", a("r"), c("w")),
            oc.hardware_intrinsic("add", a("r"), b("r"), c("rw")),
        ),
        "reset zero\n  because  it reads A, and starts a reduction",
    ),
    "an update of half": (
        lambda a, b, c: (
            oc.hardware_intrinsic("one", a("r"), b("r"), c("w")),
            oc.hardware_intrinsic("zero", c("w")),
            oc.hardware_intrinsic("add", a("r"), c("rw")),
        ),
        "update add\n  because  it does not read B, which C is computed from",
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_instructions_do_what_is_declared(case: str) -> None:
    lower, because = DECLARED[case]
    a, b = oc.placeholder((4, 8), name="A"), oc.placeholder((8, 4), name="B")
    p = oc.reduce_axis(8, name="p")
    block = oc.compute((4, 4), lambda i, j: oc.sum(a[i, p] * b[p, j], axis=p), name="C")
    with rejection(
        f"DescribeError: decl_tensor_intrin: cannot declare C\n  at       {because}\n"
        '  help     inputs[0].access_ptr("r"), outputs[0].access_ptr("w")'
    ):
        oc.decl_tensor_intrin(
            block,
            lambda ins, outs: lower(ins[0].access_ptr, ins[1].access_ptr, outs[0].access_ptr),
        )


def test_a_function_of_the_cpu_takes_one_depth() -> None:
    m, n = oc.dim("m", min=1, max=4), oc.dim("n", min=1, max=4)
    h, k = oc.dim("h"), oc.dim("k")
    r, p = oc.reduce_axis(h, name="r"), oc.reduce_axis(k, name="p")
    a, b = oc.placeholder((m, h, k), name="A"), oc.placeholder((h, k, n), name="B")
    both = oc.compute((m, n), lambda i, j: oc.sum(a[i, r, p] * b[r, p, j], axis=(r, p)), name="C")
    with rejection(
        "DescribeError: microkernel: cannot take both as one of the CPU's\n"
        "  because  it adds along r, p, and its functions take one depth\n"
        "  help     the sum along p alone: others are loops around it\n"
        "  help     repeats={'p'}: a call runs up to two of these, Variant.turns"
    ):
        family_of(Microkernel("both", both, GIVEN["tiles"]))
    assert family_of(Microkernel(**GIVEN)).wide


def _declare(**changed: Any) -> Microkernel:
    asked = {"name": "own", "computes": product(), "address": 4096, "cycles": 1.0, "verify": False}
    asked |= changed
    return oc.external_microkernel(**asked)


def _routine(name: str) -> Any:
    pytest.importorskip("scipy", reason="scipy, which brings the BLAS, is not installed")
    return oc.external.blas(name)


def _with(*microkernels: Any, **request: Any) -> oc.Kernel:
    case = contraction("mk,kn->mn")
    return oc.compile(case.result, microkernels=microkernels, **request)


def _sum() -> Tensor:
    m, k = oc.dim("m"), oc.reduce_axis(oc.dim("k"), name="p")
    a = oc.placeholder((m, oc.dim("k")), name="A")
    return oc.compute((m,), lambda i: oc.sum(a[i, k], axis=k), name="C")


EXTERNAL = refusals(
    r"""
>>> _declare(address=0)
external_microkernel: cannot call 0
  because  it is not an address of a function
  help     an int that is not 0
  help     a ctypes function
  help     external.blas("sgemm")

>>> _declare(convention='fastcall')
external_microkernel: cannot call own by convention='fastcall'
  because  there is no such convention
  help     convention="tile"
  help     convention="blas_gemm"

>>> _declare(computes=product('float16'), convention='blas_gemm')
external_microkernel: cannot call own by convention='blas_gemm'
  because  A, B and C are float16, float16, float16, and gemm has one of float32, float64 for all
  help     convention="tile"

>>> _declare(computes=product('float64'), address=_routine('sgemm'), convention='blas_gemm')
external_microkernel: cannot call sgemm by convention='blas_gemm'
  at       own
  because  A, B and C are float64, float64, float64, and of a BLAS the conventions have sgemm, of float32, and dgemm, of float64
  help     external.blas("dgemm"), convention="blas_gemm"

>>> _declare(address=_routine('sgemm'))
external_microkernel: cannot call sgemm by convention='tile'
  at       own
  because  A, B and C are float32, float32, float32, and of a BLAS the conventions have sgemm, of float32, and dgemm, of float64
  help     external.blas("sgemm"), convention="blas_gemm"

>>> _declare(name='my gemm')
external_microkernel: cannot name a microkernel 'my gemm'
  because  a name is an ASCII identifier

>>> _declare(computes=_sum())
external_microkernel: cannot declare own by C: float32[m]
  because  an external microkernel computes a product of matrices
  help     compute((m, n), lambda i, j: sum(A[i, p] * B[p, j], axis=p))

>>> _declare(computes=product(rows=8))
external_microkernel: cannot declare own
  at       axis i
  because  its extent is 8, and tiles of every size from 1 on are asked for
  help     dim("i", min=1, max=256)

>>> _declare(computes=product(columns=oc.dim('n', max=0)))
external_microkernel: cannot declare own
  at       axis j
  because  its extent ends at 0, and no tile is so small
  help     dim("j", min=1, max=256)

>>> _declare(cycles=10 ** 13)
external_microkernel: cannot take cycles=10000000000000
  at       own
  because  it is a number above 0 and at most 1e+12

>>> _declare(cycles=0)
external_microkernel: cannot take cycles=0
  at       own
  because  it is a number above 0 and at most 1e+12

>>> _declare(startup=float('nan'))
external_microkernel: cannot take startup=nan
  at       own
  because  it is a number at least 0 and at most 1e+12

>>> _declare(verify='no')
external_microkernel: cannot take verify='no'
  because  it is True or False

>>> _with('sgemm')
compile: cannot take 'sgemm' as a microkernel
  because  the CPU calls functions: its own, and those that are declared external
  help     microkernels=[external_microkernel(…)]

>>> _with(_declare(), _declare())
compile: cannot take two microkernels named own
  because  a cut names the microkernel of a tile
  help     another name for one of them

>>> _with(_declare(), reassociate=False)
compile: cannot take microkernels= with reassociate=False
  because  in which order an external function adds is not known
  help     microkernels=() leaves sums to functions that add in ascending order

>>> oc.external.blas('tgemm')
blas: cannot find tgemm
  because  the BLAS of scipy has no routine of this name
  help     blas("sgemm")
  help     blas("dgemm")

>>> pickle.dumps(_with(Own().declared()))
pickle: cannot pickle an external microkernel
  because  its function is an address of this process
  help     external.blas("sgemm") is found again by its name
  help     compile it there
""",
    globals() | {"Own": Own, "pickle": pickle},
)


@pytest.mark.parametrize("case", EXTERNAL)
def test_what_is_no_microkernel_is_refused_in_words(case: str) -> None:
    call, text = EXTERNAL[case]
    with pytest.raises(oc.OffcutError) as error:
        call()
    assert str(error.value) == text


def test_a_cost_may_be_any_real_number() -> None:
    plain = _declare(cycles=0.5, startup=3.0)
    assert _declare(cycles=np.float32(0.5), startup=np.int64(3)).tiles == plain.tiles


def test_without_scipy_the_user_is_told_what_carries_a_blas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.linalg", None)
    with rejection(
        "TargetError: blas: cannot find sgemm\n"
        "  because  scipy, which carries a BLAS, is not installed\n"
        "  help     pip install scipy"
    ):
        oc.external.blas("sgemm")


def test_a_check_whose_process_ends_before_the_first_call_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = JobResult(JobStatus.CRASHED, because="it was ended by SIGKILL, and so was a second run")
    monkeypatch.setattr(declaration._Function, "run_all", lambda *_: ended)
    with pytest.raises(oc.OffcutError) as refused:
        _declare(verify=True)
    assert str(refused.value) == (
        "external_microkernel: cannot check own\n"
        "  because  its process ended before the first call: it was ended by SIGKILL, and so was a second run\n"
        "  help     declare it again, when memory is there\n"
        f"  help     {declaration.UNCHECKED}"
    )


TEXT = """program t
size n in 0:64
input X: float32[4, n]
input Y: float32[n, 32]
output Z: float32[4, 32]
tile a in 0 +: 4, b in 0 +: 32  @cover({name}{said})
  Z[a, b] = 0.0
  for c in 0:n
    Z[a, b] += {term}
"""


def fma() -> str:
    return next(k.name for k in oc.target("cpu").microkernels() if "float32" in k.name)


@pytest.mark.parametrize(
    ("said", "term", "because"),
    [
        (
            "; i=b, j=a, p=c; A=X, B=Y, C=Z",
            "X[a, c] * Y[c, b]",
            "moves: X[a, c] does not move as A[i, p] with i=b, j=a, p=c",
        ),
        ("", "X[a, c] + Y[c, b]", "term: X[a, c] + Y[c, b] is not what it sums"),
    ],
    ids=["an axis swapped", "another term"],
)
def test_a_cover_that_is_wrong_is_an_error(said: str, term: str, because: str) -> None:
    name = fma()
    with rejection(
        f"PartitionError: compile: cannot cover a tile by {name}\n  at       tile a, b\n  because  {because}\n"
        "  help     without @cover(…) it runs as vectors"
    ):
        oc.compile(oc.parse(TEXT.format(name=name, said=said, term=term)))


def test_a_cover_that_is_right_is_called() -> None:
    said = "; i=a, j=b, p=c; A=X, B=Y, C=Z"
    kernel = oc.compile(oc.parse(TEXT.format(name=fma(), said=said, term="X[a, c] * Y[c, b]")))
    assert not [note for note in kernel.plan(n=5).notes if fma() in note]


EDGES = """program edges
size n in 0:64
input X: float32[{rows}, n]
input Y: float32[n, {total}]
local P: float32[n, {columns}]{layout}
output Z: float32[{rows}, {total}]
for c in 0:n
  for b in 0:{columns}
    P[c, b] = Y[c, b]
for a in 0:{rows}
  for b in 0:{total}
    Z[a, b] = 7.0
tile a in 0 +: {rows}, b in 0 +: {columns}  @cover({name})
  Z[a, b] = 0.0
  for c in 0:n
    Z[a, b] += X[a, c] * P[c, b]
"""


@pytest.mark.parametrize("more", [0, 1], ids=["", "one too many"])
@pytest.mark.parametrize("layout", ["", " @digits(p: 1//{w}, k: 0, lane: 1%{w})"])
def test_an_extent_one_too_many_runs_right_along_rows_and_columns(more: int, layout: str) -> None:
    kernel = next(k for k in oc.target("cpu").microkernels() if "float32" in k.name)
    rows = max(tile.rows for tile in kernel.tiles) + more
    columns = max(tile.columns for tile in kernel.tiles) + more
    edges = EDGES.format(
        rows=rows,
        columns=columns,
        total=99 + columns,
        name=kernel.name,
        layout=layout.format(w=kernel.panel),
    )
    compiled = oc.compile(oc.parse(edges))
    assert not [note for note in compiled.plan(n=5).notes if kernel.name in note]
    random = np.random.default_rng(0)
    for n in (0, 1, 63):
        x, y = (random.integers(-4, 5, s).astype("f4") for s in ((rows, n), (n, 99 + columns)))
        wanted = np.full((rows, 99 + columns), 7, "f4")
        wanted[:, :columns] = x @ y[:, :columns]
        np.testing.assert_array_equal(compiled(x, y), wanted)


def test_a_layout_off_is_an_error() -> None:
    edges = EDGES.format(rows=4, columns=32, total=40, name=fma(), layout=" @order(1, 0)")
    with pytest.raises(oc.PartitionError, match=r"layout: P\[c, b\] is not packed as it reads it"):
        oc.compile(oc.parse(edges))


PRODUCT = """program t
size n in 0:64
input X: float32[4, {n}]
input Y: float32[{n}, 4]
output Z: float32[4, 4]
tile a in 0 +: 4, b in 0 +: 4  @cover({said})
  Z[a, b] = 0.0
  for c in 0:{n}
    Z[a, b] += {term}
"""
RIGHT = "X[a, c] * Y[c, b]"
MIXED = "moves: X[a, c] does not move as A[i, p] with i=b, j=a, p=c"


def instruction(name: str, extent: int, reset: str = "") -> Microkernel:
    A, B = oc.placeholder((extent, 8), name="A"), oc.placeholder((8, extent), name="B")
    p = oc.reduce_axis(8, name="p")
    C = oc.compute((extent, extent), lambda i, j: oc.sum(A[i, p] * B[p, j], axis=p), name="C")
    hardware = oc.hardware_intrinsic
    one = hardware(name)
    three = one, hardware(reset or "none"), hardware(f"{name}_add")
    return oc.decl_tensor_intrin(C, lambda _, __: three if reset else one)


class Scratch(Toy):
    """A target whose unit reads Y from a scratchpad."""

    own = Microkernel(
        "scratch",
        Toy.outer.computes,
        tuple(TileShape((rows, 4), 4.0, 4.0) for rows in (1, 2, 3, 4)),
        operands={"B": Place(memories=("pad",))},
    )

    def microkernels(self, options: object = None) -> tuple[Microkernel, ...]:
        return (self.own,)


@pytest.mark.parametrize(
    ("op", "said", "term", "because"),
    [
        ("partition", "toy_outer; i=b, j=a, p=c; A=X, B=Y, C=Z", RIGHT, MIXED),
        (
            "compile",
            "toy_outer; i=a, j=b, p=c; A=Y, B=X",
            RIGHT,
            "moves: Y[c, b] does not move as A[i, p] with i=a, j=b, p=c",
        ),
        ("compile", "toy_outer; i=a, q=b; A=X", RIGHT, "term: toy_outer has no axis q: i, j, p"),
        (
            "partition",
            "toy_outer",
            "X[a, c] + Y[c, b]",
            "term: X[a, c] + Y[c, b] is not what it sums",
        ),
    ],
    ids=["an axis swapped", "operands swapped", "an axis that it has not", "another term"],
)
def test_covers_of_a_target_of_ones_own_are_judged(
    op: str, said: str, term: str, because: str
) -> None:
    door = oc.compile if op == "compile" else oc.partition
    with rejection(
        f"PartitionError: {op}: cannot cover a tile by toy_outer\n  at       tile a, b\n"
        f"  because  {because}\n  help     without @cover(…) it runs as loops"
    ):
        door(oc.parse(PRODUCT.format(n="n", said=said, term=term)), target=Toy())


def test_a_name_that_a_target_does_not_have_is_an_error() -> None:
    with rejection(
        "PartitionError: compile: cannot cover a tile by nobody\n  at       tile a, b\n  because  no microkernel of this machine, "
        "and no declared instruction, has that name\n  help     toy_outer\n"
        "  help     without @cover(nobody) it runs as loops"
    ):
        oc.compile(oc.parse(PRODUCT.format(n="n", said="nobody", term=RIGHT)), target=Toy())


def test_memories_are_asked_of_what_a_target_of_ones_own_lowers() -> None:
    text = PRODUCT.format(n="n", said="scratch", term=RIGHT)
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(oc.parse(text), target=Scratch())
    assert refused.value.because == "memory: Y lies in main memory, and scratch has B in pad"
    whole = "local P: float32[n, 4] @scope({memory})\nfor k in 0:n\n  for j in 0:4\n    P[k, j] = Y[k, j]\ntile"
    staged = text.replace("tile", whole).replace("Y[c, b]", "P[c, b]")
    said = staged.format(memory="elsewhere").replace(
        "@cover(scratch)", "@cover(scratch; i=a, j=b, p=c; B=P)"
    )
    with pytest.raises(oc.PartitionError, match="memory: P lies in elsewhere, and scratch has B"):
        oc.partition(oc.parse(said), target=Scratch())
    kernel = oc.compile(oc.parse(staged.format(memory="pad")), target=Scratch())
    assert "@cover(scratch; i=a, j=b, p=c; A=X, B=P, C=Z)" in kernel.source("loops")


@pytest.mark.parametrize("target", ["cpu", "interpret", "vta", "toy"])
def test_covers_by_declared_instructions_are_judged(target: str) -> None:
    instruction("declared_4", 4)
    for said, n, because in (
        ("declared_4; i=b, j=a, p=c; A=X", 8, MIXED),
        ("declared_4", 9, "extents: c is 9 long, and declared_4 takes 8"),
    ):
        text = oc.parse(PRODUCT.format(n=n, said=said, term=RIGHT))
        with rejection(
            "PartitionError: compile: cannot cover a tile by declared_4\n  at       tile a, b\n"
            f"  because  {because}\n  help     without @cover(…) it runs as loops"
        ):
            oc.compile(text, target=Toy() if target == "toy" else target)


def test_instructions_may_share_the_name_of_their_start() -> None:
    instruction("declared_of_4", 4, "from_zero")
    instruction("declared_of_2", 2, "from_zero")
    text = PRODUCT.format(n=8, said="declared_of_4", term=RIGHT).replace("  Z[a, b] = 0.0\n", "")
    start = "tile a in 0 +: 4, b in 0 +: 4  @cover(from_zero)\n  Z[a, b] = 0.0\ntile"
    text = text.replace("tile", start).replace("declared_of_4", "declared_of_4_add")
    x, y = np.ones((4, 8), "f4"), np.ones((8, 4), "f4")
    for target in ("cpu", "interpret", Toy()):
        np.testing.assert_array_equal(oc.compile(oc.parse(text), target=target)(x, y, n=1), x @ y)
    with pytest.raises(oc.PartitionError, match=r"extents: a is 3 long"):
        oc.partition(oc.parse(text.replace("tile a in 0 +: 4", "tile a in 0 +: 3", 1)))


def test_the_interpreter_says_which_names_it_does_not_check() -> None:
    kernel = oc.compile(
        oc.parse(PRODUCT.format(n="n", said="nobody", term=RIGHT)), target="interpret"
    )
    (note,) = (note for note in kernel.plan(n=5).notes if "nobody" in note)
    assert note == (
        "nobody stays a name, and is not checked: target='interpret' knows no microkernel of that name"
    )


def test_a_wrong_cover_of_the_machine_is_an_error_when_it_is_cut_further() -> None:
    text = TEXT.format(name=fma(), said="; i=b, j=a, p=c; A=X, B=Y, C=Z", term=RIGHT)
    with pytest.raises(oc.PartitionError, match="partition: cannot cover a tile by"):
        oc.partition(oc.parse(text))


def test_notes_say_why_a_microkernel_covers_nothing() -> None:
    n, p = oc.dim("n", max=64), oc.reduce_axis(64, name="p")
    A, B = oc.placeholder((n, 64), name="A"), oc.placeholder((64, 64), name="B")
    C = oc.compute((n, 64), lambda i, j: oc.sum(A[i, p] * B[p, j], axis=p), name="C")
    a, b = oc.placeholder((8, 16), name="A"), oc.placeholder((16, 8), name="B")
    q = oc.reduce_axis(16, name="q")
    block = oc.compute((8, 8), lambda i, j: oc.sum(a[i, q] * b[q, j], axis=q), name="C")
    warp = Microkernel("block_8", block, (TileShape((8, 8), 4.0, 4.0),), unit="warp")

    def notes(**tile: int) -> list[str]:
        made = oc.partition(C, tile=tile, microkernels=[warp])
        return [note for note in made.notes if "block_8" in note]

    assert notes() == ["block_8 covers nothing: no loop is cut into tiles"]
    assert notes(i=4, j=8) == [
        "tile i, j: block_8 does not cover it: extents: i is 4 long, and block_8 takes 8",
        "tile i, j: block_8 does not cover it: extents: i is 1 long, and block_8 takes 8",
    ]
