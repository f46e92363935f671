"""What runs and their kernels take, in a file of events as onnxruntime writes it: Chrome and Perfetto read it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offcut.graph.models.kernel_step import Observed, Step


class Profile:
    """The events of a session from here on: each run, and each kernel of a model that was compiled in this process."""

    def __init__(self) -> None:
        self._begin, self._events = perf_counter_ns(), list[dict[str, Any]]()

    def profile_calls(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function that adds an event for each call of `call`."""
        from offcut.graph.models.kernel_step import observed_by

        def profiled_call(feed: Any) -> Any:
            begin = perf_counter_ns()
            with observed_by(self):
                results = call(feed)
            self._add("Session", "model_run", begin, {})
            return results

        return profiled_call

    @contextmanager
    def model(self, model: Observed, sizes: Mapping[str, int]) -> Iterator[None]:
        """Add no event for the model itself: its kernels have theirs."""
        yield

    @contextmanager
    def kernel(self, step: Step) -> Iterator[None]:
        """Add an event for a kernel."""
        begin = perf_counter_ns()
        yield
        args = {"op_name": " ".join(step.nodes), "provider": "CPUExecutionProvider"}
        self._add("Node", f"{step.name}_kernel_time", begin, args)

    def _add(self, category: str, name: str, begin: int, args: Mapping[str, str]) -> None:
        end = perf_counter_ns()
        times = {"ts": (begin - self._begin) // 1000, "dur": (end - begin) // 1000}
        thread = {"pid": os.getpid(), "tid": threading.get_native_id()}
        event = {"cat": category, **thread, **times, "ph": "X", "name": name, "args": args}
        self._events.append(event)

    def write(self, prefix: str) -> str:
        """Write the events, times in µs; return the name of the file, `prefix` with date and time.

        Raises OSError for a file that cannot be written.
        """
        path = f"{prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S_%f}"[:-3] + ".json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self._events, file)
        return path
