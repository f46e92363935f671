"""Machine code as a shared library beside its file: it runs where numpy is the only package; what is not the library that was written
does not run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut.backends.host import shared_library
from offcut.backends.host.container import read_container
from tests.backends.test_saved import layer, refusal, rewritten, rows, views

pytestmark = pytest.mark.skipif(shutil.which("ld") is None, reason="the system has no linker")
ARM = {"x86_64": "neoverse-n1"}.get(os.uname().machine)
needs_other = pytest.mark.skipif(ARM is None, reason="this processor is no x86-64")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, oc.Kernel]:
    path, kernel = tmp_path_factory.mktemp("shared") / "layer.offcut", layer()
    kernel.save(path, shared=True)
    return path, kernel


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages: numpy and offcut."""
    folder = tmp_path_factory.mktemp("packages")
    home = Path(np.__file__).parent
    for one in (home, home.parent / "numpy.libs", Path(oc.__file__).parent):
        if one.exists():
            (folder / one.name).symlink_to(one)
    return folder


def alone(packages: Path, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python where numpy and offcut are the only packages."""
    head = f"import sys; sys.path.append({str(packages)!r}); import numpy as np, offcut as oc\n"
    command = [sys.executable, "-I", "-S", "-c", head + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("n", [0, 1, 13, 14, 15, 43, 64])
def test_the_library_gives_the_bits_of_the_kernel(file: tuple[Path, oc.Kernel], n: int) -> None:
    path, kernel = file
    for loaded in (oc.load(path), oc.load(path.with_suffix(".so"))):
        np.testing.assert_array_equal(loaded(rows(n)), kernel(rows(n)))
    assert "code.o" not in read_container(path)[1]


def test_kernels_and_models_run_where_numpy_is_the_only_package(
    file: tuple[Path, oc.Kernel], packages: Path, tmp_path: Path
) -> None:
    path, kernel = file
    model, x = views(), rows(7, 6)
    model.save(tmp_path / "views.offcut", shared=True)
    np.save(tmp_path / "x.npy", x)
    code = """
kernel, model, x = oc.load(sys.argv[1]), oc.load(sys.argv[2]), np.load(sys.argv[3])
np.savez(sys.argv[4], kernel(np.load(sys.argv[5])), *model(x))
outside = {name.partition(".")[0] for name in sys.modules} - {*sys.stdlib_module_names}
assert outside <= {"numpy", "offcut", "__main__"}, outside
"""
    np.save(tmp_path / "rows.npy", rows(5))
    given = [
        path,
        tmp_path / "views.offcut",
        *(tmp_path / n for n in ("x.npy", "r.npz", "rows.npy")),
    ]
    done = alone(packages, code, *given)
    assert done.returncode == 0, done.stderr
    results = [*np.load(tmp_path / "r.npz").values()]
    for result, wanted in zip(results, (kernel(rows(5)), *model(x)), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_code_within_a_file_asks_for_its_loader(
    packages: Path, file: tuple[Path, oc.Kernel], tmp_path: Path
) -> None:
    file[1].save(tmp_path / "layer.offcut")
    n = oc.dim("n", max=8)
    halves = oc.compute((n,), lambda i: oc.placeholder((n,), "bfloat16", name="X")[i], name="Y")
    oc.compile(halves).save(tmp_path / "halves.offcut", shared=True)
    code = """
for path in sys.argv[1:]:
    try:
        oc.load(path)
    except oc.TargetError as refused:
        print(refused)
"""
    done = alone(packages, code, tmp_path / "layer.offcut", tmp_path / "halves.offcut")
    assert done.stdout == (
        "load: cannot run Y of layer.offcut here\n"
        "  because  its machine code is an object file, which llvmlite loads, and llvmlite is not installed\n"
        "  help     pip install llvmlite\n"
        "  help     save(path, shared=True)\n"
        "load: cannot run Y of halves.offcut here\n"
        "  because  numpy has bfloat16 by ml_dtypes alone, and ml_dtypes is not installed\n"
        "  help     pip install ml_dtypes\n"
    ), done.stderr


def test_what_compiles_says_which_package_it_lacks(packages: Path) -> None:
    code = """
for name in ("dim", "compile", "ops", "from_onnx"):
    try:
        getattr(oc, name)
    except oc.TargetError as refused:
        print(refused)
import offcut.__main__
offcut.__main__.main()
"""
    done = alone(packages, code)
    said = [line for line in done.stdout.splitlines() if not line.startswith("  help")]
    assert said == [
        line
        for name, package in (
            *(
                ("dim", "sympy"),
                ("compile", "llvmlite"),
                ("ops", "sympy"),
                ("from_onnx", "llvmlite"),
            ),
        )
        for line in (
            f"import: cannot import offcut.{name}",
            f"  because  {package} is not installed: without it, only what was saved is run",
        )
    ]
    assert done.returncode == 2
    assert done.stderr == (
        "import: cannot import the command offcut\n"
        "  because  typer is not installed: without it, only what was saved is run\n"
        "  help     pip install . in the folder of offcut\n"
        "  help     offcut.load(path) of a saved kernel or model\n"
    )


def test_a_library_that_is_not_the_one_that_was_written_is_refused(
    file: tuple[Path, oc.Kernel], tmp_path: Path
) -> None:
    path, library = tmp_path / "layer.offcut", tmp_path / "layer.so"
    shutil.copy(file[0], path)
    assert refusal(path) == (
        f"load: cannot read {path}\n"
        "  because  its machine code is in layer.so, which is not beside it"
    )
    data = file[0].with_suffix(".so").read_bytes()
    damaged = f"load: cannot read {path}\n  because  its machine code cannot be loaded from layer.so: it is damaged, or of another file"
    for end in (0, 1, 64, len(data) // 2, len(data) - 1):
        library.write_bytes(data[:end])
        assert refusal(path) == damaged
    for at in np.random.default_rng(0).integers(0, len(data), 60).tolist():
        library.write_bytes(data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :])
        assert refusal(path) == damaged
    library.unlink()
    library.mkdir()
    assert "Is a directory" in refusal(path)


def test_what_a_manifest_says_of_a_library_is_checked(
    file: tuple[Path, oc.Kernel], tmp_path: Path
) -> None:
    given = dict(read_container(file[0])[0]["library"])
    folder = tmp_path / "other"
    folder.mkdir()
    shutil.copy(file[0].with_suffix(".so"), folder / "layer.so")
    path = folder / "layer.offcut"
    for wrong in ({"name": "../layer.so"}, {"name": ""}, {"bytes": "many"}, {"crc32": None}):
        text = refusal(rewritten(file[0], path, library={**given, **wrong}))
        assert "its manifest is incomplete" in text
    for other in (7, [], "layer.so"):
        assert "its manifest is incomplete" in refusal(rewritten(file[0], path, library=other))
    rewritten(file[0], path)
    np.testing.assert_array_equal(oc.load(path)(rows(3)), file[1](rows(3)))
    assert "No such file" in refusal(tmp_path / "nothing.so")
    shutil.copy(path, folder / "renamed.offcut")
    because = "its machine code is not renamed.so, but in layer.so"
    assert because in refusal(folder / "renamed.so")
    file[1].save(folder / "plain.offcut")
    because = "its machine code is not plain.so, but in the file itself"
    assert because in refusal(folder / "plain.so")


def test_a_file_that_was_written_anew_runs_its_own_code(tmp_path: Path) -> None:
    n, path = oc.dim("n", max=8), tmp_path / "scale.offcut"
    x = oc.placeholder((n,), name="X")
    loaded, given = list[Any](), np.arange(5, dtype=np.float32)
    for scale in (2.0, 3.0, 4.0):
        oc.compile(oc.compute((n,), lambda i, s=scale: x[i] * s, name="Y")).save(path, shared=True)
        loaded += [oc.load(path), oc.load(path)]
    for number, kernel in enumerate(loaded):
        np.testing.assert_array_equal(kernel(given), given * (2 + number // 2))


def test_loading_again_opens_no_more_files(file: tuple[Path, oc.Kernel]) -> None:
    for _ in range(5):
        oc.load(file[0])
    there = [os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")]
    assert there.count(str(file[0].with_suffix(".so"))) == 1


def test_where_no_linker_is_or_it_fails_nothing_is_written(
    file: tuple[Path, oc.Kernel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kernel = tmp_path / "layer.offcut", file[1]
    with rejection(
        f"DescribeError: save: cannot write {tmp_path / 'layer.so'}\n"
        "  because  its shared library would have the same name\n"
        f"  help     {path}"
    ):
        kernel.save(tmp_path / "layer.so", shared=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(shared_library, "is_installed", lambda package: False)
    with rejection(
        "TargetError: save: cannot make a shared library of Y\n"
        f"  because  there is no linker for {os.uname().machine}\n"
        "  help     ld of binutils, or ld.lld, on the path\n"
        '  help     this needs the extra "shared": pip install ".[shared]" in the folder of offcut'
    ):
        kernel.save(path, shared=True)
    linker = tmp_path / "ld"
    linker.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    linker.chmod(0o755)
    with rejection(
        f"TargetError: save: cannot make a shared library of Y\n  because  {linker}: no room"
    ):
        kernel.save(path, shared=True)
    assert [*tmp_path.iterdir()] == [linker]


@needs_other
def test_code_for_another_architecture_is_saved_and_refused_here(tmp_path: Path) -> None:
    n = oc.dim("n", max=64)
    x, w = oc.placeholder((n, 19), name="X"), oc.placeholder((19, 37), name="W")
    held = np.random.default_rng(1).standard_normal((19, 37), dtype=np.float32)
    there = oc.target("cpu", machine=ARM)
    kernel = oc.compile(oc.ops.matmul(x, w, name="Y"), constants={"W": held}, target=there)
    path = tmp_path / "layer.offcut"
    kernel.save(path)
    manifest, members = read_container(path)
    assert manifest["triple"].startswith("aarch64")
    assert "dotprod" in manifest["features"]
    assert bytes(members["code.o"][18:20]) == b"\xb7\x00"  # the machine of an ELF file: AArch64
    assert refusal(path).startswith(
        "load: cannot run Y of layer.offcut here\n  because  it is for aarch64, and this process runs on x86_64"
    )
    with pytest.raises(oc.TargetError, match="cannot run code for neoverse-n1 here"):
        kernel(rows(3))
    made = kernel.export(tmp_path)
    assert made.object.read_bytes()[18:20] == b"\xb7\x00"
    assert "aarch64" in made.header.read_text()


@needs_other
def test_a_library_of_another_architecture_does_not_run(
    file: tuple[Path, oc.Kernel], tmp_path: Path
) -> None:
    path = rewritten(file[0], tmp_path / "layer.offcut", triple="aarch64-unknown-linux-gnu")
    (tmp_path / "layer.so").write_bytes(b"whatever")
    assert "it is for aarch64" in refusal(path)
