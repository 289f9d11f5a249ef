// Attention, decode and verify rows (qwen4exp.md 5): norm, rope and cache write; attention split by list index; combination.
//
// Caches are bf16 by absolute position, k and v [ctx][nkv*hd], raw index keys [ctx][id], pooled keys [ctx/ratio][id]; a row's own
// entries are read back as stored. Row invariance: a head of a row has a warp (prepare) or a block (combine) to itself; a split
// is 32 entries of one row's list, whose length follows from the row's position; splits are combined ascending.
#include "attention.cuh"

// table f32[positions][2][half]: cosines, then sines of position * inv_freq in f64, as the CPU has them. Grid (ceil(n*half/128)).
extern "C" __global__ void __launch_bounds__(128) attention_rope(const double* inv_freq, float* table, int positions, int half) {
  pdl_trigger();
  pdl_wait();
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i >= positions * half) return;
  double sine, cosine;
  sincos((double)(i / half) * inv_freq[i % half], &sine, &cosine);
  table[(size_t)(i / half) * 2 * half + i % half] = (float)cosine;
  table[(size_t)(i / half) * 2 * half + half + i % half] = (float)sine;
}

// One head: norm, then rope of pairs (i, i + half); a warp. get(i): channel i before the norm; put(i, v).
template <class Get, class Put>
__device__ __forceinline__ void attention_norm_rope(Get get, Put put, const float* gain, const float* angles, int dim, int half, float eps) {
  const int lane = threadIdx.x % 32;
  float square = 0.0f;
  for (int i = lane; i < dim; i += 32) {
    const float v = get(i);
    square = fmaf(v, v, square);
  }
  const float rinv = 1.0f / sqrtf(warp_sum(square) / (float)dim + eps);
  for (int i = lane; i < dim; i += 32) {
    const float v = get(i) * rinv * gain[i];
    if (i >= 2 * half) {
      put(i, v);
      continue;
    }
    const int angle = i < half ? i : i - half, other = i < half ? i + half : i - half;
    const float w = get(other) * rinv * gain[other], c = angles[angle], s = angles[half + angle];
    put(i, i < half ? v * c - w * s : v * c + w * s);
  }
}

// Grid (ceil(items/4), T), block 128, a warp an item; items: nh query heads, nkv key heads, nkv value heads, ih index queries, the
// raw index key, the pooled key of the block that the row completes (if it does).
// query_gate f32[T][nh][2][hd], k, v f32[T][nkv*hd], iq f32[T][ih][id], ik f32[T][id]; q f32[T][nh][hd], iq_out f32[T][ih][id].
extern "C" __global__ void __launch_bounds__(128)
attention_prepare(const float* query_gate, const float* k, const float* v, const float* iq, const float* ik, const float* q_norm,
                  const float* k_norm, const float* iq_norm, const float* ik_norm, const float* rope, const SeqAt* at,
                  uint16_t* k_cache, uint16_t* v_cache, uint16_t* raw_cache, uint16_t* pooled_cache, float* q, float* iq_out,
                  int heads, int kv_heads, int dim, int index_heads, int index_dim, int half, int ratio, float eps) {
  pdl_trigger();
  const int t = blockIdx.y, lane = threadIdx.x % 32;
  int item = blockIdx.x * 4 + threadIdx.x / 32;
  pdl_wait();
  const int position = at->position + t;
  const float* angles = rope + (size_t)position * 2 * half;
  if (item < heads) {
    const float* in = query_gate + ((size_t)t * heads + item) * 2 * dim;
    float* out = q + ((size_t)t * heads + item) * dim;
    attention_norm_rope([&](int i) { return in[i]; }, [&](int i, float x) { out[i] = x; }, q_norm, angles, dim, half, eps);
    return;
  }
  item -= heads;
  const size_t cached = (size_t)position * kv_heads * dim, given = (size_t)t * kv_heads * dim;
  if (item < kv_heads) {
    const float* in = k + given + item * dim;
    uint16_t* out = k_cache + cached + item * dim;
    attention_norm_rope([&](int i) { return in[i]; }, [&](int i, float x) { out[i] = seq_bf16(x); }, k_norm, angles, dim, half, eps);
    return;
  }
  item -= kv_heads;
  if (item < kv_heads) {
    for (int i = item * dim + lane; i < (item + 1) * dim; i += 32) v_cache[cached + i] = seq_bf16(v[given + i]);
    return;
  }
  item -= kv_heads;
  if (item < index_heads) {
    const size_t head = ((size_t)t * index_heads + item) * index_dim;
    attention_norm_rope([&](int i) { return iq[head + i]; }, [&](int i, float x) { iq_out[head + i] = x; }, iq_norm, angles,
                        index_dim, half, eps);
    return;
  }
  item -= index_heads;
  if (item == 0) {
    for (int i = lane; i < index_dim; i += 32) raw_cache[(size_t)position * index_dim + i] = seq_bf16(ik[(size_t)t * index_dim + i]);
    return;
  }
  if (item > 1 || (position + 1) % ratio != 0) return;
  // Rows of this call are rounded here as another warp rounds them for the cache; older ones are read from it.
  const int first = position + 1 - ratio;
  uint16_t* out = pooled_cache + (size_t)(first / ratio) * index_dim;
  const auto mean = [&](int i) {
    float sum = 0.0f;
    for (int j = 0; j < ratio; j++) {
      const int row = t + 1 - ratio + j;
      sum += seq_widen(row >= 0 ? seq_bf16(ik[(size_t)row * index_dim + i]) : raw_cache[(size_t)(first + j) * index_dim + i]);
    }
    return sum / (float)ratio;
  };
  attention_norm_rope(mean, [&](int i, float x) { out[i] = seq_bf16(x); }, ik_norm, rope + (size_t)first * 2 * half, index_dim, half, eps);
}

