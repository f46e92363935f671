"""Every refusal of a description, word for word, beside what is accepted."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sympy
from conftest import refusals

import offcut as oc
from offcut import assume, dim
from offcut.describe.computation import computation
from offcut.errors import DescribeError

n, m = dim("n", max=64), dim("m", max=64)
A = oc.placeholder((n, m), name="A")
F = oc.placeholder((n,), "int32", "F")
G = oc.placeholder((n,), "int8", "G")
H = oc.placeholder((n,), "float64", "H")
k = oc.reduce_axis(m, "k")


def row(fn: Callable[..., Any], name: str = "C") -> oc.Tensor:
    """A tensor of n elements."""
    return oc.compute((n,), fn, name)


def block(fn: Callable[..., Any], name: str = "C", axes: Any = None) -> oc.Tensor:
    """A tensor of n times m elements."""
    return oc.compute((n, m), fn, name, axes)


def refused(describe: Callable[[], Any], text: str) -> None:
    with pytest.raises(DescribeError) as error:
        describe()
    assert str(error.value) == text


def shown(value: object) -> str:
    return value.partition("\n")[0] if isinstance(value, str) else ""


# A size is an ascii name and facts that leave it a value.
SIZES = """
>>> dim('2n')
dim: cannot name a size '2n'
  because  a size is known by an ASCII identifier
  help     dim("n")

>>> dim('out')
dim: cannot name a size 'out'
  because  out= of a call says where the result goes
  help     dim("n")

>>> dim('n', max=4.5)
dim: cannot take max=4.5
  at       size n
  because  a fact of a size is an integer

>>> dim('n', min=True)
dim: cannot take min=True
  at       size n
  because  a fact of a size is an integer
"""
# A shape is a tuple of quasi affine sizes at least 0.
SHAPES = """
>>> oc.placeholder((n * m,))
placeholder: cannot take the size m*n
  because  isl decides quasi-affine sizes only: no product of two sizes, no division but // and % by a positive int
  help     2*n + 1, n//4 and n % 4 are accepted

>>> oc.placeholder((n / 2,))
placeholder: cannot take the size n/2
  because  isl decides quasi-affine sizes only: no product of two sizes, no division but // and % by a positive int
  help     2*n + 1, n//4 and n % 4 are accepted

>>> oc.placeholder((2.5,))
placeholder: cannot take the size 2.5
  because  a size is an int or an expression in sizes made by dim
  help     n = dim("n"); (n, 768)

>>> oc.placeholder('n')
placeholder: cannot take the shape 'n'
  at       tensor A
  because  a shape is a tuple of sizes
  help     (n, 768)
  help     (n,)

>>> oc.placeholder((n, -1), name='A')
placeholder: cannot take the extent -1
  at       tensor A, axis 1
  because  an extent is at least 0

>>> oc.placeholder((n,), 'float8', 'A')
placeholder: cannot hold 'float8'
  at       tensor A
  because  element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool
"""
# An expression is made of equal element types.
VALUES = """
>>> oc.where(True, 1.0, 2.0)
where: cannot choose by True
  because  the condition is a comparison of elements, axes or sizes

>>> oc.tanh(1.0)
compute: cannot take tanh of 1.0
  because  tanh is for float elements

>>> row(lambda i: oc.exp(F[i]))
compute: cannot take exp of int32 F[i]
  because  exp is for float elements

>>> row(lambda i: A[i])
compute: cannot read A with 1 indices
  at       tensor A[n, m]
  because  it has 2 axes
  help     A[i, j] is an element

>>> row(lambda i: A[i, 1.5])
compute: cannot index with 1.5
  at       tensor A[n, m]
  because  an index is an integer expression in axes and sizes

>>> row(lambda i: A[i, F[i]])
compute: cannot index with F[i] of type int32
  at       tensor A[n, m]
  because  an index is an integer expression in axes and sizes
  help     index(…) of an element is asked when the kernel is called

