"""ONNX's operators that take indices: values at -2n, -n - 1, -n, -1, 0, n - 1 and n, or a refusal, as numpy has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from conftest import slow

import offcut as oc

N = 4
PLACES = (-2 * N, -N - 1, -N, -1, 0, N - 1, N)
X = np.arange(2 * N, dtype=np.float32).reshape(2, N) + 10


def parsed(text: str, opset: int = 18) -> Any:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> g {text}')


def put(place: int, value: float, add: bool = False) -> Any:
    """`X` with another element in its second row."""
    made = X.copy()
    made[1, place] = value + (made[1, place] if add else 0)
    return made


def hot(place: int) -> Any:
    """Rows that are 1 at place 0, and at a place if it is one."""
    made = np.zeros((2, N), np.float32)
    made[0, 0] = 1
    if -N <= place < N:
        made[1, place] = 1
    return made


def column(place: int, like: Any = np.int64) -> Any:
    return np.array([[0], [place]], like)


ONE = np.ones((2, 1), np.float32)
OPERATORS: dict[str, tuple[str, Callable[[int], dict[str, Any]], Callable[[int], Any]]] = {
    "Gather": (
        "(float[n, m] x, int64[2] i) => (float[n, 2] y) { y = Gather <axis = 1> (x, i) }",
        lambda i: {"x": X, "i": np.array([0, i])},
        lambda i: X[:, [0, i]],
    ),
    "Gather of one": (
        "(float[n, m] x, int64 i) => (float[n] y) { y = Gather <axis = 1> (x, i) }",
        lambda i: {"x": X, "i": np.array(i)},
        lambda i: X[:, i],
    ),
    "Gather of rows": (
        "(float[m, n] x, int32[2] i) => (float[2, n] y) { y = Gather (x, i) }",
        lambda i: {"x": X.T.copy(), "i": np.array([0, i], np.int32)},
        lambda i: X.T[[0, i]],
    ),
    "GatherElements": (
        "(float[n, m] x, int32[n, 1] i) => (float[n, 1] y) { y = GatherElements <axis = 1> (x, i) }",
        lambda i: {"x": X, "i": column(i, np.int32)},
        lambda i: np.array([[X[0, 0]], [X[1, i]]]),
    ),
    "GatherND": (
        "(float[n, m] x, int64[2, 2] i) => (float[2] y) { y = GatherND (x, i) }",
        lambda i: {"x": X, "i": np.array([[0, 0], [1, i]])},
        lambda i: np.array([X[0, 0], X[1, i]]),
    ),
    "GatherND of a batch": (
        "(float[n, m] x, int64[n, 1] i) => (float[n] y) { y = GatherND <batch_dims = 1> (x, i) }",
        lambda i: {"x": X, "i": column(i)},
        lambda i: np.array([X[0, 0], X[1, i]]),
    ),
    "ScatterElements": (
        "(float[n, m] x, int64[1, 1] i, float[1, 1] u) => (float[n, m] y)"
        " { z = Transpose <perm = [1, 0]> (x)  s = ScatterElements (z, i, u)  y = Transpose <perm = [1, 0]> (s) }",
        lambda i: {"x": X[::-1].copy(), "i": np.array([[i]]), "u": ONE[:1]},
        lambda i: put(i, 1)[::-1],
    ),
    "ScatterElements that adds": (
        "(float[n, m] x, int32[n, 1] i, float[n, 1] u) => (float[n, m] y)"
        ' { y = ScatterElements <axis = 1, reduction = "add"> (x, i, u) }',
        lambda i: {"x": X, "i": column(i, np.int32), "u": np.array([[0], [1]], np.float32)},
        lambda i: put(i, 1, add=True),
    ),
    "Scatter": (
        "(float[n, m] x, int64[n, 1] i, float[n, 1] u) => (float[n, m] y) { y = Scatter <axis = 1> (x, i, u) }",
        lambda i: {"x": X, "i": column(i), "u": np.array([[10], [1]], np.float32)},
        lambda i: put(i, 1),
    ),
    "ScatterND": (
        "(float[n, m] x, int64[1, 2] i, float[1] u) => (float[n, m] y) { y = ScatterND (x, i, u) }",
        lambda i: {"x": X, "i": np.array([[1, i]]), "u": np.ones(1, np.float32)},
        lambda i: put(i, 1),
    ),
    "OneHot": (
        "(int64[2] i, float[2] v) => (float[2, 4] y) <int64 d = {4}> { y = OneHot (i, d, v) }",
        lambda i: {"i": np.array([0, i]), "v": np.array([0, 1], np.float32)},
        hot,
    ),
    "OneHot of small integers": (
        "(int8[2] i, float[2] v) => (float[2, 300] y) <int64 d = {300}> { y = OneHot (i, d, v) }",
        lambda i: {"i": np.array([0, i], np.int8), "v": np.array([0, 1], np.float32)},
        lambda i: np.eye(300, dtype=np.float32)[[0, i]],
    ),
}


FAST = ("Gather", "GatherElements", "ScatterND", "OneHot")


@pytest.mark.parametrize("name", [name if name in FAST else slow(name) for name in OPERATORS])
@pytest.mark.parametrize("known", [False, slow(True)], ids=["", "known"])
def test_an_index_is_counted_from_the_end_once_and_checked_once(name: str, known: bool) -> None:
    text, feed, exact = OPERATORS[name]
    proto = parsed(text, 10 if name == "Scatter" else 18)
    whole = None if known else oc.from_onnx(proto, threads=1)
    for place in PLACES:
        given = feed(place)
        try:
            wanted = exact(place)
        except IndexError:
            # a known index says how large a size is
            with pytest.raises(oc.CallError, match=r"leads outside|is in"):
                result_of(proto, given, whole)
            continue
        np.testing.assert_array_equal(result_of(proto, given, whole), wanted)


def result_of(proto: Any, feed: dict[str, Any], model: Any) -> Any:
    """The result of a model; None: of one that is imported with its indices."""
    if model is None:
        given = dict(feed)
        model = oc.from_onnx(proto, constants={"i": given.pop("i")}, threads=1)
        feed = given
    return model(feed)["y"]


ENDS = (-(2**63), *PLACES, 2**63 - 1)


@pytest.mark.parametrize("step", [1, -1, slow(2), slow(-2)])
@pytest.mark.parametrize("low", [0, 1], ids=["from 0", "from 1"])
def test_ends_of_slices_are_moved_to_the_axis(low: int, step: int) -> None:
    """As Python has them, but for a start below -n with a step below 0, which ONNX moves to place 0."""
    every = [(start, end) for start in PLACES for end in ENDS]
    chosen = every[:: 1 if step < -1 or step > 1 else 4]
    lines = " ".join(
        f"s{n} = Constant <value_ints = [{start}]> () e{n} = Constant <value_ints = [{end}]> () "
        f"y{n} = Slice (x, s{n}, e{n}, zero, step)"
        for n, (start, end) in enumerate(chosen)
    )
    outputs = ", ".join(f"float[k] y{n}" for n in range(len(chosen)))
    proto = parsed(
        f"(float[m] x) => ({outputs}) <int64[1] zero = {{0}}, int64[1] step = {{{step}}}> {{ {lines} }}"
    )
    model = oc.from_onnx(proto, sizes={"m": (low, 99)}, threads=1)
    for extent in (low, 2, N, 3 * N):
        x = np.arange(extent, dtype=np.float32)
        found = model(x)
        for n, (start, end) in enumerate(chosen):
            first = max(start, -extent) if step < 0 and start < 0 else start
            stop = None if step < 0 and end < -extent else end
            np.testing.assert_array_equal(found[f"y{n}"], x[first:stop:step], f"{start}:{end}")


def test_updates_that_are_cut_to_the_indices_are_scattered_where_there_are_as_many() -> None:
    """As torch exports ``x.scatter_add(0, index, source)``: no name of the file says that the source has as many rows."""
    proto = parsed("""(float[n, 3] x, int64[m, 3] i, float[k, 3] source) => (float[n, 3] y)
        <int64[2] start = {0, 0}> {
            end = Shape (i)  rows = Slice (source, start, end)
            y = ScatterElements <reduction = "add"> (x, i, rows) }""")
    model = oc.from_onnx(proto, threads=1)
    for n, m, k in ((4, 5, 6), (4, 5, 5), (1, 1, 1)):
        feed = {
            "x": np.arange(3 * n, dtype=np.float32).reshape(n, 3),
            "i": np.arange(3 * m).reshape(m, 3) % n,
            "source": np.arange(3 * k, dtype=np.float32).reshape(k, 3) ** 2,
        }
        expected = feed["x"].copy()
        np.add.at(expected, (feed["i"], np.arange(3)), feed["source"][:m])
        np.testing.assert_array_equal(model(feed)["y"], expected)
    with pytest.raises(oc.CallError, match="m = 5, k = 4"):
        model(
            {
                "x": np.zeros((2, 3), "f4"),
                "i": np.zeros((5, 3), int),
                "source": np.zeros((4, 3), "f4"),
            }
        )
