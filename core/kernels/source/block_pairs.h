/* Sums over one block of a pair of tensors. */
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
    double high_x = 0, high_y = 0, high_difference = 0, high_relative = 0, high_distance = 0, sum_relative = 0, sum_distance = 0;
    double product = 0, squares_x = 0, squares_y = 0, squares_difference = 0, absolute = 0;
    double strict = units.tolerances[0], loose = units.tolerances[1];
    int64_t differing = 0, within_strict = 0, within_loose = 0, smallest = units.smallest_exponent;
    uint64_t signs = 0;
#pragma omp simd reduction(max : high_x, high_y, high_difference, high_relative, high_distance) reduction(| : signs) \
    reduction(+ : sum_relative, sum_distance, product, squares_x, squares_y, squares_difference, absolute, differing, \
              within_strict, within_loose)
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
        sum_distance += distance;
        absolute += size_x + size_y;
        product += x[i] * y[i];
        squares_x += size_x * size_x;
        squares_y += size_y * size_y;
        squares_difference += difference * difference;
        differing += difference != 0;
        within_strict += difference <= strict * size_y;
        within_loose += difference <= loose * size_y;
        signs |= word_of(x[i]) ^ word_of(y[i]);
    }
    *sums = (struct pair_sums){
        high_x, high_y, high_difference, high_relative, high_distance, sum_relative, sum_distance, product,
        squares_x, squares_y, squares_difference, absolute, differing, {within_strict, within_loose},
        (int64_t)(signs >> 63),
    };
}
