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
from typing import Any

from offcut.backends.accelerator.isa import Place as Words
from offcut.backends.accelerator.isa import Unit
from offcut.backends.accelerator.spec import Spec
from offcut.core.expr import Binary, Cast, Const, Load, Unary
from offcut.core.layout import words
from offcut.core.program import Store
from offcut.core.sizes import MAX_SIZE
from offcut.describe.functions import absolute, maximum, minimum, reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.microkernel import Microkernel, Place, TileShape
from offcut.describe.tensor import compute, placeholder
from offcut.describe.value import cast
from offcut.partition.judge import MAIN

MATRIX, VECTOR = "matrix unit", "vector unit"
START = "gemm_reset"


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


def on_words(
    name: str,
    of: Callable[[Any, Any], Any],
    rows: int,
    columns: int,
    cycles: float = 1.0,
    unit: str = VECTOR,
) -> Microkernel:
    """``C[i, j] = of(A[i, j], B[i, j])`` on words of accumulators, as many cycles a word."""
    a = placeholder((rows, columns), "int32", name="A")
    b = placeholder((rows, columns), "int32", name="B")
    made = compute((rows, columns), lambda i, j: of(a[i, j], b[i, j]), name="C")
    assert made.definition is not None
    read = (tensor.name for tensor in made.definition.reads)
    return Microkernel(
        name=name,
        computes=made,
        tiles=(TileShape((rows, columns), cycles, 0.0),),
        operands={
            operand: Place(layout=words((0, rows), (1, columns))) for operand in (*read, "C")
        },
        unit=unit,
    )


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "alu_add": lambda a, b: a + b,
    "alu_subtract": lambda a, b: a - b,
    "alu_multiply": lambda a, b: a * b,
    "alu_min": minimum,
    "alu_max": maximum,
    "alu_divide": lambda a, b: a // 2,
    "alu_modulo": lambda a, b: a % 2,
    "alu_negate": lambda a, b: -a,
    "alu_absolute": lambda a, b: absolute(a),
    "alu_cut": lambda a, b: cast(cast(a, "int8"), "int32"),
    "alu_copy": lambda a, b: a,
    "alu_fill": lambda a, b: cast(1, "int32"),
}
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


def product_name(spec: Spec) -> str:
    """What the product of words is called."""
    return f"gemm_{spec.rows}x{spec.columns}x{spec.terms}"


def name_of(store: Store, spec: Spec) -> str:
    """What runs a statement on accumulators is called; of constants, powers of two above all, it takes any."""
    match store.value:
        case Binary("*", Cast(Load()), Cast(Load())) if store.reduce == "sum":
            return product_name(spec)
        case Binary(op) | Unary(op) if store.reduce is None:
            return _NAMES.get(op, f"alu_{op}")
        case Const(0):
            return START
        case Const():
            return "alu_fill"
    if store.reduce is not None:
        return _NAMES.get(store.reduce, f"alu_{store.reduce}")
    return "alu_cut" if isinstance(store.value, Cast) else "alu_copy"


def microkernels(spec: Spec) -> tuple[Microkernel, ...]:
    """What the units of a machine run, the product first, copies last. A constant in one stands for any."""
    shape = spec.rows, spec.columns
    single, double = spec.immediate_cycles, spec.operand_cycles
    return (
        gemm(*shape, spec.terms, spec.gemm_cycles),
        on_words(START, lambda a, b: cast(0, "int32"), *shape, spec.gemm_cycles, MATRIX),
        *(
            on_words(name, of, *shape, double if name in _WITH_TWO else single)
            for name, of in _OPERATIONS.items()
        ),
        load_of(Words.INPUTS, "int8", spec),
        load_of(Words.WEIGHTS, "int8", spec),
        load_of(Words.ACCUMULATORS, "int32", spec),
        store_of("int32", "int8", spec),
    )


