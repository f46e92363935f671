"""Values of extents at sizes: each found once, or all at once by one function of the sizes.

Extents as hosts know them: a number where an extent is one, else an index expression in the form of all extents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var
from offcut.core.extents import APPLIED
from offcut.core.memo import lazy_property
from offcut.core.program import Size
from offcut.graph.sizes import extents


class Numbers:
    """The values of extents at sizes, each found once.

    values  that are known already; places: which of them an extent has, by the identities of extents that outlive this
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        values: Sequence[int] = (),
        places: Mapping[int, int] | None = None,
    ) -> None:
        self.values, self._places = values, places or {}
        self.known: dict[Expr, int] = {Var(name): value for name, value in sizes.items()}

    @lazy_property
    def array(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the values that are known already.

        Raises OverflowError where one is 2**63 or more.
        """
        return np.array(self.values, np.int64)

    def __call__(self, extent: Expr) -> int:
        """Return the value of an extent."""
        place = self._places.get(id(extent))
        if place is not None:
            return self.values[place]
        value = self.known.get(extent)
        if value is None:
            value = self.known[extent] = self._value_of(extent)
        return value

    def _value_of(self, extent: Expr) -> int:
        match extent:
            case Const(value, _):
                return int(value)
            case Binary(op, a, b):
                return APPLIED[op](self(a), self(b))
            case _:
                raise ValueError(f"no extent: {extent}")


class Valued:
    """Extents whose values are asked for again and again, at other sizes: by one function of the sizes.

    extents  over the sizes
    sizes    their names
    """

    def __init__(self, extents: Iterable[Expr], sizes: Sequence[str]) -> None:
        self.extents = tuple(extents)
        self.sizes = tuple(sizes)
        self._distinct = {extent: place for place, extent in enumerate(dict.fromkeys(self.extents))}
        self._places = {id(extent): self._distinct[extent] for extent in self.extents}
        names = {name: f"s{number}" for number, name in enumerate(self.sizes)}
        parts = "".join(f"{_text(extent, names)}, " for extent in self._distinct)
        text = f"lambda {', '.join(names.values())}: ({parts})"
        self.function: Callable[..., tuple[int, ...]] = eval(
            text, {"__builtins__": {}, "min": min, "max": max}
        )

    def __call__(self, sizes: Mapping[str, int]) -> Numbers:
        """Return the values at sizes."""
        values = self.function(*(sizes[name] for name in self.sizes))
        return Numbers(sizes, values, self._places)

    def place(self, extent: Expr) -> int:
        """Where the value of one of the extents stands among all."""
        return self._distinct[extent]


def _text(extent: Expr, names: Mapping[str, str]) -> str:
    match extent:
        case Const(value, _):
            return str(int(value))
        case Var(name):
            return names[name]
        case Binary("min" | "max" as op, a, b):
            return f"{op}({_text(a, names)}, {_text(b, names)})"
        case Binary(op, a, b) if op in APPLIED:
            return f"({_text(a, names)} {op} {_text(b, names)})"
        case _:
            raise ValueError(f"no extent: {extent}")


Extent: TypeAlias = "Expr | int"


def plain(value: Extent) -> Extent:
    """Return an extent in the form of all extents, a number where it is one."""
    normal = extents.normal(value)
    return int(normal.value) if isinstance(normal, Const) else normal


def extent(*parts: Extent) -> Extent:
    """Return the sum of extents."""
    total: Expr = ix.const(0)
    for part in parts:
        total = Binary("+", total, ix.index(part))
    return plain(total)


def arithmetic(op: str, a: Extent, b: Extent) -> Extent:
    """Return ``a op b`` of extents: one of ``+ - * // % min max``."""
    return plain(Binary(op, ix.index(a), ix.index(b)))


def product(values: Iterable[Extent]) -> Extent:
    """Return the product of extents; 1 of none."""
    return plain(extents.product(map(ix.index, values)))


TYPICAL = 64
"""Of a size; one of a narrower range takes its nearest."""


def typical_sizes(sizes: Sequence[Size]) -> dict[str, int]:
    """A value for each size."""
    return {size.name: _typical(size) for size in sizes}


def _typical(size: Size) -> int:
    near = min(max(TYPICAL, size.min), size.max)
    return near - near % size.multiple_of
