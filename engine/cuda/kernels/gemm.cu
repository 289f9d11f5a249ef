// Products of many rows: prefill. Int8 tensor cores for block formats, plain f32 for the rest.
//   dense:   out[t][r]      = W[r, :] . x[t, :]
//   experts: out[pair][r]   = W[e][r, :] . x[pair / share, :]   for the pairs of each expert e, gathered from a list
//   (second product of a gated unit: out = silu(out) * product)
//
// Fold order, for every T: groups of 32 ascending, one accumulator: acc = fma(wa*d, float(isum), acc) per half, then
// acc = fma(wb, d*float(asum), acc) per half. A row's bits depend on nothing but itself. Not the order of matvec.cu: prefill
// and decoding may differ (design 3.5).
//
// A block makes 128 outputs of 64 rows: eight warps, each 32 by 32, m16n8k32. Four groups a step: the next step's blocks are
// unpacked into registers while this one's codes are multiplied from shared memory, two buffers, one barrier a step. A row
// of codes takes 144 bytes there, so that fragments meet no bank twice. Dots start from 2^23 + 2^22 in the accumulator, so
// that their bits are floats and no conversion is needed.
// must move: rows * row bytes a 64 rows, from L2 after the first: blocks of one tile of W run side by side.
#include "products.cuh"

constexpr int TILE_OUT = 128, TILE_ROWS = 64, STEP_GROUPS = 4, PITCH = 144;
constexpr int MAGIC = 0x4B400000;  // 12582912 as a float

struct GemmArgs {
    const uint8_t* w;
    const int8_t* q;  // [rows][K]
    const float* d;   // [rows][K/32]
    float* out;       // [rows or pairs][outs]
    int64_t slab_bytes;   // of an expert
    const int* list;      // pairs of each expert, ascending; null if dense
    const int* starts;    // [E + 1] into list
    const uint32_t* tiles;  // expert << 16 | tile of its pairs; tiles[0] counts them
    int rows;
    int outs;
    int groups;
    int row_bytes;
    int share;   // pairs that read one row
    int second;  // out = silu(out) * product
};

struct Stage {
    uint8_t w[TILE_OUT * PITCH];
    uint8_t x[TILE_ROWS * PITCH];
    float wa[2][STEP_GROUPS][TILE_OUT];
    float wb[2][STEP_GROUPS][TILE_OUT];
    float d[STEP_GROUPS][TILE_ROWS];
    float ds[2][STEP_GROUPS][TILE_ROWS];  // d times the sum of the codes, of a half
};

// What a thread brings for a step: two groups of one output's row, one group of one input row.
template <class F>
struct Fetched {
    uint32_t w[16], x[8];
    float wa[4], wb[4], d;

    __device__ __forceinline__ void load(const GemmArgs& a, const uint8_t* row, int64_t x_row, int step) {
        const int g0 = step * STEP_GROUPS + 2 * (threadIdx.x % 2);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (g0 + i < a.groups) {
                F::group(row, g0 + i, w + 8 * i, wa + 2 * i, wb + 2 * i);
            } else {
#pragma unroll
                for (int k = 0; k < 8; k++) w[8 * i + k] = 0;
                wa[2 * i] = wa[2 * i + 1] = wb[2 * i] = wb[2 * i + 1] = 0.f;
            }
        }
        const int g = step * STEP_GROUPS + threadIdx.x % 4;
        if (x_row >= 0 && g < a.groups) {
            const int64_t at = x_row * a.groups + g;
            const uint4* from = reinterpret_cast<const uint4*>(a.q) + 2 * at;
            const uint4 lo = from[0], hi = from[1];
            x[0] = lo.x, x[1] = lo.y, x[2] = lo.z, x[3] = lo.w, x[4] = hi.x, x[5] = hi.y, x[6] = hi.z, x[7] = hi.w;
            d = a.d[at];
        } else {
#pragma unroll
            for (int k = 0; k < 8; k++) x[k] = 0;
            d = 0.f;
        }
    }

    __device__ __forceinline__ void store(Stage& s) const {
        const int out = threadIdx.x / 2, g0 = 2 * (threadIdx.x % 2);
        uint4* to = reinterpret_cast<uint4*>(s.w + out * PITCH + 32 * g0);
#pragma unroll
        for (int i = 0; i < 4; i++) to[i] = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int h = 0; h < F::HALVES; h++) {
                s.wa[h][g0 + i][out] = wa[2 * i + h];
                if constexpr (F::OFFSET) s.wb[h][g0 + i][out] = wb[2 * i + h];
            }
        const int row = threadIdx.x / 4, g = threadIdx.x % 4;
        uint4* at = reinterpret_cast<uint4*>(s.x + row * PITCH + 32 * g);
        at[0] = make_uint4(x[0], x[1], x[2], x[3]);
        at[1] = make_uint4(x[4], x[5], x[6], x[7]);
        s.d[g][row] = d;
        if constexpr (F::OFFSET) {
            const int low = half_sum(x), high = half_sum(x + 4);
            if constexpr (F::HALVES == 1) {
                s.ds[0][g][row] = d * static_cast<float>(low + high);
            } else {
                s.ds[0][g][row] = d * static_cast<float>(low);
                s.ds[1][g][row] = d * static_cast<float>(high);
            }
        }
    }
};

