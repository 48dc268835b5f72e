/* The loops over one block, compiled once for each instruction set with -DLOOPS=loops_NAME -DLOOPS_NAME="NAME".
 *
 * Each loop is plain C that a compiler vectorises; `omp simd` permits it to reorder sums. NaN and infinities are looked
 * for only where a sum says that there are any. */
#include "kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#define FORCED static inline __attribute__((always_inline))

/* ---- bits to values: formats of 8 and 16 bits to float, integers of 32 and 64 to double; all but 64 exactly ---- */

#define WIDEN_LOOP(source, target) \
    do { \
        const source *from = bits; \
        target *to = values; \
        for (size_t i = 0; i < count; i++) to[i] = (target)from[i]; \
    } while (0)

static void widen_bf16(const uint16_t *bits, size_t count, float *values)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t word = (uint32_t)bits[i] << 16;
        memcpy(&values[i], &word, sizeof word);
    }
}

static inline float fp16_value(uint16_t bits)
{
    uint32_t magnitude = bits & 0x7FFF, exponent = magnitude & 0x7C00, word;
    float value;
    if (exponent == 0) {
        value = (float)magnitude * 0x1p-24f;
        return bits & 0x8000 ? -value : value;
    }
    word = (magnitude << 13) + (exponent == 0x7C00 ? (255u - 31) << 23 : (127u - 15) << 23);
    word |= (uint32_t)(bits & 0x8000) << 16;
    memcpy(&value, &word, sizeof value);
    return value;
}

static void widen_fp16(const uint16_t *bits, size_t count, float *values)
{
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(bits + i))));
#endif
    for (; i < count; i++) values[i] = fp16_value(bits[i]);
}

static void widen(enum format format, const void *bits, size_t count, void *values)
{
    switch (format) {
    case FP16: widen_fp16(bits, count, values); break;
    case BF16: widen_bf16(bits, count, values); break;
    case INT8: WIDEN_LOOP(int8_t, float); break;
    case UINT8: WIDEN_LOOP(uint8_t, float); break;
    case INT16: WIDEN_LOOP(int16_t, float); break;
    case UINT16: WIDEN_LOOP(uint16_t, float); break;
    case INT32: WIDEN_LOOP(int32_t, double); break;
    case UINT32: WIDEN_LOOP(uint32_t, double); break;
    case INT64: WIDEN_LOOP(int64_t, double); break;
    case UINT64: WIDEN_LOOP(uint64_t, double); break;
    default: {
        const float *table = values_of_8_bits[format - E4M3];
        const uint8_t *from = bits;
        float *to = values;
        for (size_t i = 0; i < count; i++) to[i] = table[from[i]];
    }
    }
}

/* ---- statistics ---- */

/* Sums over all elements; of use when they are finite, which sums->absolute tells. */
#define DEFINE_SUMS(real, absolute_of) \
    static void sums_##real(const real *x, size_t count, struct sums *sums) \
    { \
        real low = (real)INFINITY, high = (real)-INFINITY; \
        double sum = 0, absolute = 0, squares = 0; \
        int32_t zeros = 0; \
        _Pragma("omp simd reduction(min:low) reduction(max:high) reduction(+:sum,absolute,squares,zeros)") \
        for (size_t i = 0; i < count; i++) { \
            real value = x[i]; \
            double wide = value; \
            low = value < low ? value : low; \
            high = value > high ? value : high; \
            sum += wide; \
            absolute += fabs(wide); \
            squares += wide * wide; \
            zeros += value == 0; \
        } \
        *sums = (struct sums){low, high, sum, absolute, squares, 0, 0, 0, zeros}; \
    }
DEFINE_SUMS(float, fabsf)
DEFINE_SUMS(double, fabs)

