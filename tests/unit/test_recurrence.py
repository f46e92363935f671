"""Programs in place over time: how they read, and what they mean."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut import Tensor
from offcut.describe import recurrence as module
from offcut.ir import Kind
from tests.agree import agree, computed

n, m, steps = oc.dim("n", max=64), oc.dim("m", max=64), oc.dim("steps", max=9)
A, B = oc.placeholder((n, m), "float64", "A"), oc.placeholder((n, m), "float64", "B")
x, y = oc.placeholder((n,), "float64", "x"), oc.placeholder((n,), "float64", "y")
k = oc.reduce_axis(m, "k")
EDGES = [0, 1, 2, 5, 13]


def once(tensor: Tensor, *args: Any, **rest: Any) -> oc.Program:
    return oc.recurrence(1, lambda t: oc.update(tensor, *args, **rest), name="once")


def body(program: oc.Program) -> str:
    """The statements inside the steps, without the declarations."""
    assert oc.parse(str(program)) == program
    text = str(program)
    lines = text[text.index("\nfor ") + 1 :].splitlines()[1:]
    return "\n".join(line.removeprefix("  ") for line in lines)


def test_the_examples_of_the_page_run() -> None:
    assert doctest.testmod(module).attempted
    assert not doctest.testmod(module).failed


def test_what_is_updated_is_in_place_and_the_rest_is_input() -> None:
    program = oc.recurrence(
        steps, lambda t: [oc.update(y, lambda i: A[i, 0]), oc.update(x, lambda i: y[i] + B[i, 0])]
    )
    kinds = {buffer.name: buffer.kind for buffer in program.buffers}
    assert list(kinds.items()) == [
        ("y", Kind.INOUT),
        ("A", Kind.INPUT),
        ("x", Kind.INOUT),
        ("B", Kind.INPUT),
    ]
    assert [buffer.name for buffer in program.results] == ["y", "x"]


WHOLE = oc.placeholder((n,), "int8", "W")


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (once(x, lambda i: 1), "for i in 0:n\n  x[i] = 1.0"),
        (once(WHOLE, lambda i: -3), "for i in 0:n\n  W[i] = -3"),
        (
            once(x, lambda i: oc.sum(A[i, k], axis=k)),
            "for i in 0:n\n  x[i] = 0.0\n  for k in 0:m\n    x[i] += A[i, k]",
        ),
        (
            once(A, lambda *at: B[at], axes=("r", "c")),
            "for r in 0:n\n  for c in 0:m\n    A[r, c] = B[r, c]",
        ),
        (once(x, lambda r: x[n - 1 - r] + 1.0), "for r in 0:n\n  x[r] = x[n - r - 1] + 1.0"),
    ],
)
def test_an_update_is_loops_over_the_tensor(program: oc.Program, text: str) -> None:
    assert body(program) == text
    with oc.assume(n <= m):
        assert "assume n <= m" in str(once(A, lambda i, j: 0.0))


def test_a_tensor_without_axes_is_updated_too() -> None:
    total = oc.placeholder((), "float64", "total")
    program = oc.recurrence(n, lambda t: oc.update(total, lambda: total[()] + x[t]))
    assert body(program) == "total[] = total[] + x[t]"
    assert program.run({"total": np.float64(1), "x": np.arange(5.0)}) == 11


def test_a_sum_that_reads_the_tensor_sees_what_was_written_before() -> None:
    r = oc.reduce_axis(n, "r")
    program = once(x, lambda i: oc.sum(x[r], axis=r))
    expected = np.array([6.0, 11.0, 20.0])  # 1+2+3, 6+2+3, 6+11+3
    np.testing.assert_array_equal(program.run({"x": np.array([1.0, 2.0, 3.0])}), expected)


@pytest.mark.parametrize(
    ("value", "loops"),
    [
        (
            lambda i, r: oc.where(r < i, A[i, r], 0.0),
            "x[i] = 0.0\nfor r in 0:min(m, i)\n  x[i] += A[i, r]",
        ),
        (
            lambda i, r: oc.where((r > i) & (r % 2 == 0), A[i, r], 0.0),
            "x[i] = 0.0\nfor r in i + 1:m\n  if r % 2 == 0\n    x[i] += A[i, r]",
        ),
        (
            lambda i, r: oc.where((r <= i) & (A[i, r] > 0.0), A[i, r], 0.0),
            "x[i] = 0.0\nfor r in 0:min(m, i + 1)\n  x[i] += where(A[i, r] > 0.0, A[i, r], 0.0)",
        ),
        (
            lambda i, r: oc.where(i > 3, oc.where(r >= 2, A[i, r], 0.0), 0.0),
            "x[i] = 0.0\nif i > 3\n  for r in 2:m\n    x[i] += A[i, r]",
        ),
        (
            lambda i, r: oc.where(r < i, A[i, r], 1.0),
            "x[i] = 0.0\nfor r in 0:m\n  x[i] += where(r < i, A[i, r], 1.0)",
        ),
    ],
)
def test_a_sum_runs_only_where_its_terms_are(value: Any, loops: str) -> None:
    r = oc.reduce_axis(m, "r")
    program = once(x, lambda i: oc.sum(value(i, r), axis=r))
    expected = "for i in 0:n\n" + "\n".join("  " + line for line in loops.splitlines())
    assert body(program) == expected


def test_a_condition_on_elements_is_decided_when_it_is_met() -> None:
    program = oc.recurrence(
        steps, lambda t: oc.update(x, lambda i: x[i] - 1.0, where=lambda i: x[i] > 0.0)
    )
    given = np.array([3.0, 1.0, 0.0])
    np.testing.assert_array_equal(program.run({"x": given}, steps=2), [1, 0, 0])
    np.testing.assert_array_equal(given, [3, 1, 0])  # inputs stay as they are


def test_names_of_the_loop_syntax_and_of_sizes_are_kept_apart() -> None:
    i = oc.dim("i", max=9)
    tensor = oc.placeholder((i, i), "float64", "for")
    program = oc.recurrence(i, lambda where: oc.update(tensor, lambda i, let: tensor[i, let] + 1.0))
    assert body(program) == (
        "for i_ in 0:i\n  for let_ in 0:i\n    for_[i_, let_] = for_[i_, let_] + 1.0"
    )
    assert (program.run({"for_": np.zeros((2, 2))}) == 2).all()


def test_triangles_are_solved() -> None:
    L, r = oc.placeholder((n, n), "float64", "L"), oc.reduce_axis(n, "r")
    rows = oc.recurrence(
        1,
        lambda t: oc.update(
            x,
            lambda i: (x[i] - oc.sum(oc.where(r < i, L[i, r] * x[r], 0.0), axis=r)) / L[i, i],
        ),
        name="trisolv",
    )
    assert "for r in 0:i\n" in str(rows)
    random = np.random.default_rng(7)
    for size in EDGES:
        lower = np.tril(random.uniform(-1, 1, (size, size))) + 3 * np.eye(size)
        right = random.uniform(-1, 1, size)
        found = rows.run({"L": lower, "x": right})
        agree(found, computed(np.linalg.solve, lower, right))


def test_a_compiled_recurrence_takes_arrays_by_name() -> None:
    kernel = oc.compile(
        oc.recurrence(
            steps,
            lambda t: [oc.update(y, lambda i: y[i] - x[i]), oc.update(x, lambda i: x[i] * 2.0)],
        ),
        target="interpret",
    )
    first, second = np.arange(5.0), np.full(5, 7.0)
    expected = kernel(first, second, steps=2)
    assert [each.name for each in kernel.signature.inputs] == ["y", "x"]
    for results in (
        kernel(x=second, y=first, steps=2),
        kernel(first, x=second, steps=2),
    ):
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, value)
