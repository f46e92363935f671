"""The stage that times kernels: constants of the cost, odd sizes beside aligned ones, tables beside torch and Triton's tutorial.

Predictions were written before; every figure stands beside its own. Triton's tutorial is timed once for each layer of a table,
since it compiles for each shape. What runs after the budget is left out, and counted.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from device_run.folder import Prepared, Results
from device_run.reference import to_stored
from device_run.runners import OnDevice
from offcut.errors import OffcutError

TABLES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "DietCode": ((768, 2304), (768, 768), (3072, 768), (768, 3072)),
    "Llama": ((5120, 3840), (1280, 5120), (5120, 3456), (3456, 5120)),
}
"""Layers as ``(k, n)``: BERT's, and those of Llama 2 13B on several devices."""
ROWS: Mapping[str, tuple[int, ...]] = {
    "DietCode": (16 * 5, 16 * 24, 16 * 43, 16 * 62, 16 * 81, 16 * 100, 16 * 119, 16 * 128),
    "Llama": (1, 7, 16, 33, 64, 127, 256, 512, 1000, 2048, 4096),
}
SQUARES = ((8192, 8192), (8191, 8191))
SQUARE_ROWS = (512, 8192, 8191)
CONSTANTS = ((768, 2048), (1536, 2048), (3072, 2048))
"""Layers that differ in their terms alone: the slope is a step, the rest begin and end."""
CONSTANT_ROWS = (64 * 33, 64 * 66)
BEYOND_L2 = 120_000_000
"""Bytes of operands that take turns, so that L2 holds none of them."""
MOST_COPIES = 12
COPY_BYTES = 1 << 30


def sizes_of(k: int, n: int) -> tuple[int, ...]:
    """Return the rows at which a layer is timed."""
    rows: dict[int, None] = {}
    for name, table in TABLES.items():
        rows |= dict.fromkeys(ROWS[name] if (k, n) in table else ())
    rows |= dict.fromkeys(SQUARE_ROWS if (k, n) in SQUARES else ())
    rows |= dict.fromkeys(CONSTANT_ROWS if (k, n) in CONSTANTS else ())
    return tuple(rows)


