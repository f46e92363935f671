"""Nests of products inside of loops that are no computation: recurrences run them by microkernels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats, same_bits
from conftest import rejection

import offcut as oc
from offcut import Kernel
from offcut.ir import For, Tile, walk
from tests.agree import agree, computed

WIDTH = 24
b, steps = oc.dim("b", max=512), oc.dim("steps", max=64)
k = oc.reduce_axis(WIDTH, "k")


def given(name: str, *shape: Any) -> Any:
    return oc.placeholder(shape, name=name)


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + oc.exp(-x))


P, U = given("P", steps, b, 4 * WIDTH), given("U", WIDTH, 4 * WIDTH)
G, C, H = given("G", b, 4 * WIDTH), given("C", b, WIDTH), given("H", b, WIDTH)


def long_short(t: Any) -> list[Any]:
    """A step of an LSTM, its input multiplied before."""
    gates = oc.update(G, lambda i, j: P[t, i, j] + oc.sum(H[i, k] * U[k, j], axis=k))
    cell = oc.update(
        C,
        lambda i, j: (
            sigmoid(G[i, j + WIDTH]) * C[i, j] + sigmoid(G[i, j]) * oc.tanh(G[i, j + 2 * WIDTH])
        ),
    )
    hidden = oc.update(H, lambda i, j: sigmoid(G[i, j + 3 * WIDTH]) * oc.tanh(C[i, j]))
    return [gates, cell, hidden]


LSTM = oc.recurrence(steps, long_short, name="lstm")


def run(p: Array, u: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """Cell and hidden state after all steps, in float64."""
    h, c, p, u = (one.astype("f8") for one in (h, c, p, u))
    for one in p:
        i, f, g, o = np.split(one + h @ u, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
    return c, h


def tiles_inside(kernel: Kernel) -> set[str]:
    """The microkernels of tiles inside of the loop over the steps."""
    loops = [stmt for stmt in kernel.loops.body if isinstance(stmt, For)]
    return {
        stmt.microkernel
        for loop in loops
        for stmt in walk(loop.body)
        if isinstance(stmt, Tile) and stmt.microkernel is not None
    }


def test_the_products_of_a_recurrence_run_by_microkernels() -> None:
    u = floats("u", WIDTH, 4 * WIDTH)
    kernel = oc.compile(LSTM, constants={"U": u})
    assert tiles_inside(kernel)
    assert "no sum runs by a microkernel" not in str(kernel.plan(b=3, steps=5))
    for length, batch in [(0, 3), (1, 1), (5, 0), (5, 13), (5, 14), (5, 15), (3, 47)]:
        p = floats("p", length, batch, 4 * WIDTH)
        h, c = floats("h", batch, WIDTH), floats("c", batch, WIDTH)
        named = {"P": p, "G": np.full((batch, 4 * WIDTH), np.nan, "f4"), "H": h, "C": c}
        found = dict(
            zip(
                [one.name for one in kernel.signature.outputs],
                kernel(*(named[one.name] for one in kernel.signature.inputs)),
                strict=True,
            )
        )
        for name, exact in zip("CH", computed(run, p, u, h, c), strict=True):
            agree(found[name], exact)


def test_a_schedule_with_products_is_applied_again() -> None:
    u = floats("u", WIDTH, 4 * WIDTH)
    kernel = oc.compile(LSTM, constants={"U": u})
    text = str(kernel.schedule)
    assert "cover *" not in text
    assert "at G_sum G.j_in\ncover G at" in text
    again = oc.compile(LSTM, constants={"U": u}, schedule=oc.Schedule.parse(text))
    assert (again.loops, again.schedule) == (kernel.loops, kernel.schedule)
    lines = text.splitlines()
    nest = re.compile("(split|order|cover) G[ .]|at G_sum|stage prepack")
    rest = [line for line in lines if not nest.match(line)]
    plain = oc.Schedule.parse("\n".join(rest))
    assert not tiles_inside(oc.compile(LSTM, constants={"U": u}, schedule=plain))
    older = oc.Schedule.parse("\n".join([*lines[:2], "mark products", "mark rows", "mark lanes"]))
    again = oc.compile(LSTM, constants={"U": u}, schedule=older)
    assert (again.loops, again.schedule) == (kernel.loops, kernel.schedule)


def test_the_nest_of_a_recurrence_is_cut_as_an_edited_schedule_says() -> None:
    u = floats("u", WIDTH, 4 * WIDTH)
    kernel = oc.compile(LSTM, constants={"U": u})
    text = str(kernel.schedule)
    line = next(one for one in text.splitlines() if one.startswith("split G.i"))
    edited = oc.Schedule.parse(text.replace(line, "split G.i mask 4 as i_tile i_in"))
    other = oc.compile(LSTM, constants={"U": u}, schedule=edited)
    assert other.schedule == edited
    assert other.loops != kernel.loops
    p = floats("p", 5, 17, 4 * WIDTH)
    h, c = floats("h", 17, WIDTH), floats("c", 17, WIDTH)
    named = {"P": p, "G": np.zeros((17, 4 * WIDTH), "f4"), "H": h, "C": c}
    given = [named[one.name] for one in kernel.signature.inputs]
    assert all(same_bits(a, b) for a, b in zip(kernel(*given), other(*given), strict=True))


def test_what_is_said_of_a_nest_that_is_none_is_refused_by_its_line() -> None:
    u = floats("u", WIDTH, 4 * WIDTH)
    text = str(oc.compile(LSTM, constants={"U": u}).schedule)
    lines = len(text.splitlines())
    wrong = {
        "cover H vectors": (
            f"schedule: cannot cover H\n  at       line {lines + 1}: cover H vectors\n"
            "  because  no nest that computes it is a sequence of whole arrays, each from those before\n"
            "  help     cover H at i vectors, i the outermost of its loops that are a tile\n"
            "  help     separate, split and bind, for loops as they stand"
        ),
    }
    for line, message in wrong.items():
        with rejection(f"PartitionError: {message}"):
            oc.compile(LSTM, constants={"U": u}, schedule=oc.Schedule.parse(f"{text}\n{line}"))
    cover = next(one for one in text.splitlines() if one.startswith("cover G at"))
    kernel = cover.partition("(")[0].split()[-1]
    other = text.replace(kernel, "fma_float33")
    with pytest.raises(oc.PartitionError, match="cannot cover tiles by fma_float33") as refused:
        oc.compile(LSTM, constants={"U": u}, schedule=oc.Schedule.parse(other))
    assert "cover G at" in refused.value.at


def test_two_products_in_one_step_are_cut_each() -> None:
    n = 16
    Q, W, V = given("Q", steps, b, 3 * n), given("W", n, 2 * n), given("V", n, n)
    R, S, Z = given("R", b, 2 * n), given("S", b, n), given("Z", b, n)
    d = oc.reduce_axis(n, "d")

    def gated(t: Any) -> list[Any]:
        return [
            oc.update(R, lambda i, j: sigmoid(Q[t, i, j] + oc.sum(S[i, d] * W[d, j], axis=d))),
            oc.update(Z, lambda i, j: R[i, j] * S[i, j]),
            oc.update(
                S,
                lambda i, j: (
                    (1.0 - R[i, j + n]) * S[i, j] + R[i, j + n] * oc.tanh(Q[t, i, j + 2 * n])
                ),
            ),
            oc.update(Z, lambda i, j: oc.sum(S[i, d] * V[d, j], axis=d)),
        ]

    w, v = floats("w", n, 2 * n), floats("v", n, n)
    kernel = oc.compile(oc.recurrence(steps, gated, name="gated"), constants={"W": w, "V": v})
    (loop,) = kernel.loops.body
    cut = {buffer.name for buffer in kernel.loops.buffers if buffer.layout is not None}
    assert isinstance(loop, For)
    assert cut == {"W", "V"}
    q, s = floats("q", 4, 17, 3 * n), floats("s", 17, n)
    named = {"Q": q, "R": np.zeros((17, 2 * n), "f4"), "S": s, "Z": np.zeros((17, n), "f4")}
    found = kernel(*(named[one.name] for one in kernel.signature.inputs))

    def states(q: Array, state: Array, w: Array, v: Array) -> dict[str, Array]:
        for one in q:
            r = 1 / (1 + np.exp(-(one[:, : 2 * n] + state @ w)))
            state = (1 - r[:, n:]) * state + r[:, n:] * np.tanh(one[:, 2 * n :])
        return {"S": state, "Z": state @ v, "R": r}

    exact = computed(states, q, s, w, v)
    for output, array in zip(kernel.signature.outputs, found, strict=True):
        agree(array, exact[output.name])


HEAD = "program p\nsize n in 0:64\nsize m in 0:64\n"
STAY: dict[str, str] = {
    "operands that would be copied at each turn": f"""{HEAD}input A: float32[m, n, 16]
