"""offcut as one of the contenders: a kernel for each form of a task, compiled once for all sizes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import offcut as oc
from offcut.experiment.contraction import Array
from offcut.experiment.described import Form, Task, forms
from offcut.experiment.peers import Way

HOPELESS = 4.0
"""Times the least time of a first call: a form beyond is not measured."""


@dataclass(slots=True)
class Ours:
    """Kernels of offcut's, compiled when a task first needs them.

    swept     symbolic letters of contractions, each with the least and largest extent
    threads   of each kernel
    seconds   what compiling took, by form; of the forms compiled so far
    refused   forms that could not be compiled or called, each with the reason
    """

    swept: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    threads: int = 1
    name: str = "offcut"
    seconds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _kernels: dict[object, tuple[oc.Kernel, Mapping[str, Array]]] = field(default_factory=dict)
    _failed: set[object] = field(default_factory=set)

    def ways(self, task: Task) -> tuple[Way, ...]:
        """A way for each form that compiles and that can be called; none where none does.

        A form whose first call takes several times as long as another's is left out.
        """
        found: list[tuple[float, Way]] = []
        for form in forms(task, self.swept):
            key = (form.name, form.key, *map(id, form.constants.values()))
            if key in self._failed:
                continue
            try:
                kernel = self._kernel(key, form)
                run = partial(kernel, *form.operands, out=form.out)
                start = time.perf_counter()
                run()
                taken = time.perf_counter() - start
            except Exception as stopped:  # whatever stops one form is a line under the table
                self._failed.add(key)
                self.refused[f"{self.name} {_shown(form)}"] = _reason(stopped)
                continue
            way = Way(f"{self.name}.{form.name}", run, partial(_read, form))
            found.append((taken, way))
        least = min((taken for taken, _ in found), default=0.0)
        return tuple(way for taken, way in found if taken <= HOPELESS * least)

    def _kernel(self, key: object, form: Form) -> oc.Kernel:
        """The kernel of a form; what it holds its constants by is kept, so that their ids stay."""
        if key not in self._kernels:
            start = time.perf_counter()
            described = form.describe()
            kernel = oc.compile(
                described.result,
                inputs=list(described.inputs),
                constants=dict(form.constants),
                threads=self.threads,
            )
            self.seconds[_shown(form)] = time.perf_counter() - start
            self._kernels[key] = kernel, form.constants
        return self._kernels[key][0]


def _read(form: Form, _: object) -> Array:
    return form.read(form.out)


def _shown(form: Form) -> str:
    return f"{form.name} {' '.join(map(str, form.key))}"


def _reason(stopped: Exception) -> str:
    lines = [line.strip() for line in str(stopped).splitlines() if line.strip()]
    because = next((line for line in lines if line.startswith("because")), "")
    return f"{type(stopped).__name__}: {' '.join((*lines[:1], because))[:200]}"
