"""What a call costs, predicted: cycles, operations, bytes from each memory, energy; by piece and in all, with what binds; and what its code takes.

A tile of a microkernel has code for each height that it may have, with its loop unrolled, so that it is counted by its vectors of
accumulators; any other statement counts once. Right to a factor of three: pieces that are alike share their code.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, variables, walk
from offcut.core.interpret.values import evaluate
from offcut.core.program import Program, Stmt, Store, Tile
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.text.tables import quantity, table
from offcut.costmodel.clock import stage_arrays
from offcut.costmodel.closed.counting import count_operations
from offcut.costmodel.closed.counts import THOUSANDTHS, HowExact, least_exact
from offcut.costmodel.closed.prediction import Predicted, Prediction, predict
from offcut.costmodel.device import Device
from offcut.costmodel.machine import Machine
from offcut.costmodel.resources import Hardware, resources_of
from offcut.costmodel.tile_cycles import tile_cycles
from offcut.describe.microkernel import Microkernel


@dataclass(frozen=True, slots=True)
class PieceCost:
    """What a piece costs.

    stage, role   of the piece, as in a plan
    tile          extents by axis, one that moves as text; none of statements outside of tiles
    microkernel   that computes it; "" for plain loops
    runs          of its tile, or of its statements
    flop          that it executes
    instructions  that it issues
    resources     cycles that each takes by itself: ``compute``, ``issue``, and memories by their names
    bytes         from each memory
    energy        joules
    registers     of vectors, that it holds at once; 0 where another unit computes it
    """

    stage: str
    role: str
    tile: Mapping[str, str]
    microkernel: str
    runs: int
    flop: int
    instructions: float
    resources: Mapping[str, float]
    bytes: Mapping[str, int]
    energy: float
    registers: int

    @property
    def cycles(self) -> float:
        """As many as the resource that takes longest."""
        return max(self.resources.values())

    @property
    def bound_by(self) -> str:
        """The resource that takes longest."""
        return max(self.resources, key=lambda name: self.resources[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCycles:
    """What a call takes, in cycles.

    hertz   cycles per second
    pieces  that run, in the order of the program
    call    cycles of the call itself, from Python: arguments, a result, the choice between ways; 0 where the machine's
            description has none
    loss    of the shorter of computing and moving, the share that is not hidden
    """

    hertz: float
    pieces: tuple[PieceCost, ...]
    call: float = 0.0
    loss: float = 0.0

    @property
    def stages(self) -> dict[str, dict[str, float]]:
        """Cycles of each resource, by stage, the array that it stores last: those of its pieces together, which overlap."""
        stages: dict[str, dict[str, float]] = {}
        for piece in self.pieces:
            total = stages.setdefault(piece.stage, dict.fromkeys(piece.resources, 0.0))
            for name, cycles in piece.resources.items():
                total[name] += cycles
        return stages

    def busiest(self, resources: Mapping[str, float]) -> float:
        """Cycles of a stage, or of a piece alone: of the resource that takes longest, with what it does not hide of others."""
        return float(stage_arrays(tuple(resources.values()), self.loss))

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Seconds of each stage."""
        return {name: self.busiest(each) / self.hertz for name, each in self.stages.items()}

    @property
    def cycles(self) -> float:
        """Of the call: its own, and those of its stages, one after the other."""
        return self.call + sum(map(self.busiest, self.stages.values()))

    @property
    def seconds(self) -> float:
        """Of the call."""
        return self.cycles / self.hertz


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Cost(CallCycles):
    """What a call costs, on one core.

    kernel   its name
    machine  that it is predicted for
    sizes    of the call
    flop     operations of what is described; what a cut computes besides stands with its pieces
    peak     operations per second of the fastest unit that runs one of its pieces
    memories by name, the nearest first
    exactness  of these
    kept     bytes of the largest part of the call that fits each cache, and stays there
    occupancy  the same as shares of the caches
    code_bytes, compile_seconds  of the kernel, whatever the sizes: right to a factor of three
    factor   that was learned, of the seconds; 1 where nothing was
    correction  what it is from, or why it is not used; "" where there is no model
    """

    kernel: str
    machine: str
    sizes: Mapping[str, int]
    flop: int
    peak: float
    memories: tuple[str, ...]
    exactness: HowExact
    kept: Mapping[str, int]
    occupancy: Mapping[str, float]
    code_bytes: int
    compile_seconds: float
    factor: float = 1.0
    correction: str = ""

    @property
    def seconds(self) -> float:
        """Of the call: by the closed form, times the factor that was learned."""
        return self.cycles / self.hertz * self.factor

    @property
    def instructions(self) -> float:
        """That are issued."""
        return sum(piece.instructions for piece in self.pieces)

    @property
    def bytes(self) -> dict[str, int]:
        """From each memory, the nearest first: into registers from ``L1``, into L1 from ``L2``, and so on."""
        return {name: sum(piece.bytes[name] for piece in self.pieces) for name in self.memories}

    @property
    def energy(self) -> float:
        """Joules: an estimate, by the table that the machine's description names; 0 where it has none."""
        return sum(piece.energy for piece in self.pieces)

    @property
    def bound_by(self) -> str:
        """The resource that binds for most of the cycles; ``call`` where that is the call itself."""
        total = {"call": self.call} if self.call else {}
        for resources in self.stages.values():
            name = max(resources, key=lambda one: resources[one])
            total[name] = total.get(name, 0.0) + resources[name]
        return max(total, key=lambda name: total[name], default="nothing")

    def to_dict(self) -> dict[str, object]:
        """The same as plain data."""
        names = "kernel machine flop cycles call seconds correction instructions bytes energy code_bytes compile_seconds bound_by"
        sizes, occupancy = dict(self.sizes), dict(self.occupancy)
        values = {name: getattr(self, name) for name in names.split()}
        return {
            **values,
            "sizes": sizes,
            "occupancy": occupancy,
            "exactness": asdict(self.exactness),
        }

    def __repr__(self) -> str:
        return f"<cost {self._first()}>"

    def __str__(self) -> str:
        rows = [self._head(), *(self._row(piece) for piece in self.pieces)]
        occupancy = ", ".join(f"{name} {share:.0%}" for name, share in self.occupancy.items())
        code = f"code {quantity(self.code_bytes, 'B')}, compiled in {quantity(self.compile_seconds, 's')}"
        if self.call:
            code += f"; the call itself {quantity(self.call / self.hertz, 's')}"
        return "\n".join(
            [
                self._first(),
                *table(rows),
                f"holds {occupancy}; {code}",
                str(self.exactness),
                *self._corrected,
            ]
        )

    @property
    def _corrected(self) -> list[str]:
        return [self.correction] if self.correction else []

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _first(self) -> str:
        """What the call costs in all, in a line."""
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        return (
            f"{self.kernel}({at}) on {self.machine}: {quantity(self.seconds, 's')}, {self.flop:,} flop, "
            f"{quantity(self.energy, 'J')}, bound by {self.bound_by}"
        )

    def _head(self) -> list[str]:
        memories = [f"from {name}" for name in self.bytes]
        return [
            *("stage", "tile", "microkernel", "registers", "runs", "flop", "cycles", "bound by"),
            *memories,
        ]

    def _row(self, piece: PieceCost) -> list[str]:
        tile = "×".join(piece.tile.values())
        return [
            piece.stage,
            tile,
            piece.microkernel or "loops",
            str(piece.registers or "–"),
            f"{piece.runs:,}",
            f"{piece.flop:,}",
            f"{piece.cycles:,.0f}",
            piece.bound_by,
            *(quantity(size, "B") for size in piece.bytes.values()),
        ]


