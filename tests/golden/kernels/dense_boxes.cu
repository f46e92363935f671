typedef unsigned long long barrier;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
#define DEVICE static __device__ __forceinline__
struct __align__(64) tensor_map { unsigned char opaque[128]; };
template <int A_TURNED, int B_TURNED>
DEVICE void multiply_async(float (&d)[3][4], unsigned long long a, unsigned long long b, bf16) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 {"
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, %12, %13, p, 1, 1, %14, %15; }"
    : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3])
    : "l"(a), "l"(b), "n"(A_TURNED), "n"(B_TURNED));
}
DEVICE bf16 to_bf16(float x) { bf16 y; asm("{ .reg .b32 t; cvt.rn.bf16x2.f32 t, 0f00000000, %1; cvt.u16.u32 %0, t; }" : "=h"(y.bits) : "f"(x)); return y; }
template <class T> DEVICE T greater(T a, T b) { return a > b || a != a ? a : b; }
DEVICE unsigned at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
DEVICE void init(barrier *b, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(b)), "r"(count) : "memory"); }
DEVICE void arrive(barrier *b) { asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" :: "r"(at(b)) : "memory"); }
DEVICE bool is_over(barrier *b, int parity) { int over; asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(over) : "r"(at(b)), "r"(parity) : "memory"); return over; }
DEVICE void wait(barrier *ring, int room, int number) { while (!is_over(ring + number % room, number / room & 1)); }
DEVICE void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void arrive_and_expect(barrier *b, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at(b)), "r"(bytes) : "memory"); }
template <class T> DEVICE void load_box(T *to, const tensor_map *map, barrier *b, int x, int y) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(at(to)), "l"(map), "r"(at(b)), "r"(x), "r"(y) : "memory"); }
template <class T> DEVICE void load_box(T *to, const tensor_map *map, barrier *b, int x, int y, int z) { asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" :: "r"(at(to)), "l"(map), "r"(at(b)), "r"(x), "r"(y), "r"(z) : "memory"); }
template <int ROWS, int COLUMNS, class T, class... Outer>
DEVICE int load_boxes(T *to, const tensor_map *map, barrier *b, int x, Outer... outer) {
  #pragma unroll
  for (int j = 0; j < COLUMNS; j += 64) load_box(to + j * ROWS, map, b, x + j, outer...);
  return ROWS * COLUMNS * sizeof(T);  // what is outside of the array arrives as zeros
}
DEVICE int same(int x) { return __shfl_sync(0xffffffffu, x, 0); }
template <int R> DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(R)); }
template <int R> DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(R)); }
DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int MOST> DEVICE void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(MOST) : "memory"); }
template <int M, int N> DEVICE void end_of(float (&d)[M][N][4]) {  // no read of a sum moves before the wait
  #pragma unroll
  for (int e = 0; e < M * N * 4; ++e) asm volatile("" : "+f"(d[e / (4 * N)][e / 4 % N][e % 4]) :: "memory");
}
// where rows of boxes of 128 bytes begin, 8 of them 1024 bytes apart, boxes `box` bytes apart; cells of 16 bytes swizzled
DEVICE unsigned long long descriptor(const void *p, int box) {
  return (at(p) & 0x3ffff) >> 4 | (unsigned long long)(box >> 4) << 16 | (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}
template <int ROWS, bool TURNED, class T>
DEVICE unsigned long long operand(const T *tile, int row, int p) {  // from a row and a term on; TURNED where terms lie apart
  return descriptor(TURNED ? tile + row * ROWS + p * 64 : tile + p / 64 * 64 * ROWS + row * 64 + p % 64, 128 * ROWS);
}
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
}
template <int M, int N, class T> DEVICE void zero(T (&d)[M][N][4]) {
  #pragma unroll
  for (int e = 0; e < M * N * 4; ++e) d[e / (4 * N)][e / 4 % N][e % 4] = 0;
}
DEVICE int fragment_row(int lane, int e) { return lane / 4 + e / 2 * 8; }
DEVICE int fragment_column(int lane, int e) { return lane % 4 * 2 + e % 2; }

