"""Programs whose object code, streams of instructions or cycles are no longer those of another checkout.

    python -m tests.same_code OLD                     a checkout, compared with this one
    python -m tests.same_code OLD --quick             some programs of each kind
    python -m tests.same_code --write FILE            what this checkout makes, for later
    python -m tests.same_code FILE                    compared with what was written
    python -m tests.same_code OLD --only 'dense.*zen4' --show FOLDER      the texts that differ, side by side

Of each program it compares LLVM text and assembly for processors that are named, and of machines of queues the
listing of the instructions and the cycles. Names of registers and labels count; nothing is timed, and no cache is
used. Only public names of offcut are called: it runs the same in any checkout. The exit status is 1 where
something differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MACHINES = ("zen4", "cascade-lake", "sapphire-rapids")
QUEUES = ("vta", "gemmini")
STRATEGIES = (
    "guard",
    "cut",
    "mask",
    "pad",
    "shift",
    "ladder",
    "balance",
    "even",
    "residue",
    "version",
    "mix",
)

Make = Callable[[], dict[str, str]]
"""What makes a case: the texts that are compared, by what they are."""

STENCIL = """program stencil
size n in 3:4097
size m in 3:4097
input A: float32[n, m]
output B: float32[n, m]
for i in 0:n
  for j in 0:m
    B[i, j] = A[i, j]
for i in 1:n - 1
  for j in 1:m - 1
    B[i, j] = (A[i, j] + A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]) * 0.2
"""
GATHER = """program gather
size n in 1:4097
input P: int32[n]
input X: float32[n]
output Y: float32[n]
output S: float32[1]
S[0] = 0.0
for i in 0:n
  Y[i] = X[index(P[i])]
for i in 0:n
  S[0] += Y[i]
"""
RECURRENCE = """program recurrence
size n in 0:200
input P: float32[2, n, 8]
input U: float32[8, 8]
output H: float32[n, 8]
local G: float32[n, 8]
private S: float32[n, 8]
for i in 0:n
  for j in 0:8
    H[i, j] = 0.0
for t in 0:2
  for i in 0:n
    for j in 0:8
      S[i, j] = 0.0
      for k in 0:8
        S[i, j] += H[i, k] * U[k, j]
      G[i, j] = P[t, i, j] + S[i, j]
  for i in 0:n
    for j in 0:8
      H[i, j] = G[i, j] * 0.5
"""
WINDOW = """program window
size n in 0:100
size m in 0:100
input X: float32[n, m]
input W: float32[3, m]
private S: float32[n, m]
output Y: float32[n, m]
for j in 0:n
  for c in 0:m
    Y[j, c] = 0.0
for j in 1:n - 1
  for c in 0:m
    S[j, c] = 0.0
    for r in 0:3
      S[j, c] += X[j + r - 1, c] * W[r, c]
    Y[j, c] = S[j, c] + 1.0
"""
ROWS = """program rows
size n in 0:4097
input X: float32[n, 64]
local T: float32[n, 64]
output Y: float32[n, 64]
for i in 0:n
  for j in 0:64
    T[i, j] = X[i, j] + 1.0
for i in 0:n
  for j in 0:64
    Y[i, j] = T[i, 63 - j] * where(j < 7, X[i, j], 2.0)