/* Sums over the finite elements, and a copy with 0 in the place of the others, which are counted. */
#define DEFINE_FINITE_SUMS(real, largest) \
    static void finite_sums_##real(const real *x, size_t count, real *cleaned, struct sums *sums) \
    { \
        real low = (real)INFINITY, high = (real)-INFINITY; \
        int32_t nans = 0, pos_infs = 0, neg_infs = 0; \
        _Pragma("omp simd reduction(min:low) reduction(max:high) reduction(+:nans,pos_infs,neg_infs)") \
        for (size_t i = 0; i < count; i++) { \
            real value = x[i], below = value, above = value; \
            int is_finite = value <= largest && value >= -largest; \
            cleaned[i] = is_finite ? value : 0; \
            below = is_finite ? value : (real)INFINITY; \
            above = is_finite ? value : (real)-INFINITY; \
            low = below < low ? below : low; \
            high = above > high ? above : high; \
            nans += value != value; \
            pos_infs += value > largest; \
            neg_infs += value < -largest; \
        } \
        sums_##real(cleaned, count, sums); \
        sums->low = low; \
        sums->high = high; \
        sums->nans = nans; \
        sums->pos_infs = pos_infs; \
        sums->neg_infs = neg_infs; \
        sums->zeros -= nans + pos_infs + neg_infs; \
    }
DEFINE_FINITE_SUMS(float, FLT_MAX)
DEFINE_FINITE_SUMS(double, DBL_MAX)

/* Sums of squared deviations and of deviations from the mean, over the finite elements. */
#define DEFINE_CENTRED(real, largest) \
    static void centred_##real(const real *x, size_t count, double mean, double *squares, double *rounding) \
    { \
        double sum = 0, sum_of_squares = 0; \
        _Pragma("omp simd reduction(+:sum,sum_of_squares)") \
        for (size_t i = 0; i < count; i++) { \
            real value = x[i]; \
            double deviation = value <= largest && value >= -largest ? (double)value - mean : 0; \
            sum += deviation; \
            sum_of_squares += deviation * deviation; \
        } \
        *squares = sum_of_squares; \
        *rounding = sum; \
    }
DEFINE_CENTRED(float, FLT_MAX)
DEFINE_CENTRED(double, DBL_MAX)

static void sums(int single, const void *values, size_t count, struct sums *sums)
{
    if (single) sums_float(values, count, sums);
    else sums_double(values, count, sums);
}

static void finite_sums(int single, const void *values, size_t count, void *cleaned, struct sums *sums)
{
    if (single) finite_sums_float(values, count, cleaned, sums);
    else finite_sums_double(values, count, cleaned, sums);
}

static void centred(int single, const void *values, size_t count, double mean, double *squares, double *rounding)
{
    if (single) centred_float(values, count, mean, squares, rounding);
    else centred_double(values, count, mean, squares, rounding);
}

/* ---- sketch ----
 *
 * Projection j of a group is T(j) * sum over lanes of W(j, lane) * y(lane), where y carries the sign D. T is 8 bits for
 * each group; instead of multiplying y by 8 signs, it is added to that of 16 rows which the first 4 bits of T name, and
 * to that of 16 others for the last 4: two additions for each element. Signs T and W are applied to the rows once, at
 * the end (measure.c). */

#define DEFINE_PROJECT(real) \
    FORCED void project_lanes_##real( \
        const real *x, size_t first, size_t end, uint64_t group, struct projections *into) \
    { \
        uint64_t flips = key_of(group, SEED_D), rows = key_of(group, SEED_T); \
        double *restrict one = into->half[0][rows & 15], *restrict two = into->half[1][rows >> 4 & 15]; \
        _Pragma("omp simd") \
        for (size_t lane = first; lane < end; lane++) { \
            double value = x[lane - first]; \
            uint64_t word; \
            memcpy(&word, &value, sizeof word); \
            word ^= flips << lane_shifts[lane] & (uint64_t)1 << 63; \
            memcpy(&value, &word, sizeof word); \
            one[lane] += value; \
            two[lane] += value; \
        } \
    } \
    static void project_##real(const real *x, size_t count, uint64_t position, struct projections *into) \
    { \
        size_t done = 0; \
        uint64_t group = position / GROUP; \
        size_t first = position % GROUP; \
        if (first) { \
            done = count < GROUP - first ? count : GROUP - first; \
            project_lanes_##real(x, first, first + done, group++, into); \
        } \
        for (; done + GROUP <= count; done += GROUP) project_lanes_##real(x + done, 0, GROUP, group++, into); \
        if (done < count) project_lanes_##real(x + done, 0, count - done, group, into); \
    }
