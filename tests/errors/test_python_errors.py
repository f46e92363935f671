"""What Python and numpy offer for numbers and arrays, on what is described: each refusal, word for word."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import Tensor
from offcut.core.text.printer import format_expr

n, m = oc.dim("n", max=64), oc.dim("m", max=64)
A = oc.placeholder((n, m), name="A")
B = oc.placeholder((m, n), name="B")
x = oc.placeholder((n,), name="x")
y = oc.placeholder((m,), name="y")
F = oc.placeholder((n,), "int32", "F")
s = oc.placeholder((), name="s")


def row(fn: Callable[..., Any]) -> Tensor:
    """A tensor of n elements."""
    return oc.compute((n,), fn)


def block(fn: Callable[..., Any]) -> Tensor:
    """A tensor of n times m elements."""
    return oc.compute((n, m), fn)


def decided(condition: str) -> str:
    return (
        f"compute: cannot decide {condition} while describing\n"
        "  because  its value is known only when the kernel runs\n"
        "  help     where(condition, a, b) chooses by element, in place of if\n"
        "  help     maximum(a, b), minimum(a, b), in place of Python's max and min\n"
        "  help     (0 <= i) & (i < n), a | b, ~a, in place of 0 <= i < n, and, or, not"
    )


def whole(written: str, help: str, tensor: str = "A[n, m]") -> str:
    return (
        f"compute: cannot take {written}\n"
        f"  at       tensor {tensor}\n"
        f"  because  {tensor[0]} is a tensor, and expressions are about one element at a time\n"
        f"  help     {help}"
    )


def of_numpy(call: str, first: str, help: str = "") -> str:
    others = (
        "offcut's exp, log, log1p, tanh, erf, sqrt, sin, cos, floor, ceil, round, absolute, atan2, maximum,"
        " minimum, where"
    )
    return (
        f"compute: cannot take numpy.{call}\n"
        f"  because  {first} is one element, and no array\n"
        f"  help     {help or others}"
    )


def number(kind: str, dtype: str) -> str:
    return (
        f"compute: cannot make a Python {kind} of x[i]\n"
        "  because  its value is known only when the kernel runs\n"
        f'  help     cast(x[i], "{dtype}") converts an element\n'
        "  help     offcut's exp, log, log1p, tanh, erf, sqrt, sin, cos, atan2, in place of those of math"
    )


def rounding(name: str) -> str:
    return (
        f"compute: cannot take {name} of x[i]\n"
        "  because  Python's is of numbers\n"
        '  help     cast(x[i], "int32") drops what follows the point\n'
        "  help     offcut's round, floor, ceil give floats"
    )


def power(written: str, help: str) -> str:
    return f"compute: cannot take {written}\n  because  a power is written as a function\n  help     {help}"


def an_array(written: str) -> str:
    return (
        f"compute: cannot take {written}\n"
        "  because  an expression is about one element at a time\n"
        "  help     placeholder(…) stands for an array, and constants= of compile says what it holds"
    )


THREE = np.ones(3, np.float32)
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: block(lambda i, j: np.exp(A[0, 0])),
        of_numpy("exp(A[0, 0])", "A[0, 0]", "offcut.exp(A[0, 0])"),
    ),
    (
        lambda: block(lambda i, j: np.maximum(A[i, j], 0)),
        of_numpy("maximum(A[i, j], 0)", "A[i, j]", "offcut.maximum(A[i, j], 0)"),
    ),
    (
        lambda: block(lambda i, j: np.where(A[i, j] > 0, A[i, j], 0.0)),
        of_numpy(
            "where(A[i, j] > 0.0, A[i, j], 0.0)",
            "A[i, j] > 0.0",
            "offcut.where(A[i, j] > 0.0, A[i, j], 0.0)",
        ),
    ),
    (lambda: row(lambda i: np.sum(x[i])), of_numpy("sum(x[i])", "x[i]")),
    (lambda: row(lambda i: np.asarray(x[i])), of_numpy("array(x[i])", "x[i]")),
    (lambda: row(lambda i: np.array([x[i], x[i]])[0]), of_numpy("array(x[i])", "x[i]")),
    (lambda: row(lambda i: np.add(x[i], 1.0, out=THREE)), of_numpy("add(x[i], 1.0)", "x[i]")),
    (lambda: row(lambda i: THREE * x[i]), an_array("x[i] * an array of shape (3,)")),
    (lambda: np.sqrt(A), whole("numpy.sqrt(A)", "compute((n, m), lambda i, j: sqrt(A[i, j]))")),
    (
        lambda: np.maximum(x, 0.0),
        whole("numpy.maximum(x, 0.0)", "compute((n,), lambda i: maximum(x[i], 0.0))", "x[n]"),
    ),
    (lambda: np.sum(A), whole("numpy.sum(A)", "A[i, j] is an element")),
    (lambda: A * 2, whole("A * 2", "compute((n, m), lambda i, j: A[i, j] * 2)")),
    (lambda: 2 * A, whole("2 * A", "compute((n, m), lambda i, j: 2 * A[i, j])")),
    (lambda: n * A, whole("n * A", "compute((n, m), lambda i, j: n * A[i, j])")),
    (lambda: A + y, whole("A + y", "compute((n, m), lambda i, j: A[i, j] + y[j])")),
    (lambda: y - A, whole("y - A", "compute((n, m), lambda i, j: y[j] - A[i, j])", "y[m]")),
    (lambda: A / s, whole("A / s", "compute((n, m), lambda i, j: A[i, j] / s[()])")),
    (lambda: -A, whole("-A", "compute((n, m), lambda i, j: -A[i, j])")),
    (lambda: abs(x), whole("absolute(x)", "compute((n,), lambda i: absolute(x[i]))", "x[n]")),
    (lambda: A // 2 % 3, whole("A // 2", "compute((n, m), lambda i, j: A[i, j] // 2)")),
    (lambda: F % 2, whole("F % 2", "compute((n,), lambda i: F[i] % 2)", "F[n]")),
    (lambda: A > 0, whole("A > 0", "where(A[i, j] > 0, a, b) chooses")),
    (lambda: A**2, whole("A ** 2", "compute((n, m), lambda i, j: A[i, j] * A[i, j])")),
    (lambda: A @ B, whole("A @ B", "ops.matmul(A, …)")),
    (lambda: THREE @ A, whole("an array of shape (3,) @ A", "ops.matmul(…, A)")),
    (
        lambda: A * THREE,
        whole(
            "A * an array of shape (3,)",
            "placeholder(…) stands for an array, and constants= of compile says what it holds",
        ),
    ),
    (lambda: float(A), whole("float(A)", "A[i, j] is an element")),
    (
        lambda: row(lambda i: x[i] + A),
        whole("A as an operand of +", "A[i, j] is an element"),
    ),
    (
        lambda: row(lambda i: A + x[i]),
        whole("A + x[i]", "compute((n, m), lambda i, j: A[i, j] + x[i])"),
    ),
    (lambda: row(lambda i: x[i] * s), whole("s as an operand of *", "s[()] is an element", "s[]")),
    (lambda: oc.exp(A), whole("A as an operand of exp", "A[i, j] is an element")),
    (lambda: oc.cast(A, "float64"), whole("A as an operand of cast", "A[i, j] is an element")),
    (
        lambda: oc.sum(A, axis=oc.reduce_axis(m)),
        whole("A as an operand of sum", "A[i, j] is an element"),
    ),
    (
        lambda: row(lambda i: oc.where(i > 0, x, x[i])),
        whole("x as an operand of where", "x[i] is an element", "x[n]"),
    ),
    (lambda: row(lambda i: x), whole("x as an element of C", "x[i] is an element", "x[n]")),
    (lambda: row(lambda i: max(x[i], 0.0)), decided("x[i] < 0.0")),
    (lambda: row(lambda i: min(x[i], x[0])), decided("x[0] < x[i]")),
    (lambda: row(lambda i: x[i] if x[i] > 0 else 0.0), decided("x[i] > 0.0")),
    (lambda: row(lambda i: x[i] if i == 0 else 0.0), decided("i == 0")),
    (lambda: row(lambda i: oc.where(i > 0 and i < 3, x[i], 0.0)), decided("i > 0")),
    (lambda: row(lambda i: oc.where(not i > 0, x[i], 0.0)), decided("i > 0")),
    (lambda: row(lambda i: oc.where(0 <= i < n, x[i], 0.0)), decided("i >= 0")),
    (lambda: row(lambda i: math.sqrt(x[i])), number("float", "float64")),
    (lambda: row(lambda i: int(x[i])), number("int", "int64")),
    (
        lambda: row(lambda i: complex(x[i])),
        "compute: cannot make a Python complex of x[i]\n  because  there are no complex elements",
    ),
    (lambda: row(lambda i: round(x[i])), rounding("round")),
    (lambda: row(lambda i: math.trunc(x[i])), rounding("trunc")),
    (lambda: row(lambda i: math.floor(x[i])), rounding("floor")),
    (lambda: row(lambda i: math.ceil(x[i])), rounding("ceil")),
    (
        lambda: row(lambda i: oc.sum(x[k] for k in range(i))),
        (
            "compute: cannot count or index with i in Python\n"
            "  because  its value is known only when the kernel runs\n"
            "  help     reduce_axis(n) in place of range, placeholder(…) in place of a list or an array"
        ),
    ),
    (lambda: block(lambda i, j: A[i, j] ** 2), power("A[i, j] ** 2", "power(A[i, j], 2)")),
    (lambda: row(lambda i: x[i] ** 0.5), power("x[i] ** 0.5", "power(x[i], 0.5)")),
    (lambda: row(lambda i: 2.0 ** x[i]), power("2.0 ** x[i]", "power(2.0, x[i])")),
    (
        lambda: row(lambda i: x[i] @ x[i]),
        (
            "compute: cannot take x[i] @ x[i]\n"
            "  because  x[i] is one element\n"
            "  help     sum(A[i, k] * B[k, j], axis=k) is a product of matrices"
        ),
    ),
    (
        lambda: list(A),
        (
            "compute: cannot iterate over A\n"
            "  at       tensor A[n, m]\n"
            "  because  its shape has sizes that are known only when the kernel runs\n"
            "  help     reduce_axis(n) is all of an axis"
        ),
    ),
    (
        lambda: row(lambda i: next(iter(x[i]))),
        "compute: cannot iterate over x[i]\n  because  it is one element",
    ),
    (
        lambda: block(lambda i, j: x[i][j]),
        (
            "compute: cannot index x[i]\n"
            "  because  it is one element\n"
            "  help     A[i, j] takes all indices at once"
        ),
    ),
]


@pytest.mark.parametrize(("describe", "text"), REFUSED, ids=[text[9:60] for _, text in REFUSED])
def test_what_a_description_cannot_do_says_what_to_write(
    describe: Callable[[], Any], text: str
) -> None:
    with rejection(f"DescribeError: {text}"):
        describe()


@pytest.mark.parametrize(
    ("describe", "body"),
    [
        (lambda: row(lambda i: abs(x[i])), "abs(x[i])"),
        (lambda: row(lambda i: np.float32(2) * x[i] - np.float32(1)), "2.0 * x[i] - 1.0"),
        (lambda: row(lambda i: oc.where(np.int64(2) > i, x[i], 0.0)), "where(i < 2, x[i], 0.0)"),
        (lambda: row(lambda i: x[n - 1 - i]), "x[$n - i - 1]"),
        (lambda: row(lambda i: sum(A[i, k] for k in range(2))), "0.0 + A[i, 0] + A[i, 1]"),
    ],
)
def test_what_has_one_meaning_works(describe: Callable[[], Tensor], body: str) -> None:
    found = describe().definition
    assert found is not None
    assert format_expr(found.body) == body


@pytest.mark.parametrize(
    "call", [oc.reduce_axis, oc.index, oc.Records], ids=lambda one: one.__name__
)
def test_an_array_for_a_number_or_a_file_is_refused_in_words(call):
    with pytest.raises(oc.OffcutError, match="cannot"):
        call(np.ones(3))
