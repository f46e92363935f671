"""A budget for isl: it gives up after bounded work, and never hangs.

Work is counted in isl's own operations, allocations and pivots, so that an answer does not depend on
how fast a machine is, or how busy. A bound inside another one is the tighter of the two, and what it
takes is taken from the other one as well. Threads take turns: isl counts for all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import islpy as isl

from offcut.core.process import ForkSafeLock
from offcut.errors import PartitionError

REQUEST = 2_000_000  # operations for all that one request asks: some seconds
PASS = REQUEST // 4  # for a pass that can do without the answer

T = TypeVar("T")

_CONTEXT = isl.DEFAULT_CONTEXT
# Another thread, whose turn it was in a fork, was between two calls of isl: these hold Python's lock.
_TURN = ForkSafeLock(lost=lambda: _CONTEXT.set_max_operations(0))
_seen = 0  # operations that isl is known to have taken


class BudgetExceeded(Exception):
    """Raised if isl has reached its budget."""


class IslError(BudgetExceeded):
    """Raised if isl fails by a fault of its own."""


@contextmanager
def operation_budget(count: int) -> Iterator[None]:
    """Give isl `count` operations inside, or what remains of the enclosing budget.

    Raises BudgetExceeded where it takes more, IslError where it fails.
    """
    with _TURN:
        outer = _CONTEXT.get_max_operations()
        if outer and _reaches(outer):  # to count what is left would take more
            raise BudgetExceeded("nothing is left of the budget around")
        mine = operations() + count
        bound = min(mine, outer) if outer else mine
        _CONTEXT.set_max_operations(bound)
        try:
            yield
        except isl.Error as error:
            # By what is left, not by the words: isl's parser calls this a syntax error.
            raise (BudgetExceeded if _reaches(bound) else IslError)(str(error)) from None
        except (
            TypeError
        ) as error:  # at the bound isl prints nothing, and islpy reads None as a number
            if not _reaches(bound):
                raise
            raise BudgetExceeded(str(error)) from None
        finally:
            _CONTEXT.set_max_operations(outer)


def pass_budget() -> AbstractContextManager[None]:
    """Give isl the budget of a pass; raises BudgetExceeded beyond it."""
    return operation_budget(PASS)


def is_spent() -> bool:
    """Return whether nothing is left of the budget around: what was answered in it may be for want of work."""
    with _TURN:
        bound = _CONTEXT.get_max_operations()
        return bool(bound) and _reaches(bound)


def try_isl(question: Callable[[], T], otherwise: T) -> T:
    """Return the answer to `question`; `otherwise` if isl exceeds the budget of a pass, or fails."""
    try:
        with pass_budget():
            return question()
    except BudgetExceeded:
        return otherwise


@contextmanager
def request_budget(
    op: str,
    refused: str,
    *,
    at: str = "",
    help: tuple[str, ...] = (),
    most: int | None = None,
    requests: int = 1,
    otherwise: Callable[[str], PartitionError] | None = None,
) -> Iterator[None]:
    """Give isl the budget of a whole request.

    op, refused, at, help   of the PartitionError that is raised where it takes more, or fails
    most                    operations; None: `REQUEST` for each of the `requests` that are as one
    otherwise               what is raised in its place, told why isl gives no answer
    """
    most = REQUEST * requests if most is None else most
    try:
        with operation_budget(most):
            yield
    except BudgetExceeded as why:
        because = f"that question takes isl more than {most:,} operations"
        if isinstance(why, IslError):
            because = "isl fails to answer that question"
        if otherwise is not None:
            raise otherwise(because) from None
        raise PartitionError(op, refused, at=at, because=because, help=help) from None


def operations() -> int:
    """Return the number of operations of isl so far, by bisection: isl tells only whether a bound is reached."""
    global _seen
    with _TURN:
        outer = _CONTEXT.get_max_operations()
        try:
            step = 1
            while _reaches(_seen + step):
                _seen, step = _seen + step, 2 * step
            while step > 1:
                step //= 2
                if _reaches(_seen + step):
                    _seen += step
        finally:
            _CONTEXT.set_max_operations(outer)
        return _seen


def _reaches(bound: int) -> bool:
    """Return whether isl has taken `bound` operations."""
    _CONTEXT.set_max_operations(bound)
    try:
        isl.Val.zero(_CONTEXT)  # one operation
    except isl.Error:
        return True
    return False
