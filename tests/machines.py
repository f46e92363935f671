"""The host with other numbers in its description, for tests of what depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import offcut as oc
from tests.facade import hooked, instead, load_machine, processor

EAGER = {"grain_seconds": 1e-15, "short_seconds": 1e-300}
"""Threads that take the smallest call, and do not wait for those that sleep."""


@contextmanager
def host_threads(**changes: Any) -> Iterator[None]:
    """Kernels that are compiled inside are for a host whose threads are so described."""
    before = hooked("own machine")

    def changed(architecture: str, features: frozenset[str], named: str = "") -> Any:
        machine = before(architecture, features, named)
        return replace(machine, threads=replace(machine.threads, **changes))

    with instead("own machine", changed):
        yield


def host_with_memories_of(name: str) -> oc.Target:
    """The host, described with the caches and main memory of another machine: what is planned for it runs here."""
    other, own = processor(load_machine(name)), processor(oc.target("cpu").machine)
    return oc.target("cpu", machine=replace(own, memory=other.memory, traffic=other.traffic))
