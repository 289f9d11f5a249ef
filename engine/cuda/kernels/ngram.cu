// Hashed n-gram embedding (qwen4exp.md 6): row ids, the gate of each stream, the dilated convolution.
//
// Row invariance: ids are integers; a stream of a row has a block to itself (sums: 256 threads, channels tid, tid + 256, ..
// ascending; butterfly; warps ascending); the convolution reads rows by absolute position.
#include "seq.cuh"

constexpr float NGRAM_ROOT_MIN = 1e-6f;
constexpr uint32_t NGRAM_NONE = 0xffffffffu;

// window u32[ngram-1+T]: tokens oldest first, row t's own at ngram-1+t, NONE before the start. params u64[ngram + 2*heads]:
// multipliers, head sizes, head offsets. ids u64[T][heads]. Grid (T), block >= heads; exact integers.
extern "C" __global__ void __launch_bounds__(1024)
ngram_ids(const uint32_t* window, const uint64_t* params, uint64_t* ids, int ngram, int heads, uint32_t eos) {
  pdl_trigger();
  const int t = blockIdx.x, h = threadIdx.x;
  const uint64_t size = h < heads ? params[ngram + h] : 1, offset = h < heads ? params[ngram + heads + h] : 0;
  pdl_wait();
  if (h >= heads) return;
  const int back_of = h / (heads / (ngram - 1)) + 1;  // predecessors that this head hashes
  uint64_t hash = 0;
  bool cut = false;
  for (int back = 0; back <= back_of; back++) {
    const uint32_t token = window[ngram - 1 + t - back];
    // A missing predecessor cuts as the end token does; the row's own token cuts nothing.
    cut |= back > 0 && (token == eos || token == NGRAM_NONE);
    hash ^= (uint64_t)(cut ? eos : token) * params[back];
  }
  ids[(size_t)t * heads + h] = hash % size + offset;
}

// gated = sigmoid(signed root(rms(key) . rms(x) / sqrt(H))) * value and its grouped norm, f32[T][W] each. key: f32[T][W] as
// projected, value: f32[T][H]. Grid (C, T), block 256.
extern "C" __global__ void __launch_bounds__(256)
ngram_gate(const float* x, const float* key, const float* value, const float* norm_key, const float* norm_query, const float* norm_conv,
           float* gated, float* normed, int hidden, float eps) {
  __shared__ float scratch[8];
  pdl_trigger();
  const int s = blockIdx.x, t = blockIdx.y, streams = gridDim.x;
  pdl_wait();
  const size_t row = ((size_t)t * streams + s) * hidden;
  const float *gk = norm_key + s * hidden, *gq = norm_query + s * hidden, *gc = norm_conv + s * hidden;
  float squares_k = 0.0f, squares_q = 0.0f, dot = 0.0f;
  for (int i = threadIdx.x; i < hidden; i += 256) {
    const float k = key[row + i], q = x[row + i];
    squares_k = fmaf(k, k, squares_k);
    squares_q = fmaf(q, q, squares_q);
    dot = fmaf(k * gk[i], q * gq[i], dot);
  }
  squares_k = block_sum(squares_k, scratch);
  squares_q = block_sum(squares_q, scratch);
  dot = block_sum(dot, scratch);
  const float rk = 1.0f / sqrtf(squares_k / (float)hidden + eps), rq = 1.0f / sqrtf(squares_q / (float)hidden + eps);
  const float score = dot * rk * rq / sqrtf((float)hidden);
  const float root = sqrtf(fmaxf(fabsf(score), NGRAM_ROOT_MIN));
  const float weight = seq_sigmoid(score == 0.0f ? 0.0f : copysignf(root, score));
  float square = 0.0f;
  for (int i = threadIdx.x; i < hidden; i += 256) {
    const float v = weight * value[(size_t)t * hidden + i];
    gated[row + i] = v;
    square = fmaf(v, v, square);
  }
  const float rinv = 1.0f / sqrtf(block_sum(square, scratch) / (float)hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += 256) normed[row + i] = weight * value[(size_t)t * hidden + i] * rinv * gc[i];
}

// x += gated + silu(sum over j, ascending, of taps[c][j] * normed at t - (kernel-1-j)*dilation): this call's rows from `normed`, older
// ones from the ring f32[16][W], zeros before the start. Grid (ceil(W/256), T), block 256. The ring is written by ngram_ring after.
extern "C" __global__ void __launch_bounds__(256)
ngram_mix(float* x, const float* gated, const float* normed, const float* ring, const float* taps, const SeqAt* at, int wide, int kernel,
          int dilation) {
  pdl_trigger();
  const int c = blockIdx.x * 256 + threadIdx.x, t = blockIdx.y;
  pdl_wait();
  if (c >= wide) return;
  const int position = at->position;
  float sum = 0.0f;
  for (int j = 0; j < kernel; j++) {
    const int row = t - (kernel - 1 - j) * dilation, where = position + row;
    const float v = row >= 0 ? normed[(size_t)row * wide + c] : where >= 0 ? ring[(size_t)(where % SEQ_RING) * wide + c] : 0.0f;
    sum = fmaf(taps[c * kernel + j], v, sum);
  }
  const size_t cell = (size_t)t * wide + c;
  x[cell] = x[cell] + gated[cell] + seq_silu(sum);
}

// Keeps the last min(T, 16) rows f32[T][W] by position. Grid (ceil(W/256), min(T, 16)), block 256.
extern "C" __global__ void __launch_bounds__(256) ngram_ring(const float* normed, float* ring, const SeqAt* at, int rows, int wide) {
  pdl_trigger();
  const int c = blockIdx.x * 256 + threadIdx.x, t = rows - 1 - (int)blockIdx.y;
  pdl_wait();
  if (c < wide) ring[(size_t)((at->position + t) % SEQ_RING) * wide + c] = normed[(size_t)t * wide + c];
}
