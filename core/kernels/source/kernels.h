/* What the files of the kernels share: formats, one block of work, and the loops that exist once per instruction set. */
#ifndef MSPROBE_KERNELS_H
#define MSPROBE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* At the beginning of a line of the cache, as the widest loads and stores like it. */
#define ALIGNED __attribute__((aligned(64)))

#define EXPORTED __attribute__((visibility("default")))

/* Squares of numbers between these are safe in float, where a block's largest magnitude is one. */
#define QUICK_SMALLEST 0x1p-50
#define QUICK_LARGEST 0x1p60

/* Squares of numbers between these neither overflow nor lose bits; as core/statistics.py and core/measures.py. */
#define SAFE_SMALLEST 1e-140
#define SAFE_LARGEST 1e140

/* Elements of one block. Its bits, its values as double and the sums of the sketch stay in the first-level cache. */
enum { BLOCK = 2048 };
/* Dimensions of a tensor after merging those that lie together. */
enum { MOST_DIMENSIONS = 64 };

/* Formats of real elements; core/kernels/__init__.py has the same numbers. */
enum format {
    FP64, FP32, FP16, BF16, E4M3, E5M2, E4M3FNUZ, E5M2FNUZ, E8M0,
    INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FORMATS
};

/* What can be asked. */
enum { STATISTICS = 1, SKETCH = 2, CHECKSUMS = 4 };

/* Order of a result's doubles and integers: the rows of a slot table. */
enum { MIN, MAX, MEAN, MEAN_ABS, M2, NORM, PROJECTIONS };
enum { NANS, POS_INFS, NEG_INFS, ZEROS, CHECKSUM, CONTENT_SUM };

/* Sums over one block; low and high over its finite elements. */
struct sums {
    double low, high, sum, absolute, squares;
    int64_t nans, pos_infs, neg_infs, zeros;
    int quick; /* summed in float: see block_quick.h */
};

/* Memory to ask for while a block is computed on: `step` bytes for each AHEAD_STEP elements. */
enum { AHEAD_STEP = 256, CACHE_LINE = 64 };
struct ahead {
    const char *from;
    size_t step;
};

static inline void ask_ahead(struct ahead *ahead)
{
    const char *end = ahead->from + ahead->step;
    for (; ahead->from < end; ahead->from += CACHE_LINE) __builtin_prefetch(ahead->from, 0, 2);
}

/* The sketch while it grows (see block_sketch.h). */
enum { SKETCH_SIZE = 8, GROUP = 64, ROWS = 8, DRAWS = 16 };
struct projections {
    ALIGNED double rows[ROWS][GROUP];
    uint64_t draws, drawn_for; /* the rows of 16 groups; valid when drawn */
    int drawn;
};

struct mixed {
    uint64_t positional, content;
};

/* Sums over one block of a pair of tensors, x against y. */
struct pair_sums {
    double high_x, high_y, high_difference, high_relative, high_distance; /* largest magnitudes */
    double sum_relative, sum_distance, product, squares_x, squares_y, squares_difference, absolute;
    int64_t differing, within[2], signs_differ;
};

/* What distances are measured in: see pair.c. */
struct pair_units {
    double tolerances[2];
    int64_t smallest_exponent;
};

/* Bit patterns of NaN; largest is 0 where a format needs no canonical one. */
struct nan_pattern {
    uint64_t magnitude, largest, canonical;
};
extern const struct nan_pattern nan_patterns[FORMATS];

/* The loops of one instruction set. `single` tells that values are float, else double. */
struct loops {
    const char *name;
    void (*widen)(enum format format, const void *bits, size_t count, void *values);
    void (*sums)(int single, const void *values, size_t count, struct sums *sums);
    size_t (*quick_sums)(enum format format, const void *bits, size_t count, struct ahead *ahead, struct sums *sums);
    void (*finite_sums)(int single, const void *values, size_t count, void *cleaned, struct sums *sums);
    void (*centred)(int single, const void *values, size_t count, double mean, double *squares, double *rounding);
    void (*project)(int single, const void *values, size_t count, uint64_t position, struct ahead *ahead,
                    struct projections *into);
    int (*any_nan)(enum format format, const void *bits, size_t count);
    void (*canonical)(enum format format, const void *bits, size_t count, void *canonical);
    void (*doubles)(enum format format, const void *bits, size_t count, double *values);
    void (*pair)(const double *x, const double *y, size_t count, struct pair_units units, struct pair_sums *sums);
    void (*mix)(int width, const void *bits, size_t count, uint64_t position, struct ahead *ahead, struct mixed *into);
    uint64_t (*add_row)(int width, struct nan_pattern nan, const void *bits, size_t columns, uint64_t *column_sums);
};

extern const struct loops loops_baseline, loops_avx2, loops_avx512;

/* Values of the formats of 8 bits, float: [format - E4M3][bits]. */
extern float values_of_8_bits[5][256];

/* A tensor of any layout: where the next element is, and the strides in bytes (walk.c). */
struct walk {
    const char *at;
    int width, dimensions;
    int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS], index[MOST_DIMENSIONS];
};

void sort_by_stride(struct walk *walk);
void merge_dimensions(struct walk *walk);
void gather(struct walk *walk, int64_t count, char *into);

/* Bytes of an element of each format. */
extern const int widths[FORMATS];

/* The signs W of the sketch, and the shifts that bring the bit of each lane to the place of a sign. */
extern double lane_signs[SKETCH_SIZE][GROUP];
extern uint64_t lane_shifts[GROUP];

/* The finaliser of SplitMix64, as core/mixing.py. */
static inline uint64_t mix_word(uint64_t word)
{
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

#define GOLDEN 0x9E3779B97F4A7C15u

static inline uint64_t key_of(uint64_t index, uint64_t seed)
{
    return mix_word(index * GOLDEN + seed);
}

/* As core/mixing.py. */
#define SCATTER_MULTIPLIER 0x9E3779B1u
#define SCATTER_INCREMENT 0x510E527FADE682D1u
#define UPPER_HALF 0xFFFFFFFF00000000u

/* The part of a position's key that depends on its place in a row of keys (core/checksums.py). */
enum { KEY_ROW = 256 };
extern uint64_t column_keys[KEY_ROW];

/* The loops in use. */
extern const struct loops *chosen_loops;

/* Arithmetic as the definitions have it, whatever the program has set; gives what to restore. */
uint64_t plain_arithmetic(void);
void restore_arithmetic(uint64_t before);

/* Seeds, as core/checksums.py and core/sketches.py. */
#define SEED_COLUMN 0xA54FF53A5F1D36F1u
#define SEED_ROW 0x9B05688C2B3E6C1Fu
#define SEED_D 0x6A09E667F3BCC908u
#define SEED_W 0xBB67AE8584CAA73Bu
#define SEED_T 0x3C6EF372FE94F82Bu

#endif
