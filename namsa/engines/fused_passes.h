/* The passes of fused.c for one type of number and one width of vectors. It is included once for each combination of
 *
 *   REAL    float or double
 *   LANES   how many of them a vector holds
 *   TARGET  the attribute that allows the compiler to use the instruction set
 *   LOW, HIGH  the indices of the shuffles
 *
 * The forward transform (decimation in frequency, in place) leaves its output digit-reversed. The factors that it is
 * multiplied by are stored in that order, and the inverse transform (decimation in time) expects it: nothing is ever
 * reordered. The inverse is the forward transform with real and imaginary parts exchanged. Neither is normalised.
 */

#define vector NAME(vector, REAL, LANES)
#define indices NAME(indices, REAL, LANES)
#define wave NAME(wave, REAL, LANES)
#define dft4 NAME(dft4, REAL, LANES)
#define dft8 NAME(dft8, REAL, LANES)
#define dft_odd NAME(dft_odd, REAL, LANES)
#define dft NAME(dft, REAL, LANES)
#define forward_level NAME(forward_level, REAL, LANES)
#define inverse_level NAME(inverse_level, REAL, LANES)
#define multiply_block NAME(multiply_block, REAL, LANES)
#define level NAME(level, REAL, LANES)
#define multiply_blocks NAME(multiply_blocks, REAL, LANES)
#define convolve NAME(convolve, REAL, LANES)
#define transpose NAME(transpose, REAL, LANES)
#define load_tile NAME(load_tile, REAL, LANES)
#define store_tile NAME(store_tile, REAL, LANES)
#define row_group NAME(row_group, REAL, LANES)
#define row_pass NAME(row_pass, REAL, LANES)
#define column_pass NAME(column_pass, REAL, LANES)
#define multiply_ramps NAME(multiply_ramps, REAL, LANES)
#define store_pattern NAME(store_pattern, REAL, LANES)
#define patterns NAME(patterns, REAL, LANES)
#define INLINE TARGET static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef REAL vector __attribute__((vector_size(LANES * sizeof(REAL))));
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, 0, 0LL)) indices
    __attribute__((vector_size(LANES * sizeof(REAL)))); /* for SHUFFLE */
typedef struct {
    vector re, im;
} wave; /* LANES neighbouring columns (or rows) of a wave */

/* Fourier transforms of r values in registers, in place: radices 4, 8 (as two of 4), and 3, 5, 7 by their symmetry. */

INLINE void dft4(vector *re, vector *im, int stride)
{
    vector *a = re, *b = re + stride, *c = re + 2 * stride, *d = re + 3 * stride;
    vector *e = im, *f = im + stride, *g = im + 2 * stride, *h = im + 3 * stride;
    const vector p = *a + *c, q = *a - *c, r = *b + *d, s = *b - *d;
    const vector t = *e + *g, u = *e - *g, v = *f + *h, w = *f - *h;
    *a = p + r, *e = t + v;
    *b = q + w, *f = u - s;
    *c = p - r, *g = t - v;
    *d = q - w, *h = u + s;
}

INLINE void dft8(vector *re, vector *im)
{
    const REAL half = (REAL)0.70710678118654752440; /* sqrt(1/2) */
    dft4(re, im, 2);
    dft4(re + 1, im + 1, 2);
    const vector a = re[0], b = re[2], c = re[4], d = re[6], e = im[0], f = im[2], g = im[4], h = im[6];
    /* The odd half times 1, (1 − i)/sqrt(2), −i, (−1 − i)/sqrt(2). */
    const vector p = re[1], q = re[3] + im[3], r = im[5], s = im[7] - re[7];
    const vector t = im[1], u = im[3] - re[3], v = -re[5], w = -re[7] - im[7];
    re[0] = a + p, im[0] = e + t, re[4] = a - p, im[4] = e - t;
    re[1] = b + half * q, im[1] = f + half * u, re[5] = b - half * q, im[5] = f - half * u;
    re[2] = c + r, im[2] = g + v, re[6] = c - r, im[6] = g - v;
    re[3] = d + half * s, im[3] = h + half * w, re[7] = d - half * s, im[7] = h - half * w;
}