"""


def _programs() -> dict[str, Callable[[Any], tuple[Any, tuple[str, ...]]]]:
    """What is compiled for processors, by name: a result and the names of its constants."""

    def dense(oc: Any, dtype: str = "float32", constants: tuple[str, ...] = ()) -> Any:
        n, k = oc.dim("n", min=1, max=4096), oc.reduce_axis(96, name="k")
        a, w = oc.placeholder((n, 96), dtype, "A"), oc.placeholder((96, 80), dtype, "W")
        b = oc.placeholder((80,), name="b")
        wide = "int32" if dtype == "int8" else "float32"
        total = oc.compute(
            (n, 80),
            lambda i, j: oc.sum(oc.cast(a[i, k], wide) * oc.cast(w[k, j], wide), axis=k),
            name="S",
        )
        if dtype == "int8":
            return total, constants
        return oc.compute(
            (n, 80), lambda i, j: oc.maximum(total[i, j] + b[j], 0.0), name="C"
        ), constants

    def requantised(oc: Any) -> Any:
        total, _ = dense(oc, "int8")
        return oc.ops.requantize(total, 6, name="Y"), ("W",)

    def of(
        *shapes: tuple[Any, ...],
        op: str,
        dtype: str = "float32",
        constants: tuple[str, ...] = (),
        **options: Any,
    ) -> Any:
        def make(oc: Any) -> Any:
            n, m = oc.dim("n", min=1, max=4096), oc.dim("m", min=1, max=4096)
            named = {"n": n, "m": m}
            given = [
                oc.placeholder(tuple(named.get(e, e) for e in shape), dtype, name)
                for shape, name in zip(shapes, "ABDE", strict=False)
            ]
            return getattr(oc.ops, op)(*given, **options), constants

        return make

    def functions(oc: Any) -> Any:
        a = oc.placeholder((oc.dim("n", max=4096), 40), name="A")
        return oc.compute(
            (a.shape[0], 40),
            lambda i, j: (
                oc.exp(a[i, j])
                + oc.tanh(a[i, j]) * oc.erf(a[i, j])
                + oc.sqrt(oc.absolute(a[i, j]))
                + oc.log1p(oc.absolute(a[i, j]))
                + oc.floor(oc.sin(a[i, j]))
            ),
            name="F",
        ), ()

    def depthwise(oc: Any) -> Any:
        n, r, s = oc.dim("n", max=64), oc.reduce_axis(3, name="r"), oc.reduce_axis(3, name="s")
        a, w = oc.placeholder((n, 28, 28, 64), name="A"), oc.placeholder((3, 3, 64), name="W")

        def padded(b: Any, y: Any, x: Any, c: Any) -> Any:
            inside = (y >= 1) & (y < 29) & (x >= 1) & (x < 29)
            return oc.where(inside, a[b, y - 1, x - 1, c], 0.0)

        total = oc.compute(
            (n, 28, 28, 64),
            lambda b, y, x, c: oc.sum(padded(b, y + r, x + s, c) * w[r, s, c], axis=(r, s)),
            name="S",
        )
        return oc.compute(
            (n, 28, 28, 64), lambda b, y, x, c: oc.maximum(total[b, y, x, c], 0.0), name="D"
        ), ()

    def text(text: str) -> Any:
        return lambda oc: (oc.parse(text), ())

    return {
        "dense": dense,
        "dense packed": partial(dense, constants=("W",)),
        "dense bfloat16": partial(dense, dtype="bfloat16"),
        "dense bfloat16 packed": partial(dense, dtype="bfloat16", constants=("W",)),
        "dense int8": partial(dense, dtype="int8"),
        "dense int8 packed": partial(dense, dtype="int8", constants=("W",)),
        "dense int8 requantised": requantised,
        "batched product": of(("n", 64, 48), ("n", 48, 40), op="matmul"),
        "softmax": of(("n", "m"), op="softmax"),
        "layernorm": of(("n", 768), op="layernorm"),
        "conv2d": of((1, 32, "n", "n"), (32, 32, 3, 3), op="conv2d", padding="same"),
        "conv2d packed": of(
            (1, 16, "n", "n"), (32, 16, 3, 3), op="conv2d", padding=1, constants=("B",)
        ),
        "max pool": of((1, 16, "n", "n"), op="max_pool2d", window=3, stride=2),
        "attention": of(("n", "m", 64), ("n", "m", 64), ("n", "m", 64), op="attention"),
        "functions": functions,
        "stencil": text(STENCIL),
        "gather": text(GATHER),
        "recurrence": text(RECURRENCE),
        "rows": text(ROWS),
        "window": text(WINDOW),
        "depthwise": depthwise,
    }


QUICK = (
    "dense, zen4", "dense by balance, sapphire-rapids", "dense int8 packed, sapphire-rapids", "dense bfloat16, zen4",
    "softmax on 2 threads, cascade-lake", "stencil, cascade-lake", "C10, vta", "dense, gemmini",
)  # fmt: skip

# The layers of the OSDI 2018 paper on TVM: rows and columns, channels in and out, window, stride.
LAYERS = {
    "C2": (56, 64, 64, 3, 1), "C3": (56, 64, 128, 3, 2), "C4": (56, 64, 128, 1, 2), "C5": (28, 128, 128, 3, 1),
    "C6": (28, 128, 256, 3, 2), "C7": (28, 128, 256, 1, 2), "C8": (14, 256, 256, 3, 1), "C9": (14, 256, 512, 3, 2),
    "C10": (14, 256, 512, 1, 2), "C11": (7, 512, 512, 3, 1),
}  # fmt: skip


def _on_processor(what: Any, machine: str, threads: int = 1) -> dict[str, str]:
    import offcut as oc

    result, constants = what(oc)
    target = oc.target("cpu", machine=machine)
    options = target.options("compile", threads=threads)
    return {
        form: target.source(result, None, constants, options=options, form=form)
        for form in ("llvm", "asm")
    }


def _cut(strategy: str, machine: str) -> dict[str, str]:
    """A product cut by a strategy, as a partition's loops are compiled."""
    import offcut as oc

    n, k = oc.dim("n", min=14, max=4096), oc.reduce_axis(96, name="k")
    a, w = oc.placeholder((n, 96), name="A"), oc.placeholder((96, 80), name="W")
    result = oc.compute((n, 80), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")
    target = oc.target("cpu", machine=machine)
    tails = {"i": strategy, "j": "mask"}
    loops = oc.partition(result, tile={"i": 14, "j": 32}, tail=tails, target=target).loops
    return {form: target.source(loops, form=form) for form in ("llvm", "asm")}


def _layer(name: str, queues: str) -> dict[str, str]:
    import numpy as np

    import offcut as oc

    h, c, o, window, stride = LAYERS[name]
    x = oc.placeholder((1, h, h, c), "int8", name="X")
    w = oc.placeholder((window, window, c, o), "int8", name="W")
    sums = oc.ops.conv2d(x, w, stride=stride, padding=window // 2, layout="NHWC", name="S")
    result = oc.ops.requantize(sums, 8, name="Y")
    weights = np.zeros((window, window, c, o), np.int8)
    return _ran(oc.compile(result, inputs=[x, w], constants={"W": weights}, target=queues), {})


def _of_queues(name: str, queues: str) -> dict[str, str]:
    """Rows of a symbolic number, on either side of a tile."""
    import offcut as oc

    n = oc.dim("n", min=1, max=256)
    a, w = oc.placeholder((n, 72), "int8", "A"), oc.placeholder((72, 40), "int8", "W")
    if name == "dense":
        result, inputs = oc.ops.requantize(oc.ops.dense(a, w, name="S"), 6, name="Y"), [a, w]
    elif name == "pool":
        x = oc.placeholder((n, 7, 7, 24), "int8", "X")
        result, inputs = oc.ops.max_pool2d(x, 3, 2, 1, layout="NHWC", name="Y"), [x]
    else:
        b = oc.placeholder((n, 72), "int8", "B")
        total = oc.compute(
            (n, 72),
            lambda i, j: oc.maximum(a[i, j].astype("int32") + b[i, j].astype("int32"), 0),
            name="T",
        )
        result, inputs = oc.ops.requantize(total, 1, name="Y"), [a, b]
    kernel = oc.compile(result, inputs=inputs, target=queues)
    parts = [_ran(kernel, {"n": size}) for size in (1, 16, 37, 200)]
    return {form: "\n".join(part[form] for part in parts) for form in parts[0]}


def _ran(kernel: Any, sizes: dict[str, int]) -> dict[str, str]:
    return {
        "stream": kernel.source("listing", **sizes),
        "cycles": str(kernel.timeline(**sizes).cycles),
    }


def cases() -> dict[str, Make]:
    """All that is compared."""
    programs = _programs()
    found: dict[str, Make] = {}
    for machine in MACHINES:
        for name, what in programs.items():
            found[f"{name}, {machine}"] = partial(_on_processor, what, machine)
        for name in ("dense", "softmax", "layernorm", "rows", "conv2d packed", "depthwise"):
            found[f"{name} on 2 threads, {machine}"] = partial(
                _on_processor, programs[name], machine, 2
            )
        for strategy in STRATEGIES:
            found[f"dense by {strategy}, {machine}"] = partial(_cut, strategy, machine)
    for queues in QUEUES:
        for name in LAYERS:
            found[f"{name}, {queues}"] = partial(_layer, name, queues)
        for name in ("dense", "pool", "sum"):
            found[f"{name}, {queues}"] = partial(_of_queues, name, queues)
    return found


def texts_of(names: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The texts of each case, or how it is refused."""
    from offcut.errors import OffcutError

    every = cases()
    for name in names:
        try:
            yield name, every[name]()
        except OffcutError as refused:
            yield name, {"refused": type(refused).__name__}


def in_checkout(
    checkout: Path, names: list[str], folder: Path | None = None, seed: int = 0
) -> dict[str, dict[str, str]]:
    """The digests of each case as a checkout has it, in a process of its own.

    folder  where the texts are left, too
    seed    of the hashes of strings there: no code may depend on the order of a set
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (checkout, ROOT))),
        "OFFCUT_CACHE": "off",
        "OFFCUT_RECORDS": "off",
        "OFFCUT_MODEL": "off",
        "PYTHONHASHSEED": str(seed),
    }
    environment = {
        n: v for n, v in environment.items() if n not in {"OFFCUT_MACHINE", "OFFCUT_HIDE_FEATURES"}
    }
    command = [sys.executable, __file__, "--child", *([str(folder)] if folder else ["-"])]
    done = subprocess.run(
        command, cwd=checkout, env=environment, input=json.dumps([str(checkout), names]), stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{checkout} cannot make its code")
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def _child(folder: str) -> None:
    checkout, names = json.load(sys.stdin)
    sys.path[:] = [checkout, *(path for path in sys.path if path != str(Path(__file__).parent))]
    import offcut

    assert Path(offcut.__file__).parents[1] == Path(checkout), offcut.__file__
    found = {}
    for name, texts in texts_of(names):
        found[name] = {form: sha256(text.encode()).hexdigest()[:16] for form, text in texts.items()}
        if "refused" in texts:
            found[name] = texts
        if folder != "-":
            Path(folder).mkdir(parents=True, exist_ok=True)
            for form, text in texts.items():
                (Path(folder) / f"{name}.{form}".replace(" ", "_")).write_text(text)
        sys.stderr.write(".")
        sys.stderr.flush()
    sys.stderr.write("\n")
    json.dump(found, sys.stdout)


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 where code differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.same_code", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument(
        "old", nargs="?", type=Path, help="a checkout, or a file that --write wrote"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write what this checkout makes")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="cases whose name it is found in"
    )
    parser.add_argument("--quick", action="store_true", help="some of each kind")
    parser.add_argument(
        "--show",
        type=Path,
        metavar="FOLDER",
        help="leave the texts in OLD's and NEW's folders there",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        _child(given.child)
        return 0
    names = [name for name in (QUICK if given.quick else cases()) if re.search(given.only, name)]
    if given.write is None and given.old is None:
        parser.error("give a checkout, a file, or --write FILE")
    show = given.show
    new = in_checkout(ROOT, names, show and show / "new")
    if given.write:
        given.write.write_text(json.dumps(new, indent=1) + "\n")
    if given.old is None:
        return 0
    if given.old.is_dir():
        old = in_checkout(given.old.resolve(), names, show and show / "old", seed=1)
    else:
        old = json.loads(given.old.read_text())
    return report(old, new)


def report(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]) -> int:
    """Say what differs."""
    changed = 0
    for name, now in new.items():
        before = old.get(name)
        if before == now:
            continue
        changed += 1
        if before is None:
            what = "was not compared before"
        else:
            differ = sorted(form for form in {*before, *now} if before.get(form) != now.get(form))
            what = ", ".join(differ)
        sys.stdout.write(f"{name}: {what}\n")
    sys.stdout.write(f"{changed} of {len(new)} programs differ\n")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