def cost(
    described: Program,
    program: Program,
    hardware: Hardware,
    user_sizes: Mapping[str, int],
    sizes: Mapping[str, int],
) -> Cost:
    """What a call of `program`, which computes what is `described`, costs.

    user_sizes  the sizes, by the user's names
    sizes       the same, by the program's
    """
    prediction, machine = predict(program, hardware, sizes), hardware.machine
    pieces = _pieces(prediction, program, hardware)
    code = code_bytes(program, hardware.microkernels, machine, hardware.lanes)
    return cost_of_call(
        *(described, prediction, machine, pieces, user_sizes, sizes),
        peak=_peak(pieces, program, hardware),
        code=code,
        compiled_in=compile_seconds(code, machine),
    )


def cost_of_call(
    described: Program,
    prediction: Prediction,
    machine: Device,
    pieces: Sequence[PieceCost],
    user_sizes: Mapping[str, int],
    sizes: Mapping[str, int],
    *,
    peak: float,
    code: int = 0,
    compiled_in: float = 0.0,
) -> Cost:
    """Return what a call costs whose pieces are predicted.

    described   the program before it was scheduled, whose operations are counted
    pieces      of the prediction, that run
    user_sizes  the sizes, by the user's names
    sizes       the same, by the program's
    peak        operations per second of the fastest unit that runs one of the pieces
    code        bytes of code; compiled_in: seconds to compile it
    """
    operations, exactness = count_operations(described, sizes), prediction.exactness
    memories = tuple(dict.fromkeys(name for one in prediction.pieces for name in one.bytes))
    kept = {name: _count(size) for name, size in prediction.kept.items()}
    return Cost(
        kernel=described.name,
        machine=machine.name,
        sizes=dict(user_sizes),
        flop=_count(operations.value),
        pieces=tuple(
            replace(piece, bytes={name: piece.bytes.get(name, 0) for name in memories})
            for piece in pieces
        ),
        hertz=machine.hertz,
        peak=peak,
        memories=memories,
        exactness=replace(exactness, flop=least_exact(exactness.flop, operations.exactness)),
        kept=kept,
        occupancy={memory.name: kept[memory.name] / memory.bytes for memory in machine.memory},
        code_bytes=code,
        compile_seconds=compiled_in,
        call=prediction.call,
        loss=prediction.loss,
    )