__device__ __forceinline__ float dot_of(int bits) { return __int_as_float(bits) - 12582912.f; }

// One group of a warp's 32 by 32 outputs.
template <class F>
__device__ __forceinline__ void multiply(const Stage& s, int g, int out0, int row0, float (&acc)[2][4][4]) {
    const int lane = threadIdx.x % 32, high = lane / 4, quad = lane % 4;
    uint32_t a[2][4], b[4][2];
    float wa[2][2][2], wb[2][2][2];  // [half][m][low or high output]
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const int out = out0 + 16 * m + high;
        const uint8_t* at = s.w + out * PITCH + 32 * g + 4 * quad;
        a[m][0] = *reinterpret_cast<const uint32_t*>(at);
        a[m][1] = *reinterpret_cast<const uint32_t*>(at + 8 * PITCH);
        a[m][2] = *reinterpret_cast<const uint32_t*>(at + 16);
        a[m][3] = *reinterpret_cast<const uint32_t*>(at + 8 * PITCH + 16);
#pragma unroll
        for (int h = 0; h < F::HALVES; h++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                wa[h][m][e] = s.wa[h][g][out + 8 * e];
                if constexpr (F::OFFSET) wb[h][m][e] = s.wb[h][g][out + 8 * e];
            }
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const uint8_t* at = s.x + (row0 + 8 * n + high) * PITCH + 32 * g + 4 * quad;
        b[n][0] = *reinterpret_cast<const uint32_t*>(at);
        b[n][1] = *reinterpret_cast<const uint32_t*>(at + 16);
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const int row = row0 + 8 * n + 2 * quad;
        const float2 d = *reinterpret_cast<const float2*>(&s.d[g][row]);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            if constexpr (F::HALVES == 1) {
                int dot[4] = {MAGIC, MAGIC, MAGIC, MAGIC};
                mma_s8_16832(dot, a[m], b[n]);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    acc[m][n][e] = fmaf(wa[0][m][e / 2] * (e % 2 ? d.y : d.x), dot_of(dot[e]), acc[m][n][e]);
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int dot[4] = {MAGIC, MAGIC, MAGIC, MAGIC};
                    mma_s8_16816(dot, a[m][2 * h], a[m][2 * h + 1], b[n][h]);
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        acc[m][n][e] = fmaf(wa[h][m][e / 2] * (e % 2 ? d.y : d.x), dot_of(dot[e]), acc[m][n][e]);
                }
            }
            if constexpr (F::OFFSET) {
#pragma unroll
                for (int h = 0; h < F::HALVES; h++) {
                    const float2 ds = *reinterpret_cast<const float2*>(&s.ds[h][g][row]);
#pragma unroll
                    for (int e = 0; e < 4; e++) acc[m][n][e] = fmaf(wb[h][m][e / 2], e % 2 ? ds.y : ds.x, acc[m][n][e]);
                }
            }
        }
    }
}

