"""Tables of a study, and the lines that the command prints of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import offcut as oc
from offcut.studies.groups import reason
from offcut.studies.table import Table, as_csv, as_latex
from offcut.studies.tables import failure_lines
from tests.facade import app


def test_tables_are_csv_and_latex_that_say_special_signs() -> None:
    table = Table("t", "A & b: 5 % of x_1", ("operator", "µs"), (("q·kᵀ {}", "1"), ("–", "–")))

    assert as_csv(table, ["machine"]).splitlines() == ["# machine", "operator,µs", "q·kᵀ {},1", ","]
    tex = as_latex(table)
    assert r"\caption{A \& b: 5 \% of x\_1}" in tex
    assert r"\begin{tabular}{lr}" in tex
    assert r"q·kᵀ \{\} & 1 \\" in tex


def test_a_reason_is_printed_once_for_all_its_rows() -> None:
    rows = [
        ("dense", "m=1", "p", "no such thing"),
        ("dense", "m=3", "p", "no such thing"),
        ("wide", "m=1", "p", "another thing"),
        ("wide", "m=1", "q", "study: cannot measure a peer, because q has no way to compute wide"),
        ("dense", "m=5", "p", "no such thing"),
    ]

    assert list(failure_lines(rows)) == [
        "dense m=1 p and 2 other rows: no such thing",
        "wide m=1 p: another thing",
    ]


def test_a_suite_of_one_operator_has_no_more() -> None:
    said = CliRunner().invoke(app, ["study", "--list-suites"]).stdout

    assert "(1 operators)" not in said
    assert re.search(r"\(\d+ operators\)\n  source: ", said)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("a\tb"), "KeyError: 'a\\tb'"),
        (ValueError("one \x1b[31m\tline\nand another"), "ValueError: one [31m line and another"),
        (ValueError("x" * 500), f"ValueError: {'x' * 400} …"),
        (oc.OffcutError("op", "no\nway", because="so\n\nit is"), "op: no way, because so it is"),
    ],
)
def test_a_reason_is_a_line(error: Exception, text: str) -> None:
    assert reason(error) == text


@pytest.mark.parametrize("word", ["new", "compare"])
def test_a_word_without_its_folder_is_no_file(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["study", word])
    assert refused.exit_code == 2
    assert f"{word} is neither a file, nor compare with two folders" in refused.output
