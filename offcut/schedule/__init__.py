"""Schedules: decisions as data and their text, what applies them, and the primitives by hand."""

from typing import TYPE_CHECKING

from offcut.core.names import renamed_names
from offcut.schedule.application import Applied, Choice, VariantCostFunction, VariantResolver, apply
from offcut.schedule.apply.axes import Axis
from offcut.schedule.apply.covering import find_intrinsic
from offcut.schedule.apply.cut_program import LESS_TO_COMPARE, cut, cut_program
from offcut.schedule.apply.group_loops import ResolvedVariant, axis_cuts, min_nest_block_bytes
from offcut.schedule.apply.hand_schedule import HandSchedule, create_schedule, replay
from offcut.schedule.apply.hand_stage import Stage
from offcut.schedule.apply.staged_form import Nests
from offcut.schedule.apply.strategy_options import with_strategy_options
from offcut.schedule.decisions import (
    ANY,
    ANY_LANES,
    ANY_PRODUCTS,
    ANY_THREADS,
    ANY_TREE,
    VECTORS,
    Alternative,
    At,
    Bind,
    Choose,
    Cover,
    Fuse,
    Inline,
    Level,
    Order,
    Primitive,
    RFactor,
    Schedule,
    Separate,
    Split,
    SplitPair,
    Staging,
    Step,
    each_decision,
    is_of_loops,
    is_prepacked,
    loop_cuts,
    loop_name,
    panel_copies,
    schedule_of,
    split_names,
    split_of,
    stages_in,
    unit_splits,
)
from offcut.schedule.diagnostics import at_decision, check_once, with_source_line
from offcut.schedule.loop_names import EVERY, NO_LOOP, Binds, LoopNames, stages_of
from offcut.schedule.nest_decisions import (
    decisions_of,
    in_loops,
    with_orders_of_terms,
    with_parts,
    with_variants,
)
from offcut.schedule.nest_reader import decisions_about, hand_steps, nests_of, parts_of
from offcut.schedule.nests import (
    KernelAxes,
    LoopVariant,
    Nest,
    Pack,
    Together,
    nests_in,
    nests_with_axes,
)
from offcut.schedule.packing import beside, pack_of
from offcut.schedule.shared_loops import share_loops, with_shared
from offcut.schedule.stage_transforms import (
    conversion_stagings,
    position_of,
    transform_stages,
    value_staging,
    whole_stagings,
)
from offcut.schedule.user_cost_model import OwnPrice, with_user_costs

__all__ = [
    "ANY",
    "ANY_LANES",
    "ANY_PRODUCTS",
    "ANY_THREADS",
    "ANY_TREE",
    "EVERY",
    "LESS_TO_COMPARE",
    "NO_LOOP",
    "VECTORS",
    "Alternative",
    "Applied",
    "At",
    "Axis",
    "Bind",
    "Binds",
    "Choice",
    "Choose",
    "Cover",
    "Fuse",
    "HandSchedule",
    "Inline",
    "KernelAxes",
    "Level",
    "LoopNames",
    "LoopVariant",
    "Nest",
    "Nests",
    "Order",
    "OwnPrice",
    "Pack",
    "Primitive",
    "RFactor",
    "ResolvedVariant",
    "Schedule",
    "Separate",
    "Split",
    "SplitPair",
    "Stage",
    "Staging",
    "Step",
    "Together",
    "VariantCostFunction",
    "VariantResolver",
    "apply",
    "at_decision",
    "axis_cuts",
    "beside",
    "check_once",
    "conversion_stagings",
    "create_schedule",
    "cut",
    "cut_program",
    "decisions_about",
    "decisions_of",
    "each_decision",
    "find_intrinsic",
    "hand_steps",
    "in_loops",
    "is_of_loops",
    "is_prepacked",
    "loop_cuts",
    "loop_name",
    "min_nest_block_bytes",
    "nests_in",
    "nests_of",
    "nests_with_axes",
    "pack_of",
    "panel_copies",
    "parts_of",
    "position_of",
    "replay",
    "schedule_of",
    "share_loops",
    "split_names",
    "split_of",
    "stages_in",
    "stages_of",
    "transform_stages",
    "unit_splits",
    "value_staging",
    "whole_stagings",
    "with_orders_of_terms",
    "with_parts",
    "with_shared",
    "with_source_line",
    "with_strategy_options",
    "with_user_costs",
    "with_variants",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        {
            "ResolvedWay": "ResolvedVariant",
            "Resolving": "VariantResolver",
            "Way": "LoopVariant",
            "WayPrice": "VariantCostFunction",
            "with_ways": "with_variants",
        },
    )