template <class F>
__device__ __forceinline__ void gemm(const GemmArgs& a) {
    pdl_trigger();
    extern __shared__ __align__(128) uint8_t shared[];
    Stage* stages = reinterpret_cast<Stage*>(shared);
    pdl_wait();
    // Which rows, which outputs. Tiles of one range of outputs are neighbours.
    const uint8_t* w = a.w;
    int first = blockIdx.x * TILE_ROWS, end = a.rows;
    if (a.list) {
        if (blockIdx.x >= a.tiles[0]) return;
        const uint32_t tile = a.tiles[1 + blockIdx.x];
        w += (tile >> 16) * a.slab_bytes;
        first = a.starts[tile >> 16] + (tile & 0xFFFF) * TILE_ROWS;
        end = a.starts[(tile >> 16) + 1];
    }
    const int out_tile = blockIdx.y * TILE_OUT;
    const uint8_t* w_row = w + static_cast<size_t>(min(out_tile + static_cast<int>(threadIdx.x) / 2, a.outs - 1)) * a.row_bytes;
    int64_t x_row = first + static_cast<int>(threadIdx.x) / 4;
    x_row = x_row >= end ? -1 : a.list ? a.list[x_row] / a.share : x_row;

    const int steps = (a.groups + STEP_GROUPS - 1) / STEP_GROUPS, warp = threadIdx.x / 32;
    const int out0 = warp % 4 * 32, row0 = warp / 4 * 32;
    float acc[2][4][4] = {};
    Fetched<F> fetched;
    fetched.load(a, w_row, x_row, 0);
    fetched.store(stages[0]);
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) fetched.load(a, w_row, x_row, step + 1);
#pragma unroll
        for (int g = 0; g < STEP_GROUPS; g++) multiply<F>(stages[step % 2], g, out0, row0, acc);
        // The other buffer was last read before the barrier of the step before.
        if (step + 1 < steps) fetched.store(stages[(step + 1) % 2]);
        __syncthreads();
    }
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const int at = first + row0 + 8 * n + 2 * (lane % 4) + odd;
            if (at >= end) continue;
            float* to = a.out + static_cast<size_t>(a.list ? a.list[at] : at) * a.outs;
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int out = out_tile + out0 + 16 * m + 8 * e + lane / 4;
                    const float v = acc[m][n][2 * e + odd];
                    if (out < a.outs) to[out] = a.second ? silu(to[out]) * v : v;
                }
        }
}

// Two stages twice need 152 KB: a multiprocessor of 100 KB holds one block, and its registers are that block's alone.
#if __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
constexpr int GEMM_BLOCKS = 1;
#else
constexpr int GEMM_BLOCKS = 2;
#endif

#define GEMM(F, name) \
    extern "C" __global__ void __launch_bounds__(256, GEMM_BLOCKS) gemm_##name(const GemmArgs a) { gemm<F>(a); }
EACH_FORMAT(GEMM)

