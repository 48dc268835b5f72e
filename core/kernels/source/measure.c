/* One pass over a tensor for all that a record keeps of it: statistics, sketch and checksums, block by block in cache.
 *
 * The definitions are those of core/statistics.py, core/sketches.py and core/checksums.py. */
#include "kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* As core/statistics.py and core/sketches.py. */
#define CANCELLATION 1e-4
#define LARGE 1e280
#define HEADROOM 0x1p-64

/* ---- merging blocks ---- */

/* Sums over blocks whose squares neither overflow nor lose bits. */
struct total {
    int64_t finite;
    double low, high, sum, absolute, squares, m2;
};

/* Statistics of a part, in a form that holds over the whole range. */
struct part {
    int64_t finite;
    double low, high, mean, mean_abs, m2, norm;
};

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

/* A difference of two means, 0 where it is only their rounding: its square could overflow. */
static double deviation(double mean, double other)
{
    double difference = mean - other;
    return fabs(difference) > 8 * DBL_EPSILON * fabs(other) ? difference : 0;
}

/* Chan, Golub, LeVeque, 1979, as core/statistics.py. */
static void add_part(struct part *into, struct part part)
{
    if (!part.finite) return;
    if (!into->finite) {
        *into = part;
        return;
    }
    double finite = (double)(into->finite + part.finite);
    double weights[] = {(double)into->finite / finite, (double)part.finite / finite};
    double mean = into->mean * weights[0] + part.mean * weights[1];
    double deviations[] = {deviation(into->mean, mean), deviation(part.mean, mean)};
    into->m2 += part.m2 + deviations[0] * deviations[0] * (double)into->finite +
                deviations[1] * deviations[1] * (double)part.finite;
    into->mean = mean;
    into->mean_abs = into->mean_abs * weights[0] + part.mean_abs * weights[1];
    into->low = smaller(into->low, part.low);
    into->high = larger(into->high, part.high);
    into->norm = hypot(into->norm, part.norm);
    into->finite += part.finite;
}

struct state {
    enum format format;
    int what, single;
    uint64_t position;
    struct total total;
    struct part extreme;
    int64_t counts[ZEROS + 1];
    struct mixed mixed;
    int has_large;
    struct projections *projections; /* of common blocks, and of those with values above LARGE */
    double scratch[3][BLOCK];
};

/* The sum of squared deviations of a block whose squares are safe. */
static double block_m2(int single, const void *values, size_t count, const struct sums *sums, int64_t finite)
{
    double m2 = sums->squares - sums->sum * sums->sum / (double)finite, rounding;
    if (m2 >= CANCELLATION * sums->squares) return m2;
        chosen_loops->centred(single, values, count, sums->sum / (double)finite, &m2, &rounding);
    m2 -= rounding * rounding / (double)finite;
    return m2 > 0 ? m2 : 0;
}

/* Adds a block of doubles with values whose squares overflow or lose bits. */
static void add_extreme(struct state *state, const double *values, size_t count, const struct sums *sums,
                        int64_t finite, double peak)
{
    double *scaled = state->scratch[2], cleaned[BLOCK];
    struct sums small;
    for (size_t i = 0; i < count; i++) scaled[i] = values[i] / peak;
    chosen_loops->finite_sums(0, scaled, count, cleaned, &small);
    double n = (double)finite;
    add_part(&state->extreme, (struct part){
        .finite = finite, .low = sums->low, .high = sums->high,
        .mean = small.sum / n * peak, .mean_abs = small.absolute / n * peak,
        .m2 = block_m2(0, scaled, count, &small, finite) * peak * peak, .norm = sqrt(small.squares) * peak,
    });
}

