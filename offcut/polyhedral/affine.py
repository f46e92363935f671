"""Convert index expressions and conditions to isl text, and build sets from them.

isl never sees a user's name: sizes become p0, p1, … and coordinates x0, x1, … by position, so that
a size called ``i`` or ``mod`` is a size. isl decides quasi-affine facts only; what is not
quasi-affine has no text here (None), and the caller says what that means for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import NamedTuple

import islpy as isl

from offcut.core.expr import Binary, Compare, Const, Expr, Logic, Var, variables
from offcut.core.index import known_divisor, sub, to_linear
from offcut.core.memo import lazy_property, memo
from offcut.core.program import MAX_SIZE, Size
from offcut.describe.computation import Computation

Set = isl.Set
Map = isl.Map


@memo(1 << 12)
def parse_set(text: str) -> isl.Set:
    """Return the set of a text in isl's syntax."""
    return isl.Set(text)


@memo(1 << 12)
def parse_map(text: str) -> isl.Map:
    """Return the relation of a text in isl's syntax."""
    return isl.Map(text)


@memo(1 << 12)
def parse_function(text: str) -> isl.PwMultiAff:
    """Return the function of a text in isl's syntax."""
    return isl.PwMultiAff(text)


_ALL_OF = {"<": ("max", "min"), "<=": ("max", "min"), ">": ("min", "max"), ">=": ("min", "max")}
"""Of ``a op b``: the operation on either side that makes it hold for each operand."""


def coordinates(axes: Sequence[str]) -> dict[str, str]:
    """Return isl's names of the coordinates: x0, x1, … by position."""
    return {axis: f"x{k}" for k, axis in enumerate(axes)}


@dataclass(frozen=True)
class Space:
    """The sizes of a computation and the promises about them.

    sizes        give the parameters p0, p1, … of every set
    assumptions  quasi-affine conditions over the sizes
    """

    sizes: tuple[Size, ...]
    assumptions: tuple[Expr, ...] = ()
    _names: dict[str, str] = field(init=False, repr=False, compare=False, hash=False)

    def __hash__(self) -> int:
        return self._hash

    @lazy_property
    def _hash(self) -> int:
        return hash((self.sizes, self.assumptions))

    def __post_init__(self) -> None:
        names = {size.name: f"p{k}" for k, size in enumerate(self.sizes)}
        object.__setattr__(self, "_names", names)

    @lazy_property
    def minima(self) -> dict[str, int]:
        """Return the least value of each size."""
        return {size.name: size.min for size in self.sizes}

    @lazy_property
    def parameters(self) -> str:
        """Return ``[p0, p1] -> ``, the head of every set."""
        return f"[{', '.join(self._names.values())}] -> "

    @lazy_property
    def context(self) -> isl.Set:
        """Return the parameter set of all sizes that facts and assumptions allow."""
        return parse_set(f"{self.parameters}{{ : {self.facts} }}")

    @lazy_property
    def facts(self) -> str:
        """Return the facts and assumptions as isl text."""
        parts = []
        for size in self.sizes:
            p = self._names[size.name]
            # Without the largest size there is: what holds for more sizes holds for these.
            upper = f" <= {size.max}" if size.max < MAX_SIZE else ""
            parts.append(f"{size.min} <= {p}{upper}")
            if size.multiple_of != 1:
                parts.append(f"{p} mod {size.multiple_of} = 0")
        texts = (self.condition(fact, {}) for fact in self.assumptions)
        return " and ".join([*parts, *(text for text in texts if text is not None)]) or "true"

    def expr(self, expr: Expr, axes: Mapping[str, str]) -> str | None:
        """`expr` as isl text over the sizes and `axes` (name, isl's name); None where it is no
        quasi-affine index: the arithmetic of elements rounds and wraps.
        """
        match expr:
            case Const(value, "index"):
                return str(int(value))
            case Var(name):
                return axes.get(name) or self._names.get(name)
            case Binary("*", a, b):
                factor, other = (a, b) if not to_linear(a).terms else (b, a)
                form, x = to_linear(factor), self.expr(other, axes)
                return None if form.terms or x is None else f"{form.const}*({x})"
            case Binary(("//" | "%") as op, a, Const(value, _)):
                x = self.expr(a, axes)
                text = "floor(({0})/{1})" if op == "//" else "(({0}) mod {1})"
                return text.format(x, value) if x and value > 0 else None
            case Binary(("+" | "-" | "min" | "max") as op, a, b):
                x, y = self.expr(a, axes), self.expr(b, axes)
                if x is None or y is None:
                    return None
                return f"({x} {op} {y})" if op in "+-" else f"{op}({x}, {y})"
            case _:
                return None

    def condition(self, expr: Expr, axes: Mapping[str, str]) -> str | None:
        """Return a condition as isl text; None if a part of it is not quasi-affine."""
        match expr:
            case Const(value, "bool"):
                return "true" if value else "false"
            case Compare(op, a, b):
                # ``max(p, q) <= x`` is both of ``p <= x`` and ``q <= x``: one piece, not two.
                left, right = _ALL_OF.get(op, ("", ""))
                xs = [self.expr(part, axes) for part in _parts(a, left)]
                ys = [self.expr(part, axes) for part in _parts(b, right)]
                if None in xs or None in ys:
                    return None
                word = "=" if op == "==" else op
                each = [f"({x} {word} {y})" for x in xs for y in ys]
                return each[0] if len(each) == 1 else f"({' and '.join(each)})"
            case Logic("not", (arg,)):
                text = self.condition(arg, axes)
                return None if text is None else f"not ({text})"
            case Logic(op, args):
                texts = [self.condition(arg, axes) for arg in args]
                if any(text is None for text in texts):
                    return None
                return "(" + f" {op} ".join(f"({text})" for text in texts) + ")"
            case _:
                return None

    def set(self, axes: Collection[str], conditions: Iterable[str]) -> isl.Set:
        """Return ``{ [axes] : facts and conditions }``."""
        xs = ", ".join(f"x{k}" for k in range(len(axes)))
        points = f"{self.parameters}{{ [{xs}] : {' and '.join(conditions) or 'true'} }}"
        return parse_set(points).intersect_params(self.context)


