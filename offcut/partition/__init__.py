"""Cutting loops: strategies, pieces, microkernels matched to them, and proofs.

``offcut.partition(…)`` is a call of `offcut.pipeline.partition`, which says what it takes.
"""

from offcut.partition.cut import (
    Tiles,
    axis_named,
    checked_request,
    checked_tiles,
    cut,
    cuts_of,
    labelled,
    users_of,
)
from offcut.partition.cutting import AxisCut, LoopCut, Made, tiles_alike
from offcut.partition.groups import GroupCut, all_matches, cut_group
from offcut.partition.legality import (
    LESS_TO_COMPARE,
    check_exact,
    check_marks,
    check_tiles,
    check_windows,
)
from offcut.partition.match import Match, matches
from offcut.partition.pieces import Partition, Piece, Users
from offcut.partition.programs import cut_program, pieces_of
from offcut.partition.separate import separate
from offcut.partition.settle import settled, without_covers
from offcut.partition.stages.conversion import conversions, converted, is_read_once, reading
from offcut.partition.stages.fusion import (
    Block,
    Shared,
    check_shared,
    fused,
    least_room,
    window,
    windowed,
    with_shared,
)
from offcut.partition.stages.staging import turned, with_copy, with_scratch
from offcut.partition.strategies.axis_proof import check_axis
from offcut.partition.strategies.catalog import (
    BALANCE,
    CUT,
    EXACT,
    GUARD,
    LADDER,
    MASK,
    MIX,
    PAD,
    RESIDUE,
    STRATEGIES,
    Strategy,
    StrategyLike,
    runs,
    runs_of,
    segments,
    strategy,
    strategy_named,
)
from offcut.partition.strategies.placing import Segment
from offcut.partition.strategies.tiled_axis import Take, TiledAxis

__all__ = [
    "BALANCE",
    "CUT",
    "EXACT",
    "GUARD",
    "LADDER",
    "LESS_TO_COMPARE",
    "MASK",
    "MIX",
    "PAD",
    "RESIDUE",
    "STRATEGIES",
    "AxisCut",
    "Block",
    "GroupCut",
    "LoopCut",
    "Made",
    "Match",
    "Partition",
    "Piece",
    "Segment",
    "Shared",
    "Strategy",
    "StrategyLike",
    "Take",
    "TiledAxis",
    "Tiles",
    "Users",
    "all_matches",
    "axis_named",
    "check_axis",
    "check_exact",
    "check_marks",
    "check_shared",
    "check_tiles",
    "check_windows",
    "checked_request",
    "checked_tiles",
    "conversions",
    "converted",
    "cut",
    "cut_group",
    "cut_program",
    "cuts_of",
    "fused",
    "is_read_once",
    "labelled",
    "least_room",
    "matches",
    "pieces_of",
    "reading",
    "runs",
    "runs_of",
    "segments",
    "separate",
    "settled",
    "strategy",
    "strategy_named",
    "tiles_alike",
    "turned",
    "users_of",
    "window",
    "windowed",
    "with_copy",
    "with_scratch",
    "with_shared",
    "without_covers",
]
