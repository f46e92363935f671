"""Cases checked in a process of its own, which may crash or hang."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import IO

from .case import Case, Outcome, load

SECONDS = 20  # of processor time, for one case
PATIENCE = 15  # wall time may be this many times as long
ROOT = Path(__file__).parents[2]


class Worker:
    """A process that checks one case after the other; it is started again where one ends it."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the worker

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.stop()
        self.log.close()

    def start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *sys.path])
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.workers", str(self.seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, "PYTHONPATH": path},
            cwd=ROOT,
        )
        return self.process

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def check(self, case: Case) -> Outcome:
        """What becomes of `case`, whatever that is."""
        process = self.process or self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        self.log.seek(0)
        self.log.truncate()
        try:
            process.stdin.write(case.dump().encode() + b"\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE * self.seconds)
        except BrokenPipeError:
            ready = [process.stdout]
        answer = process.stdout.readline() if ready else b""
        if answer:
            return Outcome(**json.loads(answer))
        if not ready:
            self.stop()
            return Outcome("late", "", "it waits", self.said(), self.seconds)
        status = process.wait()
        self.stop()
        said = self.said()
        if status == -signal.SIGPROF:
            return Outcome("late", "", f"late in {place(said)}", said, self.seconds)
        name = signal.Signals(-status).name if status < 0 else f"exit {status}"
        return Outcome("crash", "", f"{name} in {place(said)}", said)

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-6000:]


def place(said: str) -> str:
    """The innermost function of offcut on the stack that `faulthandler` wrote, and its callers."""
    frames = re.findall(r'File ".*/offcut/(\S+\.py)", line \d+ in (\S+)', said)
    return " < ".join(f"{file}:{name}" for file, name in frames[:3]) or "code of no file"


def main() -> None:
    """Reads cases from standard input, a line each, and writes what became of them."""
    seconds = float(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    from .checking import check

    gc.set_threshold(1_000_000, 20, 50)  # as in tests/conftest.py
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        outcome = check(load(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps(asdict(outcome)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
