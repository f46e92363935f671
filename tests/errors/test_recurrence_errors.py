"""Every refusal of a recurrence, word for word, beside what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import Tensor

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
    *refusals(
        """\
>>> update(C, lambda i: x[i])
update: cannot write C: float64[n]
  because  it is computed already
  help     B = placeholder((n,), name="B"); update(B, lambda i: B[i] + 1.0)

>>> update('x', lambda i: x[i])
update: cannot write 'x'
  because  it is not a tensor
  help     B = placeholder((n,), name="B"); update(B, lambda i: B[i] + 1.0)

>>> update(x, 3)
update: cannot update with 3
  at       tensor x
  because  it is not a function of the axes
  help     update(x, lambda i: A[i] + 1.0)

>>> update(x, lambda i, j: A[i, j])
update: cannot give 1 axes the names i, j
  at       tensor x
  because  the shape has 1 extents and the function 2 parameters

>>> update(A, lambda *at: x[at[0]])
update: cannot name the axes
  at       tensor A
  because  the function's parameters are not all plain names
  help     axes=("i", "j")

>>> update(A, lambda i, j: x[i], axes=('i', 'i'))
update: cannot name axes ('i', 'i')
  at       tensor A
  because  a name is repeated

>>> update(A, lambda i, j: x[i], axes=3)
update: cannot take axes=3
  at       tensor A
  because  axes are a tuple of names
  help     axes=("i", "j")

>>> update(x, lambda i: None)
update: cannot store None
  at       tensor x
  because  the function gives no expression

>>> update(x, lambda i: i)
update: cannot store i of type index
  at       tensor x
  because  its elements are float64
  help     cast(x, "float64") converts, explicitly

>>> update(x, lambda i: x[i] > 0.0)
update: cannot store x[i] > 0.0 of type bool
  at       tensor x
  because  its elements are float64
  help     where(condition, a, b)

>>> update(W, lambda i: 0.5)
update: cannot store 0.5
  at       tensor W
  because  its elements are int8

>>> update(x, lambda i: x[i], where=lambda i, j: i < j)
update: cannot restrict it by a function of i, j
  at       tensor x
  because  the tensor has 1 axes: missing a required argument: 'j'
  help     where=lambda i: (i >= 1) & (i < n - 1)

>>> update(x, lambda i: x[i], where='i > 0')
update: cannot restrict it by 'i > 0'
  at       tensor x
  because  it is not a function of the axes
  help     where=lambda i: (i >= 1) & (i < n - 1)

>>> update(x, lambda i: x[i], where=lambda i: i)
update: cannot restrict it to where i
  at       tensor x
  because  it is not a comparison of axes, sizes or elements
  help     where=lambda i: (i >= 1) & (i < n - 1)

>>> update(x, lambda i: x[i], where=lambda i: oc.sum(A[i, k], axis=k) > 0.0)
update: cannot restrict it to where sum(A[i, k], k) > 0.0
  at       tensor x
  because  a condition does not reduce
  help     compute the reduction by an update before, and read it

>>> update(x, lambda i: oc.sum(A[i, k] * oc.max(A[i, k], axis=k), axis=k))
update: cannot reduce inside a reduction: sum(A[i, k] * max(A[i, k], k), k)
  at       tensor x
  because  each reduction is a value of its own
  help     compute the inner one by an update before, and read it

>>> update(x, lambda k: oc.sum(A[k, oc.reduce_axis(m, 'k')], axis=oc.reduce_axis(m, 'k')))
update: cannot tell two axes named k apart
  at       tensor x
  because  one has n values, the other m

>>> update(A, lambda i, k: oc.sum(A[i, oc.reduce_axis(m, 'k')], axis=oc.reduce_axis(m, 'k')))
update: cannot use k as an axis and as a reduction axis
  at       tensor A
  because  an axis is known by its name
  help     reduce_axis(extent, name="r")

>>> once(x, lambda i: A[i, k])
update: cannot use the axis k here
  at       tensor x
  because  it is neither an axis of the tensor, nor the steps, nor reduced by this sum, max or min
  help     sum(…, axis=k)

>>> once(x, lambda t: x[t])
update: cannot use t as an axis
  at       tensor x
  because  it names the steps

>>> once(A, lambda i, j: 0.0, where=lambda i, j: k < i)
update: cannot use the axis k here
  at       tensor A
  because  it is neither an axis of the tensor, nor the steps, nor reduced by this sum, max or min
  help     sum(…, axis=k)

>>> once(x, lambda i: C[i])
update: cannot read C
  at       tensor x
  because  it is computed, and an update reads placeholders
  help     update(C, …) of a placeholder in the same step

>>> once(x, lambda i: oc.placeholder((m,), name='x')[i].astype('float64'))
recurrence: cannot tell two tensors named x apart
  because  one is x: float64[n], the other x: float32[m]
  help     give each tensor a name of its own

>>> recurrence(-1, lambda t: oc.update(x, lambda i: x[i]))
recurrence: cannot run -1 steps
  because  a number of steps is at least 0

>>> recurrence(0.5, lambda t: oc.update(x, lambda i: x[i]))
recurrence: cannot take the size 0.5
  because  a size is an int or an expression in sizes made by dim
  help     n = dim("n"); (n, 768)

>>> recurrence(n, lambda t: oc.update(x, lambda i: x[i]), name='2 x')
recurrence: cannot take the name '2 x'
  because  names are ASCII identifiers

>>> recurrence(n, oc.update(x, lambda i: x[i]))
recurrence: cannot run an update of x in each step
  because  it is not a function of the step
  help     recurrence(steps, lambda t: [update(B, lambda i: B[i] + 1.0)])

>>> recurrence(n, lambda t, u: oc.update(x, lambda i: x[i]))
recurrence: cannot run a function of t, u in each step
  because  its one parameter names the steps
  help     recurrence(steps, lambda t: [update(B, lambda i: B[i] + 1.0)])

>>> recurrence(n, lambda t: [])
recurrence: cannot run [] in each step
  because  a step is an update or a list of updates, at least one
  help     lambda t: [update(B, lambda i: A[i]), update(A, lambda i: B[i])]

>>> recurrence(oc.dim('n', max=3), lambda t: oc.update(x, lambda i: x[i]))
compute: cannot tell two sizes named n apart
  at       tensor x
  because  one is 0…3, the other 0…64
  help     make the size once, and use it in every shape
""",
        globals(),
    ).values()
]


@pytest.mark.parametrize(
    ("describe", "text"), REFUSED, ids=lambda v: v.partition("\n")[0] if isinstance(v, str) else ""
)
def test_what_means_nothing_is_refused(describe: Callable[[], Any], text: str) -> None:
    with rejection(f"DescribeError: {text}"):
        describe()


def test_what_is_beside_it_is_accepted() -> None:
    assert once(x, lambda i: A[i, 0])
    assert once(x, lambda i: oc.sum(A[i, k], axis=k), where=lambda i: i > 0)
    assert once(x, lambda i: oc.cast(W[i], "float64"))
    assert once(W, lambda i: 127)
    assert once(A, lambda *at: x[at[0]], axes=("i", "j"), where=lambda *at: at[0] > at[1])
    assert oc.recurrence(0, lambda t: oc.update(x, lambda i: x[i]), name="none")
    assert oc.recurrence(2 * n + m, lambda t: (oc.update(x, lambda i: x[i]),))
