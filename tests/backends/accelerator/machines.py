"""Machines of queues that tests run on: those that are shipped, and small ones of odd shapes."""

from __future__ import annotations

import re
from dataclasses import replace

from offcut import Schedule
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.costmodel import Accelerator
from tests.facade import load_machine


def shipped(name: str) -> Accelerator:
    machine = load_machine(name)
    assert isinstance(machine, Accelerator)
    return machine


def small(name: str = "vta", rows: int = 2, columns: int = 3, terms: int = 4) -> AcceleratorSpec:
    """A shipped machine with a small matrix unit, and a dozen or so words in each of its memories."""
    machine = shipped(name)
    words = {
        "micro-ops": 12 * machine.memory[0].line,
        "inputs": 13 * rows * terms,
        "weights": 11 * columns * terms,
        "accumulators": 14 * rows * columns * 4,
        "outputs": 14 * rows * columns,
    }
    memories = tuple(
        replace(one, bytes=max(words[operand] for operand in one.holds)) for one in machine.memory
    )
    units = tuple(replace(one, rows=rows, columns=columns, terms=terms) for one in machine.unit)
    return AcceleratorSpec.of(replace(machine, memory=memories, unit=units))


def in_one_window(schedule: Schedule) -> Schedule:
    """The same tiles, one window of everything."""
    text = re.sub(r" depth \d+", "", str(schedule))
    return Schedule.parse(text)
