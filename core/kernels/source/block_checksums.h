/* The checksums of one block: scattered words, added up alone and times the keys of their positions. */

static inline uint64_t scattered(uint64_t word)
{
    word ^= word >> 32;
    word = word * SCATTER_MULTIPLIER + SCATTER_INCREMENT;
    uint64_t low = (uint32_t)word;
    word ^= low * low & UPPER_HALF;
    return word ^ word >> 32;
}

/* Words of `width` bytes of one row of keys, one by one. */
FORCED void add_words(int width, const char *bits, size_t count, const uint64_t *keys, uint64_t row_key,
                      struct mixed *into)
{
    uint64_t positional = 0, content = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t word = width == 1   ? ((const uint8_t *)bits)[i]
                        : width == 2 ? ((const uint16_t *)bits)[i]
                        : width == 4 ? ((const uint32_t *)bits)[i]
                                     : ((const uint64_t *)bits)[i];
        word = scattered(word);
        content += word;
        positional += word * keys[i];
    }
    into->positional += positional * row_key;
    into->content += content;
}

#if defined(__AVX512DQ__)
#define WORDS __m512i
#define NUM_WORDS 8
#define ALL_WORDS(x) _mm512_set1_epi64((long long)(x))
#define ADD(a, b) _mm512_add_epi64(a, b)
#define XOR(a, b) _mm512_xor_si512(a, b)
#define UPPER(a) _mm512_srli_epi64(a, 32)
#define TO_UPPER(a) _mm512_slli_epi64(a, 32)
#define TIMES_LOWER(a, b) _mm512_mul_epu32(a, b)
#define TIMES(a, b) _mm512_mullo_epi64(a, b)
#define XOR_UPPER(a, b) _mm512_ternarylogic_epi64(a, b, ALL_WORDS(UPPER_HALF), 0x78)
#define LOAD_WORDS(a) _mm512_loadu_si512(a)
#define SUM_OF_WORDS(a) ((uint64_t)_mm512_reduce_add_epi64(a))

FORCED WORDS wide_words(int width, const char *bits)
{
    switch (width) {
    case 1: return _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)bits));
    case 2: return _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)bits));
    case 4: return _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)bits));
    default: return _mm512_loadu_si512(bits);
    }
}
#elif defined(__AVX2__)
#define WORDS __m256i
#define NUM_WORDS 4
#define ALL_WORDS(x) _mm256_set1_epi64x((long long)(x))
#define ADD(a, b) _mm256_add_epi64(a, b)
#define XOR(a, b) _mm256_xor_si256(a, b)
#define UPPER(a) _mm256_srli_epi64(a, 32)
#define TO_UPPER(a) _mm256_slli_epi64(a, 32)
#define TIMES_LOWER(a, b) _mm256_mul_epu32(a, b)
#define TIMES(a, b) \
    ADD(TIMES_LOWER(a, b), TO_UPPER(ADD(TIMES_LOWER(UPPER(a), b), TIMES_LOWER(a, UPPER(b)))))
#define XOR_UPPER(a, b) XOR(a, _mm256_and_si256(b, ALL_WORDS(UPPER_HALF)))
#define LOAD_WORDS(a) _mm256_loadu_si256((const __m256i *)(a))
FORCED uint64_t SUM_OF_WORDS(__m256i words)
{
    uint64_t each[4];
    _mm256_storeu_si256((__m256i *)each, words);
    return each[0] + each[1] + each[2] + each[3];
}

FORCED WORDS wide_words(int width, const char *bits)
{
    int32_t four;
    switch (width) {
    case 1: memcpy(&four, bits, sizeof four); return _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
    case 2: return _mm256_cvtepu16_epi64(_mm_loadl_epi64((const __m128i *)bits));
    case 4: return _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)bits));
    default: return _mm256_loadu_si256((const __m256i *)bits);
    }
}
#endif

#if defined(WORDS)
FORCED WORDS scattered_words(int width, WORDS words)
{
    WORDS multiplier = ALL_WORDS(SCATTER_MULTIPLIER), product;
    if (width == 8) {
        words = XOR(words, UPPER(words));
        product = ADD(TIMES_LOWER(words, multiplier), TO_UPPER(TIMES_LOWER(UPPER(words), multiplier)));
    } else {
        product = TIMES_LOWER(words, multiplier);
    }
    words = ADD(product, ALL_WORDS(SCATTER_INCREMENT));
    words = XOR_UPPER(words, TIMES_LOWER(words, words));
    return XOR(words, UPPER(words));
}

FORCED void mix_words(int width, const char *bits, size_t count, uint64_t position, struct ahead *ahead,
                      struct mixed *into)
{
    WORDS positional = ALL_WORDS(0), content = ALL_WORDS(0);
    while (count) {
        ask_ahead(ahead);
        size_t column = position % KEY_ROW, size = KEY_ROW - column < count ? KEY_ROW - column : count, i = 0;
        uint64_t row_key = key_of(position / KEY_ROW, SEED_ROW) | 1;
        const uint64_t *keys = column_keys + column;
        WORDS of_row = ALL_WORDS(0);
        for (; i + NUM_WORDS <= size; i += NUM_WORDS) {
            WORDS words = scattered_words(width, wide_words(width, bits + i * (size_t)width));
            content = ADD(content, words);
            of_row = ADD(of_row, TIMES(words, LOAD_WORDS(keys + i)));
        }
        positional = ADD(positional, TIMES(of_row, ALL_WORDS(row_key)));
        if (i < size) add_words(width, bits + i * (size_t)width, size - i, keys + i, row_key, into);
        bits += size * (size_t)width;
        position += size;
        count -= size;
    }
    into->positional += SUM_OF_WORDS(positional);
    into->content += SUM_OF_WORDS(content);
}
#else
FORCED void mix_words(int width, const char *bits, size_t count, uint64_t position, struct ahead *ahead,
                      struct mixed *into)
{
    while (count) {
        ask_ahead(ahead);
        size_t column = position % KEY_ROW, size = KEY_ROW - column < count ? KEY_ROW - column : count;
        add_words(width, bits, size, column_keys + column, key_of(position / KEY_ROW, SEED_ROW) | 1, into);
        bits += size * (size_t)width;
        position += size;
        count -= size;
    }
}
#endif

static void mix(int width, const void *bits, size_t count, uint64_t position, struct ahead *ahead,
                struct mixed *into)
{
    switch (width) {
    case 1: mix_words(1, bits, count, position, ahead, into); break;
    case 2: mix_words(2, bits, count, position, ahead, into); break;
    case 4: mix_words(4, bits, count, position, ahead, into); break;
    default: mix_words(8, bits, count, position, ahead, into);
    }
}

/* ---- NaN ---- */

#define DEFINE_NANS(word) \
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
    }
DEFINE_NANS(uint8_t)
DEFINE_NANS(uint16_t)
DEFINE_NANS(uint32_t)
DEFINE_NANS(uint64_t)

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

/* ---- rows ---- */

#define ADD_ROW_OF(word) \
    for (size_t i = 0; i < columns; i++) { \
        uint64_t wide = ((const word *)bits)[i]; \
        wide = (wide & nan.magnitude) > nan.largest ? nan.canonical : wide; \
        uint64_t mixed = scattered(wide); \
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
