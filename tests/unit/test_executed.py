"""Costs of every strategy against the statement instances that run: counts are theirs, and no prediction is above the peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut import Cost, Program
from offcut.core.analysis import limits
from offcut.core.interpret.interpreter import Machine as Interpreter
from offcut.core.interpret.interpreter import poison_array
from offcut.core.interpret.values import lane_of
from offcut.costmodel import Machine
from offcut.costmodel.closed.count_statements import operations
from offcut.costmodel.closed.counting import count_program
from offcut.costmodel.closed.counts import Exactness
from offcut.ir import Form, Store, Tile, walk
from offcut.partition.strategies.catalog import parse_strategy
from tests.agree import nearly
from tests.facade import STRATEGIES, evaluate, processor, proved_plan, requested, stand_ins

MACHINES = ("zen5", "cascade-lake", "avx2", "neoverse-n1", "zen4", "sapphire-rapids")


class Counting(Interpreter):
    """The reference interpreter, which counts the instances that it runs, by statement.

    A microkernel runs the rows past the end of a padded tile, on zeros; the interpreter does not: they are counted here.
    """

    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        memory = {
            one.name: poison_array(tuple(int(evaluate(e, sizes)) for e in one.shape), one.dtype)
            for one in program.buffers
        }
        with np.errstate(all="ignore"):
            super().__init__(program, memory, dict(sizes), None, together=True)
            self.ran: Counter[int] = Counter()
            self.statements = {id(s): s for s in walk(program.body) if isinstance(s, Store)}
            self.more = 1.0
            self.block(program.body, lane_of(dict(sizes)))

    def rectangle(self, stmt: Tile, starts: Any, extents: Any, offsets: Any, lanes: Any) -> None:
        rows, columns = stmt.axes if len(stmt.axes) == 2 else (None, None)
        padded = stmt.form is Form.PAD and stmt.microkernel is not None and rows is not None
        if padded and any(limits(stmt, rows.iter)):
            first = lanes.let(columns.iter, starts[1]).let(rows.iter, starts[0] + offsets[0])
            inside = np.broadcast_to(self.value(stmt.where, first), offsets[0].shape)
            self.more = len(offsets[0]) / int(np.sum(inside))
        super().rectangle(stmt, starts, extents, offsets, lanes)
        self.more = 1.0

    def store(self, stmt: Store, lanes: Any) -> None:
        count = int(np.broadcast_to(lanes.mask, lanes.shape).sum())
        self.ran[id(stmt)] += round(count * (self.more if stmt.reduce is not None else 1.0))

    @property
    def flop(self) -> int:
        """Operations of all that ran."""
        return sum(count * operations(self.statements[key]) for key, count in self.ran.items())


def dense(dtype: str) -> Any:
    n = oc.dim("n", min=1, max=1024)
    A, W = oc.placeholder((n, 40), dtype, name="A"), oc.placeholder((40, 72), dtype, name="W")
    k = oc.reduce_axis(40, name="k")
    into = "int32" if dtype in ("int8", "uint8") else "float32"

    def term(i: Any, j: Any) -> Any:
        a, w = A[i, k], W[k, j]
        return oc.sum(a * w if dtype == into else oc.cast(a, into) * oc.cast(w, into), axis=k)

    return [A, W], oc.compute((n, 72), term, name="C"), ["W"]


def softmax() -> Any:
    n, m = oc.dim("n", min=1, max=1024), oc.dim("m", min=1, max=1024)
    x = oc.placeholder((m, n), name="x")
    return [x], oc.ops.softmax(x), []


OPERATORS: dict[str, Callable[[], Any]] = {
    "dense": lambda: dense("float32"),
    "dense int8": lambda: dense("int8"),
    "dense bfloat16": lambda: dense("bfloat16"),
    "softmax": softmax,
}
CUTS: dict[str, Any] = {
    **{str(one): str(one) for one in STRATEGIES if str(one) != "exact"},
    "auto": "auto",
    "columns masked": {"i": "mask", "j": "mask"},
    "columns padded": {"i": "pad", "j": "pad"},
    "terms padded": {"i": "ladder", "k": "pad"},
}


@cache
def planned(operator: str, machine: str, cut: str) -> tuple[Any, ...]:
    """What a machine plans: the target, the plan, the request, the options; nothing runs here."""
    inputs, output, constants = OPERATORS[operator]()
    request = requested(output, inputs, stand_ins(constants, output, inputs, "tune"), "tune")
    target = oc.target("cpu", machine=machine)
    asked: Any = CUTS[cut]
    if operator == "softmax" and isinstance(asked, dict):
        asked = {f"{output.name}.j": next(iter(asked.values()))}
    options = target.options("compile", strategy=strategies(asked))
    return target, proved_plan(target, request, options), request, options


def strategies(asked: Any) -> Any:
    """Strategies by the names that a user gives."""
    if isinstance(asked, dict):
        return tuple((axis, strategies(name)) for axis, name in asked.items())
    return asked if asked == "auto" else parse_strategy(asked, at="")


def peak(machine: Machine, operator: str) -> float:
    """The most operations that a unit does in a cycle."""
    dtype = operator.partition(" ")[2] or "float32"
    units = [one.multiply_adds for one in machine.unit if {dtype, "float32"} & set(one.of)]
    return 2 * max(units)


def check(operator: str, machine: str, cut: str, sizes: tuple[int, ...]) -> None:
    """Hold a plan to what runs of it, at these rows."""
    target, made, request, options = planned(operator, machine, cut)
    described = processor(target.machine)
    whole = count_program(made.program, target.hardware(options), {})
    names = dict(request.users.sizes)
    most = peak(described, operator)
    for size in sizes:
        at = {"n": size} | ({"m": 5} if "m" in names else {})
        given = {names[user]: value for user, value in at.items()}
        found = target.predict_cost(made, request, options, at)
        assert isinstance(found, Cost)
        counting = Counting(made.program, given)
        executed = sum(piece.flop for piece in found.pieces)
        bounds = (Exactness.BOUND,) if cut == "terms padded" else ()  # of two sides of a `where`
        assert found.exactness.flop in (Exactness.EXACT, *bounds)
        assert executed == counting.flop, f"{size}: {executed}, and {counting.flop} run"
        if not whole.choices and whole.exactness is Exactness.EXACT:
            values = dict(given)
            for name, value in whole.values.items():
                values[name] = int(evaluate(value, values))
            assert executed == sum(int(evaluate(one.flop, values)) for one in whole.counts)
        assert executed >= found.flop
        for piece in found.pieces:
            assert piece.flop <= 1.0001 * most * piece.cycles, piece
        assert executed <= most * (found.cycles - found.call)
        assert found.seconds >= described.call.call_seconds
    plan = target.describe_plan(made, request, options, at)
    assert plan.seconds == nearly(found.seconds)


def tile_of(operator: str, machine: str) -> int:
    """Rows of the largest tile; of loops, columns of one."""
    target, _, _, options = planned(operator, machine, "auto")
    if operator == "softmax":
        return 64
    kernels = target.hardware(options).microkernels.values()
    return max(one.max_rows for one in kernels if one.name.startswith(("fma", "vnni", "dot")))


def edges(tile: int) -> tuple[int, ...]:
    return 1, tile - 1, tile + 1


@pytest.mark.every(8)
@pytest.mark.parametrize("cut", CUTS)
def test_what_a_strategy_executes_is_what_runs(cut: str) -> None:
    check("dense", "zen5", cut, edges(tile_of("dense", "zen5")))


def pairs() -> Iterator[tuple[str, str, str]]:
    """Every operator on every machine by a strategy, and every strategy of every operator on a machine."""
    yield from (("dense int8", "cascade-lake", cut) for cut in ("mask", "pad"))
    yield from (("softmax", "avx2", cut) for cut in ("mask", "pad"))
    cuts, machines = cycle(CUTS), cycle(MACHINES)
    yield from ((operator, machine, next(cuts)) for operator in OPERATORS for machine in MACHINES)
    yield from ((operator, next(machines), cut) for operator in OPERATORS for cut in CUTS)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("operator", "machine", "cut"),
    [at if number < 4 else slow(*at) for number, at in enumerate(dict.fromkeys(pairs()))],
)
def test_what_strategies_execute_on_other_machines(operator: str, machine: str, cut: str) -> None:
    if operator == "softmax" and "terms" in cut:
        pytest.skip("its terms are rows of memory")
    check(operator, machine, cut, edges(tile_of(operator, machine)))
