"""What a user asks to compile or cut: outputs, inputs and constants, checked before anything is built, and bound.

Constants of a loop program: arrays whose values are known before any call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from offcut.core import index as ix
from offcut.core.conditions import conjuncts, negate
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Compare, Expr, dtype_of, substitute, variables
from offcut.core.extents import solve, value_at
from offcut.core.interpret.values import evaluate
from offcut.core.program import Buffer, For, If, Kind, Program, Size, Stmt
from offcut.core.sizes import Dim, condition_of, facts_about, index_of
from offcut.core.text.printer import format_expr
from offcut.core.traversal import map_blocks, substitute_coordinates
from offcut.describe.refusals import operand_text
from offcut.describe.tensor import Tensor, tensors_of
from offcut.errors import DescribeError

Array = np.ndarray[Any, Any]


def outputs_of(output: Any, op: str) -> tuple[Tensor, ...]:
    """Return `output`, a computed tensor or several, as a tuple; refused for anything else, for `op`."""
    outputs = tuple(output) if isinstance(output, tuple | list) else (output,)
    for position, tensor in enumerate(outputs):
        if not isinstance(tensor, Tensor) or tensor.definition is None:
            operand_text = repr(tensor)
            raise DescribeError(
                op,
                f"cannot compute {operand_text if len(operand_text) < 80 else f'a {type(tensor).__name__}'}",
                because="an output is a tensor defined by compute",
                help=(
                    "the loops of a partition are compile(p.loops), of a schedule compile(s.lower())",
                    "a text is a program by parse(text)",
                ),
            )
        if tensor in outputs[:position]:
            raise DescribeError(
                op, f"cannot compute {tensor.name} twice", because="an output is listed once"
            )
    if not outputs:
        raise DescribeError(op, "cannot compute nothing", because="no output is given")
    return outputs


def inputs_of(inputs: Any, outputs: Sequence[Tensor], op: str) -> tuple[Tensor, ...]:
    """Return the inputs in call order; where None is given, in that of an operator's operands, and else
    in the order in which `outputs` read them.
    """
    if inputs is None:
        return _read_by(outputs)
    if not isinstance(inputs, Sequence) or isinstance(inputs, str):
        raise DescribeError(
            op,
            f"cannot take inputs={operand_text(inputs)}",
            because="inputs are a list of placeholders",
            help=("inputs=[A, W]",),
        )
    for tensor in inputs:
        if not isinstance(tensor, Tensor) or tensor.definition is not None:
            raise DescribeError(
                op,
                f"cannot take {tensor!r} as an input",
                because="an input is a placeholder",
                help=("inputs=[A, W], what placeholder gives",),
            )
    return tuple(inputs)


def _read_by(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    placeholders: dict[Tensor, None] = {}
    read, seen = {*tensors_of(outputs)}, set[Tensor]()
    pending = list(reversed(outputs))
    while pending:
        tensor = pending.pop()
        if tensor in seen or tensor not in read:
            continue
        seen.add(tensor)
        if tensor.definition is None:
            placeholders[tensor] = None
        else:
            pending += reversed((*tensor.definition.operands, *tensor.definition.reads))
    return tuple(placeholders)


def checked_constants(constants: Any, op: str) -> dict[str, Any]:
    """Return the constants by name, whatever they are.

    Raises DescribeError for what is no mapping.
    """
    if constants is None:
        return {}
    if not isinstance(constants, Mapping):
        raise DescribeError(
            op,
            f"cannot take constants={operand_text(constants)}",
            because="constants are arrays by the names of their placeholders",
            help=('constants={"W": w}',),
        )
    return dict(constants)


def constants_of(inputs: Sequence[Tensor], constants: Any, op: str) -> dict[str, Array]:
    """Return the constants as arrays of their placeholders' types and ranks, as `to_constant`."""
    named = {tensor.name: tensor for tensor in inputs if isinstance(tensor, Tensor)}
    arrays: dict[str, Array] = {}
    for name, value in checked_constants(constants, op).items():
        if name not in named:
            raise DescribeError(
                op,
                f"cannot take a constant for {name!r}",
                because=f"the inputs are {', '.join(named) or 'none'}",
            )
        tensor, array = named[name], array_of(name, value, op)
        if array.dtype != numpy_dtype(tensor.dtype) or array.ndim != len(tensor.shape):
            raise DescribeError(
                op,
                f"cannot take a constant of {array.dtype}, rank {array.ndim}",
                at=name,
                because=f"it is described as {tensor!r}",
                help=(
                    f'{name}.astype("{tensor.dtype}")'
                    if hasattr(value, "astype")
                    else f'numpy.array(…, "{tensor.dtype}")',
                )
                if array.ndim == len(tensor.shape)
                else (),
            )
        arrays[name] = to_constant(array)
    return arrays


_OWNED: WeakValueDictionary[int, Array] = WeakValueDictionary()


def take_ownership(array: Array) -> Array:
    """Return an array whose memory nobody else holds, marked as such: nobody may write to it from here on, and it is read where it is."""
    array.flags.writeable = False
    _OWNED[id(array)] = array
    return array


