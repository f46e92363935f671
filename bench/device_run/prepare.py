"""What a run on a GPU needs, compiled where there is none: texts, cubins, launches, programs, predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import offcut as oc
from device_run.folder import Prepared, write_index
from device_run.speed import CONSTANTS, SQUARES, TABLES, sizes_of
from offcut.backends.gpu.nvrtc import (
    VERSION,
    architecture_of,
    compile_cubin,
    kernel_usages,
    nvrtc_module,
)
from offcut.backends.gpu.text import cuda_kernels
from offcut.errors import OffcutError

CHECKS = ("meaning", "bits", "edges")
MOST_BYTES = 60_000_000
"""Bytes of a folder, at most."""


@dataclass(frozen=True)
class Case:
    """A kernel to prepare; `describe` returns the result and the inputs."""

    name: str
    stages: tuple[str, ...]
    computes: dict[str, Any]
    describe: Callable[[], tuple[Any, list[Any]]]
    strategy: Any = "auto"
    sizes: tuple[int, ...] = ()


def dense(
    k_size: int, n_size: int, dtype: str, out: str, turned: bool = False, relu: bool = False
) -> tuple[Any, list[Any]]:
    """Return a product of n rows, and its inputs A and W."""
    n, k = oc.dim("n", min=0), oc.reduce_axis(k_size, name="k")
    sums = "int32" if dtype == "int8" else "float32"
    a = oc.placeholder((n, k_size), dtype, name="A")
    w = oc.placeholder((n_size, k_size) if turned else (k_size, n_size), dtype, name="W")

    def term(i: Any, j: Any) -> Any:
        other = w[j, k] if turned else w[k, j]
        return oc.sum(a[i, k].astype(sums) * other.astype(sums), axis=k)

    s = oc.compute((n, n_size), term, name="S")
    if out == sums and not relu:
        return s, [a, w]

    def last(i: Any, j: Any) -> Any:
        value = oc.maximum(s[i, j], 0.0) if relu else s[i, j]
        return value.astype(out)

    return oc.compute((n, n_size), last, name="C"), [a, w]


def centered() -> tuple[Any, list[Any]]:
    """Return columns without their sums: two launches, and an array between them."""
    n = oc.dim("n", min=0)
    x, k = oc.placeholder((n, 6), "float32", name="X"), oc.reduce_axis(n, name="k")
    m = oc.compute((6,), lambda j: oc.sum(x[k, j], axis=k), name="M")
    return oc.compute((n, 6), lambda i, j: x[i, j] - m[j], name="Y"), [x]


def scaled() -> tuple[Any, list[Any]]:
    """Return an array of two axes, times two."""
    n = oc.dim("n", min=0)
    x = oc.placeholder((n, 133), "float32", name="X")
    return oc.compute((n, 133), lambda i, j: x[i, j] * 2.0, name="Y"), [x]


def cases() -> Iterator[Case]:
    """Yield what is prepared: kernels to check first, small ones, then those that are timed."""
    products: list[tuple[int, int, str, str, bool, bool, str]] = [
        (72, 24, "float16", "float32", False, False, "auto"),
        (64, 128, "bfloat16", "bfloat16", False, True, "auto"),
        (37, 133, "bfloat16", "bfloat16", False, False, "auto"),
        (40, 20, "bfloat16", "bfloat16", True, False, "auto"),
        (72, 40, "int8", "int32", False, False, "auto"),
        (37, 40, "float32", "float32", False, False, "auto"),
        *((96, 130, "bfloat16", "bfloat16", False, False, one) for one in ("guard", "mask", "shift", "cut")),
    ]  # fmt: skip
    for k, n, dtype, out, turned, relu, strategy in products:
        words = ["turned"] * turned + ["relu"] * relu + [strategy] * (strategy != "auto")
        name = " ".join([f"dense {k}×{n} {dtype} to {out}", *words])
        computes = {"op": "dense", "dtype": dtype, "out": out, "turned": turned, "relu": relu, "k": k, "n": n}  # fmt: skip
        by_axis = strategy if strategy == "auto" else {"i": strategy}
        yield Case(name, CHECKS, computes, _dense(k, n, dtype, out, turned, relu), by_axis)
    rows = {"dtype": "float32", "out": "float32"}
    yield Case("centered", ("meaning", "edges"), {"op": "centered", **rows}, centered)
    yield Case("scaled", ("meaning", "edges"), {"op": "scaled", **rows}, scaled)
    timed = [*CONSTANTS, *SQUARES, *(shape for table in TABLES.values() for shape in table)]
    for k, n in dict.fromkeys(timed):
        computes = {"op": "dense", "dtype": "bfloat16", "out": "bfloat16", "k": k, "n": n}
        describe = _dense(k, n, "bfloat16", "bfloat16", False, False)
        yield Case(f"dense {k}×{n}", ("speed",), computes, describe, sizes=sizes_of(k, n))


def _dense(*arguments: Any) -> Callable[[], tuple[Any, list[Any]]]:
    return lambda: dense(*arguments)


def prepare(
    folder: Path, machine: str, code: bool, wanted: Callable[[str], object], stages: set[str]
) -> dict[str, str]:
    """Compile what a run needs into a folder; return why a case could not be, by its name.

    code    whether cubins are made; without, the folder is for the emulated device
    wanted  whether a case is, by its name
    stages  that are to run

    Raises TargetError where there is no compiler, OffcutError for a folder of more than `MOST_BYTES`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cuda: Any = oc.target("cuda", machine=machine, device="emulated")
    architecture = architecture_of(cuda.machine.architecture)
    if code:
        nvrtc_module("bench")
    kernels: list[Prepared] = []
    refused: dict[str, str] = {}
    for case in cases():
        if not wanted(case.name) or not stages & {*case.stages}:
            continue
        try:
            kernels.append(prepared(folder, case, cuda, architecture if code else None))
        except OffcutError as error:  # no text so far, or slow code
            refused[case.name] = str(error)
    about = {
        "machine": cuda.machine.name,
        "architecture": architecture,
        "nvrtc": list(VERSION),
        "refused": refused,
    }
    write_index(folder, kernels, about)
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    if size > MOST_BYTES:
        raise OffcutError("bench", f"cannot carry {folder.name}", because=f"it has {size} bytes, and {MOST_BYTES} are taken")  # fmt: skip
    return refused


def prepared(folder: Path, case: Case, cuda: Any, architecture: str | None) -> Prepared:
    """Return the record of a case, with its cubin in a file of the folder."""
    result, inputs = case.describe()
    kernel = oc.compile(result, inputs=inputs, target=cuda, strategy=case.strategy)
    text, plan = cuda_kernels(kernel.loops)
    file, registers = None, {}
    if architecture is not None:
        threads = {launch.kernel: launch.threads for launch in plan.launches}
        cubin, log = compile_cubin("bench", text, architecture, threads)
        registers = {usage.name: usage.registers for usage in kernel_usages(log)}
        file = f"{sha256(cubin).hexdigest()[:16]}.cubin"
        (folder / file).write_bytes(cubin)
    predicted = {n: kernel.cost(n=n).seconds for n in case.sizes}
    return Prepared(case.name, case.stages, case.computes, plan, str(kernel.loops), file, registers, predicted)  # fmt: skip
