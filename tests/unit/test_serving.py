"""The example of serving: batches, what is too much, processes that are told to stop, and processes that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="aiohttp is an extra")

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

import offcut.onnxruntime as ort
from examples.serving.batching import Batcher, Overloaded
from examples.serving.load import Answers, ask, bodies_of, load, serving
from examples.serving.server import Door, Limits, Server
from tests.facade import Builder, compile_graph

INFER = "/v2/models/double/infer"


class Gated:
    """A session that doubles x, refuses infinities, fails at -1, and waits at a gate."""

    def __init__(self, opened: bool = True) -> None:
        self.gate, self.entered, self.rows = threading.Event(), threading.Event(), list[int]()
        if opened:
            self.gate.set()

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x", type="tensor(float)", shape=["batch", "n"])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="y", type="tensor(float)", shape=["batch", "n"])]

    def run(self, output_names: Any, feed: Mapping[str, Any]) -> list[Any]:
        self.entered.set()
        assert self.gate.wait(60)
        if np.isinf(feed["x"]).any():
            raise ValueError("an infinity")
        if (feed["x"] == -1).any():
            raise RuntimeError("not this number")
        self.rows.append(len(feed["x"]))
        with np.errstate(over="ignore"):
            return [feed["x"] * 2]


def x(rows: int, value: float, n: int = 3) -> dict[str, Any]:
    return {"x": np.full((rows, n), value, np.float32)}


async def held(session: Gated, batcher: Batcher) -> asyncio.Task[Any]:
    """A request that a worker has, at the gate."""
    first = asyncio.create_task(batcher.run(x(1, 0)))
    while not session.entered.is_set():
        await asyncio.sleep(0.001)
    return first


def test_what_waits_together_runs_together_and_each_gets_its_own() -> None:
    async def run() -> None:
        session = Gated(opened=False)
        batcher = Batcher(session, most_rows=8)
        first = await held(session, batcher)
        rows = [1, 2, 3, 4, 1]
        others = [asyncio.create_task(batcher.run(x(n, n))) for n in rows]
        wide = asyncio.create_task(batcher.run(x(1, 9, n=5)))
        await asyncio.sleep(0)
        assert batcher.waiting == 6
        session.gate.set()
        assert (await first)[0].tolist() == [[0, 0, 0]]
        for n, one in zip(rows, others, strict=True):
            np.testing.assert_array_equal((await one)[0], x(n, 2 * n)["x"])
        np.testing.assert_array_equal((await wide)[0], x(1, 18, n=5)["x"])
        assert session.rows == [
            1,
            7,
            4,
            1,
        ]  # 1 + 2 + 3 + 1, then what was too much, then another shape
        assert batcher.batches == {1: 2, 7: 1, 4: 1}
        await batcher.close()

    asyncio.run(run())


def test_a_request_that_fails_fails_alone() -> None:
    async def run() -> None:
        session = Gated(opened=False)
        batcher = Batcher(session)
        first = await held(session, batcher)
        others = [asyncio.create_task(batcher.run(x(1, value))) for value in (1, np.inf, 3)]
        await asyncio.sleep(0)
        session.gate.set()
        await first
        good, bad, last = await asyncio.gather(*others, return_exceptions=True)
        assert isinstance(bad, ValueError)
        assert (good[0][0, 0], last[0][0, 0]) == (2, 6)  # type: ignore[index]
        await batcher.close()

    asyncio.run(run())


def test_what_waits_is_bounded_and_who_has_gone_is_left_out() -> None:
    async def run() -> None:
        session = Gated(opened=False)
        batcher = Batcher(session, most_waiting=2)
        first = await held(session, batcher)
        others = [asyncio.create_task(batcher.run(x(1, value))) for value in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await batcher.run(x(1, 3))
        for feed in ({"x": x(0, 1)["x"]}, x(65, 1), {"x": np.float32(1)[()]}, {}):
            with pytest.raises(ValueError, match=r"1…64 rows"):
                await batcher.run({name: np.asarray(array) for name, array in feed.items()})
        others[0].cancel()
        await asyncio.sleep(0)
        session.gate.set()
        await first
        assert (await others[1])[0][0, 0] == 4
        assert session.rows == [1, 1]
        await batcher.close()

    asyncio.run(run())


def body(rows: int, n: int = 3, **changes: Any) -> dict[str, Any]:
    given = {"name": "x", "datatype": "FP32", "shape": [rows, n], "data": [1.5] * rows * n}
    return {"id": "7", "inputs": [{**given, **changes}]}


def over_http(session: Any, limits: Limits, use: Callable[[Server, Any], Awaitable[None]]) -> None:
    """Use a server in this process over a connection."""

    async def run() -> None:
        server = Server(session, "double", limits)
        async with TestClient(TestServer(server.app)) as client:
            await use(server, client)
        await server.batcher.close()

    asyncio.run(run())


def test_a_request_is_answered_by_the_protocol() -> None:
    async def use(server: Server, client: Any) -> None:
        assert (await (await client.get("/v2/health/live")).json()) == {"live": True}
        assert (await client.get("/v2/health/ready")).status == 200
        about = await (await client.get("/v2/models/double")).json()
        assert about["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
        answer = await client.post(INFER, json=body(2))
        assert await answer.json() == {
            "model_name": "double",
            "id": "7",
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [3.0] * 6}],
        }
        metrics = await (await client.get("/metrics")).text()
        assert 'batches_total{rows="2"} 1\nrequests_taken 0\nrequests_waiting 0\n' in metrics

    over_http(Gated(), Limits(), use)


REFUSED: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "Expecting property name"),
    "no end of lists": (b"[" * 100_000, "lists and objects are nested too deep"),
    "NaN": (body(1, data=[np.nan, 1, 1]), "NaN is not a number of JSON"),
    "an infinity": (body(1, data=[1, -np.inf, 1]), "-Infinity is not a number of JSON"),
    "a number beyond its type": (
        body(1, data=[1e39, 1, 1]),
        "x has an element beyond the range of FP32",
    ),
    "a number beyond all types": (
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1e999]}]}',
        "x has an element beyond the range of FP32",
    ),
    "an integer beyond floats": (
        body(1, data=[10**400, 1, 1]),
        "the data of x are not all FP32",
    ),
    "words": (body(1, data=["1", "2", "3"]), "the data of x are not all FP32"),
    "no data": (body(1, data=None), "the data of x are not all FP32"),
    "lists of two lengths": (
        body(1, data=[[1], [2, 3]]),
        "the lists in the data of x differ in length",
    ),
    "no inputs": ({}, "a request is an object, whose inputs are a list of objects"),
    "no object": ([1], "a request is an object, whose inputs are a list of objects"),
    "one input twice": ({"inputs": body(1)["inputs"] * 2}, "the inputs are x, not x, x"),
    "another name": (body(1, name="z"), "the inputs are x, not z"),
    "another type": (body(1, datatype="FP64"), "x is FP32, not FP64"),
    "another rank": (body(1, shape=[3]), "x has the shape ['batch', 'n'], not [3]"),
    "an extent to be found": (
        body(1, shape=[1, -1]),
        "x has the shape ['batch', 'n'], not [1, -1]",
    ),
    "an extent in words": (body(1, shape=["1", 3]), "x has the shape ['batch', 'n'], not ['1', 3]"),
    "too few elements": (body(1, data=[1.0]), "x has 1 elements, not the 3 of [1, 3]"),
    "a great shape": (
        body(1, shape=[1, 1 << 60]),
        "x has 3 elements, not the 1152921504606846976 of [1, 1152921504606846976]",
    ),
    "too many rows": (body(65), "each input has the same 1…64 rows as its first axis"),
    "what JSON cannot say of the result": (
        body(1, data=[3e38, 1, 1]),
        "the output y has NaN or an infinity, which are not numbers of JSON",
    ),
}


def test_a_request_that_does_not_fit_is_refused_in_words() -> None:
    async def use(server: Server, client: Any) -> None:
        for case, (given, text) in REFUSED.items():
            sent = {"data": given} if isinstance(given, bytes) else {"json": given}
            answer = await client.post(INFER, **sent)
            assert answer.status == 400, case
            assert text in (await answer.json())["error"], case
        assert (await client.post(INFER, json=body(1))).status == 200

    over_http(Gated(), Limits(), use)


def test_a_request_at_which_the_model_fails_is_answered_and_counted() -> None:
    async def use(server: Server, client: Any) -> None:
        assert (await client.get("/v2/models/double/ready")).status == 200
        answer = await client.post(INFER, json=body(1, data=[-1.0, 1.0, 1.0]))
        assert (answer.status, await answer.json()) == (500, {"error": "not this number"})
        assert (await client.post(INFER, json=body(1))).status == 200
        assert server.answers == {500: 1, 200: 1}

    over_http(Gated(), Limits(), use)


def test_a_size_that_a_model_does_not_take_is_a_fault_of_the_request(model: Path) -> None:
    async def use(server: Server, client: Any) -> None:
        answer = await client.post(INFER, json=body(65, 16))
        assert answer.status == 400
        assert "b = 65 is outside the facts" in (await answer.json())["error"]

    over_http(ort.InferenceSession(str(model)), Limits(most_rows=100), use)


def test_a_request_of_too_many_bytes_is_not_read() -> None:
    async def use(server: Server, client: Any) -> None:
        answer = await client.post(INFER, data=b" " * 5000)
        assert answer.status == 413
        assert server.in_flight == 0

    over_http(Gated(), Limits(most_bytes=4096), use)


def test_what_is_too_much_is_answered_at_once_and_the_rest_is_served() -> None:
    async def use(server: Server, client: Any) -> None:
        session: Any = server.session
        asked = [asyncio.create_task(client.post(INFER, json=body(1))) for _ in range(30)]
        while sum(one.done() for one in asked) < 26:  # while nothing ends
            await asyncio.sleep(0.001)
        assert server.in_flight == 4
        refused = [one.result() for one in asked if one.done()]
        assert {(one.status, one.headers["Retry-After"]) for one in refused} == {(503, "1")}
        session.gate.set()
        statuses = Counter([(await one).status for one in asked])
        assert statuses == {200: 4, 503: 26}
        assert (server.in_flight, server.batcher.waiting) == (0, 0)
        assert (await client.post(INFER, json=body(1))).status == 200

    over_http(Gated(opened=False), Limits(most_requests=4), use)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Builder("double")
    given = made.input("x", "float32", (made.size("b", 1, 64), 16))
    made.output(made.node("relu", given))
    path = tmp_path_factory.mktemp("served") / "double.offcut"
    compile_graph(made.bound, threads=1).save(path)
    return path


@pytest.fixture(autouse=True)
def _examples_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.getcwd(), *filter(None, sys.path)]))


def test_a_server_that_is_told_to_stop_loses_no_request(model: Path) -> None:
    async def use(process: subprocess.Popen[str], port: int) -> Counter[str]:
        url = f"http://127.0.0.1:{port}/v2/models/double"
        bodies, answered = await bodies_of(url, [1, 2, 3], 1), Counter[str]()

        async def client(number: int) -> None:
            """Ask until the server says goodbye."""
            async with aiohttp.ClientSession() as session:
                while True:
                    async with session.post(f"{url}/infer", data=bodies[number % 3]) as response:
                        assert (await response.json())["outputs"][0]["shape"] == [
                            number % 3 + 1,
                            16,
                        ]
                        answered[str(response.status)] += 1
                        if response.headers.get("Connection") == "close":
                            answered["goodbye"] += 1
                            return
                    if answered["200"] == 50:
                        process.send_signal(signal.SIGTERM)

        await asyncio.gather(*map(client, range(8)))
        return answered

    with serving(model) as (process, port):
        answered = asyncio.run(use(process, port))
        assert process.wait(60) == 0
    assert answered["200"] >= 58
    assert answered.keys() == {"200", "goodbye"}
    assert answered["goodbye"] == 8


def test_who_waits_at_a_door_that_closes_is_taken() -> None:
    async def run() -> None:
        server = Server(Gated(), "double", Limits())
        runner = web.AppRunner(server.app)
        await runner.setup()
        door = Door("127.0.0.1", 0, runner.server)
        port = door.port
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        await door.close()  # nobody was accepted before
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        for one in waiting:
            reader, writer = await asyncio.open_connection(sock=one)
            writer.write(b"GET /v2/health/live HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
            writer.close()
        await runner.cleanup()
        await server.batcher.close()

    asyncio.run(run())


def port_of(line: str) -> int:
    return int(line.rsplit(maxsplit=1)[1])


@pytest.fixture
def supervised(model: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "examples.serving", str(model), "--port=0", "--processes=2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            first, second = process.stdout.readline(), process.stdout.readline()
            assert first == second  # two processes at one port
            yield process, port_of(first)
        finally:
            process.terminate()


def children(process: subprocess.Popen[str]) -> set[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return set(map(int, path.read_text().split()))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it reads /proc")
def test_a_process_that_is_killed_is_begun_again_while_the_others_serve(
    supervised: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = supervised
    url = f"http://127.0.0.1:{port}/v2/models/double"

    async def use() -> None:
        bodies = await bodies_of(url, [2], 1)
        killed, *_ = before = children(process)
        os.kill(killed, signal.SIGKILL)
        assert process.stdout is not None
        answered = Counter[str]()
        again = asyncio.create_task(asyncio.to_thread(process.stdout.readline))
        while not again.done():
            async with aiohttp.ClientSession() as session:  # a connection of its own each time
                answered[await ask(session, f"{url}/infer", bodies[0], Answers())] += 1
            await asyncio.sleep(0.01)
        assert port_of(again.result()) == port
        assert answered["200"] > 0
        after = children(process)
        assert killed not in after
        assert len(after) == 2
        assert len(after & before) == 1
        answers = await load(f"{url}/infer", bodies, 4, 0.2)
        assert answers.statuses.keys() == {"200"}

    asyncio.run(use())
    process.terminate()
    assert process.wait(60) == 0


def test_both_engines_answer_alike(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    theirs = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    text = """<ir_version: 9, opset_import: ["" : 17]> two (float[batch, 4] x) => (float[batch, 4] y, int64[batch] at)
        { y = Relu(x)  at = ArgMax<axis=1, keepdims=0>(x) }"""
    path = tmp_path / "two.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    answers = list[Any]()

    async def use(server: Server, client: Any) -> None:
        given = body(2, 4, data=[1.0, -2.0, 3.0, 0.5, -1.0, 0.25, 0.0, -3.0])
        answer = await client.post(INFER, json=given)
        assert answer.status == 200
        answers.append(await answer.json())

    for engine in (ort, theirs):
        over_http(engine.InferenceSession(str(path)), Limits(), use)
    assert answers[0] == answers[1]
    assert json.dumps(answers[0]["outputs"][1]["data"]) == "[2, 1]"


def test_processes_that_end_time_and_again_are_given_up() -> None:
    code = """import sys
from examples.serving import supervisor
supervisor._YOUNG = 0.0
sys.exit(supervisor.supervise([sys.executable, "-c", "raise SystemExit(3)"], "127.0.0.1", 0, 2))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("ended with 3: begun again") >= 5
