"""The artifact: its lock file holds what pyproject.toml asks for, its commands are there, its studies can be read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from offcut.studies.definition import read_definition

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
STUDIES = sorted((ROOT / "studies").glob("*.toml"))
NEEDS = {"new_size": "torch"}


def required(extra: str) -> list[Requirement]:
    """Return what the package asks for with an extra, those of the extras that it names among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    found, left = [Requirement(one) for one in project["dependencies"]], [extra]
    for name in left:
        for one in map(Requirement, optional[name]):
            if one.name == project["name"]:
                left += [other for other in sorted(one.extras) if other not in left]
            else:
                found.append(one)
    return found


def pinned() -> dict[str, Version]:
    """Return the versions of the lock file by package."""
    lines = [line for line in LOCK if not line.startswith("#")]
    pairs = [re.fullmatch(r"([\w.-]+)==([\w.+!]+)", line) for line in lines]
    assert [line for line, pair in zip(lines, pairs, strict=True) if pair is None] == []
    return {str(canonicalize_name(pair[1])): Version(pair[2]) for pair in pairs if pair is not None}


def test_the_lock_file_pins_what_the_tests_ask_for_once_and_names_no_place() -> None:
    versions = pinned()

    assert len(versions) == len(LOCK) - 1
    assert not re.search(r"://|@|/\w+/", "\n".join(LOCK[1:]))
    for one in required("dev"):
        name = canonicalize_name(one.name)
        assert name in versions, f"make lock: {name} is not in requirements.lock"
        assert one.specifier.contains(versions[name]), f"make lock: {one}, locked {versions[name]}"


def test_the_container_makes_targets_that_there_are() -> None:
    recipe = (ROOT / "Containerfile").read_text(encoding="utf-8")
    targets = re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)

    named = re.findall(r'make"?,? "?([\w./-]+)', recipe.partition("FROM")[2])
    assert {"test", ".venv/installed"} <= {name for name in named if name in targets}


def test_the_artifact_and_the_kept_results_are_of_studies_that_there_are() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for variable in ("ARTIFACT", "KEPT"):
        listed = re.search(rf"^{variable} := ((?:.*\\\n)*.*)$", makefile, re.M)
        assert listed is not None
        names = listed[1].replace("\\", "").split()
        assert [name for name in names if not (ROOT / "studies" / f"{name}.toml").exists()] == []
    page = (ROOT / "ARTIFACT.md").read_text(encoding="utf-8")
    for name in re.findall(r"studies/(\w+)\.toml", page):
        assert name in {file.stem for file in STUDIES}


def test_the_artifact_runs_every_study_of_its_page_but_those_that_it_names() -> None:
    page = (ROOT / "ARTIFACT.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^ARTIFACT := ((?:.*\\\n)*.*)$", makefile, re.M)
    others = re.search(r"every study below but (.+), which", page)

    assert recipe is not None
    assert others is not None
    left_out = set(re.split(", | and ", others[1]))
    run = set(recipe[1].replace("\\", "").split())
    assert not run & left_out
    assert run | left_out == set(re.findall(r"studies/([\w/-]+)\.toml", page))


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: str(file.stem))
def test_a_study_can_be_read_in_both_forms_and_is_listed(file: Path) -> None:
    if file.stem in NEEDS:
        pytest.importorskip(NEEDS[file.stem], reason="an extra that is not installed")
    long, short = read_definition(file), read_definition(file, short=True)
    count = [sum(1 for _ in one.cells()) for one in (long, short)]

    assert 0 < count[1] <= count[0]
    assert long.about
    assert long.seconds * count[0] < 600
    assert f"`{file.name}`" in (ROOT / "studies" / "README.md").read_text(encoding="utf-8")


def claims() -> list[list[str]]:
    """Return the rows of the artifact's tables: claim, command, what was printed, tolerance, minutes."""
    text = (ROOT / "ARTIFACT.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in rows if row[0] != "claim"]


@pytest.mark.parametrize("row", claims(), ids=lambda row: row[0][:40])
def test_a_claim_names_a_command_a_table_and_minutes(row: list[str]) -> None:
    _, command, printed, tolerance, minutes = row
    page = (ROOT / "docs" / "research" / "study.md").read_text(encoding="utf-8")
    listed = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| ", page.partition("## What the folder holds")[2], re.M
    )
    tables = {name for cell in listed for name in re.findall(r"\w+", cell)}
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)

    for text in re.findall(r"`(?:offcut study|make) ([^`]+)`|`(studies/[^`]+)`", command):
        name = next(filter(None, text)).split()[0]
        assert name in targets or (ROOT / name).is_file(), name
    assert re.search(r"`(offcut study|make|studies/)|the same run", command)
    if "offcut study" in command:
        named = re.findall(r"^`(\w+)`", printed) + re.findall(r", `(\w+)`", printed)
        assert set(named) - {"cpu"} <= tables
        assert named, "which table to look at"
    assert tolerance
    assert re.fullmatch(r"\d+|–", minutes)
