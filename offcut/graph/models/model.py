"""A graph that runs: few kernels, each for all sizes; what a call of one set of sizes needs is found once."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from offcut import debug
from offcut.backends.abi import Exported
from offcut.backends.host import arrays as host
from offcut.backends.host.cache import write_model
from offcut.backends.host.export import C_SUFFIXES, c_functions, check_name, export
from offcut.backends.host.saved_file import write_saved
from offcut.backends.memory import Block
from offcut.core.dtypes import numpy_dtype
from offcut.core.integers import whole
from offcut.core.interpret.run_arguments import checked_arrays, checked_sizes
from offcut.core.text.expressions import count
from offcut.errors import CallError, trim_traceback
from offcut.graph.graph import Bound
from offcut.graph.interpret import declaration_of
from offcut.graph.layout.placement import ONE
from offcut.graph.models.batches.microbatches import MicroBatches, Parts, check_parts
from offcut.graph.models.compiling.plan_cache import Stepped, from_kernels, from_later
from offcut.graph.models.compiling.split import (
    memory_of,
    resolve_targets,
)
from offcut.graph.models.cost import ModelCost, ModelPlan, cost_of, make_plan
from offcut.graph.models.frames import ARENA, Frame, Prepared, extents_of, limits_of, refusal
from offcut.graph.models.kernel_step import OBSERVER, Observer, for_memory, open_slices
from offcut.graph.models.known_calls import KnownCalls
from offcut.graph.models.memory.arena import Arena, arena_of
from offcut.graph.models.memory.call_memory import (
    Lent,
    MemoryBlocks,
    OutputArrays,
    Passage,
    check_constant,
    copy_to_memory,
    fresh_outputs,
    lend,
    output_operand,
    slot_bytes,
    stream_of,
)
from offcut.graph.models.memory.calls import Calls, Operands
from offcut.graph.models.profile import ModelProfile, profile_of
from offcut.graph.models.saving import (
    GraphSteps,
    NativeCode,
    native_code,
    options_of,
    rename_arguments,
    saved_code,
    with_names,
)
from offcut.graph.sizes import extents
from offcut.graph.sizes.extent_values import Numbers, Valued

MOST_FRAMES = 256
"""Sets of sizes whose frames are kept."""


@dataclass(eq=False)
class _SizedCall:
    """What is known of calls of one set of sizes.

    number  the values of extents
    fresh   the shape, the strides in elements, and the element type of each output that a call allocates; no strides where it
            lies row by row
    frames  that no call uses now; observed_frames: of calls that are watched
    passage  of inputs and results; None: they are where the values are
    is_new  whether no call has ended that machine code may make from then on, without Python; is_known  whether it does
    """

    sizes: Mapping[str, int]
    number: Numbers
    fresh: tuple[tuple[tuple[int, ...], tuple[int, ...] | None, str], ...]
    frames: list[Frame]
    observed_frames: list[Frame]
    passage: Passage | None
    is_new: bool = True
    is_known: bool = False


class Model:
    """A graph compiled for all its sizes.

    It can be pickled, where what it was asked for with can be: it is compiled again where it is read. ``model({"x": x})`` gives the outputs by name; ``model(x)``, arrays in the order of the inputs, the output itself, or a
    tuple of several. Arrays are numpy's, or of any package that speaks DLPack; results are of the first one's kind.
    Calls may run in several threads.

    bound  the graph that runs, after all passes, with its constants: kernels hold these as they read them, and an array is
           made of that when it is asked for
    steps  the calls of kernels, in order
    notes  what was not fused as it might have been, and why
    asked  the graph before all passes; how: the other arguments of `compile_graph` that make it again
    """

    def __init__(
        self,
        bound: Bound,
        plan: Stepped,
        requested: Bound,
        how: Mapping[str, Any],
    ) -> None:
        graph, steps, outputs = bound.graph, plan.steps, plan.outputs
        self._memory = memory_of(resolve_targets(how["target"]))
        steps = [for_memory(self._memory, step) for step in steps]
        self.steps, self.notes, self._how, self._found = tuple(steps), plan.notes, how, plan
        roots = {one.root for step in steps for one in (*step.inputs, *step.outputs)}
        roots |= {place.root for place in outputs.values()}
        read = [value.name for value in graph.constants if value.name in roots]
        arrays = from_kernels(bound.arrays, self.steps, read)
        self.bound = Bound(graph, arrays)
        self.asked = Bound(requested.graph, from_later(requested.arrays, bound.arrays, arrays))
        self.declared = declaration_of(graph)
        self._values, self._places = graph.values, outputs
        self._orders: Mapping[str, tuple[int, ...]] = how["orders"] or {}
        computed = {one.root for step in steps for one in step.outputs}
        self._fresh = fresh_outputs(graph.outputs, outputs, computed, self._values, self._orders)
        measured = [root for limits in limits_of(steps).values() for root in limits]
        self._lengths = {n: extents.product(value.shape) for n, value in self._values.items()}
        bases = (
            *(v.name for v in graph.inputs),
            *self._fresh.values(),
            *measured,
            *read,
        )
        self._lengths |= dict.fromkeys(measured, ONE)
        self._bases = {name: number for number, name in enumerate(bases, ARENA + 1)}
        self._read = {name: arrays[name] for name in read}
        for name, array in self._read.items():
            check_constant(self._values[name], array)
        self._constants = [copy_to_memory(self._memory, array) for array in self._read.values()]
        lasting = {place.root for place in outputs.values()}
        self.arena: Arena = arena_of(steps, self._values, set(self._bases), lasting, graph.sizes)
        self._inputs, self._outputs = [value.name for value in graph.inputs], graph.outputs
        self._named = {*self._inputs}
        numbers = {name: number for number, name in enumerate(self._fresh)}
        self._results = OutputArrays(
            graph.name, self._memory, self._values, outputs, self._lengths, self._orders
        )
        extents_asked = [*extents_of(steps, self.arena), *self._lengths.values()]
        for place in outputs.values():
            extents_asked += (place.offset, *place.shape, *place.strides)
        names = [size.name for size in graph.sizes]
        self._valued = Valued(extents_asked, names)
        given_back = [
            output_operand(name, place, self._values[place.root]) for name, place in outputs.items()
        ]
        operands = Operands(self.steps, given_back, self._lengths, self._valued)
        self._shared = Prepared(
            name=graph.name,
            memory=self._memory,
            steps=self.steps,
            arena=self.arena,
            bases=self._bases,
            addresses=[block.address for block in self._constants],
            calls=Calls(operands, self._valued),
            numbers=np.array([self._bases.get(root, ARENA) for root in operands.roots], np.int64),
            batches=MicroBatches(operands, self._values, self._lengths, graph.sizes, how["parts"]),
            valued=self._valued,
        )
        self._slices = (*open_slices(requested.graph),)
        self._calls: dict[object, _SizedCall] = {}
        self._given = [numbers.get(name) for name in graph.outputs]
        is_native = self._memory.is_host and self._given == [*range(len(self._given))]
        self._known = KnownCalls(graph, self.steps, outputs, is_native)
        self.at_known_sizes, self.named = self._known.call, self._known.function_of_calls
        self._by_name = self.named({n: n for n in self._inputs}, {n: n for n in self._outputs})
        self._blocks = MemoryBlocks(graph.name, self._memory)
        self._lock = threading.Lock()
        self._as_written: Model | None = None

    @trim_traceback
    def __call__(self, *operands: Any, **sizes: int) -> Any:
        """The outputs.

        operands  a mapping with an array for each input, or the arrays in order
        sizes     those that no shape determines

        Raises CallError where an array does not fit, or the graph does not run at these sizes.
        """
        if not sizes and (results := self._by_name(*operands)) is not None:
            return results
        for name, size in sizes.items():
            if whole(size) is None:
                raise CallError(
                    self.bound.graph.name,
                    f"cannot take {name}= {type(size).__name__}",
                    because="what is named beside the arrays is a size",
                    help=(
                        f"model({{{name!r}: {name}}})",
                        "model(array, …), in the order of the inputs",
                    ),
                )
        feed = operands[0] if len(operands) == 1 else None
        if isinstance(feed, Mapping):
            results = self.outputs(self._in_order(feed), sizes)
            return dict(zip(self._outputs, results, strict=True))
        results = self.outputs(operands, sizes)
        return results[0] if len(results) == 1 else results

    def outputs(self, arrays: Sequence[Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """The outputs, in order.

        arrays  in the order of the inputs; sizes  those that no shape determines

        Raises what a call does.
        """
        if not sizes and (results := self.at_known_sizes(*arrays)) is not None:
            return results
        observer = OBSERVER.get()
        graph = self.bound.graph
        memory = self._memory
        lent = [lend(array, n, graph.inputs, graph.name, memory) for n, array in enumerate(arrays)]
        key: tuple[object, ...] = tuple([(one.shape, one.dtype, one.is_there) for one in lent])
        key = (*key, *sorted(sizes.items())) if sizes else key
        call = self._calls.get(key) or self._new(key, lent, sizes)
        if observer is None:
            return self._run(arrays, sizes, lent, call, call.frames, None)
        with observer.model(self, call.sizes):
            return self._run(arrays, sizes, lent, call, call.observed_frames, observer)

    def _run(
        self,
        arrays: Sequence[Any],
        sizes: Mapping[str, int],
        lent: Sequence[Lent],
        call: _SizedCall,
        frames: list[Frame],
        observer: Observer | None,
    ) -> tuple[Any, ...]:
        """Return the outputs of a call.

        frames  that no call uses now, of those with or without an observer
        """
        graph, memory = self.bound.graph, self._memory
        try:
            frame = frames.pop()
        except IndexError:
            frame = Frame(self._shared, call.number, call.sizes, observer is not None)
        if observer is not None:
            frame.observer = observer
        kind, is_there = (lent[0].kind, lent[0].is_there) if lent else ("numpy", False)
        stream = frame.stream = 0 if memory.is_host else stream_of(memory, lent, graph.name)
        results = [self._results.allocate(kind, *fresh, is_there) for fresh in call.fresh]
        addresses = [*[one.address for one in lent], *[at for _, at in results]]
        passage, arena_bytes = call.passage, frame.arena_bytes
        began = perf_counter()
        if passage is None:
            block = self._blocks.take(arena_bytes)
            frame.bases[ARENA : ARENA + len(addresses) + 1] = [block.address, *addresses]
            frame.run()
        else:
            arena_bytes = slot_bytes(arena_bytes)
            block = self._blocks.take(arena_bytes + passage.bytes, stream)
            first = block.address + arena_bytes
            there = passage.enter(first, addresses, stream)
            frame.bases[ARENA : ARENA + len(there) + 1] = [block.address, *there]
            frame.run()
            passage.leave(first, addresses, stream)
        outputs = [
            results[place][0]
            if place is not None
            else self._copied_output(name, call.number, frame, kind, is_there)
            for name, place in zip(graph.outputs, self._given, strict=True)
        ]
        seconds, within = perf_counter() - began, frame.within
        free: Block | None = block
        is_kept = False
        if within and observer is None and not sizes and (call.is_new or call.is_known):
            with self._lock:
                if call.is_new:
                    shapes = [one.shape for one in lent]
                    is_kept = self._known.keep(call, frame, shapes, call.fresh, seconds)
                    call.is_new, call.is_known = False, is_kept
                if call.is_known:
                    free = self._known.lend(block)
        if not is_kept:
            frames.append(frame)  # from here on another call may use it
        if free is not None:
            self._blocks.give_back(free, stream)
        if not within:
            return self._plain().outputs(arrays, sizes)
        if is_there or kind in ("numpy", "torch"):
            return tuple(outputs)
        return tuple(host.convert_like(kind, arrays[0], array) for array in outputs)

    def __repr__(self) -> str:
        inputs = ", ".join(value.name for value in self.bound.graph.inputs)
        sizes = ", ".join(size.name for size in self.bound.graph.sizes)
        return f"<model {self.bound.graph.name}({inputs}) for any {sizes or 'call'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """It is compiled again where it is read: its kernels come from the cache."""
        from offcut.graph.models.compile_graph import compile_graph

        return partial(compile_graph, **self._how), (self.asked,)

    def plan(self, **sizes: int) -> ModelPlan:
        """What a call runs: the kernels, in order, and the memory between them; in formulas where no size is given.

        Raises CallError for a size that is missing.
        """
        return make_plan(self.bound.graph, self._shared, self.notes, sizes)

    @trim_traceback
    def profile(self, *operands: Any, calls: int = 20, **sizes: int) -> ModelProfile:
        """Return what each kernel of a call takes, measured, with its share and what limits it by the cost model; it prints, plots, and is a
        trace for Chrome.

        operands, sizes  as a call has them
        calls            that are timed

        Raises what a call does.
        """
        return profile_of(self.bound.graph.name, partial(self, *operands, **sizes), calls)

    def save(
        self,
        path: str | os.PathLike[str],
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        returns: str = "arrays",
        *,
        shared: bool = False,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the model into a file: machine code, and constants as it reads them. `offcut.load` runs it where there is no compiler, with
        the same bits and as many threads, each kernel for the whole of a batch.

        inputs, outputs  the names by which a mapping gives the inputs, and a call the outputs, each with the one of the graph; None: these
        returns  what a call with arrays in order gives: "arrays", or a "mapping" by these names
        shared   whether the code is a shared library beside the file, which runs where numpy is the only package
        source   what the file that the model was says of itself, as JSON has it

        Raises TargetError for a kernel that is no machine code, or where there is no linker; DescribeError where the file cannot be written.
        """
        native = self._native("save", inputs, outputs)
        code, saved = saved_code(native, native.parts, options_of(self.steps))
        complete = with_names(saved, self.bound.graph, inputs, outputs, returns)
        write_saved(
            path,
            replace(complete, source=source or {}),
            code,
            native.constants,
            shared=shared,
        )

    def write_cached(
        self,
        key: str,
        inputs: Mapping[str, str],
        outputs: Mapping[str, str],
        returns: str,
        source: Mapping[str, Any],
    ) -> None:
        """Keep the model by a key, as `offcut.backends.host.cache` reads it; nothing where its kernels are not all machine code of
        this process alone.

        inputs, outputs, returns, source  as `save` says
        """
        entries = [step.entry for step in self.steps]
        if not entries or not all(entry is not None and entry.objects for entry in entries):
            return
        native = native_code("save", self.steps_of_graph, runs=self._shared.batches.whole)
        code, saved = saved_code(native, (), options_of(self.steps))
        complete = with_names(saved, self.bound.graph, inputs, outputs, returns)
        saved = replace(complete, source=source, key=key)
        write_model(saved, code, native.constants, native.objects)

    def export(
        self,
        folder: str | os.PathLike[str],
        name: str | None = None,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
    ) -> Exported:
        """Return an object file and a C header: the model for programs without Python, as `Kernel.export` has a kernel.

        folder  where ``NAME.o`` and ``NAME.h`` are written; it is made where there is none
        name    of the C functions; by default that of the graph
        inputs, outputs  what the header calls them, as `save` says

        Raises DescribeError for a name that C does not take, or a folder that cannot be written to; TargetError for a kernel that is no
        machine code.
        """
        called = self.bound.graph.name if name is None else name
        check_name(called)
        native = self._native("export", inputs, outputs)
        glue = c_functions(
            native.signature, [bytes(one) for one in native.constants], is_dense=True
        )
        symbols = {symbol: called + suffix for symbol, suffix in C_SUFFIXES.items()}
        options = options_of(self.steps)
        code = native.target.portable_code(native.parts, (native.glue, glue), symbols, options)
        return export(native.signature, code, len(native.constants), folder, called, is_dense=True)

    def _native(
        self, op: str, inputs: Mapping[str, str] | None, outputs: Mapping[str, str] | None
    ) -> NativeCode:
        """Return the model as machine code, its arrays by the names that a file gives them."""
        plain = self._plain().steps_of_graph if any(step.limits for step in self.steps) else None
        native = native_code(op, self.steps_of_graph, plain)
        return replace(
            native, signature=rename_arguments(native.signature, inputs or {}, outputs or {})
        )

    @property
    def steps_of_graph(self) -> GraphSteps:
        """Return the graph with the kernels that run it."""
        graph = self.bound.graph
        return GraphSteps(graph, self.steps, self._places, self._read, self._slices)

    def in_parts(self, parts: Parts) -> Model:
        """The same kernels, of which these run for a part of the batch at a time, as `compile_graph` says.

        Raises what `compile_graph` does of `parts`.
        """
        check_parts("graph", parts)
        return Model(self.bound, self._found, self.asked, {**self._how, "parts": parts})

    def cost(self, **sizes: int) -> ModelCost:
        """What a call of these sizes is predicted to cost on one core, by kernel and in all.

        Raises CallError for a size that is missing or not allowed.
        """
        return cost_of(self.bound.graph, self._shared, sizes)

    def _plain(self) -> Model:
        """The model whose sums are computed as they are written: for data that fewer products take out of the finite numbers."""
        from offcut.graph.models.compile_graph import compile_graph

        with self._lock:
            if self._as_written is None:
                name = self.bound.graph.name
                debug.note(1, f"{name}: data too large for fewer products, compiled as written")
                how = {**self._how, "distributive": False}
                self._as_written = compile_graph(self.asked, **how)
            return self._as_written

    def _in_order(self, operands: Mapping[str, Any]) -> list[Any]:
        if operands.keys() != self._named:
            checked_arrays(self.declared, operands)
        return [*map(operands.__getitem__, self._inputs)]

    def _new(self, key: object, lent: Sequence[Lent], sizes: Mapping[str, int]) -> _SizedCall:
        """What is known of a call that is met for the first time, which is checked."""
        inputs = self.bound.graph.inputs
        if len(lent) != len(inputs):
            raise CallError(
                self.bound.graph.name,
                f"takes {count(len(inputs), 'array')}, got {len(lent)}",
                because=f"its inputs are {', '.join(value.name for value in inputs) or 'none'}",
            )
        windows = {
            value.name: host.window(one.owner)
            if isinstance(one.owner, host.ArrayView) and not one.is_there
            else np.broadcast_to(numpy_dtype(one.dtype).type(0), one.shape)
            for value, one in zip(inputs, lent, strict=True)
        }
        checked = checked_sizes(self.declared, checked_arrays(self.declared, windows), dict(sizes))
        number = self._valued(checked)
        for one in self._slices:
            if because := one.fault(number):
                raise refusal(self.bound.graph.name, checked, one.name, because)
        for step in self.steps:
            if step.entry is not None and not step.entry.address:
                step.kernel()  # of another machine: it says so
        fresh = tuple(self._results.facts_of(output, number) for output in self._fresh)
        passage = self._results.passage(lent, self._fresh.values(), number)
        with self._lock:
            if len(self._calls) >= MOST_FRAMES:
                forgotten = self._calls.pop(next(iter(self._calls)))
                forgotten.is_new = False
                self._known.remove(forgotten)
            return self._calls.setdefault(key, _SizedCall(checked, number, fresh, [], [], passage))

    def _copied_output(
        self, output: str, number: Numbers, frame: Frame, kind: str, is_there: bool
    ) -> Any:
        """Return a fresh array of an output that lies in other memory, or otherwise than it is asked for."""
        base, start = frame.place(self._places[output].root)
        address = frame.bases[base] + start
        return self._results.copy(output, number, address, frame.stream, kind, is_there)
