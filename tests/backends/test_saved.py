"""Kernels and models as files: loaded where there is no compiler, with the bits of what was saved; what is damaged is refused."""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import contraction
from conftest import rejection

import offcut as oc
from offcut.backends.cpu.threads import pool
from offcut.backends.host.container import MANIFEST, PAGE, read_container, write_container
from offcut.backends.host.saved_file import SavedModel
from tests.facade import Builder, Model, compile_graph
from tests.graphs import SIZES, arrays, drawn
from tests.unit.test_graph_minimal import is_minimal, windows


def layer() -> oc.Kernel:
    """A dense layer with packed weights."""
    n = oc.dim("n", max=64)
    x, w = oc.placeholder((n, 19), name="X"), oc.placeholder((19, 37), name="W")
    k = oc.reduce_axis(19, name="k")
    y = oc.compute((n, 37), lambda i, j: oc.sum(x[i, k] * w[k, j], axis=k), name="Y")
    held = np.random.default_rng(1).standard_normal((19, 37), dtype=np.float32)
    return oc.compile(y, inputs=[x, w], constants={"W": held})


def rows(count: int, columns: int = 19) -> Any:
    return np.random.default_rng(count).standard_normal((count, columns), dtype=np.float32)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, oc.Kernel]:
    path, kernel = tmp_path_factory.mktemp("saved") / "layer.offcut", layer()
    kernel.save(path)
    return path, kernel


@pytest.mark.parametrize("n", [0, 1, 13, 14, 15, 43, 64])
def test_a_loaded_kernel_gives_the_bits_of_the_one_that_was_saved(
    file: tuple[Path, oc.Kernel], n: int
) -> None:
    path, kernel = file
    loaded, x = oc.load(path), rows(n)
    np.testing.assert_array_equal(loaded(x), kernel(x))
    np.testing.assert_array_equal(loaded(X=x[::-1]), kernel(x[::-1]))
    out = np.empty((n, 37), np.float32)
    assert loaded(x, out=out) is out
    np.testing.assert_array_equal(out, kernel(x))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded))(x), kernel(x))


def test_a_process_that_loads_a_file_imports_no_compiler(file: tuple[Path, oc.Kernel]) -> None:
    path, _ = file
    code = f"""import sys, numpy, offcut as oc
kernel = oc.load({str(path)!r})
assert kernel(numpy.ones((3, 19), "float32")).shape == (3, 37)
packages = {{"islpy", "sympy", "onnx", "torch", "rich", "typer"}}
rooms = {{f"offcut.{{one}}" for one in ("pipeline", "proof", "polyhedral", "schedule", "partition", "costmodel", "graph", "describe")}}
assert not (packages | rooms) & set(sys.modules), (packages | rooms) & set(sys.modules)
"""
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "OFFCUT_CACHE": "off"}
    )


@pytest.mark.parametrize(
    "seed", [3, 6, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, *range(7, 40)))]
)
def test_a_loaded_model_gives_the_bits_of_the_one_that_was_saved(seed: int, tmp_path: Path) -> None:
    bound = drawn(seed)
    model = compile_graph(bound, threads=1)
    model.save(tmp_path / "drawn.offcut")
    loaded = oc.load(tmp_path / "drawn.offcut")
    for b, n in ((1, 1), (1, SIZES["n"]), (3, 2), (SIZES["b"], SIZES["n"])):
        given = arrays(bound, seed, b=b, n=n)
        wanted, results = model(given), loaded(given)
        assert {*wanted} == {*results}
        for name, array in wanted.items():
            np.testing.assert_array_equal(results[name], array)


def test_data_that_fewer_products_cannot_take_run_as_they_are_written(tmp_path: Path) -> None:
    bound = windows(2, padding=1)
    model = compile_graph(bound, threads=1)
    assert is_minimal(model)
    model.save(tmp_path / "windows.offcut")
    loaded = oc.load(tmp_path / "windows.offcut")
    (name,) = bound.graph.outputs
    given = arrays(bound, 3, n=2, h=5, w=4)
    for scale in (1.0, 1e36):
        data = {key: array * np.float32(scale) for key, array in given.items()}
        np.testing.assert_array_equal(loaded(data)[name], model(data)[name])


