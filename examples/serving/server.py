"""A model by the Open Inference Protocol, version 2: JSON over HTTP.

Memory is bounded: no more than `most_requests` are read, wait and run at once, of `most_bytes` each; more are answered by 503, before anything
of them is read. A server that is told to stop (SIGTERM) stops without losing a request: it says that it is not ready, answers what comes
with ``Connection: close`` for a while, takes what waits at its door, closes the door, answers all that it took, and ends.
"""

from __future__ import annotations

import asyncio
import json
import math
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from aiohttp import web

from examples.serving.batching import LOG, Batcher, Overloaded, Session

_DATATYPES = {
    "BOOL": "bool",
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
_KINDS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}
"""The kinds of numbers in JSON that an element type takes, as numpy abbreviates them."""
_REFUSALS = ("Fail", "InvalidArgument", "RuntimeException")
"""The errors of a session that refuses a call, by their names, which those of offcut and of onnxruntime share."""
_NAMES = {dtype: name for name, dtype in _DATATYPES.items()}
_TYPES = {"float": "float32", "double": "float64"}


@dataclass(frozen=True)
class Limits:
    """What a server takes.

    most_requests  at once, of `most_bytes` each
    most_rows      of a batch; workers: batches at once
    grace          seconds in which a server that was told to stop still opens its door
    """

    most_requests: int = 256
    most_bytes: int = 1 << 20
    most_rows: int = 64
    workers: int = 1
    grace: float = 1.0


class Server:
    """A model, by a name, on a port."""

    def __init__(self, session: Any, name: str, limits: Limits) -> None:
        self.name, self.limits, self.session = name, limits, session
        waiting = limits.most_requests
        self.batcher = Batcher(_checked(session), limits.most_rows, waiting, limits.workers)
        self.inputs = {one.name: one for one in session.get_inputs()}
        self.outputs = [one.name for one in session.get_outputs()]
        self.draining = False
        self.in_flight, self.answers = 0, dict[int, int]()
        self.app = web.Application(client_max_size=limits.most_bytes)
        self.app.on_response_prepare.append(self._announce_end)
        self.app.add_routes(
            [
                web.get("/v2/health/live", self._live),
                web.get("/v2/health/ready", self._ready),
                web.get(f"/v2/models/{name}", self._metadata),
                web.get(f"/v2/models/{name}/ready", self._ready),
                web.post(f"/v2/models/{name}/infer", self._infer_and_count),
                web.get("/metrics", self._metrics),
            ]
        )

    async def serve(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        """Serve until SIGTERM or SIGINT.

        ready  is told the port
        """
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=60.0)
        await runner.setup()
        assert runner.server is not None
        door = Door(host, port, runner.server)
        ready(door.port)
        await stop.wait()
        self.draining = True
        await asyncio.sleep(self.limits.grace)
        await door.close()
        end = loop.time() + self.limits.grace
        while runner.server.connections and loop.time() < end:
            await asyncio.sleep(0.01)
        await runner.cleanup()
        await self.batcher.close()

    async def _infer_and_count(self, request: web.Request) -> web.StreamResponse:
        try:
            response = await self._infer(request)
        except web.HTTPRequestEntityTooLarge as error:
            response = web.json_response({"error": error.text}, status=error.status)
        self.answers[response.status] = self.answers.get(response.status, 0) + 1
        return response

    async def _announce_end(self, request: web.Request, response: web.StreamResponse) -> None:
        if self.draining:  # what aiohttp itself says of connections stands in the headers by now
            response.headers["Connection"] = "close"
            response.force_close()

    async def _live(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"live": True})

    async def _ready(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"ready": not self.draining}, status=503 if self.draining else 200)

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        def descriptions(arrays: Any) -> list[Any]:
            return [
                {
                    "name": one.name,
                    "datatype": _NAMES[_dtype(one.type)],
                    "shape": [n if isinstance(n, int) else -1 for n in one.shape],
                }
                for one in arrays
            ]

        about = {"inputs": self.session.get_inputs(), "outputs": self.session.get_outputs()}
        return web.json_response(
            {
                "name": self.name,
                "platform": "onnx",
                **{k: descriptions(v) for k, v in about.items()},
            }
        )

    async def _infer(self, request: web.Request) -> web.StreamResponse:
        if self.in_flight >= self.limits.most_requests:
            return _busy()
        self.in_flight += 1
        try:
            body = await request.json(loads=_parsed)
            outputs = await self.batcher.run(self._feed(body))
            for name, array in zip(self.outputs, outputs, strict=True):
                _check_finite(name, array)
        except web.HTTPException:
            raise
        except Overloaded:
            return _busy()
        except Exception as error:
            if isinstance(error, ValueError | LookupError) or type(error).__name__ in _REFUSALS:
                return web.json_response({"error": str(error)}, status=400)
            LOG.warning("a request failed: %s", error)
            return web.json_response({"error": str(error)}, status=500)
        finally:
            self.in_flight -= 1
        inputs = [
            {
                "name": name,
                "datatype": _NAMES[array.dtype.name],
                "shape": [*array.shape],
                "data": array.ravel().tolist(),
            }
            for name, array in zip(self.outputs, outputs, strict=True)
        ]
        return web.json_response(
            {"model_name": self.name, "id": body.get("id", ""), "outputs": inputs}
        )

    def _feed(self, body: Any) -> dict[str, Any]:
        """Return the arrays of a request.

        Raises ValueError for a request that is none, and for arrays that the model does not take.
        """
        given = body.get("inputs") if isinstance(body, dict) else None
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            raise ValueError("a request is an object, whose inputs are a list of objects")
        inputs = {str(one.get("name")): one for one in given}
        if inputs.keys() != self.inputs.keys() or len(inputs) < len(given):
            names = (str(one.get("name")) for one in given)
            raise ValueError(f"the inputs are {', '.join(self.inputs)}, not {', '.join(names)}")
        return {name: _array(self.inputs[name], one) for name, one in inputs.items()}

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        lines = [f'requests_total{{status="{s}"}} {n}' for s, n in sorted(self.answers.items())]
        lines += [
            f'batches_total{{rows="{r}"}} {n}' for r, n in sorted(self.batcher.batches.items())
        ]
        lines += [f"requests_taken {self.in_flight}", f"requests_waiting {self.batcher.waiting}"]
        return web.Response(text="\n".join(lines) + "\n")


