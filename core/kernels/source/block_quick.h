/* Sums over one block of floats in float, a few at a time, that are then added up in double.
 *
 * Three roundings in a sum and five in a sum of squares: within 5 * 2^-24 of the sum of magnitudes or squares. Of use when
 * all values are finite and their squares are safe in float, which the caller looks at. */

#if defined(__AVX512DQ__)
#define FLOATS __m512
#define DOUBLES __m512d
#define INTEGERS __m512i
#define NUM_FLOATS 16
#define OF_FLOATS(name) _mm512_##name##_ps
#define OF_DOUBLES(name) _mm512_##name##_pd
#define OF_INTEGERS(name) _mm512_##name
#define INTEGERS_OF(x) _mm512_castps_si512(x)
#define FLOATS_OF(x) _mm512_castsi512_ps(x)
#define LOAD_HALVES(from) _mm256_loadu_si256((const __m256i *)(from))
#define LOWER_DOUBLES(x) _mm512_cvtps_pd(_mm512_castps512_ps256(x))
#define UPPER_DOUBLES(x) _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))
#define MAGNITUDE(x) _mm512_abs_ps(x)
FORCED int zeros_in(__m512 x) { return __builtin_popcount(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ)); }
#elif defined(__AVX2__)
#define FLOATS __m256
#define DOUBLES __m256d
#define INTEGERS __m256i
#define NUM_FLOATS 8
#define OF_FLOATS(name) _mm256_##name##_ps
#define OF_DOUBLES(name) _mm256_##name##_pd
#define OF_INTEGERS(name) _mm256_##name
#define INTEGERS_OF(x) _mm256_castps_si256(x)
#define FLOATS_OF(x) _mm256_castsi256_ps(x)
#define LOAD_HALVES(from) _mm_loadu_si128((const __m128i *)(from))
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

/* Largest and smallest come from the bits as integers, by other units of the machine than sums: as signed ones they are
 * in the order of positive floats, below which all negative ones are, and as unsigned ones the largest is the negative
 * float that is farthest from 0. */
struct quick_totals {
    DOUBLES sum[2], absolute[2], squares[2];
    INTEGERS highest, lowest, least; /* of the last, the magnitude */
};

FORCED FLOATS load_floats(enum format format, const char *bits, size_t i)
{
    switch (format) {
    case FP16: return OF_FLOATS(cvtph)(LOAD_HALVES(bits + 2 * i));
    case BF16: return FLOATS_OF(OF_INTEGERS(slli_epi32)(OF_INTEGERS(cvtepu16_epi32)(LOAD_HALVES(bits + 2 * i)), 16));
    default: return OF_FLOATS(loadu)((const float *)(const void *)bits + i);
    }
}

FORCED void fold_floats(DOUBLES *into, FLOATS x)
{
    into[0] = OF_DOUBLES(add)(into[0], LOWER_DOUBLES(x));
    into[1] = OF_DOUBLES(add)(into[1], UPPER_DOUBLES(x));
}

FORCED void add_eight(enum format format, const char *bits, size_t first, struct quick_totals *totals)
{
    FLOATS x[8], magnitude[8], squares[2];
    INTEGERS signed_bits[8], magnitude_bits[8];
    for (int i = 0; i < 8; i++) {
        x[i] = load_floats(format, bits, first + (size_t)i * NUM_FLOATS);
        magnitude[i] = MAGNITUDE(x[i]);
        signed_bits[i] = INTEGERS_OF(x[i]);
        magnitude_bits[i] = INTEGERS_OF(magnitude[i]);
    }
    for (int i = 0; i < 2; i++) squares[i] = OF_FLOATS(mul)(x[4 * i], x[4 * i]);
    for (int i = 1; i < 4; i++)
        for (int j = 0; j < 2; j++) squares[j] = OF_FLOATS(fmadd)(x[4 * j + i], x[4 * j + i], squares[j]);
    fold_floats(totals->sum, TREE(OF_FLOATS(add), x));
    fold_floats(totals->absolute, TREE(OF_FLOATS(add), magnitude));
    fold_floats(totals->squares, OF_FLOATS(add)(squares[0], squares[1]));
    totals->highest = OF_INTEGERS(max_epi32)(totals->highest, TREE(OF_INTEGERS(max_epi32), signed_bits));
    totals->lowest = OF_INTEGERS(max_epu32)(totals->lowest, TREE(OF_INTEGERS(max_epu32), signed_bits));
    totals->least = OF_INTEGERS(min_epu32)(totals->least, TREE(OF_INTEGERS(min_epu32), magnitude_bits));
}

