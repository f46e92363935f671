"""Every refusal of a recurrence, word for word, beside what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import offcut as oc
from offcut import Tensor
from offcut.errors import DescribeError

n, m = oc.dim("n", max=64), oc.dim("m", max=64)
A = oc.placeholder((n, m), "float64", "A")
x = oc.placeholder((n,), "float64", "x")
W = oc.placeholder((n,), "int8", "W")
k = oc.reduce_axis(m, "k")
# What is refused is of the wrong type, often.
update: Any = oc.update
recurrence: Any = oc.recurrence
C = oc.compute((n,), lambda i: x[i] * 2.0, "C")


def once(tensor: Tensor, *args: Any, **rest: Any) -> oc.Program:
    return oc.recurrence(1, lambda t: oc.update(tensor, *args, **rest))


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: update(C, lambda i: x[i]),
        (
            "update: cannot write C: float64[n]\n"
            "  because  it is computed already\n"
            '  help     B = placeholder((n,), name="B"); update(B, lambda i: B[i] + 1.0)'
        ),
    ),
    (
        lambda: update("x", lambda i: x[i]),
        (
            "update: cannot write 'x'\n"
            "  because  it is not a tensor\n"
            '  help     B = placeholder((n,), name="B"); update(B, lambda i: B[i] + 1.0)'
        ),
    ),
    (
        lambda: update(x, 3),
        (
            "update: cannot update with 3\n"
            "  at       tensor x\n"
            "  because  it is not a function of the axes\n"
            "  help     update(x, lambda i: A[i] + 1.0)"
        ),
    ),
    (
        lambda: update(x, lambda i, j: A[i, j]),
        (
            "update: cannot give 1 axes the names i, j\n"
            "  at       tensor x\n"
            "  because  the shape has 1 extents and the function 2 parameters"
        ),
    ),
    (
        lambda: update(A, lambda *at: x[at[0]]),
        (
            "update: cannot name the axes\n"
            "  at       tensor A\n"
            "  because  the function's parameters are not all plain names\n"
            '  help     axes=("i", "j")'
        ),
    ),
    (
        lambda: update(A, lambda i, j: x[i], axes=("i", "i")),
        ("update: cannot name axes ('i', 'i')\n  at       tensor A\n  because  a name is repeated"),
    ),
    (
        lambda: update(A, lambda i, j: x[i], axes=3),
        (
            "update: cannot take axes=3\n"
            "  at       tensor A\n"
            "  because  axes are a tuple of names\n"
            '  help     axes=("i", "j")'
        ),
    ),
    (
        lambda: update(A, lambda i, j: x[i], axes=("i", "2j")),
        ("update: cannot take the name '2j'\n  because  names are ASCII identifiers"),
    ),
    (
        lambda: update(x, lambda i: None),
        (
            "update: cannot store None\n"
            "  at       tensor x\n"
            "  because  the function gives no expression"
        ),
    ),
    (
        lambda: update(x, lambda i: i),
        (
            "update: cannot store i of type index\n"
            "  at       tensor x\n"
            "  because  its elements are float64\n"
            '  help     cast(x, "float64") converts, explicitly'
        ),
    ),
    (
        lambda: update(x, lambda i: x[i] > 0.0),
        (
            "update: cannot store x[i] > 0.0 of type bool\n"
            "  at       tensor x\n"
            "  because  its elements are float64\n"
            "  help     where(condition, a, b)"
        ),
    ),
    (
        lambda: update(x, lambda i: W[i]),
        (
            "update: cannot store W[i] of type int8\n"
            "  at       tensor x\n"
            "  because  its elements are float64\n"
            '  help     cast(x, "float64") converts, explicitly'
        ),
    ),
    (
        lambda: update(W, lambda i: 0.5),
        ("update: cannot store 0.5\n  at       tensor W\n  because  its elements are int8"),
    ),
    (
        lambda: update(W, lambda i: 300),
        ("update: cannot store 300\n  at       tensor W\n  because  its elements are int8"),
    ),
    (
        lambda: update(x, lambda i: x[i], where=lambda i, j: i < j),
        (
            "update: cannot restrict it by a function of i, j\n"
            "  at       tensor x\n"
            "  because  the tensor has 1 axes: missing a required argument: 'j'\n"
            "  help     where=lambda i: (i >= 1) & (i < n - 1)"
        ),
    ),
    (
        lambda: update(x, lambda i: x[i], where="i > 0"),
        (
            "update: cannot restrict it by 'i > 0'\n"
            "  at       tensor x\n"
            "  because  it is not a function of the axes\n"
            "  help     where=lambda i: (i >= 1) & (i < n - 1)"
        ),
    ),
    (
        lambda: update(x, lambda i: x[i], where=lambda i: i),
        (
            "update: cannot restrict it to where i\n"
            "  at       tensor x\n"
            "  because  it is not a comparison of axes, sizes or elements\n"
            "  help     where=lambda i: (i >= 1) & (i < n - 1)"
        ),
    ),
    (
        lambda: update(x, lambda i: x[i], where=lambda i: oc.sum(A[i, k], axis=k) > 0.0),
        (
            "update: cannot restrict it to where sum(A[i, k], k) > 0.0\n"
            "  at       tensor x\n"
            "  because  a condition does not reduce\n"
            "  help     compute the reduction by an update before, and read it"
        ),
    ),
    (
        lambda: update(x, lambda i: oc.sum(A[i, k] * oc.max(A[i, k], axis=k), axis=k)),
        (
            "update: cannot reduce inside a reduction: sum(A[i, k] * max(A[i, k], k), k)\n"
            "  at       tensor x\n"
            "  because  each reduction is a value of its own\n"
            "  help     compute the inner one by an update before, and read it"
        ),
    ),
    (
        lambda: update(
            x, lambda k: oc.sum(A[k, oc.reduce_axis(m, "k")], axis=oc.reduce_axis(m, "k"))
        ),
        (
            "update: cannot tell two axes named k apart\n"
            "  at       tensor x\n"
            "  because  one has n values, the other m"
        ),
    ),
    (
        lambda: update(
            A, lambda i, k: oc.sum(A[i, oc.reduce_axis(m, "k")], axis=oc.reduce_axis(m, "k"))
        ),
        (
            "update: cannot use k as an axis and as a reduction axis\n"
            "  at       tensor A\n"
            "  because  an axis is known by its name\n"
            '  help     reduce_axis(extent, name="r")'
        ),
    ),
    (
        lambda: once(x, lambda i: A[i, k]),
        (
            "update: cannot use the axis k here\n"
            "  at       tensor x\n"
            "  because  it is neither an axis of the tensor, nor the steps, nor reduced by this sum, max or min\n"
            "  help     sum(…, axis=k)"
        ),
    ),
    (
        lambda: once(x, lambda i: A[i, k] + oc.sum(A[i, k], axis=k)),
        (
            "update: cannot use the axis k here\n"
            "  at       tensor x\n"
            "  because  it is neither an axis of the tensor, nor the steps, nor reduced by this sum, max or min\n"
            "  help     sum(…, axis=k)"
        ),
    ),
    (
        lambda: once(x, lambda t: x[t]),
        ("update: cannot use t as an axis\n  at       tensor x\n  because  it names the steps"),
    ),
    (
        lambda: once(A, lambda i, j: 0.0, where=lambda i, j: k < i),
        (
            "update: cannot use the axis k here\n"
            "  at       tensor A\n"
            "  because  it is neither an axis of the tensor, nor the steps, nor reduced by this sum, max or min\n"
            "  help     sum(…, axis=k)"
        ),
    ),
    (
        lambda: once(x, lambda i: C[i]),
        (
            "update: cannot read C\n"
            "  at       tensor x\n"
            "  because  it is computed, and an update reads placeholders\n"
            "  help     update(C, …) of a placeholder in the same step"
        ),
    ),
    (
        lambda: once(x, lambda i: oc.placeholder((m,), name="x")[i].astype("float64")),
        (
            "recurrence: cannot tell two tensors named x apart\n"
            "  because  one is x: float64[n], the other x: float32[m]\n"
            "  help     give each tensor a name of its own"
        ),
    ),
    (
        lambda: recurrence(-1, lambda t: oc.update(x, lambda i: x[i])),
        ("recurrence: cannot run -1 steps\n  because  a number of steps is at least 0"),
    ),
    (
        lambda: recurrence(0.5, lambda t: oc.update(x, lambda i: x[i])),
        (
            "recurrence: cannot take the size 0.5\n"
            "  because  a size is an int or an expression in sizes made by dim\n"
            '  help     n = dim("n"); (n, 768)'
        ),
    ),
    (
        lambda: recurrence(n * m, lambda t: oc.update(x, lambda i: x[i])),
        (
            "recurrence: cannot take the size m*n\n"
            "  because  isl decides quasi-affine sizes only: no product of two sizes, no division but // and % by a positive int\n"
            "  help     2*n + 1, n//4 and n % 4 are accepted"
        ),
    ),
    (
        lambda: recurrence(n, oc.update(x, lambda i: x[i])),
        (
            "recurrence: cannot run an update of x in each step\n"
            "  because  it is not a function of the step\n"
            "  help     recurrence(steps, lambda t: [update(B, lambda i: B[i] + 1.0)])"
        ),
    ),
    (
        lambda: recurrence(n, lambda *t: oc.update(x, lambda i: x[i])),
        (
            "recurrence: cannot run a function of *t in each step\n"
            "  because  its one parameter names the steps\n"
            "  help     recurrence(steps, lambda t: [update(B, lambda i: B[i] + 1.0)])"
        ),
    ),
    (
        lambda: recurrence(n, lambda: update(x, lambda i: x[i])),
        (
            "recurrence: cannot run a function of nothing in each step\n"
            "  because  its one parameter names the steps\n"
            "  help     recurrence(steps, lambda t: [update(B, lambda i: B[i] + 1.0)])"
        ),
    ),
    (
        lambda: recurrence(n, lambda t, u: oc.update(x, lambda i: x[i])),
        (
            "recurrence: cannot run a function of t, u in each step\n"
            "  because  its one parameter names the steps\n"
            "  help     recurrence(steps, lambda t: [update(B, lambda i: B[i] + 1.0)])"
        ),
    ),
    (
        lambda: recurrence(n, lambda t: []),
        (
            "recurrence: cannot run [] in each step\n"
            "  because  a step is an update or a list of updates, at least one\n"
            "  help     lambda t: [update(B, lambda i: A[i]), update(A, lambda i: B[i])]"
        ),
    ),
    (
        lambda: recurrence(n, lambda t: None),
        (
            "recurrence: cannot run None in each step\n"
            "  because  a step is an update or a list of updates, at least one\n"
            "  help     lambda t: [update(B, lambda i: A[i]), update(A, lambda i: B[i])]"
        ),
    ),
    (
        lambda: recurrence(n, lambda t: [x]),
        (
            "recurrence: cannot run [x: float64[n]] in each step\n"
            "  because  a step is an update or a list of updates, at least one\n"
            "  help     lambda t: [update(B, lambda i: A[i]), update(A, lambda i: B[i])]"
        ),
    ),
    (
        lambda: recurrence(n, lambda t: oc.update(x, lambda i: x[i]), name="2 x"),
        ("recurrence: cannot take the name '2 x'\n  because  names are ASCII identifiers"),
    ),
    (
        lambda: recurrence(oc.dim("n", max=3), lambda t: oc.update(x, lambda i: x[i])),
        (
            "compute: cannot tell two sizes named n apart\n"
            "  at       tensor x\n"
            "  because  one is 0…3, the other 0…64\n"
            "  help     make the size once, and use it in every shape"
        ),
    ),
]


@pytest.mark.parametrize(
    ("describe", "text"), REFUSED, ids=lambda v: v.partition("\n")[0] if isinstance(v, str) else ""
)
def test_what_means_nothing_is_refused(describe: Callable[[], Any], text: str) -> None:
    with pytest.raises(DescribeError) as error:
        describe()
    assert str(error.value) == text


def test_what_is_beside_it_is_accepted() -> None:
    assert once(x, lambda i: A[i, 0])
    assert once(x, lambda i: oc.sum(A[i, k], axis=k), where=lambda i: i > 0)
    assert once(x, lambda i: oc.cast(W[i], "float64"))
    assert once(W, lambda i: 127)
    assert once(A, lambda *at: x[at[0]], axes=("i", "j"), where=lambda *at: at[0] > at[1])
    assert oc.recurrence(0, lambda t: oc.update(x, lambda i: x[i]), name="none")
    assert oc.recurrence(2 * n + m, lambda t: (oc.update(x, lambda i: x[i]),))