def _peak(pieces: Sequence[PieceCost], program: Program, hardware: Hardware) -> float:
    """Return the operations per second of the fastest unit that runs one of the pieces."""
    resources, rates = resources_of(hardware.machine), list[float]()
    for piece in pieces:
        kernel = hardware.microkernels.get(piece.microkernel)
        if kernel is not None:
            rates.append(resources.unit_of(tile_cycles(kernel).multiply_adds))
        else:
            stored = program.buffer(piece.stage).dtype
            rates.append(resources.rate_of(stored if stored == "float64" else "float32"))
    return 2 * resources.hertz * max(rates, default=0.0)


def call_cycles(
    program: Program, hardware: Hardware, sizes: Mapping[str, int], options: Mapping[int, int]
) -> CallCycles:
    """What a call of `program` takes.

    options  by the number of a `choose`, the option that runs
    """
    prediction = predict(program, hardware, sizes, options)
    pieces = _pieces(prediction, program, hardware)
    return CallCycles(
        hertz=hardware.machine.hertz, pieces=pieces, call=prediction.call, loss=prediction.loss
    )


def _pieces(prediction: Prediction, program: Program, hardware: Hardware) -> tuple[PieceCost, ...]:
    """The pieces that run of a prediction whose sizes all are known."""
    in_loops = registers_in_loops(program)
    return _ran([_at(one, hardware, in_loops) for one in prediction.pieces])


def _ran(pieces: Sequence[PieceCost]) -> tuple[PieceCost, ...]:
    """The pieces that run; what moves for one that does not, moves for the next of its stage: that touches it first."""
    result: list[PieceCost] = []
    before: dict[str, PieceCost] = {}
    for piece in pieces:
        idle = before.pop(piece.stage, None)
        if idle is not None:
            piece = replace(
                piece,
                resources={k: piece.resources[k] + more for k, more in idle.resources.items()},
                bytes={name: piece.bytes[name] + more for name, more in idle.bytes.items()},
                energy=piece.energy + idle.energy,
            )
        if piece.runs:
            result.append(piece)
        else:
            before[piece.stage] = piece
    return tuple(result)


