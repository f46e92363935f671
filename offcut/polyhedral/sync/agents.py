"""The units of a machine, as far as the order of what they run is concerned: data that a target hands in.

A *unit* is a kind of agent: threads of a processor, the load unit of an accelerator, warpgroups of a block. An *agent*
is one of them: each iteration of a loop that is bound to a unit is one, and so is each block's own load unit. An agent
runs what is its own in the order of the text. An *engine* has no order of its own: whoever stands around issues its
tiles, one lane of it where there are several, and they end later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from offcut.core import index as ix
from offcut.core.expr import Expr, Var


class Ends(Enum):
    """The event that shows that an asynchronous tile of a unit has ended."""

    IN_ORDER = "in order"  # before the unit's next tile begins
    TOKEN = "token"  # what the unit arrives at behind it has the token only then
    GROUP = "group"  # who issued it waits until so many later ones at most are under way


@dataclass(frozen=True, slots=True)
class Unit:
    """A kind of agent.

    name      as `For.unit` and `Tile.unit` have it
    ends      how its asynchronous tiles are waited for
    engine    whether its tiles are issued by what stands around
    lanes     whether several lanes run what it runs, of which one issues an engine's tile
    in_order  whether its asynchronous tiles touch memory one after the other, whenever they end
    arrivals  the number of arrivals that one `arrive` of it makes: one a warp, say
    fence     the kind of fence that makes its asynchronous tiles see what ordinary stores wrote; "": none is needed
    fixed     whether agent k runs the iteration in which the iterator of a loop bound to it is k; False: any may run it
    """

    name: str
    ends: Ends = Ends.IN_ORDER
    engine: bool = False
    lanes: bool = False
    in_order: bool = False
    arrivals: int = 1
    fence: str = ""
    fixed: bool = True


@dataclass(frozen=True, slots=True)
class Agents:
    """The units of a machine.

    default  the unit that runs statements which no loop and no mark gives to another one
    queues   the pairs (source, target) of units between which tokens can go; None: any
    room     the number of tokens that such a queue has room for; None: as many as a program declares
    blocks   whether an arrival waits for room, as in a queue in hardware, which has to be empty at the end. Else a
             token is a phase of a barrier: nothing stops an arrival that comes too early, and what is left is dropped
    grid     the unit of which all agents begin anew with each outermost statement of a program; None: there is none
    own      the memories of which each agent has its own: no other agent touches a window there, and what it writes there needs no fence
    pitched  whether rows of a window lie at places that do not depend on its extents: each has room for the largest
    """

    units: tuple[Unit, ...]
    default: str
    queues: frozenset[tuple[str, str]] | None = None
    room: int | None = None
    blocks: bool = False
    pitched: bool = False
    grid: str | None = None
    own: frozenset[str] = frozenset()

    @property
    def by_name(self) -> Mapping[str, Unit]:
        """Return the units by name; a default one that is not listed is ordinary."""
        return {self.default: Unit(self.default), **{unit.name: unit for unit in self.units}}


def slot_of(loops: Sequence[tuple[str, Expr, Expr]], depth: int) -> Expr:
    """Return the slot, below `depth`, that a window takes in loops (name, lo, hi) around it, outermost first.

    Iterations of the innermost loop take slots in turn. The count goes on from one run of that loop to the next as far as
    trip counts are literals; where one is not, each run of the loop begins with slot 0.
    """
    number: Expr = ix.const(0)
    each = 1
    for name, lo, hi in reversed(loops):
        number = ix.add(number, ix.mul(each, ix.sub(Var(name), lo)))
        trips = ix.literal_value(ix.sub(hi, lo))
        each = 0 if trips is None else each * max(trips, 0) % depth
        if each == 0:
            break
    return ix.mod(number, depth)
