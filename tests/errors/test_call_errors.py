"""Every refusal of a call, word for word: the argument, the fact that failed, what would be accepted."""

import numpy as np
import pytest
from compiled import build
from conftest import refusals, rejection

import offcut as oc
from offcut.backends.abi import AffineFact, Argument
from offcut.backends.host.binding import bind
from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.errors import CallError
from offcut.ir import Size
from tests.facade import Builder, Signature, compile_graph

F32 = "float32"


def extent(const: int, terms: tuple[tuple[str, int], ...] = (), by: int = 1) -> Expr:
    """``(const + sum(factor * size)) // by``"""
    return ix.floordiv(ix.add(const, *(ix.mul(factor, Var(name)) for name, factor in terms)), by)


N, M = extent(0, (("n", 1),)), extent(0, (("m", 1),))
ADD = Signature(
    "add",
    (Argument("x", F32, (N, extent(16))), Argument("b", F32, (extent(16),))),
    (Argument("y", F32, (N, extent(16))),),
    (Size("n", 1, 4096),),
)
ODD = Signature(
    "odd",
    (Argument("x", F32, (N, M)), Argument("w", F32, (extent(1, (("n", 2),)),))),
    (Argument("y", F32, (N, M)),),
    (Size("n", 0, 100, 4), Size("m", 0, 100)),
    (AffineFact(">=", 0, (("m", 1), ("n", -1)), "n <= m"),),
)
FIRST = Signature("first", (Argument("w", F32, (extent(1, (("n", 2),)),)),), (), (Size("n", 0, 9),))
HALF = Signature(
    "half",
    (Argument("x", F32, (N,)), Argument("h", F32, (extent(1, (("n", 1),), 2),))),
    (),
    (Size("n", 0, 99),),
)
REPEAT = Signature(
    "repeat",
    (Argument("x", F32, (M,)),),
    (Argument("y", F32, (N, M)), Argument("z", F32, (extent(-3, (("n", 1),)),))),
    (Size("n", 0, 100), Size("m", 0, 100)),
)
BORDERED = Signature(
    "bordered",
    (Argument("x", F32, (extent(3, (("n", 1),)), M)),),
    (Argument("y", F32, (N, M)),),
    (Size("n", 0, 100), Size("m", 0, 100)),
)
EVERY_FOURTH = Signature("fourth", (), (Argument("y", F32, (N,)),), (Size("n", 2, 99, 4),))
EMPTY = Signature("fill", (), (Argument("y", F32, (N,)),), (Size("n", 0, 9),))
MODULAR = Signature(
    "modular",
    (Argument("x", F32, (N, M)),),
    (),
    (Size("n", 0, 9), Size("m", 0, 9)),
    (AffineFact("mod", 0, (("n", 1), ("m", 1)), "(n + m) % 4 == 0", 4),),
)
EQUAL = Signature(
    "equal",
    (Argument("x", F32, (N, M)),),
    (),
    (Size("n", 0, 9), Size("m", 0, 9)),
    (AffineFact("==", -1, (("n", 1), ("m", -1)), "n == m + 1"),),
)


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


class OnGpu:
    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)

    def __dlpack__(self) -> object:
        raise AssertionError("the memory of another device is never asked for")


class Unwilling:
    def __dlpack_device__(self) -> tuple[int, int]:
        raise BufferError("not today\nnor tomorrow")

    def __dlpack__(self) -> object:
        raise AssertionError


X, B, ROWS, Z = f32(3, 16), f32(16), f32(20, 16), f32(4, 3)

