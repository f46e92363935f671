"""Boxes, warpgroups and their registers on a CPU: a second definition of what is PTX of compute capability 9.0 in a text.

All that is asynchronous ends as late as it may: a box is NaN until somebody looks at its barrier, and products read shared
memory when their group is waited for; sums are NaN until `end_of` says that the compiler may read them. `fault` names what a device
would not: it ends all waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np


class TensorMap(ctypes.Structure):
    """What a tensor map says: strides in elements, the last axis first."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("extent", ctypes.c_longlong * 3),
        ("stride", ctypes.c_longlong * 3),
        ("box", ctypes.c_int * 3),
    )


def tensor_map(array: np.ndarray, box: Sequence[int]) -> TensorMap:
    """Return the tensor map of an array, with as many elements of a box along each axis."""
    assert array.ctypes.data % 16 == 0
    assert all(stride % 16 == 0 for stride in array.strides[:-1])
    fill = [1] * (3 - array.ndim)
    extents = [*array.shape[::-1], *fill]
    strides = [*(one // array.itemsize for one in array.strides[::-1]), *fill]
    return map_of(array.ctypes.data, extents, strides, [*reversed(box), *fill])


def map_of(
    address: int, extents: Sequence[int], strides: Sequence[int], box: Sequence[int]
) -> TensorMap:
    """Return a tensor map, of three numbers of each kind, the last axis first; strides in elements."""
    longs = ctypes.c_longlong * 3
    return TensorMap(address, longs(*extents), longs(*strides), (ctypes.c_int * 3)(*box))


HEAD = r"""
#define __grid_constant__
struct tensor_map { const unsigned short *base; long long extent[3], stride[3]; int box[3]; };
static unsigned at(const void *p) { return (unsigned)((const unsigned char *)p - shared); }
static unsigned swizzled(unsigned a) { return a ^ (a >> 7 & 7) << 4; }
struct Phase {
  int count, pending, phase;
  long bytes;
  bool seen;  // by copies of boxes
  int waited;  // phases up to the last one that somebody has waited for
  std::vector<std::function<void()>> late;  // what ends when somebody looks at the barrier
};
static std::map<barrier *, Phase> phases;
static int spare;
static Phase &phase_of(barrier *b) {
  auto one = phases.find(b);
  if (one == phases.end()) fault("barriers: one that was not initialized");
  return one->second;
}
static void settle(Phase &p) {
  ++moves;
  if (p.pending < 0) fault("arrivals: more than the count of a barrier");
  if (p.pending || p.bytes) return;
  if (p.waited < p.phase) fault("phase: one ends, and nobody has waited for the one before");
  p.pending = p.count;
  ++p.phase;
}
static void perform(const std::vector<Copy> &copies) {
  for (const Copy &one : copies) { memset(one.to, 0, 16); memcpy(one.to, one.from, one.bytes); }
}
static void deliver(barrier *b) {
  auto late = std::move(phase_of(b).late);
  phase_of(b).late.clear();
  for (auto &one : late) one();
}
DEVICE void barriers_ready() { for (auto &[_, p] : phases) p.seen = true; }
DEVICE void arrive_and_expect(barrier *b, int bytes) { Phase &p = phase_of(b); p.bytes += bytes; --p.pending; settle(p); }
template <class T> static void load_box(Pointer<T> to, const tensor_map *m, barrier *b, int x, int y = 0, int z = 0) {
  if (at(to) % 1024) fault("alignment: a box begins inside of 1024 bytes");
  if (x % 8) fault("alignment: a box begins inside of 16 bytes of a row");
  if (!phase_of(b).seen) fault("fence: a box arrives at a barrier that copies of boxes do not see");
  std::vector<unsigned short> data;
  for (int k = 0; k < m->box[2]; ++k) for (int i = 0; i < m->box[1]; ++i) for (int j = 0; j < m->box[0]; ++j) {
    const bool in = x + j >= 0 && x + j < m->extent[0] && y + i >= 0 && y + i < m->extent[1] && z + k >= 0 && z + k < m->extent[2];
    data.push_back(in ? m->base[(x + j) * m->stride[0] + (y + i) * m->stride[1] + (z + k) * m->stride[2]] : 0);
  }
  const int size = 2 * (int)data.size();
  memset(to.bytes(size), 0xff, size);
  phase_of(b).late.push_back([to = at(to), data, b, size] {
    for (size_t e = 0; e < data.size(); ++e) memcpy(shared + swizzled(to + 2 * e), &data[e], 2);
    phase_of(b).bytes -= size;
    settle(phase_of(b));
  });
}
DEVICE int same(int x) { return x; }
static int registers_at_begin() { return 65536 / threads_of_block / 8 * 8; }
template <int R> DEVICE void fewer_registers() { spare += registers_at_begin() - R; ++moves; }
template <int R> DEVICE void more_registers() {
  const int more = R - registers_at_begin();
  while (spare < more) yield("registers");
  spare -= more;
  ++moves;
}
DEVICE void begin_products() { converge("a product"); fibers[me].products.begun = true; }
DEVICE void commit_products() {
  Products &own = fibers[me].products;
  own.groups.push_back(std::move(own.open));
  own.open.clear();
}
template <int MOST_LATE> DEVICE void wait_for_products() {
  Products &own = fibers[me].products;
  while ((int)own.groups.size() > MOST_LATE) {
    auto first = std::move(own.groups.front());
    own.groups.erase(own.groups.begin());
    for (auto &one : first) one();
  }
  own.begun = false;  // registers are touched
  converge("a product");
}
template <int M, int N> DEVICE void end_of(float (&d)[M][N][4]) {
  for (auto &rows : d) {
    auto one = fibers[me].products.sums.find(&rows);
    if (one == fibers[me].products.sums.end() || one->second.pending) continue;
    memcpy(&rows, one->second.values.data(), sizeof rows);
    fibers[me].products.sums.erase(one);
  }
}
// an element of an operand: row r of the 64, or column, and term k of the 16
template <int TURNED, class T> static float operand_element(unsigned long long d, int r, int k) {
  const unsigned start = (d & 0x3fff) << 4, box = (d >> 16 & 0x3fff) << 4, eight = (d >> 32 & 0x3fff) << 4;
  if (d >> 62 != 1) fault("layout: no swizzle of 128 bytes");
  const unsigned offset = start + (TURNED ? r / 64 * box + k / 8 * eight + k % 8 * 128 + r % 64 * 2 : r / 8 * eight + r % 8 * 128 + k * 2);
  if (offset + 2 > sizeof shared) fault("bounds: byte %u of shared memory, of which a block has %zu", offset, sizeof shared);
  T x; memcpy(&x, shared + swizzled(offset), 2);
  return to_float(x);
}
template <int A_TURNED, int B_TURNED, int N, class T>
static void multiply_async(float (&d)[N][4], unsigned long long a, unsigned long long b, T) {
  Products &own = fibers[me].products;
  if (!own.begun) fault("fence: a product on registers without a fence");
  auto [one, is_new] = own.sums.try_emplace(&d);
  Sums &sums = one->second;
  if (is_new) {
    sums.values.assign(&d[0][0], &d[0][0] + 4 * N);
    memset(&d, 0xff, sizeof d);
  }
  ++sums.pending;
  own.open.push_back([&sums, a, b] {
    const int l = lane_of(), first = warp_of() % 4 * 16;
    for (int half = 0; half < 2; ++half) {
      float x[16];
      for (int k = 0; k < 16; ++k) x[k] = operand_element<A_TURNED, T>(a, first + l / 4 + 8 * half, k);
      for (int n = 0; n < N; ++n) for (int e = 0; e < 2; ++e)
        for (int k = 0; k < 16; ++k) sums.values[4 * n + 2 * half + e] += x[k] * operand_element<B_TURNED, T>(b, 8 * n + l % 4 * 2 + e, k);
    }
    --sums.pending;
  });
}
"""
