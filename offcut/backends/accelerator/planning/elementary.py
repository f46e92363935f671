"""A group of stages as the operations of a machine of queues: one sum or maximum, then operations one by one.

What an operation reads of main memory is copied to the chip first (`staging`); each operation writes words of
accumulators of its own, which the lowering lays over those that are read no more::

    Y = int8(max(S // 64 + B[o], 0))   ->   B_acc[o] = B[o]
                                            Y_1 = S // 64
                                            Y_2 = Y_1 + B_acc[o]
                                            Y_3 = max(Y_2, 0)
                                            Y = int8(Y_3)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.planning.refusals import (
    refuse,
    unsupported_reduction,
    unsupported_result,
)
from offcut.backends.accelerator.planning.roles import Layouts, Roles, product_layouts, word_layouts
from offcut.backends.accelerator.planning.staging import Element, Staged, element_of, stage_element
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.dtypes import FLOATS
from offcut.core.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Unary,
    Var,
    children,
    dtype_of,
    rewrite,
)
from offcut.core.memo import lazy_property
from offcut.core.program import Buffer, Kind, Store
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Names, Stage, StageAxis

MAX_ARRAYS = 48
"""Arrays on the chip that a group may have, of copies and of operations: each is proved by itself, in a program with all before it."""
STORED = ("int8", "uint8")
"""Types of results: a store cuts words to their lowest 8 bits."""


@dataclass(frozen=True, slots=True)
class Operations:
    """A nest on the chip.

    axes     of the result
    terms    of the sum or maximum that it begins with; none where it begins with an operation
    roles    which axes lie in the lanes of words, by operand
    copies   what is copied to the chip
    lead     start and update of the sum or maximum; None where there is none
    steps    the operations behind it, in order; those that write results are stores
    buffers  that are on the chip alone, copies not included
    """

    label: str
    axes: tuple[StageAxis, ...]
    terms: tuple[StageAxis, ...]
    roles: Roles
    copies: tuple[Staged, ...]
    lead: tuple[Store, Store] | None
    steps: tuple[Store, ...]
    buffers: tuple[Buffer, ...]


def lanes(operations: Operations, spec: AcceleratorSpec) -> dict[str, int]:
    """Return the elements of a word along each axis that runs in lanes."""
    roles = operations.roles
    pairs = (roles.rows, spec.rows), (roles.columns, spec.columns), (roles.depth, spec.terms)
    return {axis: count for axis, count in pairs if axis is not None}


def operations(
    computation: Computation,
    group: Sequence[Stage],
    spec: AcceleratorSpec,
    names: Names,
    wished: Roles | None = None,
) -> Operations:
    """Return the group in operations.

    wished  axes in lanes; None: those that fill words best

    Raises TargetError for what no instruction does, with what would be accepted.
    """
    return _Operations(computation, group, spec, names, wished).operations()


def layouts_of(computation: Computation, group: Sequence[Stage], spec: AcceleratorSpec) -> Layouts:
    """Return the layouts of the group in words, and those that are worth it, the best one first."""
    return _Operations(computation, group, spec, computation.names(), None).layouts


@dataclass
class _Operations:
    computation: Computation
    group: Sequence[Stage]
    spec: AcceleratorSpec
    names: Names
    wished: Roles | None
    copies: dict[Element, Staged] = field(default_factory=dict)
    steps: list[Store] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    values: dict[str, Expr] = field(default_factory=dict)
    at: str = ""

    def __post_init__(self) -> None:
        lead = self.group[0]
        self.at, self.axes = lead.label, lead.axes
        self.point = tuple(Var(axis.name) for axis in lead.axes)
        self.extents = tuple(axis.extent for axis in lead.axes)

    @lazy_property
    def layouts(self) -> Layouts:
        """Return how it may lie in words."""
        lead, sizes = self.group[0], self.computation.sizes
        factors = _factors(lead.value) if lead.reducer == "sum" else None
        if factors is None:
            return word_layouts(self.elements(), lead.axes, sizes, self.spec)
        constants = frozenset(b.name for b in self.computation.buffers if b.kind is Kind.CONSTANT)
        loops = lead.axes, lead.reduce_axes
        return product_layouts(factors, *loops, sizes, constants, self.elements(), self.spec)

    def operations(self) -> Operations:
        """Return the whole group."""
        lead, *rest = self.group
        self.check_types()
        laid = self.layouts.preferred(self.wished)
        self.roles = laid.roles
        started = None
        if lead.reducer is not None:
            started = self.reduction_statements(lead, laid.swapped)
        else:
            self.stage(lead)
        for stage in rest:
            self.at = stage.label
            self.stage(stage)
        self.check_arrays()
        return Operations(
            label=lead.buffer,
            axes=lead.axes,
            terms=lead.reduce_axes,
            roles=self.roles,
            copies=tuple(self.copies.values()),
            lead=started,
            steps=tuple(self.steps),
            buffers=tuple(self.buffers),
        )

    def check_arrays(self) -> None:
        """Refuse a group of more arrays than are proved in seconds."""
        count = len(self.copies) + len(self.steps)
        if count > MAX_ARRAYS:
            raise refuse(
                self.spec,
                self.group[-1].label,
                f"it has {count} arrays on the chip, one for each operand and each operation, and at most {MAX_ARRAYS} are proved",
                "oc.min(A[i + k], axis=k): a sum, maximum or minimum over an axis is one operation",
                "a result of its own for a part of it",
            )

    def check_types(self) -> None:
        """Refuse floats, wherever they are."""
        for stage in self.group:
            wide = next((e for e in _nodes(stage.value) if dtype_of(e) in (*FLOATS, "int64")), None)
            if wide is not None:
                raise refuse(
                    self.spec,
                    stage.label,
                    f"{format_expr(wide)} is of {dtype_of(wide)}, and its units have int8 and int32",
                    "quantise it to int8",
                )

    def elements(self) -> list[Element]:
        """All that the group reads of main memory, but for what a product multiplies."""
        written = {stage.buffer for stage in self.group}
        unique: list[Element] = []

        def look(expr: Expr) -> None:
            element = element_of(expr)
            if element is not None and element.load.buffer not in written:
                unique.append(element)
                return
            for child in children(expr):
                look(child)

        for number, stage in enumerate(self.group):
            if number or stage.reducer is None or _factors(stage.value) is None:
                look(stage.value)
        return unique

    def reduction_statements(self, lead: Stage, swapped: bool) -> tuple[Store, Store]:
        """Return the start and the update of the sum, maximum or minimum.

        swapped  whether the second factor of a product is the inputs'
        """
        assert isinstance(lead.body, Reduce)
        factors = _factors(lead.value) if lead.reducer == "sum" else None
        accumulators = self.buffer_of(lead, dtype_of(lead.body))
        loops = (*lead.axes, *lead.reduce_axes)
        if factors is not None:
            first, second = reversed(factors) if swapped else factors
            lanes = self.roles.rows, self.roles.columns, self.roles.depth
            pair = (
                self.read_of_copy(first, MemorySpace.INPUTS, loops, (lanes[0], lanes[2])),
                self.read_of_copy(second, MemorySpace.WEIGHTS, loops, (lanes[1], lanes[2])),
            )
            ordered = reversed(pair) if swapped else pair
            a, b = (Cast(read, "int32") for read in ordered)
            value: Expr = Binary("*", a, b)
        else:
            element = element_of(_bare(lead.value))
            if element is None:
                raise unsupported_reduction(lead, self.spec)
            value = _widen(
                self.read_of_copy(element, MemorySpace.ACCUMULATORS, loops), dtype_of(lead.value)
            )
        self.values[lead.buffer] = Load(accumulators, self.point, dtype_of(lead.body))
        self.result(lead)
        return (
            Store(accumulators, self.point, lead.start),
            Store(accumulators, self.point, value, lead.reducer),
        )

    def buffer_of(self, stage: Stage, dtype: str) -> str:
        """Return the accumulators that a stage is computed in."""
        own = self.computation.buffer(stage.buffer)
        is_kept = own.kind in (Kind.OUTPUT, Kind.INOUT) or self.is_read_elsewhere(stage)
        name = self.names.fresh(f"{stage.buffer}_acc") if is_kept else stage.buffer
        self.buffers.append(Buffer(name, dtype, self.extents, Kind.LOCAL))
        return name

    def is_read_elsewhere(self, stage: Stage) -> bool:
        """Return whether another group reads it, from main memory."""
        return any(
            isinstance(node, Load) and node.buffer == stage.buffer
            for group in self.computation.groups
            if tuple(group) != tuple(self.group)
            for other in group
            for node in _nodes(other.value)
        )

    def result(self, stage: Stage) -> None:
        """The store of a stage that main memory keeps."""
        own = self.computation.buffer(stage.buffer)
        if own.kind not in (Kind.OUTPUT, Kind.INOUT) and not self.is_read_elsewhere(stage):
            return
        if own.dtype not in STORED:
            raise unsupported_result(self.computation, self.group, stage, self.spec)
        value = self.values[stage.buffer]
        if isinstance(value, Const):
            value = self.step(own.dtype, value, stage.buffer)
        cut = value if dtype_of(value) == own.dtype else Cast(value, own.dtype)
        self.steps.append(Store(stage.buffer, self.point, cut))

    def stage(self, stage: Stage) -> None:
        """A stage point by point."""
        body = stage.value
        own = self.computation.buffer(stage.buffer)
        if isinstance(body, Cast) and body.dtype in STORED and own.dtype == body.dtype:
            wide = dtype_of(body.a)
            if wide in ("int32", *STORED) and not self.is_read_here(stage):
                body = body.a
        value = self.value(body, stage.buffer)
        if own.kind is Kind.PRIVATE:
            value = self.accumulator_value(value, stage)
        self.values[stage.buffer] = value
        self.result(stage)

    def accumulator_value(self, value: Expr, stage: Stage) -> Load:
        """Return the value of a stage that is no result, in accumulators of its name."""
        last_step = self.steps[-1] if self.steps else None
        if last_step is not None and isinstance(value, Load) and value.buffer == last_step.buffer:
            self.steps.pop()
            old = self.buffers.pop()
            value, dtype = last_step.value, old.dtype
        else:
            dtype = dtype_of(value)
        self.buffers.append(Buffer(stage.buffer, dtype, self.extents, Kind.LOCAL))
        self.steps.append(Store(stage.buffer, self.point, value))
        return Load(stage.buffer, self.point, dtype)

    def is_read_here(self, stage: Stage) -> bool:
        """Return whether a later stage of the group reads it."""
        return any(
            isinstance(node, Load) and node.buffer == stage.buffer
            for other in self.group
            for node in _nodes(other.value)
        )

    def value(self, expr: Expr, wish: str) -> Expr:
        """Return an element of accumulators, or a constant, that holds `expr` at the point of the nest."""
        match expr:
            case Const():
                return expr
            case Load(buffer) if buffer in self.values:
                return self.values[buffer]
        element = element_of(expr)
        if element is not None and element.load.buffer not in self.values:
            return self.read_of_copy(element, MemorySpace.ACCUMULATORS, self.axes)
        match expr:
            case Cast(a, "int32") if dtype_of(a) != "bool":
                inner = self.value(a, wish)
                return (
                    Const(inner.value, "int32")
                    if isinstance(inner, Const)
                    else _widen(inner, "int32")
                )
            case Cast(a, dtype) if dtype in STORED and dtype_of(a) in ("int32", *STORED):
                return self.step(dtype, Cast(self.value(a, wish), dtype), wish)
            case Binary(op, a, b):
                parts = self.value(a, wish), self.value(b, wish)
                return self.step(dtype_of(expr), Binary(op, *parts), wish)
            case Unary(op, a):
                return self.step(dtype_of(expr), Unary(op, self.value(a, wish)), wish)
        raise refuse(
            self.spec,
            self.at,
            f"no instruction computes {format_expr(expr)}",
            "+, -, *, min, max, abs, >>, and //, % and << by constants",
        )

    def step(self, dtype: str, value: Expr, wish: str) -> Load:
        """Return one operation, into accumulators of its own."""
        name = self.names.fresh(f"{wish}_{len(self.steps) + 1}")
        self.buffers.append(Buffer(name, dtype, self.extents, Kind.LOCAL))
        self.steps.append(Store(name, self.point, value))
        return Load(name, self.point, dtype)

    def read_of_copy(
        self,
        element: Element,
        place: MemorySpace,
        loops: Sequence[StageAxis],
        lanes: Sequence[str | None] | None = None,
    ) -> Load:
        """Return the element, read from a copy on the chip."""
        within = (self.roles.rows, self.roles.columns) if lanes is None else lanes
        if element not in self.copies:
            dtype = element.load.dtype
            if dtype not in ("int8", "uint8", "int32"):
                raise refuse(
                    self.spec,
                    self.at,
                    f"{format_expr(element.load)} is of {dtype}",
                    "int8, uint8 and int32 are copied to accumulators",
                )
            suffix = {MemorySpace.INPUTS: "in", MemorySpace.WEIGHTS: "wgt"}.get(place, "acc")
            name = self.names.fresh(f"{element.load.buffer}_{suffix}")
            named = [lane for lane in within if lane is not None]
            self.copies[element] = stage_element(name, element, loops, place, named, self.names)
        copy = self.copies[element]
        return Load(copy.name, copy.index, element.load.dtype)


def _factors(value: Expr) -> tuple[Element, Element] | None:
    """Return the two elements of int8 that are multiplied as int32; None of any other value."""
    match value:
        case Binary("*", a, b) if dtype_of(value) == "int32":
            pair = element_of(_bare(a)), element_of(_bare(b))
            known = [one for one in pair if one is not None and one.load.dtype == "int8"]
            return (known[0], known[1]) if len(known) == 2 else None
    return None


def _bare(expr: Expr) -> Expr:
    """Return `expr` without conversions to a wider type."""
    match expr:
        case Cast(a, "int32") if dtype_of(a) in ("int8", "uint8"):
            return _bare(a)
        case Select(condition, Cast(Load() as load, "int32"), Const(value, _)) if _fits(
            int(value), load.dtype
        ):
            return Select(condition, load, Const(value, load.dtype))
        case Select(condition, Cast(Load() as load, "int32"), Cast(Const(value, _), "int32")):
            return Select(condition, load, Const(value, load.dtype))
    return expr


def narrow_elements(computation: Computation) -> Computation:
    """Return `computation` whose elements are widened where they are used, not where they are padded: a load moves bytes."""

    def rule(node: Expr) -> Expr | None:
        narrow = _bare(node) if isinstance(node, Select) else node
        return None if narrow is node else Cast(narrow, dtype_of(node))

    groups = tuple(
        tuple(replace(stage, body=rewrite(stage.body, rule)) for stage in group)
        for group in computation.groups
    )
    return replace(computation, groups=groups)


def _fits(value: int, dtype: str) -> bool:
    least = {"int8": -128, "uint8": 0}.get(dtype, -(2**31))
    return least <= value <= least + (255 if dtype in STORED else 2**32 - 1)


def _widen(value: Expr, dtype: str) -> Expr:
    return value if dtype_of(value) == dtype else Cast(value, dtype)


def _nodes(expr: Expr) -> list[Expr]:
    """Return the values inside of `expr`, indices and conditions left out."""
    match expr:
        case Load():
            return [expr]
        case Select(_, a, b):
            return [expr, *_nodes(a), *_nodes(b)]
    return [expr, *(node for part in children(expr) for node in _nodes(part))]