def is_owned(array: Array) -> bool:
    """Return whether an array, or what it is a view of, was marked, and nobody may write to any of them.

    An array that its caller made read-only is not: he may hold another way to its memory.
    """
    while isinstance(array, np.ndarray) and not array.flags.writeable:
        if _OWNED.get(id(array)) is array:
            return True
        array = array.base  # type: ignore[assignment]
    return False


_NONE: Mapping[int, Callable[[Array], None] | None] = MappingProxyType({})
_LENT = ContextVar("lent", default=_NONE)


@contextmanager
def borrow(
    arrays: Iterable[Array], returned: Callable[[Array], None] | None = None
) -> Iterator[None]:
    """Inside, nobody writes to these arrays or to what they are views of: they are read where they are. Who holds one for longer
    copies it (`to_owned_constant`).

    returned  is told of an array that was copied, and will hardly be read again
    """
    roots = dict.fromkeys((id(root_of(array)) for array in arrays), returned)
    before = _LENT.set({**_LENT.get(), **roots})
    try:
        yield
    finally:
        _LENT.reset(before)


def give_back(array: Array) -> None:
    """Say to whom an array, or what it is a view of, is lent from that it was copied."""
    root = root_of(array)
    returned = _LENT.get().get(id(root))
    if returned is not None:
        returned(root)


