"""The AVX2 and the portable path, on any machine: features are hidden before code is generated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compiled import Array, agreed, build, contraction, floats, poisoned
from conftest import rejection, slow
from scipy import special

import offcut as oc
from offcut.backends.cpu.machine import isa
from tests.agree import agree, computed

HIDDEN = {"avx2": "avx512f", "portable": "avx512f,avx2"}
ROWS, COLUMNS = (0, 1, 3, 4, 6, 7, 13, 29), (0, 1, 7, 8, 9, 33)


@pytest.fixture(params=[pytest.param("avx2", marks=pytest.mark.isa("avx2", "fma")), "portable"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The instruction set that is left."""
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", HIDDEN[request.param])
    return str(request.param)


def test_hiding_leaves_the_next_instruction_set(path: str) -> None:
    assert isa.host().isa.name == path
    assert not [f for f in isa.host().features if f.startswith("avx512")]


@pytest.mark.every(4)
@pytest.mark.isa("avx512f")
@pytest.mark.parametrize(
    ("hidden", "left"),
    [("f16c", "avx2"), ("fma", "portable"), ("avx", "portable"), ("sse4.2", "portable")],
)
def test_what_needs_a_hidden_feature_is_hidden_too(
    hidden: str, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", hidden)
    assert isa.host().isa.name == left
    what = contraction("mk,kn->mn", {"k": 9, "n": 40})
    x, w = floats("x", 5, 9), floats("w", 9, 40)
    kernel = build(what.result, inputs=what.inputs)
    what.check(kernel(x, w), [x, w])
    assert "zmm" not in kernel.source("asm")


def test_the_code_holds_no_hidden_instruction(path: str) -> None:
    what = contraction("mk,kn->mn", {"k": 9, "n": 40})
    text = build(what.result, inputs=what.inputs, strategy="ladder").source("asm")
    assert "zmm" not in text
    if path == "portable":
        assert "ymm" not in text
        assert "vfmadd" not in text


@pytest.mark.every(5)
@pytest.mark.parametrize("spec", ["mk,kn->mn", slow("km,nk->mn"), "mk,k->m", slow("km->m")])
def test_a_contraction_is_right_and_the_same_by_every_strategy(path: str, spec: str) -> None:
    what = contraction(spec)
    names = ("auto", "shift", "pad") if spec == "mk,kn->mn" else ("ladder", "mask")
    kernels = {s: build(what.result, inputs=what.inputs, strategy=s) for s in names}
    left, result = spec.split("->")
    for m in ROWS:
        for n in COLUMNS if "n" in spec else (0,):
            sizes = {"m": m, "n": n, "k": 19}
            arrays = [floats(s, *(sizes[a] for a in s)) for s in left.split(",")]
            shape = tuple(sizes[a] for a in result)
            what.check(agreed({s: poisoned(f, shape, *arrays) for s, f in kernels.items()}), arrays)


@pytest.mark.every(4)
def test_a_packed_constant_and_its_epilogue_are_right(path: str) -> None:
    what = contraction("mk,kn->mn", {"k": 19, "n": 33}, name="H")
    (m, n), H = what.result.shape, what.result
    E, R = oc.placeholder((n,), name="E"), oc.placeholder((m, n), name="R")
    G = oc.compute((m, n), lambda i, j: H[i, j] + E[j], name="G")
    Y = oc.compute(
        (m, n), lambda i, j: G[i, j] * oc.erf(G[i, j]) + oc.tanh(oc.exp(R[i, j])), name="Y"
    )

    def after(x: Array, w: Array, e: Array, r: Array) -> Array:
        g = x @ w + e
        return np.asarray(g * special.erf(g) + np.tanh(np.exp(r)))

    w, e = floats("w", 19, 33), floats("e", 33)
    kernels = {
        s: build(Y, inputs=[*what.inputs, E, R], constants={"B": w, "E": e}, strategy=s)
        for s in ("auto", "shift", "cut")
    }
    for rows in ROWS:
        x, r = floats("x", rows, 19), floats("r", rows, 33)
        found = agreed({s: poisoned(f, (rows, 33), x, r) for s, f in kernels.items()})
        agree(found, computed(after, x, w, e, r))


def test_the_variable_is_read_from_outside() -> None:
    program = "from offcut.backends.cpu.machine import isa; print(isa.host().isa.name)"
    given = os.environ | {
        "OFFCUT_HIDE_FEATURES": " avx512f , avx2",
        "PYTHONPATH": str(Path(isa.__file__).parents[3]),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True
    )
    assert done.stdout == "portable\n"


def test_a_feature_that_no_host_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    what = contraction("mk,k->m")
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "avx512f,axv2,sse9")
    with rejection(
        "TargetError: OFFCUT_HIDE_FEATURES: cannot hide axv2, sse9\n"
        "  because  no instruction set that offcut uses, and no feature of this host, has that name\n"
        "  help     OFFCUT_HIDE_FEATURES=avx512f\n"
        "  help     OFFCUT_HIDE_FEATURES=avx512f,avx2"
    ):
        oc.compile(what.result, inputs=what.inputs)
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "")
    assert isa.host().isa.name in ("avx512", "avx2", "portable")
