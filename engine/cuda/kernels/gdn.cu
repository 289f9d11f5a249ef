// Gated delta net, recurrent (qwen4exp.md 4): convolution, silu, l2 norm, gates, state, output norm and gate.
//
// State of a layer: S f32[nv][128 key][128 value]; a ring of raw convolution inputs f32[16][channels] by position % 16; a log of
// the rows of a round, k f32[2][8][nk][128], delta f32[2][8][nv][128], decay f32[2][8][nv], one half a parity. S stands before
// the last round: a call folds the rows kept of it (the other parity's log), stores S once, runs its own rows on the copy in
// registers and logs them. So rollback is a number, and nothing is copied or replayed.
//
// Order: a column of S is summed over keys in 32 groups of 4 (fma, ascending), groups by butterfly within a warp (xor 8, 16),
// the 8 warps ascending. Rows are a run-time loop over the same instructions and the fold does what the row itself did (one
// multiply, one fma), so row t of T rows has the bits of one row after t rounds of one row.
#include "seq.cuh"

constexpr int GDN_DIM = 128;
constexpr float GDN_L2_EPS = 1e-6f;

// One channel after convolution and silu. Row t reads raw inputs at positions position+t-taps+1 ..: this call's from `u`, older
// ones from the ring, zeros before the sequence's start. Taps ascending, oldest first.
__device__ __forceinline__ float gdn_conv_silu(const float* u, const float* ring, const float* taps, int channels, int channel,
                                               int kernel, int position, int t) {
  float sum = 0.0f;
  for (int j = 0; j < kernel; j++) {
    const int row = t - (kernel - 1) + j, at = position + row;
    const float value = row >= 0 ? u[(size_t)row * channels + channel] : at >= 0 ? ring[(size_t)(at % SEQ_RING) * channels + channel] : 0.0f;
    sum = fmaf(taps[j], value, sum);
  }
  return seq_silu(sum);
}

__device__ __forceinline__ float gdn_log_decay(const float* alpha, const float* dt_bias, const float* a, int heads, int t, int h) {
  return a[h] * seq_softplus(alpha[(size_t)t * heads + h] + dt_bias[h]);
}

__device__ __forceinline__ float4 gdn_load4(const float* p) { return *reinterpret_cast<const float4*>(p); }

// One head of one row: rms over `dim`, gain, sigmoid(z); one warp. `o` may be read past L1 (written by other blocks).
__device__ __forceinline__ void gdn_finish_row(const float* o, const float* z, const float* norm, float* gated, int8_t* q, float* d,
                                               int dim, float eps) {
  const int lane = threadIdx.x % 32;
  float square = 0.0f;
  for (int c = lane; c < dim; c += 32) {
    const float v = __ldcg(o + c);
    square = fmaf(v, v, square);
  }
  const float rinv = 1.0f / sqrtf(warp_sum(square) / (float)dim + eps);
  for (int first = 0; first < dim; first += 32) {
    const int c = first + lane;
    float v = 0.0f;
    if (c < dim) {
      v = __ldcg(o + c) * rinv * norm[c] * seq_sigmoid(z[c]);
      if (gated) gated[c] = v;
    }
    if (q) seq_quantise(v, q + first, d + first / 32);
  }
}

