"""Cutting loops: strategies, pieces, microkernels matched to them, and proofs."""

from offcut.partition.cut import (
    GroupCut,
    all_matches,
    axis_named,
    check_legal,
    cut,
    cut_group,
    program_of,
    prove,
    strategy_named,
)
from offcut.partition.match import Match, matches
from offcut.partition.nest import AxisCut
from offcut.partition.pieces import Partition, Piece
from offcut.partition.prove import (
    Certificate,
    Theorem,
    check_divides,
    interval_text,
    owned_set,
)
from offcut.partition.strategies import Segment, Strategy, segments
from offcut.partition.verify import check_program

__all__ = [
    "AxisCut",
    "Certificate",
    "GroupCut",
    "Match",
    "Partition",
    "Piece",
    "Segment",
    "Strategy",
    "Theorem",
    "all_matches",
    "axis_named",
    "check_divides",
    "check_legal",
    "check_program",
    "cut",
    "cut_group",
    "interval_text",
    "matches",
    "owned_set",
    "program_of",
    "prove",
    "segments",
    "strategy_named",
]
