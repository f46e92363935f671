"""Families of tests reach offcut by its public face and by the facade alone, and all that the facade names is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import facade

TESTS = Path(facade.__file__).parent
FAMILIES = {
    "goldens": ["golden"],
    "differential net": ["differential", "tile_unit.py"],
    "planted faults": [
        "corruptions.py",
        "planted_jobs.py",
        "planted_target.py",
        "planted_times.py",
        "spaces.py",
        "unit/test_planted_pickles.py",
        "unit/test_planted_windows.py",
        "unit/test_proof_of_passes.py",
    ],
    "conformance": ["conformance"],
    "what all share": ["agree.py", "conftest.py", "machines.py"],
}
PUBLIC = {"offcut", "offcut.errors", "offcut.ir"}


def imports(path: Path) -> Iterator[str]:
    """The modules of offcut that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names):
                found = [one.name for one in names]
            case ast.ImportFrom(module, level=0) if module is not None:
                found = [module]
            case _:
                continue
        yield from (name for name in found if name.split(".")[0] == "offcut")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_imports_the_public_face_and_the_facade_alone(family: str) -> None:
    places = [TESTS / name for name in FAMILIES[family]]
    files = [
        file for place in places for file in ([place] if place.suffix else place.rglob("*.py"))
    ]
    assert files
    inside = {f"{file.name}: {name}" for file in files for name in imports(file)}
    assert not {one for one in inside if one.split(": ")[1] not in PUBLIC}


def test_all_that_the_facade_names_is_there() -> None:
    for name in facade._NAMES:
        assert getattr(facade, name) is not None
    for name in facade.HOOKS:
        assert callable(facade.hooked(name))
    with pytest.raises(AttributeError, match="no 'no_such_name'"):
        facade.no_such_name  # noqa: B018  # the look-up is what is tested


def test_all_that_the_facade_names_is_used() -> None:
    texts = "\n".join(
        path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path.name != "facade.py"
    )
    functions = [
        node.name
        for node in ast.parse(Path(facade.__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    names = [*facade._NAMES, *functions]
    assert not [name for name in names if not _mentions(texts, name)]


def _mentions(text: str, name: str) -> bool:
    return any(f"{before}{name}" in text for before in (" ", ".", "(", "\n"))


def test_a_hook_gives_back_what_it_took() -> None:
    host = facade.hooked("host")
    with facade.instead("host", None) as before:
        assert before is host
        assert facade.hooked("host") is None
    assert facade.hooked("host") is host
