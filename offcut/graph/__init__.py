"""Whole models: graphs of operators on arrays of symbolic shapes."""

from offcut.graph.build import Builder, rebuilt
from offcut.graph.graph import Argument, Bound, Graph, Node, Ref, Value
from offcut.graph.interpret import interpreted
from offcut.graph.known_rules import (
    joined_convolutions,
    joined_products,
    parts_of_one,
    widened_convolutions,
)
from offcut.graph.model import Model, compiled
from offcut.graph.rules import Rule, rule
from offcut.graph.split import Targets
from offcut.graph.substitute import Substituted, substituted
from offcut.graph.text import parse_graph

__all__ = [
    "Argument",
    "Bound",
    "Builder",
    "Graph",
    "Model",
    "Node",
    "Ref",
    "Rule",
    "Substituted",
    "Targets",
    "Value",
    "compiled",
    "interpreted",
    "joined_convolutions",
    "joined_products",
    "parse_graph",
    "parts_of_one",
    "rebuilt",
    "rule",
    "substituted",
    "widened_convolutions",
]
