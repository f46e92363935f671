"""The primitives that kernels call: functions with inline PTX, for compute capability 8.0 and later, for 9.0 alone by tensor
maps and warpgroups.

The text includes no header: it begins with the primitives that its kernels call (`head`).

Source: PTX ISA, "mbarrier", "cp.async", "cp.async.mbarrier.arrive", "ldmatrix", "mma.sync" of m16n8k16, m16n8k32
and m16n8k8, "bar", "cp.async.bulk.tensor", "wgmma.mma_async", "setmaxnreg"; descriptors: CUTLASS, mma_sm90_desc.hpp,
mma_traits_sm90_gmma.hpp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TYPES = """\
typedef unsigned long long barrier;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
#define DEVICE static __device__ __forceinline__"""

_PRIMITIVES = (
    # conversions
    "DEVICE float to_float(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }",
    'DEVICE float to_float(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }',
    'DEVICE bf16 to_bf16(float x) { bf16 y; asm("{ .reg .b32 t; cvt.rn.bf16x2.f32 t, 0f00000000, %1; cvt.u16.u32 %0, t; }" : "=h"(y.bits) : "f"(x)); return y; }',
    'DEVICE f16 to_f16(float x) { f16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y; }',
    # whole numbers, rounded down
    "template <class T> DEVICE T floor_div(T a, T b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }",
    "template <class T> DEVICE T floor_mod(T a, T b) { return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); }",
    "template <class T> DEVICE T magnitude(T a) { return a < 0 ? -a : a; }",
    "template <class T> DEVICE T shift_left(T a, T b) { return b < 0 || b >= 8 * (int)sizeof(T) ? 0 : a << b; }",
    "template <class T> DEVICE T shift_right(T a, T b) { return b < 0 || b >= 8 * (int)sizeof(T) ? (a < 0 ? -1 : 0) : a >> b; }",
    # floats: what is no number stays none
    """\
// toward zero, the nearest that there is; 0 for what is no number
template <class T, class F> DEVICE T to_whole(F x) {
  const bool is_signed = (T)-1 < (T)1;
  const T most = (T)(~0ull >> (64 - 8 * sizeof(T) + is_signed)), least = is_signed ? (T)(-(long long)most - 1) : (T)0;
  return x >= (F)most ? most : x <= (F)least ? least : x != x ? (T)0 : (T)x;
}""",
    "DEVICE float floor_mod(float a, float b) { const float r = fmodf(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : copysignf(r, b); }",
    "DEVICE double floor_mod(double a, double b) { const double r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : copysign(r, b); }",
    """\
template <class F> DEVICE F floor_of_quotient(F a, F b, F r) {
  if (b == 0) return a / b;
  const F q = (a - r) / b, whole = floor(q);
  return q == 0 ? copysign((F)0, a / b) : whole + (q - whole > (F)0.5);
}
DEVICE float floor_div(float a, float b) { return floor_of_quotient(a, b, floor_mod(a, b)); }
DEVICE double floor_div(double a, double b) { return floor_of_quotient(a, b, floor_mod(a, b)); }""",
    "template <class T> DEVICE T greater(T a, T b) { return a > b || a != a ? a : b; }",
    "template <class T> DEVICE T lesser(T a, T b) { return a < b || a != a ? a : b; }",
    # of the values of 32 lanes, in halves: the same in all of them
    """\
template <class T> DEVICE T sum_of_lanes(T x) {
  for (int lanes = 16; lanes; lanes /= 2) x = x + (T)__shfl_xor_sync(~0u, x, lanes);
  return x;
}""",
    """\
template <class T> DEVICE T greatest_of_lanes(T x) {
  for (int lanes = 16; lanes; lanes /= 2) x = greater(x, (T)__shfl_xor_sync(~0u, x, lanes));
  return x;
}""",
    """\
template <class T> DEVICE T least_of_lanes(T x) {
  for (int lanes = 16; lanes; lanes /= 2) x = lesser(x, (T)__shfl_xor_sync(~0u, x, lanes));
  return x;
}""",
    # barriers in shared memory: a token is a phase
    "DEVICE unsigned at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }",
    'DEVICE void init(barrier *b, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(b)), "r"(count) : "memory"); }',
    'DEVICE void arrive(barrier *b) { asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" :: "r"(at(b)) : "memory"); }',
    'DEVICE void arrive_with_copies(barrier *b) { asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at(b)) : "memory"); }',
    'DEVICE bool is_over(barrier *b, int parity) { int over; asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(over) : "r"(at(b)), "r"(parity) : "memory"); return over; }',
    "DEVICE void wait(barrier *ring, int room, int number) { while (!is_over(ring + number % room, number / room & 1)); }",
    'DEVICE void meet(int which, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(which), "r"(threads) : "memory"); }',
    # copies from main to shared memory, by the 32 lanes of a warp
    'DEVICE void copy_cell(void *to, const void *from, int bytes) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at(to)), "l"(from), "r"(bytes) : "memory"); }',
    'DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }',
    """\
template <int ROWS, int COLUMNS, int PITCH, class T>
DEVICE void copy_rows(T *to, const T *from, long long pitch, int rows, int columns, int lane) {
  for (int e = lane; e < ROWS * COLUMNS; e += 32) {  // what is past the end is zero
    const int i = e / COLUMNS, j = e % COLUMNS;
    to[i * PITCH + j] = i < rows && j < columns ? from[i * pitch + j] : T();
  }
}
template <int ROWS, int COLUMNS, int PITCH, class T>
DEVICE void copy_rows(T *to, const T *from, long long pitch, long long step, int rows, int columns, int lane) {
  for (int e = lane; e < ROWS * COLUMNS; e += 32) {  // of elements that lie `step` apart
    const int i = e / COLUMNS, j = e % COLUMNS;
    to[i * PITCH + j] = i < rows && j < columns ? from[i * pitch + j * step] : T();
  }
}""",
    """\
template <int ROWS, int COLUMNS, int PITCH, class T>
DEVICE void copy_rows_in_background(T *to, const T *from, long long pitch, int rows, int columns, int lane) {
  const int EACH = 16 / sizeof(T), CELLS = COLUMNS / EACH;  // of 16 bytes
  for (int e = lane; e < ROWS * CELLS; e += 32) {
    const int i = e / CELLS, j = e % CELLS * EACH, left = i < rows ? min(max(columns - j, 0), EACH) : 0;
    copy_cell(to + i * PITCH + j, left ? from + i * pitch + j : from, (int)sizeof(T) * left);  // the rest of a cell is zero
  }
}""",
    # boxes from main to shared memory, by tensor maps
    'DEVICE void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }',
    'DEVICE void arrive_and_expect(barrier *b, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at(b)), "r"(bytes) : "memory"); }',
    'template <class T> DEVICE void load_box(T *to, const tensor_map *map, barrier *b, int x, int y) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(at(to)), "l"(map), "r"(at(b)), "r"(x), "r"(y) : "memory"); }',
    'template <class T> DEVICE void load_box(T *to, const tensor_map *map, barrier *b, int x, int y, int z) { asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" :: "r"(at(to)), "l"(map), "r"(at(b)), "r"(x), "r"(y), "r"(z) : "memory"); }',
    """\
template <int ROWS, int COLUMNS, class T, class... Outer>
DEVICE int load_boxes(T *to, const tensor_map *map, barrier *b, int x, Outer... outer) {
  #pragma unroll
  for (int j = 0; j < COLUMNS; j += 64) load_box(to + j * ROWS, map, b, x + j, outer...);
  return ROWS * COLUMNS * sizeof(T);  // what is outside of the array arrives as zeros
}""",
    "DEVICE int in_boxes(int i, int j, int rows) { return j / 64 * 64 * rows + i * 64 + (j % 64 ^ i % 8 * 8); }",
    'DEVICE void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }',
    # products of warpgroups, in the background
    "DEVICE int same(int x) { return __shfl_sync(0xffffffffu, x, 0); }",
    'template <int R> DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(R)); }',
    'template <int R> DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(R)); }',
    'DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }',
    'DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }',
    'template <int MOST> DEVICE void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(MOST) : "memory"); }',
    """\
template <int M, int N> DEVICE void end_of(float (&d)[M][N][4]) {  // no read of a sum moves before the wait
  #pragma unroll
  for (int e = 0; e < M * N * 4; ++e) asm volatile("" : "+f"(d[e / (4 * N)][e / 4 % N][e % 4]) :: "memory");
}""",
    """\
// where rows of boxes of 128 bytes begin, 8 of them 1024 bytes apart, boxes `box` bytes apart; cells of 16 bytes swizzled
DEVICE unsigned long long descriptor(const void *p, int box) {
  return (at(p) & 0x3ffff) >> 4 | (unsigned long long)(box >> 4) << 16 | (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}
template <int ROWS, bool TURNED, class T>
DEVICE unsigned long long operand(const T *tile, int row, int p) {  // from a row and a term on; TURNED where terms lie apart
  return descriptor(TURNED ? tile + row * ROWS + p * 64 : tile + p / 64 * 64 * ROWS + row * 64 + p % 64, 128 * ROWS);
}""",
    """\
// d += a * b of 64 * M rows, 8 * N columns and TERMS, as a group in the background
template <int N, int A_ROWS, bool A_TURNED, int B_ROWS, bool B_TURNED, int TERMS, int M, class T>
DEVICE void multiply_boxes(float (&d)[M][N][4], const T *a, const T *b) {
  begin_products();
  #pragma unroll
  for (int p = 0; p < TERMS; p += 16)
    #pragma unroll
    for (int m = 0; m < M; ++m)
      multiply_async<A_TURNED, B_TURNED>(d[m], operand<A_ROWS, A_TURNED>(a, 64 * m, p), operand<B_ROWS, B_TURNED>(b, 0, p), T());
  commit_products();
}""",
    # products of fragments
    'DEVICE void load_matrices(unsigned (&d)[4], const void *row) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at(row)) : "memory"); }',
    'DEVICE void load_matrices_turned(unsigned (&d)[4], const void *row) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at(row)) : "memory"); }',
    'DEVICE void load_matrices(unsigned (&d)[2], const void *row) { asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "r"(at(row)) : "memory"); }',
    'DEVICE void load_matrices_turned(unsigned (&d)[2], const void *row) { asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "r"(at(row)) : "memory"); }',
    """\
DEVICE void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}""",
    """\
DEVICE void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], f16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}""",
    """\
template <class T> DEVICE const T *row_of_a(const T *tile, int pitch, int lane) { return tile + lane % 16 * pitch + lane / 16 * 8; }
template <class T> DEVICE const T *row_of_a_turned(const T *tile, int pitch, int lane) { return tile + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 8; }
template <class T> DEVICE const T *row_of_b(const T *tile, int pitch, int lane) { return tile + lane % 8 * pitch + lane / 8 % 2 * 8; }
template <class T> DEVICE const T *row_of_b_turned(const T *tile, int pitch, int lane) { return tile + lane % 16 * pitch; }""",
    """\
// d += a * b of 16 * M rows, 8 * N columns and `terms`, 16 at a time; a and b in shared memory, TURNED where terms lie apart
template <int M, int N, int A_PITCH, int B_PITCH, bool A_TURNED, bool B_TURNED, class T>
DEVICE void multiply_tile(float (&d)[M][N][4], const T *a, const T *b, int terms, int lane) {
  for (int p = 0; p < terms; p += 16) {
    unsigned x[M][4], y[2];
    #pragma unroll
    for (int m = 0; m < M; ++m)
      if (A_TURNED) load_matrices_turned(x[m], row_of_a_turned(a + p * A_PITCH + 16 * m, A_PITCH, lane));
      else load_matrices(x[m], row_of_a(a + 16 * m * A_PITCH + p, A_PITCH, lane));
    #pragma unroll
    for (int n = 0; n < N; ++n) {
      if (B_TURNED) load_matrices(y, row_of_b(b + 8 * n * B_PITCH + p, B_PITCH, lane));
      else load_matrices_turned(y, row_of_b_turned(b + p * B_PITCH + 8 * n, B_PITCH, lane));
      #pragma unroll
      for (int m = 0; m < M; ++m) multiply(d[m][n], x[m], y, T());
    }
  }
}""",
    """\
template <int M, int N, class T> DEVICE void zero(T (&d)[M][N][4]) {
  #pragma unroll
  for (int e = 0; e < M * N * 4; ++e) d[e / (4 * N)][e / 4 % N][e % 4] = 0;
}""",
    # products of bytes: 32 terms at a time, four in a register
    *(
        f"""\
DEVICE void multiply_bytes(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], {types}) {{
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.{a}.{b}.s32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
    : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}"""
        for a, b, types in (
            ("s8", "s8", "signed char, signed char"),
            ("u8", "s8", "unsigned char, signed char"),
            ("u8", "u8", "unsigned char, unsigned char"),
        )
    ),
    """\
// four bytes side by side, or one of each of four rows
template <bool APART, class T> DEVICE unsigned four_bytes(const T *from, int pitch) {
  if (!APART) return *(const unsigned *)from;
  unsigned four = 0;
  #pragma unroll
  for (int e = 0; e < 4; ++e) four |= (unsigned)(unsigned char)from[e * pitch] << 8 * e;
  return four;
}""",
    """\
template <int M, int N, int A_PITCH, int B_PITCH, bool A_TURNED, bool B_TURNED, class A, class B>
DEVICE void multiply_tile_of_bytes(int (&d)[M][N][4], const A *a, const B *b, int terms, int lane) {
  for (int p = 0; p < terms; p += 32) {
    unsigned x[M][4], y[2];
    #pragma unroll
    for (int m = 0; m < M; ++m)
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 16 * m + lane / 4 + e % 2 * 8, q = p + lane % 4 * 4 + e / 2 * 16;
        x[m][e] = four_bytes<A_TURNED>(A_TURNED ? a + q * A_PITCH + i : a + i * A_PITCH + q, A_PITCH);
      }
    #pragma unroll
    for (int n = 0; n < N; ++n) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = 8 * n + lane / 4, q = p + lane % 4 * 4 + e * 16;
        y[e] = four_bytes<!B_TURNED>(B_TURNED ? b + j * B_PITCH + q : b + q * B_PITCH + j, B_PITCH);
      }
      #pragma unroll
      for (int m = 0; m < M; ++m) multiply_bytes(d[m][n], x[m], y, A(), B());
    }
  }
}""",
    # products of float32 on tensor cores, of 10 bits behind the point, 8 terms at a time
    'DEVICE unsigned to_tf32(float x) { unsigned y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x)); return y; }',
    """\
DEVICE void multiply_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}""",
    """\
template <int M, int N, int A_PITCH, int B_PITCH, bool A_TURNED, bool B_TURNED>
DEVICE void multiply_tile_of_tf32(float (&d)[M][N][4], const float *a, const float *b, int terms, int lane) {
  for (int p = 0; p < terms; p += 8) {
    unsigned x[M][4], y[2];
    #pragma unroll
    for (int m = 0; m < M; ++m)
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 16 * m + lane / 4 + e % 2 * 8, q = p + lane % 4 + e / 2 * 4;
        x[m][e] = to_tf32(A_TURNED ? a[q * A_PITCH + i] : a[i * A_PITCH + q]);
      }
    #pragma unroll
    for (int n = 0; n < N; ++n) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = 8 * n + lane / 4, q = p + lane % 4 + e * 4;
        y[e] = to_tf32(B_TURNED ? b[j * B_PITCH + q] : b[q * B_PITCH + j]);
      }
      #pragma unroll
      for (int m = 0; m < M; ++m) multiply_tf32(d[m][n], x[m], y);
    }
  }
}""",
    """\
// the same on lanes, term by term: each lane has the elements of C that it has of a fragment
template <int M, int N, int A_PITCH, int B_PITCH, bool A_TURNED, bool B_TURNED, class T>
DEVICE void multiply_tile_on_lanes(T (&d)[M][N][4], const T *a, const T *b, int terms, int lane) {
  for (int p = 0; p < terms; ++p) {
    #pragma unroll
    for (int n = 0; n < N; ++n) {
      T y[2];
      #pragma unroll
      for (int e = 0; e < 2; ++e) y[e] = b[B_TURNED ? (8 * n + lane % 4 * 2 + e) * B_PITCH + p : p * B_PITCH + 8 * n + lane % 4 * 2 + e];
      #pragma unroll
      for (int m = 0; m < M; ++m)
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = 16 * m + lane / 4 + e / 2 * 8;
          d[m][n][e] += a[A_TURNED ? p * A_PITCH + i : i * A_PITCH + p] * y[e % 2];
        }
    }
  }
}""",
    # the row and the column of an element of a fragment
    "DEVICE int fragment_row(int lane, int e) { return lane / 4 + e / 2 * 8; }",
    "DEVICE int fragment_column(int lane, int e) { return lane % 4 * 2 + e % 2; }",
)  # fmt: skip

