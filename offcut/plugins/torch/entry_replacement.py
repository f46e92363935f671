"""Tables and attributes of torch that are others for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any


@contextmanager
def replace_entries(owner: Any, entries: Mapping[Any, Any]) -> Iterator[None]:
    """Replace entries of a dict, or attributes of a module or a class, until the context ends; then restore them."""
    is_table = isinstance(owner, dict)
    table = owner if is_table else vars(owner)
    assign = table.__setitem__ if is_table else partial(setattr, owner)
    drop = table.__delitem__ if is_table else partial(delattr, owner)
    before = {name: table[name] for name in entries if name in table}
    for name, value in entries.items():
        assign(name, value)
    try:
        yield
    finally:
        for name in entries:
            if name in before:
                assign(name, before[name])
            else:
                drop(name)
