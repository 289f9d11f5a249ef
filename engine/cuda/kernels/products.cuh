// Products of rows in shared memory with int8 activations beside them: a pair of groups at a time, in the fold order that
// stands at the head of matvec.cu.
#pragma once
#include "formats.cuh"

constexpr int CHUNK_GROUPS = 80;

__device__ __forceinline__ float silu(float x) { return x / (1.f + expf(-x)); }
__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
constexpr int PAIR_BYTES = 80;  // 64 codes, two scales, two times two sums of sixteen: conflict-free by 16 bytes

// Every pair of every row, as the inner loop reads it.
__device__ __forceinline__ void stage_activations(const int8_t* q, const float* d, int t, int groups, uint8_t* to) {
    const int pairs = groups / 2;
    for (int i = threadIdx.x; i < t * pairs; i += blockDim.x) {
        const uint4* from = reinterpret_cast<const uint4*>(q) + 4 * static_cast<size_t>(i);
        uint4* at = reinterpret_cast<uint4*>(to + i * PAIR_BYTES);
        uint32_t sums[2];
#pragma unroll
        for (int g = 0; g < 2; g++) {
            const uint4 a = from[2 * g], b = from[2 * g + 1];
            at[2 * g] = a;
            at[2 * g + 1] = b;
            const uint32_t low[4] = {a.x, a.y, a.z, a.w}, high[4] = {b.x, b.y, b.z, b.w};
            sums[g] = (half_sum(low) & 0xFFFF) | static_cast<uint32_t>(half_sum(high)) << 16;
        }
        at[4] = make_uint4(__float_as_uint(d[2 * i]), __float_as_uint(d[2 * i + 1]), sums[0], sums[1]);
    }
}

template <class F>
struct PairOf {
    // Groups 2p and 2p+1 of a row in shared memory whose address is a multiple of 4.
    static __device__ __forceinline__ void load(const uint8_t* row, int p, uint32_t* c, float* wa, float* wb) {
        F::group(row, 2 * p, c, wa, wb);
        F::group(row, 2 * p + 1, c + 8, wa + 2, wb + 2);
    }
};

template <>
struct PairOf<Q8_0> {
    // 17 words, a stride that meets no bank twice; the second block's codes are aligned, the first one's are not.
    static __device__ __forceinline__ void load(const uint8_t* row, int p, uint32_t* c, float* wa, float*) {
        const uint32_t* w = reinterpret_cast<const uint32_t*>(row + p * 68);
        uint32_t x[9];
#pragma unroll
        for (int i = 0; i < 9; i++) x[i] = w[i];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            c[i] = __byte_perm(x[i], x[i + 1], 0x5432);
            c[i + 8] = w[9 + i];
        }
        wa[0] = half_low(x[0]);
        wa[2] = half_high(x[8]);
    }
};

template <>
struct PairOf<Q4_K> {
    // Two groups share their 32 bytes.
    static __device__ __forceinline__ void load(const uint8_t* row, int p, uint32_t* c, float* wa, float* wb) {
        const uint4* b = reinterpret_cast<const uint4*>(row + p / 4 * Q4_K::BYTES);
        const uint4 head = b[0], low = b[1 + 2 * (p % 4)], high = b[2 + 2 * (p % 4)];
        k_scale(head, 2 * (p % 4), wa[0], wb[0]);
        k_scale(head, 2 * (p % 4) + 1, wa[2], wb[2]);
        const uint32_t n[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            c[i] = n[i] & NIBBLES;
            c[i + 8] = n[i] >> 4 & NIBBLES;
        }
    }
};

template <class F, int R>
__device__ __forceinline__ void fold_pair(const uint8_t* row, int p, const uint8_t* act, int act_stride, float* acc) {
    uint32_t c[16];
    float wa[4], wb[4];
    PairOf<F>::load(row, p, c, wa, wb);
#pragma unroll
    for (int t = 0; t < R; t++) {
        const uint4* a = reinterpret_cast<const uint4*>(act + t * act_stride + p * PAIR_BYTES);
        const uint4 s = a[4];
#pragma unroll
        for (int g = 0; g < 2; g++) {
            const uint4 lo = a[2 * g], hi = a[2 * g + 1];
            const uint32_t q[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
            const int sums = static_cast<int>(g ? s.w : s.z);
            acc[t] = fold_group<F>(c + 8 * g, wa + 2 * g, wb + 2 * g, q, __uint_as_float(g ? s.y : s.x),
                                   static_cast<int16_t>(sums), sums >> 16, acc[t]);
        }
    }
}

constexpr int CHUNK_COLUMNS = 2560;

struct alignas(8) Four16 {
    uint16_t v[4];
};

// Columns c .. c+3; those past the end are 0. `whole`: every row starts on a multiple of four elements.
template <class W>
__device__ __forceinline__ void four_weights(const W* row, int c, int cols, bool whole, float (&w)[4]) {
    if (whole) {
        if constexpr (sizeof(W) == 4) {
            const float4 v = *reinterpret_cast<const float4*>(row + c);
            w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
        } else {
            const Four16 v = *reinterpret_cast<const Four16*>(row + c);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                W x;
                memcpy(&x, &v.v[e], 2);
                w[e] = widen(x);
            }
        }
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++) w[e] = c + e < cols ? widen(row[c + e]) : 0.f;
    }
}
