"""Single operators, each as a model of its own: offcut by `from_torch` or `from_onnx` beside torch eager, onnxruntime or numpy.

    python bench/single_ops.py            # a minute
    python bench/single_ops.py --quick    # one row of each kind

float32, one thread: the operators that once were slow, by kind, at sizes at which they, and not the call, take the time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import offcut as oc
from offcut.experiment.bench import Group, Options, read_options, run
from offcut.experiment.contraction import Array
from offcut.experiment.peers import Way
from offcut.experiment.reference import Reference
from offcut.experiment.table import Asked

ASKED = Asked(worst=0.9)
CLOSE = 1e-5
"""What an element may be off torch's own, of the largest one: peers round otherwise."""

HEADS = 8 * 48

Tensors = tuple[torch.Tensor, ...]


def randn(*shape: int) -> torch.Tensor:
    """Return normal numbers, the same for a shape each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def places(extent: int, *shape: int) -> torch.Tensor:
    """Return places of an axis."""
    return torch.randint(0, extent, shape, generator=torch.Generator().manual_seed(extent))


def first(arguments: Any) -> Any:
    """Return the values of a result that has places, too."""
    return arguments if isinstance(arguments, torch.Tensor) else arguments[0]


def sampled(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Return pixels between pixels."""
    return F.grid_sample(x, at, align_corners=False)


def heads(length: int) -> Tensors:
    """Return queries and keys of so many words each."""
    return randn(HEADS, length, 64), randn(HEADS, length, 64)


@dataclass(frozen=True)
class Case:
    """An operator and its arguments; `by_file` is that of a file of ONNX, which onnxruntime runs."""

    call: Callable[..., torch.Tensor]
    arguments: Callable[[], Tensors]
    by_file: bool = False


CASES: dict[str, dict[str, Case]] = {
    "gathers along two axes": {
        "grid_sample 2×16×32²": Case(
            sampled, lambda: (randn(2, 16, 32, 32), randn(2, 32, 32, 2).tanh())
        ),
        "bicubic resize ×2 of 16×20²": Case(
            partial(F.interpolate, scale_factor=2.0, mode="bicubic"),
            lambda: (randn(1, 16, 20, 20),),
        ),
        "nearest resize ×2 of 4×16×40², a file": Case(
            partial(F.interpolate, scale_factor=2.0), lambda: (randn(4, 16, 40, 40),), by_file=True
        ),
    },
    "selection": {
        "topk 50 of 64×1000": Case(lambda x: first(torch.topk(x, 50)), lambda: (randn(64, 1000),)),
        "topk 4 of 512×64": Case(lambda x: first(torch.topk(x, 4)), lambda: (randn(512, 64),)),
        "median of 64×301": Case(lambda x: first(torch.median(x, -1)), lambda: (randn(64, 301),)),
        "sort of 64×500": Case(lambda x: first(torch.sort(x)), lambda: (randn(64, 500),)),
    },
    "copies": {
        "unfold 3×3 of 16×28²": Case(
            partial(F.unfold, kernel_size=3), lambda: (randn(1, 16, 28, 28),)
        ),
        "cat 2048×65, 2048×31 along the last axis": Case(
            lambda x, y: torch.cat((x, y), -1), lambda: (randn(2048, 65), randn(2048, 31))
        ),
        "cat 8×32×20², 8×16×20² along channels": Case(
            lambda x, y: torch.cat((x, y), 1), lambda: (randn(8, 32, 20, 20), randn(8, 16, 20, 20))
        ),
        "flip 1024×500 along the last axis": Case(
            lambda x: x.flip(-1), lambda: (randn(1024, 500),)
        ),
        "one_hot 5000 of 50": Case(lambda i: F.one_hot(i, 50), lambda: (places(50, 5000),)),
        "scatter_add 512×200": Case(
            lambda x, i, v: x.scatter_add(1, i, v),
            lambda: (randn(512, 100), places(100, 512, 200), randn(512, 200)),
        ),
    },
    "functions": {
        "atan2 of 50 000": Case(torch.atan2, lambda: (randn(50000), randn(50001)[1:])),
        "softplus of 50 000": Case(F.softplus, lambda: (randn(50000),)),
    },
    "reductions": {
        "mean over 4×256×20²": Case(lambda x: x.mean((2, 3)), lambda: (randn(4, 256, 20, 20),)),
        "sum of int64, 1024×500": Case(lambda x: x.sum(-1), lambda: (places(50, 1024, 500),)),
        "normalize 512×500": Case(F.normalize, lambda: (randn(512, 500),)),
    },
    "products of 8×48 heads": {
        f"S = {s}": Case(lambda q, k: q @ k.transpose(1, 2), partial(heads, s)) for s in (3, 7, 24)
    },
}
QUICK = 1
"""Rows of each kind."""


