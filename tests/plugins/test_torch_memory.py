"""What an import and a compile of a module of torch hold at most beside its tensors: packed weights, once."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
from torch import nn

import offcut as oc
from tests.agree import agree, of_peer

LAYERS, WIDTH = 16, 512
BESIDE = 4 << 20
"""Bytes for all but the weights: the kernels are in the cache, and nothing is planned; tables of what is remembered may grow."""


def layers() -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).eval()


def test_import_and_compile_hold_packed_weights_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path))
    x, other = torch.randn(3, WIDTH), layers()
    oc.from_torch(layers(), (x,))
    tracemalloc.start()  # of torch's memory it knows nothing
    try:
        taken = oc.from_torch(other, (x,))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    size = 4 * LAYERS * WIDTH * WIDTH
    assert size < peak <= 1.1 * size + BESIDE
    agree(taken(x).detach().numpy(), of_peer(other(x).detach().numpy()))
