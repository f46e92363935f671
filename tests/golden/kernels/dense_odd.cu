typedef unsigned long long barrier;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
#define DEVICE static __device__ __forceinline__
DEVICE bf16 to_bf16(float x) { bf16 y; asm("{ .reg .b32 t; cvt.rn.bf16x2.f32 t, 0f00000000, %1; cvt.u16.u32 %0, t; }" : "=h"(y.bits) : "f"(x)); return y; }
template <class T> DEVICE T greater(T a, T b) { return a > b || a != a ? a : b; }
DEVICE unsigned at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
DEVICE void init(barrier *b, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(b)), "r"(count) : "memory"); }
DEVICE void arrive(barrier *b) { asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" :: "r"(at(b)) : "memory"); }
DEVICE bool is_over(barrier *b, int parity) { int over; asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(over) : "r"(at(b)), "r"(parity) : "memory"); return over; }
DEVICE void wait(barrier *ring, int room, int number) { while (!is_over(ring + number % room, number / room & 1)); }
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
}
DEVICE void load_matrices(unsigned (&d)[4], const void *row) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at(row)) : "memory"); }
DEVICE void load_matrices_turned(unsigned (&d)[4], const void *row) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at(row)) : "memory"); }
DEVICE void load_matrices(unsigned (&d)[2], const void *row) { asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "r"(at(row)) : "memory"); }
DEVICE void load_matrices_turned(unsigned (&d)[2], const void *row) { asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "r"(at(row)) : "memory"); }
DEVICE void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], f16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <class T> DEVICE const T *row_of_a(const T *tile, int pitch, int lane) { return tile + lane % 16 * pitch + lane / 16 * 8; }
template <class T> DEVICE const T *row_of_a_turned(const T *tile, int pitch, int lane) { return tile + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 8; }
template <class T> DEVICE const T *row_of_b(const T *tile, int pitch, int lane) { return tile + lane % 8 * pitch + lane / 8 % 2 * 8; }
template <class T> DEVICE const T *row_of_b_turned(const T *tile, int pitch, int lane) { return tile + lane % 16 * pitch; }
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
}
template <int M, int N, class T> DEVICE void zero(T (&d)[M][N][4]) {
  #pragma unroll
  for (int e = 0; e < M * N * 4; ++e) d[e / (4 * N)][e / 4 % N][e % 4] = 0;
}
DEVICE int fragment_row(int lane, int e) { return lane / 4 + e / 2 * 8; }
DEVICE int fragment_column(int lane, int e) { return lane % 4 * 2 + e % 2; }

// launch: grid ((n + 63) / 64, 3), 160 threads, 38944 bytes of shared memory
extern "C" __global__ void __launch_bounds__(160) offcut_C(const bf16 *__restrict__ A, const bf16 *__restrict__ W, bf16 *__restrict__ C, int n) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int i_block = (int)blockIdx.x;
  const int j_block = (int)blockIdx.y;
  bf16 *const A_in = (bf16 *)(shared + 0);  // 4 of 64 rows of 32
  bf16 *const W_in = (bf16 *)(shared + 20480);  // 4 of 32 rows of 64
  barrier *const load_to_warp = (barrier *)(shared + 38912);  // 4: load to warp
  if (threadIdx.x == 0) {
    for (int k = 0; k < 4; ++k) init(load_to_warp + k, 32);
  }
  __syncthreads();
  if (warp == 4) {  // the load unit
    int load_to_warp_arrivals = 0;
    for (int k_stage = 0; k_stage < 2; ++k_stage) {
      copy_rows<64, 32, 40>(A_in + 2560 * (k_stage % 4), A + ((long long)(64 * i_block) * 37 + 32 * k_stage), 37, min(64, n - 64 * i_block), min(32, 37 - 32 * k_stage), lane);
      copy_rows<32, 64, 72>(W_in + 2304 * (k_stage % 4), W + ((long long)(32 * k_stage) * 133 + 64 * j_block), 133, min(32, 37 - 32 * k_stage), min(133 - 64 * j_block, 64), lane);
      arrive(load_to_warp + load_to_warp_arrivals % 4);
      ++load_to_warp_arrivals;
    }
    return;
  }
  int load_to_warp_waits = 0;
  {
    float S[1][8][4];
    zero(S);
    for (int k_stage = 0; k_stage < 2; ++k_stage) {
      wait(load_to_warp, 4, load_to_warp_waits++);
      multiply_tile<1, 8, 40, 72, false, false>(S, A_in + 2560 * (k_stage % 4) + 640 * warp, W_in + 2304 * (k_stage % 4), min(32, 37 - 32 * k_stage), lane);
    }
    #pragma unroll
    for (int row_tile = 0; row_tile < 1; ++row_tile)
      #pragma unroll
      for (int column_tile = 0; column_tile < 8; ++column_tile)
        #pragma unroll
        for (int element = 0; element < 4; ++element) {
          const int i_row_out = 16 * row_tile + fragment_row(lane, element);
          const int j_in = 8 * column_tile + fragment_column(lane, element);
          if (64 * i_block + 16 * warp + i_row_out < n && 64 * j_block + j_in < 133) C[(long long)(64 * i_block + 16 * warp + i_row_out) * 133 + 64 * j_block + j_in] = to_bf16(greater(S[row_tile][column_tile][element], 0.0f));
        }
  }
}
