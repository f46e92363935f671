"""Which target runs a region: the first of several that takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from offcut.backends.target import Target
from offcut.errors import DescribeError, OffcutError
from offcut.kernel import Kernel

Targets: TypeAlias = str | Target | Sequence[str | Target]
"""A target, or several: a region runs on the first that takes it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The kernel of a region.

    target   the name of what runs it
    refused  the targets before, by name, and why they do not
    """

    kernel: Kernel
    target: str
    refused: tuple[tuple[str, str], ...] = ()


def every(targets: Targets) -> tuple[str | Target, ...]:
    """The targets, in order.

    Raises DescribeError where there is none.
    """
    found = (targets,) if isinstance(targets, str | Target) else tuple(targets)
    if not found:
        raise DescribeError(
            "graph",
            "cannot compile for target=()",
            because="there is no target in it",
            help=('target="cpu"', 'target=("vta", "cpu")'),
        )
    return found


def taken(targets: Targets, made: Callable[[str | Target], Kernel]) -> Taken:
    """The kernel of the first target that `made` makes one for; the last one's refusal is raised.

    Raises what `made` does for the last target.
    """
    *before, last = every(targets)
    refused: list[tuple[str, str]] = []
    for target in before:
        try:
            return Taken(made(target), name_of(target), tuple(refused))
        except OffcutError as refusal:
            refused.append((name_of(target), refusal.because))
    return Taken(made(last), name_of(last), tuple(refused))


def name_of(target: str | Target) -> str:
    """What a plan calls a target."""
    return target if isinstance(target, str) else target.name
