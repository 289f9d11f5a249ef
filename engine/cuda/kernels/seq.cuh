// What the kernels along a sequence share: reductions in a fixed order, activation quantising, bf16, tickets.
//
// Nothing here looks at the number of rows: a sum's order follows from its length and from the block size, and a kernel's
// block size follows from the sizes of the model.
#pragma once
#include "common.cuh"

// Rows of a decode or verify call: one fed token and up to six drafts, and one to spare.
constexpr int SEQ_MAX_ROWS = 8;
// Rows of a ring of convolution inputs: nine of history and seven of a round.
constexpr int SEQ_RING = 16;

__device__ __forceinline__ float seq_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float seq_silu(float x) { return x * seq_sigmoid(x); }
// ln(1 + e^x), linear above 20 (qwen4exp.md 4).
__device__ __forceinline__ float seq_softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

__device__ __forceinline__ float seq_widen(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }
__device__ __forceinline__ float seq_widen_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float seq_widen_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
// Nearest, ties to even; a NaN stays one.
__device__ __forceinline__ uint16_t seq_bf16(float x) {
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// One group of 32 activations, a value a lane: codes to q[0..32], their scale to *d.
__device__ __forceinline__ void seq_quantise(float x, int8_t* q, float* d) {
  float scale;
  q[threadIdx.x % 32] = (int8_t)quantise_group(x, scale);
  if (threadIdx.x % 32 == 0) *d = scale;
}

// The words every kernel along the sequence is given: where its first row stands, how many rows of the last round are to be
// folded into the state, and which half of the log this round writes.
struct SeqAt {
  uint32_t position, kept, parity, reserved;
};

// Whether this block is the last of `blocks` to come here; the ticket is left at 0 for the next launch. Which block it is
// varies, what it then computes does not: it sums the stored parts in their own order.
__device__ __forceinline__ bool seq_last_block(unsigned* ticket, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1u) == blocks - 1;
    if (last) *ticket = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}
