"""From a tensor expression to a kernel: the passes, in order. Read this file first.

describe    core        tensors, symbolic sizes         `compute`, `placeholder`, `dim`
represent   core        unique names, extents, groups   `computation`, `signature_of`
cut         backends    microkernels and strategies     `schedule`
prove       partition   isl, for all sizes              `prove`, `check_program`
lower       backends    loops to LLVM IR                `lower`, `fast_entry_ir`
build       backends    object code, cached             `build`
run         backends    any size, no Python per shape   `Kernel`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from offcut.backends.base import Signature
from offcut.backends.cpu import isa
from offcut.backends.cpu.build import Code, build, lowered, plan, tile_modules
from offcut.backends.cpu.call import make_callable
from offcut.backends.cpu.constants import pack
from offcut.backends.cpu.jit import assembly
from offcut.backends.cpu.schedule import microkernels
from offcut.backends.plan import Plan, plan_at
from offcut.backends.schedule import Schedule
from offcut.backends.signature import signature_of
from offcut.core.computation import Computation, computation
from offcut.core.request import Array, constants_of, inputs_of, outputs_of, sizes_fixed_by
from offcut.core.sizes import assume, facts_about
from offcut.core.tensor import Tensor, sizes_of, tensors_of
from offcut.errors import DescribeError, PartitionError, TargetError
from offcut.partition import Partition, cut, strategy_named

Strategies = str | Mapping[str, str]


def partition(
    output: Tensor | Sequence[Tensor],
    tile: Mapping[str, int],
    tail: Mapping[str, str] | str = "cut",
    target: str = "cpu",
    inputs: Sequence[Tensor] | None = None,
) -> Partition:
    """`output` with the axes named in `tile` cut, and proved; no other axis is cut.

    tile    the largest tile by axis, in iterations; ``C.j`` where several tensors have a ``j``
    tail    a strategy by axis, or one for all: guard, exact, cut, mask, pad, shift, ladder, balance
    target  whose microkernels may cover the pieces

    Raises PartitionError, with the smallest witness, for a cut that is not legal or not proved.
    """
    _check_target(target, "partition")
    outputs = outputs_of(output, "partition")
    described = computation(outputs, inputs_of(inputs, outputs, "partition"))
    return cut(described, tile, tail, microkernels(isa.host().isa))


def compile(
    output: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    constants: Mapping[str, Any] | None = None,
    target: str = "cpu",
    strategy: Strategies = "auto",
    threads: int = 1,
    reassociate: bool = True,
) -> Kernel:
    """A kernel that computes `output` at every allowed size.

    inputs       placeholders in call order; by default in the order in which they are read
    constants    arrays by placeholder name: copied and packed now, not passed at the call
    strategy     ``"auto"``: the cheapest by predicted cost, at each call; one strategy for the rows;
                 or a strategy by axis
    threads      1
    reassociate  whether a sum may use a fixed rule of its own; on the CPU it never needs to, sums
                 run in ascending order either way

    Raises DescribeError, PartitionError or TargetError for what cannot be described, cut, or run.
    """
    _check_target(target, "compile")
    if threads != 1 or isinstance(threads, bool):
        raise TargetError(
            "compile",
            f"cannot run on threads={threads!r}",
            because="kernels of the target cpu run on the calling thread",
            help=("threads=1; a kernel may be called from several threads at once",),
        )
    outputs = outputs_of(output, "compile")
    given = inputs_of(inputs, outputs, "compile")
    if not isinstance(strategy, str):
        if not isinstance(strategy, Mapping):
            raise PartitionError(
                "compile",
                f"cannot take strategy={strategy!r}",
                because="a strategy is a name, or names by axis",
                help=('strategy="auto"', 'strategy={"i": "ladder", "j": "mask"}'),
            )
        strategy = {
            str(axis): strategy_named(choice, at=f"axis {axis}", op="compile").value
            for axis, choice in strategy.items()
        }
    return _kernel(outputs, given, constants_of(given, constants, "compile"), strategy)


class Kernel:
    """A compiled computation: call it with arrays of any allowed size.

    ``kernel(a, b, out=None, n=12)``: the inputs that are not constant, in order; sizes that no shape
    determines by keyword. Results are of the first input's kind. Calls are reentrant, and a kernel
    can be pickled: it is rebuilt from the cache.
    """

    __call__: Callable[..., Any]

    def __init__(
        self,
        request: tuple[tuple[Tensor, ...], tuple[Tensor, ...], Strategies],
        described: Computation,
        signature: Signature,
        host: isa.Host,
        code: Code,
        constants: dict[str, Array],
    ) -> None:
        self._request, self._described, self._host = request, described, host
        self._code, self._constants = code, constants
        self._promises = facts_about(sizes_of((*request[1], *tensors_of(request[0]))))
        self.signature = signature

    def plan(self, /, **sizes: int) -> Plan:
        """What a call of these sizes runs, and why: pieces, and the cost of what competed.

        Raises CallError for a size that is missing or not allowed.
        """
        return plan_at(self._schedule, self.signature, sizes)

    def source(self, form: str = "loops") -> str:
        """What runs: the loop program (``loops``), LLVM IR (``llvm``) or assembly (``asm``)."""
        if form == "loops":
            return str(self._schedule.partition)
        if form not in ("llvm", "asm"):
            raise DescribeError(
                "source",
                f"cannot show {form!r}",
                because="there is no such form",
                help=('"loops"', '"llvm"', '"asm"'),
            )
        low = lowered(self._described, self.signature, self._schedule, self._host)
        tiles = tile_modules(low, self._host)
        if form == "llvm":
            return "\n\n".join([low.text, *tiles])
        parts = [assembly(text, self._host, passes=False) for text in tiles]
        return "\n\n".join([assembly(low.text, self._host, passes=True), *parts])

    @property
    def partition(self) -> Partition:
        """The cut that runs, with its pieces and its proof."""
        return self._schedule.partition

    def with_constants(self, constants: Mapping[str, Any]) -> Kernel:
        """The same code with other constants, of the same shapes; nothing is compiled."""
        arrays = constants_of(self._request[1], constants, "with_constants")
        if set(arrays) != set(self._constants):
            raise DescribeError(
                "with_constants",
                f"cannot take constants for {', '.join(arrays) or 'nothing'}",
                because=f"the kernel was compiled with {', '.join(self._constants) or 'none'}",
            )
        for name, array in arrays.items():
            if array.shape != self._constants[name].shape:
                raise DescribeError(
                    "with_constants",
                    f"cannot take a constant of shape {array.shape}",
                    at=name,
                    because=f"the kernel was compiled for {self._constants[name].shape}",
                )
        return _bound(
            self._request, self._described, self.signature, self._host, self._code, arrays
        )

    @cached_property
    def _schedule(self) -> Schedule:
        return plan(self._described, self._host, self._request[2])

    def __reduce__(self) -> tuple[Any, ...]:
        outputs, inputs, strategy = self._request
        return _restored, (outputs, inputs, self._constants, strategy, self._promises)

    def __repr__(self) -> str:
        given = ", ".join(argument.name for argument in self.signature.inputs)
        sizes = ", ".join(size.name for size in self.signature.sizes)
        return f"<kernel {self.signature.name}({given}) for any {sizes or 'call'}>"


def _kernel(
    outputs: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...],
    arrays: dict[str, Array],
    strategy: Strategies,
) -> Kernel:
    """The passes, one after the other."""
    known = sizes_fixed_by(inputs, arrays, "compile")
    described = computation(outputs, inputs, arrays, known)
    signature = signature_of(described)
    host = isa.host()
    code = build(described, signature, host, strategy)
    return _bound((outputs, inputs, strategy), described, signature, host, code, arrays)


def _restored(
    outputs: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...],
    arrays: dict[str, Array],
    strategy: Strategies,
    promises: tuple[Any, ...],
) -> Kernel:
    """A pickled kernel, under the promises that it was compiled under."""
    with assume(*promises):
        return _kernel(outputs, inputs, arrays, strategy)


def _bound(
    request: tuple[tuple[Tensor, ...], tuple[Tensor, ...], Strategies],
    described: Computation,
    signature: Signature,
    host: isa.Host,
    code: Code,
    arrays: dict[str, Array],
) -> Kernel:
    """A kernel whose class calls the generated code directly: no Python frame in between."""
    labels = {name: label for label, name in described.labels}
    packed = [pack(arrays[labels[name]], layout) for name, layout in code.layouts]
    call = make_callable(
        signature,
        code.loaded.address("offcut_entry"),
        code.loaded.address("offcut_workspace"),
        code.loaded.address("offcut_fastcall"),
        [(one.address, one.owner) for one in packed],
        owner=code.loaded,
    )
    made: Kernel = type("Kernel", (Kernel,), {"__call__": call, "__doc__": Kernel.__doc__})(
        request, described, signature, host, code, arrays
    )
    return made


def _check_target(target: str, op: str) -> None:
    if target != "cpu":
        raise TargetError(
            op,
            f"cannot {op} for target={target!r}",
            because="there is no such target",
            help=('target="cpu"',),
        )


__all__ = ["Kernel", "compile", "partition"]