>>> row(lambda i: A[i // m, 0])
compute: cannot take i // m
  because  // and % floor integers, by a positive constant

>>> row(lambda i: F[i] / 2)
compute: cannot take F[i] / 2
  because  / is for floats, and these are int32
  help     // floors integers

>>> row(lambda i: oc.where((i < n) & 1, A[i, 0], 0.0))
compute: cannot take and of 1
  because  & | ^ ~ join conditions, such as (i >= 1) & (i < n), or bits of integers

>>> row(lambda i: A[i, 0] << 2)
compute: cannot take float32 A[i, 0] << 2.0
  because  bits are of elements of int64, int32, int16, int8, uint64, uint32, uint16, uint8

>>> row(lambda i: i >> 1)
compute: cannot take index i >> 1
  because  bits are of elements of int64, int32, int16, int8, uint64, uint32, uint16, uint8
  help     cast(x, "int64") of a coordinate or a size

>>> row(lambda i: F[i] & 1.5)
compute: cannot take int32 & float
  at       F[i]
  because  bits are of integers of one type, or of conditions
  help     cast(…, "int32") converts, explicitly

>>> row(lambda i: A[oc.index(A[i, 0]), 0])
index: cannot take float32 A[i, 0] as an index
  because  an index is made of int64, int32, int16, int8, uint64, uint32, uint16, uint8

>>> oc.maximum(1, 2)
compute: cannot take maximum of 1 and 2
  because  neither is an expression

>>> row(lambda i: oc.where(A[i, 0], A[i, 0], 0.0))
where: cannot choose by A[i, 0]
  because  the condition is a comparison of elements, axes or sizes
  help     where(A[i, 0] != 0, a, b)

>>> row(lambda i: oc.where(n > 3, A[i, 0], 0.0))
where: cannot choose by n > 3
  because  the condition is a comparison of elements, axes or sizes
  help     where(cast(n, "int64") > 3, a, b): of a size as an element

>>> row(lambda i: oc.where(i < n, 1.0, 2.0))
where: cannot tell the element type of 1.0 and 2.0
  because  both are Python scalars
  help     where(c, cast(1.0, "float32"), 0.0)

>>> oc.cast(1.0, 'float8')
cast: cannot convert to 'float8'
  because  element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool

>>> oc.cast('x', 'float32')
cast: cannot convert 'x'
  because  it is not an expression
"""
# A reduction is over reduction axes outermost.
REDUCTIONS = """
>>> row(lambda i: oc.max(1.0, axis=k))
max: cannot reduce 1.0
  because  a reduction is over tensor elements

>>> row(lambda i: oc.sum(A[i, 0], axis='k'))
sum: cannot reduce over 'k'
  because  it is not an axis made by reduce_axis
  help     k = reduce_axis(768, name="k"); sum(A[i, k], axis=k)

>>> row(lambda i: oc.max(A[i, 0], 0.0))
max: cannot reduce over 0.0
  because  it is not an axis made by reduce_axis
  help     k = reduce_axis(768, name="k"); sum(A[i, k], axis=k)
  help     maximum(A[i, 0], 0.0) is the larger of two

>>> row(lambda i: oc.sum(A[i, k], axis=(k, k)))
sum: cannot reduce over ('k', 'k')
  because  an axis is named twice

>>> row(lambda i: oc.sum(i < k, axis=k))
sum: cannot reduce bool i < k
  because  a reduction is over tensor elements
  help     sum(cast(i < k, "int32"), …)
  help     sum(where(i < k, a, b), …) of elements that it chooses

>>> row(lambda i: oc.sum(oc.sum(A[i, k], axis=k) * A[i, k], axis=k))
compute: cannot reduce inside a reduction: sum(sum(A[i, k], k) * A[i, k], k)
  at       tensor C
  because  each reduction is a tensor of its own
  help     compute the inner one first, and read it

>>> oc.compute((n,), lambda x: oc.min(A[x, k], axis=k), axes=('k',))
compute: cannot use k as an axis and as a reduction axis
  at       tensor C
  because  an axis is known by its name
  help     reduce_axis(extent, name="r")

>>> row(lambda i: A[i, k])
compute: cannot use the axis k here
  at       tensor C
  because  it is neither an axis of the tensor nor reduced by this sum, max or min
  help     sum(…, axis=k)
"""
# A tensor holds numbers one value for each point of named axes.
TENSORS = """
>>> row(lambda i: None)
compute: cannot store None
  at       tensor C
  because  the function gives no expression
  help     cast(1.0, "float32") is a constant expression

>>> row(lambda i: i)
compute: cannot store i of type index
  at       tensor C
  because  a tensor holds elements
  help     cast(i, "int32")
  help     cast(i, "int64")

>>> row(lambda *ix: A[ix[0], 0])
compute: cannot name the axes
  at       tensor C
  because  the function's parameters are not all plain names
  help     axes=("i", "j")

>>> row(3)
compute: cannot compute with 3
  at       tensor C
  because  it is not a function of the axes
  help     compute((n,), lambda i: A[i] + 1.0)

>>> block(lambda *ix: A[ix], axes=3)
compute: cannot take axes=3
  at       tensor C
  because  axes are a tuple of names
  help     axes=("i", "j")

>>> block(lambda i: A[i, 0])
compute: cannot give 2 axes the names i
  at       tensor C
  because  the shape has 2 extents and the function 1 parameters

>>> block(lambda *ix: A[ix], axes=('i', 'i'))
compute: cannot name axes ('i', 'i')
  at       tensor C
  because  a name is repeated

>>> block(lambda i, j: A[i, j] + oc.placeholder((n, m), name='A')[i, j])
compute: cannot read two tensors of one name in C
  because  two of them are called A
  help     name="A2" of one of them, or one tensor in both places

>>> block(lambda i, j: A[i, j], name='A')
compute: cannot read two tensors of one name in A
  because  it reads another A
  help     name="A2" of one of them, or one tensor in both places
"""
# A program knows its inputs and each name once.
PROGRAMS = """
>>> computation([row(lambda i: A[i, 0] + oc.placeholder((dim('n', max=64, multiple_of=8),), name='B')[i])])
compute: cannot tell two sizes named n apart
  at       tensor B
  because  one is 0…64, the other 0…64, a multiple of 8
  help     make the size once, and use it in every shape

>>> computation([row(lambda i: A[i, 0])], inputs=[])
compile: cannot compute without A
  because  inputs lists nothing
  help     inputs=[A]

>>> computation([row(lambda i: A[i, 0])], inputs=[row(lambda i: A[i, 0])])
compile: cannot take C: float32[n] as an input
  because  an input is a placeholder

>>> computation([row(lambda i: A[i, 0]), row(lambda i: A[i, 1])])
compile: cannot tell two tensors named C apart
  because  one is C: float32[n], the other C: float32[n]
  help     give each tensor a name of its own
"""


def rows(sentence: str, page: str) -> dict[str, str]:
    """Return what one sentence refuses: each line of a page has a call, and what stands in the sentence."""
    lines = (line.split(" | ") for line in page.strip().splitlines())
    return {call: sentence.format(*said) for call, *said in lines}


# A promise is an affine relation between sizes.
PROMISES = rows(
    """\
assume: cannot promise {0}
  because  {1}
  help     assume(n <= m)""",
    r"""
assume(n * m <= 4096) | m*n <= 4096 | isl decides quasi-affine facts only: no product of two sizes
assume(sympy.Symbol('z') <= 4) | z <= 4 | a fact is about sizes made by dim
assume(n >= m * 2 ** 62) | n >= 4611686018427387904*m | a call checks it in int64: factors are at most 2**31
assume(n < 2.5) | n < 2.5 | a fact is of ints and of sizes: isl decides those alone
assume(n <= -1) | False | no values of the sizes meet it, by what each of them is bounded by
assume(sympy.Ne(n, m)) | Ne(n, m) | a call checks <=, <, >=, > and ==
assume(n == m) | False | it is False: sympy compares with == by structure; use sympy.Eq(a, b), or n % 8 == 0
assume('n <= m') | n <= m | it is of type str, and no relation of sizes made by dim
""",
)
# An expression is made of equal element types.
OPERANDS = rows(
    """\
compute: cannot take {0}
  at       {1}
  because  arithmetic is between equal element types
  help     cast(x, "float32") converts, explicitly""",
    r"""
row(lambda i: (i < n) + (i < m)) | bool + bool | i < n
row(lambda i: A[i, 0] * n) | float32 * a size | A[i, 0]
row(lambda i: F[i] * 1.5) | int32 * float | F[i]
row(lambda i: A[i, 0] + F[i]) | float32 + int32 F[i] | A[i, 0]
row(lambda i: A[i + 'x', 0]) | index + str | i
""",
)
# A name is one of Python.
NAMES = rows(
    """\
{0}: cannot take the name {1}
  because  names are ASCII identifiers""",
    r"""
oc.reduce_axis(5, '2') | reduce_axis | '2'
oc.placeholder((n,), name='my tensor') | placeholder | 'my tensor'
row(lambda i: A[i, 0], name='') | compute | ''
block(lambda *ix: A[ix], axes=('1', 'j')) | compute | '1'
""",
)
# A literal is a value of its element type.
LITERALS = rows(
    """\
compute: cannot take {0} as {1}
  because  {1} holds {2}
  help     {3}""",
    r"""
oc.cast(-1, 'uint64') | -1 | uint64 | 0…18446744073709551615 | a number within these
row(lambda i: A[i, 0] * 1e+39) | 1e+39 | float32 | -3.4028234663852886e+38…3.4028234663852886e+38 | cast(x, "float64") widens, explicitly
oc.cast(10 ** 400, 'int64') | a scalar of 401 digits | int64 | -9223372036854775808…9223372036854775807 | a number within these
oc.cast(math.nan, 'int32') | nan | int32 | -2147483648…2147483647 | a number within these
row(lambda i: oc.where(G[i] < 128, A[i, 0], 0.0)) | 128 | int8 | -128…127 | cast(x, "int64") widens, explicitly
""",
)
IN_ROWS = PROMISES | OPERANDS | NAMES | LITERALS


@pytest.mark.parametrize(
    "facts",
    [
        {"min": 9, "max": 8},
        {"min": 9, "max": 15, "multiple_of": 8},
        {"min": -1},
        {"max": 2**31},
        {"multiple_of": 0},
    ],
    ids=str,
)
def test_facts_that_leave_a_size_no_value_are_refused(facts: dict[str, int]) -> None:
    low, high, by = ({"min": 0, "max": 2**31 - 1, "multiple_of": 1} | facts).values()
    refused(
        lambda: dim("n", **facts),
        f"""\
dim: no size can be in {low}…{high} and a multiple of {by}
  at       size n
  because  0 <= min <= max <= 2147483647 and multiple_of >= 1 leave no value
  help     dim("n", min=1, max=4096, multiple_of=8)""",
    )


REFUSED = refusals("\n".join((SIZES, SHAPES, VALUES, REDUCTIONS, TENSORS, PROGRAMS)), globals())


@pytest.mark.parametrize(("describe", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_description_is_refused_word_for_word(
    describe: Callable[[], Any], text: str
) -> None:
    refused(describe, text)


@pytest.mark.parametrize("call", IN_ROWS)
def test_what_one_sentence_refuses_is_refused(call: str) -> None:
    refused(lambda: eval(call, globals()), IN_ROWS[call])


def test_an_integer_that_rounds_to_a_finite_float_is_a_literal() -> None:
    for value in (2**1023, 1 - 2**1023):
        assert str(oc.cast(value, "float64")) == repr(float(value))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_literal_rounds_but_not_to_infinity(dtype: str) -> None:
    most = float(ml_dtypes.finfo(dtype).max)
    for held in (most, -most, math.inf, math.nan, 1e-60):
        oc.cast(held, dtype)
    refused(
        lambda: oc.cast(2 * most, dtype),
        f"compute: cannot take {2 * most} as {dtype}\n"
        f"  because  {dtype} holds {-most}…{most}\n"
        '  help     cast(x, "float64") widens, explicitly',
    )


def test_what_lies_beside_each_refusal_is_accepted() -> None:
    dim("n", min=8, max=15, multiple_of=8)
    dim("n", max=2**31 - 1)
    with assume(sympy.Eq(n, m), n % 8 == 0, n // 4 <= 2 * m + 1):
        pass
    oc.placeholder((2 * n + 1, n // 4, n % 4, 0))
    oc.placeholder([])
    row(lambda i: A[i, m - 1 - i])
    row(lambda i: oc.where((i < m) & ~(i >= 3), A[i, i], 0.0))
    row(lambda i: oc.cast(F[i], "float32") * 1.5)
    row(lambda i: A[i, 0] * oc.cast(n, "float32"))
    row(lambda i: A[i // 2 % 3, 0] / 2)
    row(lambda i: oc.cast(i, "float32"))
    row(lambda i: (G[i] + 127) % np.int64(-128 + 255) // 2)
    row(lambda i: oc.cast(G[i], "int64") + (2**63 - 1))
    row(lambda i: A[oc.index(F[i]), oc.index(i)] + A[oc.index(n) - 1, oc.index(np.int8(3))])
    row(lambda i: oc.log(H[i]))
    row(lambda i: abs(H[i]) + 10**300 + math.inf + oc.cast(math.nan, "float64"))
    dim("output")
    dim("self")
    with assume(n <= m * 2**31):
        pass
    block(lambda *ix: A[ix], axes=("i", "j"))
    assert oc.compute((), lambda: oc.sum(F[k], axis=k)).dtype == "int32"
    row(lambda i: oc.sum(A[i, k], axis=k) / oc.max(A[i, k], axis=k))
    computation([row(lambda i: A[i, 0])], inputs=[A, F])


def test_an_unused_promise_ends_with_its_block() -> None:
    x = dim("x", max=64)
    C = oc.compute((x,), lambda i: oc.cast(i, "float32"))
    with assume(x % 8 == 0):
        assert len(computation([C]).assumptions) == 1
    assert computation([C]).assumptions == ()


def test_a_promise_may_be_made_twice_and_ends_each_time() -> None:
    x = dim("x", max=64)
    C = oc.compute((x,), lambda i: oc.cast(i, "float32"))
    s = assume(x % 8 == 0)
    with s:
        pass
    with s:
        pass
    assert computation([C]).assumptions == ()


def test_an_expression_so_deep_that_no_text_holds_it_is_refused() -> None:
    def total(count: int) -> oc.Tensor:
        return row(lambda i: reduce(add, [H[i]] * count))

    assert total(200).definition is not None
    refused(
        lambda: total(5000),
        """\
compute: cannot take an expression so deep
  because  more than 200 operations are nested
  help     a tensor for each part: T = compute(shape, …)
  help     sum(…, axis=k) of many terms""",
    )


@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_a_reduction_says_its_axis(op: str) -> None:
    refused(
        lambda: getattr(oc, op)(A),
        f"{op}: cannot reduce over no axis\n"
        "  because  a reduction says which axes of an expression it is over\n"
        f'  help     k = reduce_axis(768, name="k"); {op}(A[i, k], axis=k)\n'
        f"  help     ops.{op}(A) reduces a tensor",
    )


@pytest.mark.parametrize(
    ("name", "help"), [("T", "ops.transpose(A)"), ("ndim", "len(A.shape)"), ("sum", "ops.sum(A)")]
)
def test_what_an_array_has_and_a_tensor_has_not_is_named(name: str, help: str) -> None:
    refused(
        lambda: getattr(A, name),
        f"compute: cannot take A.{name}\n"
        f"  at       {A.tensor_text}\n"
        "  because  A is a tensor, which has a name, a shape and a dtype\n"
        f"  help     {help}",
    )
    assert not hasattr(A, name)
    assert bool(A)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        A.nothing  # noqa: B018
    refused(
        lambda: len(A),
        "compute: cannot take len(A)\n"
        f"  at       {A.tensor_text}\n"
        "  because  A is a tensor, and expressions are about one element at a time\n"
        "  help     A.shape[0]",
    )


@pytest.mark.parametrize(
    ("ask", "relation"),
    [
        (lambda: assume(1 <= n <= 9), "n >= 1"),
        (lambda: assume(n <= 9 <= 10), "n <= 9"),
        (lambda: min(n, 3), "n > 3"),
        (lambda: max(n, 3), "n < 3"),
    ],
    ids=shown,
)
def test_a_relation_of_sizes_is_not_asked_whether_it_holds(
    ask: Callable[[], Any], relation: str
) -> None:
    refused(
        ask,
        f"dim: cannot decide {relation}\n"
        "  because  a size is known only when the kernel runs, and a chain a <= n <= b asks for the first part alone\n"
        "  help     assume(a <= n, n <= b)\n"
        '  help     where(cast(n, "int64") > 3, a, b) of elements, in place of if\n'
        '  help     maximum(cast(n, "int64"), 3), minimum, in place of Python\'s max and min',
    )


_UNCOUNTED = """\
dim: cannot count to n in Python
  because  a size is known only when the kernel runs
  help     reduce_axis(n) and the axes of compute, in place of range
  help     placeholder((n,)) stands for an array of any such size"""
_UNNUMBERED = """\
dim: cannot make a Python {0} of n
  because  a size is known only when the kernel runs
  help     cast(n, "{0}64") is its value as an element
  help     n.min, n.max"""


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda: range(n), _UNCOUNTED),  # type: ignore[arg-type]
        (lambda: np.zeros((n, 3)), _UNCOUNTED),
        (lambda: [0] * n, _UNCOUNTED),
        (lambda: int(n), _UNNUMBERED.format("int")),
        (lambda: float(n), _UNNUMBERED.format("float")),
    ],
    ids=["range", "zeros", "times", "int", "float"],
)
def test_a_size_is_no_number_of_python(ask: Callable[[], Any], text: str) -> None:
    refused(ask, text)


def test_a_relation_of_sizes_stays_one_of_sympy() -> None:
    one = n < 9
    assert isinstance(one, sympy.Lt)
    assert ~one == sympy.Ge(n, 9)
    assert one.subs(n, 3) == sympy.true
    assert sympy.Max(n, 9) == sympy.Max(9, n)
    with assume(one, n >= 3):
        pass