def root_of(array: Array) -> Array:
    """Return the array that an array is a view of, through others; itself where it is of none."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def to_constant(array: Array) -> Array:
    """Return a constant to compile with: a copy, but of an array that offcut made, or that is lent; its elements lie side by side."""
    if array.flags.c_contiguous and (is_owned(array) or id(root_of(array)) in _LENT.get()):
        return array
    return take_ownership(np.array(array, order="C"))


def to_owned_constant(array: Array) -> Array:
    """Return a constant to hold for good: a copy, but of an array that offcut made."""
    return array if is_owned(array) else take_ownership(np.array(array, order="C"))


def array_of(name: str, value: Any, op: str) -> Array:
    """Return a constant as a numpy array of native byte order; refused for what numpy does not read."""
    because = "it is a masked array" if type(value).__module__.startswith("numpy.ma") else ""
    try:
        array = np.asarray(value)
    except Exception as error:
        because = f"numpy says of it: {str(error).splitlines()[0]}"
    if because:
        raise DescribeError(
            op,
            f"cannot take this {type(value).__name__} as a constant",
            at=name,
            because=because,
            help=("a numpy array of the placeholder's element type",),
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def sizes_fixed_by(
    inputs: Sequence[Tensor], arrays: Mapping[str, Array], op: str
) -> dict[str, int]:
    """Return the sizes that the shapes of constants determine.

    Raises DescribeError where no allowed size gives a shape, or a promise is broken.
    """
    shapes = {tensor.name: tensor.shape for tensor in inputs if tensor.name in arrays}
    dims = {s.name: s for shape in shapes.values() for e in shape for s in e.free_symbols}
    promised = [
        (f"assume({fact})", _known_value(condition_of(fact))) for fact in facts_about(dims.values())
    ]
    extents = {name: [_known_value(index_of(e)) for e in shape] for name, shape in shapes.items()}
    return solved_sizes(extents, arrays, dims, promised, op)


def _known_value(expr: Expr | None) -> Expr:
    assert expr is not None  # sizes and facts are checked as they are made
    return expr


def solved_sizes(
    shapes: Mapping[str, Sequence[Expr]],
    arrays: Mapping[str, Array],
    sizes: Mapping[str, Size | Dim],
    promised: Sequence[tuple[str, Expr]],
    op: str,
) -> dict[str, int]:
    """Return the sizes that the shapes of constants determine.

    shapes    the declared extents of each array
    promised  conditions, and what they are called

    Raises DescribeError where no allowed size gives a shape, or a promise is broken.
    """
    known: dict[str, int] = {}
    places = [(name, axis) for name in arrays for axis in range(len(shapes[name]))]
    extents = [(shapes[name][axis], arrays[name].shape[axis]) for name, axis in places]

    def refused(number: int, what: str, because: str) -> DescribeError:
        at = "{}, axis {}".format(*places[number])
        return DescribeError(op, f"cannot take a constant {what}", at=at, because=because)

    for name, number, value in solve(extents, known):
        (extent, actual), size, because = extents[number], sizes[name], ""
        if value is None:
            because = f"no integer {name} makes its extent {format_expr(extent)} equal {actual}"
        elif not size.min <= value <= size.max:
            because = f"{name} = {value} is not in {size.min}…{size.max}"
        elif value % size.multiple_of:
            because = f"{name} = {value} is not a multiple of {size.multiple_of}"
        if because:
            raise refused(number, f"with extent {actual}", because)
    for number, (extent, actual) in enumerate(extents):
        value = ix.literal_value(value_at(extent, known))
        if value not in (None, actual):
            at_sizes = ", ".join(f"{name} = {known[name]}" for name in sorted(variables(extent)))
            because = f"its extent is {format_expr(extent)}" + (
                f", with {at_sizes} {value}" if at_sizes else ""
            )
            shape = arrays[places[number][0]].shape
            raise refused(number, f"of shape {shape}", f"{because}, not {actual}")
    for called, fact in promised:
        if known and variables(fact) <= known.keys() and not evaluate(fact, known):
            at_sizes = ", ".join(f"{name} = {value}" for name, value in known.items())
            raise DescribeError(
                op,
                "cannot take these constants",
                because=f"their shapes give {at_sizes}, which breaks {called}",
            )
    return known


class Recalled(Mapping[str, Array]):
    """Arrays by name, some of which are made when they are asked for, and live as long as whoever asked holds them.

    held   those that are there
    again  what makes the others, each as it was, bit for bit
    """

    def __init__(self, held: Mapping[str, Array], again: Mapping[str, Callable[[], Array]]) -> None:
        self._held, self._again = dict(held), dict(again)
        self._seen: WeakValueDictionary[str, Array] = WeakValueDictionary()

    def __getitem__(self, name: str) -> Array:
        if name in self._held:
            return self._held[name]
        found = self._seen.get(name)
        if found is None:
            found = self._seen[name] = self._again[name]()
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self._held
        yield from self._again

    def __len__(self) -> int:
        return len(self._held) + len(self._again)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def bind_constants(
    program: Program, constants: Mapping[str, Any] | None, op: str
) -> tuple[Program, dict[str, Array]]:
    """Return `program` with these inputs constant and their sizes fixed, and the arrays, copied.

    constants   an array for every ``constant`` buffer, and for any ``input`` that never changes

    Raises DescribeError where one is missing, or does not fit its declaration.
    """
    checked = checked_constants(constants, op)
    known = {b.name: b for b in program.buffers if b.kind in (Kind.CONSTANT, Kind.INPUT)}
    for name in checked:
        if name not in known:
            raise DescribeError(
                op,
                f"cannot take a constant for {name!r}",
                because=f"the inputs are {', '.join(known) or 'none'}",
            )
    missing = [b.name for b in known.values() if b.kind is Kind.CONSTANT and b.name not in checked]
    if missing:
        raise DescribeError(
            op,
            f"cannot run without {', '.join(missing)}",
            because=f"the program declares constant {missing[0]}",
            help=(f'constants={{"{missing[0]}": …}}', f"input {missing[0]}: … in the program"),
        )
    arrays = {name: _fitting(known[name], value, op) for name, value in checked.items()}
    sizes = solved_sizes(
        {name: known[name].shape for name in arrays},
        arrays,
        {size.name: size for size in program.sizes},
        [(f"assume {format_expr(fact)}", fact) for fact in program.assumptions],
        op,
    )
    for name, array in arrays.items():
        for axis, extent in enumerate(known[name].shape):
            if not variables(extent) <= sizes.keys():
                raise DescribeError(
                    op,
                    f"cannot take a constant of shape {array.shape}",
                    at=f"{name}, axis {axis}",
                    because=f"its extent {format_expr(extent)} does not say what the sizes are",
                )
    values: dict[str, Expr] = {name: ix.const(value) for name, value in sizes.items()}

    def fixed(expr: Expr) -> Expr:
        return ix.fold_indices(substitute(expr, values))

    buffers = tuple(
        replace(
            buffer,
            shape=tuple(map(fixed, buffer.shape)),
            kind=Kind.CONSTANT if buffer.name in arrays else buffer.kind,
        )
        for buffer in program.buffers
    )
    bound = Program(
        program.name,
        tuple(size for size in program.sizes if size.name not in sizes),
        tuple(map(fixed, program.assumptions)) if sizes else program.assumptions,
        buffers if sizes or arrays else program.buffers,
        _reachable(substitute_coordinates(program.body, values)) if sizes else program.body,
        program.tokens,
    )
    return bound, arrays


def _reachable(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return `body` without what the sizes exclude: it may divide by one that is 0."""
    statements: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, If) and any(map(_fails, conjuncts(stmt.condition))):
            statements += _reachable(stmt.other)
        elif isinstance(stmt, If) and _fails(negate(stmt.condition)):
            statements += _reachable(stmt.then)
        elif not (isinstance(stmt, For) and _fails(Compare("<", stmt.lo, stmt.hi))):
            statements.append(map_blocks(stmt, _reachable))
    return tuple(statements)


def _fails(condition: Expr) -> bool:
    """Return whether `condition` compares indices that differ by a constant, and does not hold."""
    if not (isinstance(condition, Compare) and dtype_of(condition.a) == "index"):
        return False
    return ix.literal_value(ix.compare(condition.op, condition.a, condition.b)) == 0


def _fitting(buffer: Buffer, value: Any, op: str) -> Array:
    array = np.asarray(value)
    if array.dtype != numpy_dtype(buffer.dtype) or array.ndim != len(buffer.shape):
        shape = ", ".join(map(format_expr, buffer.shape))
        raise DescribeError(
            op,
            f"cannot take a constant of {array.dtype}, rank {array.ndim}",
            at=buffer.name,
            because=f"it is declared {buffer.dtype}[{shape}]",
        )
    return np.array(array, order="C")
