// Which blocks a query attends (qwen4exp.md 5, select): index scores, then the best `budget` of them.
//
// score_b = sum over index heads, ascending, of max(0, q_h . key_b); 1/sqrt(id) would not change the ranking. Higher score first,
// then the lower block: relu makes exact zeros, so ties do occur. A row with n / ratio <= budget is dense and is skipped.
// Order: a key has 8 lanes with 16 channels each (fma, ascending), then butterfly 4, 2, 1: the same for every row and grid.
#include "seq.cuh"

constexpr int SELECT_DIM = 128;
constexpr int SELECT_KEYS = 128;  // of a block of 8 warps
constexpr int SELECT_ROWS = 8;    // queries that share the keys a block loaded
constexpr int SELECT_SCAN = 1024;

// iq f32[T][ih][128], pooled bf16[..][128] -> scores f32[rows][stride], row r for query first + r. Grid (ceil(stride/128),
// ceil(rows/8)), block 256, shared 8*ih*128 floats. Must move: 256 B a block of the context, once for 8 rows.
extern "C" __global__ void __launch_bounds__(256)
select_scores(const float* iq, const uint16_t* pooled, const SeqAt* at, float* scores, int first, int rows, int stride, int index_heads,
              int ratio, int budget) {
  extern __shared__ float select_queries[];
  pdl_trigger();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % 8;
  const int row0 = blockIdx.y * SELECT_ROWS, row1 = min(rows, row0 + SELECT_ROWS);
  pdl_wait();
  const int visible0 = at->position + first + 1;
  const int last = (visible0 + row1 - 1) / ratio;  // blocks that the last query sees
  const int base = blockIdx.x * SELECT_KEYS + warp * 16 + lane / 8;
  if (last <= budget || (int)blockIdx.x * SELECT_KEYS >= last) return;
  const int width = index_heads * SELECT_DIM;
  for (int i = threadIdx.x; i < (row1 - row0) * width; i += 256) select_queries[i] = iq[(size_t)(first + row0) * width + i];
  uint32_t key[4][8];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint4* from = reinterpret_cast<const uint4*>(pooled + (size_t)min(base + 4 * i, last - 1) * SELECT_DIM + part * 16);
    const uint4 low = from[0], high = from[1];
    key[i][0] = low.x, key[i][1] = low.y, key[i][2] = low.z, key[i][3] = low.w;
    key[i][4] = high.x, key[i][5] = high.y, key[i][6] = high.z, key[i][7] = high.w;
  }
  __syncthreads();
  for (int r = row0; r < row1; r++) {
    const int whole = (visible0 + r) / ratio;
    if (whole <= budget) continue;
    float score[4] = {};
    for (int h = 0; h < index_heads; h++) {
      const float4* q4 = reinterpret_cast<const float4*>(select_queries + (r - row0) * width + h * SELECT_DIM + part * 16);
      float dot[4] = {};
#pragma unroll
      for (int c = 0; c < 4; c++) {
        const float4 q = q4[c];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          dot[i] = fmaf(q.x, seq_widen_low(key[i][2 * c]), dot[i]);
          dot[i] = fmaf(q.y, seq_widen_high(key[i][2 * c]), dot[i]);
          dot[i] = fmaf(q.z, seq_widen_low(key[i][2 * c + 1]), dot[i]);
          dot[i] = fmaf(q.w, seq_widen_high(key[i][2 * c + 1]), dot[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i++) score[i] += fmaxf(0.0f, warp_sum<8>(dot[i]));
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (part == 0 && base + 4 * i < whole) scores[(size_t)r * stride + base + 4 * i] = score[i];
  }
}

// Any index dim: a warp a key and row, lanes take channels lane, lane + 32, ..; butterfly. Grid (ceil(stride/8), rows), block 256.
extern "C" __global__ void __launch_bounds__(256)
select_scores_plain(const float* iq, const uint16_t* pooled, const SeqAt* at, float* scores, int first, int stride, int index_heads,
                    int dim, int ratio, int budget) {
  pdl_trigger();
  const int block = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, r = blockIdx.y;
  pdl_wait();
  const int whole = (at->position + first + r + 1) / ratio;
  if (whole <= budget || block >= whole) return;
  float score = 0.0f;
  for (int h = 0; h < index_heads; h++) {
    float dot = 0.0f;
    for (int c = lane; c < dim; c += 32)
      dot = fmaf(iq[((size_t)(first + r) * index_heads + h) * dim + c], seq_widen(pooled[(size_t)block * dim + c]), dot);
    score += fmaxf(0.0f, warp_sum(dot));
  }
  if (lane == 0) scores[(size_t)r * stride + block] = score;
}

// Inclusive sum over 1024 threads; `scratch`: 33 ints.
__device__ __forceinline__ int select_scan(int v, int* scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) {
    const int below = __shfl_up_sync(FULL, v, step);
    if (lane >= step) v += below;
  }
  __syncthreads();
  if (lane == 31) scratch[warp] = v;
  __syncthreads();
  if (warp == 0) {
    int sum = scratch[lane];
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
      const int below = __shfl_up_sync(FULL, sum, step);
      if (lane >= step) sum += below;
    }
    scratch[lane] = sum;
  }
  __syncthreads();
  return warp ? v + scratch[warp - 1] : v;
}

