/* The loops over one block, compiled once for each instruction set with -DLOOPS=loops_NAME -DLOOPS_NAME="NAME".
 *
 * Each loop is plain C that a compiler vectorises; `omp simd` permits it to reorder sums. NaN and infinities are looked
 * for only where a sum says that there are any. */
#include "kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define FORCED static inline __attribute__((always_inline))

#include "block_values.h"

#include "block_statistics.h"

#include "block_quick.h"

#include "block_sketch.h"

#include "block_pairs.h"

#include "block_checksums.h"

const struct loops LOOPS = {
    LOOPS_NAME, widen, sums, quick_sums, finite_sums, centred, project, any_nan, canonical, doubles, pair, mix, add_row,
};
