"""The CPU with candidates that crash, hang, take all memory, or give wrong values."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.facade import Array, Cpu, Loaded, Options, Signature

LATE = 20  # calls: the check makes one at each of the sizes
SLOW = 20  # usual calls that a slow one takes, by the clock


class Ticks:
    """A clock of processor time that calls advance: no two of them alike, each some 50 µs."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, 0

    def __call__(self) -> float:
        return self.now

    def called(self, times: int) -> None:
        """A call has taken as long as `times` usual ones."""
        self.calls += 1
        self.now += times * 50e-6 * (1 + self.calls % 13 / 1000)


TICKS = Ticks()


class Planted(Cpu):
    """A kernel whose schedule has a digest among `faults` does that at each call.

    ticks  whether the process that measures reads `TICKS`
    """

    def __init__(self, faults: Mapping[str, str], ticks: bool = False) -> None:
        super().__init__(None)
        self.faults, self.ticks = faults, ticks

    def __reduce__(self) -> Any:
        return _sent, (self.faults, self.ticks)

    def load(self, lowered: bytes, signature: Signature, options: Options) -> Loaded:
        loaded = super().load(lowered, signature, options)
        fault = self.faults.get(options.schedule.digest if options.schedule else "")
        if fault is None and not self.ticks:
            return loaded
        return lambda constants: Faulty(loaded(constants), fault)


class Faulty:
    """A kernel's call, with a fault."""

    def __init__(self, call: Callable[..., Any], fault: str | None) -> None:
        self.call, self.fault, self.calls = call, fault, 0

    def __call__(self, *given: Array, out: Array, **sizes: int) -> Any:
        self.calls += 1
        result = self.call(*given, out=out, **sizes)
        TICKS.called(SLOW if self.fault == "be_slow" else 1)
        if self.fault is not None:
            getattr(self, self.fault)(given, out)
        return result

    def crash(self, given: Any, out: Array) -> None:
        os.abort()

    def crash_late(self, given: Any, out: Array) -> None:
        if self.calls > LATE:
            os.abort()

    def hang(self, given: Any, out: Array) -> None:
        time.sleep(1000)

    def take_all_memory(self, given: Any, out: Array) -> None:
        bytearray(64 << 30)

    def fail(self, given: Any, out: Array) -> None:
        raise RuntimeError("planted")

    def miss_an_element(self, given: Any, out: Array) -> None:
        out.flat[-1] = out.flat[0]

    def leave_poison(self, given: Any, out: Array) -> None:
        out.flat[-1] = float("nan")

    def write_behind(self, given: Any, out: Array) -> None:
        ctypes.memset(out.ctypes.data + out.nbytes, 0, 1)

    def write_an_input(self, given: Any, out: Array) -> None:
        given[0].flat[0] += 1

    def end_the_worker(self, given: Any, out: Array) -> None:
        """As one does that takes its machine along: the parent of a child that measures is a worker."""
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)

    def end_a_worker(self, given: Any, out: Array) -> None:
        if first("end"):
            self.end_the_worker(given, out)

    def stop_a_worker(self, given: Any, out: Array) -> None:
        if first("stop"):
            os.kill(os.getppid(), signal.SIGSTOP)

    def be_slow(self, given: Any, out: Array) -> None:
        """It is, by the clock."""


def _sent(faults: Mapping[str, str], ticks: bool) -> Planted:
    """The target in the process that it was sent to."""
    if ticks:
        time.process_time = TICKS
    return Planted(faults, ticks)


def first(deed: str) -> bool:
    """Whether no process has done it yet, by files in the folder that ``OFFCUT_PLANTED`` names."""
    try:
        (Path(os.environ["OFFCUT_PLANTED"]) / deed).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
