"""Loop programs as operators of graphs: recurrences of `offcut.ops`, and programs of a user's own."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats
from conftest import rejection

import offcut as oc
from offcut.core import index as ix
from offcut.ir import Tile, walk
from tests.agree import agree, of_peer
from tests.facade import Builder, compile_graph, interpret_graph, parse_graph

WIDTH = 8
ELMAN = oc.parse("""
program elman
size steps in 0:65
size rows in 0:65
input x: float32[steps, rows, 8]
constant u: float32[8, 8]
inout h: float32[rows, 8]
output y: float32[steps, rows, 8]
private s: float32[rows, 8]
for t in 0:steps
  for i in 0:rows
    for j in 0:8
      s[i, j] = 0.0
      for k in 0:8
        s[i, j] += h[i, k] * u[k, j]
      y[t, i, j] = tanh(x[t, i, j] + s[i, j])
  for i in 0:rows
    for j in 0:8
      h[i, j] = y[t, i, j]
""")


def sequence() -> tuple[Builder, Any]:
    """A graph of sequences, batches first."""
    made = Builder("sequence")
    n, t = made.size("n", 1, 64), made.size("t", 0, 64)
    return made, made.input("x", "float32", (n, t, WIDTH))


def layer(made: Builder, x: Any, name: str, *state: Any) -> Any:
    """A layer of long short-term memory, (steps, batch, …)."""
    gates = made.node(
        "dense", x, made.constant(f"w{name}", floats(name, 32, WIDTH) / 2), transpose_w=True
    )
    return made.node("lstm", gates, made.constant(f"r{name}", floats(name, 32, WIDTH) / 4), *state)


def recurrent() -> Builder:
    """Two layers, and a recurrence that is written in full."""
    made, x = sequence()
    turned = made.node("transpose", x, axes=(1, 0, 2))
    y, h, _ = layer(made, turned, "a")
    y, _, c = layer(made, y, "b", h, h)
    u = made.constant("u", floats("u", WIDTH, WIDTH) / 4)
    last, y = made.node("program", ELMAN, y, u, c, results=("last", "every"))
    made.output(made.node("relu", made.node("transpose", y, axes=(1, 0, 2))), last, h)
    return made


def drawn(n: int, t: int) -> Array:
    return floats("x", n, t, WIDTH)


def test_a_graph_with_programs_is_printed_read_and_run_as_interpreted() -> None:
    made = recurrent()
    assert parse_graph(str(made.graph)) == made.graph
    assert "lstm: float32[t, n, 8], lstm_2: float32[n, 8], lstm_3: float32[n, 8] = lstm(" in str(
        made.graph
    )
    model = compile_graph(made.bound, threads=1)
    assert [step.nodes for step in model.steps if step.nodes != ("dense",)] == [
        ("lstm",),
        ("lstm",),
        ("program",),
        ("relu",),
    ]
    for step in model.steps[1:2]:
        tiles = [one for one in walk(step.kernel.loops.body) if isinstance(one, Tile)]
        assert any(one.microkernel is not None for one in tiles)
    again = pickle.loads(pickle.dumps(model))
    for n, t in [(1, 1), (3, 5), (7, 0), (2, 13)]:
        found = model(drawn(n, t))
        for one, other in zip(found, again(drawn(n, t)), strict=True):
            np.testing.assert_array_equal(one, other)
        if n * t < 20:
            wanted = interpret_graph(made.bound, {"x": drawn(n, t)}).values()
            for one, exact in zip(found, wanted, strict=True):
                agree(one, of_peer(exact))


def test_a_state_is_the_same_in_any_batch() -> None:
    model = compile_graph(recurrent().bound, threads=1)
    together, x = model(drawn(17, 3)), drawn(17, 3)
    for one, part in zip(model(x[4:5]), together, strict=True):
        np.testing.assert_array_equal(one, part[4:5])


def test_layers_that_are_alike_share_a_kernel() -> None:
    made, x = sequence()
    x = made.node("transpose", x, axes=(1, 0, 2))
    for name in "abc":
        x, h, _ = layer(made, x, name)
    m = made.size("m", 1, 64)
    other = made.input("z", "float32", (m, made.values["x"].shape[0], WIDTH))
    y, *_ = layer(made, other, "d")
    made.output(x, h, y)
    model = compile_graph(made.bound, threads=1)
    codes = {step.code for step in model.steps if step.nodes == ("lstm",)}
    assert len([step for step in model.steps if step.nodes == ("lstm",)]) == 4
    assert len(codes) == 2  # of steps from 0 to 64, and of batches from 1 to 64
    feed = {"x": drawn(2, 3), "z": drawn(4, 2)}
    for name, one in model(feed).items():
        agree(one, of_peer(interpret_graph(made.bound, feed)[name]))


def test_sizes_of_a_program_are_found_in_its_operands_or_given() -> None:
    text = """
    program steps
    size m in 0:65
    size k in 0:9
    assume k <= m
    input x: float32[2*m + 1]
    output y: float32[m, k]
    for i in 0:m
      for j in 0:k
        y[i, j] = x[2*i + 1] + x[j]
    """
    made = Builder()
    n = made.size("n", 1, 16)
    x = made.input("x", "float32", (ix.add(ix.mul(4, n), 5),))
    made.output(made.node("program", text, x, k=n))
    assert made.graph.nodes[0].results[0].shape == (ix.add(ix.mul(2, n), 2), n)
    assert parse_graph(str(made.graph)) == made.graph
    model, given = compile_graph(made.bound, threads=1), floats("x", 13)
    wanted = given[1::2][:, None] + given[:2]
    np.testing.assert_array_equal(model(given), wanted)
    np.testing.assert_array_equal(interpret_graph(made.bound, {"x": given})["program_2"], wanted)


def test_what_a_program_updates_is_copied_from_any_operand() -> None:
    text = """
    program doubled
    size n in 0:65
    inout a: float32[n, 4]
    for i in 0:n
      for j in 0:4
        a[i, j] = a[i, j] * 2.0
    """
    made = Builder()
    n = made.size("n", 1, 64)
    x, known = made.input("x", "float32", (4, n)), made.constant("c", floats("c", 3, 4))
    turned = made.node("program", text, made.node("transpose", x))
    made.output(turned, made.node("program", text, known), made.node("relu", turned))
    model, given = compile_graph(made.bound, threads=1), floats("x", 4, 5)
    before = given.copy(), floats("c", 3, 4)
    for _ in range(2):
        one, other, positive = model(given)
        np.testing.assert_array_equal(one, 2 * before[0].T)
        np.testing.assert_array_equal(other, 2 * before[1])
        np.testing.assert_array_equal(positive, np.maximum(2 * before[0].T, 0))


HEAD = "program p\nsize n in 0:65\ninput x: float32[n, 4]\n"
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "too few operands": (
        f"{HEAD}input y: float32[n]\noutput z: float32[n]\nfor i in 0:n\n  z[i] = y[i]\n",
        {},
        "graph: p takes 2 operands, got 1\n  because  its inputs are x, y",
    ),
    "another rank": (
        "program p\nsize n in 0:65\ninput x: float32[n]\noutput z: float32[n]\nfor i in 0:n\n  z[i] = x[i]\n",
        {},
        "graph: p cannot take x: float32[n, 8]\n  because  it declares x: float32[n]",
    ),
    "another extent": (
        f"{HEAD}output z: float32[n]\nfor i in 0:n\n  z[i] = x[i, 0]\n",
        {},
        "graph: p cannot take x: float32[n, 8]\n  because  it declares x: float32[n, 4]",
    ),
    "a size that nothing says": (
        f"{HEAD.replace('4]', '8]')}size m in 0:9\noutput z: float32[m]\nfor i in 0:m\n  z[i] = 1.0\n",
        {},
        "graph: p needs the size m\n"
        "  because  no shape of an operand determines it\n"
        "  help     program(…, m=n)",
    ),
    "a size that no extent gives": (
        "program p\nsize k in 0:65\ninput x: float32[2*k, 8]\noutput z: float32[k]\nfor i in 0:k\n  z[i] = x[i, 0]\n",
        {},
        "graph: p needs the size k\n  because  no k makes 2*k the extent n",
    ),
    "a size that is none": (
        f"{HEAD.replace('4]', '8]')}output z: float32[n]\nfor i in 0:n\n  z[i] = x[i, 0]\n",
        {"m": 3},
        "graph: p cannot take the size m\n  because  its sizes are n",
    ),
    "a size that is a text": (
        f"{HEAD.replace('4]', '8]')}output z: float32[n]\nfor i in 0:n\n  z[i] = x[i, 0]\n",
        {"n": "7"},
        "graph: p cannot take n = '7'\n  because  a size is an extent",
    ),
    "no result": (
        f"{HEAD}local z: float32[n]\nfor i in 0:n\n  z[i] = x[i, 0]\n",
        {},
        "graph: p cannot be an operator\n  because  it has no output and no inout array",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_program_that_does_not_fit_is_refused(case: str) -> None:
    text, sizes, said = WRONG[case]
    made = Builder()
    x = made.input("x", "float32", (made.size("n", 1, 64), 8))
    with rejection(f"DescribeError: {said}"):
        made.node("program", text, x, **sizes)


def test_what_a_program_reads_may_end_in_an_axis_of_one() -> None:
    made = Builder("places")
    n, m = made.size("n", 1, 64), made.size("m", 0, 64)
    x, ids = made.input("x", "float32", (n, 4)), made.input("ids", "int32", (m, 1))
    updates = made.input("u", "float32", (m, 4))
    made.output(made.node("scatter_nd", x, made.node("add", ids, 1), updates))
    model = compile_graph(made.bound, threads=1)
    for rows, count in (1, 0), (7, 1), (7, 13):
        a, u = floats("a", rows, 4), floats("u", count, 4)
        places = np.arange(count, dtype="int32").reshape(count, 1) * 3 % rows
        exact = a.copy()
        for place, row in zip(places[:, 0], u, strict=True):
            exact[place] = row
        np.testing.assert_array_equal(model(a, places - 1, u), exact)


def test_what_a_program_reads_turned_may_end_in_an_axis_of_one() -> None:
    made = Builder("turned")
    n, m = made.size("n", 1, 64), made.size("m", 1, 64)
    x, rows = made.input("x", "float32", (n, m, 1)), made.input("rows", "int64", (n, 1))
    update = made.node("transpose", made.input("u", "float32", (m, n, 1)), axes=(1, 0, 2))
    made.output(made.node("scatter_nd", x, rows, update))
    model = compile_graph(made.bound, threads=1)
    for high, wide in (1, 1), (3, 5), (7, 2):
        u = floats("u", wide, high, 1)
        places = np.arange(high)[::-1, None].copy()
        found = model(floats("x", high, wide, 1), places, u)
        np.testing.assert_array_equal(found, u.transpose(1, 0, 2)[::-1])
