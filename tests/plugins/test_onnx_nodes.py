"""The table of ONNX's node tests in docs/plugins/onnx-nodes.md is true."""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from zlib import crc32

import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from conftest import slow

from tests.plugins import onnx_nodes
from tests.plugins.onnx_nodes import PAGE, PASSED, REFUSED, cases, outcome


@cache
def operators() -> dict[str, str]:
    return onnx_nodes.operators()


@cache
def rows() -> dict[str, tuple[int, int, frozenset[str]]]:
    """By operator: how many are passed, of how many, and the names of those that are refused."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        row = re.fullmatch(r"\| (.+?) \| (\d+) \| (\d+) \| (.*) \|", line)
        if row:
            refused = {
                f"test_{name}"
                for part in row[4].split("<br>")
                if part
                for name in part.split(":")[0].split(", ")
            }
            found[row[1]] = int(row[2]), int(row[3]), frozenset(refused)
    return found


def chosen(step: int, offset: int = 0) -> list[Any]:
    """One of `step` cases, drawn by their names."""
    return [case for case in cases() if crc32(case.name.encode()) % step == offset]


def test_every_test_of_the_wheel_is_in_the_table() -> None:
    counts: dict[str, list[str]] = {}
    for case in cases():
        counts.setdefault(operators()[case.name], []).append(case.name)
    assert {name: of for name, (_, of, _) in rows().items()} == {
        name: len(names) for name, names in counts.items()
    }
    for name, (passed, of, refused) in rows().items():
        assert passed + len(refused) == of
        assert refused <= set(counts[name])
    assert "**failed**" not in PAGE.read_text(encoding="utf-8")


def wrong(case: Any, kernels: bool) -> str:
    """How a case differs from what the table says; nothing where it does not."""
    said = REFUSED if case.name in rows()[operators()[case.name]][2] else PASSED
    found = outcome(case, kernels)
    return "" if found.status == said else f"{case.name}: {found.status} {found.reason}"


def test_a_sample_is_passed_and_refused_as_the_table_says() -> None:
    assert not [text for case in chosen(25) if (text := wrong(case, kernels=False))]


@pytest.mark.parametrize("part", [slow(part) if part else part for part in range(4)])
def test_kernels_give_what_a_smaller_sample_expects(part: int) -> None:
    assert not [text for case in chosen(160, 40 * part + 1) if (text := wrong(case, kernels=True))]


@pytest.mark.slow
def test_all_are_passed_and_refused_as_the_table_says() -> None:
    results = {case.name: (operators()[case.name], outcome(case)) for case in cases()}
    assert onnx_nodes.table(results) == PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_kernels_give_what_all_tests_expect(part: int) -> None:
    assert not [text for case in chosen(20, part) if (text := wrong(case, kernels=True))]
