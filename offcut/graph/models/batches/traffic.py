"""How long what passes between the kernels of a model takes, by the memories of a machine: one model, of what a call costs and of the
choice of parts.

A kernel alone finds near what fits near. In a model it finds so what the kernel before has just written, and not its weights, since
those of all others were read in between. In cycles, of a step ``s`` that runs for ``c`` of a batch of ``n`` at a time::

    passes(s, c) = read(s) * rate(s, c) + written(s) * stored(s, c) + parts(c) * shared(s) * rate(s, c)
    enters(s, c) = read(s) * (rate(s, n) - rate(s, c))
    leaves(s, c) = written(s) * (stored(s, n) - stored(s, c))
    holds(s)     = weights(s) * (sum over m of new(m, all weights) / speed(m))

    rate(s, c)   = sum over m of new(m, b) / speed(m)              b = (read(s) + written(s)) * c / n + shared(s) + weights(s)
    stored(s, c) = rate(s, c) + new(main memory, b) / speed(main memory)
    new(m, b)    = share(m, b) - share(m - 1, b)
    share(m, b)  = min(1, bytes of m / b), 1 of main memory

``m`` are the memories, the nearest first, and ``speed`` bytes per cycle of one. ``read`` and ``written`` are bytes of what is a part of the
batch, ``shared`` of what all parts read, ``weights`` of what a kernel holds; ``parts(c) = ceil(n / c)``. So many bytes ``b`` that are gone
through again and again come from each memory by the share that it holds and a nearer one does not; what is written there is read from
main memory first. A step that comes first of those that run so enters what a whole batch left where that lies, and one that comes last
leaves it there.

Source: transfers that add up, and lines that are read to be written, are of the ECM model (Treibig & Hager, 2009); by how much is read in between
(reuse distance: Mattson et al., 1970) we take the bytes of the step that reads. What passes by a step, as a residual does, is taken to be as near.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offcut.costmodel import Machine
from offcut.describe.request import Array


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of each step for a whole batch, at one set of sizes.

    read     of inputs that are parts of the batch; written: of results that are
    shared   of all other arrays; weights: of constants that kernels hold
    """

    machine: Machine
    read: Array
    written: Array
    shared: Array
    weights: Array

    @property
    def most(self) -> int:
        """Bytes of the greediest step."""
        return int((self.read + self.written + self.shared + self.weights).max(initial=0))

    @property
    def holds(self) -> Array:
        """Cycles in which each step reads its weights once."""
        caches, main = self._rates(self.weights.sum())
        hits: Array = self.weights * (caches + main)
        return hits

    def passes(self, counts: Array, total: int, caches: bool) -> tuple[Array, Array, Array]:
        """Cycles of what passes by each step, for each of some counts of a batch of `total` at a time; and of what it enters, and leaves.

        caches  whether what they give counts; else what main memory gives alone
        """
        near = (self.shared + self.weights)[:, None]
        moved = (self.read + self.written)[:, None]
        tried, main = self._rates(near + moved * np.array([*counts, total]) // total)
        rate = caches * tried + main
        stored = rate + main
        read, written, shared = self.read[:, None], self.written[:, None], self.shared[:, None]
        own, own_stored = rate[:, :-1], stored[:, :-1]
        passing = (read + -(-total // counts) * shared) * own + written * own_stored
        return passing, read * (rate[:, -1:] - own), written * (stored[:, -1:] - own_stored)

    def _rates(self, count: Array) -> tuple[Array, Array]:
        """Cycles for one of so many bytes that are gone through again and again: in which caches give it, and main memory."""
        cycles, there = np.zeros(np.shape(count)), np.zeros(np.shape(count))
        for level in self.machine.memory:
            share = np.minimum(1.0, level.bytes / np.maximum(count, 1))
            cycles += (share - there) / level.bytes_per_cycle
            there = share
        return cycles, (1 - there) / self.machine.dram.bytes_per_cycle
