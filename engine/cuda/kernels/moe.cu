// The routed experts of a few rows (qwen4exp.md 7), in two launches:
//   moe_up:   mid[t,k,f]  = silu(gate[e] x[t]) * (up[e] x[t]),   e = ids[t][k]
//   moe_down: out[t,h]    = sum_k w[t][k] * (down[e] mid[t,k])   k ascending, by fma from 0
//                           + sigmoid(shared_gate[t]) * shared[t,h]
// Every product has the fold order of matvec.cu, so a row's bits do not depend on the rows beside it.
//
// moe_*_ring_*: a block owns a contiguous range of row groups, so that it touches few (row, expert) pairs; a warp brings
//   its rows through a ring of two slots by bulk copies. gate and up rows share a slot. moe_down quantises the rows of mid
//   that its block needs itself. moe_up lets the next launch start only after its own wait: its ids then are safe to read
//   for a moe_down right behind it (`early`), which brings its first weights while moe_up still runs.
// moe_*_any_*: the same bits from global memory, for every format and any shape.
// must move: moe_up T * K * FF * 2 rows, moe_down T * K * H rows; 18.4 and 12.3 MB at T = 1 of the shipped model.
#include "products.cuh"

struct UpArgs {
    const uint8_t* gate;
    const uint8_t* up;
    const int* ids;  // [T][K]; the router is their only writer, and writes numbers of experts
    const int8_t* q;
    const float* d;
    float* mid;
    int t;
    int used;  // K
    int rows;  // FF
    int groups;
    int row_bytes;
    int partials;
    int slot_bytes;
};

template <class F>
__device__ __forceinline__ void moe_up_ring(const UpArgs& a) {
    extern __shared__ __align__(128) uint8_t shared[];
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint8_t* act = shared + Ring::SLOTS * warps * a.slot_bytes;
    const int act_stride = a.groups / 2 * PAIR_BYTES;
    uint64_t* barriers = reinterpret_cast<uint64_t*>(act + a.t * act_stride);
    Ring ring(shared + Ring::SLOTS * warp * a.slot_bytes, barriers + Ring::SLOTS * warp, a.slot_bytes);
    pdl_wait();
    pdl_trigger();

    // A slot: as many rows of gate as of up.
    const int p = 1 << a.partials, half_rows = 16 >> a.partials;
    const int a_pair = a.rows / half_rows;
    const int64_t units = static_cast<int64_t>(a.t) * a.used * a_pair;
    const int first = static_cast<int>(units * blockIdx.x / gridDim.x);
    const int end = static_cast<int>(units * (blockIdx.x + 1) / gridDim.x);
    const uint32_t half_bytes = half_rows * a.row_bytes;
    auto issue = [&](int unit, int s) {
        if (unit < end) {
            const size_t row = static_cast<size_t>(a.ids[unit / a_pair]) * a.rows + unit % a_pair * half_rows;
            ring.expect(s, 2 * half_bytes);
            ring.add(s, 0, a.gate + row * a.row_bytes, half_bytes);
            ring.add(s, half_bytes, a.up + row * a.row_bytes, half_bytes);
        }
        ring.commit();
    };
    issue(first + warp, 0);
    issue(first + warp + warps, 1);
    stage_activations(a.q, a.d, a.t, a.groups, act);
    __syncthreads();

    const int j = lane & (p - 1), local = lane >> a.partials, pairs = a.groups / 2;
    int s = 0;
    for (int unit = first + warp; unit < end; unit += warps) {
        ring.wait(s);
        const int pair = unit / a_pair;
        const uint8_t* row = ring.slot(s) + local * a.row_bytes;
        const uint8_t* x = act + pair / a.used * act_stride;
        float acc[1] = {0.f};
        if (pairs == 5 * p) {
#pragma unroll
            for (int i = 0; i < 5; i++) fold_pair<F, 1>(row, j + i * p, x, 0, acc);
        } else {
            for (int i = j; i < pairs; i += p) fold_pair<F, 1>(row, i, x, 0, acc);
        }
        __syncwarp();
        issue(unit + Ring::SLOTS * warps, s);
        s ^= 1;
        for (int half = p / 2; half; half >>= 1) acc[0] += __shfl_xor_sync(FULL, acc[0], half);
        const float up = __shfl_xor_sync(FULL, acc[0], 16);
        if (lane < 16 && j == 0) a.mid[static_cast<size_t>(pair) * a.rows + unit % a_pair * half_rows + local] = silu(acc[0]) * up;
    }
}

