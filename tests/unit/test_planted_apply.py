"""Faults in what applies decisions: each is found by the proof of what it emits. And a halo and an accumulator at once are proved."""

from __future__ import annotations

import importlib
from functools import cache

import numpy as np
import pytest

import offcut as oc
from tests.agree import agree

SCHEDULE = """\
schedule Y
stage read X for S as X_in
split Y.i ladder 4 as io ii
order Y io c ii
at S Y.io
at X_in Y.io
"""

# What is emitted, what a fault would make of it.
FAULTS = {
    "the start of a tile shifted": ("for i in 4*io:4*io + 4", "for i in 4*io + 1:4*io + 4"),
    "the end of a tile short": ("for i in 4*io:4*io + 4", "for i in 4*io:4*io + 3"),
    "the tail's end short": ("for ii in 0:n - 4*(n//4)", "for ii in 0:n - 4*(n//4) - 1"),
    "the tail's start shifted": ("Y[4*(n//4) + ii, c] =", "Y[4*(n//4) + ii - 1, c] ="),
    "a tile too few": ("for io in 0:n//4 ", "for io in 0:n//4 - 1 "),
    "no tail": ("if n % 4 > 0", "if n % 4 > 1"),
    "a window without its halo": ("alloc X_in[4*io +: 6, 0 +: 8]", "alloc X_in[4*io +: 4, 0 +: 8]"),
    "a copy without its halo": ("for a0 in 4*io:4*io + 6", "for a0 in 4*io:4*io + 4"),
    "a copy lost": ("for a0 in 4*io:4*io + 6", "for a0 in 4*io:4*io"),
    "a copy of other elements": ("= X[a0, a1]", "= X[a0, 7 - a1]"),
    "a window of fewer columns": ("alloc S[4*io +: 4, 0 +: 8]", "alloc S[4*io +: 4, 0 +: 7]"),
    "terms too few": ("for r in 0:3", "for r in 0:2"),
    "a start lost": ("S[i, c] = 0.0", "S[i, c] += 0.0"),
    "a start inside of its sum": (
        "          S[i, c] = 0.0\n          for r in 0:3\n",
        "          for r in 0:3\n            S[i, c] = 0.0\n",
    ),
    "an element read of the tile before": ("max(S[4*io + ii, c]", "max(S[4*io + ii - 1, c]"),
    "a reader before what it reads": (None, None),
}


def stencil() -> tuple[list[oc.Tensor], oc.Tensor]:
    n, r = oc.dim("n", max=64), oc.reduce_axis(3, name="r")
    x, w = oc.placeholder((n + 2, 8), name="X"), oc.placeholder((3, 8), name="W")
    s = oc.compute((n, 8), lambda i, c: oc.sum(x[i + r, c] * w[r, c], axis=r), name="S")
    return [x, w], oc.compute((n, 8), lambda i, c: oc.maximum(s[i, c], 0.0), name="Y")


def turned(text: str) -> str:
    """The text with the loops of the first tile that compute behind those that read."""
    lines = text.split("\n")
    first = next(k for k, line in enumerate(lines) if line.startswith("      for i in"))
    read = next(k for k in range(first, len(lines)) if lines[k].startswith("      for c in"))
    end = next(k for k in range(read, len(lines)) if lines[k].startswith("if "))
    return "\n".join((*lines[:first], *lines[read:end], *lines[first:read], *lines[end:]))


@cache
def lower_right() -> oc.Program:
    """Return the program without a fault, proved."""
    inputs, result = stencil()
    s = oc.create_schedule(result, inputs=inputs).apply(oc.Schedule.parse(SCHEDULE))
    return s.lower()


@pytest.mark.every(2)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_what_applies_decisions_is_found_by_the_proof(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("offcut.schedule.apply.hand_proof")
    emit, (old, new) = module.lower_with_tiles, FAULTS[fault]

    def faulty(nests):  # type: ignore[no-untyped-def]
        program, tiles = emit(nests)
        if program != right:
            return program, tiles
        text = str(program)
        wrong = turned(text) if old is None else text.replace(old, new, 1)
        assert wrong != text
        return oc.parse(wrong), tiles

    right = lower_right()
    inputs, result = stencil()
    monkeypatch.setattr(module, "lower_with_tiles", faulty)
    with pytest.raises(oc.OffcutError):
        oc.create_schedule(result, inputs=inputs).apply(oc.Schedule.parse(SCHEDULE)).lower()


@pytest.mark.parametrize(
    "tail", ["ladder", *(pytest.param(t, marks=pytest.mark.slow) for t in ("mask", "shift"))]
)
def test_a_halo_and_an_accumulator_of_two_axes_are_proved_at_once(tail: str) -> None:
    h, w = oc.dim("h", min=3, max=64), oc.dim("w", min=3, max=64)
    x, k = oc.placeholder((h, w, 4), name="X"), oc.placeholder((3, 3, 4, 8), name="K")
    r, q, c = (oc.reduce_axis(size, name=name) for size, name in ((3, "r"), (3, "q"), (4, "c")))
    s = oc.compute(
        (h - 2, w - 2, 8),
        lambda i, j, o: oc.sum(x[i + r, j + q, c] * k[r, q, c, o], axis=(r, q, c)),
        name="S",
    )
    y = oc.compute(s.shape, lambda i, j, o: oc.maximum(s[i, j, o], 0.0), name="Y")
    text = (
        f"schedule Y\nstage read X for S as X_in\nsplit Y.i {tail} 4 as io ii\nsplit Y.j {tail} 8 as jo jj\n"
        "order Y io jo ii jj o\nat S Y.jo\nat X_in Y.jo"
    )
    kernel = oc.compile(y, inputs=[x, k], schedule=oc.Schedule.parse(text))
    draw = np.random.default_rng(5)
    for m, n in ((3, 3), (5, 9), (6, 10), (7, 11), (19, 31)):
        a = draw.standard_normal((m, n, 4)).astype("float32")
        b = draw.standard_normal((3, 3, 4, 8)).astype("float32")
        parts = np.lib.stride_tricks.sliding_window_view(a.astype("float64"), (3, 3), (0, 1))
        want = np.maximum(np.einsum("ijcrq,rqco->ijo", parts, b), 0)
        terms = np.einsum("ijcrq,rqco->ijo", abs(parts), abs(b.astype("float64")))
        agree(kernel(a, b), want, terms=terms)
