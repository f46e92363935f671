"""The rows of `offcut.core.functions` by name, and the names of functions with one argument, with two, and of floats alone."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.core import functions
from offcut.core.function import Function

FUNCTIONS: Mapping[str, Function] = {
    row.name: row for row in vars(functions).values() if isinstance(row, Function)
}
"""By the name in the text of programs."""
UNARY = tuple(name for name, row in FUNCTIONS.items() if row.arity == 1)
PAIRED = tuple(name for name, row in FUNCTIONS.items() if row.arity == 2)
OF_FLOATS = tuple(name for name, row in FUNCTIONS.items() if not row.integers)
PUBLIC = {row.public: row for row in FUNCTIONS.values() if row.public}
"""The rows that are functions of `offcut` and `offcut.ops`, by their name there."""
