/* Content sums of the rows and columns of a matrix, as core/content_vectors.py defines them. */
#include "kernels.h"

/* Sums a row-major matrix without gaps; column_sums must hold zeros. */
EXPORTED void msprobe_vectors(const char *matrix, int format, int64_t rows, int64_t columns, uint64_t *row_sums,
                              uint64_t *column_sums)
{
    struct nan_pattern nan = nan_patterns[format];
    if (!nan.largest) nan = (struct nan_pattern){0, 1, 0};
    int width = widths[format];
    for (int64_t row = 0; row < rows; row++)
        row_sums[row] = chosen_loops->add_row(width, nan, matrix + row * columns * width, (size_t)columns, column_sums);
}