// Partial attention: o f32[T][splits][nh][hd], stats f32[T][splits][nh][2] (maximum, total). Grid (splits, nkv, T), block 256; a block
// past its row's list leaves at once. Must move: the split's keys and values once for all G heads, 64 KB at hd = 256.
template <int DIM, int G>
__device__ __forceinline__ void attention_split(const float* q, const uint16_t* keys, const uint16_t* values, const int32_t* blocks,
                                                const SeqAt* at, float* o, float* stats, int kv_heads, int ratio, int budget) {
  using Group = AttendGroup<DIM, G>;
  __shared__ typename Group::Shared shared;
  pdl_trigger();
  const int split = blockIdx.x, kv = blockIdx.y, t = blockIdx.z, heads = kv_heads * G, stride = kv_heads * DIM;
  pdl_wait();
  const AttendList list(blocks + (size_t)t * budget, at->position + t + 1, ratio, budget);
  if (split * ATTEND_TILE >= list.count) return;
  Group group;
  group.load(q + ((size_t)t * heads + kv * G) * DIM);
  group.scores(shared, list, split * ATTEND_TILE, keys + kv * DIM, stride, true);
  group.values(shared, values + kv * DIM, stride, true);
  const size_t first = ((size_t)t * gridDim.x + split) * heads + kv * G;
  const int pair = threadIdx.x % (DIM / 2), run = threadIdx.x / (DIM / 2) * Group::RUN;
#pragma unroll
  for (int h = 0; h < Group::RUN; h++)
    if (run + h < G)
      *reinterpret_cast<float2*>(o + (first + run + h) * DIM + 2 * pair) = make_float2(group.o[h][0], group.o[h][1]);
  if (threadIdx.x < G) {
    stats[(first + threadIdx.x) * 2] = shared.max[threadIdx.x];
    stats[(first + threadIdx.x) * 2 + 1] = shared.total[threadIdx.x];
  }
}

#define ATTENTION_SPLIT(DIM, G)                                                                                            \
  extern "C" __global__ void __launch_bounds__(256) attention_split_##DIM##_##G(                                           \
      const float* q, const uint16_t* keys, const uint16_t* values, const int32_t* blocks, const SeqAt* at, float* o,      \
      float* stats, int kv_heads, int ratio, int budget) {                                                                 \
    attention_split<DIM, G>(q, keys, values, blocks, at, o, stats, kv_heads, ratio, budget);                               \
  }
ATTENTION_SPLIT(256, 12)
ATTENTION_SPLIT(128, 2)
ATTENTION_SPLIT(128, 4)

// o f32[T][nh][hd] = combination of the splits, ascending, times sigmoid(gate), and its codes (null where 32 does not divide hd).
// Grid (nh, T), block 256 >= hd. splits: as launched.
extern "C" __global__ void __launch_bounds__(256)
attention_combine(const float* parts, const float* stats, const float* query_gate, const SeqAt* at, float* o, int8_t* q8, float* d8,
                  int splits, int dim, int ratio, int budget) {
  extern __shared__ float combine_weight[];
  pdl_trigger();
  const int h = blockIdx.x, t = blockIdx.y, heads = gridDim.x, c = threadIdx.x;
  pdl_wait();
  const AttendList list(nullptr, at->position + t + 1, ratio, budget);
  const int used = min((list.count + ATTEND_TILE - 1) / ATTEND_TILE, splits);
  const float* own = stats + ((size_t)t * splits * heads + h) * 2;
  float top = -INFINITY;
  for (int s = 0; s < used; s++) top = fmaxf(top, own[(size_t)s * heads * 2]);
  for (int s = c; s < used; s += 256) combine_weight[s] = expf(own[(size_t)s * heads * 2] - top);
  __syncthreads();
  const bool mine = c < dim;
  float sum = 0.0f, total = 0.0f;
  for (int s = 0; s < used; s++) {
    total = fmaf(combine_weight[s], own[(size_t)s * heads * 2 + 1], total);
    if (mine) sum = fmaf(combine_weight[s], parts[(((size_t)t * splits + s) * heads + h) * dim + c], sum);
  }
  const size_t row = (size_t)t * heads + h;
  if (mine || (q8 && c - threadIdx.x % 32 < dim))
    attend_store(sum / total, mine ? query_gate[row * 2 * dim + dim + c] : 0.0f, o, q8, d8, row * dim + c, mine);
}