def _checked(session: Any) -> Session:
    if len({one.shape[0] for one in session.get_inputs() if one.shape}) > 1:
        raise ValueError("the first axes of the inputs of a model are its batch: here they differ")
    model: Session = session
    return model


def _parsed(text: str) -> Any:
    """Return what a text of JSON says.

    Raises ValueError for another text, and for NaN and infinities, which are not numbers of JSON.
    """

    def refuse(number: str) -> None:
        raise ValueError(f"{number} is not a number of JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("lists and objects are nested too deep") from None


def _array(own: Any, given: dict[str, Any]) -> Any:
    """Return the array of an input.

    own    what the model says of it
    given  what the request does

    Raises ValueError for another element type or shape, and for elements that are not of the type, or are too few or too many.
    """
    dtype, shape = _dtype(own.type), given.get("shape")
    datatype = _NAMES[dtype]
    if given.get("datatype") != datatype:
        raise ValueError(f"{own.name} is {datatype}, not {given.get('datatype')}")
    if not isinstance(shape, list) or not _fits(shape, own.shape):
        raise ValueError(f"{own.name} has the shape {own.shape}, not {shape}")
    try:
        data = np.array(given.get("data"))
    except ValueError:
        raise ValueError(f"the lists in the data of {own.name} differ in length") from None
    if data.size and data.dtype.kind not in _KINDS[np.dtype(dtype).kind]:
        raise ValueError(f"the data of {own.name} are not all {datatype}")
    if data.size != math.prod(shape):
        raise ValueError(
            f"{own.name} has {data.size} elements, not the {math.prod(shape)} of {shape}"
        )
    with np.errstate(over="ignore"):
        array = data.astype(dtype)
    if not (np.isfinite(array) if array.dtype.kind == "f" else array == data).all():
        raise ValueError(f"{own.name} has an element beyond the range of {datatype}")
    return array.reshape(shape)


def _fits(shape: list[Any], own: Any) -> bool:
    """Return whether a model takes a shape: an extent of its own that is no number is any."""
    return len(shape) == len(own) and all(
        type(extent) is int and extent >= 0 and (extent == n or not isinstance(n, int))
        for extent, n in zip(shape, own, strict=True)
    )


def _check_finite(name: str, array: Any) -> None:
    """Raises ValueError for an output that JSON cannot say."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"the output {name} has NaN or an infinity, which are not numbers of JSON")


def _busy() -> web.Response:
    return web.json_response({"error": "overloaded"}, status=503, headers={"Retry-After": "1"})


def _dtype(text: str) -> str:
    """Return ``float32`` of ``tensor(float)``."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return _TYPES.get(name, name)


class Door:
    """A socket that listens; several processes may listen at one port, and the system divides what comes.

    What the system has accepted when the socket is closed is reset, and asyncio drops what it accepted itself at that moment: so connections
    are taken here, the last ones right before the door closes.
    """

    def __init__(self, host: str, port: int, protocols: Any) -> None:
        self._protocols, self._loop = protocols, asyncio.get_running_loop()
        self._entering = set[asyncio.Task[Any]]()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((host, port))
        self._socket.listen(1024)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._take)

    @property
    def port(self) -> int:
        """Return its number."""
        return int(self._socket.getsockname()[1])

    def _take(self) -> None:
        """Take who waits; where the process may open no more files, they wait for those that go."""
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                connection.setblocking(False)
                entering = self._loop.connect_accepted_socket(self._protocols, connection)
                task = self._loop.create_task(entering)
                self._entering.add(task)
                task.add_done_callback(self._entering.discard)

    async def close(self) -> None:
        """Take who waits, and nobody after them."""
        self._loop.remove_reader(self._socket)
        self._take()
        self._socket.close()
        if self._entering:
            await asyncio.wait(self._entering)
