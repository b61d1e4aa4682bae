// Multislice in two passes per slice, for a batch of probes. Compiled by NVRTC, and by g++ for the tests.
//
// Between passes a wave is stored as H(y, kx), rows real and columns reciprocal, with only the columns within the band
// limit: waves[probe][NY][PITCH] in frequency order, without the zero columns, PITCH a multiple of TILE.
//     rows:     H(y, kx) <- F_x [ t(y, x) . F_x^-1 H(y, kx) ]          a block has one row of several probes
//     columns:  H(y, kx) <- F_y^-1 [ P(ky, kx) . F_y H(y, kx) ]        a block has TILE adjacent columns of one probe
// `enter` is the first columns pass: it computes the probe instead of reading it. `leave` is the last columns pass: it
// writes the pattern instead of the wave. A pass reads and writes H once; everything else happens in registers and in
// shared memory. A line is transformed in two stages where it can be, with one exchange through shared memory between
// them: a few threads per line hold up to 32 values each, and blocks are small. On an H200 this takes 0.93 µs per probe of
// 512² and pass; three stages of radix 8 by 64 threads took 1.22 µs.
//
// fused_gpu.py puts these macros above this text: NY, NX; RADICES_Y, RADICES_X, and the same reversed, *_BACK;
// THREADS_Y, THREADS_X; VALUES_Y, VALUES_X (per thread, at most); LOW_Y, HIGH_Y, LOW_X, HIGH_X (frequencies LOW <= n <
// HIGH are zero); PITCH, TILE, ROW_PROBES; COLUMN_PAD, ROW_PAD and the same *_BACK (see AxisPlan.pads); ROW_SLOTS (of
// shared memory per line); ROW_SYNC (32: a line belongs to one warp); ROW_BLOCKS, COLUMN_BLOCKS (per multiprocessor).

template <int VALUE> struct Int {
    static constexpr int value = VALUE;
};

template <int FROM, int TO, class Body> __device__ __forceinline__ void unroll(Body body) {
    if constexpr (FROM < TO) {
        body(Int<FROM>{});
        unroll<FROM + 1, TO>(body);
    }
}

// ---- complex numbers ----------------------------------------------------------------------------------------------

