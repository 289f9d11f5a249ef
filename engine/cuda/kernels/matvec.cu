// y[t][r] = W[r, :] . x[t, :]     products of a few rows with matrices as shipped (qwen4exp.md 3 to 7)
//
// FOLD ORDER of every integer product with few rows, the same for every width, tile and kernel (other files cite it):
//   a row of K is cut into chunks of 2560 (the last may be shorter), a chunk into groups of 32, groups into pairs.
//   P = min(8, largest power of two <= pairs of the first chunk). In a chunk partial j takes pairs j, j+P, j+2P, ..
//   ascending; per group (or half): acc = fma(wa*d, float(isum), acc), then acc = fma(wb*d, float(asum), acc).
//   The partials meet as x[i] += x[i+step], step P/2 .. 1; the chunks are added ascending, from the first one's sum.
//
// matvec_ring_*: rows come to shared memory by bulk copies, before the wait of the programmatic edge: weights depend on
//   nothing. A warp owns a ring of two slots; a slot is some groups of 32/P rows (one chunk of them, if there are more).
//   `split`: a warp takes one chunk of a row group and the block adds them, for matrices of few, long rows.
// matvec_any_*: the same bits from global memory, for every format and any shape.
// matvec_float_*: F32, F16, BF16 weights and f32 rows. Chunks of 2560 columns, one a warp: lane L folds columns
//   4L .. 4L+3, 4L+128 .., ascending by fma; butterfly 16 .. 1; chunks ascending.
// must move: rows * row bytes, once for all T <= R rows.
#include "products.cuh"

constexpr int MATRICES = 6;

// One launch, several matrices of one format and one width: `first` counts units of work before each.
struct RingArgs {
    const uint8_t* w[MATRICES];
    float* out[MATRICES];
    int rows[MATRICES];
    int first[MATRICES + 1];
    const int8_t* q;
    const float* d;
    int matrices;
    int t;
    int groups;      // of a row
    int row_bytes;
    int partials;    // log2 of P
    int row_groups;  // of a slot; more than one only if a row is one chunk
    int split;
    int slot_bytes;
};

