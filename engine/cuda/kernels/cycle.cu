// What joins the forward passes of a round: its inputs, the choice of tokens, acceptance, the next drafts, its outcome
// (qwen4exp.md 10). Small kernels, each a node of the captured round.
//
// Order: only maxima are taken, which have none: the largest logit, the lowest id of equal ones.
#include "common.cuh"
#include "control.cuh"

// Copies the host's request out of mapped memory. One block of 64 threads, `words` <= 64.
extern "C" __global__ void cycle_begin(const uint32_t* request, uint32_t* control, int words) {
  pdl_trigger();
  pdl_wait();
  if (threadIdx.x < words) control[threadIdx.x] = ((const volatile uint32_t*)request)[threadIdx.x];
}

// The better of two candidates: larger logit, then lower id. NaN and minus infinity were never candidates.
__device__ __forceinline__ void cycle_better(float& best, uint32_t& id, float other, uint32_t other_id) {
  if (other > best || (other == best && other_id < id)) {
    best = other;
    id = other_id;
  }
}

// Per block and row: the largest allowed logit, its id (CONTROL_NONE: none above minus infinity), and whether all are numbers.
// logits f32[T][vocab], mask one bit an id (null: all), parts 4 words [T][gridDim.x]: logit bits, id, bad, 0.
// Grid (blocks, T), block 256. Must move: vocab * 4 B a row.
extern "C" __global__ void __launch_bounds__(256)
cycle_argmax(const float* logits, const uint32_t* mask, uint4* parts, int vocab) {
  __shared__ float bests[8];
  __shared__ uint32_t ids[8];
  __shared__ int bad;
  pdl_trigger();
  if (threadIdx.x == 0) bad = 0;
  pdl_wait();
  __syncthreads();
  const float* row = logits + (size_t)blockIdx.y * vocab;
  float best = -INFINITY;
  uint32_t id = CONTROL_NONE;
  bool mine_bad = false;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < vocab; i += gridDim.x * 256) {
    const float v = row[i];
    mine_bad |= !isfinite(v);
    const bool allowed = !mask || (mask[i / 32] >> (i % 32) & 1u);
    // Ids ascend within a thread, so only a larger one replaces.
    if (allowed && v > best) {
      best = v;
      id = i;
    }
  }
#pragma unroll
  for (int step = 16; step; step >>= 1) {
    const float other = __shfl_xor_sync(0xffffffffu, best, step);
    const uint32_t other_id = __shfl_xor_sync(0xffffffffu, id, step);
    cycle_better(best, id, other, other_id);
  }
  if (mine_bad) atomicOr(&bad, 1);
  if (threadIdx.x % 32 == 0) {
    bests[threadIdx.x / 32] = best;
    ids[threadIdx.x / 32] = id;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < 8; w++) cycle_better(best, id, bests[w], ids[w]);
    parts[(size_t)blockIdx.y * gridDim.x + blockIdx.x] = make_uint4(__float_as_uint(best), id, bad, 0);
  }
}

// One warp: the best of a row's parts. Every lane has the result.
__device__ __forceinline__ uint32_t cycle_best(const uint4* parts, int blocks, uint32_t& bad) {
  float best = -INFINITY;
  uint32_t id = CONTROL_NONE;
  bad = 0;
  for (int b = threadIdx.x % 32; b < blocks; b += 32) {
    const uint4 part = parts[b];
    cycle_better(best, id, __uint_as_float(part.x), part.y);
    bad |= part.z;
  }
#pragma unroll
  for (int step = 16; step; step >>= 1) {
    const float other = __shfl_xor_sync(0xffffffffu, best, step);
    const uint32_t other_id = __shfl_xor_sync(0xffffffffu, id, step);
    cycle_better(best, id, other, other_id);
    bad |= __shfl_xor_sync(0xffffffffu, bad, step);
  }
  return id;
}

// Accepts the longest run of drafts that are what their rows choose, ending behind a stop id, and sets what the head is
// seeded with. parts [rows][blocks]. One block of 32 * CONTROL_ROWS threads: a warp a row.
extern "C" __global__ void cycle_accept(const uint4* parts, Control* control, int blocks) {
  __shared__ uint32_t chosen[CONTROL_ROWS];
  __shared__ uint32_t bad[CONTROL_ROWS];
  pdl_trigger();
  pdl_wait();
  const uint32_t row = threadIdx.x / 32, rows = control->rows;
  if (row < rows) {
    uint32_t mine_bad;
    const uint32_t id = cycle_best(parts + (size_t)row * blocks, blocks, mine_bad);
    if (threadIdx.x % 32 == 0) {
      chosen[row] = id;
      bad[row] = mine_bad;
    }
  }
  __syncthreads();
  if (threadIdx.x) return;
  uint32_t bad_row = CONTROL_NONE;
  for (uint32_t t = rows; t-- > 0;) {
    if (bad[t]) bad_row = t;
  }
  uint32_t accepted = 0;
  for (;;) {
    bool ended = false;
    for (uint32_t s = 0; s < control->stop_count; s++) ended |= control->stops[s] == control->tokens[accepted];
    if (ended || accepted + 1 == rows || chosen[accepted] != control->tokens[accepted + 1]) break;
    accepted++;
  }
  const uint32_t next = chosen[accepted];
  control->accepted = accepted;
  control->next = next;
  control->bad_row = bad_row;
  control->drafted = 0;
  for (uint32_t t = 0; t < CONTROL_ROWS; t++) {
    // A head row needs some token: where nothing was chosen the round fails, and its head rows are leftovers.
    const uint32_t last = next == CONTROL_NONE ? 0 : next;
    control->followers[t] = t < accepted ? control->tokens[t + 1] : t == accepted ? last : 0;
  }
  control->seed.position = control->target.position;
  control->chain.position = control->target.position + accepted;
}

// The head's row behind the last kept one, into the row that chain steps and drafts start from: f32 [T][wide] to [wide].
extern "C" __global__ void cycle_pick(const float* rows, const Control* control, float* row, int wide) {
  pdl_trigger();
  pdl_wait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < wide) row[i] = rows[(size_t)control->accepted * wide + i];
}

// Notes the head's choice as the next draft and moves the chain on. 0 where no logit is a number: a draft is only a guess.
// parts [1][blocks]. One warp.
extern "C" __global__ void cycle_draft(const uint4* parts, Control* control, int blocks) {
  pdl_trigger();
  pdl_wait();
  uint32_t bad;
  const uint32_t id = cycle_best(parts, blocks, bad);
  if (threadIdx.x) return;
  const uint32_t draft = id == CONTROL_NONE ? 0 : id;
  const uint32_t n = control->drafted;
  if (n < CONTROL_ROWS) control->drafts[n] = draft;
  control->drafted = n + 1;
  control->chain_token = draft;
  control->chain.position += 1;
}

// Hands the round to the host: everything, a fence over the bus, then the word it waits for. One thread.
extern "C" __global__ void cycle_end(const Control* control, Outcome* outcome) {
  pdl_trigger();
  pdl_wait();
  outcome->accepted = control->accepted;
  outcome->next = control->next;
  outcome->bad_row = control->bad_row;
  for (int t = 0; t < CONTROL_ROWS; t++) outcome->drafts[t] = control->drafts[t];
  __threadfence_system();
  *(volatile uint32_t*)&outcome->generation = control->generation;
}
