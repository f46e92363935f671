"""Regions as computations: what `offcut.compile` is asked for, and how its arrays are those of the region.

A description is rewritten until it is as kernels want it: constants are computed, sums take fewer products, axes are in the order of
memory, and those that lie side by side are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Expr
from offcut.core.index import literal_value
from offcut.core.program import Kind, Program, Size
from offcut.describe.computation import computation, source
from offcut.describe.request import Array, take_ownership
from offcut.describe.tensor import Tensor, tensors_of
from offcut.graph.fusion.batch_axes import Coupling, parallel_axes
from offcut.graph.fusion.folding import with_folded_factors
from offcut.graph.fusion.grouped_lanes import with_lanes_over_groups
from offcut.graph.fusion.minimal import Assumed, MagnitudeLimit, with_fewer_products
from offcut.graph.fusion.tensor_rewrites import (
    Pair,
    joined_rows,
    permute_axes,
    with_known,
    with_own_sizes,
    without_single_terms,
    written_in,
)
from offcut.graph.graph import Node, Value
from offcut.graph.program_operators import Call, given_to
from offcut.graph.tensor_semantics import Description, SymbolTable, arguments_text


@dataclass(frozen=True)
class Derived:
    """Constants that are computed from others.

    program  that computes them; None: there are none
    names    of them, in the order of its results
    """

    program: Program | None
    names: tuple[str, ...]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Derived:
        """Those of tensors that read nothing but constants."""
        if not tensors:
            return cls(None, ())
        read = [tensor for tensor in tensors_of(tensors) if tensor.definition is None]
        return cls(source(computation(tensors, read)), tuple(tensor.name for tensor in tensors))

    def run(self, constants: Mapping[str, Array]) -> dict[str, Array]:
        """Their arrays, by name."""
        if self.program is None:
            return {}
        results = self.program.run({b.name: constants[b.name] for b in given_to(self.program)})
        arrays = results if isinstance(results, tuple) else (results,)
        return {name: take_ownership(array) for name, array in zip(self.names, arrays, strict=True)}

    def zeros(self, constants: Mapping[str, Array]) -> dict[str, Array]:
        """In their place zeros that take no memory."""
        results = () if self.program is None else self.program.results
        shapes = [[literal_value(extent) or 0 for extent in one.shape] for one in results]
        return {
            name: zero(one.dtype, shape)
            for name, one, shape in zip(self.names, results, shapes, strict=True)
        }


Run = Callable[[Derived, Mapping[str, Array]], dict[str, Array]]
"""What gives the arrays of derived constants: `Derived.run` or `Derived.zeros`."""


@dataclass(frozen=True)
class _Known:
    """A description of which constants are computed.

    derived   tensors, each a constant now
    program   that computes them; made: their arrays
    assumed   of what is read
    distributed  whether products are distributed over sums
    finite    whether nothing is left as it was since they would not be finite
    """

    results: tuple[Tensor, ...]
    derived: tuple[Tensor, ...]
    program: Derived
    made: dict[str, Array]
    assumed: tuple[Assumed, ...] = ()
    distributed: bool = False
    finite: bool = True


@dataclass(frozen=True)
class CanonicalRegion:
    """A region by names of its own: two that compute the same are one.

    types    what it reads; constant: the names of those of them that are known
    orders   of the axes of values in memory; apart: pairs of them that do not lie side by side
    before   the values that are written into others
    """

    sizes: tuple[Size, ...]
    nodes: tuple[Node, ...]
    types: tuple[Value, ...]
    constant: frozenset[str]
    orders: Mapping[str, tuple[int, ...]]
    apart: frozenset[Pair]
    before: frozenset[str]

    @property
    def key(self) -> object:
        """What tells it from others."""
        texts, orders = tuple(map(arguments_text, self.nodes)), tuple(sorted(self.orders.items()))
        parts = self.sizes, self.nodes, texts, self.types, self.constant
        return *parts, orders, self.apart, self.before


@dataclass(frozen=True)
class Binding:
    """How a kernel's arrays are those of a region.

    inputs     the names of the values that it is called with
    constants  what it calls those that it reads, and their names
    derived    what is computed from the region's constants alone
    runs       how many axes of a value each of its axes is
    sizes      its sizes, over those of the graph
    assumed    the limits that its results are compared with, where it measures what another reads
    distributed  whether products are distributed over sums
    finite     False: not all that would be computed from constants is, so that less is distributed
    parallel   of those of its sizes along which a part of the results is computed from that part of what is read: the axes
               that are they, by value; of others what couples their elements. Of a loop program nothing is known
    """

    inputs: tuple[str, ...]
    constants: Mapping[str, str]
    derived: Derived
    runs: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, Expr]
    assumed: tuple[MagnitudeLimit, ...] = ()
    distributed: bool = False
    finite: bool = True
    parallel: Mapping[str, Mapping[str, int] | Coupling] = field(default_factory=dict)


@dataclass(frozen=True)
class DescribedKernel:
    """A kernel that is described, and not compiled.

    key        of what it computes: constants may differ
    output, inputs, constants  as `offcut.compile` has them
    """

    key: str
    output: tuple[Tensor, ...] | Program
    inputs: tuple[Tensor, ...] | None
    constants: Mapping[str, Array]
    binding: Binding


@dataclass(frozen=True)
class _Around:
    """What the tensors of a region are described with.

    given      what they may read: values, and constants
    derived    what computes those of the constants that are computed from others
    constants  the arrays of both
    """

    dims: SymbolTable
    given: Sequence[Tensor]
    derived: Derived
    constants: Mapping[str, Array]
    asked: CanonicalRegion


def make_kernel_request(
    canonical: CanonicalRegion,
    constants: Mapping[str, Array],
    distributive: bool,
    run: Run,
    measures: bool = True,
) -> tuple[tuple[DescribedKernel, ...], Mapping[str, Array]]:
    """The kernel of a region, and before it one that measures what that assumes something of; and all constants of them.

    distributive  as `offcut.graph.compile_graph` says
    measures  whether data may be measured before a sum takes fewer products: whoever calls it waits for the measure
    """
    description = Description(canonical.sizes)
    results: tuple[Tensor, ...] = ()
    outside = {value.name: value for value in canonical.types}
    for node in _in_order(canonical.nodes, canonical.before):
        for name in node.operands:
            if name not in description.tensors:
                description.placeholder_like(outside[name])
        results = description.node(node.op, node, [value.name for value in node.results])
    for call in description.calls.values():
        return (_of_program(call, canonical.nodes[-1], constants),), constants
    tensors = [description.tensors[name] for name in outside]
    last = [value.name for value in canonical.nodes[-1].results]
    renames = {r.name: name for r, name in zip(results, last, strict=True)}
    described = without_single_terms(written_in(results, canonical.before))
    described = with_lanes_over_groups(
        described, {name: canonical.orders[new] for name, new in renames.items()}
    )
    known = _with_computed_constants(described, constants, distributive, run, measures)
    every = {**constants, **known.made}
    tensors += [replace(tensor, definition=None) for tensor in known.derived]
    around = _Around(description.dims, tensors, known.program, every, canonical)
    request = _kernel_of(around, known.results, renames)
    binding = replace(request.binding, distributed=known.distributed, finite=known.finite)
    request = replace(request, binding=binding)
    if not known.assumed:
        return (request,), every
    largest = [one.largest for one in known.assumed]
    read = {one.name for one in tensors_of(largest)}
    around = replace(around, given=[one for one in tensors if one.name in read])
    measured = _kernel_of(around, largest, {})
    limits = tuple(one.limit for one in known.assumed)
    measured = replace(measured, binding=replace(measured.binding, assumed=limits))
    return (measured, request), every


def _kernel_of(
    around: _Around, results: Sequence[Tensor], renames: Mapping[str, str]
) -> DescribedKernel:
    """The kernel of described tensors.

    renames  what the region calls the results
    """
    orders, dims = around.asked.orders, around.dims
    read = {tensor.name for tensor in tensors_of(results)}
    constants = {name: array for name, array in around.constants.items() if name in read}
    outside = [one for one in around.given if one.name not in around.constants]
    tensors = [*outside, *(one for one in around.given if one.name in constants)]
    new_orders = {old: orders[new] for old, new in renames.items()}
    new_orders |= {tensor.name: orders[tensor.name] for tensor in tensors if tensor.name in orders}
    by_name = permute_axes(results, new_orders)
    results = tuple(by_name[tensor.name] for tensor in results)
    own = {new: old for old, new in renames.items()}
    beside = {(own.get(name, name), at) for name, at in around.asked.apart}
    by_name, runs = joined_rows(results, dims, beside)
    results = tuple(by_name[tensor.name] for tensor in results)
    inputs = [by_name.get(tensor.name, tensor) for tensor in tensors]
    by_name, sizes = with_own_sizes(by_name, results, inputs)
    results = tuple(by_name[tensor.name] for tensor in results)
    inputs = [by_name[tensor.name] for tensor in inputs]
    arrays = reorder_constants(constants, runs, orders)
    key = str(source(computation(results, inputs, tuple(constants))))
    every = {t.name: (1,) * len(t.shape) for t in tensors} | runs
    every |= {new: runs[old] for old, new in renames.items()}
    parallel = parallel_axes([*inputs, *(one for one in tensors_of(results) if one.definition)])
    binding = Binding(
        tuple(one.name for one in outside),
        {name: name for name in constants},
        around.derived,
        every,
        {new: dims.extents[old] for new, old in sizes.items()},
        parallel={size: _in_region_names(value, renames) for size, value in parallel.items()},
    )
    return DescribedKernel(key, results, tuple(inputs), arrays, binding)


def _in_region_names(
    value: Mapping[str, int] | Coupling, renames: Mapping[str, str]
) -> Mapping[str, int] | Coupling:
    """Axes, or what couples elements, by the names that a region has for its tensors."""
    if isinstance(value, Coupling):
        tensor, read = (renames.get(name, name) for name in (value.tensor, value.read))
        return replace(value, tensor=tensor, read=read)
    return {renames.get(name, name): axis for name, axis in value.items()}


def _with_computed_constants(
    described: tuple[Tensor, ...],
    constants: Mapping[str, Array],
    distributive: bool,
    run: Run,
    measures: bool,
) -> _Known:
    """The results, where what depends on constants alone is computed.

    Products are distributed over sums, and sums take fewer multiplications where that pays, as far as the weights of these are
    finite: of others the results would not be either.
    """
    if distributive:
        with_factors = with_folded_factors(described, constants)
        fewer, assumed = (
            with_fewer_products(with_factors, constants) if measures else (with_factors, ())
        )
        for results, largest in ((fewer, assumed), (with_factors, ())):
            candidate = _compute_constants(results, largest, constants, run)
            if are_finite(candidate.made):
                distributed = with_factors is not described or bool(largest)
                return replace(candidate, distributed=distributed, finite=largest == assumed)
    return replace(_compute_constants(described, (), constants, run), finite=not distributive)


def _compute_constants(
    results: tuple[Tensor, ...],
    assumed: tuple[Assumed, ...],
    constants: Mapping[str, Array],
    run: Run,
) -> _Known:
    """The results, and what they assume, where what depends on constants alone is computed."""
    measured = tuple(one.largest for one in assumed)
    all_results, derived = with_known((*results, *measured), constants)
    program, count = Derived.of(derived), len(results)
    pairs = zip(assumed, all_results[count:], strict=True)
    largest = tuple(replace(one, largest=tensor) for one, tensor in pairs)
    return _Known(all_results[:count], derived, program, run(program, constants), largest)


def are_finite(arrays: Mapping[str, Array]) -> bool:
    """Whether no float that was computed is an infinity or NaN."""
    return all(
        np.isfinite(array).all() for array in arrays.values() if array.dtype.kind not in "biu"
    )


def _of_program(call: Call, node: Node, constants: Mapping[str, Array]) -> DescribedKernel:
    """The kernel of a loop program."""
    inputs = dict(zip((b.name for b in given_to(call.program)), call.operands, strict=True))
    updated = {one.name for one in call.program.buffers if one.kind is Kind.INOUT}
    fixed = {own: name for own, name in inputs.items() if name in constants and own not in updated}
    key = f"{call.program}\n{', '.join(fixed)}"
    arrays = {own: constants[name] for own, name in fixed.items()}
    values = (*call.operands, *(value.name for value in node.results))
    ranks = (*given_to(call.program), *call.program.results)
    runs = {name: (1,) * len(one.shape) for name, one in zip(values, ranks, strict=True)}
    own_names = tuple(name for own, name in inputs.items() if own not in fixed)
    binding = Binding(own_names, fixed, Derived.of(()), runs, call.sizes)
    return DescribedKernel(key, call.program, None, arrays, binding)


def _in_order(nodes: Sequence[Node], before: frozenset[str]) -> Iterator[Node]:
    """The nodes, each after what it reads; those that are written into others as late as can be.

    A product's extents are described first, so that what follows it is described by the same.
    """
    maker = {value.name: node for node in nodes for value in node.results}
    done = set[str]()

    def with_operands(node: Node) -> Iterator[Node]:
        for name in node.operands:
            if name in maker and name not in done:
                yield from with_operands(maker[name])
        done.update(value.name for value in node.results)
        yield node

    for node in nodes:
        if node.results[0].name not in before and node.results[0].name not in done:
            yield from with_operands(node)


def zero(dtype: str, shape: Sequence[int]) -> Array:
    """Zeros that take no memory."""
    return np.broadcast_to(numpy_dtype(dtype).type(0), shape)


def reorder_constants(
    constants: Mapping[str, Array],
    runs: Mapping[str, tuple[int, ...]],
    orders: Mapping[str, tuple[int, ...]],
) -> dict[str, Array]:
    """Constants with their axes in order, and joined."""
    result = dict(constants)
    for name, constant in constants.items():
        array = constant.transpose(orders[name]) if name in orders else constant
        shape, at = list[int](), 0
        for count in runs.get(name, (1,) * array.ndim):
            shape.append(prod(array.shape[at : at + count]))
            at += count
        result[name] = array.reshape(shape)
        if not np.may_share_memory(result[name], constant):
            take_ownership(result[name])
    return result