def views() -> Model:
    """Outputs that are an input, a constant, a part of another value, and one value twice."""
    made = Builder("views")
    n = made.size("n", 1, 9)
    x = made.input("x", "float32", (n, 6))
    y = made.node("relu", x)
    c = made.constant("c", np.arange(6, dtype=np.float32))
    turned = made.node("transpose", y, axes=[1, 0])
    made.output(turned, x, c, y, made.node("slice", y, 1, 1, 5, 2))
    return compile_graph(made.bound, threads=1)


def test_outputs_that_lie_in_other_memory_are_copied(tmp_path: Path) -> None:
    model = views()
    model.save(tmp_path / "views.offcut")
    loaded = oc.load(tmp_path / "views.offcut")
    x = rows(7, 6)
    for result, wanted in zip(loaded(x), model(x), strict=True):
        np.testing.assert_array_equal(result, wanted)
        assert not np.shares_memory(result, x)
    strided = np.asfortranarray(x)
    np.testing.assert_array_equal(loaded(strided)[0], model(x)[0])


def test_threads_call_one_loaded_model_at_once(tmp_path: Path) -> None:
    model = views()
    model.save(tmp_path / "views.offcut")
    loaded = oc.load(tmp_path / "views.offcut")
    inputs = [rows(1 + n % 9, 6) for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        results = [*pool.map(loaded, inputs)]
    for x, found in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(found[0], model(x)[0])


def test_a_size_at_which_a_model_does_not_run_is_refused_by_name(tmp_path: Path) -> None:
    made = Builder("parts")
    n = made.size("n", 1, 9)
    x = made.input("x", "float32", (n, 3))
    made.output(made.node("relu", made.node("slice", x, 0, 2, 5)))
    model = compile_graph(made.bound, threads=1)
    model.save(tmp_path / "parts.offcut")
    loaded = oc.load(tmp_path / "parts.offcut")
    np.testing.assert_array_equal(loaded(rows(7, 3)), model(rows(7, 3)))
    for run in (model, loaded):
        with pytest.raises(oc.CallError, match=r"cannot run at n = 4"):
            run(rows(4, 3))
    with pytest.raises(oc.CallError, match=r"2:5 of axis 0 is not within 0:n"):
        loaded(rows(4, 3))


def test_a_model_is_an_object_for_programs_without_python(tmp_path: Path) -> None:
    from offcut.backends.cpu.machine import isa, jit

    model = views()
    made = model.export(tmp_path, name="views")
    code = jit.load([made.object.read_bytes()], isa.host())
    header = made.header.read_text()
    assert "int32_t views(const float *x_, " in header
    assert "no strides" in header
    x, room = rows(4, 6), 4096
    wanted = model(x)
    outs = [np.empty(one.shape, np.float32) for one in wanted]
    scratch = ctypes.create_string_buffer(room + 64)
    start = ctypes.addressof(scratch)
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (x, *outs)]
    workspace = ctypes.c_void_p(start + -start % 64)
    sizes = (ctypes.c_int64 * 1)(4)
    need = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address("views_workspace"))(sizes)
    assert 0 <= need <= room
    assert ctypes.CFUNCTYPE(ctypes.c_int32)(code.address("views_supported"))() == 1
    run = ctypes.CFUNCTYPE(ctypes.c_int32)(code.address("views"))
    assert run(*pointers, ctypes.c_int64(4), workspace) == 0
    for one, expected in zip(outs, wanted, strict=True):
        np.testing.assert_array_equal(one, expected)
    assert run(*pointers, ctypes.c_int64(11), workspace) == 2


