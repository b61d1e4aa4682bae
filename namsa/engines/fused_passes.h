/* The passes of fused.c, for one type of number and one width of vectors: included once for each of
 *
 *   REAL    float or double
 *   LANES   how many of them a vector holds
 *   TARGET  the attribute that lets the compiler use the instruction set
 *   LOW, HIGH  the shuffles' indices
 *
 * The forward transform (decimation in frequency, in place) leaves its output digit-reversed; what it is multiplied by
 * is stored in that order, and the inverse transform (decimation in time) takes it so: nothing is ever put in order.
 * The inverse is the forward transform with real and imaginary parts exchanged, and neither is normalised.
 */

#define vector NAME(vector, REAL, LANES)
#define indices NAME(indices, REAL, LANES)
#define wave NAME(wave, REAL, LANES)
#define dft4 NAME(dft4, REAL, LANES)
#define dft8 NAME(dft8, REAL, LANES)
#define dft_odd NAME(dft_odd, REAL, LANES)
#define dft NAME(dft, REAL, LANES)
#define split NAME(split, REAL, LANES)
#define join NAME(join, REAL, LANES)
#define turn NAME(turn, REAL, LANES)
#define level NAME(level, REAL, LANES)
#define turns NAME(turns, REAL, LANES)
#define convolve NAME(convolve, REAL, LANES)
#define transpose NAME(transpose, REAL, LANES)
#define fetch NAME(fetch, REAL, LANES)
#define put NAME(put, REAL, LANES)
#define row_group NAME(row_group, REAL, LANES)
#define row_pass NAME(row_pass, REAL, LANES)
#define column_pass NAME(column_pass, REAL, LANES)
#define illuminate NAME(illuminate, REAL, LANES)
#define record NAME(record, REAL, LANES)
#define patterns NAME(patterns, REAL, LANES)
#define INLINE TARGET static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef REAL vector __attribute__((vector_size(LANES * sizeof(REAL))));
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, 0, 0LL)) indices
    __attribute__((vector_size(LANES * sizeof(REAL)))); /* for SHUFFLE */
typedef struct {
    vector re, im;
} wave; /* LANES columns (or rows) of a wave, side by side */

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

/* Whether value k of r is one of the `dark` ones in the middle, the highest frequencies, which are zero. */
#define IS_DARK(k, r, dark) (2 * (k) >= (r) - (dark) && 2 * (k) < (r) + (dark))

/* One level of the forward transform: r * m values become r blocks of m, here the first `count` of each. Of every r
 * values that are taken together, the `dark` ones are not read. w: exp(−2πi jk/(r m)), j < m, 0 < k < r. */
