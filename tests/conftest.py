"""What all tests share: edge sizes, golden files, CPU features, and a world of their own."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

if TYPE_CHECKING:
    from offcut import Partition

sys.path.append(str(Path(__file__).parents[1] / "bench"))  # its scripts import each other by name

# Before offcut is imported: no records, model or cache of the user's are read or written, and no records that are
# shipped.
os.environ["OFFCUT_RECORDS"] = "off"
os.environ["OFFCUT_PROCESSES"] = "1"  # the suite has the cores
# The processes of one run share an empty one, which the first of them makes.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["OFFCUT_CACHE"] = tempfile.mkdtemp(prefix="offcut-tests-")
    os.environ["OFFCUT_MODEL"] = f"{os.environ['OFFCUT_CACHE']}/model.json"
    atexit.register(shutil.rmtree, os.environ["OFFCUT_CACHE"], ignore_errors=True)

import islpy as isl  # the environment comes first
import llvmlite.binding as llvm
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests import facade
from tests.facade import hooked, old_objects_aside, own_strategies
from tests.variants import depends_on_machine

# Every run of `make test` draws the same examples, however busy the machine is. A slow test draws
# fresh ones by ``derandomize=False``, and prints what repeats a failure.
settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fixed")
# Hypothesis also draws numbers that stand in the modules loaded so far, which depend on the tests
# that ran before; `test_repeatable` notices where this no longer prevents that.
providers._get_local_constants = lambda: providers._local_constants

# A compile makes hundreds of thousands of objects that live as long as it does, and next to no cycles: to look for these
# as often as the defaults say took a tenth of the time of the net's cases that were looked at; every 50,000 objects
# takes 9 % of the time of compiles, every million 5 % and 90 MB.
gc.set_threshold(1_000_000, 20, 50)

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def no_strategy_is_left() -> Iterator[None]:
    """A strategy that a test or a page registers is gone after it."""
    with own_strategies():
        yield


def edge_sizes(tile: int) -> list[int]:
    """Every way a size can sit against a tile, ascending.

    Nothing, one, one short of a tile, a tile, one over, several tiles, several and a ragged end.
    """
    return sorted({0, 1, tile - 1, tile, tile + 1, 3 * tile, 3 * tile + 5})


def slow(*values: object) -> object:
    """A parameter that `make test` leaves out: others of the test stand for it there."""
    return pytest.param(*values, marks=pytest.mark.slow)


def refusals(page: str, names: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What a page shows, by title: a call that is to be made, or values, and the text of the refusal.

    page   paragraphs: a title, or none; lines ``>>> call``, or ``given value, value``; the text
    names  what calls and values mention
    """
    table: dict[str, tuple[Any, ...]] = {}
    for paragraph in page.strip("\n").split("\n\n"):
        title, calls, values, text = PARAGRAPH.fullmatch(paragraph).groups()  # type: ignore[union-attr]
        code = (calls or values).replace(">>> ", "")
        case = eval(f"({values},)", names) if values else (partial(_run, code, names),)
        table[title or code.strip()] = (*case, text)
    return table


@contextmanager
def rejection(text: str) -> Iterator[None]:
    """Check that what runs inside ends with an error, as the last lines of a traceback show it: ``Class: text``."""
    with pytest.raises(Exception) as error:  # noqa: PT011
        yield
    assert f"{type(error.value).__name__}: {error.value}" == text


PARAGRAPH = re.compile(r"(?:(?!>>>|given )(.*)\n)?(?:((?:>>> .*\n)+)|given (.*)\n)((?:.|\n)*)")


def _run(code: str, names: dict[str, Any]) -> None:
    exec(code, {**names})


EQUAL = frozenset({"instances", "in bounds", "data flow", "results"})
"""The theorems by which a loop program computes what another one does."""


def proved(cut: Partition) -> set[str]:
    """The names of the theorems of a partition, its emitted program read back."""
    return {theorem.name for theorem in cut.prove().theorems}


def points(found: isl.Set, *sizes: int) -> list[tuple[int, ...]]:
    """The points of a set at these values of its parameters, by position; none when it is empty."""
    for position, size in enumerate(sizes):
        found = found.fix_val(isl.dim_type.param, position, isl.Val(size))
    listed: list[tuple[int, ...]] = []
    rank = found.dim(isl.dim_type.set)

    def add(point: isl.Point) -> None:
        at = (point.get_coordinate_val(isl.dim_type.set, k) for k in range(rank))
        listed.append(tuple(int(value.to_python()) for value in at))

    found.foreach_point(add)
    return listed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files, remove the orphans"
    )
    parser.addoption(
        "--machine-part",
        default="",
        help="STEP/TURN: of the tests that a machine can change, one of so many (tests/variants.py)",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("isa"):
        lacking = sorted(set(marker.args) - hooked("host")().features)
        if lacking:
            pytest.skip(f"{llvm.get_host_cpu_name()} lacks, or hides, {', '.join(lacking)}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave one case of `step` of a test to `make test`, drawn by their names, and the others to all.

    On another machine each case has its turn.
    """
    if part := config.getoption("--machine-part"):
        leave_machine_part(config, items, *map(int, part.split("/")))
        return
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("every") and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for drawn in cases.values():
        drawn.sort(key=lambda item: crc32(item.nodeid.encode()))
        marker = drawn[0].get_closest_marker("every")
        assert marker is not None
        for item in drawn[-(-len(drawn) // marker.args[0]) :]:
            item.add_marker("slow")


def leave_machine_part(
    config: pytest.Config, items: list[pytest.Item], step: int, turn: int
) -> None:
    """Leave one test of `step`, of those that a machine can change."""
    depends = {path: depends_on_machine(path) for path in {item.path for item in items}}
    drawn = [
        depends[item.path] and crc32(item.nodeid.encode()) % step == turn % step for item in items
    ]
    config.hook.pytest_deselected(
        items=[item for item, kept in zip(items, drawn, strict=True) if not kept]
    )
    items[:] = [item for item, kept in zip(items, drawn, strict=True) if kept]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported and collected stays, and is not looked through for cycles; a model does not count it to find that out."""
    aside = ExitStack()
    aside.enter_context(old_objects_aside())
    session.config.add_cleanup(aside.close)


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Arguments of each call that reached the slow path."""
    calls: list[object] = []
    slow_path = facade.SlowPath
    run = slow_path.__call__

    def counted(self: Any, *args: object, **kwargs: object) -> object:
        calls.append((args, kwargs))
        return run(self, *args, **kwargs)

    monkeypatch.setattr(slow_path, "__call__", counted)
    return calls


@pytest.fixture
def updating(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(updating: bool) -> Callable[[str, str], None]:
    """``golden(name, text)``: `text` is what ``tests/golden/<name>`` holds."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if updating:
            path.write_text(text + "\n", encoding="utf-8")
        assert path.exists(), f"{name} is not there: --update-golden writes it"
        assert text + "\n" == path.read_text(encoding="utf-8")

    return check