@pytest.mark.skipif(not pool.is_supported(), reason="this system has no pool of threads")
def test_a_file_runs_on_as_many_threads_as_it_was_compiled_for(tmp_path: Path) -> None:
    case = contraction("mk,kn->mn", {"k": 33, "n": 300})
    kernel = oc.compile(case.result, inputs=case.inputs, threads=3)
    made = Builder("products")
    x = made.input("x", "float32", (made.size("n", 1, 999), 64))
    w = made.constant("w", rows(64, 64))
    made.output(made.node("softmax", made.node("dense", made.node("dense", x, w), w)))
    model = compile_graph(made.bound, threads=3)
    given, other = (rows(4000, 33), rows(33, 300)), rows(800, 64)  # long enough to wait for threads
    code = """
import os, sys, numpy as np, offcut as oc
kernel, model = (oc.load(path) for path in sys.argv[1:3])
assert kernel.saved.threads == model.saved.threads == 3
alone = len(os.listdir("/proc/self/task"))
given = np.load(sys.argv[3])
results = [kernel(given["a"], given["b"]), model(given["c"])]
assert len(os.listdir("/proc/self/task")) > alone
child = os.fork()
if not child:  # it makes its own
    os._exit(0 if np.array_equal(kernel(given["a"], given["b"]), results[0]) else 1)
assert os.waitpid(child, 0)[1] == 0
np.savez(sys.argv[4], *results)
"""
    kernel.save(tmp_path / "kernel.offcut")
    model.save(tmp_path / "model.offcut")
    np.savez(tmp_path / "given.npz", a=given[0], b=given[1], c=other)
    names = ("kernel.offcut", "model.offcut", "given.npz", "results.npz")
    paths = [str(tmp_path / name) for name in names]
    subprocess.run([sys.executable, "-c", code, *paths], check=True)
    results = [*np.load(paths[-1]).values()]
    np.testing.assert_array_equal(results[0], kernel(*given))
    np.testing.assert_array_equal(results[1], model(other))
    again = [oc.load(paths[0]) for _ in range(2)]
    for loaded in again:
        np.testing.assert_array_equal(loaded(*given), kernel(*given))
    exported = kernel.export(tmp_path, "kernel")  # for programs that have threads of their own
    assert b"pthread_create" not in exported.object.read_bytes()
    assert b"pthread_create" in bytes(read_container(paths[0])[1]["code.o"])


def refusal(path: Path) -> str:
    with pytest.raises(oc.OffcutError) as refused:
        oc.load(path)
    return str(refused.value)


def test_a_file_cut_short_anywhere_is_refused(file: tuple[Path, oc.Kernel], tmp_path: Path) -> None:
    data = file[0].read_bytes()
    cut = tmp_path / "cut.offcut"
    for end in {*range(0, len(data), 997), *range(len(data) - 400, len(data)), *range(80)}:
        cut.write_bytes(data[:end])
        assert refusal(cut).startswith("load: cannot read ")


def test_a_file_with_a_changed_byte_is_refused_or_the_same(
    file: tuple[Path, oc.Kernel], tmp_path: Path
) -> None:
    path, kernel = file
    data, changed = path.read_bytes(), tmp_path / "changed.offcut"
    members, x = zipfile.ZipFile(path).infolist(), rows(5)
    within = {
        place for one in members for place in range(one.header_offset, one.header_offset + 30)
    }
    drawn_places = np.random.default_rng(0).integers(0, len(data), 60).tolist()
    for at in {*within, *drawn_places, *range(len(data) - 150, len(data))}:
        changed.write_bytes(data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :])
        try:
            loaded = oc.load(changed)
        except oc.OffcutError:
            continue
        np.testing.assert_array_equal(loaded(x), kernel(x))


def test_a_changed_byte_between_members_is_refused_or_not_read(tmp_path: Path) -> None:
    path, changed = tmp_path / "whole.offcut", tmp_path / "changed.offcut"
    write_container(path, {"format": 1}, {"code.o": [b"code"], "constants": [b"numbers"]})
    data, (manifest, members) = path.read_bytes(), read_container(path)
    wanted = manifest, {name: bytes(one) for name, one in members.items()}
    held = {*range(PAGE, PAGE + 15), *range(2 * PAGE, 2 * PAGE + 4), *range(3 * PAGE, 3 * PAGE + 7)}
    refusals = 0
    places = {at for at, byte in enumerate(data) if byte} | {*range(0, len(data), 97)}
    for at in sorted(places | held):
        changed.write_bytes(data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :])
        try:
            manifest, members = read_container(changed)
        except oc.DescribeError:
            refusals += 1
            continue
        assert at not in held
        assert (manifest, {name: bytes(one) for name, one in members.items()}) == wanted
    assert refusals > 26


def rewritten(file: Path, path: Path, **changes: Any) -> Path:
    manifest, members = read_container(file)
    write_container(path, {**manifest, **changes}, {name: [one] for name, one in members.items()})
    return path


