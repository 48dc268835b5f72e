/* Calls the kernels on numbers that are the same everywhere and prints what they give, for comparing two machines. */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int msprobe_measure_run(const void *, int, int, int64_t, uint64_t, double *, int64_t *);
int msprobe_measure_runs(const void *, int, int, int, const int64_t *, const int64_t *, int64_t, double *, int64_t *);
int msprobe_pair(const void *, int, const void *, int, int64_t, double, double, int64_t, double *, int64_t *);

enum { SIZE = 9001, FORMATS = 17, FP64 = 0, FP32 = 1 };

static void show(const char *what, int format, const double *floats, int num_floats, const int64_t *counts, int num_counts)
{
    printf("%s %d", what, format);
    for (int i = 0; i < num_floats; i++) printf(" %.17g", floats[i]);
    printf(" |");
    for (int i = 0; i < num_counts; i++) printf(" %" PRIu64, (uint64_t)counts[i]);
    printf("\n");
}

int main(void)
{
    static uint64_t words[2 * SIZE];
    static float singles[2][SIZE];
    uint64_t state = 1;
    double floats[16];
    int64_t counts[8], layout[] = {SIZE, 1}, starts[] = {70000, 3, 500000};
    for (int i = 0; i < 2 * SIZE; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = state ^ state >> 29;
    }
    for (int i = 0; i < SIZE; i++) {
        singles[0][i] = (float)((double)(words[i] >> 40) / 65536 - 128);
        singles[1][i] = singles[0][i] + (i % 3 ? (float)(words[i] & 255) / 4096 : 0);
    }
    for (int format = 0; format < FORMATS; format++) {
        /* Random bits: every kind of NaN, infinities, numbers of all magnitudes. fp64 and fp32 then overflow. */
        msprobe_measure_run(words, format, 7, SIZE, 5, floats, counts);
        show("bits", format, floats, format == FP64 ? 4 : 14, counts, 6);
    }
    msprobe_measure_run(singles[0], FP32, 7, SIZE, 0, floats, counts);
    show("singles", FP32, floats, 14, counts, 6);
    layout[0] = 9000;
    msprobe_measure_runs(singles[0], FP32, 7, 1, layout, starts, 3000, floats, counts);
    show("runs", FP32, floats, 14, counts, 6);
    singles[0][17] = NAN, singles[1][17] = NAN, singles[0][18] = INFINITY;
    msprobe_pair(singles[0], FP32, singles[1], FP32, SIZE, 1e-3, 5e-3, -126, floats, counts);
    show("pair", FP32, floats, 9, counts, 7);
    return 0;
}
