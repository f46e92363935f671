"""Whole models: graphs of operators on arrays of symbolic shapes."""

from typing import TYPE_CHECKING

from offcut.core.names import renamed_names
from offcut.graph.builder import Builder, rebuilt
from offcut.graph.graph import Argument, Bound, Graph, Node, Ref, Value
from offcut.graph.interpret import interpret_graph
from offcut.graph.models.compile_graph import compile_graph
from offcut.graph.models.compiling.split import Targets
from offcut.graph.models.cost import ModelCost, ModelPlan
from offcut.graph.models.model import Model
from offcut.graph.sizes import extents
from offcut.graph.substitution.rewrite_search import (
    Substituted,
    joined_convolutions,
    joined_products,
    parts_of_one,
    search_rewrites,
    widened_convolutions,
)
from offcut.graph.substitution.rules import Rule, rule
from offcut.graph.text import parse_graph

__all__ = [
    "Argument",
    "Bound",
    "Builder",
    "Graph",
    "Model",
    "ModelCost",
    "ModelPlan",
    "Node",
    "Ref",
    "Rule",
    "Substituted",
    "Targets",
    "Value",
    "compile_graph",
    "extents",
    "interpret_graph",
    "joined_convolutions",
    "joined_products",
    "parse_graph",
    "parts_of_one",
    "rebuilt",
    "rule",
    "search_rewrites",
    "widened_convolutions",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        {
            "compiled": "compile_graph",
            "interpreted": "interpret_graph",
            "substituted": "search_rewrites",
        },
    )
