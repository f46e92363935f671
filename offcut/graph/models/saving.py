"""A model as machine code that needs no compiler: its kernels in one object file, behind one entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from offcut.backends.abi import AffineFact, Argument, Entry, PortableCode, Signature
from offcut.backends.host.by_name_ir import by_name_ir
from offcut.backends.host.fast_entry import DECLARED, fast_entry_ir
from offcut.backends.host.saved_file import KERNEL_SYMBOL, SavedCode
from offcut.backends.options import KernelPart, Options
from offcut.backends.signature import relation_of
from offcut.backends.target import Target
from offcut.core.conditions import conjuncts
from offcut.describe.request import Array
from offcut.errors import TargetError
from offcut.graph.graph import Graph
from offcut.graph.layout.placement import ZERO, Place
from offcut.graph.models.batches.microbatches import WholeBatches
from offcut.graph.models.kernel_step import OpenSlice, Step
from offcut.graph.models.memory.arena import arena_of
from offcut.graph.models.native_entry import NativeModel, entry_ir
from offcut.graph.sizes import extents
from offcut.kernel import Kernel


@dataclass(frozen=True)
class GraphSteps:
    """A graph as the kernels that run it.

    outputs    where each lies
    constants  arrays of the graph that kernels read as they are
    """

    graph: Graph
    steps: Sequence[Step]
    outputs: Mapping[str, Place]
    constants: Mapping[str, Array]
    slices: Sequence[OpenSlice]


@dataclass(frozen=True)
class NativeCode:
    """What an object file of a model is made of.

    kernels    by the symbols with which their functions begin; glue: LLVM IR of the entry that calls them
    constants  arrays of uint8, in the order of the entry's pointers
    faults     why a call cannot run, by its status
    """

    target: Target
    kernels: Mapping[str, Kernel]
    glue: str
    signature: Signature
    constants: tuple[Array, ...]
    faults: tuple[str, ...]

    @property
    def parts(self) -> tuple[KernelPart, ...]:
        """Return the plans of its kernels."""
        pairs = self.kernels.items()
        return tuple(KernelPart(one, k.code.planned, k.signature) for one, k in pairs)

    @property
    def objects(self) -> list[tuple[bytes, ...]]:
        """Return the object files of its kernels, in the order of their numbers."""
        return [kernel.entry.objects for kernel in self.kernels.values()]


def native_code(
    op: str,
    model: GraphSteps,
    plain: GraphSteps | None = None,
    runs: WholeBatches | None = None,
) -> NativeCode:
    """Return a model as machine code.

    op     what is refused, in words of errors
    plain, runs  as `entry_ir` says

    Raises TargetError for a kernel that is no machine code, and for kernels of several targets; DescribeError for a promise that no
    call can check.
    """
    models = [model] if plain is None else [model, plain]
    steps = [step for one in models for step in one.steps]
    target = _target(op, model.graph.name, steps)
    memories = _Memories(len(model.graph.inputs) + len(model.graph.outputs))
    symbols: dict[int, str] = {}
    for step in steps:
        symbols.setdefault(id(step.kernel.code), KERNEL_SYMBOL.format(len(symbols)))
    first, *others = [_native(one, symbols, memories) for one in models]
    glue, faults = entry_ir(first, next(iter(others), None), runs)
    kernels = {symbols[id(step.kernel.code)]: step.kernel for step in steps}
    return NativeCode(target, kernels, glue, signature_of(model), tuple(memories.arrays), faults)


def signature_of(model: GraphSteps) -> Signature:
    """Return how a model is called.

    Raises DescribeError for a promise of the graph that no call can check.
    """
    graph = model.graph
    names = {size.name: size.name for size in graph.sizes}
    facts = (part for fact in graph.assumptions for part in conjuncts(fact))
    relations = (relation_of(fact, names) for fact in facts)
    outputs = ((name, model.outputs[name]) for name in graph.outputs)
    return Signature(
        graph.name,
        tuple(Argument(one.name, one.dtype, one.shape) for one in graph.inputs),
        tuple(Argument(name, graph.values[at.root].dtype, at.shape) for name, at in outputs),
        graph.sizes,
        tuple(one for one in relations if isinstance(one, AffineFact)),
    )


def rename_arguments(
    signature: Signature, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> Signature:
    """Return a signature whose arguments have other names: each is given with the one that it has; those without keep theirs."""

    def by(names: Mapping[str, str], arguments: Iterable[Argument]) -> tuple[Argument, ...]:
        own = {name: user_name for user_name, name in reversed([*names.items()])}
        return tuple(replace(one, name=own.get(one.name, one.name)) for one in arguments)

    return replace(
        signature, inputs=by(inputs, signature.inputs), outputs=by(outputs, signature.outputs)
    )


class _Memories:
    """The constants of an entry, each once, behind its other pointers."""

    def __init__(self, first: int) -> None:
        self.first, self.arrays = first, list[Array]()
        self._numbers: dict[int, int] = {}

    def pointer(self, memory: Array) -> int:
        """Return the number of the pointer of some bytes."""
        address = memory.__array_interface__["data"][0]
        if address not in self._numbers:
            self._numbers[address] = self.first + len(self.arrays)
            self.arrays.append(memory)
        return self._numbers[address]


def _target(op: str, name: str, steps: Sequence[Step]) -> Target:
    """Return the target that runs all steps by machine code."""
    for step in steps:
        if step.entry is None:
            raise TargetError(
                op,
                f"cannot {op} {name}",
                at=step.name,
                because=f"its kernel runs on {step.target}, which makes no machine code",
                help=('target="cpu"',),
            )
    targets: dict[str, Target] = {step.target: step.kernel.code.target for step in steps}
    if len(targets) > 1:
        raise TargetError(
            op,
            f"cannot {op} {name}",
            because=f"its kernels run on several targets: {', '.join(targets)}",
        )
    if not targets:
        raise TargetError(
            op,
            f"cannot {op} {name}",
            because="it has no kernels: its outputs are inputs or constants",
        )
    (target,) = targets.values()
    return target


def _native(model: GraphSteps, symbols: Mapping[int, str], memories: _Memories) -> NativeModel:
    graph, steps = model.graph, model.steps
    bases = {value.name: number for number, value in enumerate(graph.inputs)}
    bases |= {name: memories.pointer(_bytes(array)) for name, array in model.constants.items()}
    outputs = [
        (model.outputs[name], number)
        for number, name in enumerate(graph.outputs, len(graph.inputs))
    ]
    computed = {one.root for step in steps for one in step.outputs}
    for place, number in outputs:
        whole = extents.product(place.shape) == extents.product(graph.values[place.root].shape)
        dense = place.compact and place.offset == ZERO and whole
        if dense and place.root in computed and place.root not in bases:
            bases[place.root] = number
    measured = {o.root for step in steps for o, _ in zip(step.outputs, step.limits, strict=False)}
    lasting = {place.root for place, _ in outputs}
    arena = arena_of(steps, graph.values, {*bases, *measured}, lasting, graph.sizes)
    entries = [_entry(step) for step in steps]
    constants = [[memories.pointer(one) for one in entry.memories] for entry in entries]
    own = [symbols[id(step.kernel.code)] for step in steps]
    return NativeModel(graph, steps, arena, own, bases, constants, outputs, model.slices)


def _entry(step: Step) -> Entry:
    assert step.entry is not None
    return step.entry


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def saved_code(
    native: NativeCode, parts: Sequence[KernelPart], options: Options
) -> tuple[PortableCode, SavedCode]:
    """Return the object file of a model with these kernels, and what a file says beside it: arrays have the names of the signature."""
    names = "entry", "workspace", "fastcall", "by_name", "supported"
    symbols = {f"offcut_{name}": f"offcut_{name}" for name in names}
    fastcall = fast_entry_ir(native.signature, constants=len(native.constants), dense=True)
    glue = native.glue, DECLARED + fastcall + by_name_ir()
    threads = options.threads if parts else 1
    code = native.target.portable_code(parts, glue, symbols, options, threads=threads)
    saved = SavedCode("model", native.signature, code.triple, code.features, native.faults)
    return code, saved


def with_names(
    saved: SavedCode,
    graph: Graph,
    inputs: Mapping[str, str] | None,
    outputs: Mapping[str, str] | None,
    returns: str,
) -> SavedCode:
    """Return what a file says, its arrays by the names that a user has for them, as `Model.save` takes these."""
    return replace(
        saved,
        inputs=_positions(inputs, [value.name for value in graph.inputs]),
        outputs=_positions(outputs, graph.outputs),
        returns=returns,
    )


def _positions(names: Mapping[str, str] | None, of_graph: Sequence[str]) -> dict[str, int]:
    """Return the positions of values of a graph by the names that a file gives them."""
    by_name = names if names is not None else {name: name for name in of_graph}
    return {name: of_graph.index(own) for name, own in by_name.items()}


def options_of(steps: Iterable[Step]) -> Options:
    """Return the options of the kernels of a model: those of the first."""
    return next(iter(steps)).kernel.code.options
