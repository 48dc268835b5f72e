/* One pass over a tensor for all that a record keeps of it: statistics, sketch and checksums, block by block in cache.
 *
 * The definitions are those of core/statistics.py, core/sketches.py and core/checksums.py. */
#include "kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* As core/statistics.py and core/sketches.py. */
#define CANCELLATION 1e-4
/* The same for sums in float, which keeps m2 to 1e-5 of itself. */
#define QUICK_CANCELLATION 0.125
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

/* The root of the sum of two squares; hypot of newer C libraries would keep the library off older ones. */
static double root_of_squares(double a, double b)
{
    double most = larger(a, b), ratio = smaller(a, b) / most;
    return most > 0 && most < INFINITY ? most * sqrt(1 + ratio * ratio) : most;
}

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
    into->norm = root_of_squares(into->norm, part.norm);
    into->finite += part.finite;
}

struct state {
    enum format format;
    int what, single;
    uint64_t position, left, length; /* index of the next element, and how many follow it in its run */
    const int64_t *starts;           /* of the runs that come after */
    struct total total;
    struct part extreme;
    int64_t counts[ZEROS + 1];
    struct mixed mixed;
    int has_large;
    int exact; /* the last block's squares were not safe in float */
    struct ahead ahead;
    struct projections *projections; /* of common blocks, and of those with values above LARGE */
    ALIGNED double scratch[4][BLOCK];
};

/* A block of elements on its way: their bits, their values when they are needed, and those with 0 for what is not finite. */
struct block {
    const void *bits, *values, *finite;
    size_t count;
};

static const void *values_of(struct state *state, struct block *block)
{
    if (!block->values) {
        chosen_loops->widen(state->format, block->bits, block->count, state->scratch[0]);
        block->values = state->scratch[0];
    }
    return block->values;
}

/* The sum of squared deviations of a block whose squares are safe; makes its sum exact where that needs it. */
static double block_m2(struct state *state, int single, struct block *block, struct sums *sums, int64_t finite)
{
    double m2 = sums->squares - sums->sum * sums->sum / (double)finite, rounding;
    if (m2 >= (sums->quick ? QUICK_CANCELLATION : CANCELLATION) * sums->squares) return m2;
    if (sums->quick && sums->low == sums->high) {
        sums->sum = sums->low * (double)finite;
        return 0;
    }
    const void *values = values_of(state, block);
    chosen_loops->centred(single, values, block->count, sums->sum / (double)finite, &m2, &rounding);
    m2 -= rounding * rounding / (double)finite;
    if (sums->quick) sums->sum += rounding;
    return m2 > 0 ? m2 : 0;
}

/* Adds a block of doubles with values whose squares overflow or lose bits. */
static void add_extreme(struct state *state, struct block *block, const struct sums *sums, int64_t finite, double peak)
{
    double *scaled = state->scratch[2], cleaned[BLOCK];
    struct sums small;
    struct block of_scaled = {scaled, scaled, NULL, block->count};
    size_t count = block->count;
    for (size_t i = 0; i < count; i++) scaled[i] = ((const double *)block->values)[i] / peak;
    chosen_loops->finite_sums(0, scaled, count, cleaned, &small);
    double n = (double)finite;
    add_part(&state->extreme, (struct part){
        .finite = finite, .low = sums->low, .high = sums->high,
        .mean = small.sum / n * peak, .mean_abs = small.absolute / n * peak,
        .m2 = block_m2(state, 0, &of_scaled, &small, finite) * peak * peak, .norm = sqrt(small.squares) * peak,
    });
}

