"""The microkernels that a host can run: the list of the files that declare them.

Each declares what it computes, how its operands lie and what it costs, and writes its functions; one
more is one more file, and its name here.
"""

from __future__ import annotations

from functools import cache
from itertools import chain

from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels import (
    amx,
    bf16_dots,
    external,
    fma,
    madd,
    vnni,
    widened_operand,
)
from offcut.backends.cpu.microkernels.family import Family

DECLARED = (fma, widened_operand, vnni, madd, bf16_dots, amx, external)


@cache
def families(host: Host) -> tuple[Family, ...]:
    """What this host can run."""
    return tuple(chain.from_iterable(file.families(host) for file in DECLARED))
