"""The text form of expressions and loop programs: one line per statement, two spaces per level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import assert_never

from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Reduce,
    Select,
    Unary,
    Var,
)
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    For,
    If,
    Let,
    Program,
    Size,
    Stmt,
    Store,
    Sync,
    Tile,
    Token,
)
from offcut.core.text.layouts import format_layout
from offcut.core.text.marks import loop_marks, sync_text, tile_marks

# Binding strength, weakest first; a child of a weaker one is put in parentheses.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY, _ATOM = range(8)
_STRENGTH = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
ASSIGN = {None: "=", "sum": "+=", "max": "max=", "min": "min="}


def format_expr(expr: Expr) -> str:
    """Return the text that `parse_expr` reads back into an equal node."""
    return _expr(expr)[0]


def _expr(expr: Expr) -> tuple[str, int]:
    match expr:
        case Const(value, dtype):
            if dtype == "bool":
                return ("true" if value else "false"), _ATOM
            text = repr(float(value)) if isinstance(value, float) else str(value)
            return text, _UNARY if text.startswith("-") else _ATOM
        case Var(name):
            return name, _ATOM
        case Load(buffer, index, _):
            return f"{buffer}[{_list(index)}]", _ATOM
        case Binary(op, a, b) if op not in _STRENGTH:
            return f"{op}({_list((a, b))})", _ATOM
        case Binary(op, a, b):
            strength = _STRENGTH[op]
            spaced = op if op in ("//", "%") or _is_scaling(expr) else f" {op} "
            if op == "%":
                spaced = " % "
            return f"{_at(a, strength)}{spaced}{_at(b, strength + 1)}", strength
        case Unary("neg", a):
            return f"-({format_expr(a)})", _UNARY
        case Unary(op, a):
            return f"{op}({format_expr(a)})", _ATOM
        case Cast(a, dtype):
            alone = isinstance(a, Const) and a.dtype != "bool"
            shown = _with_type(a) if alone or _reads_otherwise(a) else a
            return f"{dtype}({format_expr(shown)})", _ATOM
        case Select(condition, then, other):
            return f"where({_list((condition, then, other))})", _ATOM
        case Compare(op, a, b):
            left = _with_type(a) if _reads_otherwise(a, b) else a
            return f"{_at(left, _SUM)} {op} {_at(b, _SUM)}", _COMPARE
        case Logic("not", (arg,)):
            return f"not {_at(arg, _NOT + 1)}", _NOT
        case Logic(op, args):
            strength = _AND if op == "and" else _OR
            return f" {op} ".join(_at(arg, strength + 1) for arg in args), strength
        case Lookup(values, index):
            return f"[{', '.join(map(repr, values))}][{format_expr(index)}]", _ATOM
        case Reduce(op, value, axes):
            return f"{op}({format_expr(value)}, {', '.join(axes)})", _ATOM
        case _:
            assert_never(expr)


def _literals(expr: Expr) -> tuple[Const, ...] | None:
    """Return the literals that `expr` takes its type from; None where anything else says it."""
    match expr:
        case Const(_, dtype):
            return None if dtype == "bool" else (expr,)
        case Select(_, a, b) | Binary(_, a, b):
            one, other = _literals(a), _literals(b)
            return None if one is None or other is None else one + other
        case Unary(_, a) | Reduce(_, a, _):
            return _literals(a)
    return None


def _reads_otherwise(*parts: Expr) -> bool:
    """Return whether `parts`, of one type, are literals alone that are of another type when read back.

    The 0.1 of ``float64(float32(0.1))`` would be a float64 without its type.
    """
    literal_lists = [_literals(part) for part in parts]
    literals = [one for some in literal_lists if some is not None for one in some]
    if None in literal_lists or not literals:
        return False
    has_point = any(isinstance(one.value, float) for one in literals)
    return literals[0].dtype != ("float64" if has_point else "index")


def _with_type(expr: Expr) -> Expr:
    """Return `expr`, of literals alone, with the type of its first one as a function of it."""
    match expr:
        case Const(_, dtype):
            return Unary(dtype, expr)
        case Binary(op, a, b):
            return Binary(op, _with_type(a), b)
        case Select(condition, then, other):
            return Select(condition, _with_type(then), other)
        case Unary(op, a):
            return Unary(op, _with_type(a))
        case Reduce(op, value, axes):
            return Reduce(op, _with_type(value), axes)
    return expr


def _is_scaling(expr: Binary) -> bool:
    """Return whether this is ``8*i``: an index product by a literal, printed without spaces."""
    return expr.op == "*" and isinstance(expr.a, Const) and expr.a.dtype == "index"


def _at(expr: Expr, strength: int) -> str:
    text, own = _expr(expr)
    return text if own >= strength else f"({text})"


def _list(parts: tuple[Expr, ...]) -> str:
    return ", ".join(map(format_expr, parts))


def format_program(program: Program) -> str:
    """Return the text that `parse` reads back into an equal program."""
    lines = [f"program {program.name}"]
    lines += [format_size(size) for size in program.sizes]
    lines += [f"assume {format_expr(fact)}" for fact in program.assumptions]
    lines += [_buffer(buffer) for buffer in program.buffers]
    lines += [_token(token) for token in program.tokens]
    for stmt in program.body:
        lines += _lines(stmt, "")
    return "\n".join(lines)


def format_stmt(stmt: Stmt) -> str:
    """Return the text of one statement and all inside it."""
    return "\n".join(_lines(stmt, ""))


def format_head(stmt: Stmt) -> str:
    """Return the first line of `format_stmt`, in which refusals name the statement."""
    return next(_lines(stmt, ""))


def format_size(size: Size) -> str:
    """Return the line that declares a size."""
    multiple = f" multiple_of {size.multiple_of}" if size.multiple_of != 1 else ""
    return f"size {size.name} in {size.min}:{size.max + 1}{multiple}"


def _buffer(buffer: Buffer) -> str:
    layout = "" if buffer.layout is None else f" @{format_layout(buffer.layout)}"
    if buffer.scope is not None:
        layout += f" @scope({buffer.scope})"
    if buffer.finite:
        layout += " @finite"
    if buffer.bits is not None:
        layout += f" @bits({buffer.bits})"
    return f"{buffer.kind.value} {buffer.name}: {buffer.dtype}[{_list(buffer.shape)}]{layout}"


def _token(token: Token) -> str:
    units = f"{token.source} -> {token.target}"
    return f"token {token.name}: {units} count {token.count} room {token.room}"


def _marks(marks: Iterable[str]) -> str:
    return "".join(f"  @{mark}" for mark in marks)


def _lines(stmt: Stmt, indent: str) -> Iterator[str]:
    deeper = indent + "  "
    match stmt:
        case For(name, lo, hi, body):
            mark = _marks(loop_marks(stmt))
            yield f"{indent}for {name} in {format_expr(lo)}:{format_expr(hi)}{mark}"
            yield from _block(body, deeper)
        case If(condition, then, other):
            yield f"{indent}if {format_expr(condition)}"
            yield from _block(then, deeper)
            if other:
                yield f"{indent}else"
                yield from _block(other, deeper)
        case Let(name, lo, hi, value, body):
            yield f"{indent}let {name} in {lo}:{hi} = {format_expr(value)}"
            yield from _block(body, deeper)
        case Tile(axes, body, where):
            rectangle = ", ".join(
                f"{axis.iter} in {format_expr(axis.start)} +: {format_expr(axis.extent)}"
                for axis in axes
            )
            only = "" if where is None else f" where {format_expr(where)}"
            yield f"{indent}tile {rectangle}{only}{_marks(tile_marks(stmt))}"
            yield from _block(body, deeper)
        case Alloc(buffer, axes, body, memory, depth, inplace, layout):
            window = ", ".join(f"{format_expr(a)} +: {format_expr(n)}" for a, n in axes)
            memory_text = "" if memory is None else f" in {memory}"
            several = "" if depth == 1 else f" depth {depth}"
            place = "" if inplace is None else f" inplace {inplace}"
            lies = "" if layout is None else f" layout {format_layout(layout)}"
            yield f"{indent}alloc {buffer}[{window}]{memory_text}{several}{place}{lies}"
            yield from _block(body, deeper)
        case Sync(where=condition):
            only = "" if condition is None else format_expr(condition)
            yield f"{indent}{sync_text(stmt, only)}"
        case Store(buffer, index, value, reduce):
            yield f"{indent}{buffer}[{_list(index)}] {ASSIGN[reduce]} {format_expr(value)}"
        case Choose(options):
            yield f"{indent}choose"
            for option in options:
                yield f"{deeper}option {option.label} costs {format_expr(option.cost)}"
                yield from _block(option.body, deeper + "  ")
        case _:
            assert_never(stmt)


def _block(body: tuple[Stmt, ...], indent: str) -> Iterator[str]:
    for stmt in body:
        yield from _lines(stmt, indent)


_MOST = 60  # characters


def shown(value: object) -> str:
    """Return a value in one line of at most 60 characters and a mark that more follow: a node as its source says it, a statement by its first line."""
    text = _text(value)
    line = next(iter(text.splitlines()), "")[:_MOST]
    return line if line == text else f"{line}…"


def _text(value: object) -> str:
    with suppress(Exception):  # a node made by hand may hold what is none
        if isinstance(value, Expr):
            return format_expr(value)
        if isinstance(value, Stmt):
            return format_head(value)
    return repr(value)
