"""Axes and stages as a user names them, and the refusals when there is no such one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcut.describe.computation import Names
from offcut.errors import PartitionError
from offcut.schedule.apply.staged_form import Nest, Nests
from offcut.schedule.decisions import Fuse, SplitPair


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of a stage, as a primitive returns it; ``"yo"``, its name, says the same."""

    nest: str
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Target:
    """What a primitive works on: the loops of `nest` around the stores of `buffer`."""

    nests: Nests
    name: str
    buffer: str

    @property
    def nest(self) -> Nest:
        """Return the nest as it is now."""
        return self.nests.nest(self.name)

    @property
    def stage(self) -> str:
        """Return the name by which `find_stage` finds it: the buffer, where one nest alone writes it."""
        writes = sum(self.buffer in nest.stored_buffers for nest in self.nests.nests)
        return self.buffer if writes == 1 else self.name

    @property
    def loops(self) -> tuple[str, ...]:
        """Its loops, outermost first."""
        return self.nest.loops_of(self.buffer)

    def axes(self, op: str, *names: object) -> tuple[str, ...]:
        """Return the loops that `names` name.

        Raises PartitionError for one that is not a loop of this stage.
        """
        return tuple(self.axis(op, one) for one in names)

    def axis(self, op: str, value: object) -> str:
        """Return the loop that `value` names: its name, what the user called it, or an `Axis`."""
        loops = self.loops
        help = (f"loops of {self.buffer}: {', '.join(loops) or 'none'}",)
        if isinstance(value, Axis) and value.nest != self.name:
            raise PartitionError(
                op,
                f"cannot take {value.name} as an axis of {self.buffer}",
                at=f"stage {self.buffer}",
                because=f"it is an axis of {value.nest}",
                help=help,
            )
        name = value.name if isinstance(value, Axis) else value
        called = self._loops_of_axis(name, loops)
        if name in loops and (not called or name in called):
            return str(name)
        if len(called) == 1 and name not in loops:
            return called[0]
        raise PartitionError(
            op,
            f"cannot take {name if isinstance(name, str) else repr(name)} as an axis",
            at=f"stage {self.buffer}",
            because=self._missing(name, called),
            help=help,
        )

    def _loops_of_axis(self, name: object, loops: Sequence[str]) -> list[str]:
        """Return those of `loops` that the source has, and whose axis the user calls `name`."""
        labels = {
            loop: label for buffer, loop, label in self.nests.axis_labels if buffer == self.buffer
        }
        return [
            root.name
            for root in self.nest.roots
            if root.name in loops and labels.get(root.name, root.label) == name
        ]

    def _missing(self, name: object, called: list[str]) -> str:
        if name in self.loops and called:
            return (
                f"{self.buffer} calls the loop {called[0]} so, and another of its loops, which a stage "
                f"that it shares them with named, has that name"
            )
        if called:
            return f"several loops are called so: {', '.join(called)}"
        match self.nest.taken_apart(name) if isinstance(name, str) else None:
            case SplitPair(_, outer, inner):
                return f"it is split into {outer} and {inner}"
            case Fuse(_, outer, inner, fused):
                return f"{outer} and {inner} are fused into {fused}"
            case _:
                return f"{self.buffer} has no such loop"


def stage_names(nests: Nests) -> tuple[str, ...]:
    """Return the names of the stages, in order."""
    targets = (
        Target(nests, nest.name, buffer) for nest in nests.nests for buffer in nest.stored_buffers
    )
    return tuple(target.stage for target in targets)


def find_stage(nests: Nests, name: str) -> Target:
    """Return the stage of the buffer, or the nest, of that name.

    Raises PartitionError where there is none, or several write the buffer.
    """
    homes = [nest.name for nest in nests.nests if name in nest.stored_buffers]
    if len(homes) == 1:
        return Target(nests, homes[0], name)
    for nest in nests.nests if not homes else ():
        if nest.name == name:
            return Target(nests, name, nest.stored_buffers[0])
    raise PartitionError(
        "schedule",
        f"cannot tell the stage of {name}",
        because=f"{', '.join(homes)} write it" if homes else "no stage writes it",
        help=(f"stages: {', '.join(stage_names(nests))}",),
    )


def check_new(op: str, at: str, names: Names, *new_names: str) -> None:
    """Refuse a name for what a primitive makes that is no identifier, or that something has."""
    for name in new_names:
        because = ""
        if not (name.isidentifier() and name.isascii()):
            because = "a name is an ASCII identifier"
        elif names.fresh(name) != name:
            because = "something has that name"
        if because:
            raise PartitionError(op, f"cannot make {name}", at=at, because=because)
