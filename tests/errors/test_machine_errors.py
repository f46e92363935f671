"""Every refusal of a machine description, in full: the file, its line, the field."""

from __future__ import annotations

from pathlib import Path

import pytest

import offcut as oc
from offcut.costmodel import load
from offcut.errors import TargetError

LIKE = 'name = "mine"\nlike = "cascade-lake"\n'

REFUSED = {
    "a field that there is not": (
        LIKE + "[core]\nhertzes = 3e9\n",
        ":4  core.hertzes",
        "a Core has hertz, multiply_adds, loads, latency_cycles, code_bytes, source",
    ),
    "a text for a number": (
        LIKE + '[core]\nhertz = "3 GHz"\n',
        ":4  core.hertz",
        "it is a number above 0, got '3 GHz'",
    ),
    "a number below 0": (
        LIKE + "\n[threads]  # of one call\nchunk = -1\n",
        ":5  threads.chunk",
        "it is an int above 0, got -1",
    ),
    "no finite number": (
        LIKE + "[core]\nhertz = inf\n",
        ":4  core.hertz",
        "it is a number above 0, got inf",
    ),
    "a float for an int": (
        LIKE + "[tiles]\nunroll = 4.0\n",
        ":4  tiles.unroll",
        "it is an int above 0, got 4.0",
    ),
    "a text that is empty": (LIKE + 'title = ""\n', ":3  title", "it is a text, got ''"),
    "a number for a table": (LIKE + "core = 3\n", ":3  core", "it is a table, [core]"),
    "a number for a list": (
        LIKE + "features = 3\n",
        ":3  features",
        "it is a list, got 3",
    ),
    "a list without numbers": (
        LIKE + "[tiles]\nvectors_32 = []\n",
        ":4  tiles.vectors_32",
        "it is a list, got []",
    ),
    "a machine that there is not": (
        'like = "zen9"\n',
        ":1  like",
        "no description that is shipped is named 'zen9'",
    ),
    "a table that lacks": (
        LIKE + '[[memory]]\nname = "L1"\n',
        ":3  memory.0.bytes",
        "it is not stated, and no like= states it",
    ),
    "a loop that is not unrolled": (
        LIKE + "[tiles]\nunroll = 6\n",
        ":4  tiles.unroll",
        "it is a power of 2, at least 4, got 6",
    ),
    "a thread that never sleeps": (
        LIKE + "[threads]\nspin_cycles = 3000000000\n",
        ":3  threads",
        "spin_cycles, recent_cycles are at most 2147483647",
    ),
    "a second table that is wrong": (
        LIKE + '[[memory]]\nname = "L1"\nbytes = 1\nways = 1\nbytes_per_cycle = 1\nsource = "so"\n'
        "[[memory]]\nbytes = true\n",
        ":9  memory.1.name",
        "it is not stated, and no like= states it",
    ),
    "an element of a list": (
        LIKE + "[tiles]\nvectors_32 = [2, 4, 0]\n",
        ":4  tiles.vectors_32.2",
        "it is an int above 0, got 0",
    ),
    "a file that lacks": ('name = "mine"\n', "  title", "it is not stated, and no like= states it"),
    "two levels of memory": (
        LIKE
        + '[[memory]]\nname = "L1"\nbytes = 1\nways = 1\nbytes_per_cycle = 1\nsource = "it is so"\n',
        "  memory",
        "packed operands stream from the third of its levels",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_at_its_line(name: str, tmp_path: Path) -> None:
    text, where, because = REFUSED[name]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(TargetError) as refused:
        load(path)
    assert str(refused.value) == (
        f"target: cannot read the machine mine.toml\n  at       {path}{where}\n  because  {because}"
    )


def test_what_is_no_toml_is_refused_with_what_its_parser_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[core\n")
    with pytest.raises(TargetError) as refused:
        load(path)
    first, at, because = str(refused.value).splitlines()
    assert first == "target: cannot read the machine mine.toml"
    assert at == f"  at       {path}"
    assert because.startswith("  because  it is no TOML: ")
    assert "line 1" in because


def test_a_file_that_is_not_there_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    for because in ("No such file or directory", "it is no text in UTF-8"):
        with pytest.raises(TargetError) as refused:
            load(path)
        assert str(refused.value) == (
            "target: cannot read the machine mine.toml\n"
            f"  at       {path}\n"
            f"  because  {because}\n"
            "  help     a description that is shipped: "
            "cascade-lake, neoverse-n1, sapphire-rapids, zen4"
        )
        path.write_bytes(b"\xff\xfe")


def test_a_name_that_is_not_shipped_is_refused_with_those_that_are() -> None:
    with pytest.raises(TargetError) as refused:
        load("zen9")
    assert str(refused.value) == (
        "target: cannot plan for machine='zen9'\n"
        "  because  no description that is shipped has that name\n"
        "  help     cascade-lake, neoverse-n1, sapphire-rapids, zen4\n"
        '  help     machine="mine.toml" reads a file'
    )


def test_a_machine_is_a_name_a_path_or_a_description() -> None:
    with pytest.raises(oc.TargetError) as refused:
        oc.target("cpu", machine=3)  # type: ignore[arg-type]
    assert (
        str(refused.value)
        == """\
target: cannot plan for machine=3
  because  a machine is the name of a description, the path of one, or a Machine
  help     cascade-lake, neoverse-n1, sapphire-rapids, zen4"""
    )