def space_of(computation: Computation) -> Space:
    """Return the sizes and promises of a computation."""
    return Space(computation.sizes, computation.assumptions)


@memo(1 << 14)
def coefficient(part: Expr, axis: str) -> int | None:
    """Return the factor of `axis` in an affine index; None if it occurs inside ``//``, ``%``, min, max."""
    total = 0
    for atom, factor in to_linear(part).terms:
        if atom == Var(axis):
            total += factor
        elif axis in variables(atom):
            return None
    return total


class Spacing(NamedTuple):
    """The positions of adjacent lanes in an index: groups of `share` lanes have one position, and groups are `step` apart."""

    share: int
    step: int


SAME, NEXT, BACK = Spacing(1, 0), Spacing(1, 1), Spacing(1, -1)


@memo(1 << 14)
def spacing(part: Expr, axis: str, width: int, multiple: int) -> Spacing | None:
    """Return the spacing of adjacent lanes along `axis` in an index; None if groups are partial or unequal.

    ``2*i`` has shares of 1 and a step of 2, ``i // 2 + 5`` shares of 2 and a step of 1, ``4*(i//4) + 2`` of 4 and 4. What moves no
    lane is `SAME`.

    width     of the lanes; multiple  of what the first one's coordinate is known to be
    """
    count = max(width, 2)  # one lane lies as if a second followed it
    offsets = [0] * count
    for atom, factor in to_linear(part).terms:
        atom_offsets = _offsets(atom, axis, width, multiple, count)
        if atom_offsets is None:
            return None
        offsets = [
            at + factor * atom_offset for at, atom_offset in zip(offsets, atom_offsets, strict=True)
        ]
    share = next((lane for lane, offset in enumerate(offsets) if offset), 0)
    if not share:
        return SAME
    step = offsets[share]
    alike = offsets == [lane // share * step for lane in range(count)]
    return Spacing(share, step) if alike and count % share == 0 else None


def row_spacing(index: Sequence[Expr], axis: str, width: int, multiple: int) -> Spacing | None:
    """Return `spacing` in the last index of an array; None if a lane moves another index."""
    if not index:
        return SAME
    *outer, last = (spacing(part, axis, width, multiple) for part in index)
    return last if all(one == SAME for one in outer) else None


def _offsets(atom: Expr, axis: str, width: int, multiple: int, count: int) -> Sequence[int] | None:
    """How far each of `count` lanes is from the first in an atom of an index; None where it is not known. `width` and `multiple` are
    those of `spacing`.

    Lanes that begin at a multiple of their number all lie in one block of a multiple of it: ``i // 64`` is one value for 16 of
    them, and ``i % 64`` goes on by one.
    """
    step = coefficient(atom, axis)
    if step is not None:
        return [step * lane for lane in range(count)]
    match atom:
        case Binary("//" | "%" as op, a, Const(by)):
            rest = sub(a, Var(axis))
            if axis in variables(rest):
                return None
            whole = gcd(int(by), known_divisor(rest), multiple) % width == 0
            if not whole and gcd(known_divisor(rest), multiple) % int(by):
                return None
            block = count if whole else int(by)
            return [lane // block if op == "//" else lane % block for lane in range(count)]
        case _:
            return None


def _parts(expr: Expr, op: str) -> list[Expr]:
    """Return the operands of nested `op`."""
    match expr:
        case Binary(word, a, b) if word == op:
            return [*_parts(a, op), *_parts(b, op)]
        case _:
            return [expr]
