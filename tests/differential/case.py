"""One case: a program, how it is cut and compiled, and where it runs; as JSON, and as text to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

Tile = int | tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A program and a request.

    kind       the generator of `kinds` that wrote it
    text       the loop program
    described  Python that makes the same computation of `oc`: `result`, and `inputs` in order
    steps      what is tried: ``uncut``, ``run`` (a partition's own), ``cut`` (it compiled), ``strategy``
    sizes      at which it runs
    data       what floats hold
    verify     whether what is compiled is proved again, from its text
    layouts    how the inputs and results lie in memory, in turn
    """

    kind: str
    seed: int
    text: str
    described: str = ""
    steps: tuple[str, ...] = ("uncut", "run", "cut")
    tile: Mapping[str, Tile] = field(default_factory=dict)
    tail: Mapping[str, str] | str = field(default_factory=dict)
    copies: int | None = None
    strategy: str = "auto"
    threads: int = 1
    mask: str = ""
    emulated: bool = False
    verify: bool = False
    sizes: tuple[Mapping[str, int], ...] = ()
    data: str = "whole"
    layouts: tuple[str, ...] = ("rows",)

    def with_(self, **changes: Any) -> Case:
        return replace(self, **changes)

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @property
    def partition(self) -> str:
        """The call that cuts it."""
        options = {"tile": dict(self.tile), "tail": self.tail, "copies": self.copies}
        said = ", ".join(f"{name}={value!r}" for name, value in options.items() if value)
        what = "result" if self.described else "p"
        return f"oc.partition({what}{', ' if said else ''}{said})"

    @property
    def where(self) -> str:
        """What of the machine it asks for."""
        options = {
            "threads": self.threads if self.threads != 1 else None,
            "OFFCUT_HIDE_FEATURES": self.mask,
            "emulated AMX": self.emulated,
            "OFFCUT_VERIFY": int(self.verify),
        }
        return ", ".join(f"{name}: {value}" for name, value in options.items() if value)


def load(text: str) -> Case:
    """The case that `Case.dump` wrote."""
    fields = json.loads(text)
    tile = fields["tile"]
    fields["tile"] = {n: tuple(t) if isinstance(t, list) else t for n, t in tile.items()}
    for name in ("steps", "sizes", "layouts"):
        fields[name] = tuple(fields[name])
    return Case(**fields)


@dataclass(frozen=True)
class Outcome:
    """What became of a case, `worst` of its steps.

    kind     ok, refused, wrong, error, late, crash, or skipped: its program has no meaning
    step     the step at which
    symptom  a line that is equal for failures of one cause, as far as one can tell
    detail   everything known about it
    seconds  of processor time
    """

    kind: str
    step: str = ""
    symptom: str = ""
    detail: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.kind in ("wrong", "error", "late", "crash")

    def alike(self, other: Outcome) -> bool:
        """Whether both fail in the same way."""
        return (self.kind, self.step, self.symptom) == (other.kind, other.step, other.symptom)
