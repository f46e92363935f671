"""Whole models, each taken from torch by one line and compiled once: offcut against torch, onnxruntime and OpenVINO.

    python bench/models.py            # every model and batch: a quarter of an hour
    python bench/models.py --quick    # a few cells: some minutes
    python bench/models.py --slow     # torch.compile with freezing as well: minutes more a model

float32, random weights. torch.compile is dynamic; onnxruntime and OpenVINO read one file with symbolic sizes, which torch wrote.
"""

from __future__ import annotations

import io
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import networks
import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import offcut as oc
from offcut.experiment.bench import Group, Options, read_options, run
from offcut.experiment.contraction import Array
from offcut.experiment.peers import NEEDS, Contender, Way
from offcut.experiment.reference import Reference
from offcut.experiment.table import Asked, Line, Row

COUNTS = (1, 2, 3, 5, 7, 8, 13)
QUICK_COUNTS = (1, 3)
CLOSE = 1e-4
"""`Case.close` where nothing else is said."""

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A model, and its arguments for a cell.

    asked   geometric mean over the best peer
    given   for a count: of images, tokens or sentences
    labels  of the counts, and the sizes that they stand for
    free    the names of the axes that vary, by argument: as ``torch.onnx.export`` takes them
    traced  whether its file comes from ``torch.export``, not from TorchScript
    close   what an element may be off, of the largest one of a result
    """

    make: Callable[[], torch.nn.Module]
    asked: float
    given: Callable[..., Inputs]
    cells: Mapping[str, tuple[int, ...]]
    free: Mapping[str, Mapping[int, str]]
    traced: bool = False
    close: float = CLOSE

    @cached_property
    def model(self) -> torch.nn.Module:
        """With the same weights each time."""
        return networks.drawn(self.make)

    @cached_property
    def exact(self) -> torch.nn.Module:
        """The same in float64."""
        return networks.drawn(self.make).double()

    @cached_property
    def example(self) -> Inputs:
        """What it is exported with."""
        return self.given(*(2 + n for n in next(iter(self.cells.values()))))

    @cached_property
    def taken(self) -> Any:
        """The one line."""
        free = tuple(dict.fromkeys(axes, torch.export.Dim.AUTO) for axes in self.free.values())
        return oc.from_torch(self.model, self.example, dynamic_shapes=free)

    @cached_property
    def file(self) -> bytes:
        """The model as ONNX, with symbolic sizes."""
        made, names = io.BytesIO(), list(self.free)
        free = {name: dict(axes) for name, axes in self.free.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.traced:
                torch.onnx.export(
                    self.model,
                    self.example,
                    made,
                    input_names=names,
                    dynamic_shapes=tuple(free.values()),
                    external_data=False,
                    verbose=False,
                )
            else:
                torch.onnx.export(
                    self.model,
                    self.example,
                    made,
                    dynamo=False,
                    input_names=names,
                    dynamic_axes=free,
                )
        return made.getvalue()


@dataclass(frozen=True)
class Task:
    """A model on given arguments: what a bench gives to everybody."""

    case: Case
    given: Inputs
    sizes: Mapping[str, int]
    kind: str = "float32"

    @cached_property
    def flop(self) -> int:
        """Operations of products."""
        with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter:
            self.case.model(*self.given)
        return int(counter.get_total_flops())

    @cached_property
    def moved(self) -> int:
        """Bytes of weights and arguments."""
        every = (*self.case.model.state_dict().values(), *self.given)
        return sum(one.nbytes for one in every)

    def reference(self) -> Reference:
        """The first result in float64."""
        wide = (one.double() if one.is_floating_point() else one for one in self.given)
        exact = first(self.case.exact(*wide))
        return Reference(
            exact, np.full_like(exact, self.case.close * max(np.abs(exact).max(), 1e-30))
        )


def of_recurrence(
    x: Sequence[int], read: Sequence[int], carried: Sequence[int], *_: Any, **__: Any
) -> int:
    """Operations of a recurrent layer, by the shapes of what it reads and of its two matrices."""
    return 2 * math.prod(x[:-1]) * (math.prod(read) + math.prod(carried))


COUNTED = {torch.ops.aten.mkldnn_rnn_layer: of_recurrence}
"""What torch's counter of operations leaves out."""


