"""Regions as kernels: one for each distinct computation, bound to the constants of each region that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from offcut.backends.base import Entry
from offcut.backends.target import Target
from offcut.core.expr import Expr
from offcut.core.program import Kind, Size
from offcut.describe.computation import computation
from offcut.describe.reads import tensors_of
from offcut.describe.request import Array, own
from offcut.describe.source import source
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError, TargetError
from offcut.graph.describing import Description, Dims, typed
from offcut.graph.fusion.folding import scaled, with_folded_factors
from offcut.graph.fusion.minimal import Assumed, with_fewer_products
from offcut.graph.fusion.rearrange import (
    Pair,
    joined_rows,
    ordered,
    with_known,
    with_own_sizes,
    without_single_terms,
    written_in,
)
from offcut.graph.graph import Node, Value, renamed
from offcut.graph.models.split import Taken, Targets, taken
from offcut.graph.placing.places import ONE, ZERO, Place, Placed, own_place
from offcut.graph.programs import Call, given_to
from offcut.graph.sizes import extents
from offcut.kernel import Kernel
from offcut.pipeline import compile


@dataclass(frozen=True, slots=True)
class Operand:
    """An array of a call: ``root[offset]`` on, with the kernel's axes.

    offset, strides  in elements, over the sizes of the graph
    """

    value: str
    root: str
    dtype: str
    offset: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True)
class Step:
    """A call of a kernel.

    code    the number of its code: two kernels of one code differ in constants alone
    name    of the value that it gives
    nodes   the operators that it runs
    inputs  of the kernel, in order; outputs likewise
    sizes   the kernel's sizes, in order, over those of the graph
    target  the name of the target that runs it; refused: those before it, and why they do not
    constants  of the graph: what the kernel calls each, and the order in which it has its axes
    limits     of its outputs, each of one element: above them, results of the model are not what it says. None for any other step
    distributed  whether products are distributed over sums in it
    """

    kernel: Kernel
    entry: Entry | None
    code: int
    name: str
    nodes: tuple[str, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    sizes: tuple[tuple[str, Expr], ...]
    target: str
    refused: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    limits: tuple[float, ...] = ()
    distributed: bool = False


@dataclass(frozen=True)
class _Made:
    """A kernel with what is known of its arrays.

    inputs     the names of the values that it is called with
    runs       how many axes of a value each of its axes is
    constants  what it calls those that it reads, and their names
    derived    the tensors that are computed from the region's constants alone
    assumed    what its results are compared with, where it measures what another reads
    distributed  whether products are distributed over sums
    """

    taken: Taken
    code: int
    inputs: tuple[str, ...]
    constants: Mapping[str, str]
    derived: tuple[Tensor, ...]
    runs: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, Expr]
    assumed: tuple[Assumed, ...] = ()
    distributed: bool = False


@dataclass(frozen=True)
class _Around:
    """What the tensors of a region are described with.

    given      what they may read: values, and constants
    derived    those of the constants that are computed from others
    constants  the arrays of both
    orders     of the axes of values in memory; apart: pairs of them that do not lie side by side
    """

    dims: Dims
    given: Sequence[Tensor]
    derived: tuple[Tensor, ...]
    constants: Mapping[str, Array]
    orders: Mapping[str, tuple[int, ...]]
    apart: frozenset[Pair]


class Kernels:
    """Kernels by what they compute.

    values  of the graph
    arrays  its constants
    like    of another graph, whose code is taken where it fits
    least_filled, distributive  as `offcut.graph.compiled` says
    """

    def __init__(
        self,
        sizes: Sequence[Size],
        values: Mapping[str, Value],
        arrays: Mapping[str, Array],
        targets: Targets,
        threads: int | None,
        like: Kernels | None = None,
        least_filled: float = 0.0,
        distributive: bool = True,
    ) -> None:
        self.sizes, self.values, self.arrays = tuple(sizes), values, arrays
        self.targets, self.threads, self.least_filled = targets, threads, least_filled
        self.distributive = distributive
        self._known: dict[object, tuple[_Made, ...]] = {} if like is None else like._known
        self._compiled: dict[str, Taken] = {} if like is None else like._compiled

    def steps(
        self,
        placed: Placed,
        unpacked: Collection[str] = (),
        turned: Mapping[str, tuple[int, ...]] | None = None,
        priced: bool = False,
    ) -> Iterator[Step]:
        """The call that runs a region, and before it one that measures what it reads, where it assumes something of that.

        unpacked  constants that are read as any other operand is
        turned    orders of the axes of constants, where they are not held as they are
        priced    whether it is asked for its cost alone: it may hold constants of another region

        Raises DescribeError, PartitionError or TargetError for what a kernel cannot be made of.
        """
        region, places = placed.region, placed.places
        known = {
            name
            for name in region.operands
            if name in self.arrays and self.whole(places[name]) and name not in unpacked
        }
        names = {name: f"x{place}" for place, name in enumerate(region.operands)}
        for value in (value for node in region.nodes for value in node.results):
            names[value.name] = f"v{len(names)}"
        nodes = tuple(_renamed(node, names) for node in region.nodes)
        types = tuple(replace(self.values[n], name=names[n]) for n in region.operands)
        orders = {
            names[name]: placed.orders.get(name, place.order)
            for name, place in places.items()
            if name not in known
        }
        turns = turned or {}
        for name in known & turns.keys():
            orders |= dict.fromkeys((names[name], scaled(names[name])), turns[name])
        apart = frozenset(
            (names[name], at)
            for name, place in places.items()
            if name not in known
            for at in place.apart(orders[names[name]])
        )
        before = frozenset(names[name] for name in region.before)
        fixed = frozenset(names[name] for name in known)
        texts = tuple(map(typed, nodes))
        key = self.sizes, nodes, texts, types, fixed, tuple(sorted(orders.items())), apart, before
        constants = {names[name]: self.arrays[name] for name in region.operands if name in known}
        found = self._known.get(key)
        every: Mapping[str, Array] = constants
        if found is not None and constants and not priced:
            every = constants | _run(found[-1].derived, constants)
            try:
                kernels = [_rebound(made, every, orders) for made in found]
            except DescribeError:  # their code is for finite ones
                found = None
        elif found is not None:
            kernels = [made.taken.kernel for made in found]
        if found is None:
            found, every = self.made(nodes, types, constants, orders, apart, before)
            self._known.setdefault(key, found)
            kernels = [made.taken.kernel for made in found]

        own = {new: old for old, new in names.items()}
        name = region.nodes[-1].results[0].name

        def operand(name: str, made: _Made) -> Operand:
            place = places[name]
            order = orders.get(names[name], place.order)
            shape, strides = _joined(place, order, made.runs[names[name]])
            dtype = self.values[name].dtype
            return Operand(name, place.root, dtype, place.offset, shape, strides)

        for made, kernel in zip(found, kernels, strict=True):
            measured = tuple(
                Operand(f"{name}.{number}", f"{name}.{number}", one.largest.dtype, ZERO, (), ())
                for number, one in enumerate(made.assumed)
            )
            yield Step(
                kernel,
                _entry(kernel),
                made.code,
                f"{name}.largest" if measured else name,
                ("largest",) if measured else tuple(node.op for node in region.nodes),
                tuple(operand(own[name], made) for name in made.inputs),
                measured or tuple(operand(name, made) for name in region.results),
                tuple((facts.name, made.sizes[facts.name]) for facts in kernel.signature.sizes),
                made.taken.target,
                made.taken.refused,
                tuple(
                    (own[x], name, orders.get(x) or tuple(range(self.arrays[own[x]].ndim)))
                    for name, x in made.constants.items()
                    if x in own
                ),
                tuple(0.0 if priced else one.limit(every[one.points]) for one in made.assumed),
                made.distributed,
            )

    def whole(self, place: Place) -> bool:
        """Whether a constant is read as it is."""
        value = self.values[place.root]
        return place == own_place(value.name, value.shape)

    def made(
        self,
        nodes: Sequence[Node],
        types: Sequence[Value],
        constants: Mapping[str, Array],
        orders: Mapping[str, tuple[int, ...]],
        apart: frozenset[Pair],
        before: frozenset[str],
    ) -> tuple[tuple[_Made, ...], Mapping[str, Array]]:
        """The kernel of some nodes, and before it one that measures what it assumes something of; and all constants of them."""
        description = Description(self.sizes)
        results: tuple[Tensor, ...] = ()
        outside = {value.name: value for value in types}
        for node in _in_order(nodes, before):
            for name in node.operands:
                if name not in description.tensors:
                    description.given(outside[name])
            results = description.node(node.op, node, [value.name for value in node.results])
        for call in description.calls.values():
            return (self.of_program(call, nodes[-1], constants),), constants
        given = [description.tensors[name] for name in outside]
        last = [value.name for value in nodes[-1].results]
        renames = {r.name: name for r, name in zip(results, last, strict=True)}
        results = without_single_terms(written_in(results, before))
        described = {tensor.name for tensor in tensors_of(results)}
        if self.distributive:
            results = with_folded_factors(results, constants)
        results, derived, made, assumed = self.known(results, constants)
        every = {**constants, **made}
        given += [replace(tensor, definition=None) for tensor in derived]
        around = _Around(description.dims, given, derived, every, orders, apart)
        distributed = described != {tensor.name for tensor in tensors_of((*results, *derived))}
        found = replace(self.described(around, results, renames), distributed=distributed)
        if not assumed:
            return (found,), every
        largest = [one.largest for one in assumed]
        read = {one.name for one in tensors_of(largest)}
        around = replace(around, given=[one for one in given if one.name in read])
        return (replace(self.described(around, largest, {}), assumed=assumed), found), every

    def described(
        self, around: _Around, results: Sequence[Tensor], renames: Mapping[str, str]
    ) -> _Made:
        """The kernel of described tensors.

        renames  what the region calls the results
        """
        orders, dims = around.orders, around.dims
        read = {tensor.name for tensor in tensors_of(results)}
        constants = {name: array for name, array in around.constants.items() if name in read}
        outside = [one for one in around.given if one.name not in around.constants]
        given = [*outside, *(one for one in around.given if one.name in constants)]
        moved = {old: orders[new] for old, new in renames.items()}
        moved |= {tensor.name: orders[tensor.name] for tensor in given if tensor.name in orders}
        by_name = ordered(results, moved)
        results = tuple(by_name[tensor.name] for tensor in results)
        own = {new: old for old, new in renames.items()}
        beside = {(own.get(name, name), at) for name, at in around.apart}
        by_name, runs = joined_rows(results, dims, beside)
        results = tuple(by_name[tensor.name] for tensor in results)
        inputs = [by_name.get(tensor.name, tensor) for tensor in given]
        by_name, sizes = with_own_sizes(by_name, results, inputs)
        results = tuple(by_name[tensor.name] for tensor in results)
        inputs = [by_name[tensor.name] for tensor in inputs]
        shaped = _shaped(constants, runs, orders)
        key = str(source(computation(results, inputs, tuple(constants))))
        found = self.compiled(
            key,
            lambda target: compile(results, inputs, shaped, threads=self.threads, target=target),
            shaped,
        )
        every = {t.name: (1,) * len(t.shape) for t in given} | runs
        every |= {new: runs[old] for old, new in renames.items()}
        return _Made(
            found,
            [*self._compiled].index(key),
            tuple(one.name for one in outside),
            {name: name for name in constants},
            around.derived,
            every,
            {new: dims.extents[old] for new, old in sizes.items()},
        )

    def known(
        self, results: Sequence[Tensor], constants: Mapping[str, Array]
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], dict[str, Array], tuple[Assumed, ...]]:
        """The results, the tensors in them that depend on constants alone, the arrays of these, and what is assumed of what is read.

        By fewer multiplications where that pays, but where the weights of these would not be finite, and so neither the results.
        """
        if self.distributive:
            fewer, assumed = with_fewer_products(results, constants)
            measured = tuple(one.largest for one in assumed)
            found, derived = with_known((*fewer, *measured), constants)
            made = _run(derived, constants)
            if all(np.isfinite(array).all() for array in made.values() if array.dtype.kind == "f"):
                largest = found[len(fewer) :]
                assumed = tuple(
                    replace(one, largest=tensor)
                    for one, tensor in zip(assumed, largest, strict=True)
                )
                return found[: len(fewer)], derived, made, assumed
        plain, derived = with_known(results, constants)
        return plain, derived, _run(derived, constants), ()

    def of_program(self, call: Call, node: Node, constants: Mapping[str, Array]) -> _Made:
        """The kernel of a loop program."""
        inputs = dict(zip((b.name for b in given_to(call.program)), call.operands, strict=True))
        updated = {one.name for one in call.program.buffers if one.kind is Kind.INOUT}
        fixed = {
            own: name for own, name in inputs.items() if name in constants and own not in updated
        }
        key = f"{call.program}\n{', '.join(fixed)}"
        arrays = {own: constants[name] for own, name in fixed.items()}
        found = self.compiled(
            key,
            lambda target: compile(
                call.program, constants=arrays, threads=self.threads, target=target
            ),
            arrays,
        )
        values = (*call.operands, *(value.name for value in node.results))
        ranks = (*given_to(call.program), *call.program.results)
        return _Made(
            found,
            [*self._compiled].index(key),
            tuple(name for own, name in inputs.items() if own not in fixed),
            fixed,
            (),
            {name: (1,) * len(one.shape) for name, one in zip(values, ranks, strict=True)},
            call.sizes,
        )

    def compiled(
        self, key: str, made: Callable[[str | Target], Kernel], constants: Mapping[str, Array]
    ) -> Taken:
        """A kernel, compiled where none of that text is, with its constants."""
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = taken(self.targets, made, self.least_filled)
        elif constants:
            try:
                found = replace(found, kernel=found.kernel.with_constants(constants))
            except DescribeError:  # its code is for finite ones
                found = taken(self.targets, made, self.least_filled)
        return found


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


def _run(derived: Sequence[Tensor], constants: Mapping[str, Array]) -> dict[str, Array]:
    """What is computed from constants alone."""
    if not derived:
        return {}
    read = [tensor for tensor in tensors_of(derived) if tensor.definition is None]
    made = source(computation(derived, read)).run({one.name: constants[one.name] for one in read})
    arrays = made if isinstance(made, tuple) else (made,)
    return {tensor.name: own(array) for tensor, array in zip(derived, arrays, strict=True)}


def _rebound(
    made: _Made, constants: Mapping[str, Array], orders: Mapping[str, tuple[int, ...]]
) -> Kernel:
    """The kernel with other constants.

    Raises DescribeError where its code is for finite ones, and these are not.
    """
    asked = {name: constants[name] for name in made.constants.values()}
    shaped = _shaped(asked, made.runs, orders)
    given = {own: shaped[name] for own, name in made.constants.items()}
    return made.taken.kernel.with_constants(given) if given else made.taken.kernel


def _entry(kernel: Kernel) -> Entry | None:
    """Its machine code; None where the target makes none."""
    try:
        return kernel.entry
    except TargetError:
        return None


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    results = tuple(replace(value, name=names[value.name]) for value in node.results)
    arguments = tuple(renamed(one, names) for one in node.arguments)
    options = tuple((name, renamed(one, names)) for name, one in node.options)
    return Node(results, node.op, arguments, options)


def _joined(
    place: Place, order: Sequence[int], runs: Sequence[int]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Extents and strides where axes in order are joined, so many at a time."""
    shape, strides, at = list[Expr](), list[Expr](), 0
    for count in runs:
        axes = order[at : at + count]
        shape.append(extents.product(place.shape[axis] for axis in axes))
        long = [axis for axis in axes if place.shape[axis] != ONE]
        strides.append(place.strides[long[-1]] if long else ONE)
        at += count
    return tuple(shape), tuple(strides)


def _shaped(
    constants: Mapping[str, Array],
    runs: Mapping[str, tuple[int, ...]],
    orders: Mapping[str, tuple[int, ...]],
) -> dict[str, Array]:
    """Constants with their axes in order, and joined."""
    made = dict(constants)
    for name, held in constants.items():
        array = held.transpose(orders[name]) if name in orders else held
        shape, at = list[int](), 0
        for count in runs.get(name, (1,) * array.ndim):
            shape.append(prod(array.shape[at : at + count]))
            at += count
        made[name] = array.reshape(shape)
        if not np.may_share_memory(made[name], held):
            own(made[name])
    return made
