// Attention of prefill rows, and of every row whose sizes have no faster kernel (qwen4exp.md 5).
//
// A block takes one row and walks its own list 32 tokens at a time with a running maximum. The order depends on the row's
// position alone, so a row's bits do not depend on which rows run beside it.
#include "attention.cuh"

// q f32[T][nh][hd], query_gate f32[T][nh][2][hd] -> o f32[T][nh][hd] gated, and its codes (may be null). Grid (T, nkv), block 256.
template <int DIM, int G>
__device__ __forceinline__ void attention_rows(const float* q, const float* query_gate, const uint16_t* keys, const uint16_t* values,
                                               const int32_t* blocks, const SeqAt* at, float* o, int8_t* q8, float* d8, int kv_heads,
                                               int ratio, int budget) {
  using Group = AttendGroup<DIM, G>;
  __shared__ typename Group::Shared shared;
  __shared__ float out[G][DIM];
  pdl_trigger();
  const int t = blockIdx.x, kv = blockIdx.y, heads = kv_heads * G, stride = kv_heads * DIM;
  pdl_wait();
  const AttendList list(blocks + (size_t)t * budget, at->position + t + 1, ratio, budget);
  Group group;
  group.load(q + ((size_t)t * heads + kv * G) * DIM);
  for (int first = 0; first < list.count; first += ATTEND_TILE) {
    if (first) __syncthreads();
    group.scores(shared, list, first, keys + kv * DIM, stride, first == 0);
    group.values(shared, values + kv * DIM, stride, first == 0);
  }
  const int pair = threadIdx.x % (DIM / 2), run = threadIdx.x / (DIM / 2) * Group::RUN;
#pragma unroll
  for (int h = 0; h < Group::RUN; h++) {
    if (run + h >= G) continue;
    out[run + h][2 * pair] = group.o[h][0] / shared.total[run + h];
    out[run + h][2 * pair + 1] = group.o[h][1] / shared.total[run + h];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < G * DIM; i += 256) {
    const size_t head = (size_t)t * heads + kv * G + i / DIM;
    attend_store(out[i / DIM][i % DIM], query_gate[head * 2 * DIM + DIM + i % DIM], o, q8, d8, head * DIM + i % DIM, true);
  }
}

#define ATTENTION_ROWS(DIM, G)                                                                                               \
  extern "C" __global__ void __launch_bounds__(256) attention_rows_##DIM##_##G(                                              \
      const float* q, const float* query_gate, const uint16_t* keys, const uint16_t* values, const int32_t* blocks,          \
      const SeqAt* at, float* o, int8_t* q8, float* d8, int kv_heads, int ratio, int budget) {                               \
    attention_rows<DIM, G>(q, query_gate, keys, values, blocks, at, o, q8, d8, kv_heads, ratio, budget);                     \
  }
ATTENTION_ROWS(256, 12)
ATTENTION_ROWS(128, 2)
ATTENTION_ROWS(128, 4)

// Any sizes: a block takes a row and a query head. Grid (T, nh), block 128; hd <= 256. Codes need 32 to divide hd.
extern "C" __global__ void __launch_bounds__(128)
attention_rows_plain(const float* q, const float* query_gate, const uint16_t* keys, const uint16_t* values, const int32_t* blocks,
                     const SeqAt* at, float* o, int8_t* q8, float* d8, int heads, int kv_heads, int dim, int ratio, int budget) {
  __shared__ float p[ATTEND_TILE];
  __shared__ int token[ATTEND_TILE];
  pdl_trigger();
  const int t = blockIdx.x, h = blockIdx.y, kv = h / (heads / kv_heads), stride = kv_heads * dim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  pdl_wait();
  const AttendList list(blocks + (size_t)t * budget, at->position + t + 1, ratio, budget);
  const size_t row = (size_t)t * heads + h;
  const float scale = 1.0f / sqrtf((float)dim);
  float sum[4] = {}, top = -INFINITY, total = 0.0f;
  for (int first = 0; first < list.count; first += ATTEND_TILE) {
    __syncthreads();
    for (int i = warp; i < ATTEND_TILE; i += 4) {
      const int at_token = list.token(min(first + i, list.count - 1));
      float dot = 0.0f;
      for (int c = lane; c < dim; c += 32) dot = fmaf(q[row * dim + c], seq_widen(keys[(size_t)at_token * stride + kv * dim + c]), dot);
      dot = warp_sum(dot) * scale;
      if (lane == 0) p[i] = first + i < list.count ? dot : -INFINITY, token[i] = at_token;
    }
    __syncthreads();
    const float score = p[lane], next = fmaxf(top, warp_max(score)), factor = expf(top - next), weight = expf(score - next);
    total = fmaf(total, factor, warp_sum(weight));
    top = next;
    __syncthreads();
    if (warp == 0) p[lane] = weight;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int c = threadIdx.x + k * 128;
      if (c >= dim) break;
      sum[k] *= factor;
      for (int i = 0; i < ATTEND_TILE; i++) sum[k] = fmaf(p[i], seq_widen(values[(size_t)token[i] * stride + kv * dim + c]), sum[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const int c = threadIdx.x + k * 128;
    const bool mine = c < dim;
    if (mine || (q8 && c - lane < dim))
      attend_store(sum[k] / total, mine ? query_gate[row * 2 * dim + dim + c] : 0.0f, o, q8, d8, row * dim + c, mine);
  }
}