INLINE void dft_odd(int r, vector *re, vector *im)
{
    static const REAL cosine[MAX_RADIX][4] = {
        [3] = {1, -0.5},
        [5] = {1, 0.30901699437494742410, -0.80901699437494742410},
        [7] = {1, 0.62348980185873353053, -0.22252093395631440429, -0.90096886790241912624},
    };
    static const REAL sine[MAX_RADIX][4] = {
        [3] = {0, 0.86602540378443864676},
        [5] = {0, 0.95105651629515357212, 0.58778525229247312917},
        [7] = {0, 0.78183148246802980871, 0.97492791218182360702, 0.43388373911755812048},
    };
    const vector re0 = re[0], im0 = im[0];
    vector sum_re[4], sum_im[4], difference_re[4], difference_im[4];
    UNROLL for (int j = 1; j <= r / 2; j++) {
        sum_re[j] = re[j] + re[r - j], difference_re[j] = re[j] - re[r - j];
        sum_im[j] = im[j] + im[r - j], difference_im[j] = im[j] - im[r - j];
        re[0] += sum_re[j], im[0] += sum_im[j];
    }
    UNROLL for (int k = 1; k <= r / 2; k++) {
        vector even_re = re0, even_im = im0, odd_re = {0}, odd_im = {0};
        UNROLL for (int j = 1; j <= r / 2; j++) {
            const int turns = j * k % r;
            const REAL c = cosine[r][turns <= r / 2 ? turns : r - turns];
            const REAL s = turns <= r / 2 ? sine[r][turns] : -sine[r][r - turns];
            even_re += c * sum_re[j], even_im += c * sum_im[j];
            odd_re += s * difference_im[j], odd_im -= s * difference_re[j];
        }
        re[k] = even_re + odd_re, im[k] = even_im + odd_im;
        re[r - k] = even_re - odd_re, im[r - k] = even_im - odd_im;
    }
}

INLINE void dft(int r, vector *re, vector *im)
{
    if (r == 8)
        dft8(re, im);
    else if (r == 4)
        dft4(re, im, 1);
    else if (r == 2) {
        const vector a = re[0], b = im[0];
        re[0] = a + re[1], im[0] = b + im[1];
        re[1] = a - re[1], im[1] = b - im[1];
    } else
        dft_odd(r, re, im);
}

/* Whether value k of r is one of the `zeros` central values, which are the highest frequencies and zero. */
#define IS_ZERO(k, r, zeros) (2 * (k) >= (r) - (zeros) && 2 * (k) < (r) + (zeros))

/* One level of the forward transform: splits r * m values into r blocks of m, here the first `count` of each. Of every r
 * values that are read together, the `zeros` central ones are skipped. w: exp(-2 pi i jk/(r m)), j < m, 0 < k < r. */
INLINE void forward_level(int r, int m, int count, int zeros, wave *x, const REAL *w)
{
    for (int j = 0; j < count; j++, x++, w += 2 * (r - 1)) {
        vector re[MAX_RADIX], im[MAX_RADIX];
        UNROLL for (int k = 0; k < r; k++) {
            const wave v = IS_ZERO(k, r, zeros) ? (wave){{0}, {0}} : x[k * m];
            re[k] = v.re, im[k] = v.im;
        }
        dft(r, re, im);
        *x = (wave){re[0], im[0]};
        UNROLL for (int k = 1; k < r; k++) {
            const REAL c = w[2 * k - 2], s = w[2 * k - 1];
            x[k * m] = (wave){re[k] * c - im[k] * s, re[k] * s + im[k] * c};
        }
    }
}