static void add_statistics(struct state *state, const void *values, size_t count, const struct sums *sums)
{
    struct total *total = &state->total;
    state->counts[NANS] += sums->nans;
    state->counts[POS_INFS] += sums->pos_infs;
    state->counts[NEG_INFS] += sums->neg_infs;
    state->counts[ZEROS] += sums->zeros;
    int64_t finite = (int64_t)count - sums->nans - sums->pos_infs - sums->neg_infs;
    if (!finite) return;
    double peak = larger(-sums->low, sums->high);
    if (peak != 0 && !(peak > SAFE_SMALLEST && peak < SAFE_LARGEST)) {
        add_extreme(state, values, count, sums, finite, peak);
        return;
    }
    double m2 = block_m2(state->single, values, count, sums, finite);
    if (total->finite) {
        double apart = deviation(sums->sum / (double)finite, total->sum / (double)total->finite);
        m2 += apart * apart * ((double)total->finite / (double)(total->finite + finite)) * (double)finite;
    }
    total->finite += finite;
    total->low = smaller(total->low, sums->low);
    total->high = larger(total->high, sums->high);
    total->sum += sums->sum;
    total->absolute += sums->absolute;
    total->squares += sums->squares;
    total->m2 += m2;
}

static void add_sketch(struct state *state, const void *finite, size_t count, const struct sums *sums)
{
    if (larger(-sums->low, sums->high) <= LARGE || sums->low > sums->high) {
        chosen_loops->project(state->single, finite, count, state->position, &state->projections[0]);
        return;
    }
    double *scaled = state->scratch[2];
    for (size_t i = 0; i < count; i++) scaled[i] = ((const double *)finite)[i] * HEADROOM;
    if (!state->has_large) memset(&state->projections[1], 0, sizeof state->projections[1]);
    state->has_large = 1;
    chosen_loops->project(0, scaled, count, state->position, &state->projections[1]);
}

static void add_checksums(struct state *state, const void *bits, size_t count)
{
    if (chosen_loops->any_nan(state->format, bits, count)) {
        chosen_loops->canonical(state->format, bits, count, state->scratch[2]);
        bits = state->scratch[2];
    }
    chosen_loops->mix(widths[state->format], bits, count, state->position, &state->mixed);
}

static void add_block(struct state *state, const void *bits, size_t count)
{
    if (state->what & (STATISTICS | SKETCH)) {
        struct sums sums;
        const void *values = bits, *finite;
        if (state->format != FP32 && state->format != FP64) {
            chosen_loops->widen(state->format, bits, count, state->scratch[0]);
            values = state->scratch[0];
        }
        finite = values;
        chosen_loops->sums(state->single, values, count, &sums);
        if (!isfinite(sums.absolute)) {
            finite = state->scratch[1];
            chosen_loops->finite_sums(state->single, values, count, state->scratch[1], &sums);
        }
        if (state->what & STATISTICS) add_statistics(state, values, count, &sums);
        if (state->what & SKETCH) add_sketch(state, finite, count, &sums);
    }
    if (state->what & CHECKSUMS) add_checksums(state, bits, count);
    state->position += count;
}

/* ---- results ---- */

static void write_statistics(const struct state *state, double *floats, int64_t *counts)
{
    const struct total *total = &state->total;
    struct part whole = {0}, common = {.finite = total->finite};
    if (common.finite) {
        double n = (double)total->finite;
        common = (struct part){total->finite, total->low, total->high, total->sum / n, total->absolute / n,
                               total->m2, sqrt(total->squares)};
    }
    add_part(&whole, common);
    add_part(&whole, state->extreme);
    memcpy(counts, state->counts, sizeof state->counts);
    if (!whole.finite) {
        for (int i = MIN; i <= NORM; i++) floats[i] = NAN;
        return;
    }
    floats[MIN] = whole.low;
    floats[MAX] = whole.high;
    floats[MEAN] = whole.mean;
    floats[MEAN_ABS] = whole.mean_abs;
    floats[M2] = whole.m2;
    floats[NORM] = whole.norm;
}

/* Applies the signs T and W; uses up the rows. */
static void fold(struct projections *projections, double *sketch)
{
    for (int half = 0; half < 2; half++) {
        double (*rows)[GROUP] = projections->half[half];
        for (int bit = 0; bit < SKETCH_SIZE / 2; bit++) {
            double signed_sum[GROUP] = {0}, projection = 0;
            for (int row = 0; row < HALF_SIGNS >> (bit + 1); row++)
                for (int lane = 0; lane < GROUP; lane++) {
                    double even = rows[2 * row][lane], odd = rows[2 * row + 1][lane];
                    signed_sum[lane] += even - odd;
                    rows[row][lane] = even + odd;
                }
            const double *signs = lane_signs[half * SKETCH_SIZE / 2 + bit];
            for (int lane = 0; lane < GROUP; lane++) projection += signed_sum[lane] * signs[lane];
            sketch[half * SKETCH_SIZE / 2 + bit] = projection;
        }
    }
}

