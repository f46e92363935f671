"""Whether what somebody gives is a stream, an instruction, a machine in numbers: by the types of its fields, before anything is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, partial
from typing import get_args, get_type_hints

from offcut.backends.accelerator.isa.instructions import (
    AluOp,
    Instruction,
    Loop,
    MemorySpace,
    MicroOp,
    Stream,
    Tokens,
)
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.integers import whole
from offcut.core.text.printer import shown
from offcut.errors import StreamError


def _is_int(value: object) -> bool:
    return whole(value) is not None


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_record(of: type, value: object) -> bool:
    """Whether `value` is one of `of`, and so is each of its fields by its own type."""
    return isinstance(value, of) and all(
        is_one(getattr(value, name)) for name, (_, is_one) in checks(of).items()
    )


_Check = tuple[str, Callable[[object], bool]]
_CHECKS: dict[object, _Check] = {
    int: ("an integer", _is_int),
    bool: ("True or False", _is_flag),
    int | None: (
        "an integer, or None for a second word",
        lambda one: one is None or _is_int(one),
    ),
    tuple[int, int, int, int]: (
        "four integers: rows above and below, words left and right",
        lambda one: isinstance(one, tuple) and len(one) == 4 and all(map(_is_int, one)),
    ),
    MemorySpace: ("a Place", lambda one: isinstance(one, MemorySpace)),
    AluOp: ("an AluOp", lambda one: isinstance(one, AluOp)),
    Loop: ("a Loop of integers", partial(_is_record, Loop)),
    Tokens: ("Tokens of True and False", partial(_is_record, Tokens)),
}
"""What a field of a type has to be, in words, and whether a value is that."""


@cache
def checks(record: type) -> dict[str, _Check]:
    """The check of each field of a record of this package, by the type that it is declared with."""
    types = get_type_hints(record)
    return {one.name: _CHECKS[types[one.name]] for one in fields(record)}


def check_spec(op: str, spec: object) -> None:
    """Refuse what is no machine in numbers.

    Raises StreamError.
    """
    if not isinstance(spec, AcceleratorSpec):
        raise StreamError(
            op,
            f"cannot take {shown(spec)} as the machine",
            because=f"it is of type {type(spec).__name__}, not Spec",
            help=('AcceleratorSpec.of(load("vta")) is a description in numbers',),
        )


def check_stream(op: str, stream: object) -> None:
    """Refuse what is no stream of instructions and micro-ops.

    Raises StreamError, with the first part that is none.
    """
    if not isinstance(stream, Stream):
        raise StreamError(
            op,
            f"cannot take {shown(stream)} as a stream",
            because=f"it is of type {type(stream).__name__}, not Stream",
            help=("Stream((Load(…), …, Finish()), micro_ops=(MicroOp(…), …))",),
        )
    for name, sequence in (("instructions", stream.instructions), ("micro_ops", stream.micro_ops)):
        if not isinstance(sequence, Sequence) or isinstance(sequence, str):
            raise StreamError(
                op,
                f"cannot take {shown(sequence)} as {name}",
                because=f"it is of type {type(sequence).__name__}, not a tuple",
            )
    for position, one in enumerate(stream.instructions):
        check_instruction(op, one, f"instruction {position}")
    for position, op_ in enumerate(stream.micro_ops):
        if type(op_) is not MicroOp:
            raise _wrong(op, op_, f"micro-op {position}", "it is not a MicroOp")
        _check_fields(op, op_, f"micro-op {position}")


def check_instruction(op: str, one: object, at: str = "") -> None:
    """Refuse what is no instruction.

    Raises StreamError, with the field.
    """
    if type(one) not in get_args(Instruction):
        raise _wrong(op, one, at, "instructions are Load, Store, Gemm, Alu, Finish")
    _check_fields(op, one, at)


def _check_fields(op: str, one: object, at: str) -> None:
    record: type = type(one)
    for name, (what, is_one) in checks(record).items():
        value = getattr(one, name)
        if not is_one(value):
            raise _wrong(op, one, at, f"{name} = {shown(value)} is not {what}")


def _wrong(op: str, one: object, at: str, because: str) -> StreamError:
    return StreamError(op, f"cannot take {shown(one)}", at=at, because=because)
