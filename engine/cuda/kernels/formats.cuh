// Block formats: one struct each, that turns a group of 32 elements of a row into eight words of int8 codes with scales
// (layouts: quant-formats.md 2; the defining code: engine/quant/src/formats). Values are wa * code + wb.
//
// `HALVES` is 2 where 16 elements share a scale, so that wa and wb have two entries; `OFFSET` says whether wb counts.
// group() reads a row at any alignment that its blocks have; it may touch the rest of the words that hold the group.
#pragma once
#include "common.cuh"
#include "iq_grids.cuh"  // written by build.rs

constexpr uint32_t NIBBLES = 0x0F0F0F0Fu;

__device__ __forceinline__ float half_at(const uint8_t* p) {
    return __half2float(__ushort_as_half(*reinterpret_cast<const unsigned short*>(p)));
}

__device__ __forceinline__ float half_low(uint32_t w) { return __half2float(__ushort_as_half(static_cast<unsigned short>(w))); }

__device__ __forceinline__ float half_high(uint32_t w) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(w >> 16)));
}

// N words from any address.
template <int N>
__device__ __forceinline__ void words(const uint8_t* p, uint32_t* out) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    const uint32_t* w = reinterpret_cast<const uint32_t*>(at & ~uintptr_t(3));
    const int shift = 8 * (at & 3);
    uint32_t low = w[0];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t high = w[i + 1];
        out[i] = __funnelshift_r(low, high, shift);
        low = high;
    }
}

// Bytes minus n, none of which borrows from the next: a byte is at least 0 and n at most 127.
__device__ __forceinline__ uint32_t minus(uint32_t bytes, uint32_t n) {
    return ((bytes | 0x80808080u) - n * 0x01010101u) ^ 0x80808080u;
}

// Low nibbles of 16 bytes are elements 0..16 of the group, high ones 16..32.
__device__ __forceinline__ void nibbles(const uint8_t* p, uint32_t* c) {
    words<4>(p, c);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c[i + 4] = c[i] >> 4 & NIBBLES;
        c[i] &= NIBBLES;
    }
}

// Bit i of qh becomes bit 4 of code i.
__device__ __forceinline__ void fifth_bits(uint32_t qh, uint32_t* c) {
#pragma unroll
    for (int i = 0; i < 8; i++) c[i] |= ((qh >> 4 * i & 15) * 0x02040810u) & 0x10101010u;
}

// Codes of 16 nibble values, from a table of four words; as nibbles() lays them out.
__device__ __forceinline__ void lookup(const uint8_t* p, const uint32_t (&table)[4], uint32_t* c) {
    uint32_t q[4];
    words<4>(p, q);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t four[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t s = q[i] >> 16 * h & 0xFFFF;
            const uint32_t below = __byte_perm(table[0], table[1], s & 0x7777);
            const uint32_t above = __byte_perm(table[2], table[3], s & 0x7777);
            four[h] = __byte_perm(below, above, 0x3210 | (s & 0x8888) >> 1);
        }
        c[i] = __byte_perm(four[0], four[1], 0x6420);
        c[i + 4] = __byte_perm(four[0], four[1], 0x7531);
    }
}

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

struct Q8_0 {
    static constexpr int BYTES = 34, ELEMS = 32, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g * BYTES;
        wa[0] = half_at(b);
        words<8>(b + 2, c);
    }
};

struct Q4_0 {
    static constexpr int BYTES = 18, ELEMS = 32, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g * BYTES;
        wa[0] = half_at(b);
        nibbles(b + 2, c);
#pragma unroll
        for (int i = 0; i < 8; i++) c[i] = minus(c[i], 8);
    }
};

struct Q4_1 {
    static constexpr int BYTES = 20, ELEMS = 32, HALVES = 1;
    static constexpr bool OFFSET = true;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float* wb) {
        const uint8_t* b = row + g * BYTES;
        wa[0] = half_at(b);
        wb[0] = half_at(b + 2);
        nibbles(b + 4, c);
    }
};