def test_what_is_no_file_of_this_version_or_machine_is_refused_in_words(
    file: tuple[Path, oc.Kernel], tmp_path: Path
) -> None:
    path, other = file[0], tmp_path / "other.offcut"
    assert refusal(rewritten(path, other, format=7, offcut="3.0")) == (
        f"load: cannot read {other}\n"
        f"  because  offcut 3.0 wrote it in format 7, and {oc.__version__} reads up to 2\n"
        "  help     pip install 'offcut>=3.0'\n"
        "  help     saved again by this version"
    )
    assert refusal(rewritten(path, other, triple="riscv64-unknown-linux-gnu")).startswith(
        "load: cannot run Y of other.offcut here\n  because  it is for riscv64, and this process runs on "
    )
    assert "its manifest is incomplete: 'faults'" in refusal(
        rewritten(path, other, constants=[[0, 1 << 40]])
    ) or "constants that it does not hold" in refusal(other)
    (tmp_path / "text").write_text("no archive")
    assert refusal(tmp_path / "text") == (
        f"load: cannot read {tmp_path / 'text'}\n"
        "  because  it is damaged, or no saved file: File is not a zip file\n"
        "  help     kernel.save(path)\n"
        "  help     model.save(path)"
    )
    assert "No such file" in refusal(tmp_path / "nothing")
    assert "embedded null byte" in refusal(tmp_path / "a\0b")
    (tmp_path / "empty").write_bytes(b"")
    assert "it is damaged" in refusal(tmp_path / "empty")
    with pytest.raises(oc.DescribeError, match="it is not a path"):
        oc.load(7)  # type: ignore[arg-type]
    with pytest.raises(oc.DescribeError, match="cannot write"):
        file[1].save(tmp_path / "nowhere" / "layer.offcut")


@pytest.mark.parametrize("name", ["signature", "kind", "triple", "constants", "returns"])
@pytest.mark.parametrize("value", [None, 3, "x", [], {}, {"name": 1}])
def test_a_manifest_of_another_form_is_refused(
    file: tuple[Path, oc.Kernel], tmp_path: Path, name: str, value: Any
) -> None:
    path = rewritten(file[0], tmp_path / "other.offcut", **{name: value})
    try:
        oc.load(path)
    except oc.OffcutError:
        return
    assert name in ("kind", "returns", "constants", "triple")


def test_a_target_without_machine_code_says_so(tmp_path: Path) -> None:
    n = oc.dim("n", max=9)
    x = oc.placeholder((n,), name="x")
    y = oc.compute((n,), lambda i: x[i] * 2.0, name="y")
    emulated = oc.target("cuda", machine="h200", device="emulated")
    for target, name in (("interpret", "interpret"), (emulated, "cuda")):
        with rejection(
            f"TargetError: save: cannot save a kernel for target='{name}'\n"
            f"  because  {name} makes no machine code that a file holds\n"
            '  help     target="cpu"'
        ):
            oc.compile(y, target=target).save(tmp_path / "y.offcut")
    made = Builder("twice")
    value = made.input("x", "float32", (made.size("n", 1, 9), 3))
    made.output(made.node("relu", value))
    model = compile_graph(made.bound, target="interpret")
    with pytest.raises(
        oc.TargetError, match="its kernel runs on interpret, which makes no machine code"
    ):
        model.save(tmp_path / "twice.offcut")


def test_members_begin_at_pages_and_equal_contents_are_equal_files(
    file: tuple[Path, oc.Kernel], tmp_path: Path
) -> None:
    path, kernel = file
    kernel.save(tmp_path / "again.offcut")
    assert (tmp_path / "again.offcut").read_bytes() == path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read(MANIFEST))
        assert [one.filename for one in archive.infolist()] == [MANIFEST, "code.o", "constants"]
    assert manifest["signature"]["inputs"] == [
        {"name": "X", "dtype": "float32", "shape": ["n", "19"]}
    ]
    _, members = read_container(path)
    assert all(one.__array_interface__["data"][0] % PAGE == 0 for one in members.values())


def test_a_model_names_what_it_takes(tmp_path: Path) -> None:
    model = views()
    outputs = dict(zip("abcde", model.bound.graph.outputs, strict=True))
    model.save(tmp_path / "views.offcut", {"image": "x"}, outputs, returns="mapping")
    loaded = oc.load(tmp_path / "views.offcut")
    assert isinstance(loaded, SavedModel)
    x = rows(2, 6)
    assert [*loaded(x)] == [*loaded({"image": x})] == ["a", "b", "c", "d", "e"]
    with rejection(
        "CallError: views: takes image, got x\n  at       image\n  because  its inputs are image"
    ):
        loaded({"x": x})
