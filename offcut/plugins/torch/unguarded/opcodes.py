"""What instructions of CPython do, by their names: as much as is followed of them, in 3.11 to 3.14.

Names come and go with each version of CPython. One that is not here is not followed: who reads it asks nothing more of the code,
and torch guards the size as it does without us. An instruction that keeps its name and takes other values would have to be told here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class Does(Enum):
    """What an instruction does to the stack of its frame."""

    NOTHING = auto()  # that matters to who follows it
    CONSTANT = auto()
    LOCAL = auto()
    STORE = auto()
    GLOBAL = auto()
    MODULE = auto()
    ATTRIBUTE = auto()
    CALL = auto()
    NOT = auto()
    IS = auto()
    COMPARE = auto()
    COPY = auto()
    POP = auto()
    JUMP = auto()
    RETURN = auto()


_JUMPS = (
    *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"),
    *(
        f"POP_JUMP_{way}IF_{when}"
        for way in ("", "FORWARD_", "BACKWARD_")
        for when in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    ),
)

_NAMES: Mapping[Does, tuple[str, ...]] = {
    Does.NOTHING: (
        *("RESUME", "NOP", "CACHE", "PRECALL", "PUSH_NULL", "TO_BOOL", "EXTENDED_ARG", "NOT_TAKEN"),
    ),
    Does.CONSTANT: ("LOAD_CONST", "LOAD_SMALL_INT"),
    Does.LOCAL: ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"),
    Does.STORE: ("STORE_FAST",),
    Does.GLOBAL: ("LOAD_GLOBAL",),
    Does.MODULE: ("IMPORT_NAME",),
    Does.ATTRIBUTE: ("LOAD_ATTR", "LOAD_METHOD"),
    Does.CALL: ("CALL",),
    Does.NOT: ("UNARY_NOT",),
    Does.IS: ("IS_OP",),
    Does.COMPARE: ("COMPARE_OP",),
    Does.COPY: ("COPY",),
    Does.POP: ("POP_TOP",),
    Does.JUMP: _JUMPS,
    Does.RETURN: ("RETURN_VALUE",),
}

_DOES = {name: what for what, names in _NAMES.items() for name in names}


def does(name: str) -> Does | None:
    """What the instruction of a name does; None of one that is not followed."""
    return _DOES.get(name)