def _at(one: Predicted, hardware: Hardware, in_loops: Mapping[str, int]) -> PieceCost:
    """A piece, all of whose sizes are known.

    in_loops  registers that loops hold, by what they store
    """
    piece = one.piece
    extents = [None if variables(one) else int(evaluate(one, {})) for _, one in piece.tile]
    kernel = hardware.microkernels.get(piece.microkernel or "")
    needed = in_loops.get(piece.stage, 0)
    if kernel is not None:
        rows, columns = [1, 1, *extents][-2:]
        on_core = hardware.on_core(kernel)
        tallest = rows or kernel.max_rows
        widest = columns or kernel.columns_for(min(tallest, kernel.max_rows))
        needed = registers(kernel, tallest, widest, hardware.lanes) if on_core else 0
    tile = {name: _extent(extent) for name, extent in piece.tile}
    return replace(piece_at(one, {}), tile=tile, registers=needed)


def piece_at(one: Predicted, sizes: Mapping[str, int]) -> PieceCost:
    """Return a piece at known sizes, without its tile and its registers."""
    counts, piece = one.counts, one.piece
    return PieceCost(
        stage=piece.stage,
        role=piece.role,
        tile={},
        microkernel=piece.microkernel or "",
        runs=_count(counts.runs, sizes),
        flop=_count(counts.flop, sizes),
        instructions=_count(counts.instructions, sizes) / THOUSANDTHS,
        resources={name: float(evaluate(value, sizes)) for name, value in one.resources.items()},
        bytes={name: _count(size, sizes) for name, size in one.bytes.items()},
        energy=float(evaluate(one.joules, sizes)),
        registers=0,
    )


def _count(expr: Expr, sizes: Mapping[str, int] | None = None) -> int:
    """A count whose sizes are known: a literal however large it is, where arithmetic of machines ends at 2**63."""
    known = ix.literal_value(expr)
    return int(evaluate(expr, sizes or {})) if known is None else known


def _extent(extent: Expr) -> str:
    return format_expr(extent) if variables(extent) else str(int(evaluate(extent, {})))


def code_bytes(
    program: Program, kernels: Mapping[str, Microkernel], machine: Machine, lanes: int
) -> int:
    """Bytes of code.

    lanes  of a vector
    """
    compiling = machine.compiling
    vectors, covered = 0, set[int]()
    for tile in statements(program.body):
        if isinstance(tile, Tile) and (tile.microkernel or "") in kernels:
            vectors += _vectors(tile, kernels[tile.microkernel or ""], lanes)
            covered |= {id(store) for store in _stores(tile.body)}
    others = sum(id(store) not in covered for store in _stores(program.body))
    return others * compiling.lanes_bytes + vectors * compiling.accumulator_bytes


def compile_seconds(code: int, machine: Machine) -> float:
    """Seconds to compile code of so many bytes."""
    return code * machine.compiling.statement_seconds / machine.compiling.statement_bytes


def registers(kernel: Microkernel, rows: int, columns: int, lanes: int) -> int:
    """Vector registers that a tile of a microkernel holds: accumulators, a vector of the columns' operand for each of a
    row, a term of the rows' operand.
    """
    height = min(rows, kernel.max_rows)
    vectors = -(-min(columns, kernel.columns_for(height)) // lanes)
    return height * vectors + vectors + 1


def registers_in_loops(program: Program) -> dict[str, int]:
    """Return how many vector registers loops need at once, by the buffer that they store into: a value, and what it reads."""
    registers: dict[str, int] = {}
    for store in _stores(program.body):
        read = sum(isinstance(node, Load) for node in walk(store.value))
        registers[store.buffer] = max(registers.get(store.buffer, 0), 1 + read)
    return registers


def _vectors(tile: Tile, kernel: Microkernel, lanes: int) -> int:
    """Vectors of accumulators of a tile, of every height that it may have."""
    extents = (ix.literal_value(axis.extent) for axis in tile.axes)
    rows, columns = [1, 1, *extents][-2:]
    total = 0
    for height in range(1, kernel.max_rows + 1) if rows is None else (min(rows, kernel.max_rows),):
        widest = kernel.columns_for(height)
        if columns is None or rows is not None or columns == widest:
            total += height * -(-min(columns or widest, widest) // lanes)
    return total


def _stores(body: tuple[Stmt, ...]) -> list[Store]:
    return [one for one in statements(body) if isinstance(one, Store)]