// Head dim 128. Grid (4/B, nv), block 256*B, B = 1, 2 or 4 column groups of 32 a block: the bits do not depend on B.
// u f32[T][channels], z f32[T][nv*128], alpha, beta f32[T][nv]; taps f32[channels][kernel], kernel <= 8; core f32[T][nv*128]: the
// outputs before the norm; gated (may be null), q, d (both or neither): the gated outputs. tickets u32[nv] at 0.
// Must move, T = 1: S 3.1 MB in, and out again where rows were kept.
extern "C" __global__ void __launch_bounds__(1024)
gdn_step(const float* u, const float* z, const float* alpha, const float* beta, const float* taps, const float* dt_bias,
         const float* a, const float* norm, float* ring, float* s, float* log_k, float* log_delta, float* log_decay,
         const SeqAt* at, float* core, float* gated, int8_t* q8, float* d8,
         unsigned* tickets, int rows, int key_heads, int value_heads, int kernel, float eps) {
  __shared__ __align__(16) float sq[SEQ_MAX_ROWS][GDN_DIM], sk[SEQ_MAX_ROWS][GDN_DIM], sv[SEQ_MAX_ROWS][GDN_DIM];
  __shared__ __align__(16) float part[2][2][8][GDN_DIM];
  __shared__ float skq[SEQ_MAX_ROWS], sdecay[SEQ_MAX_ROWS], sbeta[SEQ_MAX_ROWS];
  pdl_trigger();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int columns = blockDim.x / 8, column0 = blockIdx.x * columns, h = blockIdx.y, kh = h % key_heads;
  const int key_warp = warp % 8, key = key_warp * 16 + lane / 8 * 4;
  const int local = warp / 8 * 32 + lane % 8 * 4, column = column0 + local;
  float* tile = s + ((size_t)h * GDN_DIM + key) * GDN_DIM + column;
  // S is another kernel's to write until the wait, so until then it only comes nearer.
#pragma unroll
  for (int i = 0; i < 4; i++) asm volatile("prefetch.global.L2 [%0];" ::"l"(tile + i * GDN_DIM));
  pdl_wait();
  float4 state[4];
#pragma unroll
  for (int i = 0; i < 4; i++) state[i] = gdn_load4(tile + i * GDN_DIM);

  const int position = at->position, kept = min((int)at->kept, SEQ_MAX_ROWS), parity = at->parity & 1;
  const int inner = value_heads * GDN_DIM, channels = (2 * key_heads + value_heads) * GDN_DIM;
  // The block that owns a channel's ring slots and logs: q and k belong to the value head of the same number.
  const bool owner = blockIdx.x == 0 && h < key_heads;
  for (int k = threadIdx.x; k < rows * 2 * GDN_DIM; k += blockDim.x) {
    const int t = k / (2 * GDN_DIM), c = k % (2 * GDN_DIM), is_key = c / GDN_DIM;
    const int channel = (is_key * key_heads + kh) * GDN_DIM + c % GDN_DIM;
    const float y = gdn_conv_silu(u, ring, taps + channel * kernel, channels, channel, kernel, position, t);
    (is_key ? sk : sq)[t][c % GDN_DIM] = y;
    if (owner) ring[(size_t)((position + t) % SEQ_RING) * channels + channel] = u[(size_t)t * channels + channel];
  }
  for (int k = threadIdx.x; k < rows * columns; k += blockDim.x) {
    const int t = k / columns, c = k % columns, channel = (2 * key_heads + h) * GDN_DIM + column0 + c;
    sv[t][c] = gdn_conv_silu(u, ring, taps + channel * kernel, channels, channel, kernel, position, t);
    ring[(size_t)((position + t) % SEQ_RING) * channels + channel] = u[(size_t)t * channels + channel];
  }
  if (threadIdx.x < rows) {
    const int t = threadIdx.x;
    sdecay[t] = expf(gdn_log_decay(alpha, dt_bias, a, value_heads, t, h));
    sbeta[t] = seq_sigmoid(beta[(size_t)t * value_heads + h]);
    if (blockIdx.x == 0) log_decay[((size_t)parity * SEQ_MAX_ROWS + t) * value_heads + h] = sdecay[t];
  }
  __syncthreads();
  if (warp < rows) {
    const int t = warp;
    float squares_q = 0.0f, squares_k = 0.0f;
#pragma unroll
    for (int c = lane; c < GDN_DIM; c += 32) {
      squares_q = fmaf(sq[t][c], sq[t][c], squares_q);
      squares_k = fmaf(sk[t][c], sk[t][c], squares_k);
    }
    const float scale_q = 1.0f / sqrtf(warp_sum(squares_q) + GDN_L2_EPS) * (1.0f / sqrtf((float)GDN_DIM));
    const float scale_k = 1.0f / sqrtf(warp_sum(squares_k) + GDN_L2_EPS);
    float kq = 0.0f;
#pragma unroll
    for (int c = lane; c < GDN_DIM; c += 32) {
      const float nq = sq[t][c] * scale_q, nk = sk[t][c] * scale_k;
      sq[t][c] = nq;
      sk[t][c] = nk;
      kq = fmaf(nk, nq, kq);
      if (owner) log_k[(((size_t)parity * SEQ_MAX_ROWS + t) * key_heads + kh) * GDN_DIM + c] = nk;
    }
    kq = warp_sum(kq);
    if (lane == 0) skq[t] = kq;
  }

  // S = decay S + k delta^T, once a kept row.
  for (int r = 0; r < kept; r++) {
    const size_t row = (size_t)(parity ^ 1) * SEQ_MAX_ROWS + r;
    const float decay = log_decay[row * value_heads + h];
    const float4 k4 = gdn_load4(log_k + (row * key_heads + kh) * GDN_DIM + key);
    const float4 d4 = gdn_load4(log_delta + (row * value_heads + h) * GDN_DIM + column);
    const float ks[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      state[i].x = fmaf(ks[i], d4.x, __fmul_rn(state[i].x, decay));
      state[i].y = fmaf(ks[i], d4.y, __fmul_rn(state[i].y, decay));
      state[i].z = fmaf(ks[i], d4.z, __fmul_rn(state[i].z, decay));
      state[i].w = fmaf(ks[i], d4.w, __fmul_rn(state[i].w, decay));
    }
  }
  if (kept > 0) {
#pragma unroll
    for (int i = 0; i < 4; i++) *reinterpret_cast<float4*>(tile + i * GDN_DIM) = state[i];
  }
  __syncthreads();

  // With D = decay S: delta = beta (v - D^T k), o = D^T q + (k . q) delta, S = D + k delta^T: one pass, one exchange a row.
  for (int t = 0; t < rows; t++) {
    const float decay = sdecay[t];
    const float4 k4 = gdn_load4(&sk[t][key]), q4 = gdn_load4(&sq[t][key]);
    const float ks[4] = {k4.x, k4.y, k4.z, k4.w}, qs[4] = {q4.x, q4.y, q4.z, q4.w};
    float from_k[4] = {}, from_q[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      state[i].x = __fmul_rn(state[i].x, decay);
      state[i].y = __fmul_rn(state[i].y, decay);
      state[i].z = __fmul_rn(state[i].z, decay);
      state[i].w = __fmul_rn(state[i].w, decay);
      const float column4[4] = {state[i].x, state[i].y, state[i].z, state[i].w};
#pragma unroll
      for (int c = 0; c < 4; c++) {
        from_k[c] = fmaf(ks[i], column4[c], from_k[c]);
        from_q[c] = fmaf(qs[i], column4[c], from_q[c]);
      }
    }
#pragma unroll
    for (int step = 8; step <= 16; step <<= 1) {
#pragma unroll
      for (int c = 0; c < 4; c++) {
        from_k[c] += __shfl_xor_sync(FULL, from_k[c], step);
        from_q[c] += __shfl_xor_sync(FULL, from_q[c], step);
      }
    }
    const int half = t & 1;
    if (lane < 8) {
      *reinterpret_cast<float4*>(&part[half][0][key_warp][local]) = make_float4(from_k[0], from_k[1], from_k[2], from_k[3]);
      *reinterpret_cast<float4*>(&part[half][1][key_warp][local]) = make_float4(from_q[0], from_q[1], from_q[2], from_q[3]);
    }
    __syncthreads();
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < 8; w++) {
      const float4 p = gdn_load4(&part[half][0][w][local]);
      sum.x += p.x, sum.y += p.y, sum.z += p.z, sum.w += p.w;
    }
    const float4 v4 = gdn_load4(&sv[t][local]);
    const float rate = sbeta[t];
    const float4 delta = make_float4(rate * (v4.x - sum.x), rate * (v4.y - sum.y), rate * (v4.z - sum.z), rate * (v4.w - sum.w));
#pragma unroll
    for (int i = 0; i < 4; i++) {
      state[i].x = fmaf(ks[i], delta.x, state[i].x);
      state[i].y = fmaf(ks[i], delta.y, state[i].y);
      state[i].z = fmaf(ks[i], delta.z, state[i].z);
      state[i].w = fmaf(ks[i], delta.w, state[i].w);
    }
    if (key_warp == 0 && lane < 8) {
      float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int w = 0; w < 8; w++) {
        const float4 p = gdn_load4(&part[half][1][w][local]);
        o.x += p.x, o.y += p.y, o.z += p.z, o.w += p.w;
      }
      const float kq = skq[t];
      o = make_float4(fmaf(kq, delta.x, o.x), fmaf(kq, delta.y, o.y), fmaf(kq, delta.z, o.z), fmaf(kq, delta.w, o.w));
      *reinterpret_cast<float4*>(core + (size_t)t * inner + h * GDN_DIM + column) = o;
      *reinterpret_cast<float4*>(log_delta + (((size_t)parity * SEQ_MAX_ROWS + t) * value_heads + h) * GDN_DIM + column) = delta;
    }
  }

  // The norm needs all columns of the head: whoever comes last has them.
  if (!seq_last_block(tickets + h, gridDim.x)) return;
  for (int t = warp; t < rows; t += blockDim.x / 32) {
    const size_t first = (size_t)t * inner + h * GDN_DIM;
    gdn_finish_row(core + first, z + first, norm, gated ? gated + first : nullptr, q8 ? q8 + first : nullptr, q8 ? d8 + first / 32 : nullptr, GDN_DIM, eps);
  }
}

