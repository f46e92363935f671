"""Proof of what threads share: nothing that another one writes, but after they have met."""

from __future__ import annotations

from offcut import debug
from offcut.backends.cpu.threads.parallel import Parallel, mark_parallel_loops
from offcut.backends.host import cache
from offcut.backends.verify import check_parallel_loops
from offcut.core.plain_loops import unsynchronized
from offcut.core.program import THREAD, Program
from offcut.errors import PartitionError
from offcut.polyhedral.sync import check_barriers
from offcut.schedule import NO_LOOP


def check_race_free(made: Parallel, chunk: int, threads: int) -> None:
    """Prove that threads may share the loops of `made` as it is marked, and meet wherever they must.

    Raises PartitionError for a loop that carries a dependence, an array of which each thread needs one of
    its own, or a meeting that is missing.
    """
    name = cache.key("threads", repr(made))
    if not debug.verifies() and cache.read(name) is not None:
        return
    check_parallel_loops(unsynchronized(made.program), True, set())
    again = mark_parallel_loops(made.program, chunk, threads, NO_LOOP)
    for buffer in sorted(again.own ^ made.own):
        own = buffer in again.own
        raise _refused(
            made.program,
            f"{buffer} is {'what each thread writes before it reads' if own else 'shared'}",
            f"each thread {'needs one of its own' if own else 'has one of its own'}",
        )
    check_barriers(made.program, THREAD, made.own)
    cache.write(name, b"proved")


def _refused(program: Program, at: str, because: str) -> PartitionError:
    return PartitionError(
        "prove", f"cannot run {program.name} on several threads", at=at, because=because
    )