struct DownArgs {
    const uint8_t* down;
    const int* ids;        // [T][K]
    const float* weights;  // [T][K]
    const float* mid;      // [T][K][FF]
    const float* shared;       // [T][H]
    const float* shared_gate;  // [T], before the sigmoid
    float* out;                // [T][H]
    int t;
    int used;
    int rows;  // H
    int groups;
    int row_bytes;
    int partials;
    int ranks;  // experts of a slot; divides `used`
    int slot_bytes;
    int early;
};

// Rows of mid as the inner loop reads them: eight lanes a group, as util_quantise_rows does it.
__device__ __forceinline__ void stage_quantised(const float* mid, int groups, uint8_t* to) {
    const int lane = threadIdx.x % 8;
    const int whole = (groups + 3) / 4 * 4;  // whole warps take part in the shuffles
    for (int g = threadIdx.x / 8; g < whole; g += blockDim.x / 8) {
        const int at = min(g, groups - 1);
        const float4 x = *reinterpret_cast<const float4*>(mid + 32 * static_cast<size_t>(at) + 4 * lane);
        const float v[4] = {x.x, x.y, x.z, x.w};
        uint32_t magnitude = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) magnitude = max(magnitude, __float_as_uint(v[i]) & 0x7FFFFFFFu);
#pragma unroll
        for (int step = 4; step; step >>= 1) magnitude = max(magnitude, __shfl_xor_sync(FULL, magnitude, step));
        const float d = group_scale(magnitude), id = group_inverse(d);
        uint32_t codes = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) codes |= static_cast<uint32_t>(group_code(v[i], id) & 255) << 8 * i;
        int sum = __dp4a(static_cast<int>(codes), 0x01010101, 0);
        sum += __shfl_xor_sync(FULL, sum, 2);
        sum += __shfl_xor_sync(FULL, sum, 1);
        const int other = __shfl_xor_sync(FULL, sum, 4);
        if (g < groups) {
            uint32_t* pair = reinterpret_cast<uint32_t*>(to + g / 2 * PAIR_BYTES);
            pair[8 * (g % 2) + lane] = codes;
            if (lane == 0) {
                pair[16 + g % 2] = __float_as_uint(d);
                pair[18 + g % 2] = (sum & 0xFFFF) | static_cast<uint32_t>(other) << 16;
            }
        }
    }
}

__device__ __forceinline__ float with_shared(const DownArgs& a, float y, int t, int r) {
    const size_t at = static_cast<size_t>(t) * a.rows + r;
    return a.shared ? fmaf(sigmoid(a.shared_gate[t]), a.shared[at], y) : y;
}

template <class F>
__device__ __forceinline__ void moe_down_ring(const DownArgs& a) {
    pdl_trigger();
    extern __shared__ __align__(128) uint8_t shared[];
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint64_t* barriers = reinterpret_cast<uint64_t*>(shared + Ring::SLOTS * warps * a.slot_bytes);
    uint8_t* act = reinterpret_cast<uint8_t*>(barriers + Ring::SLOTS * warps);
    Ring ring(shared + Ring::SLOTS * warp * a.slot_bytes, barriers + Ring::SLOTS * warp, a.slot_bytes);

    const int p = 1 << a.partials, group_rows = 32 >> a.partials;
    const int a_row = a.rows / group_rows;  // row groups of a row of the input
    const int64_t units = static_cast<int64_t>(a.t) * a_row;
    const int first = static_cast<int>(units * blockIdx.x / gridDim.x);
    const int end = static_cast<int>(units * (blockIdx.x + 1) / gridDim.x);
    const int steps = a.used / a.ranks;  // of a unit
    const uint32_t panel = group_rows * a.row_bytes;
    auto issue = [&](int step) {
        const int unit = first + warp + step / steps * warps, s = step % Ring::SLOTS;
        if (unit < end) {
            ring.expect(s, a.ranks * panel);
            for (int k = 0; k < a.ranks; k++) {
                const int expert = a.ids[unit / a_row * a.used + step % steps * a.ranks + k];
                const size_t row = static_cast<size_t>(expert) * a.rows + unit % a_row * group_rows;
                ring.add(s, k * panel, a.down + row * a.row_bytes, panel);
            }
        }
        ring.commit();
    };
    if (!a.early) pdl_wait();
    issue(0);
    issue(1);
    if (a.early) pdl_wait();
    const int t0 = first / a_row, tokens = first < end ? (end - 1) / a_row - t0 + 1 : 0;
    const int act_stride = a.groups / 2 * PAIR_BYTES;
    if (tokens)
        stage_quantised(a.mid + static_cast<size_t>(t0) * a.used * a.groups * 32, tokens * a.used * a.groups, act);
    __syncthreads();

    const int j = lane & (p - 1), local = lane >> a.partials, pairs = a.groups / 2;
    float y = 0.f;
    for (int step = 0;; step++) {
        const int unit = first + warp + step / steps * warps, s = step % Ring::SLOTS;
        if (unit >= end) break;
        ring.wait(s);
        const int t = unit / a_row, rank0 = step % steps * a.ranks;
        const uint8_t* x = act + ((t - t0) * a.used + rank0) * act_stride;
        const uint8_t* row = ring.slot(s) + local * a.row_bytes;
        if (rank0 == 0) y = 0.f;
        for (int k = 0; k < a.ranks; k++) {
            float acc[1] = {0.f};
            for (int i = j; i < pairs; i += p) fold_pair<F, 1>(row + k * panel, i, x + k * act_stride, 0, acc);
            __syncwarp();
            for (int half = p / 2; half; half >>= 1) acc[0] += __shfl_xor_sync(FULL, acc[0], half);
            y = fmaf(a.weights[t * a.used + rank0 + k], acc[0], y);
        }
        issue(step + Ring::SLOTS);
        if (rank0 + a.ranks == a.used && j == 0) {
            const int r = unit % a_row * group_rows + local;
            a.out[static_cast<size_t>(t) * a.rows + r] = with_shared(a, y, t, r);
        }
    }
}