// settled = S with the kept rows of the last round folded in (settled may be S), any head dim. Grid (dim, nv): a block a key row,
// block 128. Same operations as in gdn_step, so the bits are those of a round's fold.
extern "C" __global__ void __launch_bounds__(128)
gdn_settle(const float* s, const float* log_k, const float* log_delta, const float* log_decay, const SeqAt* at, float* settled,
           int key_heads, int value_heads, int dim) {
  pdl_trigger();
  pdl_wait();
  const int i = blockIdx.x, h = blockIdx.y, kept = min((int)at->kept, SEQ_MAX_ROWS);
  for (int c = threadIdx.x; c < dim; c += 128) {
    const size_t cell = ((size_t)h * dim + i) * dim + c;
    float v = s[cell];
    for (int r = 0; r < kept; r++) {
      const size_t row = (size_t)((at->parity & 1) ^ 1) * SEQ_MAX_ROWS + r;
      const float k = log_k[(row * key_heads + h % key_heads) * dim + i], delta = log_delta[(row * value_heads + h) * dim + c];
      v = fmaf(k, delta, __fmul_rn(v, log_decay[row * value_heads + h]));
    }
    settled[cell] = v;
  }
}

// The rows of a call before the state: y f32[T][channels] (q normed and scaled, k normed, v), log decay g and beta f32[T][nv].
// Any head dim, any number of rows. Grid (2*nk + nv, T), block 128: a head of a row a block. Does not write the ring.
extern "C" __global__ void __launch_bounds__(128)
gdn_rows(const float* u, const float* alpha, const float* beta, const float* taps, const float* dt_bias, const float* a,
         const float* ring, const SeqAt* at, float* y, float* g, float* rate, int key_heads, int value_heads, int dim, int kernel) {
  __shared__ float scratch[4];
  pdl_trigger();
  pdl_wait();
  const int head = blockIdx.x, t = blockIdx.y, channels = (2 * key_heads + value_heads) * dim, position = at->position;
  float* out = y + (size_t)t * channels + head * dim;
  float square = 0.0f;
  for (int c = threadIdx.x; c < dim; c += 128) {
    const int channel = head * dim + c;
    const float v = gdn_conv_silu(u, ring, taps + channel * kernel, channels, channel, kernel, position, t);
    out[c] = v;
    square = fmaf(v, v, square);
  }
  if (head < 2 * key_heads) {
    float scale = 1.0f / sqrtf(block_sum(square, scratch) + GDN_L2_EPS);
    if (head < key_heads) scale *= 1.0f / sqrtf((float)dim);
    for (int c = threadIdx.x; c < dim; c += 128) out[c] *= scale;
  } else if (threadIdx.x == 0) {
    const int h = head - 2 * key_heads;
    g[(size_t)t * value_heads + h] = gdn_log_decay(alpha, dt_bias, a, value_heads, t, h);
    rate[(size_t)t * value_heads + h] = seq_sigmoid(beta[(size_t)t * value_heads + h]);
  }
}

