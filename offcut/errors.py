"""Every exception offcut raises on purpose.

`OffcutError` is the user's to act on; `InternalError` is a bug in offcut.
A bare `assert` is for facts the type checker cannot see, never for user input.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, ParamSpec, TypeVar

LONGEST = 400
"""Characters of a line that says what was refused, or where: an expression may have thousands."""


class OffcutError(Exception):
    """Base of the errors a user can cause and can fix.

    op       the call as the user made it
    refused  what was asked for, in one clause
    at       where: an argument, a source line and loop, a tensor
    because  the fact that failed: a value, both sides of a mismatch, a witness
    help     the nearest calls that would have been accepted
    value    of a graph, whose kernel was refused; None where it is of none
    stage    that is stored where it was refused, by which the line of a schedule is found; "" where that is not known
    option   of a choice, in which it was refused; "" outside of one
    uncovered  the microkernel of `stage`, if it was refused as its tile names none; "" otherwise

    The text is built in ``__str__``, so raising one inside a search is cheap.
    """

    def __init__(
        self, op: str, refused: str, *, at: str = "", because: str, help: tuple[str, ...] = ()
    ) -> None:
        super().__init__(op, refused)
        self.op, self.refused, self.at = op, refused, at
        self.because, self.help = because, help
        self.value: str | None = None
        self.stage = self.option = self.uncovered = ""

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {"at": self.at, "because": self.because, "help": self.help}
        return _rebuilt, (type(self), self.op, self.refused, fields)

    def __str__(self) -> str:
        rows = [("at", _short(self.at))] if self.at else []
        rows += [("because", self.because), *(("help", text) for text in self.help)]
        return f"{self.op}: {_short(self.refused)}" + "".join(
            f"\n  {label:<8} {text}" for label, text in rows
        )


def _short(text: str) -> str:
    """Each line in `LONGEST` characters at most, and a mark that more follow."""
    return "\n".join(
        line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in text.split("\n")
    )


def _rebuilt(kind: type[OffcutError], op: str, refused: str, rest: dict[str, Any]) -> OffcutError:
    return kind(op, refused, **rest)


class DescribeError(OffcutError):
    """A tensor expression that means nothing: ranks, element types, axes, sizes.

    equal  pairs of extents that the operator needs to be equal, and that are not seen to be; () where it needs something else
    """

    equal: tuple[tuple[Any, Any], ...] = ()


class PartitionError(OffcutError):
    """A cut that is not proved: it would change the result, or its strategy is not legal there.

    decision  of a schedule, that is refused; None where it is of none
    """

    decision: object | None = None


class ParseError(OffcutError):
    """A loop program whose text does not follow the syntax that `print` writes."""


class TargetError(OffcutError):
    """A target, feature or option that this host or this back end does not have."""


class BusyError(TargetError):
    """A machine that does other work, so that what is measured on it now cannot be ranked."""


class AddressError(TargetError):
    """A statement whose elements are no words of the memories of a machine."""


class CallError(OffcutError):
    """A compiled kernel was called with arguments that do not fit it.

    size    the name of a size that is not in its bounds; "" for another error
    extent  that it has in the call
    """

    size, extent = "", 0


class OutOfBoundsError(CallError):
    """A call whose arrays hold an index that leads out of an array."""


class StreamError(OffcutError):
    """An accelerator's instructions that mean nothing on its machine, or that wait for one another for ever."""


class InternalError(Exception):
    """A bug in offcut, never the user's: please report it."""

    def __str__(self) -> str:
        what = super().__str__()
        return f"{what}\n  this is a bug in offcut; `python -m offcut.report` writes what to send"


def error_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its text."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


@contextmanager
def blamed_on_another(
    refused: Callable[[str], OffcutError], *own: type[Exception]
) -> Iterator[None]:
    """Inside, a function of another's is asked, and what it raises is refused; refusals and bugs of offcut's come out as they are.

    refused  the error, told ``raised KeyError: 'b'``
    own      exceptions that come out as well
    """
    known: tuple[type[Exception], ...] = (OffcutError, InternalError, *own)
    try:
        yield
    except known:
        raise
    except Exception as error:
        raise refused(f"raised {type(error).__name__}: {error}") from error


_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)
_OWN_FILES = (str(Path(__file__).parent) + os.sep, contextlib.__file__, functools.__file__)


def trim_traceback(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a public function: an `OffcutError` leaves it with the user's frames alone.

    A user's function that offcut calls stays in the traceback, and so does the decorator's own
    frame. With ``OFFCUT_DEBUG`` set nothing is trimmed.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except OffcutError as error:
            if os.environ.get("OFFCUT_DEBUG", "0") not in ("", "0"):
                raise
            _drop_own_frames(error)
            _drop_own_frames(error.__cause__)
            raise error from error.__cause__

    return call


def trim_tracebacks(cls: _C) -> _C:
    """Decorate a public class: each public method is decorated with `trim_traceback`."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, FunctionType):
            setattr(cls, name, trim_traceback(member))
        elif isinstance(member, (staticmethod, classmethod)):
            setattr(cls, name, type(member)(trim_traceback(member.__func__)))
    return cls


def _drop_own_frames(error: BaseException | None) -> None:
    if error is not None:
        error.__traceback__ = _users_frames(error.__traceback__)


def _users_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return the frames of a traceback that are not offcut's own, however many there are; None if all are."""
    frames = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
            frames.append(traceback)
        traceback = traceback.tb_next
    rest: TracebackType | None = None
    for one in reversed(frames):
        rest = TracebackType(rest, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return rest
