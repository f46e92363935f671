"""A program on several threads: every thread runs all of its text, and does its share.

Of a loop that is marked ``@thread`` each thread has a contiguous share. What is left where the
iterations do not divide is shared again, by its inner marked loops: with 3 groups of columns on two
threads, each runs one and half of the tiles of the third. Which instances a thread runs changes no
result, since each instance is computed as it always is.

Everything else runs on the last thread, which has the least to do in every share. The threads meet
at a barrier where the program has one: before a statement that may touch what another thread wrote, or
write what another may still read. Bounds and conditions on sizes are computed by every thread for itself.

The scratch of a call is its threads' common part, then one part for each of them::

    workspace: | common | of thread 0 | of thread 1 | …
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from offcut.backends.cpu.lowering.addressing import Memory
from offcut.backends.cpu.lowering.lower import Lowered, Lowering
from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.cpu.microkernels.family import Family
from offcut.backends.cpu.threads.parallel import Parallel
from offcut.backends.cpu.threads.pool import BARRIER, DECLARATIONS, RUN
from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter
from offcut.core.analysis import analysis
from offcut.core.expr import Const, Expr
from offcut.core.program import STATUS, THREAD, Buffer, For, If, Stmt, Store
from offcut.polyhedral.sync import has_loops_of, is_barrier


def lower_spmd(
    parallel: Parallel,
    isa: Isa,
    families: Sequence[Family],
    work: Expr,
    chains: int,
    threads: int,
    seconds: Expr,
) -> Lowered:
    """A marked program for an instruction set and at most that many threads; see `lower`.

    seconds   of a call on one thread, predicted: a float64 expression in the sizes. A call runs on
              as many threads as have a grain of it each
    """
    return _Threaded(parallel, isa, families, work, chains, threads, seconds).lower()


class _Threaded(Lowering):
    """Lowers for a team.

    team   (thread, threads) of those that run what is being written, i64; None: one thread alone
    steps  whether all threads of the call are here, so that they may meet
    """

    def __init__(
        self,
        parallel: Parallel,
        isa: Isa,
        families: Sequence[Family],
        work: Expr,
        chains: int,
        threads: int,
        seconds: Expr,
    ) -> None:
        super().__init__(parallel.program, isa, families, work, chains)
        self.own, self.most, self.seconds = parallel.own, threads, seconds
        self.common: set[str] = set()
        self.team: tuple[str, str] | None = ("%thread", "%threads")
        self.steps = True

    def entry(self) -> str:
        """The entry, which asks the pool for threads, and what each of them runs."""
        f = self.f
        self.sizes(f)
        self.buffers()
        self.block(self.program.body)
        f.do("ret void")
        self.place_scratch()
        f.declares |= set(DECLARATIONS.strip().splitlines())
        head = (
            "void @offcut_body(ptr %context, i32 %thread.number, i32 %thread.count, ptr %barrier)"
        )
        body = f"define internal {head} noinline nounwind {{\n{self.with_scratch()}\n}}"
        return "\n\n".join(
            [
                _entry(self.isa.machine.threads.short_seconds),
                body,
                self.predicted_seconds(),
                self.thread_count(),
            ]
        )

    def predicted_seconds(self) -> str:
        """Seconds of a call on one thread."""

        def write(f: FunctionWriter) -> None:
            f.do(f"ret double {self.cost(self.seconds)}")

        text = self.over_sizes(write).text()
        return f"define internal double @offcut_seconds(ptr %sizes) nounwind {{\n{text}\n}}"

    def thread_count(self) -> str:
        """How many threads a call of so many seconds takes."""
        for name in ("minnum", "maxnum"):
            self.f.declares.add(f"declare double @llvm.{name}.f64(double, double)")
        return f"""\