// Weights as floats. 64 outputs of 64 rows a block, four by four a thread, columns ascending by fma. `rows` of x are
// gathered as above.
template <class W>
__device__ __forceinline__ void gemm_float(const GemmArgs& a, const float* x) {
    pdl_trigger();
    constexpr int STEP = 16;
    __shared__ float ws[STEP][68], xs[STEP][68];
    pdl_wait();
    const W* w = reinterpret_cast<const W*>(a.w);
    int first = blockIdx.x * TILE_ROWS, end = a.rows;
    const int cols = a.groups, out_tile = blockIdx.y * 64;
    if (a.list) {
        if (blockIdx.x >= a.tiles[0]) return;
        const uint32_t tile = a.tiles[1 + blockIdx.x];
        w = reinterpret_cast<const W*>(a.w + (tile >> 16) * a.slab_bytes);
        first = a.starts[tile >> 16] + (tile & 0xFFFF) * TILE_ROWS;
        end = a.starts[(tile >> 16) + 1];
    }
    // A thread brings four columns of one output's row and of one input row.
    const int line = threadIdx.x / 4, c4 = 4 * (threadIdx.x % 4);
    const W* w_row = w + static_cast<size_t>(min(out_tile + line, a.outs - 1)) * cols;
    const int at = min(first + line, end - 1);
    const float* x_row = x + static_cast<size_t>(a.list ? a.list[at] / a.share : at) * cols;
    const int o = threadIdx.x % 16 * 4, r = threadIdx.x / 16 * 4;
    float acc[4][4] = {};
    for (int c0 = 0; c0 < cols; c0 += STEP) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int c = c0 + c4 + i;
            ws[c4 + i][line] = c < cols ? widen(w_row[c]) : 0.f;
            xs[c4 + i][line] = c < cols ? x_row[c] : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < STEP; c++) {
            const float4 u = *reinterpret_cast<const float4*>(&ws[c][o]), v = *reinterpret_cast<const float4*>(&xs[c][r]);
            const float us[4] = {u.x, u.y, u.z, u.w}, vs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int k = 0; k < 4; k++) acc[i][k] = fmaf(us[k], vs[i], acc[i][k]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (first + r + i >= end) continue;
        const int row = a.list ? a.list[first + r + i] : first + r + i;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (out_tile + o + k >= a.outs) continue;
            float* to = a.out + static_cast<size_t>(row) * a.outs + out_tile + o + k;
            *to = a.second ? silu(*to) * acc[i][k] : acc[i][k];
        }
    }
}

#define FLOAT(W, name)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) gemm_##name(const GemmArgs a, const float* x) { gemm_float<W>(a, x); }
FLOAT(float, f32)
FLOAT(__half, f16)
FLOAT(__nv_bfloat16, bf16)

// The tiles of 64 pairs of every expert, experts ascending: tiles[0] counts them. One block.
extern "C" __global__ void __launch_bounds__(1024) gemm_tiles(const int* starts, uint32_t* tiles, int experts) {
    pdl_trigger();
    __shared__ uint32_t sums[32];
    __shared__ uint32_t before;
    pdl_wait();
    if (threadIdx.x == 0) before = 0;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int e0 = 0; e0 < experts; e0 += 1024) {
        const int e = e0 + threadIdx.x;
        const uint32_t mine = e < experts ? (starts[e + 1] - starts[e] + TILE_ROWS - 1) / TILE_ROWS : 0;
        uint32_t upto = mine;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const uint32_t other = __shfl_up_sync(FULL, upto, step);
            if (lane >= step) upto += other;
        }
        __syncthreads();
        if (lane == 31) sums[warp] = upto;
        __syncthreads();
        uint32_t at = before + upto - mine;
        for (int i = 0; i < warp; i++) at += sums[i];
        for (uint32_t i = 0; i < mine; i++) tiles[1 + at + i] = static_cast<uint32_t>(e) << 16 | i;
        __syncthreads();
        if (threadIdx.x == 1023) before = at + mine;
        __syncthreads();
    }
    if (threadIdx.x == 0) tiles[0] = before;
}

// out[t][h] = sum_k weights[t][k] * y[t][k][h], k ascending by fma from 0, + sigmoid(shared_gate[t]) * shared[t][h].
extern "C" __global__ void __launch_bounds__(256)
    gemm_combine(const float* y, const float* weights, const float* shared, const float* shared_gate, float* out, int used, int cols,
                 int64_t values) {
    pdl_trigger();
    pdl_wait();
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < values; i += static_cast<int64_t>(gridDim.x) * 256) {
        const int64_t t = i / cols;
        const int c = static_cast<int>(i % cols);
        float sum = 0.f;
        for (int k = 0; k < used; k++) sum = fmaf(weights[t * used + k], y[(t * used + k) * cols + c], sum);
        out[i] = fmaf(sigmoid(shared_gate[t]), shared[i], sum);
    }
}
