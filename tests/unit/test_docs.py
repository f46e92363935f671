"""Words that are not executed go stale: examples run, programs parse, links lead somewhere."""

from __future__ import annotations

import ast
import doctest
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

import offcut as oc
from docs import notebooks
from examples.sentences import weights
from tests.facade import STRATEGIES

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# A path that only one machine has; "~/" and names inside the repository are not.
MACHINE_PATH = re.compile(r"(?<![\w.~/:])/(?:home|root|tmp|work|opt|usr|var|mnt|Users)/\S*")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line of the page where it begins."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 1)
        for found in FENCE.finditer(text)
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


TUTORIAL = sorted(notebooks.TUTORIAL.glob("*.md"))
WITH_PYTHON = [
    page
    for page in PAGES
    if page.name != "README.md" and any(block.language == "python" for block in blocks(page))
]
WITH_PROGRAMS = [
    page for page in PAGES if any(block.language == "offcut" for block in blocks(page))
]


# What the Python of a page imports that is an extra.
NEEDS = {
    "docs/gallery.md": "matplotlib",
    "docs/search/pool.md": "distributed",
    "docs/plugins/jax.md": "jax",
    "docs/plugins/mlir.md": "xdsl",
    "docs/plugins/numba.md": "numba",
    "docs/plugins/onnx.md": "onnx",
    "docs/plugins/torch.md": "torch",
    "docs/plugins/tvm.md": "tvm",
}
# Whole campaigns, studies and machines run on these pages; what they call has tests of its own.
SLOW = (
    *("docs/accelerator.md", "docs/extending/scratchpad.md", "docs/research/study.md"),
    *(f"docs/search/{page}.md" for page in ("learning", "oracle", "pool", "records", "tuning")),
    *(f"docs/extending/{page}.md" for page in ("explorer", "model")),
    "docs/gallery.md",
)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (name_of(page) in SLOW))
        for page in WITH_PYTHON
    ],
    ids=name_of,
)
def test_the_python_of_a_page_runs_from_top_to_bottom_and_shows_what_it_says(page: Path) -> None:
    if name_of(page) in NEEDS:
        pytest.importorskip(NEEDS[name_of(page)], reason="an extra that is not installed")
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(verbose=False)
    said: list[str] = []
    for block in blocks(page):
        if block.language != "python":
            continue
        if ">>>" not in block.text:
            exec(compile(block.text, f"{name_of(page)}:{block.line}", "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(
            block.text, names, name_of(page), str(page), block.line
        )
        runner.run(example, out=said.append, clear_globs=False)
        names |= example.globs

    if said:
        pytest.fail("".join(said), pytrace=False)


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=name_of)
def test_the_loop_programs_of_a_page_are_in_the_syntax(page: Path) -> None:
    for block in blocks(page):
        if block.language == "offcut":
            assert str(oc.parse(block.text)) == block.text.rstrip("\n")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_leads_to_a_file_that_is_there_and_no_path_is_of_one_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in LINK.findall(text)]
    inside = [link for link in links if link and "://" not in link]

    assert [link for link in inside if not (page.parent / link).exists()] == []
    assert MACHINE_PATH.findall(text) == []


def test_a_path_of_one_machine_is_told_from_one_that_any_may_have() -> None:
    assert all(map(MACHINE_PATH.search, ("see /tmp/x for it", "`/home/me/offcut`", "(/root/x)")))
    others = ("docs/home/x", "~/tmp/x", "bench/tmp/", "https://a.b/home/x")
    assert not any(map(MACHINE_PATH.search, others))


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_on_an_index_every_link_of_the_readme_is_absolute() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    count = len(LINK.findall(text))
    for one in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    links = LINK.findall(text)
    assert len(links) == count
    assert all(link.startswith("https://") for link in links)


def test_the_page_on_strategies_says_every_one_and_no_other() -> None:
    table = (ROOT / "docs" / "tutorial" / "strategies.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [s.name for s in STRATEGIES]


def test_the_weights_that_are_installed_are_those_that_the_demo_is_pinned_to() -> None:
    pinned = (Path(weights.__file__).parent / "weights.txt").read_text(encoding="utf-8")

    assert f"{weights.PACKAGE}=={weights.VERSION} --hash=sha256:" in pinned


def examples(page: Path) -> list[doctest.Example]:
    """The examples of a page, in order."""
    python = [block.text for block in blocks(page) if block.language == "python"]
    return [one for text in python for one in doctest.DocTestParser().get_examples(text)]


@pytest.mark.parametrize("page", TUTORIAL, ids=name_of)
def test_the_notebook_of_a_tutorial_has_its_examples_in_cells_that_end_with_a_result(
    page: Path,
) -> None:
    cells = notebooks.to_notebook(page)["cells"]

    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    assert ast.unparse(ast.parse("\n".join(code))) == ast.unparse(
        ast.parse("".join(one.source for one in examples(page)))
    )
    assert len(examples(page)) >= len(code) >= sum(bool(one.want) for one in examples(page))
    assert not any(">>>" in text or "doctest:" in text for text in code)
    texts = "".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    assert texts.startswith("# ")
    assert [link for link in LINK.findall(texts) if "://" not in link] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIAL, ids=name_of)
def test_the_notebook_of_a_tutorial_runs_and_shows_what_its_page_says(page: Path) -> None:
    pytest.importorskip("nbclient", reason="an extra that is not installed")
    pytest.importorskip("ipykernel", reason="an extra that is not installed")

    notebook = notebooks.execute(notebooks.to_notebook(page))

    wants = [one for one in examples(page) if one.want]
    shown = [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert len(shown) == len(wants)
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for one, outputs in zip(wants, shown, strict=True):
        if one.exc_msg is not None:
            assert f"{one.exc_msg.splitlines()[0]}".endswith(outputs[-1].evalue.splitlines()[0])
            continue
        text = "".join(
            out.text if out.output_type == "stream" else out.data["text/plain"] for out in outputs
        )
        assert checker.check_output(one.want, text, flags), text
