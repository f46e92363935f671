"""The text of kernels, run on a CPU: a second definition of what is PTX in it, a thread of the system for each of a block's.

Blocks run one after the other. Shared memory holds NaN at first; what is copied in the background arrives with its arrival.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from groups_on_cpu import HEAD as GROUPS
from groups_on_cpu import tensor_map

from offcut.backends.gpu.launches import ArrayParameter, SizeParameter
from offcut.backends.gpu.text import cuda_kernels
from offcut.backends.gpu.text.primitives import _PRIMITIVES
from offcut.core.interpret.values import evaluate
from offcut.core.program import Kind, Program

COMPILER = shutil.which("g++") or shutil.which("clang++")

HEAD = r"""
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <map>
#include <memory>
#include <thread>
#include <vector>
#define __global__
#define __shared__
#define __align__(n)
#define __launch_bounds__(...)
#define DEVICE static inline
typedef unsigned long long barrier;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
struct Place { unsigned x, y, z; };
thread_local Place threadIdx, blockIdx;
alignas(1024) unsigned char shared[232448];
template <class A, class B> static inline auto min(A a, B b) { return a < b ? a : b; }
template <class A, class B> static inline auto max(A a, B b) { return a > b ? a : b; }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
struct Phase { int count, pending, phase; long bytes; };
struct Block {
  std::barrier<> all;
  std::vector<std::unique_ptr<std::barrier<>>> warps;
  std::map<int, std::unique_ptr<std::barrier<>>> named;
  std::map<barrier *, Phase> phases;
  std::mutex lock;
  uint32_t given[32][32][8];
  const void *rows[32][32];
  Block(int threads) : all(threads) { for (int w = 0; w < threads / 32; ++w) warps.push_back(std::make_unique<std::barrier<>>(32)); }
};
static Block *block;
struct Copy { void *to; const void *from; int bytes; };
thread_local std::vector<Copy> copies;
static inline int warp_of() { return threadIdx.x / 32; }
static inline int lane_of() { return threadIdx.x % 32; }
static inline void __syncwarp() { block->warps[warp_of()]->arrive_and_wait(); }
static inline void __syncthreads() { block->all.arrive_and_wait(); }
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int lanes) {
  const int w = warp_of(), l = lane_of();
  T y;
  memcpy(block->given[w][l], &x, sizeof x);
  __syncwarp();
  memcpy(&y, block->given[w][l ^ lanes], sizeof y);
  __syncwarp();
  return y;
}
DEVICE float to_float(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
DEVICE float to_float(f16 x) { _Float16 y; memcpy(&y, &x, 2); return (float)y; }
DEVICE bf16 to_bf16(float x) {
  uint32_t bits; memcpy(&bits, &x, 4);
  if (x != x) return {0x7fff};
  return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
DEVICE f16 to_f16(float x) { _Float16 y = (_Float16)x; f16 z; memcpy(&z, &y, 2); return z; }
GROUPS
DEVICE void init(barrier *b, int count) { std::lock_guard<std::mutex> hold(block->lock); block->phases[b] = {count, count, 0, 0}; }
DEVICE void arrive(barrier *b) {
  std::lock_guard<std::mutex> hold(block->lock);
  Phase &p = block->phases.at(b);
  --p.pending;
  settle(p);
}
DEVICE void arrive_with_copies(barrier *b) {
  for (Copy &c : copies) { memset(c.to, 0, 16); memcpy(c.to, c.from, c.bytes); }
  copies.clear();
  arrive(b);
}
DEVICE bool is_over(barrier *b, int parity) {
  thread_local long seen = -1;
  thread_local std::chrono::steady_clock::time_point since;
  std::this_thread::yield();
  if (warp_of() == lagging) std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (stands_still(seen, since)) return true;
  std::lock_guard<std::mutex> hold(block->lock);
  deliver(b);
  return (block->phases.at(b).phase & 1) != parity;
}
DEVICE void meet(int which, int threads) {
  { std::lock_guard<std::mutex> hold(block->lock); auto &one = block->named[which]; if (!one) one = std::make_unique<std::barrier<>>(threads); }
  block->named[which]->arrive_and_wait();
}
DEVICE void copy_cell(void *to, const void *from, int bytes) {
  if ((uintptr_t)to % 16 || (bytes && (uintptr_t)from % 16)) abort();
  copies.push_back({to, from, bytes});
}
DEVICE void wait_for_copies() { copies.clear(); }
template <int N, bool TURNED> static void matrices(unsigned (&d)[N], const void *row) {
  const int w = warp_of(), l = lane_of();
  if (l < 8 * N && (uintptr_t)row % 16) abort();
  block->rows[w][l] = row;
  __syncwarp();
  for (int m = 0; m < N; ++m) {
    unsigned short two[2];
    for (int e = 0; e < 2; ++e) {
      const int r = TURNED ? l % 4 * 2 + e : l / 4, c = TURNED ? l / 4 : l % 4 * 2 + e;
      two[e] = ((const unsigned short *)block->rows[w][8 * m + r])[c];
    }
    memcpy(&d[m], two, 4);
  }
  __syncwarp();
}
template <int N> static void load_matrices(unsigned (&d)[N], const void *row) { matrices<N, false>(d, row); }
template <int N> static void load_matrices_turned(unsigned (&d)[N], const void *row) { matrices<N, true>(d, row); }
template <class T> static void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], T) {
  const int w = warp_of(), l = lane_of();
  memcpy(block->given[w][l], a, 16);
  memcpy(block->given[w][l] + 4, b, 8);
  __syncwarp();
  for (int e = 0; e < 4; ++e) {
    const int i = l / 4 + e / 2 * 8, j = l % 4 * 2 + e % 2;
    for (int p = 0; p < 16; ++p) {
      const int from_a = i % 8 * 4 + p % 8 / 2, from_b = j * 4 + p % 8 / 2;
      T x, y;
      memcpy(&x, (char *)&block->given[w][from_a][i / 8 + p / 8 * 2] + 2 * (p % 2), 2);
      memcpy(&y, (char *)&block->given[w][from_b][4 + p / 8] + 2 * (p % 2), 2);
      c[e] += to_float(x) * to_float(y);
    }
  }
  __syncwarp();
}
template <class A, class B> static void multiply_bytes(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], A, B) {
  const int w = warp_of(), l = lane_of();
  memcpy(block->given[w][l], a, 16);
  memcpy(block->given[w][l] + 4, b, 8);
  __syncwarp();
  for (int e = 0; e < 4; ++e)
    for (int p = 0; p < 32; ++p) {
      const int i = l / 4 + e / 2 * 8, j = l % 4 * 2 + e % 2;
      const A x = (A)(block->given[w][i % 8 * 4 + p % 16 / 4][i / 8 + p / 16 * 2] >> p % 4 * 8);
      const B y = (B)(block->given[w][j * 4 + p % 16 / 4][4 + p / 16] >> p % 4 * 8);
      c[e] += (int)x * (int)y;
    }
  __syncwarp();
}
DEVICE unsigned to_tf32(float x) { uint32_t bits; memcpy(&bits, &x, 4); return x != x ? bits : (bits + 0x1000) & ~0x1fffu; }
DEVICE void multiply_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const int w = warp_of(), l = lane_of();
  memcpy(block->given[w][l], a, 16);
  memcpy(block->given[w][l] + 4, b, 8);
  __syncwarp();
  for (int e = 0; e < 4; ++e)
    for (int p = 0; p < 8; ++p) {
      const int i = l / 4 + e / 2 * 8, j = l % 4 * 2 + e % 2;
      c[e] += __uint_as_float(block->given[w][i % 8 * 4 + p % 4][i / 8 + p / 4 * 2]) * __uint_as_float(block->given[w][j * 4 + p % 4][4 + p / 4]);
    }
  __syncwarp();
}
""".replace("GROUPS", GROUPS)
LAUNCH = """
extern "C" void launch_{name}(int gx, int gy, int gz, int threads, {parameters}) {{
  for (int z = 0; z < gz; ++z) for (int y = 0; y < gy; ++y) for (int x = 0; x < gx; ++x) {{
    memset(shared, 0xff, sizeof shared);
    Block one(threads);
    block = &one;
    boxes.clear();
    spare = 0;
    lagging = (x + y + z) % (threads / 32);
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) running.emplace_back([=] {{
      threadIdx = {{(unsigned)t, 0, 0}};
      blockIdx = {{(unsigned)x, (unsigned)y, (unsigned)z}};
      {name}({arguments});
    }});
    for (auto &thread : running) thread.join();
  }}
}}
"""
PATIENCE = 20
"""Seconds without an arrival after which a wait is a standstill."""
_KERNEL = re.compile(r"__launch_bounds__\([\d, ]+\) (\w+)\((.*)\) {")


def parameters_of(text: str) -> dict[str, list[str]]:
    """Return the parameters of each kernel of a text, as C++ declares them."""
    return {name: held.split(", ") for name, held in _KERNEL.findall(text)}


class DeviceFault(Exception):
    """What a device would not run, or not end."""


@cache
def compiled(text: str) -> ctypes.CDLL:
    """Return the library of a text: ``launch_KERNEL(x, y, z, threads, arguments…)`` for each of its kernels."""
    of_device = ("asm", "__uint_as_float", "__cvta_generic_to_shared", "__shfl_sync")
    own = [one for one in _PRIMITIVES if not any(word in one for word in of_device)]
    kernels = text[min(text.find(one) for one in ("// tensor map", "// launch") if one in text) :]
    wrappers = ""
    for name, parameters in parameters_of(text).items():
        arguments = ", ".join(
            ("*" if "tensor_map" in one else "") + re.split(r"[ *]", one)[-1] for one in parameters
        )
        held = ", ".join(parameters).replace("__grid_constant__ tensor_map ", "tensor_map *")
        wrappers += LAUNCH.format(name=name, parameters=held, arguments=arguments)
    folder = Path(mkdtemp(prefix="offcut-kernel-"))
    source, made = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text("\n".join([f"#define PATIENCE {PATIENCE}", HEAD, *own, kernels, wrappers]))
    assert COMPILER is not None
    command = [COMPILER, "-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-w", "-fwrapv"]
    subprocess.run([*command, "-o", str(made), str(source)], check=True, timeout=120)
    library = ctypes.CDLL(str(made))
    shutil.rmtree(folder)
    return library


def run_text(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    text: str | None = None,
) -> dict[str, np.ndarray]:
    """Return the results of a program, by its text; `text` stands in place of it.

    Raises DeviceFault for what is no run of a device.
    """
    own, plan = cuda_kernels(program)
    library = compiled(text or own)
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for buffer in program.buffers:
        if buffer.name not in held:
            shape = [int(evaluate(extent, sizes)) for extent in buffer.shape]
            kinds = {array.dtype.name: array.dtype for array in arrays.values()}
            dtype = kinds.get(buffer.dtype) or np.dtype(buffer.dtype)
            poison = np.frombuffer(b"\x7f" * dtype.itemsize, dtype)[0]
            held[buffer.name] = np.full([max(one, 1) for one in shape], poison, dtype)
    for launch, grid in zip(plan.launches, plan.grids(sizes), strict=True):
        arguments = []
        for one in launch.parameters:
            if isinstance(one, SizeParameter):
                arguments.append(ctypes.c_int(sizes[one.size]))
            elif isinstance(one, ArrayParameter):
                arguments.append(ctypes.c_void_p(held[one.buffer].ctypes.data))
            else:
                arguments.append(ctypes.byref(tensor_map(held[one.buffer], one.box)))
        if all(grid):
            getattr(library, f"launch_{launch.kernel}")(*grid, launch.threads, *arguments)
    library.fault_found.restype = ctypes.c_char_p
    fault = library.fault_found().decode()
    if fault:
        raise DeviceFault(fault)
    results = {}
    for buffer in program.buffers:
        if buffer.kind in (Kind.OUTPUT, Kind.INOUT):
            shape = tuple(int(evaluate(extent, sizes)) for extent in buffer.shape)
            results[buffer.name] = held[buffer.name][tuple(map(slice, shape))]
    return results
