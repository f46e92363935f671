"""What a program was traced under, beside what its shapes say: on which sizes the branches that its module took depend.

Torch's own guards say more than that: most are of how tensors lie in memory, which results do not depend on. So the branches are
noted where Python takes them: in files of the module's, and in torch's own layers; and sizes where torch itself takes them for
numbers, as it does to count the chunks that `split` gives, or calculates otherwise beyond some number, as `cdist` does beyond 25 rows.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode

from offcut.plugins.torch.entry_replacement import replace_entries
from offcut.plugins.torch.sizes import is_size_symbol, sympy_of, values_of

_HOLDS: Mapping[Any, Callable[[float, float], bool]] = {
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
    sympy.Lt: operator.lt,
    sympy.Le: operator.le,
    sympy.Gt: operator.gt,
    sympy.Ge: operator.ge,
}


_TORCH = str(Path(torch.__file__).parent)
_LAYERS = str(Path(torch.nn.__file__).parent)


class GuardError(Exception):
    """A call for which a program was not traced."""


class Conditions:
    """Of one traced program: its guards, and that each extent of an argument is the expression that the program has for it.

    inputs     the placeholders that are not known
    branches   conditions that held
    shape_env  that they were traced in; None where all sizes are numbers
    """

    def __init__(self, inputs: Iterable[Any], branches: Iterable[Any], shape_env: Any) -> None:
        extents = [
            (node, axis, sympy_of(extent))
            for node in inputs
            if isinstance(node.meta["val"], torch.Tensor)
            for axis, extent in enumerate(node.meta["val"].shape)
        ]
        self._places = tuple((node, axis) for node, axis, _ in extents)
        self._extents = values_of([extent for *_, extent in extents])
        self.nodes = frozenset(node for node, _ in self._places)
        guards = () if shape_env is None else _relations(branches, shape_env)
        self._guards = tuple(_HOLDS[type(one)] for one in guards)
        self._sides = values_of([side for one in guards for side in one.args])

    @property
    def has_guards(self) -> bool:
        """Return whether the program branches on sizes."""
        return bool(self._guards)

    def check(self, values: Mapping[Any, Any], sizes: Mapping[str, int]) -> None:
        """Raises Unlike where the sizes of a call are not such."""
        if tuple([values[node].shape[axis] for node, axis in self._places]) != self._extents(sizes):
            raise GuardError
        try:
            sides = iter(self._sides(sizes))
        except (
            ArithmeticError,
            TypeError,
        ):  # a size that is divided by is 0, or no number comes of them
            raise GuardError from None
        for holds in self._guards:
            if not holds(next(sides), next(sides)):
                raise GuardError


def _relations(branches: Iterable[Any], shape_env: Any) -> Sequence[Any]:
    """The conditions that are not true in any case; what depends on data is checked elsewhere."""
    relations: dict[Any, None] = {}
    for branch in branches:
        relation = shape_env.replace(branch)
        if type(relation) in _HOLDS and all(map(is_size_symbol, relation.free_symbols)):
            relations[relation] = None
    return tuple(relations)


@contextmanager
def record_branches() -> Iterator[list[Any]]:
    """The conditions on sizes by which a module branches, inside, each as it held; and the sizes that are numbers, each as that.

    A float of sizes that is a number makes one of each of them.
    """
    conditions: list[Any] = []
    bool_of, counted, measured = torch.SymBool.__bool__, SymNode.guard_int, SymNode.guard_float
    guard_bool = SymNode.guard_bool

    def record_bool(condition: Any) -> bool:
        file = sys._getframe(1).f_code.co_filename
        value: bool = bool_of(condition)
        if file.startswith(_LAYERS) or not file.startswith(_TORCH):
            expr = condition.node.expr
            conditions.append(expr if value else sympy.Not(expr))
        return value

    def noted_bound(condition: Any, file: str, line: int) -> bool:
        expr, value = condition.expr, guard_bool(condition, file, line)
        if _is_bound(expr):
            conditions.append(expr if value else sympy.Not(expr))
        return bool(value)

    def noted_number(size: Any, file: str, line: int) -> int:
        expr, value = size.expr, counted(size, file, line)
        if not expr.is_Symbol:  # which is a number from here on
            conditions.append(sympy.Eq(expr, value))
        return int(value)

    def noted_float(size: Any, file: str, line: int) -> float:
        values = size.shape_env.backed_var_to_val
        symbols = (one for one in size.expr.free_symbols if one in values)
        conditions.extend(sympy.Eq(one, values[one]) for one in symbols)
        return float(measured(size, file, line))

    guards = {"guard_int": noted_number, "guard_float": noted_float, "guard_bool": noted_bound}
    with (
        replace_entries(torch.SymBool, {"__bool__": record_bool}),
        replace_entries(SymNode, guards),
    ):
        yield conditions


def _is_bound(condition: Any) -> bool:
    """Return whether a condition says that a size is below a number, or above: one that no question of how a tensor lies in memory has."""
    if not isinstance(condition, sympy.Lt | sympy.Le | sympy.Gt | sympy.Ge):
        return False
    size, number = condition.canonical.args
    return bool(size.is_Symbol and number.is_Integer and number > 2)
