"""The description of the core that runs kernels: the shipped one, with the host's own caches."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from offcut.costmodel import Hardware, load, with_caches


@cache
def hardware() -> Hardware:
    """This machine: the description beside this file, with the host's own caches."""
    described = load(Path(__file__).with_name("core.toml"))
    return with_caches(
        described,
        l1_bytes=_cache_fact(0, "size"),
        l1_ways=_cache_fact(0, "ways_of_associativity"),
        nearest_bytes=_cache_fact(2, "size"),
    )


def _cache_fact(index: int, fact: str) -> int | None:
    """A fact of one of the core's caches, where the system says it."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/{fact}").read_text().strip()
    except OSError:
        return None
    digits, factor = text.rstrip("KM"), {"K": 1024, "M": 1 << 20}.get(text[-1:], 1)
    return int(digits) * factor if digits.isdigit() else None