__device__ __forceinline__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ float2 operator-(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ __forceinline__ float2 operator*(float a, float2 b) { return make_float2(a * b.x, a * b.y); }
__device__ __forceinline__ float2 operator*(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// cos(2 pi k / n) by its series, at compile time. Terms stay below 86, so the error of 1e-14 is exact for a float.
__device__ constexpr double cosine(int k, int n) {
    double x = 6.283185307179586476925 * k / n, term = 1, sum = 1;
    for (int i = 1; i < 30; ++i) {
        term *= -x * x / ((2 * i - 1) * (2 * i));
        sum += term;
    }
    return sum;
}
template <int K, int N> struct Root { // exp(2 pi i K / N)
    static constexpr float re = float(cosine(K % N, N));
    static constexpr float im = float(cosine((4 * (K % N) + 3 * N) % (4 * N), 4 * N));
};

// v exp(SIGN 2 pi i K / N); multiples of an eighth of a turn are cheaper than a complex product.
template <int K, int N, int SIGN> __device__ __forceinline__ float2 rotated(float2 v) {
    constexpr int TURN = SIGN > 0 ? K % N : (N - K % N) % N;
    if constexpr (TURN == 0) return v;
    else if constexpr (4 * TURN == N) return make_float2(-v.y, v.x);
    else if constexpr (2 * TURN == N) return make_float2(-v.x, -v.y);
    else if constexpr (4 * TURN == 3 * N) return make_float2(v.y, -v.x);
    else if constexpr (8 * TURN == N) return Root<1, 8>::re * make_float2(v.x - v.y, v.x + v.y);
    else if constexpr (8 * TURN == 3 * N) return Root<1, 8>::re * make_float2(-v.x - v.y, v.x - v.y);
    else if constexpr (8 * TURN == 5 * N) return Root<1, 8>::re * make_float2(v.y - v.x, -v.x - v.y);
    else if constexpr (8 * TURN == 7 * N) return Root<1, 8>::re * make_float2(v.x + v.y, v.y - v.x);
    else return v * make_float2(Root<TURN, N>::re, Root<TURN, N>::im);
}

// ---- transforms of R values in registers, in natural order --------------------------------------------------------

// R = 3, 5, 7: computed from the sums and differences of v_n and v_(R-n).
template <int R, int SIGN> __device__ __forceinline__ void odd_transform(float2 *v) {
    constexpr int HALF = R / 2;
    float2 sum[HALF], difference[HALF], total = v[0];
    unroll<0, HALF>([&](auto m) {
        sum[m.value] = v[m.value + 1] + v[R - 1 - m.value];
        difference[m.value] = v[m.value + 1] - v[R - 1 - m.value];
        total = total + sum[m.value];
    });
    unroll<1, HALF + 1>([&](auto k) {
        float2 even = v[0], odd = make_float2(0, 0);
        unroll<0, HALF>([&](auto m) {
            using Turn = Root<decltype(k)::value *(decltype(m)::value + 1), R>;
            even = even + Turn::re * sum[m.value];
            odd = odd + (SIGN * Turn::im) * difference[m.value];
        });
        v[k.value] = make_float2(even.x - odd.y, even.y + odd.x);
        v[R - k.value] = make_float2(even.x + odd.y, even.y - odd.x);
    });
    v[0] = total;
}

template <int R, int SIGN> __device__ __forceinline__ void transform(float2 *v) {
    constexpr int A = R % 4 == 0 && R > 4 ? 4 : R % 2 == 0 ? 2 : R == 9 ? 3 : R, B = R / A;
    if constexpr (R == 2) {
        const float2 a = v[0];
        v[0] = a + v[1];
        v[1] = a - v[1];
    } else if constexpr (B == 1) {
        odd_transform<R, SIGN>(v);
    } else { // Cooley-Tukey: transforms of A values at stride B, rotations, transforms of B values
        unroll<0, B>([&](auto b) {
            float2 part[A];
            unroll<0, A>([&](auto a) { part[a.value] = v[a.value * B + b.value]; });
            transform<A, SIGN>(part);
            unroll<0, A>([&](auto a) {
                v[a.value * B + b.value] = rotated<decltype(a)::value * decltype(b)::value, R, SIGN>(part[a.value]);
            });
        });
        float2 out[R];
        unroll<0, A>([&](auto a) {
            transform<B, SIGN>(v + a.value * B);
            unroll<0, B>([&](auto b) { out[a.value + A * b.value] = v[a.value * B + b.value]; });
        });
        unroll<0, R>([&](auto k) { v[k.value] = out[k.value]; });
    }
}

// ---- transforms of N values by T threads (Stockham: no bit reversal) ------------------------------------------------

template <int... R> struct Radices {};
template <int FIRST, int... REST> struct Radices<FIRST, REST...> {
    static constexpr int first = FIRST;
};

__device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

// At a stage of radix R there are N / R transforms. Thread j does transforms i = j + m T, in registers m R + k.
template <int N, int T, int R, class Body> __device__ __forceinline__ void each(int j, Body body) {
    unroll<0, ceil_div(N / R, T)>([&](auto m) {
        const int i = j + m.value * T;
        if constexpr ((decltype(m)::value + 1) * T <= N / R) body(m, i);
        else if (i < N / R) body(m, i);
    });
}
// The place of value n of a line in shared memory. After every PAD values a slot stays empty (see AxisPlan.pads).
template <int STRIDE, int PAD> __device__ __forceinline__ constexpr int slot(int n) { return (n + n / PAD) * STRIDE; }

// Whether slot(start + k STEP) = slot(start) + slot(k STEP) for k < COUNT and every start that is less than STEP above a
// multiple of COUNT STEP. Then the second is a constant in the load or store; otherwise addresses take as many
// instructions as arithmetic.
__device__ constexpr bool adds(int pad, int step, int count) {
    return step % pad == 0 || (pad % step == 0 && ((count * step) % pad == 0 || pad % (count * step) == 0));
}

template <int SYNC> __device__ __forceinline__ void barrier() {
    if constexpr (SYNC == 32) __syncwarp();
    else __syncthreads();
}

// FRESH: nobody has read the buffer since the last barrier.
template <int N, int T, int SYNC, bool FRESH, int STRIDE, int PAD, int DONE, int R, int NEXT>
__device__ __forceinline__ void exchange(float2 *v, float2 *line, int j) {
    if constexpr (!FRESH) barrier<SYNC>();
    each<N, T, R>(j, [&](auto m, int i) {
        constexpr int MANY = ceil_div(N / R, T), AHEAD = decltype(m)::value * T;
        if constexpr (T % DONE == 0 && adds(PAD, T * R, MANY) && adds(PAD, DONE, R)) {
            float2 *const start = line + slot<STRIDE, PAD>(j / DONE * (DONE * R) + j % DONE);
            unroll<0, R>([&](auto k) {
                start[slot<STRIDE, PAD>(AHEAD * R) + slot<STRIDE, PAD>(k.value * DONE)] = v[m.value * R + k.value];
            });
        } else {
            const int start = i / DONE * (DONE * R) + i % DONE;
            unroll<0, R>([&](auto k) {
                if constexpr (adds(PAD, DONE, R))
                    line[slot<STRIDE, PAD>(start) + slot<STRIDE, PAD>(k.value * DONE)] = v[m.value * R + k.value];
                else line[slot<STRIDE, PAD>(start + k.value * DONE)] = v[m.value * R + k.value];
            });
        }
    });
    barrier<SYNC>();
    each<N, T, NEXT>(j, [&](auto m, int i) {
        constexpr int MANY = ceil_div(N / NEXT, T), AHEAD = decltype(m)::value * T, STEP = N / NEXT;
        unroll<0, NEXT>([&](auto k) {
            float2 &value = v[m.value * NEXT + k.value];
            if constexpr (adds(PAD, T, MANY) && MANY *T <= STEP && adds(PAD, STEP, NEXT))
                value = line[slot<STRIDE, PAD>(j) + slot<STRIDE, PAD>(AHEAD) + slot<STRIDE, PAD>(k.value * STEP)];
            else if constexpr (adds(PAD, STEP, NEXT))
                value = line[slot<STRIDE, PAD>(i) + slot<STRIDE, PAD>(k.value * STEP)];
            else value = line[slot<STRIDE, PAD>(i + k.value * STEP)];
        });
    });
}

// Thread j starts with values i + k N/R of the first radix R and ends with values i + k N/R of the last. The next
// transform of a pass, with reversed radices, continues with the same registers. roots[DONE k + i] is
// exp(-2 pi i k i / (DONE R)) for the stage that follows radices of product DONE: neighbouring threads read
// neighbouring roots, and each is exact. (Powers of one root per thread would save loads but double the error.)
template <int N, int T, int SYNC, bool FRESH, int SIGN, int STRIDE, int PAD, int DONE, int R, int... REST>
__device__ __forceinline__ void stages(Radices<R, REST...>, float2 *v, float2 *line, const float2 *roots, int j) {
    each<N, T, R>(j, [&](auto m, int i) {
        float2 *const own = v + m.value * R;
        if constexpr (DONE > 1) {
            const float2 *const root = roots + (T % DONE == 0 ? j : i) % DONE;
            unroll<1, R>([&](auto k) {
                float2 factor = root[k.value * DONE];
                if constexpr (SIGN > 0) factor.y = -factor.y;
                own[k.value] = own[k.value] * factor;
            });
        }
        transform<R, SIGN>(own);
    });
    if constexpr (sizeof...(REST) > 0) {
        exchange<N, T, SYNC, FRESH, STRIDE, PAD, DONE, R, Radices<REST...>::first>(v, line, j);
        stages<N, T, SYNC, false, SIGN, STRIDE, PAD, DONE * R>(Radices<REST...>{}, v, line, roots, j);
    }
}

// Calls kept(r, n, where) for each value n = i + k N/R that thread j holds in register r; `where` is its place among
// stored values: SHIFT less beyond the zero band, LOW <= n < HIGH. Calls zero(r) for values in the band. Conditions that
// hold for all values of a register are evaluated at compile time: a register of zeros loads nothing.
template <int N, int T, int R, int LOW, int HIGH, int SHIFT, class Kept, class Zero>
__device__ __forceinline__ void values(int j, Kept kept, Zero zero) {
    each<N, T, R>(j, [&](auto m, int) {
        unroll<0, R>([&](auto k) {
            constexpr int FROM = decltype(m)::value * T + decltype(k)::value * (N / R);
            constexpr int END = (decltype(k)::value + 1) * (N / R), TO = FROM + T < END ? FROM + T : END;
            constexpr Int<decltype(m)::value * R + decltype(k)::value> r{};
            const int n = j + FROM;
            if constexpr (FROM >= LOW && TO <= HIGH) zero(r);
            else if constexpr (TO <= LOW) kept(r, n, n);
            else if constexpr (FROM >= HIGH) kept(r, n, n - SHIFT);
            else if (n < LOW) kept(r, n, n);
            else if (n >= HIGH) kept(r, n, n - SHIFT);
            else zero(r);
        });
    });
}

// ---- the passes ---------------------------------------------------------------------------------------------------

using ForthX = Radices<RADICES_X>;
using BackX = Radices<RADICES_X_BACK>;
using ForthY = Radices<RADICES_Y>;
using BackY = Radices<RADICES_Y_BACK>;
extern __shared__ float2 shared[];

// grid (NY, probes / ROW_PROBES), block (THREADS_X, ROW_PROBES). A block has the same row of several probes, so that
// its row of t is read once from the second-level cache, then from the first.
extern "C" __global__ void __launch_bounds__(THREADS_X *ROW_PROBES, ROW_BLOCKS)
    rows(float2 *__restrict__ waves, const float2 *__restrict__ transmission, const float2 *__restrict__ roots,
         int probes) {
    constexpr int ENDS = ForthX::first, MIDDLE = BackX::first;
    const int j = threadIdx.x, y = blockIdx.x, probe = blockIdx.y * ROW_PROBES + threadIdx.y;
    const bool present = probe < probes; // the last block may have fewer; all its threads must reach the barriers
    float2 *row = waves + (size_t(present ? probe : 0) * NY + y) * PITCH;
    float2 *line = shared + threadIdx.y * ROW_SLOTS;
    const float2 *t = transmission + size_t(y) * NX;
    float2 v[VALUES_X];

    values<NX, THREADS_X, ENDS, LOW_X, HIGH_X, NX - PITCH>(
        j, [&](auto r, int, int where) { v[r.value] = row[where]; },
        [&](auto r) { v[r.value] = make_float2(0, 0); });
    stages<NX, THREADS_X, ROW_SYNC, true, 1, 1, ROW_PAD, 1>(ForthX{}, v, line, roots, j);
    values<NX, THREADS_X, MIDDLE, NX, NX, 0>(
        j, [&](auto r, int n, int) { v[r.value] = v[r.value] * t[n]; }, [](auto) {});
    stages<NX, THREADS_X, ROW_SYNC, false, -1, 1, ROW_PAD_BACK, 1>(BackX{}, v, line, roots + NX, j);
    if (present)
        values<NX, THREADS_X, ENDS, LOW_X, HIGH_X, NX - PITCH>(
            j, [&](auto r, int, int where) { row[where] = v[r.value]; }, [](auto) {});
}

// grid (PITCH / TILE, probes), block (TILE, THREADS_Y). Probes go from last to first, opposite to `rows`: each pass
// starts with the waves that the previous pass left in the second-level cache.
struct Tile {
    int column, j, probe;
    float2 *line;
    __device__ explicit Tile(int probes)
        : column(blockIdx.x * TILE + threadIdx.x), j(threadIdx.y), probe(probes - 1 - blockIdx.y),
          line(shared + threadIdx.x) {}
    __device__ size_t wave() const { return size_t(probe) * NY * PITCH + column; }
};

__device__ __forceinline__ void load(float2 *v, const float2 *wave, int j) {
    values<NY, THREADS_Y, ForthY::first, NY, NY, 0>(
        j, [&](auto r, int n, int) { v[r.value] = wave[n * PITCH]; }, [](auto) {});
}

__device__ __forceinline__ void store(const float2 *v, float2 *wave, int j) {
    values<NY, THREADS_Y, ForthY::first, NY, NY, 0>(
        j, [&](auto r, int n, int) { wave[n * PITCH] = v[r.value]; }, [](auto) {});
}

// The forward transform and P. P includes the inverse transforms' 1 / (NY NX) and is zero in the padding columns.
__device__ __forceinline__ void propagate(float2 *v, const Tile &tile, const float2 *propagator, const float2 *roots) {
    stages<NY, THREADS_Y, 0, true, -1, TILE, COLUMN_PAD, 1>(ForthY{}, v, tile.line, roots, tile.j);
    values<NY, THREADS_Y, BackY::first, LOW_Y, HIGH_Y, 0>(
        tile.j, [&](auto r, int n, int) { v[r.value] = v[r.value] * propagator[n * PITCH + tile.column]; },
        [&](auto r) { v[r.value] = make_float2(0, 0); });
}

extern "C" __global__ void __launch_bounds__(TILE *THREADS_Y, COLUMN_BLOCKS)
    columns(float2 *__restrict__ waves, const float2 *__restrict__ propagator, const float2 *__restrict__ roots,
            int probes) {
    const Tile tile(probes);
    float2 v[VALUES_Y];
    load(v, waves + tile.wave(), tile.j);
    propagate(v, tile, propagator, roots);
    stages<NY, THREADS_Y, 0, false, 1, TILE, COLUMN_PAD_BACK, 1>(BackY{}, v, tile.line, roots + NY, tile.j);
    store(v, waves + tile.wave(), tile.j);
}

// ramp_y (probes, NY), ramp_x (probes, PITCH): the phases of the probe's position; lens (NY, PITCH).
extern "C" __global__ void __launch_bounds__(TILE *THREADS_Y, COLUMN_BLOCKS)
    enter(float2 *__restrict__ waves, const float2 *__restrict__ lens, const float2 *__restrict__ ramp_y,
          const float2 *__restrict__ ramp_x, const float2 *__restrict__ roots, int probes) {
    const Tile tile(probes);
    const float2 along_x = ramp_x[size_t(tile.probe) * PITCH + tile.column];
    const float2 *along_y = ramp_y + size_t(tile.probe) * NY;
    float2 v[VALUES_Y];
    values<NY, THREADS_Y, BackY::first, LOW_Y, HIGH_Y, 0>(
        tile.j, [&](auto r, int n, int) { v[r.value] = along_y[n] * lens[n * PITCH + tile.column] * along_x; },
        [&](auto r) { v[r.value] = make_float2(0, 0); });
    stages<NY, THREADS_Y, 0, true, 1, TILE, COLUMN_PAD_BACK, 1>(BackY{}, v, tile.line, roots + NY, tile.j);
    store(v, waves + tile.wave(), tile.j);
}

// patterns (probes, NY, NX), zero frequency in the centre; pixels outside the kept band are not written.
extern "C" __global__ void __launch_bounds__(TILE *THREADS_Y, COLUMN_BLOCKS)
    leave(const float2 *__restrict__ waves, const float2 *__restrict__ propagator, const float2 *__restrict__ roots,
          float *__restrict__ patterns, int probes) {
    const Tile tile(probes);
    float2 v[VALUES_Y];
    load(v, waves + tile.wave(), tile.j);
    propagate(v, tile, propagator, roots);
    if (tile.column >= LOW_X && tile.column < HIGH_X - (NX - PITCH)) return; // a padding column
    const int kx = tile.column < LOW_X ? tile.column : tile.column + NX - PITCH;
    float *pattern = patterns + size_t(tile.probe) * NY * NX + (kx + NX / 2) % NX;
    values<NY, THREADS_Y, BackY::first, LOW_Y, HIGH_Y, 0>(
        tile.j,
        [&](auto r, int n, int) {
            pattern[size_t((n + NY / 2) % NY) * NX] = v[r.value].x * v[r.value].x + v[r.value].y * v[r.value].y;
        },
        [](auto) {});
}
