// Runs the kernels of namsa/engines/fused_gpu.cu on a CPU, from the same text that a GPU gets. The tests compile it as
//     g++ -DSOURCE='"kernels.cu"' cuda_on_cpu.cpp
// The threads of a block are coroutines. They run one after another from barrier to barrier, in an order that the
// caller chooses, and a warp's from one barrier of the warp to the next: if results depend on the order, a barrier is missing. Shared memory starts as NaN, so that a read
// before any write shows.

#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <ucontext.h>

struct float2 {
    float x, y;
};
struct dim3 {
    int x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }

#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(threads, blocks)

static dim3 threadIdx, blockIdx;
extern float2 shared[1 << 15];
float2 shared[1 << 15];

namespace {
constexpr size_t STACK = 64 << 10, THREADS = 1024;
struct Coroutine {
    ucontext_t context;
    bool finished, waits_for_warp;
    std::unique_ptr<char[]> stack{new char[STACK]};
};
Coroutine coroutines[THREADS];
ucontext_t scheduler;
Coroutine *running;
std::function<void()> kernel;

void start() {
    kernel();
    running->finished = true;
    swapcontext(&running->context, &scheduler);
}

enum Fault { NONE, PARTED, OVERRUN };

// PARTED: some threads of a block end while others wait at a barrier. OVERRUN: the slot after `used` was written.
Fault run_block(dim3 block, int used, bool backwards) {
    const int threads = block.x * block.y;
    for (int i = 0; i <= used; ++i) shared[i] = {NAN, NAN};
    for (int i = 0; i < threads; ++i) {
        Coroutine &c = coroutines[i];
        getcontext(&c.context);
        c.context.uc_stack.ss_sp = c.stack.get();
        c.context.uc_stack.ss_size = STACK;
        c.finished = false;
        makecontext(&c.context, start, 0);
    }
    for (int finished = 0; finished < threads;) {
        finished = 0;
        for (int start = 0; start < threads; start += 32) {
            const int first = backwards ? (threads - 1) / 32 * 32 - start : start;
            const int lanes = threads - first < 32 ? threads - first : 32;
            for (int waiting = lanes; waiting != 0;) {
                waiting = 0;
                for (int turn = 0; turn < lanes; ++turn) {
                    const int i = first + (backwards ? lanes - 1 - turn : turn);
                    threadIdx = {i % block.x, i / block.x};
                    running = &coroutines[i];
                    running->waits_for_warp = false;
                    swapcontext(&scheduler, &running->context);
                    finished += running->finished;
                    waiting += running->waits_for_warp;
                }
                if (waiting != 0 && waiting != lanes) return PARTED;
            }
        }
        if (finished != 0 && finished != threads) return PARTED;
    }
    return std::isnan(shared[used].x) ? NONE : OVERRUN;
}
} // namespace

static inline void __syncthreads() { swapcontext(&running->context, &scheduler); }
static inline void __syncwarp() {
    running->waits_for_warp = true;
    __syncthreads();
}

#include SOURCE

static int launch(dim3 grid, dim3 block, int shared_bytes, bool backwards, std::function<void()> call) {
    kernel = std::move(call);
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
            if (Fault fault = run_block(block, shared_bytes / sizeof(float2), backwards)) return fault;
    return NONE;
}

#define DIMENSIONS int grid_x, int grid_y, int block_x, int block_y, int shared_bytes, int backwards
#define LAUNCH(call) launch({grid_x, grid_y}, {block_x, block_y}, shared_bytes, backwards, [&] { call; })

extern "C" {
int launch_enter(DIMENSIONS, float2 *waves, float2 *lens, float2 *ramp_y, float2 *ramp_x, float2 *roots, int probes) {
    return LAUNCH(enter(waves, lens, ramp_y, ramp_x, roots, probes));
}
int launch_rows(DIMENSIONS, float2 *waves, float2 *transmission, float2 *roots, int probes) {
    return LAUNCH(rows(waves, transmission, roots, probes));
}
int launch_columns(DIMENSIONS, float2 *waves, float2 *propagator, float2 *roots, int probes) {
    return LAUNCH(columns(waves, propagator, roots, probes));
}
int launch_leave(DIMENSIONS, float2 *waves, float2 *propagator, float2 *roots, float *patterns, int probes) {
    return LAUNCH(leave(waves, propagator, roots, patterns, probes));
}
}
