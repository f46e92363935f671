"""Arithmetic of elements inside ``index(…)`` is that of their type, at most an index at last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offcut as oc

EXPRESSIONS = {
    "index(x[i]*0.5)": lambda x, k, j: (x * np.float32(0.5)).astype(int),
    "index(x[i] - 0.9)": lambda x, k, j: np.trunc(x - np.float32(0.9)).astype(int),
    "index(int32(x[i]*0.5))": lambda x, k, j: (x * np.float32(0.5)).astype(int),
    "index(k[i]*2)//2": lambda x, k, j: k,
    "index(7 - k[i])": lambda x, k, j: 7 - k,
    "index(j[i] + 100) % 7": lambda x, k, j: (j + np.int8(100)) % 7,
    "index(x[i]*0.5) + i - i": lambda x, k, j: (x * np.float32(0.5)).astype(int),
}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_index_is_what_its_elements_say(text: str, cut: bool) -> None:
    program = oc.parse(
        "program p\nsize n in 0:99\ninput x: float32[n]\ninput k: int32[n]\ninput j: int8[n]\n"
        f"input V: float32[n]\noutput C: float32[n]\nfor i in 0:n\n  C[i] = V[{text}]\n"
    )
    loops = oc.partition(program, tile={"i": 4}, tail="mask").loops if cut else program
    x, k = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.int32)[::-1].copy()
    j, v = np.arange(8, dtype=np.int8), np.arange(8, dtype=np.float32) * 10
    wanted = v[EXPRESSIONS[text](x, k, j)]
    given = {"x": x, "k": k, "j": j, "V": v}
    np.testing.assert_array_equal(program.run(given), wanted)
    np.testing.assert_array_equal(oc.compile(loops)(x, k, j, v), wanted)


def test_a_choice_of_nothing_runs() -> None:
    program = oc.parse(
        "program p\noutput C: float32[1]\nchoose\n  option a costs 0\n  option b costs 1\n"
    )
    assert oc.compile(program)().shape == (1,)


@pytest.mark.parametrize("clamped", [True, False])
def test_an_index_between_the_ends_of_its_axis_asks_nothing(clamped: bool) -> None:
    n, m = oc.dim("n", min=1, max=99), oc.dim("m", min=0, max=99)
    X, P = oc.placeholder((n,), "float32", name="X"), oc.placeholder((m,), "int32", name="P")

    def place(i: Any) -> Any:
        meant = oc.index(P[i]) + 1
        return oc.maximum(oc.minimum(meant, n - 1), 0) if clamped else meant

    kernel = oc.compile(oc.compute((m,), lambda i: X[place(i)], name="Y"), inputs=[X, P])
    assert ("outside" in kernel.source("loops")) is not clamped
    x, p = np.arange(5, dtype=np.float32), np.array([-9, -1, 0, 3, 4, 2**31 - 1] * 11, np.int32)
    if clamped:
        wide = np.clip(p.astype(np.int64) + 1, 0, 4)
        np.testing.assert_array_equal(kernel(x, p), x[wide])
        return
    with pytest.raises(oc.CallError, match="leads outside of an array"):
        kernel(x, p)
