// Gated delta net, chunked (qwen4exp.md 4): prefill rows, cut at absolute multiples of 64, head dim 128.
//
// With G the running sum of log decays in a chunk, S0 the state before it and delta the update vectors:
//   delta_i = beta_i (v_i - e^{G_i} S0^T k_i) - sum_{j<i} beta_i e^{G_i-G_j} (k_i . k_j) delta_j
//   o_i     = e^{G_i} S0^T q_i + sum_{j<=i} e^{G_i-G_j} (q_i . k_j) delta_j
//   S       = e^{G_n} S0 + sum_i e^{G_n-G_i} k_i delta_i^T
// which is U - Wk S0 of the two-solve form with one solve less. Every sum ascends by fma in one thread; a row reads no row above
// itself and rows past the end are zeros, so a row's bits depend on its position and history alone.
#include "seq.cuh"

constexpr int CHUNK = 64;
constexpr int CHUNK_DIM = 128;
constexpr int CHUNK_PITCH = CHUNK_DIM + 4;  // rows of k and q in shared memory: neighbours 4 banks apart, 16-byte aligned
constexpr int GRAM_PITCH = CHUNK + 4;
constexpr int CHUNK_COLUMNS = 32;
constexpr int DELTA_PITCH = CHUNK_COLUMNS + 1;

// Rows first..first+count of the call that lie in its chunk `chunk`.
struct ChunkRows {
  int first, count;
  __device__ __forceinline__ ChunkRows(int position, int rows, int chunk) {
    const int begin = (position / CHUNK + chunk) * CHUNK;
    first = max(begin - position, 0);
    count = min(begin + CHUNK - position, rows) - first;
  }
};

// 64 rows of 128 channels to shared memory, rows past the end as zeros. 256 threads.
__device__ __forceinline__ void chunk_load(float* to, const float* from, size_t stride, int count) {
  for (int i = threadIdx.x; i < CHUNK * CHUNK_DIM / 4; i += 256) {
    const int row = i / (CHUNK_DIM / 4), c = i % (CHUNK_DIM / 4) * 4;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row < count) v = *reinterpret_cast<const float4*>(from + row * stride + c);
    *reinterpret_cast<float4*>(to + row * CHUNK_PITCH + c) = v;
  }
}

// gram f32[chunks][nk][2][64][64]: k_i . k_j, then q_i . k_j. y: rows of gdn_rows, f32[T][channels]. Grid (chunks, nk), block 256,
// shared 2*64*132 floats. A thread has rows i, i+16, .. and columns j, j+16, ..; channels ascending.
extern "C" __global__ void __launch_bounds__(256)
gdn_gram(const float* y, const SeqAt* at, float* gram, int rows, int key_heads, int channels) {
  extern __shared__ __align__(16) float gram_shared[];
  pdl_trigger();
  const int chunk = blockIdx.x, kh = blockIdx.y;
  pdl_wait();
  const ChunkRows part(at->position, rows, chunk);
  if (part.count <= 0) return;
  float *k = gram_shared, *q = gram_shared + CHUNK * CHUNK_PITCH;
  const float* own = y + (size_t)part.first * channels;
  chunk_load(q, own + kh * CHUNK_DIM, channels, part.count);
  chunk_load(k, own + (key_heads + kh) * CHUNK_DIM, channels, part.count);
  __syncthreads();
  const int i0 = threadIdx.x / 16, j0 = threadIdx.x % 16;
  float kk[4][4] = {}, qk[4][4] = {};
  for (int c = 0; c < CHUNK_DIM; c += 4) {
    float4 kj[4];
#pragma unroll
    for (int b = 0; b < 4; b++) kj[b] = *reinterpret_cast<const float4*>(k + (j0 + 16 * b) * CHUNK_PITCH + c);
#pragma unroll
    for (int a = 0; a < 4; a++) {
      const float4 ki = *reinterpret_cast<const float4*>(k + (i0 + 16 * a) * CHUNK_PITCH + c);
      const float4 qi = *reinterpret_cast<const float4*>(q + (i0 + 16 * a) * CHUNK_PITCH + c);
#pragma unroll
      for (int b = 0; b < 4; b++) {
        kk[a][b] = fmaf(ki.w, kj[b].w, fmaf(ki.z, kj[b].z, fmaf(ki.y, kj[b].y, fmaf(ki.x, kj[b].x, kk[a][b]))));
        qk[a][b] = fmaf(qi.w, kj[b].w, fmaf(qi.z, kj[b].z, fmaf(qi.y, kj[b].y, fmaf(qi.x, kj[b].x, qk[a][b]))));
      }
    }
  }
  float* out = gram + ((size_t)chunk * key_heads + kh) * 2 * CHUNK * CHUNK;
#pragma unroll
  for (int a = 0; a < 4; a++)
#pragma unroll
    for (int b = 0; b < 4; b++) {
      const int cell = (i0 + 16 * a) * CHUNK + j0 + 16 * b;
      out[cell] = kk[a][b];
      out[CHUNK * CHUNK + cell] = qk[a][b];
    }
}

