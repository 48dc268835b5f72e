/* Bits to values: formats of 8 and 16 bits to float, integers of 32 and 64 to double; all but 64 exactly. */
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
