/* Multislice of one probe after the other, in a core's cache: the compiled part of namsa/engines/fused.py, which plans it.
 *
 * A slice is two passes over the wave. The row pass takes a few rows at a time through [inverse FFT · t · FFT], the
 * column pass a few columns through [FFT · P · inverse FFT]; each reads and writes the wave once. P is zero beyond the
 * band limit, so a third of the columns is never stored. What remains of a 512x512 wave, 1.4 MB, stays in the second-
 * level cache of one core; threads take different probes and share t and P.
 *
 * Neighbouring columns (rows in the row pass) are the lanes of vectors, real and imaginary parts apart, so that
 * transforms need no shuffles; the row pass transposes on its way in and out. The passes are in fused_passes.h,
 * compiled for each instruction set from the compiler's vector extensions; the processor picks at run time.
 */

#include <stddef.h>
#include <string.h>

enum { FORWARD = 1, INVERSE = 2, MAX_LEVELS = 32, MAX_RADIX = 8 };

/* The transform of n values: level i splits blocks of radix[i] * block[i] values into radix[i] blocks of block[i]. */
typedef struct {
    int n, radix[MAX_LEVELS], block[MAX_LEVELS];
    long offset[MAX_LEVELS]; /* of a level's factors in twiddles, in numbers */
    const void *twiddles;
} Transform;

/* What does not change from probe to probe; fused.py makes the arrays, puts them in order and keeps them alive. */
typedef struct {
    Transform y, x;
    int number_bytes, lanes;          /* which instance of the passes the arrays are laid out for */
    int padded_y, padded_x;           /* whole groups of lanes */
    int groups, slices;
    int dark_x;                       /* of the values that x's first level takes together, those that no column holds */
    const int *dark_y;                /* of each group, those that y's last level leaves together and fresnel makes zero */
    const int *group;                 /* of neighbouring columns: group g holds columns group[g] * lanes and on */
    const int *place;                 /* of the columns x * lanes and on among the groups; −1 where they are not kept */
    const int *row_of;                /* the row of a pattern that a place in a transformed column belongs to */
    const int *order;                 /* which transmission a slice has */
    const void *const *transmissions; /* (padded_y / lanes, nx) waves each, conjugated */
    const void *lens, *fresnel;       /* (groups, ny) waves */
} Plan;

/* Perfect shuffles of two vectors' lower and upper halves; compilers spell them in two ways. */
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

/* Vectors of 16 bytes are everywhere: SSE2, NEON, VSX. */
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

/* For fused.py to see that it has the same Plan. */
int fused_plan_bytes(void)
{
    return sizeof(Plan);
}

/* The bytes of the widest vectors that this processor has, and that this file was compiled for. */
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

/* The patterns of `probes` probes, each (ny, nx), zero frequency in the centre.
 * ramps_y: (probes, ny) complex, exp(−2πi ky·y), and ramps_x: (groups, probes) waves, exp(−2πi kx·x), of a position;
 * workspace: groups * padded_y + padded_x waves, zero at first. Waves are aligned as the vectors are. */
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
