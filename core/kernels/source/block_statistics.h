/* Sums over one block. */
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
        *sums = (struct sums){low, high, sum, absolute, squares, 0, 0, 0, zeros, 0}; \
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