def first(result: Any) -> Array:
    """The first of several results, as an array."""
    one = result[0] if isinstance(result, tuple | list) else result
    return one.numpy() if isinstance(one, torch.Tensor) else np.asarray(one)


@dataclass
class Taken:
    """A contender that prepares a model once.

    prepare  from a case: a function of a task's arguments that gives what to call
    """

    name: str
    prepare: Callable[[Case], Callable[[Inputs], Callable[[], Any]]]
    seconds: dict[str, float] = field(default_factory=dict)
    _held: dict[int, Callable[[Inputs], Callable[[], Any]]] = field(default_factory=dict)

    def ways(self, task: Task) -> tuple[Way, ...]:
        """The one way."""
        if id(task.case) not in self._held:
            start = time.perf_counter()
            self._held[id(task.case)] = self.prepare(task.case)
            self._held[id(task.case)](task.given)()
            self.seconds[type(task.case.model).__name__] = time.perf_counter() - start
        return (Way(self.name, self._held[id(task.case)](task.given), first),)


def by_offcut(threads: int, case: Case) -> Callable[[Inputs], Callable[[], Any]]:
    """All from torch."""
    return lambda given: partial(case.taken, *given)


def by_torch(threads: int, case: Case) -> Callable[[Inputs], Callable[[], Any]]:
    """Eager."""
    return lambda given: partial(case.model, *given)


def by_inductor(threads: int, case: Case) -> Callable[[Inputs], Callable[[], Any]]:
    """Dynamic, with weights frozen."""
    import torch._inductor.config

    torch._inductor.config.freezing = True
    model = torch.compile(case.model, dynamic=True)
    return lambda given: partial(model, *given)


