"""One multiprocessor of a GPU as the core that the closed form prices."""

from __future__ import annotations

from dataclasses import replace

from offcut.costmodel import Device, Machine, load, processor
from offcut.costmodel.accelerator import Accelerator
from offcut.costmodel.machine import Core
from offcut.errors import TargetError

LANES = 32
"""Of a warp: what one instruction computes."""
SCHEDULERS = 4
"""Warps of which an instruction starts in a cycle."""
_CODE_BYTES = 128 * 1024
_SOURCE = "CUDA C++ Programming Guide, Hardware Implementation: four schedulers, each of 32 lanes; what is no rate of it: as `like`"
_LIKE = "cascade-lake"


def multiprocessor(device: Device) -> Machine:
    """Return a machine whose core is a multiprocessor of a GPU; what it does not state of loops is that of another description.

    Raises TargetError for a description that is of no GPU.
    """
    if not isinstance(device, Accelerator) or not device.architecture.startswith("sm_"):
        raise TargetError(
            "target",
            f"cannot plan for machine={device.name!r}",
            because=f"{device.title} is no GPU: its architecture is {device.architecture}",
            help=('oc.target("cuda", machine="h200")',),
        )
    engine = device.engine
    core = Core(
        count=engine.count,
        hertz=engine.hertz,
        issue=float(SCHEDULERS),
        multiply_adds=float(SCHEDULERS),
        loads=1.0,
        stores=1.0,
        latency_cycles=next((unit.latency_cycles for unit in device.unit), 4.0),
        code_bytes=_CODE_BYTES,
        source=_SOURCE,
    )
    return replace(
        processor(load(_LIKE)),
        name=device.name,
        title=device.title,
        architecture=device.architecture,
        features=(),
        memory=device.memory,
        dram=device.dram,
        unit=device.unit,
        energy=device.energy,
        core=core,
    )
