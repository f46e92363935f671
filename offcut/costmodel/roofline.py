"""The roofline of one core: what its units compute at most, by how often a byte that is read is used.

    attainable(i) = min(peak of the unit, i * bandwidth of the level)   operations per second
    ridge         = peak of the unit / bandwidth of the level           operations per byte

with an intensity i in operations per byte that comes from the level; a multiply–add is two. Below its ridge, a
level binds; from there on, the unit.

Source: Williams, Waterman & Patterson, "Roofline", CACM 2009; here with a line for each level of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcut.costmodel.device import Device, Unit


@dataclass(frozen=True, slots=True)
class Roofline:
    """Peaks and bandwidths of one core.

    peaks       of units, in operations per second
    bandwidths  of memories, from the core outwards, in bytes per second
    """

    peaks: tuple[tuple[Unit, float], ...]
    bandwidths: tuple[tuple[str, float], ...]

    def ridges(self, bandwidth: float) -> tuple[float, ...]:
        """Operations per byte from which on a memory of this bandwidth does not bind, by unit."""
        return tuple(peak / bandwidth for _, peak in self.peaks)

    def attainable(self, bandwidth: float, intensity: float) -> float:
        """Operations per second of the fastest unit, from a memory of this bandwidth."""
        return min(max(peak for _, peak in self.peaks), intensity * bandwidth)


def roofline(device: Device, units: Sequence[Unit]) -> Roofline:
    """The roofline of one core of a machine, of those of its units that are asked for."""
    rate = device.hertz
    return Roofline(
        tuple((unit, 2 * unit.multiply_adds * rate) for unit in units),
        tuple((level.name, level.bytes_per_cycle * rate) for level in device.levels),
    )