template <class F, int R>
__device__ __forceinline__ void matvec_ring(const RingArgs& a) {
    pdl_trigger();
    extern __shared__ __align__(128) uint8_t shared[];
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint8_t* act = shared + Ring::SLOTS * warps * a.slot_bytes;
    const int act_stride = a.groups / 2 * PAIR_BYTES;
    float* sums = reinterpret_cast<float*>(act + R * act_stride);
    uint64_t* barriers = reinterpret_cast<uint64_t*>(sums + (a.split ? warps * 32 * R : 0));
    Ring ring(shared + Ring::SLOTS * warp * a.slot_bytes, barriers + Ring::SLOTS * warp, a.slot_bytes);

    const int p = 1 << a.partials, group_rows = 32 >> a.partials;
    const int chunks = (a.groups + CHUNK_GROUPS - 1) / CHUNK_GROUPS;
    const int chunk_bytes = chunks == 1 ? a.row_bytes : CHUNK_GROUPS / (F::ELEMS / 32) * F::BYTES;
    const int units = a.first[a.matrices];
    const int unit0 = a.split ? blockIdx.x : blockIdx.x + gridDim.x * warp;
    const int unit_step = a.split ? gridDim.x : gridDim.x * warps;
    const int steps_a_unit = a.split ? 1 : chunks;

    auto matrix_of = [&](int unit) {
        int m = 0;
        while (unit >= a.first[m + 1]) m++;
        return m;
    };
    auto issue = [&](int step) {
        const int unit = unit0 + step / steps_a_unit * unit_step, s = step % Ring::SLOTS;
        const int chunk = a.split ? warp : step % steps_a_unit;
        if (unit < units && chunk < chunks) {
            const int m = matrix_of(unit);
            const int row = (unit - a.first[m]) * a.row_groups * group_rows;
            const int rows = min(a.row_groups * group_rows, a.rows[m] - row);
            const uint8_t* from = a.w[m] + static_cast<size_t>(row) * a.row_bytes;
            if (chunks == 1) {
                ring.expect(s, rows * a.row_bytes);
                ring.add(s, 0, from, rows * a.row_bytes);
            } else {
                const int bytes = min(chunk_bytes, a.row_bytes - chunk * chunk_bytes);
                ring.expect(s, rows * bytes);
                for (int r = 0; r < rows; r++)
                    ring.add(s, r * chunk_bytes, from + static_cast<size_t>(r) * a.row_bytes + chunk * chunk_bytes, bytes);
            }
        }
        ring.commit();
    };
    issue(0);
    issue(1);
    pdl_wait();
    stage_activations(a.q, a.d, a.t, a.groups, act);
    // Rows of the tile that do not exist: any finite numbers will do, nothing of them is stored.
    for (int i = threadIdx.x; i < (R - a.t) * act_stride / 16; i += blockDim.x)
        reinterpret_cast<uint4*>(act + a.t * act_stride)[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();

    const int j = lane & (p - 1), local = lane >> a.partials;
    float total[R];
    for (int step = 0;; step++) {
        const int unit = unit0 + step / steps_a_unit * unit_step, s = step % Ring::SLOTS;
        if (unit >= units) break;
        const int chunk = a.split ? warp : step % steps_a_unit;
        const int m = matrix_of(unit);
        const bool mine = chunk < chunks;
        if (mine) ring.wait(s);
        const int pairs = mine ? min(CHUNK_GROUPS, a.groups - chunk * CHUNK_GROUPS) / 2 : 0;
        const uint8_t* chunk_act = act + chunk * (CHUNK_GROUPS / 2) * PAIR_BYTES;
        for (int rg = 0; rg < a.row_groups; rg++) {
            const uint8_t* row = ring.slot(s) + (rg * group_rows + local) * chunk_bytes;
            float acc[R];
#pragma unroll
            for (int t = 0; t < R; t++) acc[t] = 0.f;
            if (pairs == 5 * p) {
#pragma unroll
                for (int i = 0; i < 5; i++) fold_pair<F, R>(row, j + i * p, chunk_act, act_stride, acc);
            } else {
                for (int i = j; i < pairs; i += p) fold_pair<F, R>(row, i, chunk_act, act_stride, acc);
            }
            __syncwarp();
#pragma unroll
            for (int t = 0; t < R; t++) {
                for (int half = p / 2; half; half >>= 1) acc[t] += __shfl_xor_sync(FULL, acc[t], half);
                total[t] = !a.split && chunk ? total[t] + acc[t] : acc[t];
            }
            if (a.split) {
                if (mine && j == 0)
                    for (int t = 0; t < R; t++) sums[(chunk * 32 + local) * R + t] = acc[t];
            } else if (chunk == chunks - 1) {
                const int r = ((unit - a.first[m]) * a.row_groups + rg) * group_rows + local;
                if (r < a.rows[m])
#pragma unroll
                    for (int t = 0; t < R; t++)
                        if (t % p == j && t < a.t) a.out[m][static_cast<size_t>(t) * a.rows[m] + r] = total[t];
            }
        }
        issue(step + Ring::SLOTS);
        if (a.split) {
            __syncthreads();
            for (int i = threadIdx.x; i < group_rows * R; i += blockDim.x) {
                const int t = i % R, r = (unit - a.first[m]) * group_rows + i / R;
                float sum = sums[i];
                for (int c = 1; c < chunks; c++) sum += sums[c * 32 * R + i];
                if (t < a.t && r < a.rows[m]) a.out[m][static_cast<size_t>(t) * a.rows[m] + r] = sum;
            }
            __syncthreads();
        }
    }
}

struct AnyArgs {
    const uint8_t* w;
    float* out;
    const int8_t* q;
    const float* d;
    int rows;
    int t;
    int groups;
    int row_bytes;
    int partials;
};

template <class F>
__device__ __forceinline__ void matvec_any(const AnyArgs& a) {
    pdl_trigger();
    pdl_wait();
    constexpr int R = 4;
    const int lane = threadIdx.x % 32, p = 1 << a.partials, j = lane & (p - 1);
    const int warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int r = warp * (32 >> a.partials) + (lane >> a.partials);
    // Lanes past the last row fold it again: shuffles below need the whole warp.
    const uint8_t* row = a.w + static_cast<size_t>(min(r, a.rows - 1)) * a.row_bytes;
    for (int t0 = 0; t0 < a.t; t0 += R) {
        float total[R];
        for (int chunk = 0; chunk < a.groups; chunk += CHUNK_GROUPS) {
            const int end = min(a.groups, chunk + CHUNK_GROUPS);
            float acc[R];
#pragma unroll
            for (int t = 0; t < R; t++) acc[t] = 0.f;
            for (int pair = chunk + 2 * j; pair < end; pair += 2 * p) {
                for (int g = pair; g < min(pair + 2, end); g++) {
                    uint32_t c[8];
                    float wa[2], wb[2];
                    F::group(row, g, c, wa, wb);
#pragma unroll
                    for (int t = 0; t < R; t++) {
                        if (t0 + t >= a.t) break;
                        const size_t at = static_cast<size_t>(t0 + t) * a.groups + g;
                        const uint4* from = reinterpret_cast<const uint4*>(a.q) + 2 * at;
                        const uint4 lo = from[0], hi = from[1];
                        const uint32_t q[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
                        acc[t] = fold_group<F>(c, wa, wb, q, a.d[at], half_sum(q), half_sum(q + 4), acc[t]);
                    }
                }
            }
#pragma unroll
            for (int t = 0; t < R; t++) {
                for (int half = p / 2; half; half >>= 1) acc[t] += __shfl_xor_sync(FULL, acc[t], half);
                total[t] = chunk ? total[t] + acc[t] : acc[t];
            }
        }
#pragma unroll
        for (int t = 0; t < R; t++)
            if (j == 0 && r < a.rows && t0 + t < a.t) a.out[static_cast<size_t>(t0 + t) * a.rows + r] = total[t];
    }
}

// Blocks of four warps: `chunks` warps a row where that is up to four, else a warp takes all of a row's chunks.
template <class W, int R>
__device__ __forceinline__ void matvec_float(const W* weights, float* out, const float* x, int rows, int cols, int t) {
    pdl_trigger();
    __shared__ float sums[4][R];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int chunks = (cols + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
    const bool spread = chunks > 1 && chunks <= 4;
    const int r = spread ? blockIdx.x : blockIdx.x * 4 + warp;
    const int from = spread ? warp : 0, to = spread ? min(warp + 1, chunks) : chunks;
    const bool whole = cols % 4 == 0;
    pdl_wait();
    float total[R];
#pragma unroll
    for (int i = 0; i < R; i++) total[i] = 0.f;
    if (r < rows) {
        const W* row = weights + static_cast<size_t>(r) * cols;
        for (int chunk = from; chunk < to; chunk++) {
            float acc[R];
#pragma unroll
            for (int i = 0; i < R; i++) acc[i] = 0.f;
            const int end = min(cols, (chunk + 1) * CHUNK_COLUMNS);
#pragma unroll 5
            for (int c = chunk * CHUNK_COLUMNS + 4 * lane; c < end; c += 128) {
                float w[4];
                four_weights(row, c, cols, whole, w);
#pragma unroll
                for (int i = 0; i < R; i++) {
                    float v[4] = {0.f, 0.f, 0.f, 0.f};
                    if (i < t) four_weights(x + static_cast<size_t>(i) * cols, c, cols, whole, v);
#pragma unroll
                    for (int e = 0; e < 4; e++) acc[i] = fmaf(w[e], v[e], acc[i]);
                }
            }
#pragma unroll
            for (int i = 0; i < R; i++) {
                acc[i] = warp_sum(acc[i]);
                total[i] = chunk > from ? total[i] + acc[i] : acc[i];
            }
        }
    }
    if (spread) {
        if (lane == 0)
#pragma unroll
            for (int i = 0; i < R; i++) sums[warp][i] = total[i];
        __syncthreads();
        if (threadIdx.x < t) {
            float sum = sums[0][threadIdx.x];
            for (int c = 1; c < chunks; c++) sum += sums[c][threadIdx.x];
            out[static_cast<size_t>(threadIdx.x) * rows + r] = sum;
        }
    } else if (lane == 0 && r < rows) {
#pragma unroll
        for (int i = 0; i < R; i++)
            if (i < t) out[static_cast<size_t>(i) * rows + r] = total[i];
    }
}

// The types that decoding reads every token; every other goes through matvec_any.
#define RING(F, name, R) \
    extern "C" __global__ void __launch_bounds__(256, 1) matvec_ring_##name##_r##R(const RingArgs a) { matvec_ring<F, R>(a); }
#define RINGS(F, name) RING(F, name, 1) RING(F, name, 2) RING(F, name, 4) RING(F, name, 8)
RINGS(Q8_0, q8_0)
RINGS(Q4_K, q4_k)
RINGS(Q5_K, q5_k)
RINGS(Q5_1, q5_1)

#define ANY(F, name) \
    extern "C" __global__ void __launch_bounds__(128, 4) matvec_any_##name(const AnyArgs a) { matvec_any<F>(a); }
EACH_FORMAT(ANY)

#define FLOAT(W, name, R)                                                                                      \
    extern "C" __global__ void __launch_bounds__(128, 1)                                                          \
        matvec_float_##name##_r##R(const W* w, float* out, const float* x, int rows, int cols, int t) {         \
        matvec_float<W, R>(w, out, x, rows, cols, t);                                                          \
    }
#define FLOATS(W, name) FLOAT(W, name, 1) FLOAT(W, name, 2) FLOAT(W, name, 4) FLOAT(W, name, 8)
FLOATS(float, f32)
FLOATS(__half, f16)
FLOATS(__nv_bfloat16, bf16)
