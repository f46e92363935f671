"""Every number that was measured names what measured it: a study or a bench, and a commit or a folder of results, in its section."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "ARTIFACT.md",
        *(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "design"),
    ]
)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^(?: {4}|\t).*$", re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
NUMBER = re.compile(
    r"(?<![\w.])(?:\.\d|\d)[\d.,]*\s?(?:×(?!\s?\d|\w)|ms\b|µs\b|ns\b|%(?!\s?\d)|GFLOP/s|GB/s|times as\b)"
)
SOURCE = re.compile(
    r"(?<![\w/])(?:bench|studies|tests/unit)(?:/[\w-]+)+\.(?:py|toml)\b|\bmake demo\b|\boffcut (?:study|sweep|learn)\b"
)
FILES = re.compile(r"(?<![\w/])(?:bench|studies)(?:/[\w-]+)+\.(?:py|toml)\b")
RESULTS = re.compile(r"\bresults/[\w.-]+/\d{4}-\d\d-\d\d-[0-9a-f]{8}[\w./-]*")
PLACE = re.compile(rf"\bcommit `?[0-9a-f]{{8,40}}\b|{RESULTS.pattern}")
PICTURE = re.compile(r"!\[[^\]]*\b(?:[Tt]hroughput|[Ss]peed|[Tt]ime|[Rr]egret)[^\]]*\]\([^)]*\)")
STATED: dict[str, tuple[str, ...]] = {
    "docs/research/study.md": ("95 %", "2 %"),  # of intervals, and what counts as a change
    "docs/research/timing.md": ("95 %",),
    "docs/search/learning.md": ("15 %",),  # times that are told apart
    "docs/search/records.md": ("2 %",),  # what is shipped gains more
    "docs/search/tuning.md": ("2 %",),  # likewise
}
"""Numbers that a rule of offcut's states and nobody measured, by page."""


def sections(page: Path) -> list[tuple[int, str]]:
    """Return the sections of a page: from a heading to the next, each with the line that it begins in."""
    text = page.read_text(encoding="utf-8")
    shown = FENCE.sub(lambda match: re.sub(r"^#", " ", match[0], flags=re.MULTILINE), text)
    starts = [0, *(match.start() for match in HEADING.finditer(shown) if match.start())]
    ends = [*starts[1:], len(text)]
    return [
        (text.count("\n", 0, start) + 1, text[start:end])
        for start, end in zip(starts, ends, strict=True)
    ]


def measured(section: str) -> list[str]:
    """Return the measured numbers and the pictures of a section; what is code runs, or is shown as it was printed."""
    prose = CODE.sub("", INDENTED.sub("", FENCE.sub("", section)))
    return [match[0] for match in (*NUMBER.finditer(prose), *PICTURE.finditer(prose))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_measured_number_names_its_study_or_bench_and_its_commit(page: Path) -> None:
    stated = STATED.get(page.relative_to(ROOT).as_posix(), ())
    orphans = [
        f"{page.name}:{line}: {', '.join(numbers[:6])}"
        for line, section in sections(page)
        if (numbers := [one for one in measured(section) if one not in stated])
        and not (SOURCE.search(section) and PLACE.search(section))
    ]

    assert orphans == [], "name the study or bench, and `commit 0123abcd` or a folder of results/"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_study_a_bench_and_results_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = [match[0] for match in FILES.finditer(text)]
    named += [match[0].rstrip(".") for match in RESULTS.finditer(text)]

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_a_number_without_a_source_is_told_from_one_with() -> None:
    bare = "## Speed\n\nIt takes 13 ms, 1.5 × as long.\n"
    sourced = bare + "`studies/new_size.toml`, commit 0123abcd.\n"

    assert measured(bare) == ["13 ms", "1.5 ×"]
    assert measured("## Code\n\n    13 ms\n\n```\n5 %\n```\n`7 %` 3×3 2 × 4\n") == []
    assert SOURCE.search(sourced)
    assert PLACE.search(sourced)
    assert not PLACE.search(bare)
