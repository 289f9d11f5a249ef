// Hyper-connections (qwen4exp.md 2): X[s] += inj[s] * out, the grouped norm of what results, and the gated mean.
//
// X: f32[T][W], W = C*H, stream s in channels s*H..; the normed row n = X * rinv[s] * gain is never stored: the codes are those
// of X * gain, and rinv goes into their scales (round(x*gain/d'), d = d' * rinv).
// Order: a stream's squares and inject products are summed over 32 channels by butterfly, two such per block, then over the
// blocks of 64 channels (lane L takes L, L+32, .. ascending; butterfly). It depends on H alone. A row has its own blocks, so it
// cannot see how many other rows there are: row t of T rows has the bits of one row.
#include "seq.cuh"

constexpr int HYPER_CHANNELS = 64;
constexpr int HYPER_MAX_STREAMS = 8;

// Grid (ceil(H/64), T), block 64*C. `out` null: X stays, its norm is computed (first layer, after an n-gram injection).
// `next_inject` f32[C][W] null: no inject row follows (the final mixer). parts: f32[T][gridDim.x][C][1+C], tickets: u32[T] at 0.
// Writes q i8[T][W] and d f32[T][W/32] (both or neither), rinv f32[T][C], inj_next f32[T][C], normed f32[T][W] (may be null).
// Must move, T = 1, C = 4, H = 2560: X 82 KB, out 10 KB, gain 41 KB, inject 164 KB, q and d 12 KB.
extern "C" __global__ void __launch_bounds__(HYPER_CHANNELS * HYPER_MAX_STREAMS)
hyper_write(float* x, const float* inj, const float* out, const float* gain, const float* next_inject, int8_t* q, float* d,
            float* parts, unsigned* tickets, float* rinv, float* inj_next, float* normed, int hidden, int streams, float eps) {
  __shared__ float sums[HYPER_MAX_STREAMS * 2][1 + HYPER_MAX_STREAMS];
  __shared__ float scale[HYPER_MAX_STREAMS];
  pdl_trigger();
  const int t = blockIdx.y, s = threadIdx.x / HYPER_CHANNELS, i = blockIdx.x * HYPER_CHANNELS + threadIdx.x % HYPER_CHANNELS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int wide = hidden * streams, channel = s * hidden + i;
  const bool mine = i < hidden;
  const float g = mine ? gain[channel] : 0.0f;
  float w[HYPER_MAX_STREAMS];
#pragma unroll
  for (int c = 0; c < HYPER_MAX_STREAMS; c++) w[c] = mine && next_inject && c < streams ? next_inject[c * wide + channel] : 0.0f;
  pdl_wait();

  float* row = x + (size_t)t * wide;
  float v = mine ? row[channel] : 0.0f;
  if (out && mine) {
    v = fmaf(inj[t * streams + s], out[(size_t)t * hidden + i], v);
    row[channel] = v;
  }
  const float scaled = v * g;
  // Whole groups only: a launcher asks for codes where 32 divides H.
  if (q && i - lane < hidden) {
    const size_t at = (size_t)t * wide + channel - lane;
    seq_quantise(scaled, q + at, d + at / 32);
  }
  const float square = warp_sum(v * v);
  if (lane == 0) sums[warp][0] = square;
#pragma unroll
  for (int c = 0; c < HYPER_MAX_STREAMS; c++) {
    if (c >= streams) break;
    const float dot = warp_sum(w[c] * scaled);
    if (lane == 0) sums[warp][1 + c] = dot;
  }
  __syncthreads();
  const int values = 1 + streams;
  float* part = parts + (size_t)t * gridDim.x * streams * values;
  for (int k = threadIdx.x; k < streams * values; k += blockDim.x) {
    const int stream = k / values, value = k % values;
    part[blockIdx.x * streams * values + k] = sums[2 * stream][value] + sums[2 * stream + 1][value];
  }
  if (!seq_last_block(tickets + t, gridDim.x)) return;

  for (int k = warp; k < streams * values; k += warps) {
    float sum = 0.0f;
    for (int b = lane; b < (int)gridDim.x; b += 32) sum += __ldcg(part + b * streams * values + k);
    sum = warp_sum(sum);
    if (lane == 0) sums[k / values][k % values] = sum;
  }
  __syncthreads();
  if (threadIdx.x < streams) {
    const float r = 1.0f / sqrtf(sums[threadIdx.x][0] / (float)hidden + eps);
    scale[threadIdx.x] = r;
    rinv[t * streams + threadIdx.x] = r;
  }
  __syncthreads();
  if (next_inject && threadIdx.x < streams) {
    float dot = 0.0f;
    for (int k = 0; k < streams; k++) dot = fmaf(scale[k], sums[k][1 + threadIdx.x], dot);
    inj_next[t * streams + threadIdx.x] = 2.0f * seq_sigmoid(dot / (float)streams);
  }
  if (q) {
    float* ds = d + (size_t)t * (wide / 32);
    for (int k = threadIdx.x; k < wide / 32; k += blockDim.x) ds[k] = __ldcg(ds + k) * scale[k * 32 / hidden];
  }
  if (normed) {
    for (int k = threadIdx.x; k < wide; k += blockDim.x) normed[(size_t)t * wide + k] = __ldcg(row + k) * gain[k] * scale[k / hidden];
  }
}

// lo = silu(low / C), f32[T][rank] in place and its codes (null: none). Grid ceil(T*rank/256), block 256.
extern "C" __global__ void __launch_bounds__(256) hyper_low(float* low, int8_t* q, float* d, int values, int streams) {
  pdl_trigger();
  pdl_wait();
  const int i = blockIdx.x * 256 + threadIdx.x;
  float v = 0.0f;
  if (i < values) {
    v = seq_silu(low[i] / (float)streams);
    low[i] = v;
  }
  const int group = i / 32;
  if (q && group * 32 < values) seq_quantise(v, q + group * 32, d + group);
}

// x_in[i] = mean over s, ascending, of sigmoid(gate[s,i]) * n[s,i]. gate: f32[T][W]. Writes x_in f32[T][H] and its codes (null:
// none). Grid (ceil(H/128), T), block 128.
extern "C" __global__ void __launch_bounds__(128)
hyper_mix(const float* gate, const float* x, const float* rinv, const float* gain, float* mixed, int8_t* q, float* d, int hidden,
          int streams) {
  pdl_trigger();
  const int t = blockIdx.y, i = blockIdx.x * 128 + threadIdx.x, wide = hidden * streams;
  const bool mine = i < hidden;
  pdl_wait();
  float sum = 0.0f;
  if (mine) {
    for (int s = 0; s < streams; s++) {
      const int c = s * hidden + i;
      const float n = x[(size_t)t * wide + c] * gain[c] * rinv[t * streams + s];
      sum = fmaf(seq_sigmoid(gate[(size_t)t * wide + c]), n, sum);
    }
    sum *= 1.0f / (float)streams;
    mixed[(size_t)t * hidden + i] = sum;
  }
  const int first = i & ~31;
  if (q && first < hidden) {
    const size_t at = (size_t)t * hidden + first;
    seq_quantise(sum, q + at, d + at / 32);
  }
}

// inject = 2 sigmoid(inject / C) in place. Grid ceil(values/256), block 256.
extern "C" __global__ void __launch_bounds__(256) hyper_inject(float* inject, int values, int streams) {
  pdl_trigger();
  pdl_wait();
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < values) inject[i] = 2.0f * seq_sigmoid(inject[i] / (float)streams);
}
