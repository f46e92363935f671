"""Tables and quantities as text, and as a notebook shows them."""

from __future__ import annotations

import html
from collections.abc import Sequence


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as HTML, their head first, each column under its name."""
    marks = ["th", *("td" for _ in rows[1:])]
    lines = (
        "".join(f"<{mark}>{html.escape(cell)}</{mark}>" for cell in row)
        for mark, row in zip(marks, rows, strict=True)
    )
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Each row as a line, the columns two blanks apart; all rows have as many."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def quantity(value: float, unit: str) -> str:
    """With the prefix that leaves one to three digits before the point."""
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("µ", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value * 1e9:.3g} n{unit}" if value else f"0 {unit}"
