"""The names that operators give to their results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2s
from typing import Any, TypeAlias

from offcut.core.integers import whole
from offcut.describe.tensor import Tensor, tensors_of
from offcut.ops.checks import several

LONGEST = 48  # characters of a name that an operator makes

Option: TypeAlias = tuple[str, Any, Any]
"""An argument that was checked: its label in names, "" where the value says enough; value; default."""


def result_name(op: str, name: str | None, operands: Sequence[Tensor], *options: Option) -> str:
    """`name`, else one made of the operator, its operands, and every option not at its default.

    Two calls that differ in an operand or an option get two names, unless names of operands with
    underscores in them read alike once joined; tensors inside an operator are called ``{name}_…``,
    and none of these is the name of a tensor that the operands read.
    """
    if name is not None:
        return name
    words = [op, *(operand.name for operand in operands), *map(_option, options)]
    wish = "_".join(word for word in words if word)
    if len(wish) > LONGEST:
        wish = f"{wish[: LONGEST - 9]}_{blake2s(wish.encode(), digest_size=4).hexdigest()}"
    read = [*operands, *(value for _, value, _ in options if isinstance(value, Tensor))]
    used_names = [tensor.name for tensor in tensors_of(read)]
    candidate, count = wish, 0
    while any(other == candidate or other.startswith(f"{candidate}_") for other in used_names):
        count += 1
        candidate = f"{wish}_{count}"
    return candidate


def _option(option: Option) -> str:
    label, value_, default = option
    value = _shortest(value_)
    if value is default or (type(value) is type(default) and value == default):
        return ""
    if isinstance(value, bool):
        return label
    return "_".join(filter(None, (label, _word(value))))


def _shortest(value: Any) -> Any:
    """One int for a sequence of equal ones, as ``stride=(2, 2)`` is ``stride=2``."""
    parts = several(value)
    if parts is None:
        integer = None if isinstance(value, bool) else whole(value)
        return value if integer is None else integer
    inner = tuple(map(_shortest, parts))
    same = bool(inner) and isinstance(inner[0], int) and len(set(inner)) == 1
    return inner[0] if same else inner


def _word(value: Any) -> str:
    """`value` in letters, digits and underscores: 1e-05 is 1em05, 2*n + 1 is 2n1, ((0, 1), (2, 2)) is 0_1x2."""
    if isinstance(value, tuple):
        return "x".join(
            "_".join(map(_word, part)) if isinstance(part, tuple) else _word(part) for part in value
        )
    text = value.name if isinstance(value, Tensor) else str(value)
    return re.sub(r"\W", "", text.replace("-", "m").replace(".", "_"))
