"""Whether what somebody gives is a stream, an instruction, a machine in numbers: by the types of its fields, before anything is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offcut.backends.accelerator.isa.instructions import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Load,
    Loop,
    MicroOp,
    Place,
    Store,
    Stream,
    Tokens,
)
from offcut.backends.accelerator.spec import Spec
from offcut.core.whole import whole
from offcut.errors import StreamError

_SHOWN = 60  # characters of what is refused


def _is_int(value: object) -> bool:
    return whole(value) is not None


def _is_loop(value: object) -> bool:
    return isinstance(value, Loop) and all(
        map(_is_int, (value.extent, value.dst, value.src, value.wgt))
    )


_INT = "an integer", _is_int
_PLACE = "a Place", lambda one: isinstance(one, Place)
_PAD = (
    "four integers: rows above and below, words left and right",
    lambda one: isinstance(one, tuple) and len(one) == 4 and all(map(_is_int, one)),
)
_LOOP = "a Loop of integers", _is_loop
_FLAG = "True or False", lambda one: isinstance(one, bool)
_OP = "an AluOp", lambda one: isinstance(one, AluOp)
_IMMEDIATE = "an integer, or None for a second word", lambda one: one is None or _is_int(one)
_TOKENS = "Tokens", lambda one: isinstance(one, Tokens)

_Field = tuple[str, Callable[[object], bool]]
_ROWS: dict[str, _Field] = dict.fromkeys(("sram", "dram", "y", "x", "stride"), _INT)
_STEPS: dict[str, _Field] = {"begin": _INT, "end": _INT, "outer": _LOOP, "inner": _LOOP}
_FIELDS: dict[type, dict[str, _Field]] = {
    Load: {"place": _PLACE, **_ROWS, "pad": _PAD, "tokens": _TOKENS},
    Store: {**_ROWS, "tokens": _TOKENS},
    Gemm: {**_STEPS, "reset": _FLAG, "tokens": _TOKENS},
    Alu: {"op": _OP, **_STEPS, "immediate": _IMMEDIATE, "tokens": _TOKENS},
    Finish: {"tokens": _TOKENS},
    MicroOp: {"dst": _INT, "src": _INT, "wgt": _INT},
}


def check_spec(op: str, spec: object) -> None:
    """Refuse what is no machine in numbers.

    Raises StreamError.
    """
    if not isinstance(spec, Spec):
        raise StreamError(
            op,
            f"cannot take {_shown(spec)} as the machine",
            because=f"it is of type {type(spec).__name__}, not Spec",
            help=('Spec.of(load("vta")) is a description in numbers',),
        )


def check_stream(op: str, stream: object) -> None:
    """Refuse what is no stream of instructions and micro-ops.

    Raises StreamError, with the first part that is none.
    """
    if not isinstance(stream, Stream):
        raise StreamError(
            op,
            f"cannot take {_shown(stream)} as a stream",
            because=f"it is of type {type(stream).__name__}, not Stream",
            help=("Stream((Load(…), …, Finish()), micro_ops=(MicroOp(…), …))",),
        )
    for name, given in (("instructions", stream.instructions), ("micro_ops", stream.micro_ops)):
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise StreamError(
                op,
                f"cannot take {_shown(given)} as {name}",
                because=f"it is of type {type(given).__name__}, not a tuple",
            )
    for position, one in enumerate(stream.instructions):
        check_instruction(op, one, f"instruction {position}")
    for position, op_ in enumerate(stream.micro_ops):
        if type(op_) is not MicroOp:
            raise _wrong(op, op_, f"micro-op {position}", "it is no MicroOp")
        _check_fields(op, op_, f"micro-op {position}")


def check_instruction(op: str, one: object, at: str = "") -> None:
    """Refuse what is no instruction.

    Raises StreamError, with the field.
    """
    if type(one) is MicroOp or type(one) not in _FIELDS:
        raise _wrong(op, one, at, "instructions are Load, Store, Gemm, Alu, Finish")
    _check_fields(op, one, at)


def _check_fields(op: str, one: object, at: str) -> None:
    for name, (what, is_one) in _FIELDS[type(one)].items():
        value = getattr(one, name)
        if not is_one(value):
            raise _wrong(op, one, at, f"{name} = {_shown(value)} is not {what}")


def _wrong(op: str, one: object, at: str, because: str) -> StreamError:
    return StreamError(op, f"cannot take {_shown(one)}", at=at, because=because)


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