input B: float32[32, 16]
inout Y: float32[n, 32]
for t in 0:m
  for i in 0:n
    for j in 0:32
      Y[i, j] = Y[i, j]*0.5
      for k in 0:16
        Y[i, j] += A[t, i, k] * B[j, k]
""",
    "a result that is not whole": f"""{HEAD}input A: float32[m, n, 16]
constant B: float32[16, 32]
inout Y: float32[n + 1, 32]
for t in 0:m
  for i in 0:n
    for j in 0:32
      Y[i, j] = 0.0
      for k in 0:16
        Y[i, j] += A[t, i, k] * B[k, j]
  Y[n, 0] = Y[0, 0]
""",
    "a product of what it stores": f"""{HEAD}inout Y: float32[n, n]
for t in 0:m
  for i in 0:n
    for j in 0:n
      for k in 0:n
        Y[i, j] += Y[i, k] * Y[k, j]
""",
}


@pytest.mark.parametrize("case", STAY)
def test_what_is_no_computation_of_its_own_stays(case: str) -> None:
    program = oc.parse(STAY[case])
    constants = {"B": floats("b", 16, 32)} if "constant B" in STAY[case] else None
    assert not tiles_inside(oc.compile(program, constants=constants))


def test_threads_change_no_bit() -> None:
    u = floats("u", WIDTH, 4 * WIDTH)
    p, h, c = floats("p", 3, 47, 4 * WIDTH), floats("h", 47, WIDTH), floats("c", 47, WIDTH)
    named = {"P": p, "G": np.zeros((47, 4 * WIDTH), "f4"), "H": h, "C": c}
    found = []
    for threads in (1, 3):
        kernel = oc.compile(LSTM, constants={"U": u}, threads=threads)
        assert tiles_inside(kernel)
        found.append(kernel(*(named[one.name] for one in kernel.signature.inputs)))
    assert all(same_bits(a, b) for a, b in zip(*found, strict=True))
