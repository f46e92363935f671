"""A number and its unit -> text of three digits."""

from __future__ import annotations


def quantity(value: float, unit: str) -> str:
    """With the prefix that leaves one to three digits before the point."""
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("µ", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value * 1e9:.3g} n{unit}" if value else f"0 {unit}"