CASES = refusals(
    """\
given ADD, (X,), {}
add: takes 2 arrays, got 1
  at       b
  because  its inputs are x (n, 16) float32, b (16,) float32
  help     add(x, b)

given ADD, (X, B, X), {}
add: takes 2 arrays, got 3
  at       argument 3
  because  its inputs are x (n, 16) float32, b (16,) float32
  help     add(x, b)
  help     out= takes the result's array; sizes go by keyword

given EMPTY, (B,), {'n': 3}
fill: takes 0 arrays, got 1
  at       argument 1
  because  it has no inputs
  help     fill()
  help     out= takes the result's array; sizes go by keyword

given ADD, (X, B), {'m': 3}
add: has no keyword m
  at       m
  because  its keywords are x, b, out, n
  help     add(x, b)

given ADD, (X,), {'x': X, 'b': B}
add: takes x once, got it twice
  at       x
  because  argument 1 is x, and so is a keyword
  help     add(x, b)

given ADD, (), {'b': B}
add: takes 2 arrays, got 1
  at       x
  because  x is given neither by position nor by name
  help     add(x, b)

given ADD, (X.astype(np.float64), B), {}
add: x has the wrong element type
  at       x
  because  x is float64, the kernel was compiled for float32
  help     x.astype("float32")

given ADD, (X[0], B), {}
add: x has the wrong rank
  at       x
  because  x has shape (16,), the kernel takes (n, 16)

given ADD, (f32(3, 15), B), {}
add: x has the wrong shape
  at       x
  because  axis 1 of x is 15, the kernel was compiled for 16 in (n, 16)

given ADD, (f32(5000, 16), B), {}
add: n = 5000 is outside the facts
  at       n
  because  n = 5000 by axis 0 of x, and the kernel was compiled for n <= 4096
  help     dim("n", max=5000), compiled again

given ADD, (f32(0, 16), B), {}
add: n = 0 is outside the facts
  at       n
  because  n = 0 by axis 0 of x, and the kernel was compiled for n >= 1
  help     dim("n", min=0), compiled again

given ODD, (f32(3, 16), f32(7)), {}
odd: n = 3 is outside the facts
  at       n
  because  n = 3 by axis 0 of x, and the kernel was compiled for n % 4 == 0
  help     dim("n") without multiple_of=4, compiled again

given ODD, (f32(4, 16), f32(7)), {}
odd: w disagrees on n
  at       w
  because  axis 0 of w is 7, but 2*n + 1 = 9 with n = 4 by axis 0 of x

given FIRST, (f32(4),), {}
first: w has an extent that no n gives
  at       w
  because  axis 0 of w is 4, and 2*n + 1 = 4 has no integer solution
  help     the nearest extents are 3 (n = 1) and 5 (n = 2)

given FIRST, (f32(0),), {}
first: w has an extent that no n gives
  at       w
  because  axis 0 of w is 0, and 2*n + 1 = 0 has no integer solution
  help     the nearest extent is 1 (n = 0)

given HALF, (f32(4), f32(3)), {}
half: h disagrees on n
  at       h
  because  axis 0 of h is 3, but (n + 1)//2 = 2 with n = 4 by axis 0 of x

given ODD, (f32(8, 4), f32(17)), {}
odd: m and n break an assumption
  at       m
  because  m = 4 by axis 1 of x, n = 8 by axis 0 of x, and the kernel was compiled under assume(n <= m)

given MODULAR, (f32(3, 2),), {}
modular: n and m break an assumption
  at       n
  because  n = 3 by axis 0 of x, m = 2 by axis 1 of x, and the kernel was compiled under assume((n + m) % 4 == 0)

given EQUAL, (f32(3, 3),), {}
equal: n and m break an assumption
  at       n
  because  n = 3 by axis 0 of x, m = 3 by axis 1 of x, and the kernel was compiled under assume(n == m + 1)

given ADD, (X, B), {'n': 4}
add: x disagrees on n
  at       x
  because  axis 0 of x is 3, but n = 4 by the keyword

given ADD, (X, B), {'n': 3.5}
add: n is not an integer
  at       n
  because  got 3.5, a float
  help     n=12

given REPEAT, (f32(3),), {'n': -1}
repeat: n = -1 is outside the facts
  at       n
  because  n = -1 by the keyword, and the kernel was compiled for n >= 0
  help     n=0 to n=100

given BORDERED, (f32(2, 4),), {}
bordered: n = -1 is outside the facts
  at       n
  because  n = -1 by axis 0 of x (n + 3 = 2), and the kernel was compiled for n >= 0
  help     the nearest extent is 3 (n = 0)

given EVERY_FOURTH, (), {'n': -4}
fourth: n = -4 is outside the facts
  at       n
  because  n = -4 by the keyword, and the kernel was compiled for n >= 2
  help     n=4 to n=96, a multiple of 4

given REPEAT, (f32(3),), {}
repeat: cannot know n
  at       n
  because  no shape of the inputs determines n
  help     repeat(x, n=...)

given REPEAT, (f32(3),), {'n': 2}
repeat: z would have a negative extent
  at       z
  because  axis 0 of z is n - 3 = -1 with n = 2

given REPEAT, (f32(3),), {'n': 4, 'out': Z}
repeat: out does not match the results
  at       out
  because  the kernel has 2 results, out is a ndarray
  help     out=(y, z)

given ADD, (X, B), {'out': (X,)}
add: out is not an array
  at       out
  because  it is of type tuple; kernels take numpy and DLPack arrays

given REPEAT, (f32(3),), {'n': 4, 'out': (Z, Z[0, :1])}
repeat: out[1] overlaps out[0]
  at       out[1]
  because  out[1] and out[0] start at the same byte
  help     leave out= away, or give it memory of its own

given ADD, (X, B), {'out': frozen(f32(3, 16))}
add: out is read-only
  at       out
  because  the result is written into it
  help     leave out= away, or give it memory of its own

given ADD, (X, B), {'out': np.lib.stride_tricks.as_strided(f32(16), (3, 16), (0, 4))}
add: out overlaps itself
  at       out
  because  axis 0 has extent 3 and stride 0
  help     leave out= away, or give it memory of its own

given ADD, (X, B), {'out': np.lib.stride_tricks.as_strided(f32(99), (3, 16), (8, 4))}
add: out overlaps itself
  at       out
  because  shape (3, 16) with strides (8, 4) bytes may reach one place twice
  help     leave out= away, or give it memory of its own

given ADD, (X, B), {'out': X}
add: out overlaps x
  at       out
  because  out and x start at the same byte
  help     leave out= away, or give it memory of its own

given ADD, (ROWS[:3], B), {'out': ROWS[1:4]}
add: out overlaps x
  at       out
  because  out and x share memory: out starts 64 bytes after x
  help     leave out= away, or give it memory of its own

given ADD, (X, ROWS[2]), {'out': ROWS[:3]}
add: out overlaps b
  at       out
  because  out and b share memory: out starts 128 bytes before b
  help     leave out= away, or give it memory of its own

given ADD, (X, B), {'out': f32(3, 15)}
add: out has the wrong shape
  at       out
  because  out has shape (3, 15), the result is (n, 16) = (3, 16) with n = 3

given ADD, (X, B), {'out': f32(48)}
add: out has the wrong rank
  at       out
  because  out has shape (48,), the kernel takes (n, 16)

given ADD, (X, B), {'out': X.astype(np.float64)}
add: out has the wrong element type
  at       out
  because  out is float64, the kernel was compiled for float32

given ADD, ([[0.0] * 16], B), {}
add: x is not an array
  at       x
  because  it is of type list; kernels take numpy and DLPack arrays
  help     numpy.asarray(x, dtype=...)

given ADD, (OnGpu(), B), {}
add: x is not in CPU memory
  at       x
  because  it is on cuda:1
  help     copy it to CPU memory first

given ADD, (Unwilling(), B), {}
add: x cannot be read through DLPack
  at       x
  because  its Unwilling says: not today

given ADD, (np.ma.masked_array(X), B), {}
add: x is a masked array
  at       x
  because  a compiled kernel reads every element, masked or not
  help     x.filled(0)
""",
    globals(),
)