static void add_statistics(struct state *state, struct block *block, struct sums *sums)
{
    struct total *total = &state->total;
    state->counts[NANS] += sums->nans;
    state->counts[POS_INFS] += sums->pos_infs;
    state->counts[NEG_INFS] += sums->neg_infs;
    state->counts[ZEROS] += sums->zeros;
    int64_t finite = (int64_t)block->count - sums->nans - sums->pos_infs - sums->neg_infs;
    if (!finite) return;
    double peak = larger(-sums->low, sums->high);
    if (peak != 0 && !(peak > SAFE_SMALLEST && peak < SAFE_LARGEST)) {
        add_extreme(state, block, sums, finite, peak);
        return;
    }
    double m2 = block_m2(state, state->single, block, sums, finite);
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

/* Values of one run, all of them finite. */
static void add_sketch(struct state *state, const void *finite, size_t count, int is_large)
{
    if (!is_large) {
        chosen_loops->project(state->single, finite, count, state->position, &state->ahead, &state->projections[0]);
        return;
    }
    double *scaled = state->scratch[3];
    for (size_t i = 0; i < count; i++) scaled[i] = ((const double *)finite)[i] * HEADROOM;
    if (!state->has_large) memset(&state->projections[1], 0, sizeof state->projections[1]);
    state->has_large = 1;
    chosen_loops->project(0, scaled, count, state->position, &state->ahead, &state->projections[1]);
}

/* Gives bits in which every NaN looks the same. */
static const void *canonical_bits(struct state *state, const void *bits, size_t count)
{
    if (!chosen_loops->any_nan(state->format, bits, count)) return bits;
    chosen_loops->canonical(state->format, bits, count, state->scratch[2]);
    return state->scratch[2];
}

/* Adds what is keyed by an element's index, run by run. */
static void add_keyed(struct state *state, const void *bits, const void *finite, size_t count, int is_large)
{
    size_t width = (size_t)widths[state->format], value = state->single ? sizeof(float) : sizeof(double);
    while (count) {
        if (!state->left) {
            state->position = (uint64_t)*state->starts++;
            state->left = state->length;
        }
        size_t size = state->left < count ? (size_t)state->left : count;
        if (state->what & CHECKSUMS)
            chosen_loops->mix((int)width, bits, size, state->position, &state->ahead, &state->mixed);
        if (state->what & SKETCH) add_sketch(state, finite, size, is_large);
        bits = (const char *)bits + size * width;
        finite = (const char *)finite + size * value;
        state->position += size;
        state->left -= size;
        count -= size;
    }
}

static double peak_of(const struct sums *sums) { return larger(-sums->low, sums->high); }

static int is_quick(const struct sums *sums)
{
    double peak = peak_of(sums);
    return isfinite(sums->absolute) && (peak == 0 || (peak > QUICK_SMALLEST && peak < QUICK_LARGEST));
}

/* Adds the sums over the rest of a block to those over its beginning. */
static void join_sums(struct sums *into, const struct sums *rest)
{
    into->low = smaller(into->low, rest->low);
    into->high = larger(into->high, rest->high);
    into->sum += rest->sum;
    into->absolute += rest->absolute;
    into->squares += rest->squares;
    into->zeros += rest->zeros;
}

/* Sums a block in float; tells whether that is good enough. */
static int sum_quickly(struct state *state, struct block *block, struct sums *sums)
{
    struct sums rest;
    size_t count = block->count;
    size_t done = chosen_loops->quick_sums(state->format, block->bits, count, &state->ahead, sums);
    if (!done || !is_quick(sums)) return 0;
    if (done < count) {
        chosen_loops->sums(1, (const float *)values_of(state, block) + done, count - done, &rest);
        join_sums(sums, &rest);
    }
    return is_quick(sums);
}

/* Sums a block, and finds its finite values where there are others. */
static void sum_block(struct state *state, struct block *block, struct sums *sums)
{
    if (state->single && !state->exact && sum_quickly(state, block, sums)) return;
    const void *values = values_of(state, block);
    chosen_loops->sums(state->single, values, block->count, sums);
    if (!isfinite(sums->absolute)) {
        chosen_loops->finite_sums(state->single, values, block->count, state->scratch[1], sums);
        block->finite = state->scratch[1];
    }
    double peak = peak_of(sums);
    state->exact = !(peak > QUICK_SMALLEST && peak < QUICK_LARGEST);
}

static void add_block(struct state *state, const void *bits, size_t count)
{
    struct block block = {bits, state->format == FP32 || state->format == FP64 ? bits : NULL, NULL, count};
    int is_large = 0, may_be_nan = 1;
    if (state->what & (STATISTICS | SKETCH)) {
        struct sums sums;
        sum_block(state, &block, &sums);
        may_be_nan = block.finite != NULL;
        if (state->what & STATISTICS) add_statistics(state, &block, &sums);
        is_large = sums.low <= sums.high && peak_of(&sums) > LARGE;
    }
    if (state->what & CHECKSUMS && may_be_nan) block.bits = canonical_bits(state, bits, count);
    if (state->what & SKETCH && !block.finite) block.finite = values_of(state, &block);
    if (state->what & (CHECKSUMS | SKETCH)) add_keyed(state, block.bits, block.finite, count, is_large);
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

/* Applies the signs T, parities of row and projection, and W. */
static void fold(const struct projections *projections, double *sketch)
{
    for (int j = 0; j < SKETCH_SIZE; j++) {
        double projection = 0;
        for (int row = 0; row < ROWS; row++) {
            double sum = 0;
            for (int lane = 0; lane < GROUP; lane++) sum += projections->rows[row][lane] * lane_signs[j][lane];
            projection += __builtin_parity((unsigned)(j & row)) ? -sum : sum;
        }
        sketch[j] = projection;
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

/* Blocks by which memory is asked for before it is needed. */
enum { BLOCKS_AHEAD = 2 };

/* Lets the loops over a block share in asking for the one that comes later. */
static void look_ahead(struct state *state, const char *at, int64_t count)
{
    int loops = (state->what & (STATISTICS | SKETCH) ? 1 : 0) + (state->what & SKETCH ? 1 : 0) +
                (state->what & CHECKSUMS ? 1 : 0);
    size_t width = (size_t)widths[state->format];
    state->ahead.from = at + BLOCKS_AHEAD * count * (int64_t)width;
    state->ahead.step = AHEAD_STEP * width / (size_t)loops;
}

static void measure_walk(struct walk *walk, struct state *state)
{
    ALIGNED double gathered[BLOCK];
    int64_t left = 1;
    int contiguous = walk->dimensions == 1 && walk->strides[0] == walk->width;
    for (int i = 0; i < walk->dimensions; i++) left *= walk->shape[i];
    while (left) {
        /* Blocks of one run begin at multiples of BLOCK of the whole tensor. */
        int64_t count = state->starts ? BLOCK : BLOCK - (int64_t)(state->position % BLOCK);
        if (count > left) count = left;
        if (contiguous) {
            look_ahead(state, walk->at, count);
            add_block(state, walk->at, (size_t)count);
            walk->at += count * walk->width;
        } else {
            gather(walk, count, (char *)gathered);
            add_block(state, gathered, (size_t)count);
        }
        left -= count;
    }
}

/* Where a part stands in the whole tensor: as runs, or where starts is NULL as one run from `offset` on. */
struct place {
    uint64_t offset, length;
    const int64_t *starts;
};

static void measure(struct walk *walk, enum format format, int what, struct place place, double *floats, int64_t *counts)
{
    struct projections projections[2];
    struct state state;
    memset(&state, 0, offsetof(struct state, scratch));
    state.format = format;
    state.what = what;
    state.single = format != FP64 && format < INT32;
    state.position = place.offset;
    state.left = place.starts ? 0 : UINT64_MAX;
    state.length = place.length;
    state.starts = place.starts;
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
}

static int measure_layout(const void *data, int format, int what, int dimensions, const int64_t *layout,
                          struct place place, double *floats, int64_t *counts)
{
    struct walk walk = {.at = data, .dimensions = dimensions};
    if (format < 0 || format >= FORMATS || dimensions < 1 || dimensions > MOST_DIMENSIONS) return 1;
    walk.width = widths[format];
    for (int i = 0; i < dimensions; i++) {
        walk.shape[i] = layout[i];
        walk.strides[i] = layout[dimensions + i] * walk.width;
    }
    uint64_t before = plain_arithmetic();
    if (what) measure(&walk, (enum format)format, what, place, floats, counts);
    restore_arithmetic(before);
    return 0;
}

/* Measures a tensor of any layout; `layout` is its shape, then its strides in elements. */
EXPORTED int msprobe_measure(const void *data, int format, int what, int dimensions, const int64_t *layout,
                             uint64_t offset, double *floats, int64_t *counts)
{
    return measure_layout(data, format, what, dimensions, layout, (struct place){offset, 0, NULL}, floats, counts);
}

/* Measures `count` elements that lie one after the other. */
EXPORTED int msprobe_measure_run(const void *data, int format, int what, int64_t count, uint64_t offset,
                                 double *floats, int64_t *counts)
{
    int64_t layout[] = {count, 1};
    return msprobe_measure(data, format, what, 1, layout, offset, floats, counts);
}

/* Measures a part of a tensor whose elements, in row-major order, are runs of `length` in the whole one. */
EXPORTED int msprobe_measure_runs(const void *data, int format, int what, int dimensions, const int64_t *layout,
                                  const int64_t *starts, int64_t length, double *floats, int64_t *counts)
{
    struct place place = {0, (uint64_t)length, starts};
    return measure_layout(data, format, what, dimensions, layout, place, floats, counts);
}
