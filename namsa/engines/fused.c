/* Multislice of one probe after another in the cache of a core: the compiled part of namsa/engines/fused.py.
 *
 * A slice takes two passes over the wave. The row pass applies [inverse FFT · t · FFT] to a few rows at a time, the
 * column pass [FFT · P · inverse FFT] to a few columns. Each reads and writes the wave once. P is zero beyond the band
 * limit, so a third of the columns is never stored. The rest of a 512x512 wave, 1.4 MB, stays in the second-level cache
 * of one core. Threads compute different probes and share t and P.
 *
 * Neighbouring columns (rows in the row pass) are the lanes of vectors, and real and imaginary parts are separate, so
 * that transforms need no shuffles. The row pass transposes when it loads and stores. The passes are in fused_passes.h.
 * They use the compiler's vector extensions and are compiled for several instruction sets; the processor's is chosen at
 * run time.
 */

#include <stddef.h>
#include <string.h>

enum { FORWARD = 1, INVERSE = 2, MAX_LEVELS = 32, MAX_RADIX = 8 };

/* The transform of n values: level i splits blocks of radix[i] * block[i] values into radix[i] blocks of block[i]. */
typedef struct {
    int n, radix[MAX_LEVELS], block[MAX_LEVELS];
    long offset[MAX_LEVELS]; /* of each level's factors in twiddles, counted in numbers */
    const void *twiddles;
} Transform;

/* What all probes share. fused.py creates the arrays in the right order and keeps them alive. */
typedef struct {
    Transform y, x;
    int number_bytes, lanes;          /* the instance of the passes that the arrays are laid out for */
    int padded_y, padded_x;           /* rounded up to whole groups of lanes */
    int groups, slices;
    int zeros_x;                      /* how many central values that x's first level reads together are never stored */
    const int *zeros_y;               /* for each group, the same of y's last level, which fresnel sets to zero */
    const int *group;                 /* group g holds columns group[g] * lanes and following */
    const int *group_of;              /* the group of columns x * lanes and following; -1 if they are not stored */
    const int *row_of;                /* the row of a pattern for each place in a transformed column */
    const int *order;                 /* the index of each slice's transmission */
    const void *const *transmissions; /* (padded_y / lanes, nx) waves each, conjugated */
    const int *distance;              /* the index of each slice's propagator */
    const void *const *fresnel;       /* propagators, (groups, ny) waves each */
    const void *lens;                 /* (groups, ny) waves */
} Plan;

/* Perfect shuffles of the lower and upper halves of two vectors; compilers have two names for them. */
#define LOW2 0, 2
#define HIGH2 1, 3
#define LOW4 0, 4, 1, 5
#define HIGH4 2, 6, 3, 7
#define LOW8 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH8 4, 12, 5, 13, 6, 14, 7, 15
#define LOW16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (indices){__VA_ARGS__})
#endif

#define PASTE(name, number, lanes) name##_##number##_##lanes
#define NAME(name, number, lanes) PASTE(name, number, lanes)

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,fma")))
#define REAL float
#define LANES 16
#define LOW LOW16
#define HIGH HIGH16
#include "fused_passes.h"
#define REAL double
#define LANES 8
#define LOW LOW8
#define HIGH HIGH8
#include "fused_passes.h"
#undef TARGET

#define TARGET __attribute__((target("avx2,fma")))
#define REAL float
#define LANES 8
#define LOW LOW8
#define HIGH HIGH8
#include "fused_passes.h"
#define REAL double
#define LANES 4
#define LOW LOW4
#define HIGH HIGH4
#include "fused_passes.h"
#undef TARGET
#endif

/* All processors have vectors of 16 bytes: SSE2, NEON, VSX. */
#define TARGET
#define REAL float
#define LANES 4
#define LOW LOW4
#define HIGH HIGH4
#include "fused_passes.h"
#define REAL double
#define LANES 2
#define LOW LOW2
#define HIGH HIGH2
#include "fused_passes.h"
#undef TARGET

/* Lets fused_library.py check that its Plan is the same. */
int fused_plan_bytes(void)
{
    return sizeof(Plan);
}

/* Width in bytes of the widest vectors that both the processor and this build support. */
int fused_vector_bytes(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 64;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return 32;
#endif
    return 16;
}

/* Computes the patterns of `probes` probes, each (ny, nx), zero frequency in the centre.
 * ramps_y: exp(-2 pi i ky y) of each position, (probes, ny) complex; ramps_x: exp(-2 pi i kx x), (groups, probes) waves;
 * workspace: groups * padded_y + padded_x waves, zero at first. Waves are aligned to the width of the vectors. */
void fused_patterns(const Plan *plan, int probes, const void *ramps_y, const void *ramps_x, void *workspace,
                    void *patterns)
{
    void (*run)(const Plan *, int, const void *, const void *, void *, void *);
    const int single = plan->number_bytes == 4;
    switch (plan->lanes * plan->number_bytes) {
#if defined(__x86_64__)
    case 64: run = single ? patterns_float_16 : patterns_double_8; break;
    case 32: run = single ? patterns_float_8 : patterns_double_4; break;
#endif
    default: run = single ? patterns_float_4 : patterns_double_2;
    }
    run(plan, probes, ramps_y, ramps_x, workspace, patterns);
}