INLINE void split(int r, int m, int count, int dark, wave *x, const REAL *w)
{
    for (int j = 0; j < count; j++, x++, w += 2 * (r - 1)) {
        vector re[MAX_RADIX], im[MAX_RADIX];
        UNROLL for (int k = 0; k < r; k++) {
            const wave v = IS_DARK(k, r, dark) ? (wave){{0}, {0}} : x[k * m];
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

/* Its inverse; the `dark` values are not written. */
INLINE void join(int r, int m, int count, int dark, wave *x, const REAL *w)
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
            if (!IS_DARK(k, r, dark))
                x[k * m] = (wave){re[k], im[k]};
    }
}

/* The last level there and back, with the factor between, never leaving the registers; the `dark` factors are zero.
 * Factors are read once a slice, in short runs that the processor foresees too late: they are sent for two blocks
 * ahead. */
INLINE void turn(int r, int blocks, int dark, int mode, wave *x, const wave *factor)
{
    for (int i = 0; i < blocks; i++, x += r, factor += r) {
        vector re[MAX_RADIX], im[MAX_RADIX];
        UNROLL for (int k = 0; k < r; k++)
            if (!IS_DARK(k, r, dark)) {
                __builtin_prefetch(&factor[2 * r + k].re);
                __builtin_prefetch(&factor[2 * r + k].im);
            }
        UNROLL for (int k = 0; k < r; k++)
            re[k] = x[k].re, im[k] = x[k].im;
        if (mode & FORWARD)
            dft(r, re, im);
        UNROLL for (int k = 0; k < r; k++) {
            if (IS_DARK(k, r, dark)) {
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

/* Calls CASE(r, dark) for a radix and a number of dark values that the compiler knows: none, the least or two more. */
#define LEAST(r) (2 - (r) % 2)
#define CASES(r)                          \
    case r:                               \
        if (dark >= LEAST(r) + 2)         \
            CASE(r, LEAST(r) + 2);        \
        else if (dark >= LEAST(r))        \
            CASE(r, LEAST(r));            \
        else                              \
            CASE(r, 0);                   \
        break;
#define ALL_CASES CASES(2) CASES(3) CASES(4) CASES(5) CASES(7) CASES(8)

/* `count` places of a level's blocks, forward or inverse. */
TARGET static void level(int radix, int m, int count, int dark, int mode, wave *x, const REAL *w)
{
#define CASE(r, d) mode == FORWARD ? split(r, m, count, d, x, w) : join(r, m, count, d, x, w)
    switch (radix) {
        ALL_CASES
    }
#undef CASE
}

/* `turn`, for `blocks` blocks in a row. */
TARGET static void turns(int radix, int blocks, int dark, int mode, wave *x, const wave *factor)
{
#define CASE(r, d) turn(r, blocks, d, mode, x, factor)
    switch (radix) {
        ALL_CASES
    }
#undef CASE
}

/* x <- F^-1[factor · F[x]] for `blocks` blocks in a row, from level i down; `mode` may leave out either transform. Of
 * the factor, the `dark` highest multiples of the last level's frequency are zero. Depth first, so that blocks soon fit
 * the first-level cache. */
TARGET static void convolve(const Transform *f, int i, int blocks, int dark, int mode, wave *x, const wave *factor)
{
    const int r = f->radix[i], m = f->block[i];
    const REAL *w = (const REAL *)f->twiddles + f->offset[i];
    if (m == 1) {
        turns(r, blocks, dark, mode, x, factor);
        return;
    }
    for (int b = 0; b < blocks; b++, x += r * m, factor += r * m) {
        if (mode & FORWARD)
            level(r, m, m, 0, FORWARD, x, w);
        convolve(f, i + 1, r, dark, mode, x, factor);
        if (mode & INVERSE)
            level(r, m, m, 0, INVERSE, x, w);
    }
}

/* A square of LANES x LANES numbers, every other vector of `from` and `to`, in log2(LANES) perfect shuffles. */
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

/* Columns x to x + LANES of the rows y to y + LANES, on their way into `row` and out of it. Columns beyond the band limit
 * are not stored: they are zero on the way in and not kept on the way out. The inverse transform comes first, so rows
 * have real and imaginary parts exchanged. */
INLINE void fetch(const Plan *plan, const wave *columns, int y, wave *row, int x)
{
    const int g = plan->place[x / LANES];
    const wave *tile = columns + (long)g * plan->padded_y + y;
    if (g < 0) {
        UNROLL for (int i = 0; i < LANES; i++)
            row[x + i] = (wave){{0}, {0}};
        return;
    }
    transpose(&tile->im, &row[x].re);
    transpose(&tile->re, &row[x].im);
}

INLINE void put(const Plan *plan, wave *columns, int y, const wave *row, int x)
{
    const int g = plan->place[x / LANES];
    wave *tile = columns + (long)g * plan->padded_y + y;
    if (g < 0)
        return;
    transpose(&row[x].im, &tile->re);
    transpose(&row[x].re, &tile->im);
}

/* [inverse FFT · t · FFT] of LANES rows from y on. Where tiles fit the first level's blocks, those that it takes
 * together are fetched just before and put back just after, while the first-level cache has them. */
TARGET static void row_group(const Plan *plan, wave *columns, int y, wave *row, const wave *transmission)
{
    const Transform *f = &plan->x;
    const int r = f->radix[0], m = f->block[0], dark = plan->dark_x;
    const REAL *w = (const REAL *)f->twiddles + f->offset[0];
    if (m % LANES) {
        for (int x = 0; x < plan->padded_x; x += LANES)
            fetch(plan, columns, y, row, x);
        convolve(f, 0, 1, 0, FORWARD | INVERSE, row, transmission);
        for (int x = 0; x < plan->padded_x; x += LANES)
            put(plan, columns, y, row, x);
        return;
    }
    for (int j = 0; j < m; j += LANES) {
        for (int k = 0; k < r; k++)
            if (!IS_DARK(k, r, dark))
                fetch(plan, columns, y, row, j + k * m);
        level(r, m, LANES, dark, FORWARD, row + j, w + 2 * j * (r - 1));
    }
    convolve(f, 1, r, 0, FORWARD | INVERSE, row, transmission);
    for (int j = 0; j < m; j += LANES) {
        level(r, m, LANES, dark, INVERSE, row + j, w + 2 * j * (r - 1));
        for (int k = 0; k < r; k++)
            if (!IS_DARK(k, r, dark))
                put(plan, columns, y, row, j + k * m);
    }
}

/* [inverse FFT · t · FFT] of all rows; the transmission is conjugated. */
TARGET static void row_pass(const Plan *plan, wave *columns, wave *row, const wave *transmission)
{
    for (int y = 0; y < plan->padded_y; y += LANES, transmission += plan->x.n)
        row_group(plan, columns, y, row, transmission);
}

/* [FFT · factor · inverse FFT] of all columns, or what `mode` leaves of it. dark: of each group, or none. */
TARGET static void column_pass(const Plan *plan, wave *columns, const wave *factor, const int *dark, int mode)
{
    for (int g = 0; g < plan->groups; g++)
        convolve(&plan->y, 0, 1, dark ? dark[g] : 0, mode, columns + (long)g * plan->padded_y,
                 factor + (long)g * plan->y.n);
}

/* The phase ramps of a probe's position; times the lens they are the probe. ramp_x: a wave every `stride`. */
TARGET static void illuminate(const Plan *plan, wave *columns, const REAL *ramp_y, const wave *ramp_x, int stride)
{
    for (int g = 0; g < plan->groups; g++, ramp_x += stride)
        for (int y = 0; y < plan->y.n; y++) {
            const REAL c = ramp_y[2 * y], s = ramp_y[2 * y + 1];
            columns[(long)g * plan->padded_y + y] = (wave){ramp_x->re * c - ramp_x->im * s,
                                                           ramp_x->re * s + ramp_x->im * c};
        }
}

/* |ψ|², zero frequency in the centre. */
TARGET static void record(const Plan *plan, const wave *columns, REAL *pattern)
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
        illuminate(plan, columns, (const REAL *)ramps_y + 2L * n * ny, (const wave *)ramps_x + n, probes);
        column_pass(plan, columns, plan->lens, NULL, INVERSE);
        for (int slice = 0; slice < plan->slices; slice++) {
            const int last = slice == plan->slices - 1; /* what is measured is in reciprocal space */
            row_pass(plan, columns, row, plan->transmissions[plan->order[slice]]);
            column_pass(plan, columns, plan->fresnel, plan->dark_y, last ? FORWARD : FORWARD | INVERSE);
        }
        record(plan, columns, (REAL *)out + (long)n * ny * nx);
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
#undef split
#undef join
#undef turn
#undef level
#undef turns
#undef convolve
#undef transpose
#undef fetch
#undef put
#undef row_group
#undef row_pass
#undef column_pass
#undef illuminate
#undef record
#undef patterns
#undef IS_DARK
#undef LEAST
#undef CASES
#undef ALL_CASES
#undef INLINE
#undef UNROLL