/* One level of the inverse transform; the `zeros` central values are not written. */
INLINE void inverse_level(int r, int m, int count, int zeros, wave *x, const REAL *w)
{
    for (int j = 0; j < count; j++, x++, w += 2 * (r - 1)) {
        vector re[MAX_RADIX], im[MAX_RADIX];
        re[0] = x->re, im[0] = x->im;
        UNROLL for (int k = 1; k < r; k++) {
            const REAL c = w[2 * k - 2], s = w[2 * k - 1];
            const vector a = x[k * m].re, b = x[k * m].im;
            re[k] = a * c + b * s, im[k] = b * c - a * s;
        }
        dft(r, im, re);
        UNROLL for (int k = 0; k < r; k++)
            if (!IS_ZERO(k, r, zeros))
                x[k * m] = (wave){re[k], im[k]};
    }
}

/* The last forward level, the factor, and the first inverse level, all in registers; the `zeros` central factors are
 * zero. Factors are read once per slice, in runs too short for the processor's own prefetching: they are prefetched two
 * blocks ahead. */
INLINE void multiply_block(int r, int blocks, int zeros, int mode, wave *x, const wave *factor)
{
    for (int i = 0; i < blocks; i++, x += r, factor += r) {
        vector re[MAX_RADIX], im[MAX_RADIX];
        UNROLL for (int k = 0; k < r; k++)
            if (!IS_ZERO(k, r, zeros)) {
                __builtin_prefetch(&factor[2 * r + k].re);
                __builtin_prefetch(&factor[2 * r + k].im);
            }
        UNROLL for (int k = 0; k < r; k++)
            re[k] = x[k].re, im[k] = x[k].im;
        if (mode & FORWARD)
            dft(r, re, im);
        UNROLL for (int k = 0; k < r; k++) {
            if (IS_ZERO(k, r, zeros)) {
                re[k] = im[k] = (vector){0};
                continue;
            }
            const vector a = re[k], b = im[k], c = factor[k].re, s = factor[k].im;
            re[k] = a * c - b * s, im[k] = a * s + b * c;
        }
        if (mode & INVERSE)
            dft(r, im, re);
        UNROLL for (int k = 0; k < r; k++)
            x[k] = (wave){re[k], im[k]};
    }
}

/* Calls CASE(r, zeros) with constants: a radix, and no zeros, the least number of them or two more. */
#define LEAST_ZEROS(r) (2 - (r) % 2)
#define CASES(r)                          \
    case r:                               \
        if (zeros >= LEAST_ZEROS(r) + 2)         \
            CASE(r, LEAST_ZEROS(r) + 2);        \
        else if (zeros >= LEAST_ZEROS(r))        \
            CASE(r, LEAST_ZEROS(r));            \
        else                              \
            CASE(r, 0);                   \
        break;
#define ALL_CASES CASES(2) CASES(3) CASES(4) CASES(5) CASES(7) CASES(8)

/* `count` places of the blocks of a level, forward or inverse. */
TARGET static void level(int radix, int m, int count, int zeros, int mode, wave *x, const REAL *w)
{
#define CASE(r, d) mode == FORWARD ? forward_level(r, m, count, d, x, w) : inverse_level(r, m, count, d, x, w)
    switch (radix) {
        ALL_CASES
    }
#undef CASE
}

/* `multiply_block` for `blocks` consecutive blocks. */
TARGET static void multiply_blocks(int radix, int blocks, int zeros, int mode, wave *x, const wave *factor)
{
#define CASE(r, d) multiply_block(r, blocks, d, mode, x, factor)
    switch (radix) {
        ALL_CASES
    }
#undef CASE
}

/* x <- F^-1[factor · F[x]] for `blocks` consecutive blocks, from level i on; `mode` may omit either transform. `zeros`
 * central factors of the last level are zero. The recursion is depth first, so that blocks soon fit into the first-level
 * cache. */
TARGET static void convolve(const Transform *f, int i, int blocks, int zeros, int mode, wave *x, const wave *factor)
{
    const int r = f->radix[i], m = f->block[i];
    const REAL *w = (const REAL *)f->twiddles + f->offset[i];
    if (m == 1) {
        multiply_blocks(r, blocks, zeros, mode, x, factor);
        return;
    }
    for (int b = 0; b < blocks; b++, x += r * m, factor += r * m) {
        if (mode & FORWARD)
            level(r, m, m, 0, FORWARD, x, w);
        convolve(f, i + 1, r, zeros, mode, x, factor);
        if (mode & INVERSE)
            level(r, m, m, 0, INVERSE, x, w);
    }
}

