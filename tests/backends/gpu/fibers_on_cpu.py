"""The threads of a block on a CPU: a fiber for each, warps in an order that is drawn, of which one lags behind the others.

A fiber runs until it has to wait. Lanes of a warp run in an order of their own each time, and meet where an instruction is of the
whole warp. Where no fiber can go on, it is a standstill, and the fault says what they wait for. The first fault ends the block.

Arrays and windows are `Pointer`s: an element outside of them is a fault that names it, and is neither read nor written.
"""

from __future__ import annotations

HEAD = r"""
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <random>
#include <vector>
#include <ucontext.h>
#define __global__
#define __shared__
#define __align__(n)
#define __launch_bounds__(...)
#define DEVICE static inline
typedef unsigned long long barrier;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
struct Place { unsigned x, y, z; };
static Place threadIdx, blockIdx;
alignas(1024) static unsigned char shared[232448];
template <class A, class B> static inline auto min(A a, B b) { return a < b ? a : b; }
template <class A, class B> static inline auto max(A a, B b) { return a > b ? a : b; }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }

// fibers
enum { MOST = 1024, STACK = 1 << 17 };
struct Copy { void *to; const void *from; int bytes; };
struct Sums { std::vector<float> values; int pending; };
struct Products {  // of a thread, in the background
  bool begun;
  std::vector<std::function<void()>> open;  // of no group so far
  std::vector<std::vector<std::function<void()>>> groups;
  std::map<void *, Sums> sums;  // what they add up: in place of it is NaN until `end_of`
};
struct Fiber {
  ucontext_t context;
  bool ended;
  const char *waits;
  unsigned turn;  // of the slots that lanes exchange values by
  std::vector<Copy> copies;
  int pending;  // copies of cells that the thread has not waited for
  Products products;
};
static Fiber fibers[MOST];
static char *stacks;
static ucontext_t scheduler;
static int me = -1;
static long moves;
static char found[512];
static inline int warp_of() { return me / 32; }
static inline int lane_of() { return me % 32; }
static void fault(const char *format, ...) {  // the first one ends the block
  va_list values;
  va_start(values, format);
  if (!found[0]) vsnprintf(found, sizeof found, format, values);
  va_end(values);
  if (me >= 0) swapcontext(&fibers[me].context, &scheduler);
}
static void yield(const char *what) {
  fibers[me].waits = what;
  swapcontext(&fibers[me].context, &scheduler);
}
static const std::function<void()> *kernel;
static void begin() {
  (*kernel)();
  Fiber &one = fibers[me];
  if (one.pending) fault("async: a thread ends before its copies");
  if (!one.products.open.empty() || !one.products.groups.empty()) fault("async: a thread ends before its products");
  one.ended = true;
  ++moves;
  swapcontext(&one.context, &scheduler);
}
static void resume(int thread) {
  if (fibers[thread].ended || found[0]) return;
  me = thread;
  threadIdx = {(unsigned)thread, 0, 0};
  swapcontext(&scheduler, &fibers[thread].context);
  me = -1;
}
static void run_warp(int warp, std::minstd_rand &draw) {
  for (long before = moves - 1; before != moves && !found[0];) {
    before = moves;
    const unsigned first = draw() % 32, step = draw() % 16 * 2 + 1;
    for (unsigned k = 0; k < 32; ++k) resume(32 * warp + (first + k * step) % 32);
  }
}
static int gathered[32], met[17];
static unsigned passed[32], rounds[17];
static void run_block(int threads, const std::function<void()> &body, unsigned seed) {
  std::minstd_rand draw(seed + 1);
  if (!stacks) stacks = new char[(size_t)MOST * STACK];
  memset(shared, 0xff, sizeof shared);
  memset(gathered, 0, sizeof gathered);
  memset(met, 0, sizeof met);
  kernel = &body;
  for (int t = 0; t < threads; ++t) {
    Fiber &one = fibers[t];
    one.ended = false; one.waits = "nothing"; one.turn = 0; one.copies.clear(); one.pending = 0; one.products = {};
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = stacks + (size_t)t * STACK;
    one.context.uc_stack.ss_size = STACK;
    one.context.uc_link = nullptr;
    makecontext(&one.context, begin, 0);
  }
  const int warps = threads / 32, lagging = draw() % warps;
  std::vector<int> order;
  for (int w = 0; w < warps; ++w) if (w != lagging) order.push_back(w);
  for (;;) {
    const long before = moves;
    for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[draw() % k]);
    for (int w : order) run_warp(w, draw);
    if (moves == before) run_warp(lagging, draw);
    bool over = true;
    for (int t = 0; t < threads; ++t) over &= fibers[t].ended;
    if (over || found[0]) return;
    if (moves != before) continue;
    std::map<std::string, int> waits;
    for (int t = 0; t < threads; ++t) if (!fibers[t].ended) ++waits[fibers[t].waits];
    std::string who;
    for (auto &[what, lanes] : waits) who += (who.empty() ? "" : ", ") + std::to_string(lanes) + " lanes for " + what;
    fault("standstill: %s", who.c_str());
    return;
  }
}
static void converge(const char *what) {  // the lanes of a warp
  const int w = warp_of();
  const unsigned now = passed[w];
  if (++gathered[w] == 32) { gathered[w] = 0; ++passed[w]; ++moves; }
  else while (passed[w] == now) yield(what);
}
DEVICE void meet(int which, int threads) {
  const unsigned now = rounds[which];
  if (++met[which] == threads) { met[which] = 0; ++rounds[which]; ++moves; }
  else while (rounds[which] == now) yield("a barrier of warps");
}
static int threads_of_block;
static inline void __syncwarp() { converge("the lanes of its warp"); }
static inline void __syncthreads() { meet(16, threads_of_block); }

// values that lanes exchange
static uint32_t given[2][32][32][8];
static auto exchange() -> uint32_t (&)[32][8] { return given[fibers[me].turn++ & 1][warp_of()]; }
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int lanes) {
  auto &values = exchange();
  T y;
  memcpy(values[lane_of()], &x, sizeof x);
  converge("a shuffle");
  memcpy(&y, values[lane_of() ^ lanes], sizeof y);
  return y;
}

// arrays and windows
struct Region { const char *name; const unsigned char *begin, *end; };
static void check(const Region *region, const void *at, long bytes, long item) {
  const unsigned char *first = (const unsigned char *)at;
  if (first < region->begin || first + bytes > region->end)
    fault("bounds: element %ld of %s, which has %ld", (long)(first - region->begin) / item, region->name, (long)(region->end - region->begin) / item);
}
// what blocks write: each runs on memory as it was before the launch
struct Written {
  struct One { const Region *region; std::vector<unsigned char> before, after; std::vector<bool> written; };
  std::vector<One> all;
  Written(std::initializer_list<const Region *> regions);
  ~Written();
  void end_block();
  void end_launch();
};
Written::Written(std::initializer_list<const Region *> regions) {
  for (const Region *one : regions)
    if (one->begin) all.push_back({one, {one->begin, one->end}, {one->begin, one->end}, std::vector<bool>(one->end - one->begin)});
}
Written::~Written() {}
void Written::end_block() {
  for (One &one : all) {
    unsigned char *now = (unsigned char *)one.region->begin;
    if (!memcmp(now, one.before.data(), one.before.size())) continue;
    for (size_t k = 0; k < one.before.size(); ++k) {
      if (now[k] == one.before[k]) continue;
      if (one.written[k]) fault("race: two blocks write byte %zu of %s", k, one.region->name);
      one.written[k] = true;
      one.after[k] = now[k];
    }
    memcpy(now, one.before.data(), one.before.size());
  }
}
void Written::end_launch() { for (One &one : all) memcpy((unsigned char *)one.region->begin, one.after.data(), one.after.size()); }
template <class T> struct Pointer {
  T *at;
  const Region *region;
  T &operator[](long long k) const { check(region, at + k, sizeof(T), sizeof(T)); return at[k]; }
  Pointer operator+(long long k) const { return {at + k, region}; }
  T *bytes(long many) const { check(region, at, many, sizeof(T)); return at; }
  operator const void *() const { return at; }
  template <class U> explicit operator const U *() const { return (const U *)bytes(sizeof(U)); }
};
static long shared_bytes;  // that the launch asks for
static std::map<int, Region> windows;
static void check_room(const char *name, const unsigned char *begin, const unsigned char *end) {
  if (end > shared + shared_bytes) fault("room: %s ends at byte %ld of shared memory, and the launch asks for %ld", name, (long)(end - shared), shared_bytes);
  for (auto &[_, other] : windows)
    if (begin < other.end && other.begin < end && begin != other.begin) fault("room: %s lies in %s", name, other.name);
}
template <class T> static Pointer<T> window(const char *name, int offset, int bytes) {
  check_room(name, shared + offset, shared + offset + bytes);
  auto &region = windows[offset];
  if (region.name && strcmp(region.name, name)) fault("room: %s lies in %s", name, region.name);
  region = {name, shared + offset, shared + offset + bytes};
  return {(T *)(shared + offset), &region};
}
"""
