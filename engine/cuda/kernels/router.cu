// Routing (qwen4exp.md 7): the K largest of E logits, ties to the lower index, weighted by a softmax over themselves; lists of the
// rows of each expert for prefill.
//
// A row has a warp to itself and K rounds of the same comparison, so its result does not depend on the other rows.
#include "seq.cuh"

// A NaN is chosen last; between equals the lower index wins.
__device__ __forceinline__ void router_better(float& value, int& index, float other, int other_index) {
  if (other > value || (other == value && other_index < index)) value = other, index = other_index;
}

// logits f32[T][E] -> ids i32[T][K] best first, weights f32[T][K] that sum to 1. Grid (ceil(T/4)), block 128; E <= 32*PER, K <= 32.
// Sum order of the softmax: best first, ascending.
template <int PER>
__device__ __forceinline__ void router_top(const float* logits, int32_t* ids, float* weights, int rows, int experts, int used) {
  pdl_trigger();
  const int t = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  pdl_wait();
  if (t >= rows) return;
  float value[PER];
#pragma unroll
  for (int i = 0; i < PER; i++) {
    const float l = i * 32 + lane < experts ? logits[(size_t)t * experts + i * 32 + lane] : -INFINITY;
    value[i] = l == l ? l : -INFINITY;
  }
  uint32_t taken = 0;
  float mine = 0.0f, top = 0.0f;
  int id = 0;
  for (int k = 0; k < used; k++) {
    float best = -INFINITY;
    int index = experts;  // no expert yet
#pragma unroll
    for (int i = 0; i < PER; i++)
      if (!(taken >> i & 1) && i * 32 + lane < experts) router_better(best, index, value[i], i * 32 + lane);
#pragma unroll
    for (int step = 16; step; step >>= 1)
      router_better(best, index, __shfl_xor_sync(FULL, best, step), __shfl_xor_sync(FULL, index, step));
    if (index % 32 == lane) taken |= 1u << index / 32;
    if (k == 0) top = best;
    if (k == lane) mine = best, id = index;
  }
  // Where every logit is minus infinity the difference is not a number: all weigh the same.
  const float weight = lane < used ? (mine == top ? 1.0f : expf(mine - top)) : 0.0f;
  float total = 0.0f;
  for (int k = 0; k < used; k++) total += __shfl_sync(FULL, weight, k);
  if (lane < used) {
    ids[(size_t)t * used + lane] = id;
    weights[(size_t)t * used + lane] = weight / total;
  }
}

extern "C" __global__ void __launch_bounds__(128)
router_top_512(const float* logits, int32_t* ids, float* weights, int rows, int experts, int used) {
  router_top<16>(logits, ids, weights, rows, experts, used);
}
extern "C" __global__ void __launch_bounds__(128)
router_top_1024(const float* logits, int32_t* ids, float* weights, int rows, int experts, int used) {
  router_top<32>(logits, ids, weights, rows, experts, used);
}

// Pairs (row, slot) of one expert among ids i32[pairs], ascending: to `list` from list[start], or only counted where list is null.
// A block of 256 threads; returns the count to all.
__device__ __forceinline__ int router_collect(const int32_t* ids, int pairs, int expert, int32_t* list) {
  __shared__ int counts[8];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int found = 0;
  for (int base = 0; base < pairs; base += 256) {
    const int pair = base + threadIdx.x;
    const bool hit = pair < pairs && ids[pair] == expert;
    const uint32_t hits = __ballot_sync(FULL, hit);
    __syncthreads();
    if (lane == 0) counts[warp] = __popc(hits);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < 8; w++) {
      before += w < warp ? counts[w] : 0;
      all += counts[w];
    }
    if (list && hit) list[found + before + __popc(hits & ((1u << lane) - 1))] = pair;
    found += all;
  }
  return found;
}

// counts i32[E]. Grid (E), block 256.
extern "C" __global__ void __launch_bounds__(256) router_count(const int32_t* ids, int32_t* counts, int pairs) {
  pdl_trigger();
  pdl_wait();
  const int found = router_collect(ids, pairs, blockIdx.x, nullptr);
  if (threadIdx.x == 0) counts[blockIdx.x] = found;
}

// starts i32[E+1] from counts, and list i32[pairs]: pairs by expert, ascending within one. Grid (E), block 256.
extern "C" __global__ void __launch_bounds__(256)
router_group(const int32_t* ids, const int32_t* counts, int32_t* starts, int32_t* list, int pairs, int experts) {
  __shared__ int parts[8];
  pdl_trigger();
  pdl_wait();
  const int expert = blockIdx.x;
  int sum = 0;
  for (int e = threadIdx.x; e < expert; e += 256) sum += counts[e];
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(FULL, sum, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  int start = 0;
  for (int w = 0; w < 8; w++) start += parts[w];
  const int found = router_collect(ids, pairs, expert, list + start);
  if (threadIdx.x == 0) {
    starts[expert] = start;
    if (expert == experts - 1) starts[experts] = start + found;
  }
}
