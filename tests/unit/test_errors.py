"""Errors as objects: one process raises what another prints."""

from __future__ import annotations

import copy
import errno
import os
import pickle
from pathlib import Path

import pytest

from offcut import errors
from offcut.errors import DescribeError, InternalError, OffcutError, blamed_on_another
from offcut.experiment.outputs import check_writable

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, OffcutError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_refusal_comes_back_from_a_pickle_with_its_text(kind: type[OffcutError]) -> None:
    for error in (
        kind("dim", "cannot name it", because="it has no name"),
        kind("dim", "cannot name it", at="size n", because="it has no name", help=("n", "m")),
    ):
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is kind
            assert str(again) == str(error)
            assert vars(again) == vars(error)


def test_a_refusal_says_what_where_why_and_what_else() -> None:
    error = OffcutError("dim", "cannot name it", at="size n", because="it is long", help=("n", "m"))
    assert str(error) == (
        "dim: cannot name it\n  at       size n\n  because  it is long\n  help     n\n  help     m"
    )


def test_a_bug_of_offcut_comes_back_from_a_pickle_with_its_text() -> None:
    error = InternalError("a tile of no height")
    for again in (pickle.loads(pickle.dumps(error)), pickle.loads(pickle.dumps(copy.copy(error)))):
        assert type(again) is InternalError
        assert str(again) == (
            "a tile of no height\n"
            "  this is a bug in offcut; `python -m offcut.report` writes what to send"
        )


class OverTime(Exception):
    pass


@pytest.mark.parametrize(
    "error", [DescribeError("dim", "no name", because="none"), InternalError("a bug"), OverTime()]
)
def test_what_is_of_offcut_comes_out_of_a_function_of_another_as_it_is(error: Exception) -> None:
    def refused(did: str) -> OffcutError:
        return OffcutError("tune", "cannot ask it", because=f"it {did}")

    with pytest.raises(type(error)) as out, blamed_on_another(refused, OverTime):
        raise error
    assert out.value is error
    with pytest.raises(OffcutError) as told, blamed_on_another(refused, OverTime):
        raise KeyError("b")
    assert told.value.because == "it raised KeyError: 'b'"
    assert isinstance(told.value.__cause__, KeyError)


def test_what_was_refused_and_where_are_echoed_in_few_characters() -> None:
    long = "x + " * 1000
    error = OffcutError("compute", f"cannot take {long}", at=long, because=long)
    first, at, because = str(error).splitlines()
    assert first == f"compute: {f'cannot take {long}'[:400]}…"
    assert at == f"  at       {long[:400]}…"
    assert because == f"  because  {long}"


def test_a_file_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    there, new = tmp_path / "there.csv", tmp_path / "folder" / "new.csv"
    there.write_text("kept")

    check_writable(there, "sweep")
    check_writable(new, "sweep")

    assert there.read_text() == "kept"
    assert new.parent.is_dir()
    assert not new.exists()


def test_a_file_that_cannot_be_written_is_refused_with_the_systems_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")

    with pytest.raises(OffcutError) as refused:
        check_writable(file / "sweep.csv", "sweep")

    assert str(refused.value) == (
        "sweep: cannot write sweep.csv\n"
        f"  at       {file}/sweep.csv\n"
        f"  because  {os.strerror(errno.ENOTDIR)}\n"
        "  help     another path, in a folder that can be written"
    )
