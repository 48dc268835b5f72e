/* What depends on the machine: the loops for its instructions, its arithmetic, and tables filled when loaded. */
#include "kernels.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- tables ---- */

const struct nan_pattern nan_patterns[FORMATS] = {
    [FP64] = {0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000},
    [FP32] = {0x7FFFFFFF, 0x7F800000, 0x7FC00000},
    [FP16] = {0x7FFF, 0x7C00, 0x7E00},
    [BF16] = {0x7FFF, 0x7F80, 0x7FC0},
    [E4M3] = {0x7F, 0x7E, 0x7F},
    [E5M2] = {0x7F, 0x7C, 0x7E},
};

const int widths[FORMATS] = {8, 4, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8};

float values_of_8_bits[5][256];
ALIGNED uint64_t column_keys[KEY_ROW];
double lane_signs[SKETCH_SIZE][GROUP];
ALIGNED uint64_t lane_shifts[GROUP];

static float value_of_8_bits(enum format format, int bits)
{
    int negative = bits >> 7, magnitude = bits & 0x7F;
    int mantissa_bits = format == E4M3 || format == E4M3FNUZ ? 3 : 2;
    int bias = format == E4M3 ? 7 : format == E4M3FNUZ ? 8 : format == E5M2 ? 15 : 16;
    int exponent = magnitude >> mantissa_bits, mantissa = magnitude & ((1 << mantissa_bits) - 1);
    if (format == E8M0) return bits == 0xFF ? NAN : (float)ldexp(1, bits - 127);
    if (format == E4M3 && magnitude == 0x7F) return NAN;
    if (format == E5M2 && exponent == 31) return mantissa ? NAN : negative ? -INFINITY : INFINITY;
    if ((format == E4M3FNUZ || format == E5M2FNUZ) && bits == 0x80) return NAN;
    int normal = exponent > 0;
    float value = (float)ldexp(mantissa + (normal << mantissa_bits), (normal ? exponent : 1) - bias - mantissa_bits);
    return negative ? -value : value;
}

__attribute__((constructor)) static void fill_tables(void)
{
    for (int format = E4M3; format <= E8M0; format++)
        for (int bits = 0; bits < 256; bits++)
            values_of_8_bits[format - E4M3][bits] = value_of_8_bits((enum format)format, bits);
    for (uint64_t i = 0; i < KEY_ROW; i++) column_keys[i] = key_of(i, SEED_COLUMN) | 1;
    for (uint64_t lane = 0; lane < GROUP; lane++) lane_shifts[lane] = GROUP - 1 - lane;
    for (int j = 0; j < SKETCH_SIZE; j++)
        for (uint64_t lane = 0; lane < GROUP; lane++)
            lane_signs[j][lane] = key_of(lane, SEED_W) >> j & 1 ? -1.0 : 1.0;
}

/* ---- choice of instruction set ---- */

const struct loops *chosen_loops;

__attribute__((constructor)) static void choose(void)
{
    chosen_loops = &loops_baseline;
#if defined(HAS_AVX2)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) chosen_loops = &loops_avx2;
#endif
#if defined(HAS_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        chosen_loops = &loops_avx512;
#endif
}

/* Tells of which sources this library was made (hatch_build.py). */
EXPORTED const char *msprobe_sources(void) { return SOURCES; }

/* Names the loops in use. */
EXPORTED const char *msprobe_instructions(void) { return chosen_loops->name; }

/* Uses the loops of that name, for tests; 0 when this machine or this build lacks them. */
EXPORTED int msprobe_choose(const char *name)
{
    choose();
    const struct loops *all[] = {
        chosen_loops, &loops_baseline,
#if defined(HAS_AVX2)
        chosen_loops == &loops_baseline ? &loops_baseline : &loops_avx2,
#endif
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, name)) {
            chosen_loops = all[i];
            return 1;
        }
    return 0;
}

/* ---- arithmetic ---- */

uint64_t plain_arithmetic(void)
{
#if defined(__x86_64__)
    uint64_t before = _mm_getcsr();
    _mm_setcsr(0x1F80);
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
#else
    uint64_t before = 0;
#endif
    return before;
}

void restore_arithmetic(uint64_t before)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}