// Keeps the last min(T, 16) rows f32[T][channels] in a ring by position. Grid (ceil(channels/256), min(T,16)), block 256.
extern "C" __global__ void __launch_bounds__(256)
gdn_ring(const float* rows, float* ring, const SeqAt* at, int count, int channels) {
  pdl_trigger();
  pdl_wait();
  const int c = blockIdx.x * 256 + threadIdx.x, t = count - 1 - (int)blockIdx.y;
  if (c < channels && t >= 0) ring[(size_t)((at->position + t) % SEQ_RING) * channels + c] = rows[(size_t)t * channels + c];
}

// Any head dim: the rows of gdn_rows, one after the other, on `work` f32[nv][dim][dim]. Decode: work is a copy of S made by the
// caller and the rows are logged; prefill: work is S, log_k null. Grid (nv), block: dim rounded up to 32; a thread owns a value
// column and folds keys ascending.
extern "C" __global__ void __launch_bounds__(256, 1)
gdn_plain(const float* y, const float* g, const float* rate, float* work, float* log_k, float* log_delta, float* log_decay,
          const SeqAt* at, float* core, int rows, int key_heads, int value_heads, int dim) {
  extern __shared__ float plain_shared[];
  pdl_trigger();
  pdl_wait();
  float *sq = plain_shared, *sk = plain_shared + dim;
  const int c = threadIdx.x, h = blockIdx.x, kh = h % key_heads, channels = (2 * key_heads + value_heads) * dim;
  float* column = work + (size_t)h * dim * dim + c;
  for (int t = 0; t < rows; t++) {
    __syncthreads();
    if (c < dim) {
      sq[c] = y[(size_t)t * channels + kh * dim + c];
      sk[c] = y[(size_t)t * channels + (key_heads + kh) * dim + c];
    }
    __syncthreads();
    if (c >= dim) continue;
    const float decay = expf(g[(size_t)t * value_heads + h]);
    float from_k = 0.0f, from_q = 0.0f, kq = 0.0f;
    for (int i = 0; i < dim; i++) {
      const float decayed = __fmul_rn(column[(size_t)i * dim], decay);
      from_k = fmaf(sk[i], decayed, from_k);
      from_q = fmaf(sq[i], decayed, from_q);
      kq = fmaf(sk[i], sq[i], kq);
    }
    const float delta = rate[(size_t)t * value_heads + h] * (y[(size_t)t * channels + (2 * key_heads + h) * dim + c] - from_k);
    for (int i = 0; i < dim; i++) column[(size_t)i * dim] = fmaf(sk[i], delta, __fmul_rn(column[(size_t)i * dim], decay));
    core[((size_t)t * value_heads + h) * dim + c] = fmaf(kq, delta, from_q);
    if (log_k) {
      const size_t row = (size_t)(at->parity & 1) * SEQ_MAX_ROWS + t;
      log_delta[(row * value_heads + h) * dim + c] = delta;
      if (c == 0) log_decay[row * value_heads + h] = decay;
      if (h < key_heads) log_k[(row * key_heads + h) * dim + c] = sk[c];
    }
  }
}

// gated = rms(core; norm) * sigmoid(z) and its codes (null where 32 does not divide dim). Grid (ceil(T*nv/4)), block 128: a warp a head.
extern "C" __global__ void __launch_bounds__(128)
gdn_finish(const float* core, const float* z, const float* norm, float* gated, int8_t* q8, float* d8, int heads, int dim, float eps) {
  pdl_trigger();
  pdl_wait();
  const int head = blockIdx.x * 4 + threadIdx.x / 32;
  if (head >= heads) return;
  const size_t at = (size_t)head * dim;
  gdn_finish_row(core + at, z + at, norm, gated ? gated + at : nullptr, q8 ? q8 + at : nullptr, q8 ? d8 + at / 32 : nullptr, dim, eps);
}