struct Q5_0 {
    static constexpr int BYTES = 22, ELEMS = 32, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g * BYTES;
        uint32_t qh;
        wa[0] = half_at(b);
        words<1>(b + 2, &qh);
        nibbles(b + 6, c);
        fifth_bits(qh, c);
#pragma unroll
        for (int i = 0; i < 8; i++) c[i] = minus(c[i], 16);
    }
};

struct Q5_1 {
    static constexpr int BYTES = 24, ELEMS = 32, HALVES = 1;
    static constexpr bool OFFSET = true;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float* wb) {
        // Rows are whole blocks, so a block is as aligned as its matrix: 8 bytes.
        const uint2* b = reinterpret_cast<const uint2*>(row + g * BYTES);
        const uint2 head = b[0], low = b[1], high = b[2];
        wa[0] = half_low(head.x);
        wb[0] = half_high(head.x);
        const uint32_t n[4] = {low.x, low.y, high.x, high.y};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            c[i] = n[i] & NIBBLES;
            c[i + 4] = n[i] >> 4 & NIBBLES;
        }
        fifth_bits(head.y, c);
    }
};

// Scales and mins of Q4_K and Q5_K: six bits each, from the block's words 1..4.
__device__ __forceinline__ void k_scale(uint4 head, int g, float& wa, float& wb) {
    const int shift = 8 * (g & 3);
    uint32_t sc, mn;
    if (g < 4) {
        sc = head.y >> shift & 63;
        mn = head.z >> shift & 63;
    } else {
        const uint32_t both = head.w >> shift;
        sc = (both & 15) | (head.y >> (shift + 6) & 3) << 4;
        mn = (both >> 4 & 15) | (head.z >> (shift + 6) & 3) << 4;
    }
    wa = half_low(head.x) * static_cast<float>(sc);
    wb = -(half_high(head.x) * static_cast<float>(mn));
}

struct Q4_K {
    static constexpr int BYTES = 144, ELEMS = 256, HALVES = 1;
    static constexpr bool OFFSET = true;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float* wb) {
        const uint4* b = reinterpret_cast<const uint4*>(row + g / 8 * BYTES);
        const int i = g % 8, shift = 4 * (i & 1);
        const uint4 low = b[1 + (i & ~1)], high = b[2 + (i & ~1)];
        k_scale(b[0], i, wa[0], wb[0]);
        const uint32_t n[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int k = 0; k < 8; k++) c[k] = n[k] >> shift & NIBBLES;
    }
};

struct Q5_K {
    static constexpr int BYTES = 176, ELEMS = 256, HALVES = 1;
    static constexpr bool OFFSET = true;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float* wb) {
        const uint4* b = reinterpret_cast<const uint4*>(row + g / 8 * BYTES);
        const int i = g % 8, shift = 4 * (i & 1);
        const uint4 h0 = b[1], h1 = b[2], low = b[3 + (i & ~1)], high = b[4 + (i & ~1)];
        k_scale(b[0], i, wa[0], wb[0]);
        const uint32_t n[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const uint32_t h[8] = {h0.x, h0.y, h0.z, h0.w, h1.x, h1.y, h1.z, h1.w};
#pragma unroll
        for (int k = 0; k < 8; k++) c[k] = (n[k] >> shift & NIBBLES) | (h[k] >> i & 0x01010101u) << 4;
    }
};

struct Q6_K {
    static constexpr int BYTES = 210, ELEMS = 256, HALVES = 2;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g / 8 * BYTES;
        const int i = g % 8, n = i / 4, q = i % 4;
        uint32_t low[8], high[8];
        words<8>(b + 64 * n + 32 * (q & 1), low);
        words<8>(b + 128 + 32 * n, high);
#pragma unroll
        for (int k = 0; k < 8; k++)
            c[k] = minus((low[k] >> 4 * (q >> 1) & NIBBLES) | (high[k] >> 2 * q & 0x03030303u) << 4, 32);
        const float d = half_at(b + 208);
#pragma unroll
        for (int h = 0; h < 2; h++) wa[h] = d * static_cast<float>(static_cast<int8_t>(b[192 + 2 * i + h]));
    }
};