class Operator(torch.nn.Module):
    """A function as a module."""

    def __init__(self, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        return self.call(*arguments)


@dataclass(frozen=True)
class Task:
    """A case with its arguments: what a bench gives to everybody."""

    case: Case
    arguments: Tensors
    flop: int = 0
    kind: str = "float32"

    @property
    def sizes(self) -> Mapping[str, int]:
        """None has a name."""
        return {}

    @property
    def moved(self) -> int:
        """Bytes of arguments and result, each once."""
        return sum(one.nbytes for one in (*self.arguments, self.case.call(*self.arguments)))

    def reference(self) -> Reference:
        """The result in float64."""
        wide = (one.double() if one.is_floating_point() else one for one in self.arguments)
        exact = self.case.call(*wide).double().numpy()
        return Reference(exact, np.full_like(exact, CLOSE * max(np.abs(exact).max(), 1e-30)))

    @property
    def file(self) -> bytes:
        """The operator as a file of ONNX of any sizes."""
        file, names = io.BytesIO(), [f"x{number}" for number in range(len(self.arguments))]
        free = {
            name: {axis: f"{name}_{axis}" for axis in range(one.dim())}
            for name, one in zip(names, self.arguments, strict=True)
        }
        torch.onnx.export(
            *(Operator(self.case.call), self.arguments, file),
            input_names=names,
            dynamic_axes=free,
            dynamo=False,
        )
        return file.getvalue()


def numbers(result: Any) -> Array:
    """Return a result as an array."""
    array: Array = np.asarray(result)
    return array


@dataclass(frozen=True)
class By:
    """A contender, by what makes a call of a task; None: it has none."""

    name: str
    make: Callable[[Task], Callable[[], Any] | None]

    def ways(self, task: Task) -> tuple[Way, ...]:
        """Return the one way, or none."""
        call = self.make(task)
        return () if call is None else (Way(self.name, call, numbers),)


def by_offcut(task: Task) -> Callable[[], Any]:
    """By the door that the case names."""
    if not task.case.by_file:
        return partial(oc.from_torch(Operator(task.case.call), task.arguments), *task.arguments)
    model = oc.from_onnx(task.file)
    feed = {f"x{number}": one.numpy() for number, one in enumerate(task.arguments)}
    return lambda: next(iter(model(feed).values()))


def by_torch(task: Task) -> Callable[[], Any] | None:
    """Eager."""
    return None if task.case.by_file else partial(task.case.call, *task.arguments)


def by_numpy(task: Task) -> Callable[[], Any] | None:
    """Products alone."""
    if task.arguments[0].shape[0] != HEADS:
        return None
    q, k = (one.numpy() for one in task.arguments)
    return lambda: q @ k.swapaxes(1, 2)


def by_onnxruntime(task: Task) -> Callable[[], Any] | None:
    """A file alone, in a session with its default optimizations."""
    if not task.case.by_file:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(task.file, options, ["CPUExecutionProvider"])
    feed = {f"x{number}": one.numpy() for number, one in enumerate(task.arguments)}
    return lambda: session.run(None, feed)[0]


def groups(quick: bool) -> Iterator[Group]:
    """Return a table for each kind."""
    for title, cases in CASES.items():
        subset = list(cases.items())[: QUICK if quick else None]
        yield Group(title, {label: partial(task, case) for label, case in subset})


def task(case: Case) -> Task:
    """Return a case with its arguments."""
    return Task(case, case.arguments())


def main() -> None:
    """Measure, print, write."""
    options: Options = read_options(__doc__ or "")
    torch.set_grad_enabled(False)
    torch.set_num_threads(options.threads)
    peers = [By("torch", by_torch), By("onnxruntime", by_onnxruntime), By("numpy", by_numpy)]

    def own(_: Group) -> list[Any]:
        return [By("offcut", by_offcut), *peers]

    status, _ = run(
        *("single_ops", groups(options.quick), ASKED, options),
        own=own,
        rivals=len(peers),
        peers=(),
    )
    raise SystemExit(status)


if __name__ == "__main__":
    main()
