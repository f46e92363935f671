"""What a schedule says of nests: read as tilings, and refused by its line where it is none of them."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.accelerator.microkernels import product_name
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.loops import Tiling
from offcut.backends.accelerator.planning.regrouped import is_regrouping
from offcut.backends.accelerator.planning.roles import Roles
from offcut.backends.accelerator.planning.windows import lanes
from offcut.backends.accelerator.spec import Spec
from offcut.describe.computation import Computation
from offcut.errors import PartitionError
from offcut.partition import LADDER, PAD, AxisCut
from offcut.schedule import Cover, Nest, Schedule, Way, Words
from offcut.schedule.refusing import at_line

LABEL = "chip"
"""What the policy calls its way of a nest."""


def way_of(made: Operations, tiling: Tiling, spec: Spec, label: str = LABEL) -> Way:
    """What a schedule says of a way to run a nest."""
    words = lanes(made, spec)
    splits = tuple(
        AxisCut(axis, PAD if axis in words else LADDER, size) for axis, size in tiling.tiles
    )
    return Way(
        label,
        None,
        cover_of(made, spec),
        None,
        splits,
        tiling.order,
        depth=tiling.depth,
        words=words_of(made),
    )


def labels(ways: Sequence[Roles]) -> list[str]:
    """What the policy calls the ways of a nest: of several, by the axes along which their words lie."""
    if len(ways) == 1:
        return [LABEL]
    lanes = ((roles.rows, roles.columns, roles.depth) for roles in ways)
    found = ["_".join((LABEL, *(axis for axis in one if axis is not None))) for one in lanes]
    return [
        one if found.count(one) == 1 else f"{one}_{number}" for number, one in enumerate(found, 1)
    ]


def cover_of(made: Operations, spec: Spec) -> Cover | None:
    """The microkernel that sums of a nest run on; None where they are no products along terms."""
    roles = made.roles
    if roles.depth is None:
        return None
    return Cover(product_name(spec), roles.rows, roles.columns, roles.depth)


def words_of(made: Operations) -> Words | None:
    """Along which axes its words lie, where no cover says so."""
    roles = made.roles
    return Words(roles.rows, roles.columns) if roles.depth is None else None


def roles_of(way: Way) -> Roles | None:
    """The axes in lanes that a schedule asks for; None where it leaves them open."""
    if way.cover is not None:
        return Roles(way.cover.rows, way.cover.columns, way.cover.depth)
    return None if way.words is None else Roles(way.words.rows, way.words.columns)


def nests_of(schedule: Schedule, computation: Computation) -> dict[str, Nest]:
    """The nests of a schedule by stage.

    Raises PartitionError, with the line, for what is no nest of the computation.
    """
    groups = computation.groups
    known = [group[0].buffer for group in groups if not is_regrouping(group, computation)]
    found: dict[str, Nest] = {}
    for step in schedule.steps:
        with at_line(schedule, step):
            if not isinstance(step, Nest):
                raise _refused("a machine of queues takes nests alone")
            if step.stage not in known:
                raise _refused(f"the nests are {', '.join(known)}")
            if step.stage in found:
                raise _refused("it stands there twice")
            names = [way.label for way in step.ways]
            if len(set(names)) < len(names):
                raise _refused(f"two of its ways have one name: {' '.join(names)}")
        found[step.stage] = step
    return found


def tiling_of(schedule: Schedule, way: Way, made: Operations, spec: Spec) -> Tiling:
    """What a way of a nest says of its loops.

    Raises PartitionError, with the line, for what the machine does not do.
    """
    axes = {axis.name for axis in (*made.axes, *made.terms)}
    terms = {axis.name for axis in made.terms}
    cover = cover_of(made, spec)
    if way.cover != cover:
        with at_line(schedule, way if way.cover is None else way.cover):
            raise _refused(_covered(cover))
    own = words_of(made)
    if way.words is not None and way.words != own:
        with at_line(schedule, way.words):
            raise _refused(_laid(own))
    for cut in way.splits:
        with at_line(schedule, cut):
            _check_split(cut, axes, lanes(made, spec), way)
    with at_line(schedule, way):
        if way.cost is not None or way.pack is not None or way.inner:
            raise _refused("a way has a cover or words, splits, loops and a depth here, no more")
        for axis in way.loops:
            if axis not in axes:
                raise _refused(f"it loops over {axis}, and the axes are {_listed(axes)}")
        if len(set(way.loops)) < len(way.loops):
            raise _refused(f"it loops twice over an axis: {' '.join(way.loops)}")
        ends = [axis in terms for axis in way.loops]
        if ends != sorted(ends):
            raise _refused(
                f"of its loops {' '.join(way.loops)}, those over terms stand inside of those over "
                "results: accumulators keep the sums"
            )
    if way.depth is not None:
        axis, windows = way.depth
        with at_line(schedule, way.depth):
            if axis not in way.loops or axis in terms or windows < 2:
                raise _refused(
                    f"windows take turns in a loop over tiles of results, two or more, got {axis} {windows}",
                    "without this line, one window of everything",
                )
    words, cuts = lanes(made, spec), {cut.axis: cut.tile for cut in way.splits}
    tiles = tuple((axis, cuts.get(axis, words.get(axis, 1))) for axis in way.loops)
    return Tiling(tiles, way.loops, way.depth)


def _check_split(cut: AxisCut, axes: set[str], words: dict[str, int], way: Way) -> None:
    """Refuse a split of an axis that there is not, by another strategy, or of parts of words."""
    axis, lanes_ = cut.axis, words.get(cut.axis, 1)
    if axis not in axes:
        raise _refused(f"the axes are {_listed(axes)}")
    if axis not in way.loops:
        raise _refused("no loop runs over its tiles", f"loops {' '.join((*way.loops, axis))}")
    if sum(other.axis == axis for other in way.splits) > 1:
        raise _refused(f"{axis} is split twice")
    if cut.tile < 1:
        raise _refused(
            f"a tile has iterations, got {cut.tile}", f"a multiple of {lanes_}, at least that"
        )
    if cut.tile % lanes_:
        raise _refused(f"{axis} runs along words of {lanes_}", f"a multiple of {lanes_}")
    strategy, why = LADDER, "is no axis of words: its tail is a tile of its height"
    if axis in words:
        strategy, why = PAD, "runs along words: the last one is filled with zeros"
    if cut != AxisCut(axis, strategy, cut.tile):
        raise _refused(f"{axis} {why}", f"split {axis} {strategy} {cut.tile}")


def _covered(cover: Cover | None) -> str:
    """What covers sums of a nest, as a schedule has it."""
    if cover is None:
        return "nothing covers it: it has no sum of products along terms"
    sides = (("rows", cover.rows), ("columns", cover.columns), ("depth", cover.depth))
    said = " ".join(f"{name} {axis}" for name, axis in sides if axis is not None)
    return f"its sums are covered by {cover.microkernel} {said}"


def _laid(words: Words | None) -> str:
    """Along what the words of a nest lie, as a schedule has it."""
    if words is None:
        return "its cover says along which axes words lie"
    given = (("rows", words.rows), ("columns", words.columns))
    said = "".join(f" {name} {axis}" for name, axis in given if axis is not None)
    return f"no words of it lie so, but words{said}"


def _listed(axes: set[str]) -> str:
    return ", ".join(sorted(axes))


def _refused(because: str, *help: str) -> PartitionError:
    return PartitionError("schedule", "cannot cut a nest so", because=because, help=help)
