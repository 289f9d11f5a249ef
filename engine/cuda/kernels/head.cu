// Inputs of the draft head's projection (qwen4exp.md 9): rms of the next token's embedding beside rms of the target's residual.
//
// Row invariance: a stream of a row has a block to itself; sums as in ngram.cu.
#include "seq.cuh"

// r f32[T][W], e f32[T][H] embedding rows -> joined f32[T][C][2H], embedding half first, and its codes (null where 32 does not
// divide H). single: one mean square over all W, else one a stream. Grid (C, T), block 256.
extern "C" __global__ void __launch_bounds__(256)
head_join(const float* r, const float* e, const float* enorm, const float* hnorm, float* joined, int8_t* q8, float* d8, int hidden,
          int single, float eps) {
  __shared__ float scratch[8];
  pdl_trigger();
  const int s = blockIdx.x, t = blockIdx.y, streams = gridDim.x, wide = streams * hidden;
  pdl_wait();
  const float *embedding = e + (size_t)t * hidden, *residual = r + (size_t)t * wide;
  const int from = single ? 0 : s * hidden, upto = single ? wide : from + hidden;
  float squares_e = 0.0f, squares_r = 0.0f;
  for (int i = threadIdx.x; i < hidden; i += 256) squares_e = fmaf(embedding[i], embedding[i], squares_e);
  for (int i = from + threadIdx.x; i < upto; i += 256) squares_r = fmaf(residual[i], residual[i], squares_r);
  const float re = 1.0f / sqrtf(block_sum(squares_e, scratch) / (float)hidden + eps);
  const float rr = 1.0f / sqrtf(block_sum(squares_r, scratch) / (float)(upto - from) + eps);
  const size_t out = ((size_t)t * streams + s) * 2 * hidden;
  // Whole warps, so that a group of 32 has all its lanes.
  for (int first = threadIdx.x & ~31; first < 2 * hidden; first += 256) {
    const int i = first + threadIdx.x % 32;
    float v = 0.0f;
    if (i < 2 * hidden) {
      v = i < hidden ? embedding[i] * re * enorm[i] : residual[s * hidden + i - hidden] * rr * hnorm[s * hidden + i - hidden];
      joined[out + i] = v;
    }
    if (q8) seq_quantise(v, q8 + out + first, d8 + (out + first) / 32);
  }
}