// The dot of a row in global memory with one int8 row, from the lanes of a partial each; every one of them gets it.
template <class F>
__device__ __forceinline__ float any_dot(const uint8_t* row, const int8_t* q, const float* d, int groups, int partials) {
    const int p = 1 << partials, j = threadIdx.x & (p - 1);
    float total = 0.f;
    for (int chunk = 0; chunk < groups; chunk += CHUNK_GROUPS) {
        const int end = min(groups, chunk + CHUNK_GROUPS);
        float acc = 0.f;
        for (int pair = chunk + 2 * j; pair < end; pair += 2 * p)
            for (int g = pair; g < min(pair + 2, end); g++) {
                uint32_t c[8];
                float wa[2], wb[2];
                F::group(row, g, c, wa, wb);
                const uint4* from = reinterpret_cast<const uint4*>(q) + 2 * static_cast<size_t>(g);
                const uint4 lo = from[0], hi = from[1];
                const uint32_t codes[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
                acc = fold_group<F>(c, wa, wb, codes, d[g], half_sum(codes), half_sum(codes + 4), acc);
            }
        for (int half = p / 2; half; half >>= 1) acc += __shfl_xor_sync(FULL, acc, half);
        total = chunk ? total + acc : acc;
    }
    return total;
}

// One of the two products of moe_up: `mid` gets gate's, then is silu of it times up's. blockIdx.y is the pair.
template <class F>
__device__ __forceinline__ void moe_up_any(const UpArgs& a, bool second) {
    pdl_trigger();
    pdl_wait();
    const int pair = blockIdx.y, t = pair / a.used;
    const int r = (blockIdx.x * 4 + threadIdx.x / 32) * (32 >> a.partials) + (threadIdx.x % 32 >> a.partials);
    const size_t row = static_cast<size_t>(a.ids[pair]) * a.rows + min(r, a.rows - 1);
    const float dot = any_dot<F>((second ? a.up : a.gate) + row * a.row_bytes, a.q + static_cast<size_t>(t) * a.groups * 32,
                                 a.d + static_cast<size_t>(t) * a.groups, a.groups, a.partials);
    if (r < a.rows && (threadIdx.x & ((1 << a.partials) - 1)) == 0) {
        float* to = a.mid + static_cast<size_t>(pair) * a.rows + r;
        *to = second ? silu(*to) * dot : dot;
    }
}

// blockIdx.y is the row of the input; q and d are mid's.
template <class F>
__device__ __forceinline__ void moe_down_any(const DownArgs& a, const int8_t* q, const float* d) {
    pdl_trigger();
    pdl_wait();
    const int t = blockIdx.y;
    const int r = (blockIdx.x * 4 + threadIdx.x / 32) * (32 >> a.partials) + (threadIdx.x % 32 >> a.partials);
    float y = 0.f;
    for (int k = 0; k < a.used; k++) {
        const int pair = t * a.used + k;
        const size_t row = static_cast<size_t>(a.ids[pair]) * a.rows + min(r, a.rows - 1);
        const float dot = any_dot<F>(a.down + row * a.row_bytes, q + static_cast<size_t>(pair) * a.groups * 32,
                                     d + static_cast<size_t>(pair) * a.groups, a.groups, a.partials);
        y = fmaf(a.weights[pair], dot, y);
    }
    if (r < a.rows && (threadIdx.x & ((1 << a.partials) - 1)) == 0)
        a.out[static_cast<size_t>(t) * a.rows + r] = with_shared(a, y, t, r);
}

// The dot of a row of floats with f32s, in the order of matvec_float_*, from a warp; every lane gets it.
template <class W>
__device__ __forceinline__ float float_dot(const W* row, const float* x, int cols) {
    const int lane = threadIdx.x % 32;
    const bool whole = cols % 4 == 0;
    float total = 0.f;
    for (int first = 0; first < cols; first += CHUNK_COLUMNS) {
        const int end = min(cols, first + CHUNK_COLUMNS);
        float acc = 0.f;
        for (int c = first + 4 * lane; c < end; c += 128) {
            float w[4], v[4];
            four_weights(row, c, cols, whole, w);
            four_weights(x, c, cols, whole, v);
#pragma unroll
            for (int e = 0; e < 4; e++) acc = fmaf(w[e], v[e], acc);
        }
        acc = warp_sum(acc);
        total = first ? total + acc : acc;
    }
    return total;
}

// As the *_any kernels, for experts of floats: `groups` counts columns, `x` and mid are f32 rows. A warp a row.
template <class W>
__device__ __forceinline__ void moe_up_float(const UpArgs& a, const float* x, bool second) {
    pdl_trigger();
    pdl_wait();
    const int pair = blockIdx.y, r = blockIdx.x * 4 + threadIdx.x / 32;
    if (r >= a.rows) return;
    const size_t row = static_cast<size_t>(a.ids[pair]) * a.rows + r;
    const W* w = reinterpret_cast<const W*>(second ? a.up : a.gate) + row * a.groups;
    const float dot = float_dot(w, x + static_cast<size_t>(pair / a.used) * a.groups, a.groups);
    float* to = a.mid + static_cast<size_t>(pair) * a.rows + r;
    if (threadIdx.x % 32 == 0) *to = second ? silu(*to) * dot : dot;
}

template <class W>
__device__ __forceinline__ void moe_down_float(const DownArgs& a) {
    pdl_trigger();
    pdl_wait();
    const int t = blockIdx.y, r = blockIdx.x * 4 + threadIdx.x / 32;
    if (r >= a.rows) return;
    float y = 0.f;
    for (int k = 0; k < a.used; k++) {
        const int pair = t * a.used + k;
        const size_t row = static_cast<size_t>(a.ids[pair]) * a.rows + r;
        const W* w = reinterpret_cast<const W*>(a.down) + row * a.groups;
        y = fmaf(a.weights[pair], float_dot(w, a.mid + static_cast<size_t>(pair) * a.groups, a.groups), y);
    }
    if (threadIdx.x % 32 == 0) a.out[static_cast<size_t>(t) * a.rows + r] = with_shared(a, y, t, r);
}

// mid = silu(gate) * up of the shared expert, and its int8 rows if asked for. A warp a group of 32.
extern "C" __global__ void __launch_bounds__(256)
    moe_swiglu(const float* gate, const float* up, float* mid, int8_t* q, float* d, int64_t groups) {
    pdl_trigger();
    pdl_wait();
    const int lane = threadIdx.x % 32;
    for (int64_t g = blockIdx.x * 8 + threadIdx.x / 32; g < groups; g += gridDim.x * 8) {
        const float v = silu(gate[32 * g + lane]) * up[32 * g + lane];
        mid[32 * g + lane] = v;
        if (q) {
            float scale;
            q[32 * g + lane] = static_cast<int8_t>(quantise_group(v, scale));
            if (lane == 0) d[g] = scale;
        }
    }
}

#define UP(F, name) \
    extern "C" __global__ void __launch_bounds__(256, 1) moe_up_ring_##name(const UpArgs a) { moe_up_ring<F>(a); }
#define DOWN(F, name) \
    extern "C" __global__ void __launch_bounds__(256, 1) moe_down_ring_##name(const DownArgs a) { moe_down_ring<F>(a); }
UP(Q4_K, q4_k)
UP(Q5_K, q5_k)
UP(Q8_0, q8_0)
UP(PQ2_0, pq2_0)
DOWN(Q5_1, q5_1)
DOWN(Q8_0, q8_0)

#define ANY(F, name)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(128, 4) moe_up_any_##name(const UpArgs a, int second) {                  \
        moe_up_any<F>(a, second);                                                                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128, 4) moe_down_any_##name(const DownArgs a, const int8_t* q, const float* d) { \
        moe_down_any<F>(a, q, d);                                                                                      \
    }
EACH_FORMAT(ANY)

#define FLOAT(W, name)                                                                                                \
    extern "C" __global__ void __launch_bounds__(128) moe_up_float_##name(const UpArgs a, const float* x, int second) { \
        moe_up_float<W>(a, x, second);                                                                                \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(128) moe_down_float_##name(const DownArgs a) { moe_down_float<W>(a); }
FLOAT(float, f32)
FLOAT(__half, f16)
FLOAT(__nv_bfloat16, bf16)