// Chunks of one head and 32 value columns, one after the other; S f32[nv][128][128] in place. g, rate f32[T][nv], core f32[T][nv*128]:
// outputs before the norm. Grid (4, nv), block 256, shared chunk_shared_floats() floats.
extern "C" __global__ void __launch_bounds__(256)
gdn_chunk(const float* y, const float* g, const float* rate, const float* gram, const SeqAt* at, float* s, float* core, int rows,
          int chunks, int key_heads, int value_heads) {
  extern __shared__ __align__(16) float chunk_shared[];
  float* k = chunk_shared;                              // [64][132]
  float* q = k + CHUNK * CHUNK_PITCH;                   // [64][132], then:
  float *inner = q, *outer = q + CHUNK * GRAM_PITCH;    // [64][68] of A, then of the output's matrix
  float* state = q + 2 * CHUNK * GRAM_PITCH;            // [128][32]
  float* delta = state + CHUNK_DIM * CHUNK_COLUMNS;     // [64][33]
  float* decay = delta + CHUNK * DELTA_PITCH;           // [64] G
  float* beta = decay + CHUNK;                          // [64]
  static_assert(CHUNK * CHUNK_PITCH <= 2 * CHUNK * GRAM_PITCH, "q lies where the two matrices lie later");
  pdl_trigger();
  const int h = blockIdx.y, kh = h % key_heads, column = blockIdx.x * CHUNK_COLUMNS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int channels = (2 * key_heads + value_heads) * CHUNK_DIM, width = value_heads * CHUNK_DIM;
  pdl_wait();
  float* own = s + (size_t)h * CHUNK_DIM * CHUNK_DIM + column;
  for (int i = threadIdx.x; i < CHUNK_DIM * CHUNK_COLUMNS; i += 256) state[i] = own[i / CHUNK_COLUMNS * CHUNK_DIM + i % CHUNK_COLUMNS];

  for (int chunk = 0; chunk < chunks; chunk++) {
    const ChunkRows part(at->position, rows, chunk);
    if (part.count <= 0) break;
    __syncthreads();
    const float* row = y + (size_t)part.first * channels;
    chunk_load(k, row + (key_heads + kh) * CHUNK_DIM, channels, part.count);
    chunk_load(q, row + kh * CHUNK_DIM, channels, part.count);
    if (threadIdx.x < CHUNK) {
      const bool mine = (int)threadIdx.x < part.count;
      const size_t cell = (size_t)(part.first + threadIdx.x) * value_heads + h;
      decay[threadIdx.x] = mine ? g[cell] : 0.0f;
      beta[threadIdx.x] = mine ? rate[cell] : 0.0f;
    }
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 1; i < CHUNK; i++) decay[i] += decay[i - 1];

    // S0^T k_i and S0^T q_i: a thread has column `lane` of rows warp, warp + 8, ..
    float from_k[8] = {}, from_q[8] = {};
    for (int c = 0; c < CHUNK_DIM; c += 4) {
      const float s0 = state[c * CHUNK_COLUMNS + lane], s1 = state[(c + 1) * CHUNK_COLUMNS + lane];
      const float s2 = state[(c + 2) * CHUNK_COLUMNS + lane], s3 = state[(c + 3) * CHUNK_COLUMNS + lane];
#pragma unroll
      for (int r = 0; r < 8; r++) {
        const float4 k4 = *reinterpret_cast<const float4*>(k + (warp + 8 * r) * CHUNK_PITCH + c);
        const float4 q4 = *reinterpret_cast<const float4*>(q + (warp + 8 * r) * CHUNK_PITCH + c);
        from_k[r] = fmaf(k4.w, s3, fmaf(k4.z, s2, fmaf(k4.y, s1, fmaf(k4.x, s0, from_k[r]))));
        from_q[r] = fmaf(q4.w, s3, fmaf(q4.z, s2, fmaf(q4.y, s1, fmaf(q4.x, s0, from_q[r]))));
      }
    }
    __syncthreads();
    const float* matrix = gram + ((size_t)chunk * key_heads + kh) * 2 * CHUNK * CHUNK;
    for (int cell = threadIdx.x; cell < CHUNK * CHUNK; cell += 256) {
      const int i = cell / CHUNK, j = cell % CHUNK;
      // Never exp for j > i: it would overflow.
      const float fade = j <= i ? expf(decay[i] - decay[j]) : 0.0f;
      inner[i * GRAM_PITCH + j] = j < i ? beta[i] * fade * matrix[cell] : 0.0f;
      outer[i * GRAM_PITCH + j] = j <= i ? fade * matrix[CHUNK * CHUNK + cell] : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < 8; r++) {
      const int i = warp + 8 * r;
      const float v = i < part.count ? row[(size_t)i * channels + (2 * key_heads + h) * CHUNK_DIM + column + lane] : 0.0f;
      delta[i * DELTA_PITCH + lane] = beta[i] * (v - expf(decay[i]) * from_k[r]);
    }
    __syncthreads();

    // Unit lower triangular solve, a warp four columns: a lane holds rows lane and lane + 32 and takes off each finished row.
    float low[4], high[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
      low[c] = delta[lane * DELTA_PITCH + warp * 4 + c];
      high[c] = delta[(lane + 32) * DELTA_PITCH + warp * 4 + c];
    }
    for (int j = 0; j < CHUNK; j++) {
      const float below = inner[lane * GRAM_PITCH + j], above = inner[(lane + 32) * GRAM_PITCH + j];
#pragma unroll
      for (int c = 0; c < 4; c++) {
        const float done = __shfl_sync(FULL, j < 32 ? low[c] : high[c], j % 32);
        low[c] = fmaf(-below, done, low[c]);
        high[c] = fmaf(-above, done, high[c]);
      }
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
      delta[lane * DELTA_PITCH + warp * 4 + c] = low[c];
      delta[(lane + 32) * DELTA_PITCH + warp * 4 + c] = high[c];
    }
    __syncthreads();

    float o[8];
#pragma unroll
    for (int r = 0; r < 8; r++) o[r] = expf(decay[warp + 8 * r]) * from_q[r];
    for (int j = 0; j < CHUNK; j += 4) {
      const float d0 = delta[j * DELTA_PITCH + lane], d1 = delta[(j + 1) * DELTA_PITCH + lane];
      const float d2 = delta[(j + 2) * DELTA_PITCH + lane], d3 = delta[(j + 3) * DELTA_PITCH + lane];
#pragma unroll
      for (int r = 0; r < 8; r++) {
        const float4 p = *reinterpret_cast<const float4*>(outer + (warp + 8 * r) * GRAM_PITCH + j);
        o[r] = fmaf(p.w, d3, fmaf(p.z, d2, fmaf(p.y, d1, fmaf(p.x, d0, o[r]))));
      }
    }
#pragma unroll
    for (int r = 0; r < 8; r++)
      if (warp + 8 * r < part.count) core[(size_t)(part.first + warp + 8 * r) * width + h * CHUNK_DIM + column + lane] = o[r];

    // A thread has column `lane` of keys warp*16..+16.
    const float last = decay[CHUNK - 1];
    float sum[16];
#pragma unroll
    for (int c = 0; c < 16; c++) sum[c] = expf(last) * state[(warp * 16 + c) * CHUNK_COLUMNS + lane];
    for (int i = 0; i < part.count; i++) {
      const float d = expf(last - decay[i]) * delta[i * DELTA_PITCH + lane];
#pragma unroll
      for (int c = 0; c < 16; c += 4) {
        const float4 k4 = *reinterpret_cast<const float4*>(k + i * CHUNK_PITCH + warp * 16 + c);
        sum[c] = fmaf(k4.x, d, sum[c]);
        sum[c + 1] = fmaf(k4.y, d, sum[c + 1]);
        sum[c + 2] = fmaf(k4.z, d, sum[c + 2]);
        sum[c + 3] = fmaf(k4.w, d, sum[c + 3]);
      }
    }
#pragma unroll
    for (int c = 0; c < 16; c++) state[(warp * 16 + c) * CHUNK_COLUMNS + lane] = sum[c];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < CHUNK_DIM * CHUNK_COLUMNS; i += 256) own[i / CHUNK_COLUMNS * CHUNK_DIM + i % CHUNK_COLUMNS] = state[i];
}
