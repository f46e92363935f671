"""What the system says of this machine, as texts: no description of machines is read."""

from __future__ import annotations

import os

_CACHES = "/sys/devices/system/cpu/cpu0/cache"  # where Linux describes them
DATA_CACHES = (0, 2, 3)
"""How Linux counts L1, L2 and L3; 1 holds instructions."""
CACHE_FACTS = ("size", "ways_of_associativity", "coherency_line_size", "shared_cpu_list")


def cache_text(index: int, fact: str) -> str:
    """Return what the system says of one of the caches of a core; nothing where it does not."""
    try:
        with open(f"{_CACHES}/index{index}/{fact}", "rb", 0) as file:
            return file.read().decode().strip()
    except OSError:
        return ""


def machine_facts() -> tuple[str, ...]:
    """Return all that code for this machine, and the choice of it, depends on: processor, features, number of cores, caches."""
    import llvmlite.binding as llvm

    features = sorted(name for name, on in llvm.get_host_cpu_features().items() if on)
    caches = (cache_text(index, fact) for index in DATA_CACHES for fact in CACHE_FACTS)
    triple, name = llvm.get_process_triple(), llvm.get_host_cpu_name()
    return triple, name, ",".join(features), str(os.cpu_count()), *caches


__all__ = ["CACHE_FACTS", "DATA_CACHES", "cache_text", "machine_facts"]
