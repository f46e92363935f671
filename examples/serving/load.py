"""`python -m examples.serving.load MODEL.onnx`: the latency of the server by offcut and by onnxruntime, one after the other in rounds.

Each client sends its next request when it has the answer to the one before, over a connection that stays open.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import aiohttp

from examples.serving.__main__ import ENGINES


@dataclass
class Answers:
    """What clients were answered.

    seconds  of each request that was answered by 200
    statuses  how often; "refused" is a connection that was not taken, "lost" a request that was taken and not answered
    """

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    elapsed: float = 0.0

    def line(self, name: str) -> str:
        """Return what they say in a line."""
        shares = quantiles(self.seconds, n=100) if len(self.seconds) > 1 else [0.0] * 99
        said = ", ".join(f"{count} × {status}" for status, count in sorted(self.statuses.items()))
        rate = len(self.seconds) / self.elapsed if self.elapsed else 0.0
        return f"{name:12} p50 {shares[49] * 1e3:7.2f} ms  p99 {shares[98] * 1e3:7.2f} ms  {rate:7.0f}/s  {said}"


async def ask(session: aiohttp.ClientSession, url: str, body: bytes, answers: Answers) -> str:
    """Send a request; return its status, or what became of it."""
    begin = time.perf_counter()
    try:
        async with session.post(url, data=body) as response:
            await response.read()
            status = str(response.status)
            if response.status == 200:
                answers.seconds.append(time.perf_counter() - begin)
    except aiohttp.ClientConnectorError:
        status = "refused"
    except aiohttp.ClientError:
        status = "lost"
    answers.statuses[status] += 1
    return status


async def load(url: str, bodies: Sequence[bytes], clients: int, seconds: float) -> Answers:
    """Return what so many clients are answered for so long."""
    answers, end = Answers(), time.monotonic() + seconds

    async def client(number: int) -> None:
        random_source = random.Random(number)
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < end:
                await ask(session, url, random_source.choice(bodies), answers)

    begin = time.perf_counter()
    await asyncio.gather(*map(client, range(clients)))
    answers.elapsed = time.perf_counter() - begin
    return answers


@contextlib.contextmanager
def serving(model: Path | str, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a server, and give its process and its port."""
    command = [sys.executable, "-m", "examples.serving", str(model), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            if not first.startswith("serving on port "):
                raise RuntimeError(f"the server did not start: {first}")
            yield process, int(first.rsplit(maxsplit=1)[1])
        finally:
            process.terminate()


async def bodies_of(url: str, rows: Sequence[int], extent: int) -> list[bytes]:
    """Return requests with so many rows each, of what the model takes.

    extent  of axes that are free
    """
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        about = await response.json()
    random_source = random.Random(0)

    def tensor(one: dict[str, Any], count: int) -> dict[str, Any]:
        shape = [count, *(extent if n < 0 else n for n in one["shape"][1:])]
        size = 1
        for n in shape:
            size *= n
        floats = one["datatype"].startswith("FP")
        data = [
            random_source.uniform(-1, 1) if floats else random_source.randrange(2)
            for _ in range(size)
        ]
        return {**one, "shape": shape, "data": data}

    bodies = ({"inputs": [tensor(one, count) for one in about["inputs"]]} for count in rows)
    return [json.dumps(one).encode() for one in bodies]


def most_memory(process: subprocess.Popen[str]) -> str:
    """Return the most memory that a process has had, as Linux says it."""
    text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return next(line.split(":")[1].strip() for line in text.splitlines() if "VmHWM" in line)


def main() -> int:
    """Run the load test."""
    parser = argparse.ArgumentParser(prog="python -m examples.serving.load", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=[*ENGINES])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--extent", type=int, default=32, help="of axes that are free (32)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round (2)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(serving(options.model, "--engine", name, "--name", "model"))
            for name in options.engines
        }
        for clients in options.clients:
            totals = {name: Answers() for name in servers}
            for number in range(options.rounds):
                for name in list(servers)[:: 1 if number % 2 else -1]:
                    url = f"http://127.0.0.1:{servers[name][1]}/v2/models/model"
                    bodies = asyncio.run(bodies_of(url, options.rows, options.extent))
                    one = asyncio.run(load(f"{url}/infer", bodies, clients, options.seconds))
                    totals[name].seconds += one.seconds
                    totals[name].statuses += one.statuses
                    totals[name].elapsed += one.elapsed
            sys.stdout.write(f"{clients} clients, {options.rounds} rounds of {options.seconds} s\n")
            for name, answers in totals.items():
                sys.stdout.write(
                    f"  {answers.line(name)}, {most_memory(servers[name][0])} at most\n"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