@pytest.mark.parametrize("case", CASES)
def test_a_call_that_does_not_fit_is_refused_with_its_reason(case):
    signature, args, kwargs, text = CASES[case]
    with rejection(f"CallError: {text}"):
        bind(signature, args, kwargs)


ACCEPTED = {
    "plain": (ADD, (X, B), {}),
    "out": (ADD, (X, B), {"out": f32(3, 16)}),
    "out=None": (ADD, (X, B), {"out": None}),
    "the least size": (ADD, (X[:1], B), {}),
    "the greatest size": (ADD, (f32(4096, 16), B), {}),
    "a size that a shape gives too": (ADD, (X, B), {"n": 3}),
    "2*n + 1 = 9 with n = 4": (ODD, (f32(4, 4), f32(9)), {}),
    "2*n + 1 = 1 with n = 0": (FIRST, (f32(1),), {}),
    "(n + 1)//2 = 2 with n = 4": (HALF, (f32(4), f32(2)), {}),
    "a size that no shape gives": (REPEAT, (f32(3),), {"n": 4}),
    "two results": (REPEAT, (f32(3),), {"n": 4, "out": (Z, f32(1))}),
    "no inputs": (EMPTY, (), {"n": np.int32(4)}),
    "n + m = 8": (MODULAR, (f32(3, 5),), {}),
    "n == m + 1": (EQUAL, (f32(3, 2),), {}),
    "a neighbour's rows": (ADD, (ROWS[:3], B), {"out": ROWS[3:6]}),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_call_beside_the_refused_ones_is_accepted(case):
    signature, args, kwargs = ACCEPTED[case]
    call = bind(signature, args, kwargs)
    assert [view.shape for view in call.inputs] == [array.shape for array in args]


def subclassed(tensor):
    return tensor.as_subclass(type("Sub", (type(tensor),), {}))


TORCH_CASES = refusals(
    """\
given lambda torch: ((torch.zeros(3, 16).double(), B), {})
add: x has the wrong element type
  at       x
  because  x is float64, the kernel was compiled for float32
  help     x.to(torch.float32)

given lambda torch: ((torch.zeros(3, 16, requires_grad=True), B), {})
add: x requires grad
  at       x
  because  a compiled kernel records no gradient
  help     x.detach()

given lambda torch: ((X, B), {'out': torch.zeros(3, 16, requires_grad=True)})
add: out requires grad
  at       out
  because  a compiled kernel records no gradient
  help     out.detach()

given lambda torch: ((torch.zeros(3, 16, dtype=torch.complex64).conj().imag, B), {})
add: x is negated lazily
  at       x
  because  its memory holds the values before the sign is applied
  help     x.resolve_neg()

given lambda torch: ((subclassed(torch.zeros(3, 16, dtype=torch.complex64).conj().imag), B), {})
add: x is negated lazily
  at       x
  because  its memory holds the values before the sign is applied
  help     x.resolve_neg()

given lambda torch: ((torch.zeros(3, 16).to_sparse(), B), {})
add: x cannot be read through DLPack
  at       x
  because  its Tensor says: Can't export tensors with layout other than torch.strided

given lambda torch: ((torch.from_numpy(ROWS[:3]), B), {'out': ROWS[2:5]})
add: out overlaps x
  at       out
  because  out and x share memory: out starts 128 bytes after x
  help     leave out= away, or give it memory of its own
""",
    globals(),
)


@pytest.mark.parametrize("case", TORCH_CASES)
def test_a_torch_tensor_that_does_not_fit_is_refused_with_its_reason(case):
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")
    make, text = TORCH_CASES[case]
    args, kwargs = make(torch)
    with rejection(f"CallError: {text}"):
        bind(ADD, args, kwargs)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_a_tensor_without_memory_is_refused():
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")
    fake = torch._subclasses.FakeTensorMode().from_tensor(torch.zeros(3, 16))
    with rejection("""\
CallError: add: x has no memory
  at       x
  because  this FakeTensor describes an array without holding its elements"""):
        bind(ADD, (fake, B), {})
    assert bind(ADD, (subclassed(torch.zeros(3, 16)), B), {}).sizes


def test_a_result_too_large_to_allocate_is_refused_with_its_bytes():
    n, m = oc.dim("n"), oc.dim("m")
    P = oc.placeholder((n,), name="P")
    Y = oc.compute((n, m), lambda i, j: P[i] + oc.cast(j, "float32"), name="Y")
    kernel = build(Y, inputs=[P], strategy="guard")
    with rejection("""\
CallError: Y: cannot allocate a result of shape (1048576, 2147483647)
  because  it takes 9,007,199,250,546,688 bytes"""):
        kernel(f32(2**20), m=2**31 - 1)
    assert kernel(f32(2), m=3).tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("op", ["cumsum", "sum"])
def test_a_model_without_memory_for_a_result_says_its_bytes(op):
    builder = Builder("outer")
    n, m = builder.size("n"), builder.size("m")
    x, y = builder.input("x", "float32", (n, 1)), builder.input("y", "float32", (1, m))
    made = builder.node("cumsum", builder.node("add", x, y), 1)
    builder.output(builder.node("sum", made, axis=0) if op == "sum" else made)
    model = compile_graph(builder.bound)
    with pytest.raises(CallError) as refused:
        model(f32(2**20, 1), f32(1, 2**31 - 1))  # no page is touched
    text = """\
outer: cannot allocate a result of shape (1048576, 2147483647)
  because  it takes 9,007,199,250,546,688 bytes"""
    if op == "sum":  # of an arena, whose rows are aligned, not all digits are told
        text = "outer: cannot allocate the arena\n  because  values between kernels take 9,007,"
    assert str(refused.value).startswith(text)
    assert str(refused.value).endswith(" bytes")
    assert model(f32(2, 1), f32(1, 3)).shape[-1] == 3


def test_a_run_takes_arrays_by_name_and_echoes_none() -> None:
    program = oc.parse("size n in 0:9\ninput x: float32[n]\noutput y: float32[n]")
    with rejection("""\
CallError: run: cannot take inputs= list
  because  inputs are arrays by the names of their buffers
  help     run({"A": a}, n=12)"""):
        program.run([np.ones(9, "float32")])  # type: ignore[arg-type]
