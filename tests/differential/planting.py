"""Faults planted in modules as they are imported, and the cases that find them.

    python -m tests.differential.planting               each fault, by the case that is noted for it
    python -m tests.differential.planting --search 40   by the first 40 cases of every kind too: more notes

Each fault has a process of its own, forked before a back end is imported. A process that crashes or
takes too long has found the fault too.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .faults import FAULTS, Fault

NOTES = Path(__file__).with_name("finders.json")
SECONDS = 60  # of processor time, for one case
TRIES = 5  # of a case on several threads, which meet by chance on a busy machine

Finder = tuple[str, int]  # a kind of program, and a seed


class _Planted(importlib.machinery.SourceFileLoader):
    """Loads a module from its source with a fault in it, whatever was compiled before."""

    def __init__(self, fault: Fault, path: str) -> None:
        super().__init__(fault.full, path)
        self.fault = fault

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_data(self.path).decode()
        assert text.count(self.fault.before) == 1, f"{self.fault.name}: the text is not there once"
        return compile(text.replace(self.fault.before, self.fault.after), self.path, "exec")


class _Finds(importlib.abc.MetaPathFinder):
    """Finds the module of a fault, and no other."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.fault.full:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Planted(self.fault, spec.origin)
        return spec


def planted(fault: Fault) -> None:
    """From here on, this process runs offcut with a fault."""
    if fault.full in sys.modules:
        forgotten()
    os.environ["OFFCUT_CACHE"] = "off"
    sys.meta_path.insert(0, _Finds(fault))


def forgotten() -> None:
    """Offcut and the net are imported again where they are next asked for: a fault lies in them."""
    kept = {__name__, Fault.__module__, __package__}
    for name in [name for name in sys.modules if name.split(".")[0] in {"offcut", "tests"}]:
        if name not in kept:
            del sys.modules[name]


def prepared() -> None:
    """Import what takes long and seldom holds a fault, once for all processes."""
    for name in ("llvmlite.binding", "offcut.schedule", f"{__package__}.checking"):
        importlib.import_module(name)


def found_by(fault: Fault, cases: Iterable[Finder]) -> tuple[Finder, str] | None:
    """The first of `cases` that fails with `fault` in the lowering, and how; in a process of its own."""
    cases = list(cases)
    prepared()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _in_child(lambda: planted(fault), cases, writing)
    os.close(writing)
    with os.fdopen(reading) as answers:
        begun = answers.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == _NOTHING:
        return None
    assert status != _BROKEN, f"{fault.name}: the net itself failed"
    number, _, how = begun[-1].partition(" ")
    return cases[int(number)], how or f"the process ended with {status}"


_FOUND, _NOTHING, _BROKEN = 0, 1, 2


def _in_child(plant: Callable[[], None], cases: Sequence[Finder], writing: int) -> None:
    """Run the cases until one fails; the number of each is written before it begins."""
    status = _BROKEN
    try:
        sys.path.insert(0, str(Path(__file__).parents[1]))  # where the tensor unit is emulated
        plant()
        from .checking import check
        from .cuts import case_of

        for number, (kind, seed) in enumerate(cases):
            os.write(writing, f"{number}\n".encode())
            case = case_of(seed, kind, quick=True)
            steps = ("cut", "uncut") if case.tile else ("uncut",)
            case = case.with_(steps=("strategy",) if case.described else steps)
            for _ in range(TRIES if case.threads > 1 else 1):
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                outcome = check(case)
                if outcome.failed:
                    break
            if outcome.failed:
                os.write(writing, f"{number} {outcome.kind}: {outcome.symptom}\n".encode())
                status = _FOUND
                break
        else:
            status = _NOTHING
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def noted() -> dict[str, list[Finder]]:
    """The cases that find each fault, by the fault's name: one, or one for each kind of processor."""
    return {
        name: [(kind, seed) for kind, seed in cases]
        for name, cases in json.loads(NOTES.read_text()).items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Plants every fault; the exit status is 1 where one is not found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential.planting", description=__doc__
    )
    parser.add_argument("--search", type=int, metavar="N", help="cases of every kind to try")
    parser.add_argument("--kinds", metavar="A,B", help="the kinds to try, in turn; all by default")
    parser.add_argument("--missing", action="store_true", help="only faults without a note")
    parser.add_argument("--keep", action="store_true", help="leave the notes as they are")
    parser.add_argument("names", nargs="*", help="of faults; all by default")
    asked = parser.parse_args(arguments)
    from .kinds import KINDS

    kinds = asked.kinds.split(",") if asked.kinds else list(KINDS)
    notes: dict[str, Any] = dict(noted()) if NOTES.exists() else {}
    missed = 0
    for fault in FAULTS:
        if asked.names and fault.name not in asked.names:
            continue
        if asked.missing and fault.name in notes:
            continue
        before = notes.get(fault.name, [])
        more = [(kind, seed) for seed in range(asked.search or 0) for kind in kinds]
        found = found_by(fault, [*before, *more])
        missed += found is None
        sys.stdout.write(f"{fault.name}: {found or 'NOT FOUND'}\n")
        sys.stdout.flush()
        if found is not None and asked.search and not asked.keep and found[0] not in before:
            notes[fault.name] = [*before, found[0]]
            names = {one.name for one in FAULTS}
            kept = {name: notes[name] for name in sorted(notes) if name in names}
            lines = (f" {json.dumps(name)}: {json.dumps(cases)}" for name, cases in kept.items())
            NOTES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