/* Transposes a square of LANES x LANES numbers, every other vector of `from` and `to`, in log2(LANES) shuffles. */
INLINE void transpose(const vector *from, vector *to)
{
    vector a[LANES], b[LANES];
    UNROLL for (int i = 0; i < LANES; i++)
        a[i] = from[2 * i];
    UNROLL for (int step = 1; step < LANES; step *= 2) {
        UNROLL for (int i = 0; i < LANES / 2; i++) {
            b[2 * i] = SHUFFLE(a[i], a[i + LANES / 2], LOW);
            b[2 * i + 1] = SHUFFLE(a[i], a[i + LANES / 2], HIGH);
        }
        UNROLL for (int i = 0; i < LANES; i++)
            a[i] = b[i];
    }
    UNROLL for (int i = 0; i < LANES; i++)
        to[2 * i] = a[i];
}

/* Load columns x to x + LANES of rows y to y + LANES into `row`, and store them back. Columns beyond the band limit are
 * not stored: they are loaded as zero. The inverse transform comes first, so rows have real and imaginary parts
 * exchanged. */
INLINE void load_tile(const Plan *plan, const wave *columns, int y, wave *row, int x)
{
    const int g = plan->group_of[x / LANES];
    const wave *tile = columns + (long)g * plan->padded_y + y;
    if (g < 0) {
        UNROLL for (int i = 0; i < LANES; i++)
            row[x + i] = (wave){{0}, {0}};
        return;
    }
    transpose(&tile->im, &row[x].re);
    transpose(&tile->re, &row[x].im);
}

INLINE void store_tile(const Plan *plan, wave *columns, int y, const wave *row, int x)
{
    const int g = plan->group_of[x / LANES];
    wave *tile = columns + (long)g * plan->padded_y + y;
    if (g < 0)
        return;
    transpose(&row[x].im, &tile->re);
    transpose(&row[x].re, &tile->im);
}

/* [inverse FFT · t · FFT] of LANES rows from y on. If the blocks of the first level are whole tiles, the tiles that it
 * reads together are loaded just before and stored just after, while they are in the first-level cache. */
TARGET static void row_group(const Plan *plan, wave *columns, int y, wave *row, const wave *transmission)
{
    const Transform *f = &plan->x;
    const int r = f->radix[0], m = f->block[0], zeros = plan->zeros_x;
    const REAL *w = (const REAL *)f->twiddles + f->offset[0];
    if (m % LANES) {
        for (int x = 0; x < plan->padded_x; x += LANES)
            load_tile(plan, columns, y, row, x);
        convolve(f, 0, 1, 0, FORWARD | INVERSE, row, transmission);
        for (int x = 0; x < plan->padded_x; x += LANES)
            store_tile(plan, columns, y, row, x);
        return;
    }
    for (int j = 0; j < m; j += LANES) {
        for (int k = 0; k < r; k++)
            if (!IS_ZERO(k, r, zeros))
                load_tile(plan, columns, y, row, j + k * m);
        level(r, m, LANES, zeros, FORWARD, row + j, w + 2 * j * (r - 1));
    }
    convolve(f, 1, r, 0, FORWARD | INVERSE, row, transmission);
    for (int j = 0; j < m; j += LANES) {
        level(r, m, LANES, zeros, INVERSE, row + j, w + 2 * j * (r - 1));
        for (int k = 0; k < r; k++)
            if (!IS_ZERO(k, r, zeros))
                store_tile(plan, columns, y, row, j + k * m);
    }
}

