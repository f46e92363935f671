"""The door through which tests reach what offcut keeps to itself: one name of the package, one line here.

Goldens, the differential net, planted faults and conformance import of offcut its public face alone (`offcut`,
`offcut.ir`, `offcut.errors`) and this module; `tests/unit/test_facade.py` keeps it so. Nothing of offcut is
imported before it is used: a fault is planted in a module as it is loaded.

    functions     what a test asks: how a program is planned, proved, cut, what its code calls
    `_NAMES`      values and classes that tests hold in their hands, each with the module that it lives in
    `HOOKS`       functions of the package that a test puts others in the place of
    `SOURCES`     modules in whose text the net plants faults
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import offcut as oc

_NAMES = {
    # Programs, beyond `offcut.ir`.
    "add": "core.index",
    "as_program": "core.traversal:canonicalize",
    "const": "core.index",
    "literal": "core.index:literal_value",
    "numpy_dtype": "core.dtypes",
    "old_objects_aside": "core.process:freeze_gc",
    "real": "core.expr",
    "side_by_side": "core.traversal:parallel_loop_paths",
    "simplify": "core.index",
    "sub": "core.index",
    "substitute": "core.expr",
    "unpickle": "core.unpickle",
    "with_blocks": "core.traversal:map_blocks",
    "DTYPES": "core.dtypes",
    "FLOATS": "core.dtypes",
    "INTEGERS": "core.dtypes",
    "NUMBERS": "core.dtypes",
    "UNSIGNED": "core.dtypes",
    "evaluate": "core.interpret.values",
    "format_expr": "core.text.printer",
    "parse_expr": "core.text.expressions",
    # What is described, and what is asked to be compiled.
    "Computation": "describe.computation",
    "Place": "describe.tile_shapes",
    "TileShape": "describe.tile_shapes",
    "multiples": "describe.tile_shapes",
    "Array": "describe.request",
    "Loaded": "backends.target",
    "Request": "backends.compile_request:CompileRequest",
    "Signature": "backends.abi",
    "requested": "backends.compile_request:make_request",
    "stand_ins": "backends.compile_request:zero_constants",
    "Options": "backends.target",
    "proved_plan": "backends.decide",
    "Unproved": "backends.verify",
    # Partitions, proofs.
    "CUT": "partition",
    "dependences": "polyhedral",
    "difference": "proof.by_instances.counterexample",
    "STRATEGIES": "partition",
    "separate": "partition.separate",
    "Strategy": "partition",
    "HandSchedule": "schedule",
    "Nest": "schedule",
    "Together": "schedule",
    "check_equal": "proof",
    # Graphs.
    "Bound": "graph",
    "Builder": "graph",
    "Block": "backends.memory",
    "MemoryBlocks": "graph.models.memory.call_memory",
    "Model": "graph",
    "Ref": "graph",
    "compile_graph": "graph",
    "interpret_graph": "graph",
    "parse_graph": "graph",
    # The CPU.
    "Cpu": "backends.cpu.target",
    "Host": "backends.cpu.machine.isa",
    "Parallel": "backends.cpu.threads.parallel",
    "Planned": "backends.cpu.planning.cpu_plan:CpuPlan",
    "alone": "backends.cpu.threads.parallel:single_threaded",
    "check_shared": "backends.cpu.threads.parallel:check_race_free",
    "parallel": "backends.cpu.threads.parallel:mark_parallel_loops",
    # Calls by the C entry.
    "ENTRY": "backends.host.call_sequence",
    "SlowPath": "backends.host.call",
    "View": "backends.host.arrays:ArrayView",
    "WORKSPACE": "backends.host.call_sequence",
    "bytes_of": "backends.cpu.lowering.call_layout:buffer_bytes",
    "check_status": "backends.host.call_sequence",
    # Machines, costs.
    "load_machine": "costmodel:load",
    "processor": "costmodel",
    # Cases made small.
    "Reduction": "reduce:Request",
    "normal": "core.testcase_shrinking:error_class",
    "shrunk": "core.testcase_shrinking:shrink",
    "simpler": "reduce",
    "simpler_cuts": "reduce",
    # Searches and records.
    "Case": "costmodel.learned.case",
    "ClosedForm": "tuning.schedule_prices",
    "Cases": "tuning.learning.online_model",
    "Measured": "tuning.problem",
    "Problem": "tuning.problem",
    "LoopCuts": "backends.cpu.planning.nest_decisions",
    "OpenDecisions": "backends.cpu.planning.search_space",
    "ScheduleSpace": "search",
    "Time": "tuning.problem",
    "ExpectedCost": "search",
    "Limits": "tuning.problem",
    "TriedSchedule": "search.explorers",
    "get_explorer": "search.explorers",
    "nests_in": "schedule",
    "parts_of": "schedule",
    "with_parts": "schedule",
    "shipped_machines": "costmodel",
    # Files that are read.
    "CorrectedModel": "costmodel.learned.corrected_model",
    "Dataset": "costmodel.learned.dataset",
    "Valued": "graph.sizes.extent_values",
    "app": "cli",
    "handed_over": "search.record:read_file",
}
"""A name of tests, and the module of offcut that it lives in; after a colon its name there, where it differs."""

HOOKS = {
    # Passes of the CPU's planner.
    "cut": "backends.cpu.planning.nest_plan:apply",
    "lanes of rows": "backends.cpu.planning.unit_binding:mark_row_reductions",
    "keep inside": "backends.cpu.planning.loop_plan:insert_bounds_guards",
    "separate": "backends.cpu.planning.loop_plan:separate_conditions",
    "cut nests": "backends.cpu.planning.loop_plan:with_products",
    "cover": "backends.cpu.planning.loop_plan:without_covers",
    "vectorize": "backends.cpu.planning.unit_binding:vectorize",
    "threads": "backends.cpu.planning.unit_binding:mark_parallel_loops",
    "prove": "backends.decide:unproved_step",
    # The host.
    "host": "backends.cpu.machine.isa:host",
    "own machine": "backends.cpu.machine.isa:detect_machine",
    "tile unit's code": "backends.cpu.microkernels.amx:text",
    "tile unit is permitted": "backends.cpu.microkernels.amx:is_amx_permitted",
}
"""Functions of the package that tests put others in the place of."""

SOURCES = {
    "accesses": "backends.cpu.lowering.expressions",
    "addressing": "backends.cpu.lowering.addressing",
    "affine": "polyhedral.affine",
    "amx_code": "backends.cpu.microkernels.amx_code",
    "avx512_blocks": "backends.cpu.microkernels.avx512_blocks",
    "binding": "backends.host.binding",
    "call": "backends.host.call",
    "dots": "backends.cpu.microkernels.dot_block",
    "elements": "backends.llvm.elements",
    "allocation": "backends.host.array_ir",
    "entry": "backends.host.fast_entry",
    "expressions": "backends.cpu.lowering.expressions",
    "footprints": "polyhedral.units",
    "independence": "polyhedral.units",
    "bounds_guards": "backends.bounds_guards",
    "interleave": "backends.cpu.lowering.interleave",
    "intervals": "core.intervals",
    "ir": "backends.llvm.ir",
    "judge": "partition.judge.judge",
    "layout": "backends.cpu.lowering.call_layout",
    "llvm_blocks": "backends.cpu.microkernels.llvm_blocks",
    "lower": "backends.cpu.lowering.lower",
    "places": "partition.judge.places",
    "private": "polyhedral.units",
    "reductions": "backends.cpu.lowering.lane_reductions",
    "row_blocks": "backends.cpu.lowering.microkernel_calls",
    "scalars": "backends.llvm.scalars",
    "statements": "backends.cpu.lowering.vector_statements",
    "threaded": "backends.cpu.threads.spmd_lowering",
    "boundaries": "polyhedral.sync.boundaries",
    "vectors": "backends.cpu.lowering.vectors",
    "vnni": "backends.cpu.microkernels.vnni",
    "widened_operand": "backends.cpu.microkernels.widened_operand",
}
"""Modules in whose text faults are planted, by the name that a fault has for them."""


def _module(place: str) -> Any:
    return importlib.import_module(f"offcut.{place}")


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"the facade has no {name!r}: a line of its table says where it lives")
    place, _, there = _NAMES[name].partition(":")
    return getattr(_module(place), there or name)


# Hooks.


def hooked(name: str) -> Any:
    """Return the function of the package at a hook, or what stands in its place now."""
    place, _, there = HOOKS[name].partition(":")
    return getattr(_module(place), there)


def put(name: str, value: Any) -> None:
    """Put `value` in the place of the function at a hook, for good."""
    place, _, there = HOOKS[name].partition(":")
    setattr(_module(place), there, value)


@contextmanager
def instead(name: str, value: Any) -> Iterator[Any]:
    """Put `value` in the place of the function at a hook, inside; give that function."""
    before = hooked(name)
    put(name, value)
    try:
        yield before
    finally:
        put(name, before)


# What a process remembers.


def forget_plans() -> None:
    """What is compiled next is planned anew."""
    _module("backends.decide").forget_plans()


def forget_code() -> None:
    """What is compiled next has its microkernels compiled, or read from the cache on disk."""
    _module("backends.cpu.build").clear_cache()


def forget_rates() -> None:
    """External microkernels are timed anew."""
    _module("backends.cpu.microkernels.external")._costs.cache_clear()


def forget_proofs() -> None:
    """Programs are compared anew."""
    _module("proof.equivalence")._prove_pair.cache_clear()


@contextmanager
def own_strategies() -> Iterator[None]:
    """Strategies that are registered inside are gone after it."""
    users = _module("partition.strategies.catalog")._USERS
    before = dict(users)
    try:
        yield
    finally:
        users.clear()
        users.update(before)


# Programs: described, cut, proved.


def panels(width: int) -> Any:
    """Return the layout of panels of `width` columns, row by row."""
    return _module("core.panels").panels(width)


def computation(*tensors: Any) -> Any:
    """Return what is described, as the cutter and the planner take it."""
    return _module("describe.computation").computation([*tensors])


def loops_of(described: Any) -> Any:
    """Return the loop program that says what is described, in plain loops."""
    return _module("describe.computation").source(described)


def strategies() -> list[str]:
    """Return the names of all strategies but `exact`, which takes sizes that are known."""
    partition = _module("partition")
    return [str(one) for one in partition.STRATEGIES if one != partition.EXACT]


def cut_described(
    described: Any, tile: Mapping[str, int], tail: Mapping[str, str], kernels: Sequence[Any]
) -> Any:
    """Return the loops of what is described, cut in tiles that `kernels` may cover."""
    return _module("schedule").cut(described, tile, tail, kernels).loops


def cut_text(
    program: Any, tile: Mapping[str, int], tail: Mapping[str, str], kernels: Sequence[Any]
) -> Any:
    """Return the loops of a loop program, cut likewise."""
    cuts = _module("partition").checked_request(tile, tail)
    return _module("schedule").cut_program(program, cuts, kernels).loops


def theorems(source: Any, emitted: Any) -> set[str]:
    """Return the names of the theorems by which `emitted` computes `source`, its sums in any order.

    Raises PartitionError, with a witness, where it does not.
    """
    found = _module("proof").check_equal(source, emitted, reassociate=True)
    return {theorem.name for theorem in found}


# The CPU: plans, microkernels, code.


@cache
def described_host() -> Any:
    """Return a processor with AVX-512 and dot products of bytes, wherever tests run."""
    isa, vnni = _module("backends.cpu.machine.isa"), _module("backends.cpu.microkernels.vnni")
    machine = _module("costmodel").load("cascade-lake")
    return isa.Host("x86_64-tests", vnni.FEATURES, isa.isa_of(isa.AVX512_FEATURES, machine))


def plan_of(program: Any, host: Any = None, options: Any = None) -> Any:
    """Return how a loop program is planned, by default for `described_host`: its program, schedule and cost."""
    users = _module("partition").Users.of(program)
    return _first_plan(
        program, users, host or described_host(), options or __getattr__("Options")()
    )


def _first_plan(program: Any, users: Any, host: Any, options: Any) -> Any:
    """Return the first plan of the CPU's policy that is proved."""
    decide = _module("backends.decide")

    def proved(plan: Any) -> Any:
        source = program if plan.by_hand is None else plan.by_hand
        steps = (source, *plan.through, plan.program)
        return hooked("prove")(steps, options.reassociate) or plan

    plans = _module("backends.cpu.planning.planner").plans(program, users, host, options)
    return decide.first_proved(next(plans), plans, proved)


