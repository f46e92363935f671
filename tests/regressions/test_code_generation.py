"""Programs at which code generation once ended the process, or found no value; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = "size n in 0:60\nsize m in 0:60\n"
PROGRAMS = {
    "a choice inside a loop, priced for threads": (
        "inout S: int32[n + m + 8]\nfor i in n:1\n  for j in 0:i + 1\n    S[j] = 1\n",
        "tile={'j': 1}, tail='mix'",
        2,
    ),
    "rows of a maximum in tiles of two, on threads": (
        "input X: int32[n, m]\noutput V: int32[n]\n"
        "for i in 0:n\n  for j in 0:m\n    V[i] max= X[i, j]\n",
        "tile={'j': 2}, tail='mix'",
        2,
    ),
    "rows of a sum in tiles of nearly one height": (
        "input A: float32[n, m]\noutput S: float32[n]\n"
        "for i in 0:n\n  S[i] = 0\n  for j in 0:m\n    S[i] += A[i, j]\n",
        "tile={'j': 7}, tail='balance'",
        1,
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_code_is_generated(what: str) -> None:
    body, cut, threads = PROGRAMS[what]
    program = f"program p\n{HEAD}{body}"
    text = f"oc.compile(oc.partition(oc.parse({program!r}), {cut}).loops, threads={threads})"
    done = subprocess.run(
        [sys.executable, "-c", f"import offcut as oc; {text}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