def speed(
    runner: OnDevice, kernels: Sequence[Prepared], results: Results, budget: float = 240.0
) -> bool:
    """Time each kernel at its sizes, beside torch and Triton where they are; return whether all ran."""
    record = results.begin("speed", device=runner.title, card={}, cells=[], left_out=0, errors=[])
    until = time.monotonic() + budget
    peers = list(_peers())
    record["peers"] = [name for name, _ in peers]
    record["card"] = card(runner)
    results.flush()
    for kernel in sorted(kernels, key=_order):
        k, n = kernel.computes["k"], kernel.computes["n"]
        all_rows = sizes_of(k, n)
        for rows in all_rows:
            if time.monotonic() > until:
                record["left_out"] += 1
                continue
            cell = {"k": k, "n": n, "m": rows, "predicted": kernel.predicted.get(rows)}
            record["cells"].append(cell)
            try:
                with Operands(runner, kernel, rows) as operands:
                    cell["ours"] = runner.seconds(operands.launches)
                    for name, contender in peers:
                        if name != "triton" or (_order(kernel) == 2 and rows == all_rows[len(all_rows) // 2]):  # fmt: skip
                            time_peer(cell, name, contender, operands)
            except OffcutError as error:
                record["errors"].append(str(error))
                results.flush()
                return False
            results.flush()
    record["summary"] = summary(record["cells"])
    results.flush()
    return not record["errors"]


def time_peer(
    cell: dict[str, Any],
    name: str,
    contender: Callable[[Operands], float],
    operands: Operands,
) -> None:
    """Add the seconds of a contender to a cell, or what it raised."""
    try:
        cell[name] = contender(operands)
    except Exception as error:  # a contender's failure is a fact of its own, and ends nothing
        cell[f"{name} raised"] = f"{type(error).__name__}: {error}"[:300]


def _order(kernel: Prepared) -> int:
    """Return the place of a kernel: constants first, then squares, then tables."""
    shape = kernel.computes["k"], kernel.computes["n"]
    return 0 if shape in CONSTANTS else 1 if shape in SQUARES else 2


def card(runner: OnDevice) -> dict[str, float]:
    """Return what the card itself does: bytes a second of a copy within its memory, read and written."""
    device, size = runner.device, COPY_BYTES
    with device.current():
        one, other = (device.allocate(size, 0, "bench") for _ in range(2))

        def copy() -> None:
            device.copy_within(other, one, size, 0, "bench")

        seconds = runner.seconds([copy, copy])
        for address in (one, other):
            device.free(address, 0)
    return {"copy_bytes_per_second": 2 * size / seconds}


class Operands:
    """Operands of a product in the memory of a GPU, several of them in turn; freed at the end of a ``with``."""

    def __init__(self, runner: OnDevice, kernel: Prepared, rows: int) -> None:
        self.runner, self.kernel, self.rows = runner, kernel, rows
        k, n = kernel.computes["k"], kernel.computes["n"]
        self.shapes = {"A": (rows, k), "W": (k, n), "C": (rows, n)}
        total = 2 * sum(math.prod(shape) for shape in self.shapes.values())
        self.copies = max(1, min(MOST_COPIES, -(-BEYOND_L2 // total)))
        self.addresses: list[dict[str, int]] = []

    def __enter__(self) -> Operands:
        device = self.runner.device
        draw = np.random.default_rng(5).standard_normal(1 << 20).astype(np.float32)
        values = to_stored(draw, "bfloat16")  # random: zeros are multiplied faster
        with device.current():
            for _ in range(self.copies):
                places: dict[str, int] = {}
                self.addresses.append(places)
                for name, shape in self.shapes.items():
                    size = math.prod(shape)
                    places[name] = device.allocate(2 * size, 0, "bench")
                    if name != "C":
                        host = np.resize(values, size)
                        device.copy_in(places[name], host.ctypes.data, host.nbytes, 0, "bench")
                        device.synchronize(0, "bench")
        return self

    def __exit__(self, *_: object) -> None:
        device = self.runner.device
        with device.current():
            device.synchronize(0, "bench")
            for places in self.addresses:
                for address in places.values():
                    device.free(address, 0)

    @property
    def launches(self) -> list[Callable[[], None]]:
        """Return what enqueues a product each, of other operands in turn."""
        runner, plan = self.runner, self.kernel.plan
        module, sizes = runner.module(self.kernel), dict.fromkeys(plan.sizes, self.rows)

        def launch(places: Mapping[str, int]) -> Callable[[], None]:
            return lambda: runner.device.run(module, plan, places, sizes, 0)

        return [launch(places) for places in self.addresses] * (1 if self.copies > 4 else 4)


def _peers() -> Iterator[tuple[str, Callable[[Operands], float]]]:
    """Yield the contenders that are installed: seconds of the same product."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        return

    def timed(operands: Operands, product: Callable[[Any, Any, Any], object]) -> float:
        tensors = [
            tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in operands.shapes.values())
            for _ in range(operands.copies)
        ]  # fmt: skip
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.default_stream()):
            calls = [_call(product, one) for one in tensors]
            return operands.runner.seconds(calls * (1 if operands.copies > 4 else 4))

    yield "torch", lambda operands: timed(operands, lambda a, w, c: torch.mm(a, w, out=c))
    if importlib.util.find_spec("triton") is not None:
        from device_run.triton_matmul import matmul

        yield "triton", lambda operands: timed(operands, matmul)


def _call(product: Callable[[Any, Any, Any], object], operands: Any) -> Callable[[], None]:
    def call() -> None:
        product(*operands)

    return call


def summary(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of the cells: over torch by table, odd over aligned, and what a step and the rest of a launch take."""
    by_cell = {(cell["k"], cell["n"], cell["m"]): cell for cell in cells if "ours" in cell}
    figures: dict[str, Any] = {}
    for name, table in TABLES.items():
        ratios = [c["torch"] / c["ours"] for (k, n, _), c in by_cell.items() if (k, n) in table and "torch" in c]  # fmt: skip
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            figures[f"{name} over torch"] = {"mean": mean, "worst": min(ratios), "cells": len(ratios)}  # fmt: skip
    errors = [abs(c["predicted"] / c["ours"] - 1) for c in by_cell.values() if c["predicted"]]
    if errors:
        figures["predicted within 15 %"] = sum(error <= 0.15 for error in errors) / len(errors)
    aligned, odd = by_cell.get((8192, 8192, 8192)), by_cell.get((8191, 8191, 8191))
    if aligned and odd:
        figures["8191³ over 8192³"] = aligned["ours"] / odd["ours"]
        figures["TFLOP/s at 8192³"] = 2e-12 * 8192**3 / aligned["ours"]
    aligned, odd = by_cell.get((8192, 8192, 512)), by_cell.get((8191, 8191, 512))
    if aligned and odd:
        figures["8191² over 8192² at 512 rows"] = aligned["ours"] / odd["ours"]
    for rows in CONSTANT_ROWS:
        points = [(k, by_cell[k, n, rows]["ours"]) for k, n in CONSTANTS if (k, n, rows) in by_cell]
        if len(points) >= 2:
            slope, rest = np.polyfit([k for k, _ in points], [seconds for _, seconds in points], 1)
            figures[f"at {rows} rows"] = {"seconds_per_term": float(slope), "rest_seconds": float(rest)}  # fmt: skip
    return figures