/* [inverse FFT · t · FFT] of all rows; the transmission is conjugated. */
TARGET static void row_pass(const Plan *plan, wave *columns, wave *row, const wave *transmission)
{
    for (int y = 0; y < plan->padded_y; y += LANES, transmission += plan->x.n)
        row_group(plan, columns, y, row, transmission);
}

/* [FFT · factor · inverse FFT] of all columns; `mode` may omit either transform. zeros: for each group, or NULL. */
TARGET static void column_pass(const Plan *plan, wave *columns, const wave *factor, const int *zeros, int mode)
{
    for (int g = 0; g < plan->groups; g++)
        convolve(&plan->y, 0, 1, zeros ? zeros[g] : 0, mode, columns + (long)g * plan->padded_y,
                 factor + (long)g * plan->y.n);
}

/* Multiplies the phase ramps of a position; times the lens they are the probe. ramp_x: one wave every `stride`. */
TARGET static void multiply_ramps(const Plan *plan, wave *columns, const REAL *ramp_y, const wave *ramp_x, int stride)
{
    for (int g = 0; g < plan->groups; g++, ramp_x += stride)
        for (int y = 0; y < plan->y.n; y++) {
            const REAL c = ramp_y[2 * y], s = ramp_y[2 * y + 1];
            columns[(long)g * plan->padded_y + y] = (wave){ramp_x->re * c - ramp_x->im * s,
                                                           ramp_x->re * s + ramp_x->im * c};
        }
}

/* Writes |psi|^2, zero frequency in the centre. */
TARGET static void store_pattern(const Plan *plan, const wave *columns, REAL *pattern)
{
    const int ny = plan->y.n, nx = plan->x.n;
    memset(pattern, 0, sizeof(REAL) * ny * nx);
    for (int g = 0; g < plan->groups; g++) {
        const int first = plan->group[g] * LANES, width = nx - first < LANES ? nx - first : LANES;
        const int x = (first + nx / 2) % nx, before = nx - x < width ? nx - x : width;
        for (int y = 0; y < ny; y++) {
            const wave v = columns[(long)g * plan->padded_y + y];
            const vector intensity = v.re * v.re + v.im * v.im;
            REAL *line = pattern + (long)plan->row_of[y] * nx;
            memcpy(line + x, &intensity, sizeof(REAL) * before);
            memcpy(line, (const REAL *)&intensity + before, sizeof(REAL) * (width - before));
        }
    }
}

TARGET static void patterns(const Plan *plan, int probes, const void *ramps_y, const void *ramps_x, void *workspace,
                            void *out)
{
    const int ny = plan->y.n, nx = plan->x.n;
    wave *columns = workspace, *row = columns + (long)plan->groups * plan->padded_y;
    for (int n = 0; n < probes; n++) {
        multiply_ramps(plan, columns, (const REAL *)ramps_y + 2L * n * ny, (const wave *)ramps_x + n, probes);
        column_pass(plan, columns, plan->lens, NULL, INVERSE);
        for (int slice = 0; slice < plan->slices; slice++) {
            const int last = slice == plan->slices - 1; /* patterns are measured in reciprocal space: no transform back */
            row_pass(plan, columns, row, plan->transmissions[plan->order[slice]]);
            column_pass(plan, columns, plan->fresnel[plan->distance[slice]], plan->zeros_y,
                        last ? FORWARD : FORWARD | INVERSE);
        }
        store_pattern(plan, columns, (REAL *)out + (long)n * ny * nx);
    }
}

#undef REAL
#undef LANES
#undef LOW
#undef HIGH
#undef vector
#undef indices
#undef wave
#undef dft4
#undef dft8
#undef dft_odd
#undef dft
#undef forward_level
#undef inverse_level
#undef multiply_block
#undef level
#undef multiply_blocks
#undef convolve
#undef transpose
#undef load_tile
#undef store_tile
#undef row_group
#undef row_pass
#undef column_pass
#undef multiply_ramps
#undef store_pattern
#undef patterns
#undef IS_ZERO
#undef LEAST_ZEROS
#undef CASES
#undef ALL_CASES
#undef INLINE
#undef UNROLL
