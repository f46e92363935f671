"""What the loops of characteristic programs become, cut or rid of the conditions that sets can answer, word for word.

Each program of `sources` says in its first two lines what is to be seen, and what is done with it: ``separate``, or tiles and a
strategy; the file of its name in `loops` is what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import offcut as oc
from tests.facade import separate

HERE = Path(__file__).parent
SOURCES = {path.stem: path for path in sorted((HERE / "sources").glob("*.offcut"))}


def emitted(text: str) -> oc.Program:
    """Return what becomes of a program, as its second line says."""
    program, how = oc.parse(text), text.splitlines()[1].removeprefix("# ")
    if how == "separate":
        return separate(program).program
    tiles, _, tail = how.partition("; ")
    tile = {}
    for one in tiles.split(", "):
        axis, _, sizes = one.partition("=")
        levels = tuple(map(int, sizes.split("/")))
        tile[axis] = levels if len(levels) > 1 else levels[0]
    return oc.partition(program, tile=tile, tail=tail).loops


@pytest.mark.parametrize("name", SOURCES)
def test_loops_become_what_they_did(name: str, golden: Callable[[str, str], None]) -> None:
    made = emitted(SOURCES[name].read_text(encoding="utf-8"))
    golden(f"loops/{name}.offcut", str(made))
    assert oc.parse(str(made)) == made


def test_every_golden_file_belongs_to_a_source(updating: bool) -> None:
    orphans = [path for path in (HERE / "loops").glob("*.offcut") if path.stem not in SOURCES]
    if updating:
        for path in orphans:
            path.unlink()
        orphans = []
    assert not orphans