def instructions_of(store: Store, spec: Spec) -> tuple[Microkernel, ...]:
    """Return what one issue of a unit runs of a statement: its microkernel in two hardware loops, over any number of words.

    What a box leaves of its last words is zero there, and read by nobody: an axis that no word has is one element of each.
    A product has terms along words, or one of each word; an operation its second operand in accumulators, or as a constant; a
    divisor, and what fills, are constants of the statement.
    """
    own, shape = name_of(store, spec), (spec.rows, spec.columns)
    match store.value:
        case _ if own == product_name(spec):
            places = Words.INPUTS, Words.WEIGHTS, Words.ACCUMULATORS
            memories = tuple(spec.words[place].memory for place in places)
            return _products(*shape, spec.terms, spec.gemm_cycles, memories)
        case Binary("//" | "%", _, Const(value)):
            by = int(value)
        case _:
            by = 2
    double = own in _WITH_TWO and own != "alu_copy"
    return _operations(own, by, double, shape, spec.words[Words.ACCUMULATORS].memory)


def load_of(place: Words, dtype: str, spec: Spec) -> Microkernel:
    """Return what one load does: words of a place from main memory. What a copy has around a rectangle, it fills with zeros."""
    of = spec.words[place]
    ends = Place((MAIN,)), Place((of.memory,), words((0, of.shape[0]), (1, of.shape[1])))
    return _copy(f"load_{place.value}", of.shape, dtype, dtype, ends, spec.loads[place].value)


def store_of(source: str, dtype: str, spec: Spec) -> Microkernel:
    """Return what one store does: words of accumulators to main memory, cut to their lowest bits.

    source, dtype  of the element that the statement reads, and of the one that it writes
    """
    of = spec.words[Words.ACCUMULATORS]
    ends = Place((of.memory,), words((0, of.shape[0]), (1, of.shape[1]))), Place((MAIN,))
    return _copy(f"store_{Words.OUTPUTS.value}", of.shape, source, dtype, ends, Unit.STORE.value)


_CONSTANT = Place(by="immediate")


@cache
def _products(
    rows: int, columns: int, terms: int, cycles: float, memories: tuple[str, ...]
) -> tuple[Microkernel, ...]:
    """Return the products of words: along their terms, and of one term of each."""
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
    return _issued(whole, memory_of), _issued(alone, memory_of)


@cache
def _operations(
    own: str, by: int, double: bool, shape: tuple[int, int], memory: str
) -> tuple[Microkernel, ...]:
    """Return an operation on words of accumulators: with a second word, and, if `double`, with a constant.

    by  what a quotient divides by
    """
    divided: dict[str, Callable[[Any, Any], Any]] = {
        "alu_divide": lambda a, _: a // by,
        "alu_modulo": lambda a, _: a % by,
        START: lambda a, b: cast(0, "int32"),
    }
    of = divided.get(own) or _OPERATIONS[own]
    kernels = [on_words(own, of, *shape)]
    if double:
        a, constant = (
            placeholder(extents, "int32", name=name)
            for name, extents in (("A", shape), ("constant", ()))
        )
        computes = compute(shape, lambda i, j: of(a[i, j], constant[()]), name="C")
        operands = {name: kernels[0].operands[name] for name in ("A", "C")}
        operands["constant"] = _CONSTANT
        kernels.append(replace(kernels[0], computes=computes, operands=operands))
    return tuple(_issued(one, dict.fromkeys("ABC", memory)) for one in kernels)


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
    result = compute(
        shape, lambda i, j: a[i, j] if source == dtype else cast(a[i, j], dtype), name="C"
    )
    tiles = (TileShape(shape, 0.0, 0.0),)
    operands = dict(zip("AC", ends, strict=True))
    return _issued(Microkernel(name, result, tiles, operands=operands), {}, unit)


def _issued(one: Microkernel, memories: Mapping[str, str], unit: str = "compute") -> Microkernel:
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


_WITH_TWO = ("alu_add", "alu_subtract", "alu_multiply", "alu_min", "alu_max", "alu_copy")
