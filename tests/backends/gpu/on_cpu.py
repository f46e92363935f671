"""The text of kernels, run on a CPU: a second definition of what is PTX in it, a fiber for each thread of a block.

Blocks run one after the other, each on main memory as it was before the launch: what two of them write is a race. Shared
memory holds NaN at first; what is copied in the background is NaN until somebody looks
at its barrier. An access outside of an array or of a window is a fault.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np
from compiled_once import taken_apart
from fibers_on_cpu import HEAD as FIBERS
from groups_on_cpu import HEAD as GROUPS
from groups_on_cpu import tensor_map

from offcut.backends.gpu.launches import ArrayParameter, SizeParameter
from offcut.backends.gpu.text import cuda_kernels
from offcut.backends.gpu.text.primitives import _PRIMITIVES
from offcut.backends.gpu.text.windows import SKEW_BYTES
from offcut.core.interpret.values import evaluate
from offcut.core.program import Kind, Program


def _compiler() -> list[str] | None:
    """Return the command of a C++ compiler: of the system, else of the wheel `ziglang`; None if there is none."""
    name = shutil.which("g++") or shutil.which("clang++")
    if name is not None:
        return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++", "-fno-sanitize=undefined"]
    return None


COMPILER = _compiler()

HEAD = r"""
DEVICE float to_float(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
DEVICE float to_float(f16 x) { _Float16 y; memcpy(&y, &x, 2); return (float)y; }
DEVICE bf16 to_bf16(float x) {
  uint32_t bits; memcpy(&bits, &x, 4);
  if (x != x) return {0x7fff};
  return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
DEVICE f16 to_f16(float x) { _Float16 y = (_Float16)x; f16 z; memcpy(&z, &y, 2); return z; }
GROUPS
DEVICE void init(barrier *b, int count) {
  if ((uintptr_t)b % 8) fault("alignment: a barrier between multiples of 8 bytes");
  if (phases.count(b)) fault("barriers: one begins twice");
  check_room("a barrier", (unsigned char *)b, (unsigned char *)(b + 1));
  phases[b] = {count, count};
}
DEVICE void arrive(barrier *b) { Phase &p = phase_of(b); --p.pending; settle(p); }
DEVICE void arrive_with_copies(barrier *b) {
  phase_of(b).late.push_back([copies = fibers[me].copies, b] { perform(copies); arrive(b); });
  fibers[me].copies.clear();
}
DEVICE bool is_over(barrier *b, int parity) {
  deliver(b);
  Phase &p = phase_of(b);
  const bool over = (p.phase & 1) != parity;
  if (over) p.waited = p.phase;
  if (!over) yield("a token"); else ++moves;
  return over;
}
template <class T> static void copy_cell(Pointer<T> to, Pointer<T> from, int bytes) {
  if ((uintptr_t)to.bytes(16) % 16 || (bytes && (uintptr_t)from.bytes(bytes) % 16)) fault("alignment: a cell between multiples of 16 bytes");
  memset(to.at, 0xff, 16);
  ++fibers[me].pending;
  fibers[me].copies.push_back({to.at, from.at, bytes});
}
DEVICE void wait_for_copies() { for (auto &[b, p] : phases) deliver(b); fibers[me].pending = 0; }
template <int N, bool TURNED, class T> static void matrices(unsigned (&d)[N], Pointer<T> row) {
  static const void *rows[2][32][32];
  const int w = warp_of(), l = lane_of();
  auto &mine = rows[fibers[me].turn++ & 1][w];
  if (l < 8 * N && (uintptr_t)row.bytes(16) % 16) fault("alignment: a row of a matrix between multiples of 16 bytes");
  mine[l] = row.at;
  converge("a product");
  for (int m = 0; m < N; ++m) {
    unsigned short two[2];
    for (int e = 0; e < 2; ++e) {
      const int r = TURNED ? l % 4 * 2 + e : l / 4, c = TURNED ? l / 4 : l % 4 * 2 + e;
      two[e] = ((const unsigned short *)mine[8 * m + r])[c];
    }
    memcpy(&d[m], two, 4);
  }
}
template <int N, class T> static void load_matrices(unsigned (&d)[N], Pointer<T> row) { matrices<N, false>(d, row); }
template <int N, class T> static void load_matrices_turned(unsigned (&d)[N], Pointer<T> row) { matrices<N, true>(d, row); }
static auto exchange_fragments(const unsigned (&a)[4], const unsigned (&b)[2]) -> uint32_t (&)[32][8] {
  auto &values = exchange();
  memcpy(values[lane_of()], a, 16);
  memcpy(values[lane_of()] + 4, b, 8);
  converge("a product");
  return values;
}
template <class T> static void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], T) {
  auto &values = exchange_fragments(a, b);
  const int l = lane_of();
  for (int e = 0; e < 4; ++e) {
    const int i = l / 4 + e / 2 * 8, j = l % 4 * 2 + e % 2;
    for (int p = 0; p < 16; ++p) {
      const int from_a = i % 8 * 4 + p % 8 / 2, from_b = j * 4 + p % 8 / 2;
      T x, y;
      memcpy(&x, (char *)&values[from_a][i / 8 + p / 8 * 2] + 2 * (p % 2), 2);
      memcpy(&y, (char *)&values[from_b][4 + p / 8] + 2 * (p % 2), 2);
      c[e] += to_float(x) * to_float(y);
    }
  }
}
template <class A, class B> static void multiply_bytes(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], A, B) {
  auto &values = exchange_fragments(a, b);
  const int l = lane_of();
  for (int e = 0; e < 4; ++e)
    for (int p = 0; p < 32; ++p) {
      const int i = l / 4 + e / 2 * 8, j = l % 4 * 2 + e % 2;
      const A x = (A)(values[i % 8 * 4 + p % 16 / 4][i / 8 + p / 16 * 2] >> p % 4 * 8);
      const B y = (B)(values[j * 4 + p % 16 / 4][4 + p / 16] >> p % 4 * 8);
      c[e] += (int)x * (int)y;
    }
}
DEVICE unsigned to_tf32(float x) { uint32_t bits; memcpy(&bits, &x, 4); return x != x ? bits : (bits + 0x1000) & ~0x1fffu; }
DEVICE void multiply_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  auto &values = exchange_fragments(a, b);
  const int l = lane_of();
  for (int e = 0; e < 4; ++e)
    for (int p = 0; p < 8; ++p) {
      const int i = l / 4 + e / 2 * 8, j = l % 4 * 2 + e % 2;
      c[e] += __uint_as_float(values[i % 8 * 4 + p % 4][i / 8 + p / 4 * 2]) * __uint_as_float(values[j * 4 + p % 4][4 + p / 4]);
    }
}
static void check_end() {  // of a block: its shared memory is another one's then
  for (auto &[_, p] : phases) {
    if (!p.late.empty() || p.bytes) fault("async: a block ends before copies that nobody waits for");
    if (p.pending != p.count) fault("arrivals: %d of %d of a phase that does not end", p.count - p.pending, p.count);
  }
}
extern "C" const char *fault_found() { return found; }
extern "C" void forget_fault() { found[0] = 0; }
""".replace("GROUPS", GROUPS)
LAUNCH = """
extern "C" void launch_{name}(unsigned x__, unsigned y__, unsigned z__, int threads__, long bytes__, {parameters}) {{
  {regions}
  Written written__({{{written}}});
  unsigned seed__ = 0;
  shared_bytes = bytes__;
  if (threads__ > {bound}) fault("limits: %d threads of a block, and the kernel is for {bound} at most", threads__);
  for (unsigned k__ = 0; k__ < z__; ++k__) for (unsigned j__ = 0; j__ < y__; ++j__) for (unsigned i__ = 0; i__ < x__ && !found[0]; ++i__) {{
    blockIdx = {{i__, j__, k__}};
    phases.clear();
    windows.clear();
    spare = 0;
    threads_of_block = threads__;
    run_block(threads__, [&] {{ {name}({arguments}); }}, seed__++);
    check_end();
    written__.end_block();
  }}
  written__.end_launch();
}}
"""
_WITHOUT = ("-fno-exceptions", "-fno-asynchronous-unwind-tables")
"""Options of what no kernel needs: code without it is compiled sooner."""
UNCHECKED = -1
"""In place of the bytes of an array: what lies around it is not known."""
_KERNEL = re.compile(r"__launch_bounds__\((\d+)[\d, ]*\) (\w+)\((.*)\) {")
_POINTER = re.compile(r"(?:const )?\b(T|A|B|float) \*(\w+)")
_ARRAY = re.compile(r"\b(?:const )?(\w[\w ]*?) \*__restrict__ (\w+)")
_WINDOW = re.compile(
    r"(\w[\w ]*) \*const (\w+) = \([\w ]+ \*\)\(shared \+ (\d+)\);  // (\d+) of (\d+) rows of (\d+)( in boxes)?"
)


def parameters_of(text: str) -> dict[str, list[str]]:
    """Return the parameters of each kernel of a text, as C++ declares them."""
    return {name: declared.split(", ") for _, name, declared in _KERNEL.findall(text)}


def kernels_of(text: str) -> str:
    """Return the kernels of a text, behind the primitives that they call."""
    return text[min(text.find(one) for one in ("// tensor map", "// launch") if one in text) :]


def variants(texts: Sequence[str]) -> str:
    """Return one text, which is compiled once, with the kernels of several: those of the k-th have names that end with ``_k``.

    texts  whose own primitives, if they have any, have names of their own
    """
    first, kernels = texts[0], [kernels_of(one) for one in texts]
    for number, text in enumerate(texts):
        for name in parameters_of(text):
            kernels[number] = re.sub(rf"\b{name}\(", f"{name}_{number}(", kernels[number])
    return "\n".join([first.removesuffix(kernels_of(first)), *kernels])


def primitive_variant(text: str, name: str, old: str, new: str) -> str:
    """Return a text whose kernels call another primitive in place of that of a name: with `new` for `old` in it."""
    (primitive,) = (one for one in _PRIMITIVES if re.search(rf"\b{name}\([^;]*\) {{\n", one))
    other, kernels = f"other_{crc32((name + old + new).encode())}", kernels_of(text)
    assert old in primitive
    declared = _POINTER.sub(r"Pointer<\1> \2", re.sub(rf"\b{name}\b", other, primitive))
    first, rest = kernels.split("\n", 1)
    lines = [first, declared.replace(old, new), re.sub(rf"\b{name}\b", other, rest)]
    return text.removesuffix(kernels) + "\n".join(lines)


class DeviceFault(Exception):
    """What a device would not run, or not end."""


def _checked_window(match: re.Match[str]) -> str:
    """Return the declaration of a window whose accesses are checked."""
    kind, name, offset, depth, rows, columns, boxes = match.groups()
    skew = 0 if boxes else SKEW_BYTES
    size = f"{depth} * {rows} * ({columns} * (int)sizeof({kind}) + {skew})"
    return f'const Pointer<{kind}> {name} = window<{kind}>("{name}", {offset}, {size});'


def _launch(name: str, bound: str, parameters: list[str]) -> str:
    """Return the function that launches a kernel: pointers, each followed by its bytes, maps, and sizes."""
    declared, regions, written, arguments = [], [], [], []
    for one in parameters:
        if array := _ARRAY.fullmatch(one):
            kind, array_name = array.groups()
            declared += [f"{kind} *{array_name}", f"long {array_name}_bytes"]
            first = f"(const unsigned char *){array_name}"
            end = (
                f"{array_name}_bytes < 0 ? (const unsigned char *)-1 : {first} + {array_name}_bytes"
            )
            begin = f"{array_name}_bytes < 0 ? nullptr : {first}"
            regions.append(
                f'const Region {array_name}_region = {{"{array_name}", {begin}, {end}}};'
            )
            written += [] if one.startswith("const") else [f"&{array_name}_region"]
            arguments.append(f"{{{array_name}, &{array_name}_region}}")
        elif "tensor_map" in one:
            declared.append(one.replace("__grid_constant__ tensor_map ", "tensor_map *"))
            arguments.append(f"*{one.split()[-1]}")
        else:
            declared.append(one)
            arguments.append(one.split()[-1])
    return LAUNCH.format(
        name=name,
        bound=bound,
        parameters=", ".join(declared),
        regions=" ".join(regions),
        written=", ".join(written),
        arguments=", ".join(arguments),
    )


@cache
def _prelude() -> Path:
    """Return the header with the primitives of all texts, which is compiled once in a run of the tests: compilers find what they made of
    it beside it, and a library of what is no template in it.
    """
    of_device = ("asm", "__uint_as_float", "__cvta_generic_to_shared", "__shfl_sync")
    own = [one for one in _PRIMITIVES if not any(word in one for word in of_device)]
    own = [_POINTER.sub(r"Pointer<\1> \2", one) for one in own]
    header = _folder() / "prelude.hpp"
    source, library = header.with_suffix(".cpp"), header.with_suffix(".so")
    with (_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            shared, once = taken_apart("\n".join([FIBERS, HEAD, *own]))
            header.write_text(shared)
            source.write_text(once)
            made = ["-x", "c++-header", "-o", f"{header}.gch", str(header)]
            subprocess.run([*_command(), *made], check=False, capture_output=True, timeout=900)
            made = ["-shared", "-include", str(header), "-o", f"{library}.part", str(source)]
            subprocess.run([*_command(), *made], check=True, timeout=900)
            Path(f"{library}.part").rename(library)
    return header


def _folder() -> Path:
    """Return the folder of all sources and libraries, that of a run of the tests, which removes it."""
    folder = Path(os.environ["OFFCUT_CACHE"]) / "kernels-on-cpu"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _command() -> list[str]:
    """Return the command of the compiler, with the options of all sources."""
    assert COMPILER is not None
    return [*COMPILER, "-std=c++17", "-O0", "-fPIC", "-w", "-fwrapv", *_WITHOUT]


@cache
def compiled(text: str) -> ctypes.CDLL:
    """Return the library of a text: ``launch_KERNEL(x, y, z, threads, bytes of shared memory, arguments…)`` for each of its kernels.

    Each pointer to an array is followed by its bytes, or `UNCHECKED`.
    """
    wrappers = [
        _launch(name, bound, parameters.split(", "))
        for bound, name, parameters in _KERNEL.findall(text)
    ]
    kernels = _WINDOW.sub(_checked_window, _ARRAY.sub(r"Pointer<\1> \2", kernels_of(text)))
    kernels = kernels.replace("extern __shared__", "//")
    source = _folder() / f"kernels_{crc32(text.encode()):08x}_{os.getpid()}.cpp"
    library_file = source.with_suffix(".so")
    source.write_text("\n".join([kernels, *wrappers]))
    prelude, rest = _prelude(), ["-o", str(library_file), str(source)]
    command = [*_command(), "-shared", "-include", str(prelude), *rest]
    subprocess.run([*command, str(prelude.with_suffix(".so"))], check=True, timeout=900)
    library = ctypes.CDLL(str(library_file))
    library.fault_found.restype = ctypes.c_char_p
    return library


def finder_of(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    expected: np.ndarray,
    text: str,
    variant: int | None = None,
) -> str:
    """Return what finds a fault in a text: the name of what a fault of a device begins with; "values", if the result is another one;
    "" if nothing does.
    """
    try:
        (result,) = run_text(program, arrays, sizes, text, variant).values()
    except DeviceFault as fault:
        return str(fault).partition(":")[0]
    return "" if np.array_equal(result, expected) else "values"


def check_fault(library: ctypes.CDLL) -> None:
    """Raise DeviceFault with the fault that a launch ended with, if it did."""
    fault = library.fault_found().decode()
    library.forget_fault()
    if fault:
        raise DeviceFault(fault)


def run_text(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    text: str | None = None,
    variant: int | None = None,
) -> dict[str, np.ndarray]:
    """Return the results of a program, by its text.

    text     in place of it
    variant  of `text`, if that is one of `variants`

    Raises DeviceFault for what is no run of a device.
    """
    own, plan = cuda_kernels(program)
    library, ending = compiled(text or own), "" if variant is None else f"_{variant}"
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for buffer in program.buffers:
        if buffer.name not in held:
            shape = [int(evaluate(extent, sizes)) for extent in buffer.shape]
            kinds = {array.dtype.name: array.dtype for array in arrays.values()}
            dtype = kinds.get(buffer.dtype) or np.dtype(buffer.dtype)
            poison = np.frombuffer(b"\x7f" * dtype.itemsize, dtype)[0]
            held[buffer.name] = np.full(shape, poison, dtype)
    for launch, grid in zip(plan.launches, plan.grids(sizes), strict=True):
        arguments = []
        for one in launch.parameters:
            if isinstance(one, SizeParameter):
                arguments.append(ctypes.c_int(sizes[one.size]))
            elif isinstance(one, ArrayParameter):
                array = held[one.buffer]
                arguments += [ctypes.c_void_p(array.ctypes.data), ctypes.c_long(array.nbytes)]
            else:
                arguments.append(ctypes.byref(tensor_map(held[one.buffer], one.box)))
        if all(grid):
            getattr(library, f"launch_{launch.kernel}{ending}")(
                *grid, launch.threads, ctypes.c_long(launch.shared_bytes), *arguments
            )
            check_fault(library)
    kinds = (Kind.OUTPUT, Kind.INOUT)
    return {one.name: held[one.name] for one in program.buffers if one.kind in kinds}
