"""What a program means: its text as Python, on numpy scalars of the declared types.

Expressions of the syntax are those of Python, so `ast` reads them. A literal takes the type of what
it meets. `and` and `or` read both sides, `where` reads one branch. What the language leaves open
(an element that nothing wrote, an integer division by zero, a cast that no integer holds) raises
`Undefined`, so that nobody compares it; what no right program does raises `Wrong`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .reading import Line, Loop, Source, loop_of, store_of

Array = npt.NDArray[Any]
FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int8", "uint8")
MOST_STORES = 12_000

_SYMBOLS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_LITERALS: dict[str, tuple[str, str | None]] = {
    "true": ("True", "bool"),
    "false": ("False", "bool"),
    "inf": ("inf", None),
    "nan": ("nan", None),
}


class Undefined(Exception):
    """The program does what the language gives no meaning."""


class Wrong(Exception):
    """The program leaves a buffer, or is no program: it should not have been written."""


class TooLong(Exception):
    """The program runs for longer than a test should."""


def dtype_of(name: str) -> np.dtype[Any]:
    """numpy's type of that name."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@dataclass
class Memory:
    """A buffer, its elements in one list; None is what nothing wrote. `budget`: stores that are left."""

    dtype: str
    shape: tuple[int, ...]
    elements: list[Any]
    budget: list[int]

    def at(self, index: tuple[int, ...]) -> int:
        place = 0
        for x, extent in zip(index, self.shape, strict=True):
            if not 0 <= x < extent:
                raise Wrong(f"index {index} of shape {self.shape}")
            place = place * extent + x
        return place

    def read(self, *index: int) -> Any:
        value = self.elements[self.at(index)]
        if value is None:
            raise Undefined("an element is read before it is written")
        return value

    def write(self, value: Any, *index: int) -> None:
        self.elements[self.at(index)] = value
        self.budget[0] -= 1
        if self.budget[0] < 0:
            raise TooLong

    def array(self) -> tuple[Array, npt.NDArray[np.bool_]]:
        """The elements, and which of them are known."""
        known = np.array([value is not None for value in self.elements], bool)
        dtype = dtype_of(self.dtype)
        values = np.array([dtype.type(0) if v is None else v for v in self.elements], dtype)
        return values.reshape(self.shape), known.reshape(self.shape)


def run(
    source: Source, given: Mapping[str, Array], sizes: Mapping[str, int], most: int = MOST_STORES
) -> dict[str, tuple[Array, npt.NDArray[np.bool_]]]:
    """What `source` leaves in each output and inout buffer, and where that is known."""
    budget = [most]
    memory: dict[str, Memory] = {}
    for buffer in source.buffers:
        shape = tuple(value_of(extent, sizes) for extent in buffer.shape)
        if buffer.kind in ("output", "local"):
            elements: list[Any] = [None] * math.prod(shape)
        else:
            assert given[buffer.name].shape == shape
            elements = list(given[buffer.name].reshape(-1))
        memory[buffer.name] = Memory(buffer.dtype, shape, elements, budget)
    names: dict[str, Any] = {f"v_{name}": int(value) for name, value in sizes.items()}
    names |= {f"r_{name}": buffer.read for name, buffer in memory.items()}
    names |= {f"w_{name}": buffer.write for name, buffer in memory.items()}
    with np.errstate(all="ignore"):
        exec(_code(source), names | _FUNCTIONS | {"step": budget})
    results = (b.name for b in source.buffers if b.kind in ("inout", "output"))
    return {name: memory[name].array() for name in results}


def value_of(text: str, sizes: Mapping[str, int]) -> int:
    """An index expression at given sizes."""
    translator = Translator({})
    names = {f"v_{name}": int(value) for name, value in sizes.items()} | _FUNCTIONS
    return int(eval(translator.expression(text, "index"), names))


def holds(condition: str, sizes: Mapping[str, int]) -> bool:
    """A condition at given sizes."""
    names = {f"v_{name}": int(value) for name, value in sizes.items()} | _FUNCTIONS
    return bool(eval(Translator({}).expression(condition, "bool"), names))


def _code(source: Source) -> Any:
    text = "\n".join(in_python(source)) + "\n"
    return compile(text, "<program>", "exec")


