"""A module that is ours: its weights are those that the module of the user had, whatever becomes of these."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from offcut.plugins.torch.dtypes import is_held

Place: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Where a tensor lies: its address, shape and strides."""


class ModuleCopy:
    """A deep copy of a module, whose parameters lie in the memory of the user's until `settle`.

    Raises whatever an attribute of it raises that cannot be copied.
    """

    def __init__(self, module: Any) -> None:
        self._lent: list[Any] = []
        self._later: list[tuple[Any, Callable[[], Any]]] = []
        known: dict[int, Any] = {}
        for one in module.parameters():
            if type(one) is torch.nn.Parameter and is_held(one) and not one.is_inference():
                known[id(one)] = torch.nn.Parameter(one.detach(), one.requires_grad)
                self._lent.append(known[id(one)])
        self.module = copy.deepcopy(module, known)

    def settle(self, again: Mapping[Place, Callable[[], Any]]) -> None:
        """Let go of the memory of the user's: parameters are copies, or are empty until `filled`.

        again  what makes those that something else holds
        """
        for one in self._lent:
            read = again.get(place_of(one))
            if read is None:
                one.data = one.data.clone()
            else:
                self._later.append((one, read))
                one.data = one.data.new_empty(0)
        self._lent.clear()

    def with_parameters(self) -> Any:
        """The module, all of its parameters there."""
        while self._later:
            one, read = self._later[-1]
            one.data = read()
            self._later.pop()
        return self.module


def place_of(tensor: Any) -> Place:
    """Where a tensor lies."""
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())
