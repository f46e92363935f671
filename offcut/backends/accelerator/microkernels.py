"""What the units of a machine of queues do with one word of each operand, declared from its description.

A word of inputs is `rows` × `terms` bytes, one of weights `columns` × `terms`, one of accumulators `rows` ×
`columns` int32. A larger operand is words one after the other, row by row of blocks; what its blocks lack is
zero. The weights' rows are the columns of the result.

Source: Moreau et al., "A Hardware–Software Blueprint for Flexible Deep Learning Specialization",
IEEE Micro 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.expr import Binary, Cast, Const, Load, Unary
from offcut.core.panels import words
from offcut.core.program import MAX_SIZE, Store
from offcut.describe.functions import absolute, maximum, minimum, reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import compute, placeholder
from offcut.describe.tile_shapes import Place, TileShape
from offcut.describe.value import cast
from offcut.partition.judge import MAIN

MATRIX, VECTOR = "matrix unit", "vector unit"
START, STORE_NAME = "gemm_reset", f"store_{MemorySpace.OUTPUTS.value}"
"""Microkernels that start a sum, and that store results in main memory."""
TYPES = ("int8", "uint8", "int32")
"""Element types that accumulators keep, as the int32 of their values."""


def gemm(rows: int, columns: int, terms: int, cycles: float = 1.0) -> Microkernel:
    """``C[i, j] += int32(A[i, p]) * int32(B[j, p])`` of one word each.

    cycles  of a word of each
    """
    a = placeholder((rows, terms), "int8", name="A")
    b = placeholder((columns, terms), "int8", name="B")
    k = reduce_axis(terms, name="p")
    return Microkernel(
        name=f"gemm_{rows}x{columns}x{terms}",
        computes=compute(
            (rows, columns),
            lambda i, j: sum_over(cast(a[i, k], "int32") * cast(b[j, k], "int32"), axis=k),
            name="C",
        ),
        tiles=(TileShape((rows, columns), cycles / terms, 0.0),),
        repeats=frozenset({"p"}),
        accumulate="adds",
        reset=START,
        operands={
            "A": Place(layout=words((0, rows), (1, terms))),
            "B": Place(layout=words((0, columns), (1, terms))),
            "C": Place(layout=words((0, rows), (1, columns))),
        },
        unit=MATRIX,
    )


_OPERATIONS: dict[str, Callable[[Any, Any, str], Any]] = {
    "alu_add": lambda a, b, _: a + b,
    "alu_subtract": lambda a, b, _: a - b,
    "alu_multiply": lambda a, b, _: a * b,
    "alu_min": lambda a, b, _: minimum(a, b),
    "alu_max": lambda a, b, _: maximum(a, b),
    "alu_divide": lambda a, by, _: a // by,
    "alu_modulo": lambda a, by, _: a % by,
    "alu_shr": lambda a, b, _: a >> b,
    "alu_shl": lambda a, b, _: a << b,
    "alu_negate": lambda a, *_: -a,
    "alu_absolute": lambda a, *_: absolute(a),
    "alu_cut": lambda a, _, dtype: cast(a, dtype),
    "alu_copy": lambda a, *_: a,
    "alu_fill": lambda _, b, dtype: cast(b, dtype),
    START: lambda *three: cast(0, three[2]),
}
"""What is computed of two operands, or of one and a constant, as an element type."""
_WITH_TWO = ("alu_add", "alu_subtract", "alu_multiply", "alu_min", "alu_max", "alu_shr")
_BY_CONSTANT = ("alu_divide", "alu_modulo")
_NAMES = {
    "+": "alu_add",
    "-": "alu_subtract",
    "*": "alu_multiply",
    "//": "alu_divide",
    "%": "alu_modulo",
    "neg": "alu_negate",
    "abs": "alu_absolute",
    "sum": "alu_add",
}


def product_name(spec: AcceleratorSpec) -> str:
    """What the product of words is called."""
    return f"gemm_{spec.rows}x{spec.columns}x{spec.terms}"


def microkernel_name(store: Store, spec: AcceleratorSpec) -> str:
    """What runs a statement on accumulators is called; of constants, powers of two above all, it takes any."""
    match store.value:
        case Binary("*", Cast(Load()), Cast(Load())) if store.reduce == "sum":
            return product_name(spec)
        case _ if store.reduce is not None:
            return _NAMES.get(store.reduce, f"alu_{store.reduce}")
        case Binary(op) | Unary(op):
            return _NAMES.get(op, f"alu_{op}")
        case Const(0):
            return START
        case Const():
            return "alu_fill"
        case Cast(_, dtype) if dtype != "int32":
            return "alu_cut"
    return "alu_copy"


def microkernels(spec: AcceleratorSpec) -> tuple[Microkernel, ...]:
    """What the units of a machine run, the product first, copies last. A constant in one stands for any."""
    shape = spec.rows, spec.columns

    def shown(name: str) -> Microkernel:
        pair, types = _pairs(name)[0], ("uint8", "int8") if name == "alu_cut" else ("int32",) * 2
        two = pair == "AB" or name == "alu_copy"
        unit, cycles = VECTOR, spec.operand_cycles if two else spec.immediate_cycles
        if name == START:
            unit, cycles = MATRIX, spec.gemm_cycles
        return _operation(name, types[0], pair, types[1], 2, shape, cycles, unit)

    return (
        gemm(*shape, spec.terms, spec.gemm_cycles),
        *map(shown, (START, *(name for name in _OPERATIONS if name != START))),
        load_of(MemorySpace.INPUTS, "int8", spec),
        load_of(MemorySpace.WEIGHTS, "int8", spec),
        load_of(MemorySpace.ACCUMULATORS, "int32", spec),
        store_of("int32", "int8", spec),
    )


def instructions_of(
    store: Store, name: str, dtype: str, spec: AcceleratorSpec
) -> tuple[Microkernel, ...]:
    """Return what one issue of a unit runs of a statement, where it is called so: its microkernel in two hardware loops, over any
    number of words; none where no unit runs what is called so.

    dtype  of its result

    What a box leaves of its last words is zero there, and read by nobody: an axis that no word has is one element of each.
    A product has terms along words, or one of each word; an operation its second operand in accumulators, or as a constant.
    """
    shape = spec.rows, spec.columns
    if name == product_name(spec):
        return products_of(spec)
    if name not in _OPERATIONS or dtype not in TYPES:
        return ()
    by = 1
    if isinstance(store.value, Binary) and isinstance(store.value.b, Const):
        by = max(int(store.value.b.value), 1) if name in _BY_CONSTANT else 1
    of_terms = store.reduce is not None  # a constant is taken once for each word of the result
    return _operations(
        name, dtype, by, of_terms, shape, spec.words[MemorySpace.ACCUMULATORS].memory
    )


def products_of(spec: AcceleratorSpec) -> tuple[Microkernel, Microkernel]:
    """Return the products of words: along their terms, and of one term of each."""
    places = MemorySpace.INPUTS, MemorySpace.WEIGHTS, MemorySpace.ACCUMULATORS
    memories = tuple(spec.words[place].memory for place in places)
    return _products(spec.rows, spec.columns, spec.terms, spec.gemm_cycles, memories)


def load_of(place: MemorySpace, dtype: str, spec: AcceleratorSpec) -> Microkernel:
    """Return what one load does: words of a place from main memory. What a copy has around a rectangle, it fills with zeros."""
    of = spec.words[place]
    ends = Place((MAIN,)), Place((of.memory,), words((0, of.shape[0]), (1, of.shape[1])))
    return _copy(f"load_{place.value}", of.shape, dtype, dtype, ends, spec.loads[place].value)


def store_of(source: str, dtype: str, spec: AcceleratorSpec) -> Microkernel:
    """Return what one store does: words of accumulators to main memory, cut to their lowest bits.

    source, dtype  of the element that the statement reads, and of the one that it writes
    """
    of = spec.words[MemorySpace.ACCUMULATORS]
    ends = Place((of.memory,), words((0, of.shape[0]), (1, of.shape[1]))), Place((MAIN,))
    return _copy(STORE_NAME, of.shape, source, dtype, ends, Unit.STORE.value)


@cache
def _products(
    rows: int, columns: int, terms: int, cycles: float, memories: tuple[str, ...]
) -> tuple[Microkernel, Microkernel]:
    whole = gemm(rows, columns, terms, cycles)
    a, b, c = (
        placeholder(shape, dtype, name=name)
        for name, shape, dtype in (
            ("A", (rows,), "int8"),
            ("B", (columns,), "int8"),
            ("D", (rows, columns), "int32"),
        )
    )
    one = compute(
        (rows, columns),
        lambda i, j: c[i, j] + cast(a[i], "int32") * cast(b[j], "int32"),
        name="C",
    )
    lanes = {"A": words((0, rows)), "B": words((0, columns)), "C": words((0, rows), (1, columns))}
    places = {name: Place(layout=layout) for name, layout in lanes.items()}
    alone = replace(
        whole,
        computes=one,
        bounds={},
        repeats=frozenset(),
        operands=places,
        accumulate="both",
        reset=None,
    )
    memory_of = dict(zip("ABC", memories, strict=True))
    return _issued_microkernel(whole, memory_of), _issued_microkernel(alone, memory_of)


@cache
def _operations(
    name: str, dtype: str, by: int, of_terms: bool, shape: tuple[int, int], memory: str
) -> tuple[Microkernel, ...]:
    """Return an operation on words of accumulators whose result is of `dtype`, by what its operands may be.

    by        what a quotient divides by
    of_terms  whether it adds terms: then its second operand is in accumulators
    """
    wide = TYPES[::-1] if name == "alu_cut" else (dtype,)
    every = product(wide, _pairs(name)[:1] if of_terms else _pairs(name))
    declared = (_operation(name, *one, dtype, by, shape) for one in every)
    return tuple(_issued_microkernel(one, dict.fromkeys("ABC", memory)) for one in declared)


def _pairs(name: str) -> tuple[str, ...]:
    """Return the operands that an operation may have: A and B in accumulators, c a constant."""
    pairs = {"alu_subtract": ("AB", "Ac", "cB")}.get(name, ("AB", "Ac"))
    one = ("Ac",) if name in ("alu_fill", "alu_shl") else ("A",)
    return pairs if name in _WITH_TWO else one


def _operation(
    name: str,
    of: str,
    pair: str,
    dtype: str,
    by: int,
    shape: tuple[int, int],
    cycles: float = 1.0,
    unit: str = VECTOR,
) -> Microkernel:
    """Return one operation on words.

    of    type of its operands; int32 takes int8 and uint8 too, as accumulators keep them
    pair  its operands, of `_pairs`

    Where an operand does not move along a word, all lanes hold its element.
    """
    a, b = (placeholder(shape, of, name=one) for one in "AB")
    constant = placeholder((), of, name="constant")

    def at(i: Any, j: Any) -> Any:
        values = {"A": a[i, j], "B": b[i, j], "c": constant[()]}
        first, *others = (values[one] for one in pair)
        return _OPERATIONS[name](first, others[0] if others else by, dtype)

    tensor = compute(shape, at, name="C")
    assert tensor.definition is not None
    lanes = Place(layout=words((0, shape[0]), (1, shape[1])))
    read = replace(lanes, types=TYPES if of == "int32" else (), repeated=frozenset("ij"))
    places = {"A": read, "B": read, "constant": Place(by="immediate"), "C": lanes}
    names = {"C", *(tensor.name for tensor in tensor.definition.reads)}
    operands = {name: place for name, place in places.items() if name in names}
    return Microkernel(name, tensor, (TileShape(shape, cycles, 0.0),), operands=operands, unit=unit)


@cache
def _copy(
    name: str,
    shape: tuple[int, ...],
    source: str,
    dtype: str,
    ends: tuple[Place, Place],
    unit: str,
) -> Microkernel:
    """Return ``C[i, j] = A[i, j]`` of words, as `dtype`."""
    a = placeholder(shape, source, name="A")
    tensor = compute(
        shape, lambda i, j: a[i, j] if source == dtype else cast(a[i, j], dtype), name="C"
    )
    tiles = (TileShape(shape, 0.0, 0.0),)
    operands = dict(zip("AC", ends, strict=True))
    return _issued_microkernel(Microkernel(name, tensor, tiles, operands=operands), {}, unit)


def _issued_microkernel(
    one: Microkernel, memories: Mapping[str, str], unit: str = "compute"
) -> Microkernel:
    """Return a microkernel with operands in the memories of a machine, in the queue of a unit."""
    axes = (*one.axes, *one.reduce_axes)
    places = {
        name: replace(place, memories=(memories[name],))
        for name, place in one.operands.items()
        if name in memories
    }
    return replace(
        one,
        bounds=dict.fromkeys(axes, (0, MAX_SIZE)),
        predicates=frozenset(one.axes),
        repeats=frozenset(axes),
        operands={**one.operands, **places},
        unit=unit,
        issue="async",
        wait="token",
    )
