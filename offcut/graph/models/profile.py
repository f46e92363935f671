"""What the kernels of a call take, measured, beside what they are predicted to take.

Each kernel is timed by itself, one after the other in the calls of a model, so that it finds in the caches what it finds there in any call.
Between, the model is called as it is always: what its kernels together take less is what a call does besides.
"""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from offcut.core.integers import whole
from offcut.core.text.tables import quantity, table
from offcut.errors import CallError, OffcutError
from offcut.graph.models.cost import ModelCost
from offcut.graph.models.kernel_step import Observed, Step, observed_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WARM = 3  # calls before any is timed
_MOST_BARS = 40


@dataclass(frozen=True)
class KernelProfile:
    """What a kernel of a model took.

    value      that it gives; operators: that it runs; target: what runs it
    times      that it ran in a call: more than 1 where it runs for a part of the batch at a time
    seconds    of all of these, the median over calls
    predicted  seconds by the cost model, and the resource that limits it there; None and "" where the target has no price
    """

    value: str
    operators: str
    target: str
    times: int
    seconds: float
    predicted: float | None
    bound_by: str


@dataclass(frozen=True)
class ModelProfile:
    """What a call of a model took; ``str`` of it is a table.

    calls    that were timed
    seconds  of a call as it is always, the median
    kernels  in the order in which they run
    events   of the call whose kernels took the median time: the number of the kernel, when it began, how long it ran, in ns
    """

    name: str
    sizes: Mapping[str, int]
    calls: int
    seconds: float
    kernels: tuple[KernelProfile, ...]
    events: tuple[tuple[int, int, int], ...]

    @property
    def in_kernels(self) -> float:
        """Return the seconds of all kernels."""
        return sum(one.seconds for one in self.kernels)

    def share(self, kernel: KernelProfile) -> float:
        """Return the share of a kernel in the time of all."""
        return kernel.seconds / self.in_kernels if self.in_kernels else 0.0

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        first = f"{self.name}{at and f'({at})'}: a call takes {quantity(self.seconds, 's')}, its kernels {quantity(self.in_kernels, 's')}, medians of {self.calls}"
        rows = [("value", "operators", "measured", "share", "predicted", "bound by")]
        for one in self.kernels:
            took = ("" if one.times == 1 else f"{one.times} × ") + quantity(
                one.seconds / one.times, "s"
            )
            predicted = "" if one.predicted is None else quantity(one.predicted / one.times, "s")
            rows.append(
                (one.value, one.operators, took, f"{self.share(one):.0%}", predicted, one.bound_by)
            )
        return "\n".join([first, *table(rows)])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def chrome_trace(self) -> str:
        """Return one call as JSON that chrome://tracing and Perfetto read."""
        begin = self.events[0][1] if self.events else 0
        events = [
            {
                "name": self.kernels[kernel].value,
                "cat": self.kernels[kernel].target,
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": (start - begin) / 1e3,
                "dur": took / 1e3,
                "args": {
                    "operators": self.kernels[kernel].operators,
                    "bound by": self.kernels[kernel].bound_by,
                },
            }
            for kernel, start, took in self.events
        ]
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})

    def plot(self, path: str | Path | None = None) -> Figure:
        """Return bars of what each kernel took, and was predicted to take; of many kernels, the slowest ones.

        path  where it is written, as PNG, SVG or PDF

        Raises TargetError without matplotlib, CallError where it cannot be written.
        """
        from offcut.partition.show.figures import check_drawable, new_figure, write

        check_drawable("a profile")
        slowest = sorted(self.kernels, key=lambda one: -one.seconds)[:_MOST_BARS]
        kernels = [one for one in self.kernels if one in slowest]
        figure = new_figure(9, 1.5 + 0.3 * len(kernels))
        axes = figure.add_subplot()
        for shift, label, values in (
            (-0.2, "measured", [one.seconds for one in kernels]),
            (0.2, "predicted", [one.predicted or 0.0 for one in kernels]),
        ):
            places = [n + shift for n in range(len(kernels))]
            axes.barh(places, [value * 1e6 for value in values], 0.4, label=label)
        axes.set_yticks(range(len(kernels)), [f"{one.value}: {one.operators}" for one in kernels])
        axes.invert_yaxis()
        axes.set_xlabel("µs")
        axes.set_title(str(self).splitlines()[0], fontsize=9)
        if kernels:
            axes.legend()
        write(figure, path, "profile.plot('profile.png')")
        return figure


