"""A computation whose stages run one after the other, each in loops of its own over a whole array."""

from __future__ import annotations

from dataclasses import replace

from offcut.core.program import Kind, Program
from offcut.describe.computation import Computation
from offcut.describe.source import source


def apart(computation: Computation) -> Program:
    """The program of `computation` with a nest for each stage: a step on the way to operations one by one."""
    groups = tuple((stage,) for group in computation.groups for stage in group)
    buffers = tuple(
        replace(buffer, kind=Kind.LOCAL) if buffer.kind is Kind.PRIVATE else buffer
        for buffer in computation.buffers
    )
    return source(replace(computation, groups=groups, buffers=buffers))
