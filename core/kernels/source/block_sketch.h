/* The sketch of one block.
 *
 * Projection j of a group is T(j, row) * sum over lanes of W(j, lane) * y(lane), where y carries the sign D and row is one
 * of 8: so y is added to that row of sums, one addition for each element; the signs T and W are applied to the rows once,
 * at the end (measure.c). */

static double *row_of(uint64_t group, struct projections *into)
{
    if (group / DRAWS != into->drawn_for || !into->drawn) {
        into->drawn_for = group / DRAWS;
        into->drawn = 1;
        into->draws = key_of(into->drawn_for, SEED_T);
    }
    return into->rows[into->draws >> 4 * (group % DRAWS) & (ROWS - 1)];
}

#define DEFINE_PROJECT(real) \
    static void project_lanes_##real(const real *x, size_t first, size_t end, uint64_t flips, double *restrict row) \
    { \
        _Pragma("omp simd") \
        for (size_t lane = first; lane < end; lane++) { \
            double value = x[lane - first]; \
            uint64_t word; \
            memcpy(&word, &value, sizeof word); \
            word ^= flips << lane_shifts[lane] & (uint64_t)1 << 63; \
            memcpy(&value, &word, sizeof word); \
            row[lane] += value; \
        } \
    } \
    static void project_##real(const real *x, size_t count, uint64_t position, struct ahead *ahead, \
                               struct projections *into) \
    { \
        size_t done = 0; \
        uint64_t group = position / GROUP; \
        size_t first = position % GROUP; \
        if (first) { \
            done = count < GROUP - first ? count : GROUP - first; \
            project_lanes_##real(x, first, first + done, key_of(group, SEED_D), row_of(group, into)); \
            group++; \
        } \
        for (; done + GROUP <= count; done += GROUP, group++) { \
            if (group % (AHEAD_STEP / GROUP) == 0) ask_ahead(ahead); \
            project_group_##real(x + done, key_of(group, SEED_D), row_of(group, into)); \
        } \
        if (done < count) \
            project_lanes_##real(x + done, 0, count - done, key_of(group, SEED_D), row_of(group, into)); \
    }

#if defined(__AVX512DQ__)
static inline __m512d eight_float(const float *x) { return _mm512_cvtps_pd(_mm256_loadu_ps(x)); }
static inline __m512d eight_double(const double *x) { return _mm512_loadu_pd(x); }

#define DEFINE_GROUP(real) \
    static inline void project_group_##real(const real *x, uint64_t flips, double *row) \
    { \
        const __m512i sign = _mm512_set1_epi64(INT64_MIN), all = _mm512_set1_epi64((long long)flips); \
        for (int i = 0; i < GROUP / 8; i++) { \
            __m512i flip = _mm512_sllv_epi64(all, _mm512_load_si512(lane_shifts + 8 * i)); \
            __m512i bits = _mm512_castpd_si512(eight_##real(x + 8 * i)); \
            __m512d value = _mm512_castsi512_pd(_mm512_ternarylogic_epi64(bits, flip, sign, 0x78)); \
            _mm512_storeu_pd(row + 8 * i, _mm512_add_pd(_mm512_loadu_pd(row + 8 * i), value)); \
        } \
    }
#else
#define DEFINE_GROUP(real) \
    FORCED void project_group_##real(const real *x, uint64_t flips, double *restrict row) \
    { \
        _Pragma("omp simd") \
        for (size_t lane = 0; lane < GROUP; lane++) { \
            double value = x[lane]; \
            uint64_t word; \
            memcpy(&word, &value, sizeof word); \
            word ^= flips << lane_shifts[lane] & (uint64_t)1 << 63; \
            memcpy(&value, &word, sizeof word); \
            row[lane] += value; \
        } \
    }
#endif

DEFINE_GROUP(float)
DEFINE_GROUP(double)
DEFINE_PROJECT(float)
DEFINE_PROJECT(double)

static void project(int single, const void *values, size_t count, uint64_t position, struct ahead *ahead,
                    struct projections *into)
{
    if (single) project_float(values, count, position, ahead, into);
    else project_double(values, count, position, ahead, into);
}