class _Recorder:
    """Notes when each kernel begins and ends, and which models were called."""

    def __init__(self) -> None:
        self.models: dict[int, tuple[Observed, Mapping[str, int]]] = {}
        self.events: list[tuple[Step, int, int]] = []

    @contextmanager
    def model(self, model: Observed, sizes: Mapping[str, int]) -> Iterator[None]:
        """Note a model."""
        self.models[id(model)] = model, sizes
        yield

    @contextmanager
    def kernel(self, step: Step) -> Iterator[None]:
        """Note a kernel."""
        begin = perf_counter_ns()
        yield
        self.events.append((step, begin, perf_counter_ns()))


def profile_of(name: str, call: Callable[[], Any], calls: int) -> ModelProfile:
    """Return what the kernels of a call take.

    call   calls one or more models
    calls  that are timed

    Raises CallError for fewer than one, and what the call does.
    """
    if (whole(calls) or 0) < 1:
        raise CallError(
            "profile",
            f"cannot time {calls!r} calls",
            because="a median is of one at least",
            help=("model.profile(…, calls=20)",),
        )
    recorder = _Recorder()
    for _ in range(_WARM):
        call()
        with observed_by(recorder):
            call()
    seconds, watched = list[float](), list[list[tuple[Step, int, int]]]()
    for _ in range(calls):
        begin = perf_counter_ns()
        call()
        seconds.append((perf_counter_ns() - begin) / 1e9)
        recorder.events = []
        with observed_by(recorder):
            call()
        watched.append(recorder.events)
    watched.sort(key=lambda events: sum(end - start for _, start, end in events))
    middle = watched[len(watched) // 2]
    numbers = {id(step): n for n, step in enumerate({id(s): s for s, *_ in middle}.values())}
    return ModelProfile(
        name,
        {size: n for _, sizes in recorder.models.values() for size, n in sizes.items()},
        calls,
        median(seconds),
        tuple(_kernels(recorder, watched, [step for step, *_ in middle])),
        tuple((numbers[id(step)], start, end - start) for step, start, end in middle),
    )


def _kernels(
    recorder: _Recorder,
    watched: Sequence[Sequence[tuple[Step, int, int]]],
    steps: Sequence[Step],
) -> Iterator[KernelProfile]:
    """Yield what each kernel took, in the order of a call."""
    took = list[Counter[int]]()
    for events in watched:
        took.append(Counter())
        for step, start, end in events:
            took[-1][id(step)] += end - start
    predicted = {
        (id(model), one.value): one
        for model, sizes in recorder.models.values()
        for one in _cost(model, sizes)
    }
    models = {id(step): id(model) for model, _ in recorder.models.values() for step in model.steps}
    times = Counter(map(id, steps))
    for step in {id(step): step for step in steps}.values():
        cost = predicted.get((models[id(step)], step.name))
        yield KernelProfile(
            step.name,
            " ".join(step.nodes),
            step.target,
            times[id(step)],
            median(one[id(step)] for one in took) / 1e9,
            None if cost is None else cost.seconds,
            "" if cost is None else cost.bound_by,
        )


@dataclass(frozen=True)
class _Predicted:
    value: str
    seconds: float
    bound_by: str


def _cost(model: Observed, sizes: Mapping[str, int]) -> Iterator[_Predicted]:
    """Yield what is predicted of each kernel; nothing where a target has no price."""
    try:
        cost: ModelCost = model.cost(**sizes)
    except OffcutError:
        return
    parts: dict[str, list[Any]] = {}
    for one in cost.kernels:
        parts.setdefault(one.value, []).append(one)
    for value, own in parts.items():
        most = max(own, key=lambda one: float(one.seconds))
        yield _Predicted(value, sum(one.seconds for one in own), most.bound_by)
