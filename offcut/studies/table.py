"""A table of a study: one form, written as CSV, LaTeX (booktabs) and HTML."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.markup import escape
from rich.table import Table as RichTable

from offcut.experiment.timing import Ratio

NONE = "–"


def plural(count: int, noun: str) -> str:
    """Return a number of things, in words.

    >>> plural(1, "cell"), plural(0, "cell")
    ('1 cell', '0 cells')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown(value: float | None, scale: float = 1.0, form: str = ".4g") -> str:
    """Return a number as a table has it, `NONE` of none and of 0.

    >>> shown(3e-6, 1e6), shown(None)
    ('3', '–')
    """
    return format(value * scale, form) if value else NONE


def shown_ratio(ratio: Ratio | None, form: str = ".3f") -> tuple[str, str, str]:
    """Return the value of a ratio and the ends of its interval as a table has them."""
    if ratio is None:
        return (NONE,) * 3
    return format(ratio.value, form), format(ratio.low, form), format(ratio.high, form)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    name     of its files
    caption  a sentence
    texts    how many of its columns, from the first on, are words; the others are numbers
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1


def transposed(table: Table, head: str) -> Table:
    """Return a table whose first column are names with a line for each of its other columns.

    head  of the first column
    """
    rows = tuple(zip(table.columns[1:], *(row[1:] for row in table.rows), strict=True))
    return Table(table.name, table.caption, (head, *(row[0] for row in table.rows)), rows)


def as_csv(table: Table, facts: Sequence[str] = ()) -> str:
    """Return a table as CSV below comment lines."""
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in facts)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(tuple("" if cell == NONE else cell for cell in row) for row in table.rows)
    return text.getvalue()


_TEX = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_TEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
_TEX |= {"–": "--", "µ": r"\textmu{}", "→": r"$\to$", "×": r"$\times$"}
_TEX |= {">": r"\textgreater{}", "<": r"\textless{}", "≤": r"$\le$", "≥": r"$\ge$"}


def tex(text: str) -> str:
    """Return a text as LaTeX prints it."""
    return "".join(_TEX.get(letter, letter) for letter in text)


def as_latex(table: Table, facts: Sequence[str] = ()) -> str:
    """Return a table as LaTeX for the package booktabs, with a caption, below comment lines."""
    columns = "l" * table.texts + "r" * (len(table.columns) - table.texts)
    lines = [f"% {line}" for line in facts]
    lines += ["% needs \\usepackage{booktabs}", "\\begin{table}", "\\centering"]
    lines += [f"\\caption{{{tex(table.caption)}}}"]
    lines += [f"\\label{{tab:{table.name}}}", f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
    lines += [" & ".join(map(tex, table.columns)) + r" \\", "\\midrule"]
    lines += [" & ".join(map(tex, row)) + r" \\" for row in table.rows]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])


def as_html(table: Table) -> str:
    """Return a table as HTML."""

    def row(cells: Sequence[str], tag: str) -> str:
        kinds = ("" if k < table.texts else ' class="n"' for k in range(len(cells)))
        pairs = zip(kinds, map(html.escape, cells), strict=True)
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for kind, cell in pairs)}</tr>"

    body = "\n".join(row(one, "td") for one in table.rows)
    return f'<table id="{html.escape(table.name)}"><caption>{html.escape(table.caption)}</caption>\n<thead>{row(table.columns, "th")}</thead>\n<tbody>\n{body}\n</tbody></table>'


def as_rich(table: Table) -> RichTable:
    """Return a table as a terminal shows it, a line between operators."""
    grid = RichTable(title=escape(table.caption), title_justify="left")
    for position, name in enumerate(table.columns):
        side: Literal["left", "right"] = "left" if position < table.texts else "right"
        grid.add_column(escape(name), justify=side, overflow="fold")
    for number, row in enumerate(table.rows):
        is_grouped = table.texts > 1 and table.columns[0] == "operator"
        if number and is_grouped and table.rows[number - 1][0] != row[0]:
            grid.add_section()
        grid.add_row(*map(escape, row))
    return grid