DEFINE_PROJECT(float)
DEFINE_PROJECT(double)

static void project(int single, const void *values, size_t count, uint64_t position, struct projections *into)
{
    if (single) project_float(values, count, position, into);
    else project_double(values, count, position, into);
}

/* ---- pairs ---- */

/* Gives elements of 64 bits and less as double; scratch of single values is on the stack. */
static void doubles(enum format format, const void *bits, size_t count, double *values)
{
    float narrow[BLOCK];
    if (format == FP64) {
        memcpy(values, bits, count * sizeof *values);
    } else if (format >= INT32) {
        widen(format, bits, count, values);
    } else {
        const float *from = bits;
        if (format != FP32) {
            widen(format, bits, count, narrow);
            from = narrow;
        }
        for (size_t i = 0; i < count; i++) values[i] = from[i];
    }
}

static inline uint64_t word_of(double value)
{
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

/* 2 to the power -e, where e is the exponent of a number, but no less than the smallest one of its format. */
static inline double inverse_of_exponent(double value, int64_t smallest)
{
    int64_t exponent = (int64_t)(word_of(value) >> 52 & 0x7FF) - 1023;
    uint64_t word = (uint64_t)(1023 - (exponent > smallest ? exponent : smallest)) << 52;
    double inverse;
    memcpy(&inverse, &word, sizeof inverse);
    return inverse;
}

static void pair(const double *x, const double *y, size_t count, struct pair_units units, struct pair_sums *sums)
{
    double high_x = 0, high_y = 0, high_difference = 0, high_relative = 0, high_distance = 0, sum_relative = 0;
    double product = 0, squares_x = 0, squares_y = 0, squares_difference = 0, absolute = 0;
    double tolerance = units.tolerance;
    int64_t differing = 0, within = 0, smallest = units.smallest_exponent;
    uint64_t signs = 0;
#pragma omp simd reduction(max : high_x, high_y, high_difference, high_relative, high_distance) reduction(| : signs) \
    reduction(+ : sum_relative, product, squares_x, squares_y, squares_difference, absolute, differing, within)
    for (size_t i = 0; i < count; i++) {
        double difference = fabs(x[i] - y[i]), size_x = fabs(x[i]), size_y = fabs(y[i]);
        double relative = difference == 0 ? 0 : difference / size_y;
        double distance = difference * inverse_of_exponent(y[i], smallest);
        high_x = size_x > high_x ? size_x : high_x;
        high_y = size_y > high_y ? size_y : high_y;
        high_difference = difference > high_difference ? difference : high_difference;
        high_relative = relative > high_relative ? relative : high_relative;
        high_distance = distance > high_distance ? distance : high_distance;
        sum_relative += relative;
        absolute += size_x + size_y;
        product += x[i] * y[i];
        squares_x += size_x * size_x;
        squares_y += size_y * size_y;
        squares_difference += difference * difference;
        differing += difference != 0;
        within += difference <= tolerance * size_y;
        signs |= word_of(x[i]) ^ word_of(y[i]);
    }
    *sums = (struct pair_sums){
        high_x, high_y, high_difference, high_relative, high_distance, sum_relative, product, squares_x, squares_y,
        squares_difference, absolute, differing, within, (int64_t)(signs >> 63),
    };
}

/* ---- checksums ---- */

#define DEFINE_CHECKSUMS(word) \
    static int any_nan_##word(struct nan_pattern pattern, const word *bits, size_t count) \
    { \
        word magnitude = (word)pattern.magnitude, largest = (word)pattern.largest, found = 0; \
        _Pragma("omp simd reduction(|:found)") \
        for (size_t i = 0; i < count; i++) found |= (word)((bits[i] & magnitude) > largest); \
        return found != 0; \
    } \
    static void canonical_##word(struct nan_pattern pattern, const word *bits, size_t count, word *canonical) \
    { \
        word magnitude = (word)pattern.magnitude, largest = (word)pattern.largest, nan = (word)pattern.canonical; \
        for (size_t i = 0; i < count; i++) canonical[i] = (bits[i] & magnitude) > largest ? nan : bits[i]; \
    } \
    static void mix_##word(const word *bits, size_t count, uint64_t position, struct mixed *into) \
    { \
        uint64_t positional = 0, content = 0; \
        if (position + count <= FIRST_KEYS) { \
            const uint64_t *keys = first_keys + position; \
            for (size_t i = 0; i < count; i++) { \
                uint64_t wide = bits[i]; \
                content += mix_word(wide + CONTENT_KEY); \
                positional += mix_word(wide + keys[i]); \
            } \
        } else { \
            uint64_t start = position * GOLDEN + SEED_POSITION; \
            for (size_t i = 0; i < count; i++) { \
                uint64_t wide = bits[i]; \
                content += mix_word(wide + CONTENT_KEY); \
                positional += mix_word(wide + mix_word(start + multiples[i])); \
            } \
        } \
        into->positional += positional; \
        into->content += content; \
    }
DEFINE_CHECKSUMS(uint8_t)
DEFINE_CHECKSUMS(uint16_t)
DEFINE_CHECKSUMS(uint32_t)
DEFINE_CHECKSUMS(uint64_t)

static int any_nan(enum format format, const void *bits, size_t count)
{
    struct nan_pattern pattern = nan_patterns[format];
    if (!pattern.largest) return 0;
    switch (format) {
    case FP64: return any_nan_uint64_t(pattern, bits, count);
    case FP32: return any_nan_uint32_t(pattern, bits, count);
    case FP16:
    case BF16: return any_nan_uint16_t(pattern, bits, count);
    default: return any_nan_uint8_t(pattern, bits, count);
    }
}

static void canonical(enum format format, const void *bits, size_t count, void *into)
{
    struct nan_pattern pattern = nan_patterns[format];
    switch (format) {
    case FP64: canonical_uint64_t(pattern, bits, count, into); break;
    case FP32: canonical_uint32_t(pattern, bits, count, into); break;
    case FP16:
    case BF16: canonical_uint16_t(pattern, bits, count, into); break;
    default: canonical_uint8_t(pattern, bits, count, into);
    }
}

static void mix(int width, const void *bits, size_t count, uint64_t position, struct mixed *into)
{
    switch (width) {
    case 1: mix_uint8_t(bits, count, position, into); break;
    case 2: mix_uint16_t(bits, count, position, into); break;
    case 4: mix_uint32_t(bits, count, position, into); break;
    default: mix_uint64_t(bits, count, position, into);
    }
}

#define ADD_ROW_OF(word) \
    for (size_t i = 0; i < columns; i++) { \
        uint64_t wide = ((const word *)bits)[i]; \
        wide = (wide & nan.magnitude) > nan.largest ? nan.canonical : wide; \
        uint64_t mixed = mix_word(wide + CONTENT_KEY); \
        sum += mixed; \
        column_sums[i] += mixed; \
    }

static uint64_t add_row(int width, struct nan_pattern nan, const void *bits, size_t columns, uint64_t *column_sums)
{
    uint64_t sum = 0;
    switch (width) {
    case 1: ADD_ROW_OF(uint8_t) break;
    case 2: ADD_ROW_OF(uint16_t) break;
    case 4: ADD_ROW_OF(uint32_t) break;
    default: ADD_ROW_OF(uint64_t)
    }
    return sum;
}

const struct loops LOOPS = {
    LOOPS_NAME, widen, sums, finite_sums, centred, project, any_nan, canonical, doubles, pair, mix, add_row,
};
