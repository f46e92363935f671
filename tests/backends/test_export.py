"""A kernel as an object file and a header: linked and run from C, with the bits of the Python call."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from compiled import build, contraction, floats, same_bits
from conftest import edge_sizes, rejection

import offcut as oc
from offcut import Kernel
from offcut.backends.cpu.machine import isa, jit
from tests.facade import numpy_dtype

COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_c = pytest.mark.skipif(COMPILER is None, reason="the system has no C compiler")
SIZES = edge_sizes(14)

MAIN = """\
#include <stdio.h>
#include <stdlib.h>
#include "layer.h"
#include "gram.h"

static const int64_t sizes[] = {%s};

int main(void) {
  if (!layer_supported()) return 10;
  for (unsigned each = 0; each < sizeof sizes / sizeof *sizes; ++each) {
    int64_t n = sizes[each];
    int64_t bytes = layer_workspace(&n);
    float *x = malloc(n * 37 * sizeof *x + 1), *y = malloc(n * 40 * sizeof *y + 1);
    void *scratch = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    for (int64_t i = 0; i < n * 37; ++i) x[i] = (float)(i * 7919 %% 1013 - 500) / 256;
    int32_t status = layer(x, y, n, scratch);
    if (status) return status;
    fwrite(y, sizeof *y, n * 40, stdout);

    float *g = calloc(n * n + 1, sizeof *g);
    status = gram(x, g, g, n, NULL);
    if (status) return status;
    fwrite(g, sizeof *g, n * n, stdout);
    free(x), free(y), free(g), free(scratch);
  }
  return layer(NULL, NULL, -1, NULL) == layer_BROKEN_FACT ? 0 : 11;
}
"""


def layer() -> Kernel:
    """``relu(X W + b)`` with constants, 37 terms and 40 columns."""
    n = oc.dim("n", max=4096)
    x, w = oc.placeholder((n, 37), name="X"), oc.placeholder((37, 40), name="W")
    b, k = oc.placeholder((40,), name="b"), oc.reduce_axis(37, name="k")
    total = oc.compute((n, 40), lambda i, j: oc.sum(x[i, k] * w[k, j], axis=k), name="S")
    y = oc.compute((n, 40), lambda i, j: oc.maximum(total[i, j] + b[j], 0.0), name="Y")
    constants = {"W": floats("w", 37, 40), "b": floats("b", 40)}
    return build(y, inputs=[x, w, b], constants=constants)


def gram() -> Kernel:
    """A triangle, updated in place."""
    program = oc.parse("""
        program gram
        size n in 0:4097
        input x: float32[n]
        inout C: float32[n, n]
        for i in 0:n
          for j in 0:i + 1
            C[i, j] += x[i] * x[j]
    """)
    return oc.compile(program)


def compiled(folder: Path, source: str, *arguments: str, suffix: str = "c") -> Path:
    """A program made of `source` and `arguments`, without a warning."""
    assert COMPILER is not None
    text, program = folder / f"main.{suffix}", folder / "main"
    text.write_text(source, encoding="utf-8")
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"]
    command = [COMPILER, *strict, f"-I{folder}", str(text), *arguments, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


class Linked:
    """An exported object in this process, its functions called as C would."""

    def __init__(self, made: Any) -> None:
        self.name = made.object.stem
        self.code = jit.load([made.object.read_bytes()], isa.host())

    def function(self, suffix: str, kind: Any = ctypes.c_int32) -> Callable[..., int]:
        pointer = self.code.address(self.name + suffix)
        return ctypes.CFUNCTYPE(kind)(pointer)

    def __call__(self, *arguments: Any, sizes: tuple[int, ...]) -> int:
        needed = self.function("_workspace", ctypes.c_int64)((ctypes.c_int64 * 4)(*sizes))
        scratch = ctypes.create_string_buffer(needed + 64)
        start = ctypes.addressof(scratch)
        passed = [ctypes.c_void_p(a.ctypes.data) for a in arguments]
        passed_sizes = [ctypes.c_int64(size) for size in sizes]
        return self.function("")(*passed, *passed_sizes, ctypes.c_void_p(start + -start % 64))


@needs_c
def test_two_kernels_linked_into_a_c_program_give_the_bits_of_the_python_call(
    tmp_path: Path,
) -> None:
    dense, triangle = layer(), gram()
    objects = [dense.export(tmp_path, name="layer").object, triangle.export(tmp_path).object]
    program = compiled(tmp_path, MAIN % ", ".join(map(str, SIZES)), *map(str, objects))

    done = subprocess.run([program], capture_output=True, check=False)

    assert done.returncode == 0
    expected = b""
    for size in SIZES:
        steps = np.arange(size * 37) * 7919 % 1013 - 500
        x = (steps / np.float32(256)).astype("float32").reshape(size, 37)
        expected += dense(x).tobytes()
        expected += triangle(x.ravel()[:size], np.zeros((size, size), "float32")).tobytes()
    assert done.stdout == expected


def doubled(tensor: str = "A", size: str = "n") -> Kernel:
    """Twice a vector."""
    n = oc.dim(size, max=99)
    x = oc.placeholder((n,), name=tensor)
    return build(oc.compute((n,), lambda i: x[i] * 2.0, name="Y"))


@needs_c
@pytest.mark.parametrize("standard", ["gnu17", "gnu++17"])
def test_names_that_differ_by_case_alone_are_two_kernels(tmp_path: Path, standard: str) -> None:
    kernel = doubled()
    made = [kernel.export(tmp_path, name=name) for name in ("dense", "Dense")]
    source = """
        #include "dense.h"
        #include "Dense.h"
        int main() {
          float x[2] = {1, 2}, y[2] = {0, 0}, z[2] = {0, 0};
          if (dense(x, y, -1, 0) != dense_BROKEN_FACT) return 1;
          if (Dense(x, y, -1, 0) != Dense_BROKEN_FACT) return 2;
          return dense(x, y, 2, 0) || Dense(y, z, 2, 0) || z[1] != 8;
        }
    """
    objects = ["-x", "none", *(str(each.object) for each in made), f"-std={standard}"]
    cpp = "++" in standard
    if cpp and shutil.which("g++") is None:
        pytest.skip("the system has no C++ compiler")

    program = compiled(tmp_path, source, *objects, suffix="cpp" if cpp else "c")

    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.every(2)
@needs_c
@pytest.mark.parametrize("standard", ["gnu17", "gnu++17"])
def test_sizes_and_tensors_may_have_names_that_mean_something_to_a_compiler(
    tmp_path: Path, standard: str
) -> None:
    pairs = [
        ("A", "linux"),
        ("A", "unix"),
        ("int64_t", "i386"),
        ("uint16_t", "INT32_MAX"),
        ("I", "NULL"),
        ("k0_LEFT_AN_ARRAY", "OFFCUT_k0_H"),
        ("errno", "stdin"),
        ("size_t", "int64_t"),
    ]
    cpp = "++" in standard
    if cpp and shutil.which("g++") is None:
        pytest.skip("the system has no C++ compiler")
    lines = [f"#include <{name}.h>" for name in ("errno", "stdio", "stdlib", "math", "stdint")]
    lines += [] if cpp else ["#include <complex.h>"]
    objects = ["-x", "none", f"-std={standard}"]
    for number, (tensor, size) in enumerate(pairs):
        made = doubled(tensor, size).export(tmp_path, name=f"k{number}")
        objects.append(str(made.object))
        lines.append(f'#include "k{number}.h"')
    calls = " || ".join(f"k{number}(&x, &y, 1, 0)" for number in range(len(pairs)))
    lines.append(f"int main() {{ float x = 3, y = 0; return {calls} || y != 6; }}\n")

    program = compiled(tmp_path, "\n".join(lines), *objects, suffix="cpp" if cpp else "c")

    assert subprocess.run([program], check=False).returncode == 0


@needs_c
@pytest.mark.parametrize("standard", ["c99", "c++11"])
def test_the_header_is_c_and_cpp(tmp_path: Path, standard: str) -> None:
    made = layer().export(tmp_path, name="layer")
    source = '#include "layer.h"\nint main() { return layer_supported() ? 0 : 1; }\n'
    cpp = standard.startswith("c++")
    if cpp and shutil.which("g++") is None:
        pytest.skip("the system has no C++ compiler")
    flags = ["-x", "none", str(made.object), f"-std={standard}"]

    program = compiled(tmp_path, source, *flags, suffix="cpp" if cpp else "c")

    assert subprocess.run([program], check=False).returncode == 0


@needs_c
def test_the_object_can_be_a_shared_library_and_needs_the_c_library_alone(tmp_path: Path) -> None:
    made = layer().export(tmp_path, name="layer")
    library = tmp_path / "layer.so"
    assert COMPILER is not None

    command = [COMPILER, "-shared", "-Wl,-z,defs,-z,text", str(made.object), "-o", str(library)]
    subprocess.run(command, check=True)

    assert ctypes.CDLL(str(library)).layer_supported() == 1


@pytest.mark.every(6)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int32"])
def test_every_element_type_crosses_as_c_has_it(tmp_path: Path, dtype: str) -> None:
    n, m = oc.dim("n", max=64), oc.dim("m", min=2, max=64)
    x = oc.placeholder((n, 2 * m + 1), dtype, name="X")
    kernel = build(oc.compute((n, m), lambda i, j: x[i, 2 * j + 1] * x[i, j], name="Y"))
    linked = Linked(kernel.export(tmp_path))
    for rows, columns in [(0, 2), (1, 3), (13, 17), (20, 33)]:
        given = (floats("x", rows, 2 * columns + 1) * 5).astype(numpy_dtype(dtype))
        result = np.zeros((rows, columns), numpy_dtype(dtype))

        assert linked(given, result, sizes=(rows, columns)) == 0

        assert same_bits(result, kernel(given))


def test_conditions_cross_as_bytes(tmp_path: Path) -> None:
    n = oc.dim("n", max=64)
    x, held = oc.placeholder((n,), name="X"), oc.placeholder((n,), "bool", name="M")
    made = build(oc.ops.logical_and(oc.ops.less(x, 0), held, name="Y")).export(tmp_path)
    linked = Linked(made)
    for size in (0, 1, 17, 33):
        given, mask = floats("x", size), floats("m", size) < 0.5
        result = np.full(size, True)
        assert linked(given, mask, result, sizes=(size,)) == 0
        np.testing.assert_array_equal(result, (given < 0) & mask)
    assert "uint8_t *Y" in made.header.read_text(encoding="utf-8")


def test_stages_in_between_lie_in_the_workspace(tmp_path: Path) -> None:
    n = oc.dim("n", max=64)
    x, k = oc.placeholder((n, 33), name="X"), oc.reduce_axis(33, name="k")
    largest = oc.compute((n,), lambda i: oc.max(x[i, k], axis=k), name="M")
    e = oc.compute((n, 33), lambda i, j: oc.exp(x[i, j] - largest[i]), name="E")
    r = oc.reduce_axis(33, name="r")
    s = oc.compute((n,), lambda i: oc.sum(e[i, r], axis=r), name="S")
    kernel = build([oc.compute((n, 33), lambda i, j: e[i, j] / s[i], name="P"), s])
    linked = Linked(kernel.export(tmp_path, name="softmax"))
    for size in (0, 1, 7, 30):
        given = floats("x", size, 33)
        results = np.zeros((size, 33), "float32"), np.zeros(size, "float32")

        assert linked(given, *results, sizes=(size,)) == 0

        assert all(map(same_bits, results, kernel(given)))


def test_the_entry_takes_strides_and_the_constants_of_the_object(tmp_path: Path) -> None:
    kernel = layer()
    linked = Linked(kernel.export(tmp_path, name="layer"))
    wide, out = floats("x", 20, 64), np.zeros((20, 50), "float32")
    table = ctypes.c_void_p * 2
    constants = table.from_address(linked.code.engine.get_global_value_address("layer_constants"))
    pointers = (ctypes.c_void_p * 4)(wide.ctypes.data, out.ctypes.data, *constants)
    sizes, strides = (ctypes.c_int64 * 1)(20), (ctypes.c_int64 * 4)(64, 1, 50, 1)
    needed = linked.function("_workspace", ctypes.c_int64)(sizes)
    scratch = ctypes.create_string_buffer(needed + 64)

    base = ctypes.c_void_p(ctypes.addressof(scratch) + -ctypes.addressof(scratch) % 64)
    assert linked.function("_entry")(pointers, sizes, strides, base) == 0

    assert same_bits(np.ascontiguousarray(out[:, :40]), kernel(wide[:, :37]))
    assert not out[:, 40:].any()


@pytest.mark.parametrize("n", [0, 5, 20])
def test_a_size_that_breaks_a_fact_is_refused_before_anything_is_read(
    tmp_path: Path, n: int
) -> None:
    size, other = oc.dim("n", min=4, max=16, multiple_of=4), oc.dim("m", max=99)
    with oc.assume(size <= other):
        x, y = oc.placeholder((size,), name="X"), oc.placeholder((other,), name="Y")
        kernel = build(oc.compute((size,), lambda i: x[i] + y[i], name="Z"))
    linked = Linked(kernel.export(tmp_path))
    nothing = np.zeros(0, "float32")
    good = np.ones(8, "float32")

    assert linked(nothing, nothing, nothing, sizes=(n, 99)) == 2
    assert linked(nothing, nothing, nothing, sizes=(8, 7)) == 2
    assert linked(good, good.copy(), out := np.zeros(8, "float32"), sizes=(8, 8)) == 0
    assert out.tolist() == [2.0] * 8


def test_an_index_in_memory_that_leads_out_of_an_array_is_a_status(tmp_path: Path) -> None:
    kernel = oc.compile(
        oc.parse("""
            program look
            size n in 0:99
            input T: float32[7]
            input at: int32[n]
            output Y: float32[n]
            for i in 0:n
              Y[i] = T[index(at[i])]
        """)
    )
    linked = Linked(kernel.export(tmp_path))
    table, out = floats("t", 7), np.zeros(3, "float32")

    assert linked(table, np.array([6, 0, 1], "int32"), out, sizes=(3,)) == 0
    assert same_bits(out, table[[6, 0, 1]])
    assert linked(table, np.array([0, 7, 1], "int32"), out, sizes=(3,)) == 1


def test_what_is_updated_may_be_one_array_or_two(tmp_path: Path) -> None:
    kernel = gram()
    linked = Linked(kernel.export(tmp_path))
    x, before = floats("x", 9), floats("c", 9, 9)
    after, expected = np.zeros_like(before), kernel(x, before)

    assert linked(x, before, after, sizes=(9,)) == 0
    assert same_bits(after, expected)
    assert linked(x, before, before, sizes=(9,)) == 0
    assert same_bits(before, expected)


def test_a_kernel_for_several_threads_runs_on_its_caller(tmp_path: Path) -> None:
    case = contraction("mk,kn->mn", {"k": 33, "n": 300})
    kernel = build(case.result, inputs=case.inputs, threads=3)
    linked = Linked(kernel.export(tmp_path))
    arrays = floats("a", 200, 33), floats("b", 33, 300)
    result = np.zeros((200, 300), "float32")

    assert linked(*arrays, result, sizes=(200,)) == 0

    assert same_bits(result, kernel(*arrays))
    assert b"offcut_pool" not in (tmp_path / "C.o").read_bytes()


def test_the_header_says_what_a_call_takes(tmp_path: Path) -> None:
    n = oc.dim("int", max=8)
    x, y = oc.placeholder((n, 3), name="X"), oc.placeholder((n,), name="double")
    made = build(oc.compute((n, 3), lambda i, j: x[i, j] * y[i], name="Z")).export(tmp_path)
    text = made.header.read_text(encoding="utf-8")

    assert "int32_t Z(const float *X, const float *double_, float *Z, int64_t int_, void" in text
    assert " *   reads   double_: float32[int]\n *   writes  Z: float32[int, 3]\n" in text
    assert " *   size    0 <= int_ <= 8 (int in the shapes)\n" in text
    assert " * pointers  X, double_, Z\n" in text
    assert "X axis 0, X axis 1, double_ axis 0, Z axis 0, Z axis 1\n" in text
    assert "constants" not in text
    assert "Link with the C library and its libm; nothing else is needed.\n" in text


def test_code_for_a_lesser_processor_needs_no_more_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "avx512f")
    kernel = layer()
    made = kernel.export(tmp_path, name="layer")
    (needs,) = (line for line in made.header.read_text().splitlines() if "needs  " in line)

    assert "avx512" not in needs
    result, x = np.zeros((5, 40), "float32"), floats("x", 5, 37)
    assert Linked(made)(x, result, sizes=(5,)) == 0
    assert same_bits(result, kernel(x))


def test_a_processor_without_a_feature_is_told_so() -> None:
    host = isa.host()
    there = llvm.get_host_cpu_features()
    for feature in ("sse4.2", "avx", "avx2", "avx512f", "avx512bf16", "amx-tile", "avx512fp16"):
        if feature == "amx-tile" and there.get(feature):
            continue  # the system may still refuse it
        text = isa.emit_feature_test("asked", [feature], host.triple)
        with jit.optimize(text, host, passes=False) as module:
            code = jit.position_independent(module, host.triple, [])
        loaded = jit.load([code], host)
        answer = ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.address("asked"))()
        assert answer == int(there.get(feature, False)), feature


NAMES: dict[Any, str] = {
    **dict.fromkeys(("a-b", 7), "a name is a letter and then letters, digits and _, as C has them"),
    **dict.fromkeys(
        ("double", "int64_t", "UINT8_MAX", "linux", "NULL"), "C or C++ keeps this word for itself"
    ),
    **dict.fromkeys(
        ("memcpy", "malloc", "free", "exit", "main", "printf", "exp", "expf", "read"),
        "the C library has a function of this name",
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_c_does_not_take_is_refused(name: Any, tmp_path: Path) -> None:
    with rejection(
        f"DescribeError: export: cannot name a kernel {name!r}\n"
        f'  because  {NAMES[name]}\n  help     name="dense"'
    ):
        doubled().export(tmp_path, name=name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", [None, 5, b"build", "a\0b"])
def test_what_is_no_folder_is_refused(folder: Any) -> None:
    with rejection(
        f"DescribeError: export: cannot write into {folder!r}\n"
        "  because  it is not a path of a folder\n"
        '  help     kernel.export("build")'
    ):
        doubled().export(folder)


def test_a_folder_is_made_where_there_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "for" / "this"
    made = doubled().export(folder)
    assert sorted(folder.iterdir()) == sorted((made.header, made.object))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "below"
    with rejection(
        f"DescribeError: export: cannot write into {folder}\n"
        f"  at       {folder}\n"
        "  because  Not a directory\n"
        "  help     a folder that is yours, or that can be made"
    ):
        doubled().export(folder)
