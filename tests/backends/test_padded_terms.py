"""Terms that padding makes zero: a decision says which are left out, and the bits do not depend on it."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from tests.agree import agree
from tests.compiled import Array, floats

LINE = "separate Y.x_in 1"
pytestmark = pytest.mark.isa("avx512f")


def convolution(schedule: str | None = None) -> oc.Kernel:
    n = oc.dim("n", max=64)
    x, w = oc.placeholder((n, 12, 12, 32), name="X"), oc.placeholder((3, 3, 32, 64), name="W")
    y = oc.ops.conv2d(x, w, padding=1, layout="NHWC", name="Y")
    weights = {"W": floats("w", 3, 3, 32, 64)}
    chosen = None if schedule is None else oc.Schedule.parse(schedule)
    return oc.compile(y, inputs=[x, w], constants=weights, schedule=chosen)


def sums(x: Array) -> tuple[Array, Array]:
    """Return the result of the layer in float64, and the sums of the absolute terms."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    w = floats("w", 3, 3, 32, 64).astype(np.float64)
    total, magnitude = np.zeros((len(x), 12, 12, 64)), np.zeros((len(x), 12, 12, 64))
    for r in range(3):
        for s in range(3):
            window = padded[:, r : r + 12, s : s + 12]
            total += window @ w[r, s]
            magnitude += abs(window) @ abs(w[r, s])
    return total, magnitude


def test_the_schedule_says_which_terms_are_left_out() -> None:
    kernel, x = convolution(), floats("x", 3, 12, 12, 32)
    text, y = str(kernel.schedule), kernel(floats("x", 3, 12, 12, 32))
    total, magnitude = sums(x)
    agree(y, total, terms=magnitude)
    assert LINE in text.splitlines()
    again = convolution(text)
    assert (again.loops, again.schedule) == (kernel.loops, kernel.schedule)
    older = convolution(text.replace(LINE, ""))
    assert (older.loops, older.schedule) == (kernel.loops, kernel.schedule)
    conditions = str(kernel.loops).count(" where ")
    for edit in ("separate Y 1", "separate Y 0"):
        edited = convolution(text.replace(LINE, edit))
        assert edit in str(edited.schedule).splitlines()
        assert str(edited.loops).count(" where ") < conditions
        np.testing.assert_array_equal(edited(x), y)
    ends = [line for line in str(edited.loops).splitlines() if "for r in" in line]
    assert ends
    assert all("for r in 0:3" in line for line in ends)


REFUSED = {
    "a sum without padding": (
        "separate X_staged 1",
        """\
schedule: cannot leave out terms of X_staged that padding makes zero
  at       line 14: separate X_staged 1
  because  padding makes no terms of a sum of that name zero
  help     the schedule without this line""",
    ),
    "a loop without conditions": (
        "separate Y.o_in 1",
        """\
schedule: cannot leave out terms of Y.o_in that padding makes zero
  at       line 14: separate Y.o_in 1
  because  conditions on its terms are of the loops x_in
  help     separate Y.x_in 1
  help     separate Y 0""",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_line_about_no_such_terms_is_refused(what: str) -> None:
    line, message = REFUSED[what]
    text = str(convolution().schedule)
    with rejection(f"PartitionError: {message}"):
        convolution(text.replace(LINE, line))


def test_terms_are_left_out_or_stay() -> None:
    with pytest.raises(oc.ParseError, match="terms of a sum are left out, or stay"):
        oc.Schedule.parse("schedule Y\nseparate Y 2")


def depthwise(target: str = "cpu", **machine: str) -> oc.Kernel:
    """Return a convolution of each channel by itself, of images of any size."""
    n, h, w = oc.dim("n"), oc.dim("h", min=1), oc.dim("w", min=1)
    x, k = oc.placeholder((n, 5, h, w), name="X"), oc.placeholder((5, 1, 3, 3), name="W")
    y = oc.ops.conv2d(x, k, padding=1, groups=5, name="Y")
    weights = {"W": floats("w", 5, 1, 3, 3)}
    return oc.compile(y, inputs=[x, k], constants=weights, target=oc.target(target, **machine))


@pytest.mark.parametrize("machine", ["zen4", "cascade-lake"])
def test_a_sum_of_few_terms_runs_as_vectors_that_ask_nothing_of_lanes(machine: str) -> None:
    kernel = depthwise(machine=machine)
    assert "vectors" in str(kernel.schedule)
    assert "fma_" not in str(kernel.schedule)
    assert "if x " not in str(kernel.loops)


def test_a_convolution_of_each_channel_by_itself_is_right_at_the_edges() -> None:
    kernel, weights = depthwise(), floats("w", 5, 1, 3, 3).astype(np.float64)
    for n, h, w in [
        (0, 3, 3),
        (1, 1, 1),
        (2, 1, 17),
        (1, 2, 16),
        (3, 5, 15),
        (2, 7, 64),
        (1, 3, 83),
    ]:
        x = floats("x", n, 5, h, w)
        padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        terms = [
            (padded[:, :, r : r + h, s : s + w], weights[:, 0, r, s][:, None, None])
            for r in range(3)
            for s in range(3)
        ]
        y = kernel(x)
        agree(y, sum(a * b for a, b in terms), terms=sum(abs(a * b) for a, b in terms))
        np.testing.assert_array_equal(kernel(x[:1]), y[:1])