def plan_of_described(described: Any) -> Any:
    """Return how what is described is planned for `described_host`; its axes have the user's names."""
    users = _module("partition").users_of(described)
    return _first_plan(loops_of(described), users, described_host(), __getattr__("Options")())


def planned(program: Any) -> Any:
    """Return the loops that `described_host` runs a program in."""
    return plan_of(program).program


def passes_of_planning() -> list[str]:
    """Return the passes of the CPU's planner, in its own words."""
    lines = (_module("backends.cpu.planning.planner").__doc__ or "").splitlines()
    arrows = [line for line in lines if "->" in line]
    return [step.strip() for line in arrows for step in line.rpartition("  ")[0].split("->")]


def with_threads(made: Any, host: Any) -> Any:
    """Return a plan for one thread, shared by the threads of `host`."""
    return _module("backends.cpu.planning.unit_binding").with_threads(made, host)


def microkernels_here() -> list[str]:
    """Return the names of the microkernels of this machine, those that are preferred first."""
    kernels = _module("backends.cpu.microkernels.available")
    return [family.microkernel.name for family in kernels.families(hooked("host")())]


def family_of(microkernel: oc.Microkernel) -> Any:
    """Return a family of the CPU without functions."""
    family = _module("backends.cpu.microkernels.family").Family
    return family(microkernel, lambda *_: "", lambda *_: "", {})


