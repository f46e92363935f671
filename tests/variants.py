"""Runs the tests that a machine can change as other machines would run them: ``python -m tests.variants``.

A variant hides features of this processor, takes the caches, rates and lack of features of a shipped machine for its
own, or keeps the processor busy beside the tests. What a machine can change is in modules that compile for the
processor or ask what it is (`depends_on_machine`); the rest of the suite is the same on each.

``--turn`` runs one variant, and one test of `STEP` that are drawn by their names: both follow from the number of
commits, so that each change is tested on the next machine. It is what CI does.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
STEP = 12
_DEPENDS = re.compile(
    r"compil|kernel|target|machine|host|isa\b|jit\b|tune|measure|JobRunner|encode|from_(onnx|torch)|CliRunner|docs"
)


@dataclass(frozen=True)
class Variant:
    """A machine that this one can stand for.

    environment  variables that make it so
    busy         processes that do other work beside the tests
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    busy: int = 0


def hiding(name: str, features: str) -> Variant:
    """This machine without some features."""
    return Variant(name, {"OFFCUT_HIDE_FEATURES": features})


def as_machine(name: str) -> Variant:
    """This machine, described as a shipped one."""
    return Variant(f"as {name}", {"OFFCUT_MACHINE": name})


VARIANTS = (
    hiding("without AVX-512", "avx512f"),
    as_machine("zen5"),
    hiding("without AVX2", "avx512f,avx2"),
    Variant("beside busy processes", busy=4),
    as_machine("sapphire-rapids"),
    hiding("with AVX512-VNNI and no AMX", "amx-tile"),
    as_machine("cascade-lake"),
    hiding("with AVX-VNNI alone", "avx512f,amx-tile"),
    as_machine("avx2"),
    hiding("without dot products of bytes", "avx512vnni,avxvnni,amx-tile"),
    as_machine("zen4"),
)
"""In the order in which CI takes them; on processors without a feature, hiding it changes nothing."""


def depends_on_machine(path: Path) -> bool:
    """Whether a module of tests compiles for the processor, or asks what it is, by what it says."""
    return path.suffix != ".py" or _DEPENDS.search(path.read_text(encoding="utf-8")) is not None


def turn() -> int:
    """The number of commits; without git, 0."""
    count = ["git", "-C", str(ROOT), "rev-list", "--count", "HEAD"]
    try:
        return int(subprocess.run(count, capture_output=True, text=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        return 0


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep `count` processes at work meanwhile."""
    loop = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(loop) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def run(variant: Variant, part: str, options: list[str]) -> int:
    """The exit status of pytest on a machine.

    part  ``STEP/TURN``: one test of so many, drawn by their names and this number
    """
    told = " ".join(f"{name}={value}" for name, value in variant.environment.items())
    print(f"== {variant.name}  {told}  (one test of {part.partition('/')[0]})", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "--machine-part", part]
    with busy(variant.busy):
        environment = {**os.environ, **variant.environment}
        return subprocess.run(
            [*command, *options], cwd=ROOT, env=environment, check=False
        ).returncode


def main() -> int:
    """Run the variants that the command line names; 1 where one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.variants")
    parser.add_argument("--turn", action="store_true", help="the variant of this commit, in part")
    parser.add_argument("--only", default="", help="those whose names hold this text")
    parser.add_argument("--step", type=int, default=0, help="one test of so many")
    asked, options = parser.parse_known_args()
    number = turn()
    chosen = [one for one in VARIANTS if asked.only in one.name]
    if asked.turn:
        chosen = [VARIANTS[number % len(VARIANTS)]]
    failed = []
    for one in chosen:
        step = asked.step or (STEP * (one.busy // 2 + 1) if asked.turn else 1)
        if run(one, f"{step}/{number // len(VARIANTS)}", options):
            failed.append(one.name)
    for name in failed:
        print(f"== failed: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
