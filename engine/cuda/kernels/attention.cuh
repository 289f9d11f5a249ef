// Attention over a query's token list, 32 tokens of it at a time, shared by decode and prefill (qwen4exp.md 5).
//
// The list of a query that sees n tokens: all of them while n / ratio <= budget, else `budget` whole blocks, ascending, and
// the tokens behind the last whole block. Everything follows from n, so no length is passed.
#pragma once
#include "seq.cuh"

constexpr int ATTEND_TILE = 32;
constexpr int ATTEND_HEADS = 16;  // room for query heads of one key head

struct AttendList {
  const int32_t* blocks;
  int ratio, kept, tail, count;

  __device__ __forceinline__ AttendList(const int32_t* blocks, int visible, int ratio, int budget) : blocks(blocks), ratio(ratio) {
    const int whole = visible / ratio;
    const bool dense = whole <= budget;
    kept = dense ? 0 : budget;
    tail = dense ? 0 : whole * ratio;
    count = dense ? visible : budget * ratio + visible - tail;
  }
  __device__ __forceinline__ int token(int i) const {
    const int block = i / ratio;
    return block < kept ? blocks[block] * ratio + i % ratio : tail + i - kept * ratio;
  }
};

// N values a lane to N/2: the lanes of one side of `step` keep the upper ones.
template <int N>
__device__ __forceinline__ void attend_fold(float* v, int lane, int step) {
  const bool upper = lane & step;
#pragma unroll
  for (int i = 0; i < N / 2; i++) {
    const float keep = upper ? v[i + N / 2] : v[i], send = upper ? v[i] : v[i + N / 2];
    v[i] = keep + __shfl_xor_sync(FULL, send, step);
  }
}

// The query heads of one key head: DIM channels, G <= 16 heads, a block of 256 threads.
template <int DIM, int G>
struct AttendGroup {
  static constexpr int LANE = DIM / 32;       // channels a lane in scores
  static constexpr int HALVES = 512 / DIM;    // threads are DIM/2 channel pairs times HALVES runs of heads
  static constexpr int RUN = (G + HALVES - 1) / HALVES;
  static_assert(DIM == 128 || DIM == 256, "a lane loads 8 or 16 bytes");
  static_assert(G <= ATTEND_HEADS, "more query heads than the score tile has room for");

  struct Shared {
    float p[ATTEND_TILE][ATTEND_HEADS + 4];
    float max[ATTEND_HEADS], total[ATTEND_HEADS], factor[ATTEND_HEADS];
    int token[ATTEND_TILE];
  };

  float q[G][LANE];
  float o[RUN][2];

  __device__ __forceinline__ void load(const float* query) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < G; h++)
#pragma unroll
      for (int c = 0; c < LANE; c++) q[h][c] = query[h * DIM + lane * LANE + c];
#pragma unroll
    for (int h = 0; h < RUN; h++) o[h][0] = o[h][1] = 0.0f;
  }

  // Scores of list entries first..first+32 into s.p (a warp four tokens), then their weights against the running maximum.
  // Order: a lane's channels ascending by fma, lanes by butterfly 16..1; a tile's weights by butterfly.
  __device__ __forceinline__ void scores(Shared& s, const AttendList& list, int first, const uint16_t* keys, int stride, bool fresh) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float scale = 1.0f / sqrtf((float)DIM);
    uint32_t k[4][LANE / 2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      // Past the end the last token again: what lies above was never written.
      const int token = list.token(min(first + warp * 4 + i, list.count - 1));
      if (lane == 0) s.token[warp * 4 + i] = token;
      const uint16_t* row = keys + (size_t)token * stride + lane * LANE;
      if constexpr (LANE == 8) {
        const uint4 v = *reinterpret_cast<const uint4*>(row);
        k[i][0] = v.x, k[i][1] = v.y, k[i][2] = v.z, k[i][3] = v.w;
      } else {
        const uint2 v = *reinterpret_cast<const uint2*>(row);
        k[i][0] = v.x, k[i][1] = v.y;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float sum[ATTEND_HEADS];
#pragma unroll
      for (int h = 0; h < ATTEND_HEADS; h++) {
        sum[h] = 0.0f;
        if (h < G) {
#pragma unroll
          for (int c = 0; c < LANE / 2; c++) {
            sum[h] = fmaf(q[h][2 * c], seq_widen_low(k[i][c]), sum[h]);
            sum[h] = fmaf(q[h][2 * c + 1], seq_widen_high(k[i][c]), sum[h]);
          }
        }
      }
      attend_fold<16>(sum, lane, 16);
      attend_fold<8>(sum, lane, 8);
      attend_fold<4>(sum, lane, 4);
      attend_fold<2>(sum, lane, 2);
      sum[0] += __shfl_xor_sync(FULL, sum[0], 1);
      if (lane % 2 == 0) s.p[warp * 4 + i][lane / 2] = sum[0] * scale;
    }
    __syncthreads();
    for (int h = warp; h < G; h += 8) {
      const bool valid = first + lane < list.count;
      const float score = valid ? s.p[lane][h] : -INFINITY;
      const float before = fresh ? -INFINITY : s.max[h], top = fmaxf(before, warp_max(score));
      const float weight = valid ? expf(score - top) : 0.0f;
      const float factor = expf(before - top), sum = warp_sum(weight);
      s.p[lane][h] = weight;
      __syncwarp();
      if (lane == 0) {
        s.total[h] = fresh ? sum : fmaf(s.total[h], factor, sum);
        s.max[h] = top;
        s.factor[h] = factor;
      }
    }
    __syncthreads();
  }

  // o += weights * values, tokens ascending; the running sums are brought to the new maximum first.
  __device__ __forceinline__ void values(const Shared& s, const uint16_t* values, int stride, bool fresh) {
    const int pair = threadIdx.x % (DIM / 2), run = threadIdx.x / (DIM / 2) * RUN;
    if (!fresh) {
#pragma unroll
      for (int h = 0; h < RUN; h++) {
        const float factor = run + h < G ? s.factor[run + h] : 0.0f;
        o[h][0] *= factor;
        o[h][1] *= factor;
      }
    }
#pragma unroll 8
    for (int i = 0; i < ATTEND_TILE; i++) {
      const uint32_t v = *reinterpret_cast<const uint32_t*>(values + (size_t)s.token[i] * stride + 2 * pair);
      const float low = seq_widen_low(v), high = seq_widen_high(v);
#pragma unroll
      for (int h = 0; h < RUN; h++) {
        if (run + h >= G) continue;
        o[h][0] = fmaf(s.p[i][run + h], low, o[h][0]);
        o[h][1] = fmaf(s.p[i][run + h], high, o[h][1]);
      }
    }
  }
};

// One head of one row: value / total, times sigmoid(gate); block threads own channels, `first` the head's first. Codes where asked.
__device__ __forceinline__ void attend_store(float value, float gate, float* o, int8_t* q, float* d, size_t at, bool mine) {
  const float v = mine ? value * seq_sigmoid(gate) : 0.0f;
  if (mine) o[at] = v;
  const size_t group = at - threadIdx.x % 32;
  if (q) seq_quantise(v, q + group, d + group / 32);
}
