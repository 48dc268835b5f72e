/* Sums over one block of floats in float, a few at a time, that are then added up in double.
 *
 * Three roundings in a sum and five in a sum of squares: within 5 * 2^-24 of the sum of magnitudes or squares. Of use when
 * all values are finite and their squares are safe in float, which the caller looks at. */

#if defined(__AVX512DQ__)
#define FLOATS __m512
#define DOUBLES __m512d
#define NUM_FLOATS 16
#define OF_FLOATS(name) _mm512_##name##_ps
#define OF_DOUBLES(name) _mm512_##name##_pd
#define LOWER_DOUBLES(x) _mm512_cvtps_pd(_mm512_castps512_ps256(x))
#define UPPER_DOUBLES(x) _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))
#define MAGNITUDE(x) _mm512_abs_ps(x)
FORCED int zeros_in(__m512 x) { return __builtin_popcount(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ)); }
#elif defined(__AVX2__)
#define FLOATS __m256
#define DOUBLES __m256d
#define NUM_FLOATS 8
#define OF_FLOATS(name) _mm256_##name##_ps
#define OF_DOUBLES(name) _mm256_##name##_pd
#define LOWER_DOUBLES(x) _mm256_cvtps_pd(_mm256_castps256_ps128(x))
#define UPPER_DOUBLES(x) _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))
#define MAGNITUDE(x) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)
FORCED int zeros_in(__m256 x)
{
    return __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ)));
}
#endif

#if defined(FLOATS)
#define TREE(of, x) of(of(of(x[0], x[1]), of(x[2], x[3])), of(of(x[4], x[5]), of(x[6], x[7])))

struct quick_totals {
    DOUBLES sum[2], absolute[2], squares[2];
    FLOATS low, high, least;
};

FORCED void fold_floats(DOUBLES *into, FLOATS x)
{
    into[0] = OF_DOUBLES(add)(into[0], LOWER_DOUBLES(x));
    into[1] = OF_DOUBLES(add)(into[1], UPPER_DOUBLES(x));
}

FORCED void add_eight(const float *from, struct quick_totals *totals)
{
    FLOATS x[8], magnitude[8], squares[2];
    for (int i = 0; i < 8; i++) {
        x[i] = OF_FLOATS(loadu)(from + i * NUM_FLOATS);
        magnitude[i] = MAGNITUDE(x[i]);
    }
    for (int i = 0; i < 2; i++) squares[i] = OF_FLOATS(mul)(x[4 * i], x[4 * i]);
    for (int i = 1; i < 4; i++)
        for (int j = 0; j < 2; j++) squares[j] = OF_FLOATS(fmadd)(x[4 * j + i], x[4 * j + i], squares[j]);
    fold_floats(totals->sum, TREE(OF_FLOATS(add), x));
    fold_floats(totals->absolute, TREE(OF_FLOATS(add), magnitude));
    fold_floats(totals->squares, OF_FLOATS(add)(squares[0], squares[1]));
    totals->low = OF_FLOATS(min)(totals->low, TREE(OF_FLOATS(min), x));
    totals->high = OF_FLOATS(max)(totals->high, TREE(OF_FLOATS(max), x));
    totals->least = OF_FLOATS(min)(totals->least, TREE(OF_FLOATS(min), magnitude));
}

FORCED double sum_of_doubles(const DOUBLES *x)
{
    double each[NUM_FLOATS], sum = 0;
    for (int i = 0; i < 2; i++) OF_DOUBLES(storeu)(each + i * NUM_FLOATS / 2, x[i]);
    for (int i = 0; i < NUM_FLOATS; i++) sum += each[i];
    return sum;
}

FORCED double least_of_floats(FLOATS x)
{
    float each[NUM_FLOATS];
    OF_FLOATS(storeu)(each, x);
    for (int i = 1; i < NUM_FLOATS; i++) each[0] = each[i] < each[0] ? each[i] : each[0];
    return each[0];
}

static void quick_sums(const float *x, size_t count, struct ahead *ahead, struct sums *sums)
{
    const DOUBLES none = OF_DOUBLES(setzero)();
    const FLOATS infinity = OF_FLOATS(set1)(INFINITY);
    struct quick_totals totals = {{none, none}, {none, none}, {none, none}, infinity, -infinity, infinity};
    struct sums rest;
    size_t done = 0;
    int64_t zeros = 0;
    for (; done + 8 * NUM_FLOATS <= count; done += 8 * NUM_FLOATS) {
        if (done % AHEAD_STEP == 0) ask_ahead(ahead);
        add_eight(x + done, &totals);
    }
    if (least_of_floats(totals.least) == 0)
        for (size_t i = 0; i < done; i += NUM_FLOATS) zeros += zeros_in(OF_FLOATS(loadu)(x + i));
    sums_float(x + done, count - done, &rest);
    double low = least_of_floats(totals.low), high = -least_of_floats(-totals.high);
    *sums = (struct sums){
        low < rest.low ? low : rest.low, high > rest.high ? high : rest.high,
        sum_of_doubles(totals.sum) + rest.sum, sum_of_doubles(totals.absolute) + rest.absolute,
        sum_of_doubles(totals.squares) + rest.squares, 0, 0, 0, zeros + rest.zeros, done > 0,
    };
}
#else
static void quick_sums(const float *x, size_t count, struct ahead *ahead, struct sums *sums)
{
    for (size_t done = 0; done < count; done += AHEAD_STEP) ask_ahead(ahead);
    sums_float(x, count, sums);
}
#endif