def by_onnxruntime(threads: int, case: Case) -> Callable[[Inputs], Callable[[], Any]]:
    """A session on arrays."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = onnxruntime.InferenceSession(case.file, options, ["CPUExecutionProvider"])

    def bound(given: Inputs) -> Callable[[], Any]:
        feed = dict(zip(case.free, (one.numpy() for one in given), strict=True))
        return partial(session.run, None, feed)

    return bound


def by_openvino(threads: int, case: Case) -> Callable[[Inputs], Callable[[], Any]]:
    """A request on the memory of arrays."""
    import openvino

    core = openvino.Core()
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    model = core.compile_model(core.read_model(case.file), "CPU", options)

    def bound(given: Inputs) -> Callable[[], Any]:
        request = model.create_infer_request()
        for number, one in enumerate(given):
            request.set_input_tensor(
                number, openvino.Tensor(np.ascontiguousarray(one), shared_memory=True)
            )

        def call() -> Any:
            request.infer()
            return request.get_output_tensor(0).data

        return call

    return bound


def images(count: int, height: int = 224, width: int = 224) -> Inputs:
    """Standard normal ones."""
    return (torch.randn(count, 3, height, width),)


def tokens(batch: int, length: int) -> Inputs:
    """Words by number."""
    return (torch.randint(0, 30000, (batch, length)),)


def sentences(batch: int, length: int) -> Inputs:
    """Words by number, and where each sentence is over: lengths from 1 to `length`."""
    ends = torch.linspace(length, max(length // 3, 1), batch).long()
    return *tokens(batch, length), (torch.arange(length) < ends[:, None]).float()


def steps(batch: int, past: int) -> Inputs:
    """One word for each sentence, after `past` of them."""
    return *tokens(batch, 1), torch.randn(12, 2, batch, 12, past, 64)


def cases() -> dict[str, Case]:
    """The models, by the title of their table."""
    by_count = {f"n={n}": (n,) for n in COUNTS}
    sizes = {**by_count, **{f"n=1, {h}×{w}": (1, h, w) for h, w in ((192, 256), (225, 223))}}
    image = {"x": {0: "n", 2: "h", 3: "w"}}
    batches = {"x": {0: "n"}}
    words = {
        **{f"b=1, n={n}": (1, n) for n in COUNTS},
        **{f"b={b}, n={n}": (b, n) for b, n in ((2, 37), (3, 128), (8, 13), (13, 1))},
    }
    ids = {"ids": {0: "b", 1: "n"}}
    pasts = {f"b={b}, after {n}": (b, n) for b, n in ((1, 1), (1, 37), (1, 128), (3, 64))}
    return {
        "ResNet-18": Case(networks.ResNet18, 1.05, images, sizes, image),
        "MobileNetV2": Case(networks.MobileNetV2, 1.1, images, sizes, image),
        "ViT-S/32": Case(networks.VitS32, 1.15, images, by_count, batches),
        "GPT-2 small": Case(networks.Gpt2, 1.25, tokens, words, ids),
        "GPT-2 small, one token": Case(
            lambda: networks.Gpt2Step(networks.Gpt2()),
            1.25,
            steps,
            pasts,
            {"ids": {0: "b"}, "past": {2: "b", 4: "n"}},
        ),
        "BERT, masked": Case(
            networks.Bert, 1.5, sentences, words, {**ids, "keep": {0: "b", 1: "n"}}
        ),
        "Mixer-S/32": Case(networks.MixerS32, 1.15, images, by_count, batches),
        "LSTM 128→256": Case(
            networks.Lstm, 1.2, lambda n: (torch.randn(n, 16, 128),), by_count, batches
        ),
    }


def groups(every: Mapping[str, Case], quick: bool) -> Iterator[Group]:
    """A table for each model."""
    for title, case in every.items():
        chosen = list(case.cells.items())[: len(QUICK_COUNTS) if quick else None]
        yield Group(title, {label: partial(task, case, sizes) for label, sizes in chosen})


def task(case: Case, sizes: tuple[int, ...]) -> Task:
    """A cell."""
    torch.manual_seed(math.prod(sizes))
    return Task(case, case.given(*sizes), dict(zip("nhw", sizes, strict=False)))


def asked(every: Mapping[str, Case], rows: Sequence[Row]) -> Iterator[Line]:
    """What is asked of each model, beside its geometric mean."""
    for title, case in every.items():
        ratios = [
            over.ratio.value
            for row in rows
            if row.group == title and (over := row.over()) is not None
        ]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            yield title, f"≥ {case.asked:g}", f"{mean:.2f}", f"least {min(ratios):.2f}"


def main() -> None:
    """Measure, print, write."""
    options: Options = read_options(__doc__ or "")
    torch.set_grad_enabled(False)
    torch.set_num_threads(options.threads)
    every = cases()
    ways = {
        "offcut": by_offcut,
        "torch": by_torch,
        **({"torch.compile": by_inductor} if options.slow else {}),
        "onnxruntime": by_onnxruntime,
        "openvino": by_openvino,
    }
    lacking = [name for name in NEEDS if not all(map(find_spec, NEEDS[name]))]
    made = [
        Taken(name, partial(prepare, options.threads))
        for name, prepare in ways.items()
        if name not in lacking
    ]
    own: Sequence[Contender] = made

    def more(rows: Sequence[Row]) -> Iterator[Line]:
        yield from asked(every, rows)
        for name in lacking:
            yield f"{name} is not installed", "", "–", 'pip install ".[peers]"'
        for one in made:
            for model, seconds in one.seconds.items():
                yield f"{one.name}: {model}, first result", "", f"{seconds:.1f} s", ""

    status, _ = run(
        Path(__file__).stem,
        groups(every, options.quick),
        Asked(worst=1.0),
        options,
        own=lambda group: own,
        rivals=len(made) - 1,
        peers=(),
        more=more,
    )
    raise SystemExit(status)


if __name__ == "__main__":
    main()
