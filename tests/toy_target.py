"""A target of a plug-in: programs become Python text, and tiles of a product run as outer products.

Written from docs/extending/target.md alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import offcut as oc
from offcut.backends.target import Options, Target, TargetPlan, python_callable
from offcut.core.conditions import conjuncts
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Unary,
    Var,
    dtype_of,
    variables,
)
from offcut.core.program import For, If, Kind, Program, Stmt, Store, Tile
from offcut.costmodel import load
from offcut.describe.microkernel import Microkernel
from offcut.describe.tile_shapes import TileShape


def _outer() -> Microkernel:
    m, n, k = oc.dim("m", min=1, max=4), oc.dim("n", min=1, max=4), oc.dim("k")
    a, b = oc.placeholder((m, k), name="A"), oc.placeholder((k, n), name="B")
    p = oc.reduce_axis(k, name="p")
    product = oc.compute((m, n), lambda i, j: oc.sum(a[i, p] * b[p, j], axis=p), name="C")
    tiles = tuple(TileShape((rows, 4), cycles=4.0, startup=4.0) for rows in (1, 2, 3, 4))
    return Microkernel("toy_outer", product, tiles)


class Toy(Target):
    """One instance after the other, and a tile of a product all at once."""

    name = "toy"
    source_forms = ("python",)
    machine = load(Path(__file__).with_name("toy_machine.toml"))
    outer = _outer()

    def microkernels(self, options: Options | None = None) -> tuple[Microkernel, ...]:
        return (self.outer,)

    def called_microkernels(
        self, planned: TargetPlan, signature: Any, options: Options
    ) -> frozenset[str]:
        return frozenset(
            {self.outer.name} if b"np.arange" in self.lower(planned, None, options) else ()
        )

    def lower(self, planned: TargetPlan, signature: Any, options: Options) -> bytes:
        return "\n".join(_function(planned.program)).encode()

    def render_form(self, planned: TargetPlan, signature: Any, options: Options, form: str) -> str:
        return self.lower(planned, signature, options).decode()

    def load(self, lowered: bytes, signature: Any, options: Options) -> Any:
        names: dict[str, Any] = {"np": np, "math": math}
        exec(lowered.decode(), names)

        def bound(constants: Mapping[str, Any]) -> Callable[..., Any]:
            return python_callable(signature, lambda a, sizes: names["run"](a, constants, sizes))

        return bound


def target(machine: Any) -> Toy:
    """What the entry point names."""
    return Toy()


def _function(program: Program) -> Iterator[str]:
    yield "def run(given, constants, sizes):"
    yield f"  {''.join(f'{size.name}_, ' for size in program.sizes)}*_ = sizes.values()"
    number = 0
    for buffer in program.buffers:
        shape = f"({''.join(f'{_text(extent)}, ' for extent in buffer.shape)})"
        value = f"np.empty({shape}, {buffer.dtype!r})"
        if buffer.kind in (Kind.INPUT, Kind.INOUT):
            value, number = f"given[{number}].copy()", number + 1
        elif buffer.kind is Kind.CONSTANT:
            value = f"constants[{buffer.name!r}]"
        yield f"  {buffer.name}_ = {value}"
    yield from _block(program.body, "  ")
    results = [b.name for b in program.buffers if b.kind in (Kind.OUTPUT, Kind.INOUT)]
    yield f"  return [{', '.join(f'{name}_' for name in results)}]"


def _block(body: tuple[Stmt, ...], indent: str) -> Iterator[str]:
    yield f"{indent}pass"
    for stmt in body:
        match stmt:
            case Store(buffer, index, value, reduce):
                place, text = f"{buffer}_[{_index(index)}]", _text(value)
                operation = {"sum": "np.add", "max": "np.maximum", "min": "np.minimum"}
                if reduce is not None:
                    text = f"{operation[reduce]}({place}, {text})"
                yield f"{indent}{place} = {text}"
            case For(name, lo, hi, inner):
                yield f"{indent}for {name}_ in range({_text(lo)}, {_text(hi)}):"
                yield from _block(inner, f"{indent}  ")
            case If(condition, then, other):
                yield f"{indent}if {_text(condition)}:"
                yield from _block(then, f"{indent}  ")
                yield f"{indent}else:"
                yield from _block(other, f"{indent}  ")
            case Tile(axes, inner, where):
                conditions = [] if where is None else list(conjuncts(where))
                for position, axis in enumerate(axes):
                    start, around = _text(axis.start), ["None"] * len(axes)
                    around[position] = ":"
                    name, stop = f"{axis.iter}_", f"{start} + {_text(axis.extent)}"
                    yield f"{indent}{name} = np.arange({start}, {stop})"
                    for condition in conditions:
                        if axis.iter in variables(condition):
                            yield f"{indent}{name} = {name}[{_text(condition)}]"
                    yield f"{indent}{name} = {name}[{', '.join(around)}]"
                yield from _block(inner, indent)
            case _:
                raise NotImplementedError(type(stmt).__name__)


def _index(index: tuple[Expr, ...]) -> str:
    return ", ".join(map(_text, index)) or "()"


def _text(expr: Expr) -> str:
    match expr:
        case Const(value, "index" | "bool"):
            return repr(value)
        case Const(value, dtype):
            return f"np.dtype({dtype!r}).type({str(value)!r})"
        case Var(name):
            return f"{name}_"
        case Load(buffer, index, _):
            return f"{buffer}_[{_index(index)}]"
        case Binary("min" | "max" as op, a, b):
            return f"np.{op}imum({_text(a)}, {_text(b)})"
        case Binary(op, a, b) | Compare(op, a, b):
            return f"({_text(a)} {op} {_text(b)})"
        case Unary("neg", a):
            return f"(-{_text(a)})"
        case Unary("erf", a):
            return f"np.vectorize(math.erf)({_text(a)}).astype({dtype_of(a)!r})"
        case Unary(op, a):
            return f"np.{op}({_text(a)})"
        case Cast(a, dtype):
            return f"np.asarray({_text(a)}).astype({dtype!r})[()]"
        case Select(condition, then, other):
            return f"({_text(then)} if {_text(condition)} else {_text(other)})"
        case Logic("not", (a,)):
            return f"(not {_text(a)})"
        case Logic(op, args):
            return f"({f' {op} '.join(map(_text, args))})"
        case _:
            raise NotImplementedError(type(expr).__name__)
