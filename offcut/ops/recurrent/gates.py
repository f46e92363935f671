"""What a gate does with its sum: the text of it."""

from __future__ import annotations

from typing import Any

from offcut.errors import DescribeError
from offcut.ops.given.arguments import is_one_of, number, several

FUNCTIONS = {
    "sigmoid": "1.0 / (1.0 + exp(-({})))",
    "tanh": "tanh({})",
    "relu": "max({}, 0.0)",
}


class Gates:
    """Functions of gates, in the order in which a layer takes them.

    clip   what their arguments are cut to, between minus that and that; None: not at all
    """

    def __init__(self, op: str, names: Any, count: int, clip: Any = None) -> None:
        function_names = several(names) or ()
        if len(function_names) != count or not all(
            is_one_of(name, [*FUNCTIONS]) for name in function_names
        ):
            raise DescribeError(
                op,
                f"cannot take activations={names!r}",
                because=f"it has {count}, each of {', '.join(FUNCTIONS)}",
            )
        self.texts = tuple(FUNCTIONS[name] for name in function_names)
        self.clip = None if clip is None else number(clip)
        if clip is not None and not (self.clip is not None and self.clip > 0):
            raise DescribeError(
                op, f"cannot take clip={clip!r}", because="it is a number greater than 0"
            )

    def __call__(self, place: int, value: str) -> str:
        """The function number `place` of a value."""
        inside = f"min(max({value}, -{self.clip}), {self.clip})" if self.clip else value
        return self.texts[place].format(inside)


def order(op: str, gates: Any, known: str) -> dict[str, int]:
    """The place of each gate.

    Raises DescribeError where `gates` are not the letters of `known`.
    """
    if not isinstance(gates, str) or sorted(gates) != sorted(known):
        raise DescribeError(
            op,
            f"cannot take gates={gates!r}",
            because=f"gates are the letters of {known!r} in the order of the weights",
        )
    return {gate: gates.index(gate) for gate in known}