struct Q2_K {
    static constexpr int BYTES = 84, ELEMS = 256, HALVES = 2;
    static constexpr bool OFFSET = true;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float* wb) {
        const uint8_t* b = row + g / 8 * BYTES;
        const int i = g % 8;
        words<8>(b + 16 + 32 * (i / 4), c);
#pragma unroll
        for (int k = 0; k < 8; k++) c[k] = c[k] >> 2 * (i % 4) & 0x03030303u;
        const float d = half_at(b + 80), dmin = half_at(b + 82);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t s = b[2 * i + h];
            wa[h] = d * static_cast<float>(s & 15);
            wb[h] = -(dmin * static_cast<float>(s >> 4));
        }
    }
};

struct Q3_K {
    static constexpr int BYTES = 110, ELEMS = 256, HALVES = 2;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g / 8 * BYTES;
        const int i = g % 8;
        uint32_t mask[8];
        words<8>(b, mask);
        words<8>(b + 32 + 32 * (i / 4), c);
#pragma unroll
        for (int k = 0; k < 8; k++)
            c[k] = minus((c[k] >> 2 * (i % 4) & 0x03030303u) | (mask[k] >> i & 0x01010101u) << 2, 4);
        const float d = half_at(b + 108);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int s = 2 * i + h;
            const int sc = (b[96 + s % 8] >> 4 * (s / 8) & 15) | (b[104 + s % 4] >> 2 * (s / 4) & 3) << 4;
            wa[h] = d * static_cast<float>(sc - 32);
        }
    }
};

__device__ __forceinline__ uint32_t even_signs(uint32_t seven) { return seven | (__popc(seven) & 1) << 7; }

// Four codes, those whose bit of `signs` is set negative.
__device__ __forceinline__ uint32_t with_signs(uint32_t four, uint32_t signs) {
    const uint32_t ones = ((signs & 15) * 0x00204081u) & 0x01010101u;
    // No code is 0, so the complement plus one carries into no other byte.
    return (four ^ ones * 255u) + ones;
}

// Four elements of a row whose level numbers have two bits each, of 8, 25 and 43.
__device__ __forceinline__ uint32_t levels_2(uint32_t packed) {
    uint32_t four = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) four |= (0x2B1908u >> 8 * (packed >> 2 * j & 3) & 255u) << 8 * j;
    return four;
}

// Four elements whose level numbers have three bits each, of 4, 12, .., 52, 62.
__device__ __forceinline__ uint32_t levels_3(uint32_t packed) {
    uint32_t four = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t level = packed >> 3 * j & 7;
        four |= (level * 8 + 4 + (level == 7 ? 2 : 0)) << 8 * j;
    }
    return four;
}

__device__ __forceinline__ float grid_scale(float d, uint32_t scale, float step) {
    return d * (0.5f + static_cast<float>(scale)) * step;
}

struct IQ2_XXS {
    static constexpr int BYTES = 66, ELEMS = 256, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g / 8 * BYTES;
        uint32_t w[2];
        words<2>(b + 2 + 8 * (g % 8), w);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t packed = IQ2_XXS_ROWS[w[0] >> 8 * k & 255], signs = even_signs(w[1] >> 7 * k & 127);
            c[2 * k] = with_signs(levels_2(packed), signs);
            c[2 * k + 1] = with_signs(levels_2(packed >> 8), signs >> 4);
        }
        wa[0] = grid_scale(half_at(b), w[1] >> 28, 0.25f);
    }
};