def claimed(program: Any) -> set[str]:
    """Return the names of the microkernels that tiles of a program are covered by."""
    tiles = [stmt for stmt in oc.ir.walk(program) if isinstance(stmt, oc.ir.Tile)]
    return {tile.microkernel for tile in tiles} - {None}


def pool_starts() -> bool:
    """Start the threads that kernels share; return whether there are any."""
    return bool(_module("backends.cpu.threads.pool").start())


def pool_symbols() -> tuple[str, str]:
    """Return the symbols by which kernels call the pool: to run on its threads, and to wait for each other."""
    code = _module("backends.cpu.threads.pool")
    return code.RUN, code.BARRIER


def loaded(text: str, called: Mapping[str, int]) -> Any:
    """Return LLVM text compiled for this host and loaded; `called` are the addresses of what it calls."""
    jit, host = _module("backends.cpu.machine.jit"), hooked("host")()
    return jit.load([jit.object_code(text, host, passes=False)], host, called)


@cache
def _emulated() -> Any:
    """A class of hosts of its own, so that no cache by `Host` mixes the two."""

    class Emulated(_module("backends.cpu.machine.isa").Host):  # type: ignore[misc]
        @property
        def lacking(self) -> tuple[str, ...]:
            return tuple(name for name in super().lacking if not name.startswith("amx"))

    return Emulated