// tensor map A_in_map: A in boxes of 128 x 64, 128 bytes swizzled
// tensor map W_in_map: W in boxes of 64 x 64, 128 bytes swizzled
// launch: grid ((n + 127) / 128), 384 threads, 98368 bytes of shared memory
extern "C" __global__ void __launch_bounds__(384, 1) offcut_C(bf16 *__restrict__ C, const __grid_constant__ tensor_map A_in_map, const __grid_constant__ tensor_map W_in_map, int n) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = same(threadIdx.x / 128);
  const int i_block = (int)blockIdx.x;
  bf16 *const A_in = (bf16 *)(shared + 0);  // 4 of 128 rows of 64 in boxes
  bf16 *const W_in = (bf16 *)(shared + 65536);  // 4 of 64 rows of 64 in boxes
  barrier *const warpgroup_to_load = (barrier *)(shared + 98304);  // 4: warpgroup to load
  barrier *const load_to_warpgroup = (barrier *)(shared + 98336);  // 4: load to warpgroup
  if (threadIdx.x == 0) {
    for (int k = 0; k < 4; ++k) init(warpgroup_to_load + k, 8);
    for (int k = 0; k < 4; ++k) init(load_to_warpgroup + k, 1);
    barriers_ready();
  }
  __syncthreads();
  if (group == 2) {  // the load unit
    fewer_registers<40>();
    if (warp > 8) return;
    int warpgroup_to_load_waits = 0, load_to_warpgroup_arrivals = 0, bytes = 0;
    for (int k_stage = 0; k_stage < 6; ++k_stage) {
      if (k_stage - 4 >= 0) wait(warpgroup_to_load, 4, warpgroup_to_load_waits++);
      if (lane == 0) bytes += load_boxes<128, 64>(A_in + 8192 * (k_stage % 4), &A_in_map, load_to_warpgroup + load_to_warpgroup_arrivals % 4, 64 * k_stage, 128 * i_block);
      if (lane == 0) bytes += load_boxes<64, 64>(W_in + 4096 * (k_stage % 4), &W_in_map, load_to_warpgroup + load_to_warpgroup_arrivals % 4, 0, 64 * k_stage);
      if (lane == 0) arrive_and_expect(load_to_warpgroup + load_to_warpgroup_arrivals % 4, bytes);
      bytes = 0;
      ++load_to_warpgroup_arrivals;
    }
    return;
  }
  more_registers<232>();
  int load_to_warpgroup_waits = 0, warpgroup_to_load_arrivals = 0;
  {
    float S[1][3][4];
    zero(S);
    for (int k_stage = 0; k_stage < 6; ++k_stage) {
      wait(load_to_warpgroup, 4, load_to_warpgroup_waits++);
      multiply_boxes<3, 128, false, 64, true, 64>(S, A_in + 8192 * (k_stage % 4) + 4096 * group, W_in + 4096 * (k_stage % 4));
      wait_for_products<0>();
      end_of(S);
      __syncwarp();
      if (lane == 0) arrive(warpgroup_to_load + warpgroup_to_load_arrivals % 4);
      ++warpgroup_to_load_arrivals;
    }
    #pragma unroll
    for (int row_tile = 0; row_tile < 1; ++row_tile)
      #pragma unroll
      for (int column_tile = 0; column_tile < 3; ++column_tile)
        #pragma unroll
        for (int element = 0; element < 4; ++element) {
          const int i_row_out = 64 * row_tile + 16 * (warp % 4) + fragment_row(lane, element);
          const int j_in = 8 * column_tile + fragment_column(lane, element);
          if (128 * i_block + 64 * group + i_row_out < n && j_in < 24) C[(long long)(128 * i_block + 64 * group + i_row_out) * 24 + j_in] = to_bf16(greater(S[row_tile][column_tile][element], 0.0f));
        }
  }
}