static void write_sketch(struct state *state, double *floats)
{
    double large[SKETCH_SIZE];
    fold(&state->projections[0], floats + PROJECTIONS);
    if (!state->has_large) return;
    fold(&state->projections[1], large);
    for (int j = 0; j < SKETCH_SIZE; j++) floats[PROJECTIONS + j] += large[j] / HEADROOM;
}

/* ---- entry ---- */

/* Blocks by which memory is asked for before it is needed, while another block is computed on. */
enum { AHEAD = 2, CACHE_LINE = 64 };

static void prefetch(const char *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += CACHE_LINE) __builtin_prefetch(from + i, 0, 2);
}

static void measure_walk(struct walk *walk, struct state *state)
{
    double gathered[BLOCK];
    int64_t left = 1;
    int contiguous = walk->dimensions == 1 && walk->strides[0] == walk->width;
    for (int i = 0; i < walk->dimensions; i++) left *= walk->shape[i];
    while (left) {
        /* Blocks begin at multiples of BLOCK of the whole tensor. */
        int64_t count = BLOCK - (int64_t)(state->position % BLOCK);
        if (count > left) count = left;
        if (contiguous) {
            prefetch(walk->at + AHEAD * count * walk->width, count * walk->width);
            add_block(state, walk->at, (size_t)count);
            walk->at += count * walk->width;
        } else {
            gather(walk, count, (char *)gathered);
            add_block(state, gathered, (size_t)count);
        }
        left -= count;
    }
}

static int measure(struct walk *walk, enum format format, int what, uint64_t offset, double *floats, int64_t *counts)
{
    struct projections projections[2];
    struct state state;
    if (!what) return 0;
    memset(&state, 0, offsetof(struct state, scratch));
    state.format = format;
    state.what = what;
    state.single = format != FP64 && format < INT32;
    state.position = offset;
    state.projections = projections;
    state.total.low = INFINITY;
    state.total.high = -INFINITY;
    if (what & SKETCH) memset(&projections[0], 0, sizeof projections[0]);
    if (what == STATISTICS) sort_by_stride(walk);
    merge_dimensions(walk);
    measure_walk(walk, &state);
    if (what & STATISTICS) write_statistics(&state, floats, counts);
    if (what & SKETCH) write_sketch(&state, floats);
    if (what & CHECKSUMS) {
        counts[CHECKSUM] = (int64_t)state.mixed.positional;
        counts[CONTENT_SUM] = (int64_t)state.mixed.content;
    }
    return 0;
}

/* Measures a tensor of any layout; `layout` is its shape, then its strides in elements. */
EXPORTED int msprobe_measure(const void *data, int format, int what, int dimensions, const int64_t *layout,
                             uint64_t offset, double *floats, int64_t *counts)
{
    struct walk walk = {.at = data, .dimensions = dimensions};
    if (format < 0 || format >= FORMATS || dimensions < 1 || dimensions > MOST_DIMENSIONS) return 1;
    walk.width = widths[format];
    for (int i = 0; i < dimensions; i++) {
        walk.shape[i] = layout[i];
        walk.strides[i] = layout[dimensions + i] * walk.width;
    }
    uint64_t before = plain_arithmetic();
    int failed = measure(&walk, (enum format)format, what, offset, floats, counts);
    restore_arithmetic(before);
    return failed;
}

/* Measures `count` elements that lie one after the other. */
EXPORTED int msprobe_measure_run(const void *data, int format, int what, int64_t count, uint64_t offset,
                                 double *floats, int64_t *counts)
{
    int64_t layout[] = {count, 1};
    return msprobe_measure(data, format, what, 1, layout, offset, floats, counts);
}
