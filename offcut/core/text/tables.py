"""Prints tables and quantities as text, and tables as HTML for a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as an HTML table; the first row is the head."""
    lines = []
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        lines.append("".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return each row as a line, its columns two blanks apart; all rows have the same number of cells."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def quantity(value: float, unit: str) -> str:
    """Return a value of 0 or more in `unit`, to 3 digits, with the prefix (n to G) that leaves one to three before the point."""
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("µ", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value * 1e9:.3g} n{unit}" if value else f"0 {unit}"