def in_python(source: Source) -> list[str]:
    """The statements as Python."""
    translator = Translator({b.name: b.dtype for b in source.buffers})
    lines = [found for line in source.body for found in translator.statement(line)]
    return lines or ["pass"]


class Translator:
    """Lines and expressions as Python; `dtypes` of the buffers."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        self.dtypes = dtypes

    def statement(self, line: Line, indent: str = "") -> list[str]:
        below = [found for inner in line.body for found in self.statement(inner, indent + "  ")]
        below = below or [indent + "  pass"]
        word = line.text.split(" ", 1)[0]
        if word == "for":
            loop: Loop = loop_of(line.text)
            bounds = (self.expression(x, "index") for x in (loop.low, loop.high, loop.step))
            return [f"{indent}for v_{loop.name} in steps(step, {', '.join(bounds)}):", *below]
        if word == "if":
            return [f"{indent}if {self.expression(line.text[3:], 'bool')}:", *below]
        if word == "else":
            return [f"{indent}else:", *below]
        return [indent + self.store(line.text)]

    def store(self, text: str) -> str:
        store = store_of(text)
        if store.buffer not in self.dtypes:
            raise Wrong(f"no buffer {store.buffer}")
        dtype = self.dtypes[store.buffer]
        index = ", ".join(self.expression(part, "index") for part in store.index)
        value, old = self.expression(store.value, dtype), f"r_{store.buffer}({index})"
        new = {
            "=": value,
            "+=": f"({old} + {value})",
            "-=": f"({old} - {value})",
            "max=": f"larger({old}, {value})",
            "min=": f"smaller({old}, {value})",
        }[store.op]
        return f"w_{store.buffer}({new}, {index})"

    def expression(self, text: str, dtype: str) -> str:
        node = ast.parse(text.strip().replace("[]", "[()]"), mode="eval").body
        found = self.type_of(node)
        if found not in (None, dtype):
            raise Wrong(f"{text} is {found}, not {dtype}")
        return self.emit(node, dtype)

    def type_of(self, node: ast.expr) -> str | None:
        """The element type; None for what is made of literals only."""
        match node:
            case ast.Constant():
                return None
            case ast.Name(name):
                return _LITERALS[name][1] if name in _LITERALS else "index"
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return "bool"
            case ast.UnaryOp(operand=operand):
                return self.type_of(operand)
            case ast.BinOp(left=left, right=right):
                return self.type_of(left) or self.type_of(right)
            case ast.Subscript(value=ast.Name(buffer)):
                return self.dtypes[buffer]
            case ast.Subscript(value=ast.List()):
                return "float64"
            case ast.Call(func=ast.Name(name), args=args):
                if name in (*FLOATS, *INTEGERS, "index"):
                    return name
                operands = args[1:] if name == "where" else args
                return next(filter(None, map(self.type_of, operands)), None)
        raise Wrong(ast.unparse(node))

    def emit(self, node: ast.expr, dtype: str) -> str:
        """Python for `node`, which is of type `dtype` or takes it."""
        match node:
            case ast.Constant(value):
                return self.literal(value, dtype)
            case ast.Name(name):
                if name in _LITERALS:
                    text, kind = _LITERALS[name]
                    return text if kind else f"{dtype}({text})"
                return f"v_{name}"
            case ast.BoolOp(op, values):
                join = " & " if isinstance(op, ast.And) else " | "
                return f"({join.join(self.emit(value, 'bool') for value in values)})"
            case ast.UnaryOp(ast.Not(), operand):
                return f"(not {self.emit(operand, 'bool')})"
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
                return self.literal(-value, dtype)
            case ast.UnaryOp(ast.USub(), operand):
                return f"(-{self.emit(operand, dtype)})"
            case ast.Compare(left, ops, comparators):
                return self.comparison([left, *comparators], ops)
            case ast.BinOp(left, op, right):
                a, b, symbol = self.emit(left, dtype), self.emit(right, dtype), _SYMBOLS[type(op)]
                if symbol in ("//", "%"):
                    return f"{'quotient' if symbol == '//' else 'remainder'}({a}, {b})"
                return f"({a} {symbol} {b})"
            case ast.Subscript(ast.List(elts), index):
                return f"table([{', '.join(map(ast.unparse, elts))}], {self.emit(index, 'index')})"
            case ast.Subscript(ast.Name(buffer), index):
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                return f"r_{buffer}({', '.join(self.emit(part, 'index') for part in parts)})"
            case ast.Call(ast.Name(name), args):
                return self.call(name, args, dtype)
        raise Wrong(ast.unparse(node))

    def literal(self, value: Any, dtype: str) -> str:
        if dtype == "index":
            return repr(value)
        return f"{dtype}({value!r})"

    def comparison(self, values: list[ast.expr], ops: list[ast.cmpop]) -> str:
        found = []
        for a, b, op in zip(values, values[1:], ops, strict=False):
            dtype = self.settled(a, b)
            found.append(f"bool({self.emit(a, dtype)} {_SYMBOLS[type(op)]} {self.emit(b, dtype)})")
        return f"({' & '.join(found)})"

    def settled(self, *nodes: ast.expr) -> str:
        """The type of operands of which literals may be all."""
        if dtype := next(filter(None, map(self.type_of, nodes)), None):
            return dtype
        literals = [x.value for n in nodes for x in ast.walk(n) if isinstance(x, ast.Constant)]
        return "float64" if any(isinstance(x, float) for x in literals) else "index"

    def call(self, name: str, args: list[ast.expr], dtype: str) -> str:
        if name == "where":
            condition, then, other = args
            taken, left = self.emit(then, dtype), self.emit(other, dtype)
            return f"({taken} if {self.emit(condition, 'bool')} else {left})"
        if name in (*FLOATS, *INTEGERS, "index"):
            inner = self.settled(args[0])
            return f"cast({self.emit(args[0], inner)}, {name!r})"
        python = {"max": "larger", "min": "smaller"}.get(name, name + "_")
        return f"{python}({', '.join(self.emit(arg, dtype) for arg in args)})"


def _steps(budget: list[int], low: int, high: int, step: int) -> range:
    budget[0] -= max(0, high - low) // (4 * step)
    if budget[0] < 0:
        raise TooLong
    return range(low, high, step)


def _larger(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) else np.maximum(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) else np.minimum(a, b)


def _divided(exact: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def floor(a: Any, b: Any) -> Any:
        if isinstance(b, int | np.integer) and b == 0:
            raise Undefined("an integer is divided by zero")
        return exact(a, b)

    return floor


def _cast(value: Any, dtype: str) -> Any:
    if dtype == "index":
        return int(value)
    if dtype in INTEGERS and isinstance(value, np.generic) and value.dtype.kind not in "iub":
        info, wide = np.iinfo(dtype), float(value)
        if not (math.isfinite(wide) and info.min <= math.trunc(wide) <= info.max):
            raise Undefined("an integer is made of a float that it does not hold")
        return np.dtype(dtype).type(math.trunc(wide))
    if dtype == "bfloat16" and isinstance(value, np.float64):
        value = _to_odd(value)  # numpy's bfloat16 is made of a float64 by way of a rounded float32
    return np.asarray(value).astype(dtype_of(dtype))[()]


def _to_odd(value: np.float64) -> np.float32:
    """The float32 next to `value` toward zero, with its last bit set where they differ."""
    near = np.float32(value)
    if not np.isfinite(near) or near == value:
        return near
    if abs(near) > abs(value):
        near = np.nextafter(near, np.float32(0))
    return np.asarray(near).view(np.uint32).__or__(1).view(np.float32)[()]


def _table(values: list[float], index: int) -> Any:
    if not 0 <= index < len(values):
        raise Wrong("a table is left")
    return np.float64(values[index])


def _erf(value: Any) -> Any:
    return type(value)(math.erf(float(value)))


def _abs(value: Any) -> Any:
    return abs(value) if isinstance(value, int) else np.abs(value)


_FUNCTIONS: dict[str, Any] = {
    **{name: dtype_of(name).type for name in (*FLOATS, *INTEGERS)},
    "larger": _larger,
    "smaller": _smaller,
    "quotient": _divided(lambda a, b: a // b),
    "remainder": _divided(lambda a, b: a % b),
    "cast": _cast,
    "table": _table,
    "steps": _steps,
    "erf_": _erf,
    "abs_": _abs,
    "exp_": np.exp,
    "log_": np.log,
    "tanh_": np.tanh,
    "sqrt_": np.sqrt,
    "inf": math.inf,
    "nan": math.nan,
}