FORCED double sum_of_doubles(const DOUBLES *x)
{
    double each[NUM_FLOATS], sum = 0;
    for (int i = 0; i < 2; i++) OF_DOUBLES(storeu)(each + i * NUM_FLOATS / 2, x[i]);
    for (int i = 0; i < NUM_FLOATS; i++) sum += each[i];
    return sum;
}

static double float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Takes sums and range of what was added up. */
static void take_totals(const struct quick_totals *totals, struct sums *sums)
{
    int32_t highest[NUM_FLOATS];
    uint32_t lowest[NUM_FLOATS], least[NUM_FLOATS];
    memcpy(highest, &totals->highest, sizeof highest);
    memcpy(lowest, &totals->lowest, sizeof lowest);
    memcpy(least, &totals->least, sizeof least);
    for (int i = 1; i < NUM_FLOATS; i++) {
        if (highest[i] > highest[0]) highest[0] = highest[i];
        if (lowest[i] > lowest[0]) lowest[0] = lowest[i];
        if (least[i] < least[0]) least[0] = least[i];
    }
    *sums = (struct sums){
        lowest[0] >> 31 ? float_of(lowest[0]) : float_of(least[0]),
        highest[0] >= 0 ? float_of((uint32_t)highest[0]) : -float_of(least[0]),
        sum_of_doubles(totals->sum), sum_of_doubles(totals->absolute), sum_of_doubles(totals->squares),
        0, 0, 0, least[0] == 0, 1,
    };
}

FORCED size_t sums_of(enum format format, const char *bits, size_t count, struct ahead *ahead, struct sums *sums)
{
    const DOUBLES none = OF_DOUBLES(setzero)();
    struct quick_totals totals = {{none, none}, {none, none}, {none, none}};
    size_t done = 0;
    totals.highest = OF_INTEGERS(set1_epi32)(INT32_MIN);
    totals.lowest = INTEGERS_OF(OF_FLOATS(setzero)());
    totals.least = OF_INTEGERS(set1_epi32)(-1);
    for (; done + 8 * NUM_FLOATS <= count; done += 8 * NUM_FLOATS) {
        if (done % AHEAD_STEP == 0) ask_ahead(ahead);
        add_eight(format, bits, done, &totals);
    }
    if (!done) return 0;
    take_totals(&totals, sums);
    if (sums->zeros) {
        sums->zeros = 0;
        for (size_t i = 0; i < done; i += NUM_FLOATS) sums->zeros += zeros_in(load_floats(format, bits, i));
    }
    return done;
}

/* Sums as many of the block's elements as fit; gives how many. */
static size_t quick_sums(enum format format, const void *bits, size_t count, struct ahead *ahead, struct sums *sums)
{
    switch (format) {
    case FP32: return sums_of(FP32, bits, count, ahead, sums);
    case FP16: return sums_of(FP16, bits, count, ahead, sums);
    case BF16: return sums_of(BF16, bits, count, ahead, sums);
    default: return 0;
    }
}
#else
static size_t quick_sums(enum format format, const void *bits, size_t count, struct ahead *ahead, struct sums *sums)
{
    (void)format, (void)bits, (void)sums;
    for (size_t done = 0; done < count; done += AHEAD_STEP) ask_ahead(ahead);
    return 0;
}
#endif
