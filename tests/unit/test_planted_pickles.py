"""What is read is data: a pickle that somebody plants where offcut reads runs nothing."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import offcut as oc
from offcut.errors import OffcutError
from offcut.ir import Binary, Var
from tests import facade
from tests.facade import CorrectedModel, Dataset, Valued, unpickle

PACKAGE = Path(oc.__file__).parent


class Planted:
    """What makes a folder where its pickle is read by `pickle.loads`."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.mkdir, (self.mark,)


def model_of_the_cache(data: bytes, folder: Path) -> None:
    facade.cached("0" * 64, data)
    assert facade.cached_model("0" * 64) is None


def nearest_machine(data: bytes, folder: Path) -> None:
    features = frozenset({"avx2"})
    facade.cached(facade.cached_nearest_key("x86_64", features), data)
    cached, nearest = facade.cached_nearest("x86_64", features)
    assert cached == nearest


def expected_results(data: bytes, folder: Path) -> None:
    facade.expected_results_file(folder, 0).write_bytes(data)
    with pytest.raises(pickle.UnpicklingError, match="is not a class of data"):
        facade.expected_results(folder, 0)


def array_of_objects(data: bytes, folder: Path) -> None:
    class Held:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return pickle.loads, (data,)

    np.savez(folder / "rows.npz", names=np.array([Held()], object), allow_pickle=True)
    with pytest.raises(OffcutError, match="it holds no rows"):
        Dataset.load(folder / "rows.npz")


def inputs_of_a_run(data: bytes, folder: Path) -> None:
    (folder / "x.npy").write_bytes(data)
    (folder / "m.onnx").write_bytes(b"")
    done = CliRunner().invoke(
        facade.app, ["run", str(folder / "m.onnx"), "--input", f"x={folder}/x.npy"]
    )
    assert done.exit_code != 0


def as_a_file_of(read: Callable[[Path], object]) -> Callable[[bytes, Path], None]:
    def plant(data: bytes, folder: Path) -> None:
        (folder / "file").write_bytes(data)
        with pytest.raises(OffcutError):
            read(folder / "file")

    return plant


READERS: dict[str, Callable[[bytes, Path], None]] = {
    "the steps of a model in the cache": model_of_the_cache,
    "the nearest machine in the cache": nearest_machine,
    "what results must be": expected_results,
    "rows that are learned from": array_of_objects,
    "the inputs of a run": inputs_of_a_run,
    "records": as_a_file_of(lambda path: list(oc.Records(path))),
    "records that are handed over": as_a_file_of(lambda path: facade.handed_over(path)),
    "a learned model": as_a_file_of(CorrectedModel.load),
    "a machine": as_a_file_of(lambda path: facade.load_machine(str(path))),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_planted_pickle_runs_nothing(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "place").mkdir()
    mark = tmp_path / "it ran"

    READERS[reader](pickle.dumps(Planted(mark)), tmp_path / "place")

    assert not mark.exists()


def test_what_is_planted_would_run_elsewhere(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Planted(tmp_path / "it ran")))

    assert (tmp_path / "it ran").exists()


@pytest.mark.parametrize(
    "name",
    [
        "os system",
        "builtins eval",
        "builtins getattr",
        "offcut.search.job_runner JobRunner.run",
        "offcut.search.job_runner subprocess",
        "offcut.pipeline compile",
        "offcut.no_such_module Data",
        "numpy load",
        "numpy.lib.npyio load",
    ],
)
def test_a_pickle_of_data_names_classes_alone(name: str) -> None:
    module, function = name.split()
    planted = b"\x80\x04" + _text(module) + _text(function) + b"\x93."

    with pytest.raises(pickle.UnpicklingError, match="is not a class of data"):
        unpickle(planted)


def _text(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def test_arrays_and_plain_values_are_read_as_they_were() -> None:
    plain = (np.float32(2), {1}, frozenset("a"), 1j, b"x", np.dtype("i4"))
    value = (np.arange(6.0).reshape(2, 3), *plain)
    read = unpickle(pickle.dumps(value))

    assert np.array_equal(read[0], value[0])
    assert read[1:] == value[1:]


def test_an_extent_is_arithmetic_alone() -> None:
    planted = Binary("+ __import__('os').abort() +", Var("n"), Var("n"))

    with pytest.raises(ValueError, match="no extent"):
        Valued([planted], ["n"])


# Why each of these, which may run what it reads, reads what only this process or the user wrote.
TRUSTED = {
    "backends/accelerator/lowering/python_codegen.py exec": "loops of a program, printed",
    "backends/gpu/launches.py eval": "arithmetic, of which every node is checked",
    "core/memo.py exec": "constructors of the names of fields of classes here",
    "core/unpickle.py Unpickler": "the reader that looks names up here",
    "graph/models/compiling/compile_pool.py load": "a pipe from the process that started this one",
    "graph/sizes/extent_values.py eval": "arithmetic of sizes, of known operators",
    "plugins/torch/traced_program.py eval": "arithmetic, of which every node is checked",
    "search/child_process.py loads": "a pipe to a child of this process",
    "search/child_process.py recv": "a pipe from the process that started this one",
    "search/job_runner.py recv": "a pipe from a child of this process",
    "studies/peers/loops.py exec": "loops of a program, printed",
    "tuning/pooled_bench.py loads": "a member of the pool, who showed its certificate",
}


READS = ("eval", "exec", "pickle", "marshal", "dill", "joblib", "shelve", "load", "recv")


def calls_that_read() -> Iterator[tuple[str, ast.AST]]:
    """Each node of the sources that could be such a call, with the file that it is in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(f"{word}(" in text or f"import {word}" in text for word in READS):
            file = path.relative_to(PACKAGE).as_posix()
            yield from ((file, node) for node in ast.walk(ast.parse(text)))


def test_what_may_run_what_it_reads_is_known() -> None:
    used = set()
    for file, node in calls_that_read():
        match node:
            case ast.Call(ast.Name("eval" | "exec" as name)):
                used.add(f"{file} {name}")
            case ast.Attribute(
                ast.Name("pickle" | "marshal" | "cloudpickle" | "dill" | "joblib" | "shelve"),
                "load" | "loads" | "Unpickler" | "open" as name,
            ):
                used.add(f"{file} {name}")
            case ast.Call(ast.Attribute(_, "recv"), [], []):  # of a connection, which unpickles
                used.add(f"{file} recv")
            case ast.Attribute(ast.Name("torch"), "load"):
                used.add(f"{file} torch.load")
            case ast.Call(ast.Attribute(ast.Name("np" | "numpy"), "load"), _, keywords):
                allowed = [one.value for one in keywords if one.arg == "allow_pickle"]
                if [ast.unparse(value) for value in allowed] != ["False"]:
                    used.add(f"{file} numpy.load")

    assert used == set(TRUSTED)
