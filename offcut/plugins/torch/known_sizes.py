"""Calls of a program that is one region, at sizes that it had before: they skip what was checked then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import _profiler_enabled

from offcut.graph import Model
from offcut.plugins.torch.steps import RegionStep


class KnownSizes:
    """A program of one region, by its model.

    places   of the arguments that the model takes, in its order
    results  the places, among the model's outputs, of the results
    """

    def __init__(self, model: Model, places: Sequence[int], results: Sequence[int]) -> None:
        self.model, self.places, self.results = model, places, results
        self._takes_all = [*places] == [*range(len(places))]
        self._gives_all = [*results] == [*range(len(model.bound.graph.outputs))]

    @classmethod
    def of(
        cls, steps: Sequence[Any], nodes: Sequence[Any], results: Sequence[Any]
    ) -> KnownSizes | None:
        """Return the calls of a program; None unless it is a single region that runs in this process.

        nodes    the arguments of the program, in order
        results  its results, in order
        """
        if len(steps) != 1 or not isinstance(steps[0], RegionStep) or steps[0].sizes:
            return None
        (step,) = steps
        outputs = {
            node: place
            for node, place, is_shared, strides, device in step.outputs
            if not is_shared and strides is None and device.type == "cpu"
        }
        if not {*step.inputs} <= {*nodes} or not all(one in outputs for one in results):
            return None
        places = [nodes.index(node) for node in step.inputs]
        return cls(step.model, places, [outputs[one] for one in results])

    def among(self, places: Sequence[int]) -> KnownSizes | None:
        """Return the calls that take only the arguments at `places`; None if the model does not take exactly these."""
        if sorted(self.places) != sorted(places):
            return None
        own = [places.index(place) for place in self.places]
        return KnownSizes(self.model, own, self.results)

    def __call__(self, arguments: Sequence[Any]) -> Sequence[Any] | None:
        """Return the results; None if no call had these sizes, if an argument is not a plain tensor, or while the profiler is on."""
        if _profiler_enabled():
            return None
        if not self._takes_all or len(arguments) != len(self.places):
            arguments = [arguments[place] for place in self.places]
        for one in arguments:
            if type(one) is not torch.Tensor:
                return None
        outputs = self.model.at_known_sizes(*arguments)
        if outputs is None or self._gives_all:
            return outputs
        return [outputs[place] for place in self.results]


__all__ = ["KnownSizes"]
