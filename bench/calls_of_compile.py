"""How a program travels through the files of the package while `oc.compile` compiles it.

    python -m bench.calls_of_compile [--target NAME] [--list]

A call counts where an argument, or a field of one, is what is compiled: a tensor, a computation, a program, a plan, a request. *Above*: the file that
is entered stands above the one that it is called from, by the layers of `pyproject.toml`. *Again*: the file was entered before,
left for another file of another folder, and is entered anew.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import offcut as oc
from offcut.backends.compile_request import CompileRequest
from offcut.backends.options import TargetPlan
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.describe.tensor import Tensor

PACKAGE = Path(oc.__file__).parent
COMPILED = (Tensor, Computation, Program, TargetPlan, CompileRequest)


def layers() -> list[str]:
    """Return the top folders and files of the package, the highest first."""
    text = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    first: list[str] = contracts[0]["layers"]
    return first


class Trace:
    """Calls that hand on what is compiled, from file to file."""

    def __init__(self) -> None:
        self.rank = {name: place for place, name in enumerate(layers())}
        self.above: Counter[tuple[str, str]] = Counter()
        self.entries: Counter[str] = Counter()
        self.last = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call."""
        if event != "call" or frame.f_back is None:
            return
        here, there = self.file(frame), self.file(frame.f_back)
        if not here or not there or here == there or not self.hands_on(frame):
            return
        if self.place(here) < self.place(there):
            self.above[there, here] += 1
        if here != self.last:
            self.entries[here] += 1
            self.last = here

    def file(self, frame: FrameType) -> str:
        """Return the file of a frame within the package; "" outside."""
        path = frame.f_code.co_filename
        root = str(PACKAGE)
        return os.path.relpath(path, root) if path.startswith(root) else ""

    def place(self, file: str) -> int:
        """Return the layer of a file: 0 is the highest."""
        return self.rank.get(file.split(os.sep)[0].removesuffix(".py"), -1)

    def hands_on(self, frame: FrameType) -> bool:
        """Return whether an argument is what is compiled."""
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return any(isinstance(frame.f_locals.get(name), COMPILED) for name in names)


def dense(target: str) -> None:
    """Compile a dense layer."""
    n = oc.dim("n", max=512)
    narrow = target in ("vta", "gemmini", "vta-osdi18")
    kind = "int8" if narrow else "float32"
    x, w = oc.placeholder((n, 64), kind, name="X"), oc.placeholder((64, 96), kind, name="W")
    layer: Any = oc.ops.dense(x, w, name="S")
    oc.compile(oc.ops.requantize(layer, 6) if narrow else layer, inputs=[x, w], target=target)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    os.environ["OFFCUT_CACHE"] = "off"
    trace = Trace()
    sys.setprofile(trace)
    try:
        dense(asked.target)
    finally:
        sys.setprofile(None)
    again = {file: count for file, count in trace.entries.items() if count > 1}
    ways = len(trace.above)
    print(
        f"enters a file above: {sum(trace.above.values())} times, {ways} different pairs of files"
    )
    print(f"files that it enters again: {len(again)} of {len(trace.entries)}")
    if asked.list:
        for (there, here), count in trace.above.most_common():
            print(f"  {count:4} {there} -> {here}")
        for file, count in sorted(again.items(), key=lambda one: -one[1]):
            print(f"  {count:4} {file}")


if __name__ == "__main__":
    main()