define internal i64 @offcut_threads(double %seconds) nounwind {{
  %grains = fmul double %seconds, {_double(1 / self.isa.machine.threads.grain_seconds)}
  %bounded = call double @llvm.minnum.f64(double %grains, double {_double(self.most)})
  %some = call double @llvm.maxnum.f64(double %bounded, double {_double(1)})
  %count = fptosi double %some to i64
  ret i64 %count
}}"""

    def with_scratch(self) -> str:
        """The body's text, with the parts of the workspace laid out before all else."""

        def lay_out(f: FunctionWriter) -> None:
            offset = self.laid_out("%workspace", self.parts(common=True))
            own = self.parts(common=False)
            if own:
                size = "0"
                for _, part in own:
                    size = ir.add(f, size, self.aligned_bytes(part))
                start = ir.add(f, offset, ir.mul(f, "%thread", size))
                self.laid_out(f.let(f"getelementptr i8, ptr %workspace, i64 {start}"), own)

        head, body = self.over_sizes(lay_out), self.f
        self.outline.place(body)
        lines = [*head.instructions(), *body.instructions()]
        return "\n".join(["entry:", *body.slots, *head.slots, _CONTEXT, *lines])

    def laid_out(self, base: str, parts: Sequence[tuple[str, Expr]]) -> str:
        """Parts of scratch one after the other from `base` on; their bytes."""
        offset = "0"
        for name, size in parts:
            self.f.do(f"{name} = getelementptr i8, ptr {base}, i64 {offset}")
            offset = ir.add(self.f, offset, self.aligned_bytes(size))
        return offset

    def parts(self, common: bool) -> list[tuple[str, Expr]]:
        """The scratch that all threads share, or what each has for itself."""
        return [(name, size) for name, size in self.scratch if (name in self.common) == common]

    def workspace(self) -> str:
        """Bytes of scratch of a call; where they pass int64, more than any allocator has."""

        def add_up(f: FunctionWriter) -> None:
            total, magnitude = "0", "0.0"
            for common in (True, False):
                bytes_, bound = "0", "0.0"
                for _, size in self.parts(common):
                    bytes_ = ir.add(f, bytes_, self.aligned_bytes(size))
                    bound = f.let(f"fadd double {bound}, {self.magnitude(size)}")
                if not common and bytes_ != "0":
                    seconds = f.let("call double @offcut_seconds(ptr %sizes)")
                    threads = f.let(f"call i64 @offcut_threads(double {seconds})")
                    bytes_ = ir.mul(f, bytes_, threads)
                    bound = f.let(f"fmul double {bound}, {_double(self.most)}")
                total = ir.add(f, total, bytes_)
                magnitude = f.let(f"fadd double {magnitude}, {bound}")
            self.cap_total(total, magnitude)

        text = self.over_sizes(add_up).text()
        return f"define i64 @offcut_workspace(ptr %sizes) nounwind {{\n{text}\n}}"

    @property
    def is_shared(self) -> bool:
        """Return whether a team of threads runs the code that is being written."""
        return self.team is not None

    def scratch_of(self, size: Expr) -> str:
        """A new part of the workspace: the team's, or of each thread where one is alone."""
        name = super().scratch_of(size)
        if self.team is not None:
            self.common.add(name)
        return name

    def home(self, buffer: Buffer) -> str:
        """The address of a buffer that belongs to the call, or to a thread."""
        if buffer.scope == STATUS:
            return "%status"
        if buffer.name in self.own:
            with self.alone():
                return super().home(buffer)
        return self.scratch_of(self.bytes_of(buffer))

    def copy_updates(self, memories: Mapping[str, Memory]) -> None:
        """Copy what the program updates, once."""
        if memories:
            with self.last(), self.alone():
                super().copy_updates(memories)
            self.meet()

    def block(self, body: Sequence[Stmt]) -> None:
        if self.team is None:
            super().block(body)
            return
        for stmt in body:
            if not is_barrier(stmt, THREAD):
                self.together(stmt)
            elif self.steps:
                self.meet()

    def together(self, stmt: Stmt) -> None:
        """A statement that a team runs."""
        if self.never_runs(stmt):
            return
        if not has_loops_of(THREAD, stmt):
            if not self.clears_status(stmt):
                with self.last(), self.alone():
                    self.statement(stmt)
            return
        match stmt:
            case For(unit=unit) if unit == THREAD:
                self.share(stmt)
            case For(name, lo, hi, body):
                with self.f.loop(self.scalar(lo), self.scalar(hi)) as now, self.bound(name, now):
                    self.block(body)
            case If(condition, then, other):
                self.branch(condition, then, other)
            case _:
                self.statement(stmt)

    def clears_status(self, stmt: Stmt) -> bool:
        """Whether a statement does what the entry has done."""
        return (
            isinstance(stmt, Store)
            and stmt.buffer in analysis(self.program).status_buffers
            and stmt.value == _CLEAR
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """What is written is run by one thread."""
        team, self.team = self.team, None
        yield
        self.team = team

    @contextmanager
    def last(self) -> Iterator[None]:
        """Around what the last thread of the team runs."""
        assert self.team is not None
        thread, threads = self.team
        others = self.f.let(f"sub i64 {threads}, {thread}")
        with self.f.when(self.f.let(f"icmp eq i64 {others}, 1")):
            yield

    def meet(self) -> None:
        """A barrier of all threads of the call."""
        self.f.do(f"call void @{BARRIER}(ptr %barrier)")

    def share(self, loop: For) -> None:
        """A marked loop: to each thread its share of the iterations."""
        assert self.team is not None
        f, (thread, threads) = self.f, self.team
        lo, hi = self.scalar(loop.lo), self.scalar(loop.hi)
        count = ir.maximum(f, ir.sub(f, hi, lo), "0")
        each = f.let(f"udiv i64 {count}, {threads}")
        rest = ir.sub(f, count, f.let(f"mul i64 {each}, {threads}"))
        if not any(has_loops_of(THREAD, stmt) for stmt in loop.body):
            more = f.let(f"icmp slt i64 {thread}, {rest}")
            first = ir.add(f, f.let(f"mul i64 {thread}, {each}"), ir.minimum(f, thread, rest))
            end = ir.add(f, ir.add(f, first, each), f.let(f"zext i1 {more} to i64"))
            ends = ir.add(f, lo, first), ir.add(f, lo, end)
            piece = self.outline.piece(f, loops=True) if self.is_of_loops(loop) else nullcontext()
            with piece, f.loop(*ends) as now, self.alone(), self.bound(loop.iter, now):
                self.block(loop.body)
            return
        mine, team = self.of_rest(rest)
        some = f.let(f"icmp ne i64 {rest}, 0")
        whole, first = f.let(f"mul i64 {thread}, {each}"), f.let(f"mul i64 {threads}, {each}")
        with f.loop("0", ir.add(f, each, f.let(f"zext i1 {some} to i64"))) as now:
            full = f.let(f"icmp slt i64 {now}, {each}")
            own, shared = ir.add(f, whole, now), ir.add(f, first, mine)
            at = f.let(f"select i1 {full}, i64 {own}, i64 {shared}")
            old_team, steps = (self.team, self.steps)
            self.team = (
                f.let(f"select i1 {full}, i64 0, i64 {team[0]}"),
                f.let(f"select i1 {full}, i64 1, i64 {team[1]}"),
            )
            self.steps = False
            with self.bound(loop.iter, ir.add(f, lo, at)):
                self.block(loop.body)
            self.team, self.steps = old_team, steps

    def of_rest(self, rest: str) -> tuple[str, tuple[str, str]]:
        """Of `rest` iterations, fewer than there are threads: this thread's, and its part of the team.

        Iteration ``k = floor(thread * rest / threads)`` is run by the threads from
        ``ceil(k * threads / rest)`` up to, not including, ``ceil((k + 1) * threads / rest)``.
        """
        assert self.team is not None
        f, (thread, threads) = self.f, self.team
        by = ir.maximum(f, rest, "1")
        mine = f.let(f"udiv i64 {f.let(f'mul i64 {thread}, {by}')}, {threads}")
        ends = []
        for k in (mine, ir.add(f, mine, "1")):
            up = ir.add(f, f.let(f"mul i64 {k}, {threads}"), ir.sub(f, by, "1"))
            ends.append(f.let(f"udiv i64 {up}, {by}"))
        return mine, (ir.sub(f, thread, ends[0]), ir.sub(f, ends[1], ends[0]))


def _double(value: float) -> str:
    """A float64 as LLVM reads it without loss."""
    return f"0x{int.from_bytes(struct.pack('>d', value), 'big'):016X}"


_CLEAR = Const(0, "int32")

_CONTEXT = """\
  %pointers = load ptr, ptr %context
  %sizes.at = getelementptr ptr, ptr %context, i64 1
  %sizes = load ptr, ptr %sizes.at
  %strides.at = getelementptr ptr, ptr %context, i64 2
  %strides = load ptr, ptr %strides.at
  %workspace.at = getelementptr ptr, ptr %context, i64 3
  %workspace = load ptr, ptr %workspace.at
  %status = getelementptr ptr, ptr %context, i64 4
  %thread = zext i32 %thread.number to i64
  %threads = zext i32 %thread.count to i64"""


def _entry(short: float) -> str:
    """The entry: how many threads the call takes; one that is shorter than `short` waits for none."""
    return f"""\
define i32 @offcut_entry(ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace) nounwind {{
entry:
  %context = alloca [5 x ptr], align 64
  store ptr %pointers, ptr %context
  %sizes.at = getelementptr ptr, ptr %context, i64 1
  store ptr %sizes, ptr %sizes.at
  %strides.at = getelementptr ptr, ptr %context, i64 2
  store ptr %strides, ptr %strides.at
  %workspace.at = getelementptr ptr, ptr %context, i64 3
  store ptr %workspace, ptr %workspace.at
  %status.at = getelementptr ptr, ptr %context, i64 4
  store i32 0, ptr %status.at
  %seconds = call double @offcut_seconds(ptr %sizes)
  %threads = call i64 @offcut_threads(double %seconds)
  %count = trunc i64 %threads to i32
  %several = icmp sgt i32 %count, 1
  br i1 %several, label %together, label %alone
together:
  %short = fcmp olt double %seconds, {_double(short)}
  %ran = call i32 @{RUN}(ptr @offcut_body, ptr %context, i32 %count, i1 %short)
  br label %done
alone:
  call void @offcut_body(ptr %context, i32 0, i32 1, ptr null)
  br label %done
done:
  %status = load i32, ptr %status.at
  ret i32 %status
}}"""
