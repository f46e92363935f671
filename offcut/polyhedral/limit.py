"""A bound on what isl may take for one question: a refusal after a while, never a hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl


class GaveUp(Exception):
    """isl reached the bound."""


@contextmanager
def at_most_operations(count: int) -> Iterator[None]:
    """Let isl take `count` elementary operations inside; raises GaveUp where it takes more."""
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(count)
    try:
        yield
    except isl.Error as error:
        if "maximal number of operations" not in str(error):
            raise
        raise GaveUp(str(error)) from None
    finally:
        context.set_max_operations(0)