@contextmanager
def host_with_a_tile_unit(text: Callable[[str], str]) -> Iterator[None]:
    """Inside, this host says that it has a tile unit, whose code is first changed by `text`."""
    host, code = hooked("host")(), hooked("tile unit's code")
    features = frozenset().union(*_module("backends.cpu.microkernels.amx").FEATURES.values())
    unit = _emulated()(host.triple, host.features | features, host.isa)
    with (
        instead("host", lambda: unit),
        instead("tile unit is permitted", lambda: True),
        instead("tile unit's code", lambda kind: text(code(kind))),
    ):
        yield


# Targets.


def described(result: Any, inputs: Any) -> Any:
    """Return the loop program that says what is asked to be compiled."""
    return _module("backends.compile_request").make_request(result, inputs, {}, "test").program


def policy(target: Any, result: Any, inputs: Any) -> Any:
    """Return how a target would run what is described, by its own policy.

    Raises TargetError where it runs no such program.
    """
    request = _module("backends.compile_request").make_request(result, inputs, {}, "test")
    return _module("backends.decide").proved_plan(
        target, request, _module("backends.target").Options()
    )


def called(target: Any, planned: Any, result: Any, inputs: Any) -> frozenset[str] | None:
    """Return the names of the microkernels that the code of a plan calls; None where a target does not say."""
    request = _module("backends.compile_request").make_request(result, inputs, {}, "test")
    signature = _module("backends.signature").signature_of(request.program, request.users)
    found = target.called_microkernels(planned, signature, _module("backends.target").Options())
    return None if found is None else frozenset(found)


def called_by(kernel: Any) -> frozenset[str] | None:
    """Return the names of the microkernels that a kernel's code calls; None where its target does not say."""
    code = kernel.code
    found = code.target.called_microkernels(code.planned, kernel.signature, code.options)
    return None if found is None else frozenset(found)


# Files that are read.


def cached(key: str, data: bytes) -> None:
    """Leave data in the cache on disk."""
    _module("backends.host.cache").write(key, data)


def cached_model(key: str) -> Any:
    """Return the steps of a model that the cache holds, or None."""
    return _module("graph.models.compiling.plan_cache").read(key, {}, ())


def cached_nearest_key(architecture: str, features: frozenset[str]) -> str:
    """Return the key under which the cache holds the nearest machine to these features."""
    return str(_module("backends.host.cache").key("nearest", architecture, *sorted(features)))


def cached_nearest(architecture: str, features: frozenset[str]) -> tuple[Any, Any]:
    """Return the nearest machine to these features, as the cache has it, and as it is found anew."""
    isa = _module("backends.cpu.machine.isa")
    return isa._kept_nearest(architecture, features), isa.nearest_machine(architecture, features)


def expected_results_file(folder: Any, number: int) -> Any:
    """Return the file that holds what the results of a case of measuring must be."""
    return _module("tuning.measuring.reference")._file(folder, number)


def expected_results(folder: Any, number: int) -> Any:
    """Return what that file holds."""
    return _module("tuning.measuring.reference").load_reference(folder, number)