// Scores are never negative, so their bits order as they do; -0 and NaN cannot occur after fmaxf(0, .) but of +inf and finite
// values; a NaN dot counts as 0 there.
__device__ __forceinline__ uint32_t select_key(float score) { return __float_as_uint(score) & 0x7fffffffu; }

// The budget best of whole > budget scores, ascending by block, to blocks i32[T][budget] row first + r. Grid (rows), block 1024,
// shared 2*ceil(stride/32) words. Three passes over the scores find the budget-th key, 11, 10 and 10 bits at a time; a fourth marks
// what lies above it and what equals it; equals are taken from the lowest block up. Integer counts only.
extern "C" __global__ void __launch_bounds__(SELECT_SCAN)
select_best(const float* scores, const SeqAt* at, int32_t* blocks, int first, int stride, int ratio, int budget) {
  extern __shared__ uint32_t select_marks[];
  __shared__ int count[2048];
  __shared__ int scratch[33];
  __shared__ uint32_t chosen;
  __shared__ int wanted, zeros;
  pdl_trigger();
  const int r = blockIdx.x, lane = threadIdx.x % 32;
  pdl_wait();
  const int whole = (at->position + first + r + 1) / ratio;
  if (whole <= budget) return;
  const float* row = scores + (size_t)r * stride;
  if (threadIdx.x == 0) chosen = 0, wanted = budget, zeros = 0;

  // Zeros are counted apart: they may be most of the row, and would all meet in one cell.
  uint32_t prefix = 0;
  int need = budget;
  bool zero_threshold = false;
  for (int pass = 0; pass < 3; pass++) {
    const int shift = pass == 0 ? 20 : pass == 1 ? 10 : 0, bits = pass == 0 ? 11 : 10;
    count[threadIdx.x] = count[threadIdx.x + SELECT_SCAN] = 0;
    __syncthreads();
    int none = 0;
    for (int b = threadIdx.x; b < whole; b += SELECT_SCAN) {
      const uint32_t key = select_key(row[b]);
      if (key == 0) none++;
      else if (pass == 0 || key >> (shift + bits) == prefix) atomicAdd(&count[key >> shift & ((1u << bits) - 1)], 1);
    }
    if (pass == 0 && none) atomicAdd(&zeros, none);
    __syncthreads();
    if (pass == 0 && whole - zeros < budget) {
      need = budget - (whole - zeros);
      zero_threshold = true;
      break;
    }
    // Cells from the top: thread i has cells 2047 - 2i and 2046 - 2i.
    const int high = count[2047 - 2 * threadIdx.x], low = count[2046 - 2 * threadIdx.x];
    const int upto = select_scan(high + low, scratch), above = upto - high - low;
    if (above < need && need <= upto) {
      const bool in_high = need <= above + high;
      chosen = 2047 - 2 * threadIdx.x - (in_high ? 0 : 1);
      wanted = need - above - (in_high ? 0 : high);
    }
    __syncthreads();
    prefix = prefix << bits | chosen;
    need = wanted;
    __syncthreads();
  }
  const uint32_t threshold = zero_threshold ? 0 : prefix;

  const int words = (whole + 31) / 32;
  uint32_t *greater = select_marks, *equal = select_marks + words;
  for (int w = threadIdx.x / 32; w < words; w += SELECT_SCAN / 32) {
    const int b = w * 32 + lane;
    const uint32_t key = b < whole ? select_key(row[b]) : 0;
    const uint32_t g = __ballot_sync(FULL, b < whole && key > threshold), e = __ballot_sync(FULL, b < whole && key == threshold);
    if (lane == 0) greater[w] = g, equal[w] = e;
  }
  __syncthreads();
  int equals = 0, written = 0;
  for (int base = 0; base < words; base += SELECT_SCAN) {
    const int w = base + threadIdx.x;
    uint32_t g = w < words ? greater[w] : 0, e = w < words ? equal[w] : 0;
    const int own = __popc(e), with = select_scan(own, scratch);
    const int total_equal = scratch[31];
    int take = max(0, min(own, need - equals - (with - own)));
    equals += total_equal;
    if (take < own) {
      uint32_t kept = 0;
      for (; take; take--, e &= e - 1) kept |= e & (0u - e);
      e = kept;
    }
    g |= e;
    __syncthreads();
    const int mine = __popc(g), through = select_scan(mine, scratch);
    int32_t* out = blocks + (size_t)(first + r) * budget + written + through - mine;
    written += scratch[31];
    for (; g; g &= g - 1) *out++ = w * 32 + __ffs(g) - 1;
    __syncthreads();
  }
}