struct IQ2_XS {
    static constexpr int BYTES = 74, ELEMS = 256, HALVES = 2;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g / 8 * BYTES;
        const int i = g % 8;
        uint32_t w[2];
        words<2>(b + 2 + 8 * i, w);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t q = w[k / 2] >> 16 * (k % 2) & 0xFFFF;
            const uint32_t packed = IQ2_XS_ROWS[q & 511], signs = even_signs(q >> 9);
            c[2 * k] = with_signs(levels_2(packed), signs);
            c[2 * k + 1] = with_signs(levels_2(packed >> 8), signs >> 4);
        }
        const float d = half_at(b);
#pragma unroll
        for (int h = 0; h < 2; h++) wa[h] = grid_scale(d, b[66 + i] >> 4 * h & 15, 0.25f);
    }
};

struct IQ3_XXS {
    static constexpr int BYTES = 98, ELEMS = 256, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g / 8 * BYTES;
        uint32_t q[2], w;
        words<2>(b + 2 + 8 * (g % 8), q);
        words<1>(b + 66 + 4 * (g % 8), &w);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint32_t signs = even_signs(w >> 7 * (k / 2) & 127) >> 4 * (k % 2);
            c[k] = with_signs(levels_3(IQ3_XXS_ROWS[q[k / 4] >> 8 * (k % 4) & 255]), signs);
        }
        wa[0] = grid_scale(half_at(b), w >> 28, 0.5f);
    }
};

// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
#define IQ4_STEPS {0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u}

struct IQ4_NL {
    static constexpr int BYTES = 18, ELEMS = 32, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        constexpr uint32_t table[4] = IQ4_STEPS;
        const uint8_t* b = row + g * BYTES;
        wa[0] = half_at(b);
        lookup(b + 2, table, c);
    }
};

struct IQ4_XS {
    static constexpr int BYTES = 136, ELEMS = 256, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        constexpr uint32_t table[4] = IQ4_STEPS;
        const uint8_t* b = row + g / 8 * BYTES;
        const int i = g % 8;
        const int high = (b[2] | b[3] << 8) >> 2 * i & 3, low = b[4 + i / 2] >> 4 * (i % 2) & 15;
        wa[0] = half_at(b) * static_cast<float>((low | high << 4) - 32);
        lookup(b + 8 + 16 * i, table, c);
    }
};

struct MXFP4 {
    static constexpr int BYTES = 17, ELEMS = 32, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        // 0 1 2 3 4 6 8 12 and their negatives: E2M1 doubled
        constexpr uint32_t table[4] = {0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu};
        const uint8_t* b = row + g * BYTES;
        const uint32_t e = b[0];
        wa[0] = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        lookup(b + 1, table, c);
    }
};

struct PQ2_0 {
    static constexpr int BYTES = 34, ELEMS = 128, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g / 4 * BYTES;
        uint32_t w[2];
        words<2>(b + 2 + 8 * (g % 4), w);
        wa[0] = half_at(b);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint32_t byte = w[k / 4] >> 8 * (k % 4) & 255;
            c[k] = minus((byte | byte << 6 | byte << 12 | byte << 18) & 0x03030303u, 1);
        }
    }
};

// Digit n of a byte in base 3, most significant first, as a code.
__device__ __forceinline__ uint32_t base3_code(uint32_t byte, int n) {
    constexpr uint32_t powers[5] = {1, 3, 9, 27, 81};
    return ((((byte * powers[n] & 255) * 3) >> 8) - 1) & 255;
}

struct PTQ1_0 {
    static constexpr int BYTES = 28, ELEMS = 128, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g / 4 * BYTES;
        wa[0] = half_at(b + 26);
        for (int k = 0; k < 8; k++) {
            uint32_t four = 0;
            for (int j = 0; j < 4; j++) {
                const int e = 32 * (g % 4) + 4 * k + j;
                const uint32_t code = e < 80    ? base3_code(b[e % 16], e / 16)
                                      : e < 120 ? base3_code(b[16 + (e - 80) % 8], (e - 80) / 8)
                                                : base3_code(b[24 + (e - 120) % 2], (e - 120) / 2);
                four |= code << 8 * j;
            }
            c[k] = four;
        }
    }
};