_TENSOR_MAP = "struct __align__(64) tensor_map { unsigned char opaque[128]; };"
_COLUMNS = re.compile(r"multiply_boxes<(\d+),")
_NAME = re.compile(r"(\w+)\(")


def _defined_names(text: str) -> set[str]:
    return {
        match.group(1)
        for line in text.splitlines()
        if "DEVICE" in line and (match := _NAME.search(line.split("DEVICE", 1)[1]))
    }


PRIMITIVE_NAMES = frozenset(name for one in _PRIMITIVES for name in _defined_names(one))
"""The names of all primitives."""


def head(body: str) -> str:
    """Return the types and the primitives that a text calls, and those that these call."""
    words = set(re.findall(r"\w+", body))
    included: set[int] = set()
    while True:
        more = {
            at
            for at, one in enumerate(_PRIMITIVES)
            if at not in included and _defined_names(one) & words
        }
        if not more:
            break
        included |= more
        words |= {word for at in more for word in re.findall(r"\w+", _PRIMITIVES[at])}
    columns = sorted({int(count) for count in _COLUMNS.findall(body)})
    types = [_TYPES, *[_TENSOR_MAP] * ("tensor_map" in words)]
    products = (product(n, kind) for n in columns for kind in ("bf16", "f16") if kind in words)
    return "\n".join([*types, *products, *(_PRIMITIVES[at] for at in sorted(included))])


def product(columns: int, kind: str) -> str:
    """Return the primitive that multiplies 64 rows by 16 terms in the background.

    columns  of eight
    kind     "bf16" or "f16"
    """
    sums = 4 * columns
    to = _in_lines([f"%{e}" for e in range(sums)])
    outputs = _in_lines([f'"+f"(d[{e // 4}][{e % 4}])' for e in range(sums)])
    a, b, *turned = (f"%{sums + e}" for e in range(4))
    return f"""\
template <int A_TURNED, int B_TURNED>
DEVICE void multiply_async(float (&d)[{columns}][4], unsigned long long a, unsigned long long b, {kind}) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n{8 * columns}k16.f32.{kind}.{kind} {{"
    "{to.replace(_BREAK, '"' + _BREAK + '"')}}}, {a}, {b}, p, 1, 1, {", ".join(turned)}; }}"
    : {outputs}
    : "l"(a), "l"(b), "n"(A_TURNED), "n"(B_TURNED));
}}"""


_BREAK = "\n    "


def _in_lines(items: Sequence[str]) -> str:
    """Return a list in lines of 16 items."""
    lines = (", ".join(items[at : at + 16]) for at in range(0, len(items), 16))
    return f",{_BREAK}".join(lines)
