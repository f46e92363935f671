"""Notebooks of the tutorial: `make notebooks` writes the pages of docs/tutorial/ into out/notebooks, executed.

A page is the only source. Its text becomes cells of Markdown, whose links lead to the repository, and its examples become
cells of Python without their prompts; a cell ends where an example shows a result. The results are those of the run.

    python docs/notebooks.py out/notebooks [page.md …]
"""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath
from typing import Any

TUTORIAL = Path(__file__).parent / "tutorial"
REPOSITORY = "https://github.com/offcut/offcut"
SECONDS_PER_CELL = 300
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r" *# doctest:.*")
_LINK = re.compile(r"(!?)\[([^\[\]]*(?:\[[^\]]*\][^\[\]]*)*)\]\((?!https?://|#)([^)\s]+)\)")


def with_absolute_links(text: str, folder: str) -> str:
    """Return Markdown of a folder of the repository, its relative links as addresses of the repository."""

    def link(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        path = normpath(f"{folder}/{target}")
        return f"{mark}[{label}]({REPOSITORY}/{'raw' if mark else 'blob'}/main/{path})"

    return _LINK.sub(link, text)


def markdown_cell(text: str) -> dict[str, Any]:
    """Return a cell of text, as the format of notebooks has it."""
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code_cell(examples: list[doctest.Example]) -> dict[str, Any]:
    """Return a cell that runs these examples; the last one may show a result, or raise."""
    is_error = examples[-1].exc_msg is not None
    return {
        "cell_type": "code",
        "metadata": {"tags": ["raises-exception"]} if is_error else {},
        "source": _DIRECTIVE.sub("", "".join(example.source for example in examples)).rstrip(),
        "execution_count": None,
        "outputs": [],
    }


def code_cells(text: str) -> Iterator[dict[str, Any]]:
    """Yield the cells of a block of Python: of a session with prompts, one for each result that is shown."""
    examples = list[doctest.Example]()
    for example in doctest.DocTestParser().get_examples(text):
        examples.append(example)
        if example.want:
            yield code_cell(examples)
            examples = []
    if ">>>" not in text:
        examples = [doctest.Example(text, "")]
    if examples:
        yield code_cell(examples)


def to_notebook(page: Path) -> dict[str, Any]:
    """Return a page as a notebook of format 4.5 that has not run."""
    folder = f"docs/{page.parent.name}"
    cells, at = list[dict[str, Any]](), 0
    text = page.read_text(encoding="utf-8")
    for block in _FENCE.finditer(text):
        cells += [markdown_cell(text[at : block.start()]), *code_cells(block[1])]
        at = block.end()
    cells.append(markdown_cell(text[at:]))
    shown = [cell for cell in cells if cell["source"].strip()]
    for number, cell in enumerate(shown):
        cell["id"] = f"{page.stem}-{number}"
        if cell["cell_type"] == "markdown":
            cell["source"] = with_absolute_links(cell["source"].strip(), folder)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": shown,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def execute(notebook: dict[str, Any]) -> Any:
    """Return the notebook with the results of its cells.

    Raises CellExecutionError of nbclient where a cell raises that shows no exception on its page.
    """
    import nbformat
    from nbclient import NotebookClient

    node = nbformat.from_dict(notebook)
    nbformat.validate(node)
    NotebookClient(node, timeout=SECONDS_PER_CELL, kernel_name="python3").execute()
    return node


def main(folder: str, *pages: str) -> None:
    """Write executed notebooks of the tutorial, or of these pages, into a folder."""
    import nbformat

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for page in map(Path, pages) if pages else sorted(TUTORIAL.glob("*.md")):
        nbformat.write(execute(to_notebook(page)), out / f"{page.stem}.ipynb")


if __name__ == "__main__":
    main(*sys.argv[1:])
