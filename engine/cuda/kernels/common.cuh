// What every kernel file shares: programmatic launch edges, copies to shared memory, tensor-core products, reductions.
//
// Law of the edges: a kernel may start while the one before it still runs. Until pdl_wait() it reads weights alone and
// writes nothing; and it always waits, or else the one after it would not have waited for the one before.
//
// Architectures are told apart at 900 alone in headers: build.rs compiles families. A .cu file may ask for single ones.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

constexpr unsigned FULL = 0xFFFFFFFFu;

__device__ __forceinline__ void pdl_trigger() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void pdl_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- copies to shared memory

__device__ __forceinline__ void cp_async16(void* to, const void* from) {
    // .ca: two rows share 128-byte lines where blocks are not whole lines.
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// A warp's own ring of two slots. Hopper and later fill a slot by bulk copies that one lane issues and a barrier counts;
// before Hopper every lane copies 16 bytes at a time. Sources are 16-byte aligned, sizes are multiples of 16.
struct Ring {
    uint8_t* slots;
    uint64_t* barriers;
    uint32_t slot_bytes;
    uint32_t filled;  // parity of the next wait

    static constexpr int SLOTS = 2;

    __device__ __forceinline__ Ring(uint8_t* slots, uint64_t* barriers, uint32_t slot_bytes)
        : slots(slots), barriers(barriers), slot_bytes(slot_bytes), filled(0) {
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x % 32 == 0) {
            for (int s = 0; s < SLOTS; s++)
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + s)) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncwarp();
#endif
    }

    __device__ __forceinline__ const uint8_t* slot(int s) const { return slots + s * slot_bytes; }

    // Announces what the following add() calls will bring in all.
    __device__ __forceinline__ void expect(int s, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x % 32 == 0)
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barriers + s)), "r"(bytes)
                         : "memory");
#endif
    }

    __device__ __forceinline__ void add(int s, uint32_t offset, const uint8_t* from, uint32_t bytes) {
        uint8_t* to = slots + s * slot_bytes + offset;
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x % 32 == 0)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                             shared_address(to)),
                         "l"(from), "r"(bytes), "r"(shared_address(barriers + s))
                         : "memory");
#else
        for (uint32_t i = (threadIdx.x % 32) * 16; i < bytes; i += 512) cp_async16(to + i, from + i);
#endif
    }

    // Ends the add() calls of one slot, of an empty one too.
    __device__ __forceinline__ void commit() {
#if __CUDA_ARCH__ < 900
        cp_async_commit();
#endif
    }

    // Waits for slot s, the oldest of the two.
    __device__ __forceinline__ void wait(int s) {
#if __CUDA_ARCH__ >= 900
        uint32_t done = 0;
        while (!done)
            asm volatile(
                "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                : "=r"(done)
                : "r"(shared_address(barriers + s)), "r"(filled)
                : "memory");
        if (s == SLOTS - 1) filled ^= 1;
#else
        cp_async_wait<SLOTS - 1>();
        __syncwarp();
#endif
    }
};

// ---- tensor cores: int8, exact

// d += A[16x32] B[32x8]; lane = 4 * row + quad holds the words of PTX's fragment layout.
__device__ __forceinline__ void mma_s8_16832(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += A[16x16] B[16x8]: half a group, for formats with a scale for each 16.
__device__ __forceinline__ void mma_s8_16816(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

// ---- reductions, in a fixed order

// x[i] += x[i + step], step WIDTH/2 .. 1, in every run of WIDTH lanes; all of them get the sum.
template <int WIDTH = 32>
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = WIDTH / 2; step; step >>= 1) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

template <int WIDTH = 32>
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int step = WIDTH / 2; step; step >>= 1) x = fmaxf(x, __shfl_xor_sync(FULL, x, step));
    return x;
}

// The warps' sums, added in the order of the warps; every thread of the block calls it and gets it. `scratch`: a float a warp.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0.f;
    for (unsigned w = 0; w < blockDim.x / 32; w++) sum += scratch[w];
    return sum;
}

// ---- activations as int8, in groups of 32 (quant-formats.md 4a): bit for bit cudafast-quant's ActRows

// The scale of a group whose largest magnitude has these bits.
__device__ __forceinline__ float group_scale(unsigned magnitude) { return __fdiv_rn(__uint_as_float(magnitude), 127.f); }

// NaN gives 0, and nothing gives -128.
__device__ __forceinline__ int group_code(float x, float id) {
    return max(-127, min(127, __float2int_rn(__fmul_rn(x, id))));
}

__device__ __forceinline__ float group_inverse(float d) { return d != 0.f ? __fdiv_rn(1.f, d) : 0.f; }

// A value a lane: its code; every lane gets the scale of the warp's 32 values.
__device__ __forceinline__ int quantise_group(float x, float& d) {
    // Magnitudes order as their bits do, NaN above all.
    d = group_scale(__reduce_max_sync(FULL, __float_as_uint(x) & 0x7FFFFFFFu));
    return group_code(x, group_inverse(d));
}
