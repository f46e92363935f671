"""Tables as a notebook shows them."""

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
