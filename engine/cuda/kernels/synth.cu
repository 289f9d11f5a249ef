// Blocks from a counter: the bytes of cudafast-quant's `synth` (its header is the definition), made where they are used.
// A thread a block. must move: the block's bytes, written once.
#include <cstdint>

#include "common.cuh"

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull;
constexpr int FRACTION = 36;

__device__ __forceinline__ uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

struct SynthArgs {
    uint8_t* out;
    uint64_t key;
    int64_t centre;
    uint64_t spread;
    uint64_t first_block;
    uint64_t blocks;
};

__device__ __forceinline__ uint64_t word(const SynthArgs& a, uint64_t n) { return mix(a.key + (n + 1) * GOLDEN); }

// The binary16 towards zero of x * 2^-fraction.
__device__ __forceinline__ uint16_t half_bits(uint64_t x, int fraction) {
    const int zeros = __clzll(x | 1), exponent = 63 - zeros + 15 - fraction;
    if (exponent < 1) return static_cast<uint16_t>(x >> (fraction - 24));
    if (exponent > 30) return 0x7BFF;
    return static_cast<uint16_t>(exponent << 10 | (x << zeros >> 53 & 0x3FF));
}

__device__ __forceinline__ uint32_t single_bits(uint64_t x) {
    if (x == 0) return 0;
    const int zeros = __clzll(x);
    return static_cast<uint32_t>(63 - zeros + 127 - (FRACTION + 23)) << 23 | (x << zeros >> 40 & 0x7FFFFF);
}

// A block being made: its scale, its sign, its payload word by word.
struct Maker {
    const SynthArgs& a;
    uint8_t* out;
    uint64_t first;  // number of its head word
    uint64_t scale;
    uint16_t sign;
    uint64_t held;
    int held_at;

    __device__ __forceinline__ Maker(const SynthArgs& a, uint64_t at, int bytes, int words)
        : a(a), out(a.out + at * bytes), first((a.first_block + at) * words), held_at(-1) {
        const uint64_t w = word(a, first);
        scale = a.spread * (192 + (w & 127)) >> 8;
        sign = static_cast<uint16_t>((w >> 7 & 1) << 15);
    }

    __device__ __forceinline__ uint32_t p(int i) {
        if (i / 8 != held_at) {
            held_at = i / 8;
            held = word(a, first + 1 + held_at);
        }
        return static_cast<uint32_t>(held >> 8 * (i % 8)) & 255;
    }

    __device__ __forceinline__ void u16(int at, uint16_t v) {
        out[at] = static_cast<uint8_t>(v);
        out[at + 1] = static_cast<uint8_t>(v >> 8);
    }
    __device__ __forceinline__ void d(int at, uint64_t factor = 1) { u16(at, half_bits(scale * factor, FRACTION)); }
    __device__ __forceinline__ void signed_d(int at) { u16(at, half_bits(scale, FRACTION) | sign); }
    __device__ __forceinline__ void minus_half(int at, uint64_t factor) {
        u16(at, half_bits(scale * factor, FRACTION + 1) | 0x8000);
    }
    __device__ __forceinline__ void copy(int at, int from, int n) {
        for (int i = 0; i < n; i++) out[at + i] = static_cast<uint8_t>(p(from + i));
    }
    // The first 16 bytes of Q4_K and Q5_K.
    __device__ __forceinline__ void k_head(uint64_t top) {
        d(0);
        d(2, top);
        const uint64_t eight = word(a, first + 1);
        for (int i = 0; i < 4; i++) {
            const uint32_t x = static_cast<uint32_t>(eight >> 8 * i) & 255, y = static_cast<uint32_t>(eight >> 8 * (i + 4)) & 255;
            const uint32_t low = x & 63, high = y & 63;
            const uint32_t low_min = (low + (x >> 6 & 1)) >> 1, high_min = (high + (y >> 6 & 1)) >> 1;
            out[4 + i] = static_cast<uint8_t>(low | high >> 4 << 6);
            out[8 + i] = static_cast<uint8_t>(low_min | high_min >> 4 << 6);
            out[12 + i] = static_cast<uint8_t>((high & 15) | high_min << 4);
        }
    }
    __device__ __forceinline__ void two_bit(int at, int n) {
        for (int i = 0; i < n; i++) {
            const uint32_t c = p(i) * 81 >> 8;
            out[at + i] = static_cast<uint8_t>(c % 3 | c / 3 % 3 << 2 | c / 9 % 3 << 4 | c / 27 << 6);
        }
    }
    __device__ __forceinline__ void base3(int five, int four) {
        for (int i = 0; i < five + four; i++) {
            const uint32_t v = i < five ? p(i) * 243 >> 8 : (p(i) * 81 >> 8) * 3;
            out[i] = static_cast<uint8_t>((v * 256 + 242) / 243);
        }
        d(five + four);
    }
};

