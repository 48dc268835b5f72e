/* One pass over a pair of tensors for all that is compared of them.
 *
 * The definitions are those of core/measures.py. Distances come in units of the exponent of the reference: multiplied by
 * 2^(p-1) they are ulps of a format of p bits. Tensors with magnitudes whose squares overflow or lose bits are left to
 * the caller. */
#include "kernels.h"

#include <math.h>
#include <string.h>

/* Order of a result's doubles and integers; core/kernels/pairs.py has the same. */
enum {
    MAX_DIFFERENCE, MAX_RELATIVE, MAX_DISTANCE, SUM_RELATIVE, SUM_DISTANCE, PRODUCT, SQUARES_X, SQUARES_Y,
    SQUARES_DIFFERENCE
};
enum { FINITE, ALIKE, UNLIKE, DIFFERING, WITHIN, WITHIN_LOOSE, SIGNS_DIFFER };

static int is_unsafe(double high) { return high != 0 && !(high > SAFE_SMALLEST && high < SAFE_LARGEST); }

/* Puts 0 on both sides where either is not finite, and counts those. */
static void take_out_nonfinite(double *x, double *y, size_t count, int64_t *counts)
{
    int64_t alike = 0, unlike = 0;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(x[i]) && isfinite(y[i])) continue;
        if (x[i] == y[i] || (x[i] != x[i] && y[i] != y[i])) alike++;
        else unlike++;
        x[i] = y[i] = 0;
    }
    counts[ALIKE] += alike;
    counts[UNLIKE] += unlike;
}

static double larger(double a, double b) { return a > b ? a : b; }

static int add_block(double *x, double *y, size_t count, struct pair_units units, double *floats, int64_t *counts)
{
    struct pair_sums sums;
    int64_t others = counts[ALIKE] + counts[UNLIKE];
    chosen_loops->pair(x, y, count, units, &sums);
    if (!isfinite(sums.absolute)) {
        take_out_nonfinite(x, y, count, counts);
        chosen_loops->pair(x, y, count, units, &sums);
    }
    others = counts[ALIKE] + counts[UNLIKE] - others;
    if (is_unsafe(sums.high_x) || is_unsafe(sums.high_y) || is_unsafe(sums.high_difference)) return 1;
    floats[MAX_DIFFERENCE] = larger(floats[MAX_DIFFERENCE], sums.high_difference);
    floats[MAX_RELATIVE] = larger(floats[MAX_RELATIVE], sums.high_relative);
    floats[MAX_DISTANCE] = larger(floats[MAX_DISTANCE], sums.high_distance);
    floats[SUM_RELATIVE] += sums.sum_relative;
    floats[SUM_DISTANCE] += sums.sum_distance;
    floats[PRODUCT] += sums.product;
    floats[SQUARES_X] += sums.squares_x;
    floats[SQUARES_Y] += sums.squares_y;
    floats[SQUARES_DIFFERENCE] += sums.squares_difference;
    counts[FINITE] += (int64_t)count - others;
    counts[DIFFERING] += sums.differing;
    for (int i = 0; i < 2; i++) counts[WITHIN + i] += sums.within[i] - others;
    counts[SIGNS_DIFFER] |= sums.signs_differ;
    return 0;
}

/* Measures `count` pairs of elements; not 0 where this cannot. Integers of 64 bits would lose bits as doubles. */
EXPORTED int msprobe_pair(const void *candidate, int candidate_format, const void *reference, int reference_format,
                          int64_t count, double strict, double loose, int64_t smallest_exponent, double *floats,
                          int64_t *counts)
{
    double x[BLOCK], y[BLOCK];
    struct pair_units units = {{strict, loose}, smallest_exponent};
    if (candidate_format < 0 || candidate_format >= INT64 || reference_format < 0 || reference_format >= INT64) return 1;
    memset(floats, 0, (SQUARES_DIFFERENCE + 1) * sizeof *floats);
    memset(counts, 0, (SIGNS_DIFFER + 1) * sizeof *counts);
    uint64_t before = plain_arithmetic();
    int failed = 0;
    for (int64_t done = 0; done < count && !failed; done += BLOCK) {
        size_t size = count - done < BLOCK ? (size_t)(count - done) : BLOCK;
        chosen_loops->doubles((enum format)candidate_format, candidate, size, x);
        chosen_loops->doubles((enum format)reference_format, reference, size, y);
        failed = add_block(x, y, size, units, floats, counts);
        candidate = (const char *)candidate + size * (size_t)widths[candidate_format];
        reference = (const char *)reference + size * (size_t)widths[reference_format];
    }
    restore_arithmetic(before);
    return failed;
}
