"""The folder of a run: what was compiled, as JSON and cubins, and the results, written after each stage."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offcut.backends.gpu.launches import LaunchPlan
from offcut.errors import OffcutError

INDEX = "kernels.json"
RESULTS = "results.json"


@dataclass(frozen=True)
class Prepared:
    """A kernel that was compiled for a run.

    name       such as ``dense 40×130 bfloat16 mask``
    stages     the stages that run it
    computes   what it computes, in `reference`: kernels of which this is equal give equal bits
    loops      the program, for the emulated device
    cubin      the file with the code; None: none was made
    predicted  seconds by the size n
    """

    name: str
    stages: tuple[str, ...]
    computes: Mapping[str, Any]
    plan: LaunchPlan
    loops: str
    cubin: str | None
    registers: Mapping[str, int]
    predicted: Mapping[int, float]

    def to_json(self) -> dict[str, Any]:
        """Return the record as dictionaries and lists."""
        return {**vars(self), "plan": self.plan.to_json()}

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> Prepared:
        """Return the record that `to_json` gave."""
        predicted = {int(n): seconds for n, seconds in held["predicted"].items()}
        stages = tuple(held["stages"])
        plan = LaunchPlan.from_json(held["plan"])
        return cls(**{**held, "plan": plan, "predicted": predicted, "stages": stages})


def write_index(folder: Path, kernels: list[Prepared], about: Mapping[str, Any]) -> None:
    """Write the kernels of a run."""
    index = {**about, "kernels": [kernel.to_json() for kernel in kernels]}
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def read_index(folder: Path) -> tuple[list[Prepared], dict[str, Any]]:
    """Return the kernels of a run, and what was said of all of them.

    Raises OffcutError for a folder in which nothing was prepared.
    """
    if not (folder / INDEX).exists():
        raise OffcutError(
            "bench",
            f"cannot run what is in {folder.name}",
            because=f"it has no {INDEX}",
            help=(f"python bench/gpu.py {folder.name} --prepare",),
        )
    about = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    return [Prepared.from_json(one) for one in about.pop("kernels")], about


@dataclass
class Results:
    """The results of a run, by stage; the file is written anew at each change."""

    file: Path
    held: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def begin(self, stage: str, **facts: Any) -> dict[str, Any]:
        """Return the record of a stage, which begins with these facts."""
        record: dict[str, Any] = {"began": round(time.monotonic() - self.began, 2), **facts}
        self.held[stage] = record
        self.flush()
        return record

    def flush(self) -> None:
        """Write what is there so far."""
        beside = self.file.with_suffix(".part")
        beside.write_text(json.dumps(self.held, indent=1), encoding="utf-8")
        beside.replace(self.file)