#define SYNTH(name, bytes, words, ...)                                                                     \
    extern "C" __global__ void __launch_bounds__(256) synth_##name(const SynthArgs a) {                     \
        pdl_trigger();                                                                                     \
        pdl_wait();                                                                                        \
        const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;                               \
        for (uint64_t at = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < a.blocks; at += step) { \
            Maker m(a, at, bytes, words);                                                                  \
            __VA_ARGS__                                                                                         \
        }                                                                                                  \
    }

SYNTH(q4_0, 18, 3, m.signed_d(0); m.copy(2, 0, 16);)
SYNTH(q4_1, 20, 3, m.d(0); m.minus_half(2, 15); m.copy(4, 0, 16);)
SYNTH(q5_0, 22, 4, m.signed_d(0); m.copy(2, 0, 20);)
SYNTH(q5_1, 24, 4, m.d(0); m.minus_half(2, 31); m.copy(4, 0, 20);)
SYNTH(q8_0, 34, 5, m.d(0); for (int i = 0; i < 32; i++) {
    const uint32_t v = m.p(i);
    m.out[2 + i] = static_cast<uint8_t>(v == 0x80 ? 0 : v);
})
SYNTH(q2_k, 84, 11, for (int i = 0; i < 16; i++) {
    const uint32_t v = m.p(i), c = v & 15;
    m.out[i] = static_cast<uint8_t>(c | (c + (v >> 4 & 1)) >> 1 << 4);
} m.copy(16, 16, 64); m.d(80); m.d(82, 3);)
SYNTH(q3_k, 110, 15, m.copy(0, 0, 108); m.d(108);)
SYNTH(q4_k, 144, 18, m.k_head(15); m.copy(16, 8, 128);)
SYNTH(q5_k, 176, 22, m.k_head(31); m.copy(16, 8, 160);)
SYNTH(q6_k, 210, 27, m.copy(0, 0, 192); for (int i = 0; i < 16; i++) {
    m.out[192 + i] = static_cast<uint8_t>(static_cast<int8_t>(m.p(192 + i)) >> 2);
} m.d(208);)
SYNTH(iq2_xxs, 66, 9, m.d(0); m.copy(2, 0, 64);)
SYNTH(iq2_xs, 74, 10, m.d(0); m.copy(2, 0, 72);)
SYNTH(iq3_xxs, 98, 13, m.d(0); m.copy(2, 0, 96);)
SYNTH(iq4_nl, 18, 3, m.signed_d(0); m.copy(2, 0, 16);)
SYNTH(iq4_xs, 136, 18, m.d(0); m.copy(2, 0, 134);)
SYNTH(tq1_0, 54, 8, m.base3(48, 4);)
SYNTH(tq2_0, 66, 9, m.two_bit(0, 64); m.d(64);)
SYNTH(mxfp4, 17, 3, m.out[0] = static_cast<uint8_t>(63 - __clzll(m.scale | 1) + 128 - FRACTION); m.copy(1, 0, 16);)
SYNTH(pq2_0, 34, 5, m.d(0); m.two_bit(2, 32);)
SYNTH(ptq1_0, 28, 5, m.base3(24, 2);)

// Plain elements: one word each, uniform about the centre.
template <class Store>
__device__ __forceinline__ void elements(const SynthArgs& a, Store store) {
    pdl_trigger();
    pdl_wait();
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t at = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < a.blocks; at += step) {
        const int64_t r = static_cast<int64_t>(word(a, a.first_block + at) >> 40) - (1 << 23);
        // Wraps as the definition does.
        const uint64_t x = (static_cast<uint64_t>(a.centre) << 23) + static_cast<uint64_t>(r) * a.spread;
        const bool negative = x >> 63;
        store(at, negative, negative ? 0 - x : x);
    }
}

extern "C" __global__ void __launch_bounds__(256) synth_f32(const SynthArgs a) {
    elements(a, [&](uint64_t at, bool negative, uint64_t x) {
        reinterpret_cast<uint32_t*>(a.out)[at] = single_bits(x) | static_cast<uint32_t>(negative) << 31;
    });
}
extern "C" __global__ void __launch_bounds__(256) synth_f16(const SynthArgs a) {
    elements(a, [&](uint64_t at, bool negative, uint64_t x) {
        reinterpret_cast<uint16_t*>(a.out)[at] = static_cast<uint16_t>(half_bits(x, FRACTION + 23) | negative << 15);
    });
}
extern "C" __global__ void __launch_bounds__(256) synth_bf16(const SynthArgs a) {
    elements(a, [&](uint64_t at, bool negative, uint64_t x) {
        reinterpret_cast<uint16_t*>(a.out)[at] = static_cast<uint16_t>(single_bits(x) >> 16 | negative << 15);
    });
}
