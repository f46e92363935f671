"""What encloses the instances of a tile, as a list of steps: loops, bound values, tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Logic, Select, Var, substitute, variables, walk
from offcut.core.program import Choose, For, Form, If, Let, Stmt, Tile, blocks
from offcut.partition.pieces import Piece


@dataclass(frozen=True, slots=True)
class Loop:
    """``name in lo:hi``; `lane`: the tile has it whole; `boxed`: its tests switch lanes off."""

    name: str
    lo: Expr
    hi: Expr
    lane: bool = False
    boxed: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """``let name = value``."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Test:
    """Runs where `condition` holds; with `costs`, where that of `chosen` is the least."""

    condition: Expr | None = None
    costs: tuple[Expr, ...] = ()
    chosen: int = 0

    @property
    def needs(self) -> frozenset[str]:
        """The names in it."""
        parts = self.costs if self.condition is None else (self.condition,)
        return frozenset(name for part in parts for name in variables(part))


Step = Loop | Value | Test


def needs(step: Step) -> frozenset[str]:
    """The names, sizes among them, on which a step depends."""
    match step:
        case Loop(_, lo, hi):
            return frozenset(variables(lo) | variables(hi))
        case Value(_, value):
            return frozenset(variables(value))
        case Test():
            return step.needs


def steps_of(piece: Piece, plane: Sequence[str]) -> list[Step]:
    """What encloses the instances of the tiles of `piece`, outermost first, as far as the plane
    needs it.

    Conditions on data are left out: what they decide is not known before the program runs.
    """
    path, leaf = [stmt for stmt, _ in piece.inside], len(piece.path) - 1
    guarded = {name for name, segment in piece.segments if segment.guarded}
    alias = _aliases(path, guarded)
    missing = set(plane)
    steps: list[Step] = []

    def named(expr: Expr) -> Expr:
        return substitute(expr, {old: Var(new) for old, new in alias.items()})

    for place, (stmt, inner) in enumerate(zip(path, (*path[1:], None), strict=True)):
        alone = inner is not None and any(block == (inner,) for block in blocks(stmt))
        if not missing and not (isinstance(stmt, If | Let) and alone):
            break
        match stmt:
            case For(name, lo, hi):
                lane = place >= leaf
                if name in alias:
                    name, lane = alias[name], True
                    steps.append(Loop(name, named(lo), named(hi), lane, boxed=True))
                elif name not in alias.values():
                    steps.append(Loop(name, named(lo), named(hi), lane))
                missing.discard(name)
            case Let():
                steps.append(Value(stmt.name, named(stmt.value)))
            case Tile(axes):
                for axis in axes:
                    if axis.iter not in alias.values():
                        lo, hi = named(axis.start), named(ix.add(axis.start, axis.extent))
                        steps.append(Loop(axis.iter, lo, hi, lane=True, boxed=True))
                    missing.discard(axis.iter)
                if stmt.where is not None:
                    steps += _tests(named(stmt.where))
            case If(condition, then, _):
                if any(one is inner for one in then):
                    steps += _tests(named(condition))
                else:
                    steps += _tests(Logic("not", (named(condition),)))
            case Choose(options):
                held = [any(one is inner for one in option.body) for option in options]
                costs = tuple(named(option.cost) for option in options)
                steps.append(Test(costs=costs, chosen=held.index(True)))
            case _:
                pass
    value = piece.store.value
    padded = any(segment.form is Form.PAD for _, segment in piece.segments)
    if padded and isinstance(value, Select):
        bound = {step.name for step in steps if isinstance(step, Loop | Value)}
        sizes = {size.name for size in piece.space.sizes}
        steps += [t for t in _tests(named(value.condition)) if t.needs <= bound | sizes]
    return steps


def _aliases(path: Sequence[Stmt], guarded: set[str]) -> dict[str, str]:
    """The loops over single guarded instances, and the axis whose coordinate each of them is."""
    found: dict[str, str] = {}
    loops = {stmt.iter for stmt in path if isinstance(stmt, For)}
    for stmt in path:
        starts: list[tuple[str, Expr]] = []
        if isinstance(stmt, For):
            starts = [(stmt.iter, stmt.lo)]
        elif isinstance(stmt, Tile):
            starts = [(axis.iter, axis.start) for axis in stmt.axes]
        for name, start in starts:
            if name in guarded and isinstance(start, Var) and start.name in loops:
                found[start.name] = name
    return found


def _tests(condition: Expr) -> list[Test]:
    """A test for each part of a conjunction, but for those that depend on data."""
    if isinstance(condition, Logic) and condition.op == "and":
        return [test for part in condition.args for test in _tests(part)]
    data = any(isinstance(node, Load) for node in walk(condition))
    return [] if data else [Test(condition)]
