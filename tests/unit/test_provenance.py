"""Every number that was measured names what measured it: a study or a bench, and a commit or a folder of results, in its section; a page
of a decision, whose numbers are those of its time, a commit.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "ARTIFACT.md", *(ROOT / "docs").rglob("*.md")])
DECISIONS = ROOT / "docs" / "design"
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^(?: {4}|\t).*$", re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
NUMBER = re.compile(
    r"(?<![\w.])(?:\.\d+|\d+(?:[.,]\d+)*)\s?"
    r"(?:×(?!\s?\d|\w)|[mµn]?s\b|%(?!\s?\d)|GFLOP/s|GB/s|MB\b|minutes\b|seconds\b|times as\b)"
)
"""Ratios, times, shares, rates; memory in MB."""
CELL = re.compile(r"(?<=\|)[ *~≤≥]*\d*\.\d+(?:\s?[–(→,][^|\n]*)?[ *]*(?=\|)")
"""A cell of a table that holds a decimal number, perhaps with its range."""
SOURCE = re.compile(
    r"(?<![\w/])(?:bench|studies|tests/unit)(?:/[\w-]+)+\.(?:py|toml)\b|\bmake demo\b|\boffcut (?:study|sweep|learn)\b"
)
FILES = re.compile(r"(?<![\w/])(?:bench|studies)(?:/[\w-]+)+\.(?:py|toml)\b")
RESULTS = re.compile(r"\bresults/[\w.-]+/\d{4}-\d\d-\d\d-[0-9a-f]{8}[\w./-]*")
PLACE = re.compile(rf"\bcommit `?[0-9a-f]{{8,40}}\b|{RESULTS.pattern}")
PICTURE = re.compile(r"!\[[^\]]*\b(?:[Tt]hroughput|[Ss]peed|[Tt]ime|[Rr]egret)[^\]]*\]\([^)]*\)")
STATED: dict[str, tuple[str, ...]] = {
    # of intervals; a change, one that is looked for, a pair; a cell of the short form
    "docs/research/study.md": ("95 %", "2 %", "5 %", "15 %", "0.04 s", "0.3, 21", "20 seconds"),
    "docs/research/sweep.md": ("30 s",),  # an option
    "docs/research/timing.md": ("95 %",),
    "docs/search/learning.md": ("15 %", "6 MB"),  # times that are told apart; what is installed
    "docs/search/records.md": ("2 %",),  # what is shipped gains more
    "docs/search/tuning.md": ("2 %",),  # likewise
    "docs/tutorial/external.md": ("10 s", "120 s"),  # when a call counts as one that does not end
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
    found = (one for kind in (NUMBER, CELL, PICTURE) for one in kind.finditer(prose))
    return [match[0].strip() for match in found]


def is_sourced(section: str, page: Path) -> bool:
    """Return whether a section says where its numbers are from."""
    by_decision = page.parent == DECISIONS
    return bool(PLACE.search(section) and (by_decision or SOURCE.search(section)))


def test_a_measured_number_names_its_study_or_bench_and_its_commit_which_are_there() -> None:
    orphans, missing = list[str](), list[str]()
    for page in PAGES:
        stated = STATED.get(page.relative_to(ROOT).as_posix(), ())
        for line, section in sections(page):
            numbers = [one for one in measured(section) if one not in stated]
            if numbers and not is_sourced(section, page):
                orphans.append(f"{page.name}:{line}: {', '.join(numbers[:6])}")
        text = page.read_text(encoding="utf-8")
        named = [match[0] for match in FILES.finditer(text)]
        named += [match[0].rstrip(".") for match in RESULTS.finditer(text)]
        missing += [f"{page.name}: {name}" for name in named if not (ROOT / name).exists()]
    assert orphans == [], "name the study or bench, and `commit 0123abcd` or a folder of results/"
    assert missing == []


PLANTED = (
    *("1.3 ×", "1.3×", ".97 ×", "12 %", "12%", "12 ms", "3.4 µs", "2 s", "1,891 ms"),
    *("210 GFLOP/s", "5 GB/s", "64 MB", "3 times as", "20 minutes"),
)


def test_a_number_that_is_planted_without_a_source_is_found_and_code_is_none() -> None:
    for planted in PLANTED:
        bare = f"## Speed\n\nIt takes {planted} there.\n"
        assert measured(bare) == [planted]
        assert planted in measured(f"| model | figure |\n|---|---|\n| encoder | {planted} |\n")
        for page in (ROOT / "README.md", ROOT / "docs" / "cost.md", DECISIONS / "x.md"):
            assert not is_sourced(bare, page)
            assert is_sourced(f"{bare}`studies/new_size.toml`, commit 0123abcd.\n", page)
    for cell in ("1.15", ".97–1.0", "1.11–1.17", "**2.1**", "1.46 (1.45–1.47)"):
        assert measured(f"| bench | ratio |\n|---|---|\n| dense | {cell} |\n") == [cell]
    assert measured("| size | m |\n|---|---|\n| a | 3 |\n| b 1.5 c | x |\n") == []
    assert measured("## Code\n\n    13 ms\n\n```\n5 %\n```\n`7 %` 3×3 2 × 4\n") == []


def test_a_page_of_a_decision_names_a_commit_and_another_page_a_study_too() -> None:
    section = "It takes 13 ms, commit 0123abcd.\n"

    assert is_sourced(section, DECISIONS / "x.md")
    assert not is_sourced(section, ROOT / "docs" / "cost.md")
