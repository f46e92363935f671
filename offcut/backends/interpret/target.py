"""The target ``interpret``: a program runs as it stands, by the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from offcut.backends.abi import Signature
from offcut.backends.host.call import python_callable
from offcut.backends.signature import run_by_name
from offcut.backends.target import Loaded, Options, Target, TargetPlan
from offcut.core.interpret.interpreter import run
from offcut.core.interpret.values import InterpreterFault
from offcut.core.program import Program
from offcut.core.text.parser import parse
from offcut.costmodel import Device, Machine, load, processor
from offcut.describe.request import Array
from offcut.errors import CallError, TargetError
from offcut.partition import Users


@dataclass(frozen=True, repr=False)
class Interpret(Target):
    """Runs what it is given, tiles and their microkernels by their meaning."""

    name = "interpret"
    accepts_any_cover = True

    @property
    def machine(self) -> Machine:  # type: ignore[override]
        """What cuts are priced by; nothing that runs depends on it."""
        return _interpreter_device()

    def policy(self, program: Program, users: Users, options: Options) -> Iterator[TargetPlan]:
        """The program as it stands."""
        yield TargetPlan(program, notes=("statement by statement, in the order of the text",))

    def lower(self, planned: TargetPlan, signature: Signature, options: Options) -> bytes:
        """The program's text."""
        return str(planned.program).encode()

    def load(self, lowered: bytes, signature: Signature, options: Options) -> Loaded:
        """The program, to be run on arrays."""
        program = parse(lowered.decode())

        def bound(constants: Mapping[str, Array]) -> Callable[..., Any]:
            return python_callable(signature, _Run(program, constants))

        return bound


@dataclass(frozen=True)
class _Run:
    """A program with its constants, from inputs and sizes to results."""

    program: Program
    constants: Mapping[str, Array]

    def __call__(self, inputs: Sequence[Array], sizes: Mapping[str, int]) -> Sequence[Array]:
        def interpret(arrays: dict[str, Array], values: dict[str, int]) -> Mapping[str, Array]:
            return run(self.program, {**arrays, **self.constants}, values)

        try:
            return run_by_name(self.program, interpret, inputs, sizes)
        except InterpreterFault as fault:
            raise CallError(
                self.program.name,
                "cannot run on these arrays",
                at=fault.at,
                because=f"{fault.what}: {fault.because}",
            ) from fault


@cache
def _interpreter_device() -> Machine:
    return processor(load(Path(__file__).with_name("machine.toml")))


def target(machine: Device | None) -> Interpret:
    """The interpreter; it runs on any machine, and is none.

    Raises TargetError where it is asked to plan for one.
    """
    if machine is not None:
        raise TargetError(
            "target",
            f"cannot interpret for machine={machine.name!r}",
            because="the interpreter runs programs as they stand, on any machine",
            help=('oc.target("cpu", machine=…)',),
        )
    return Interpret()
