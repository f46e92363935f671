"""How long what passes between the kernels of a model takes, by the memories of a machine: one model, of what a call costs and of the
choice of parts.

A kernel alone finds near what fits near. In a model it finds so what the kernel before has just written, and not the weights, since
all others were read in between. In cycles, of a step ``s`` that runs for ``c`` of a batch of ``n`` at a time::

    moves(s, c)  = moved(s) * rate(s, c) + parts(c) * (shared(s) * rate(s, c) + weights(s) * per_byte(all weights))
    enters(s, c) = read(s) * (rate(s, n) - rate(s, c))
    leaves(s, c) = written(s) * (rate(s, n) - rate(s, c))
    rate(s, c)   = per_byte(moved(s) * c / n + shared(s) + weights(s))
    per_byte(b)  = sum over memories m of (share(m, b) - share(m - 1, b)) / bytes per cycle of m
    share(m, b)  = min(1, bytes of m / b), 1 of main memory

``read`` and ``written`` are bytes of what is a part of the batch, ``moved`` both; ``shared`` of what all parts read and no kernel
holds, ``weights`` of what kernels hold; ``parts(c) = ceil(n / c)``. So many bytes that are gone through again and again come from each
memory by the share that it holds and a nearer one does not. A step that comes first of those that run so enters what a whole batch
left where that lies, and one that comes last leaves it there.

Source: the roofline of a hierarchy of memories (Williams et al., CACM 2009; Ilic et al., CAL 2014), with reuse distances (Mattson et
al., 1970) taken to be the bytes of the step that reads, and those of all weights: what passes by a step, as a residual does, is
taken to be as near.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offcut.costmodel import Machine
from offcut.describe.request import Array


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of each step for a whole batch, at one set of sizes.

    read     of inputs that are parts of the batch; moved: of these and of results that are
    shared   of all other arrays; weights: of constants that kernels hold
    """

    machine: Machine
    read: Array
    moved: Array
    shared: Array
    weights: Array

    @property
    def most(self) -> int:
        """Bytes of the greediest step."""
        return int((self.moved + self.shared + self.weights).max(initial=0))

    def cycles(self, counts: Array, total: int) -> tuple[Array, Array, Array]:
        """What each step moves, for each of some counts of a batch of `total` at a time; and what it enters, and leaves."""
        near = (self.shared + self.weights)[:, None]
        rate, whole = (
            self.per_byte(near + self.moved[:, None] * some // total)
            for some in (counts, np.array([total]))
        )
        again = self.shared[:, None] * rate
        again += self.weights[:, None] * self.per_byte(self.weights.sum())
        moves = self.moved[:, None] * rate + -(-total // counts) * again
        written = self.moved - self.read
        return moves, self.read[:, None] * (whole - rate), written[:, None] * (whole - rate)

    def per_byte(self, count: Array) -> Array:
        """Cycles for one of so many bytes that are gone through again and again."""
        cycles, there = np.zeros(np.shape(count)), np.zeros(np.shape(count))
        for level in self.machine.memory:
            share = np.minimum(1.0, level.bytes / np.maximum(count, 1))
            cycles += (share - there) / level.bytes_per_cycle
            there = share
        found: Array = cycles + (1 - there) / self.machine.dram.bytes_per_cycle
        return found
