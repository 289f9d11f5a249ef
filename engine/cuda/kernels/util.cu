// Rows in and out: activations to int8, rows of a matrix by id, the largest logit, the fault of a drill.
#include "formats.cuh"

// q[t][c], d[t][c/32] of x[t][c]      quant-formats.md 4a. A warp a group of 32.
// must move: 4 B in, 1.125 B out a value.
extern "C" __global__ void __launch_bounds__(256) util_quantise_rows(const float* x, int8_t* q, float* d, int64_t groups) {
    pdl_trigger();
    pdl_wait();
    const int lane = threadIdx.x % 32;
    for (int64_t g = blockIdx.x * 8 + threadIdx.x / 32; g < groups; g += gridDim.x * 8) {
        float scale;
        q[32 * g + lane] = static_cast<int8_t>(quantise_group(x[32 * g + lane], scale));
        if (lane == 0) d[g] = scale;
    }
}

// out[t][copy][c] = table[ids[t]][c], every value as the format defines it: f32(f32(wa*code) + wb), no fused add.
// The token's row once a residual stream (qwen4exp.md 3), or the rows of an n-gram. An id past the table gives NaN.
struct RowsArgs {
    const uint8_t* table;
    const uint32_t* ids32;  // one of the two
    const uint64_t* ids64;
    float* out;
    uint64_t table_rows;
    int ids;
    int cols;
    int row_bytes;
    int copies;
};

__device__ __forceinline__ uint64_t row_id(const RowsArgs& a, int t) { return a.ids32 ? a.ids32[t] : a.ids64[t]; }

// A thread a group of 32.
template <class F>
__device__ __forceinline__ void rows(const RowsArgs& a) {
    pdl_trigger();
    pdl_wait();
    const int groups = a.cols / 32, at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= a.ids * groups) return;
    const int t = at / groups, g = at % groups;
    const uint64_t id = row_id(a, t);
    const bool known = id < a.table_rows;
    uint32_t c[8];
    float wa[2], wb[2];
    F::group(a.table + (known ? id : 0) * a.row_bytes, g, c, wa, wb);
    for (int copy = 0; copy < a.copies; copy++) {
        float* to = a.out + (static_cast<size_t>(t) * a.copies + copy) * a.cols + 32 * g;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int half = F::HALVES == 2 ? i / 16 : 0;
            const float code = static_cast<float>(static_cast<int8_t>(c[i / 4] >> 8 * (i % 4)));
            const float p = __fmul_rn(wa[half], code);
            const float value = F::OFFSET ? __fadd_rn(p, wb[half]) : p;
            to[i] = known ? value : __int_as_float(0x7FC00000);
        }
    }
}

template <class W>
__device__ __forceinline__ void float_rows(const RowsArgs& a) {
    pdl_trigger();
    pdl_wait();
    const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= static_cast<int64_t>(a.ids) * a.cols) return;
    const int t = at / a.cols, c = at % a.cols;
    const uint64_t id = row_id(a, t);
    const float value = id < a.table_rows ? widen(reinterpret_cast<const W*>(a.table + id * a.row_bytes)[c])
                                          : __int_as_float(0x7FC00000);
    for (int copy = 0; copy < a.copies; copy++) a.out[(static_cast<size_t>(t) * a.copies + copy) * a.cols + c] = value;
}

#define ROWS(F, name) \
    extern "C" __global__ void __launch_bounds__(128, 1) util_rows_##name(const RowsArgs a) { rows<F>(a); }
EACH_FORMAT(ROWS)
extern "C" __global__ void __launch_bounds__(128) util_rows_f32(const RowsArgs a) { float_rows<float>(a); }
extern "C" __global__ void __launch_bounds__(128) util_rows_f16(const RowsArgs a) { float_rows<__half>(a); }
extern "C" __global__ void __launch_bounds__(128) util_rows_bf16(const RowsArgs a) { float_rows<__nv_bfloat16>(a); }

// id[t] = the lowest id of the largest x[t, :]; a row with a NaN gives `cols`, which is no id.
// keys[t][block] holds the best of a slice. Two launches: slices, then their best.
constexpr uint64_t NAN_KEY = ~0ull;

// Larger for the larger value, then for the lower id; -0 and 0 are one value.
__device__ __forceinline__ uint64_t argmax_key(float x, uint32_t id) {
    if (x != x) return NAN_KEY;
    uint32_t bits = __float_as_uint(x + 0.f);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return static_cast<uint64_t>(bits) << 32 | (0xFFFFFFFEu - id);
}

__device__ __forceinline__ uint64_t block_best(uint64_t best) {
    __shared__ uint64_t warps[8];
#pragma unroll
    for (int step = 16; step; step >>= 1) best = max(best, __shfl_xor_sync(FULL, best, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    best = warps[0];
#pragma unroll
    for (int w = 1; w < 8; w++) best = max(best, warps[w]);
    return best;
}

extern "C" __global__ void __launch_bounds__(256) util_argmax_slices(const float* x, uint64_t* keys, int cols) {
    pdl_trigger();
    pdl_wait();
    const float* row = x + static_cast<size_t>(blockIdx.y) * cols;
    uint64_t best = 0;
    for (int c = blockIdx.x * 256 + threadIdx.x; c < cols; c += gridDim.x * 256) best = max(best, argmax_key(row[c], c));
    best = block_best(best);
    if (threadIdx.x == 0) keys[blockIdx.y * gridDim.x + blockIdx.x] = best;
}

extern "C" __global__ void __launch_bounds__(256) util_argmax(const uint64_t* keys, uint32_t* id, int slices, int cols) {
    pdl_trigger();
    pdl_wait();
    uint64_t best = 0;
    for (int i = threadIdx.x; i < slices; i += 256) best = max(best, keys[blockIdx.x * slices + i]);
    best = block_best(best);
    if (threadIdx.x == 0) id[blockIdx.x] = best == NAN_KEY ? cols : 0xFFFFFFFEu - static_cast<uint32_t>(best);
}

// Ends the context, as a real fault would: for the drill that shows what a caller then sees.
extern "C" __global__ void util_fault() {
    pdl_wait();
    __trap();
}
