"""Code with tile registers that another process made: Linux gives them to a process only when it asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import offcut as oc
from offcut.backends.cpu.machine import isa
from offcut.backends.cpu.microkernels import amx

PRODUCT = """
import numpy as np
import offcut as oc
n = oc.dim("n")
a, w = oc.placeholder((n, 256), "uint8", name="A"), oc.placeholder((256, 64), "int8", name="W")
kernel = oc.compile(oc.ops.dense(a, w), inputs=[a, w])
rng = np.random.default_rng(5)
x, y = rng.integers(0, 255, (35, 256), "uint8"), rng.integers(-128, 127, (256, 64), "int8")
assert (kernel(x, y) == x.astype("int32") @ y.astype("int32")).all()
"""


@pytest.mark.skipif(
    "amx-int8" not in isa.host().features or not amx.is_amx_permitted(),
    reason="needs AMX with int8: the test below says what asks for tile registers anywhere",
)
def test_a_kernel_with_tiles_runs_in_a_process_that_finds_it_in_the_cache(tmp_path: Path) -> None:
    environment = {**os.environ, "OFFCUT_CACHE": str(tmp_path)}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", PRODUCT], env=environment, check=True)


def test_what_is_kept_says_whether_it_was_made_with_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    target = oc.target("cpu", machine="sapphire-rapids")
    options = target.options("compile")
    said = []
    for answer in (True, False):
        monkeypatch.setattr(amx, "is_amx_permitted", lambda answer=answer: answer)
        said.append(target.cache_key_parts(options))
    assert said[0] != said[1]
    assert "tiles" in said[0]