struct TQ1_0 {
    static constexpr int BYTES = 54, ELEMS = 256, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g / 8 * BYTES;
        wa[0] = half_at(b + 52);
        for (int k = 0; k < 8; k++) {
            uint32_t four = 0;
            for (int j = 0; j < 4; j++) {
                const int e = 32 * (g % 8) + 4 * k + j;
                const uint32_t code = e < 160   ? base3_code(b[e % 32], e / 32)
                                      : e < 240 ? base3_code(b[32 + (e - 160) % 16], (e - 160) / 16)
                                                : base3_code(b[48 + (e - 240) % 4], (e - 240) / 4);
                four |= code << 8 * j;
            }
            c[k] = four;
        }
    }
};

struct TQ2_0 {
    static constexpr int BYTES = 66, ELEMS = 256, HALVES = 1;
    static constexpr bool OFFSET = false;
    static __device__ __forceinline__ void group(const uint8_t* row, int g, uint32_t* c, float* wa, float*) {
        const uint8_t* b = row + g / 8 * BYTES;
        const int i = g % 8;
        wa[0] = half_at(b + 64);
        words<8>(b + 32 * (i / 4), c);
#pragma unroll
        for (int k = 0; k < 8; k++) c[k] = minus(c[k] >> 2 * (i % 4) & 0x03030303u, 1);
    }
};

// Every block format, with the name that a symbol ends in.
#define EACH_FORMAT(X)                                                                                            \
    X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q8_0, q8_0) X(Q2_K, q2_k) X(Q3_K, q3_k) X(Q4_K, q4_k) \
    X(Q5_K, q5_k) X(Q6_K, q6_k) X(IQ2_XXS, iq2_xxs) X(IQ2_XS, iq2_xs) X(IQ3_XXS, iq3_xxs) X(IQ4_NL, iq4_nl)         \
    X(IQ4_XS, iq4_xs) X(TQ1_0, tq1_0) X(TQ2_0, tq2_0) X(MXFP4, mxfp4) X(PQ2_0, pq2_0) X(PTQ1_0, ptq1_0)

// ---- the exact integer dot of a group, folded: acc = fma(wa*d, float(isum), acc) per half, then the offsets

template <class F>
__device__ __forceinline__ float fold_group(const uint32_t* c, const float* wa, const float* wb, const uint32_t* q, float d,
                                            int sum0, int sum1, float acc) {
    if constexpr (F::HALVES == 1) {
        int dot = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) dot = __dp4a(static_cast<int>(c[i]), static_cast<int>(q[i]), dot);
        acc = fmaf(wa[0] * d, static_cast<float>(dot), acc);
        if constexpr (F::OFFSET) acc = fmaf(wb[0] * d, static_cast<float>(sum0 + sum1), acc);
    } else {
        int dot0 = 0, dot1 = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            dot0 = __dp4a(static_cast<int>(c[i]), static_cast<int>(q[i]), dot0);
            dot1 = __dp4a(static_cast<int>(c[i + 4]), static_cast<int>(q[i + 4]), dot1);
        }
        acc = fmaf(wa[0] * d, static_cast<float>(dot0), acc);
        acc = fmaf(wa[1] * d, static_cast<float>(dot1), acc);
        if constexpr (F::OFFSET) {
            acc = fmaf(wb[0] * d, static_cast<float>(sum0), acc);
            acc = fmaf(wb[1] * d, static_cast<float>(sum1), acc);
        }
    }
    return acc;
}

// Sum of sixteen codes.
__device__ __forceinline__ int half_sum(const uint32_t* q) {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) sum = __dp4a(static_cast<int>(q[i]), 0x01010101, sum);
    return sum;
}
