/* A tensor of any layout as runs of memory. */
#include "kernels.h"

#include <string.h>

/* Visits elements in the order of memory, for results that do not depend on it. */
void sort_by_stride(struct walk *walk)
{
    for (int i = 0; i < walk->dimensions; i++) {
        int64_t shape = walk->shape[i], stride = walk->strides[i];
        if (stride < 0) {
            walk->at += (shape - 1) * stride;
            stride = -stride;
        }
        int j = i;
        for (; j > 0 && walk->strides[j - 1] < stride; j--) {
            walk->shape[j] = walk->shape[j - 1];
            walk->strides[j] = walk->strides[j - 1];
        }
        walk->shape[j] = shape;
        walk->strides[j] = stride;
    }
}

/* Merges dimensions that lie together, so that a contiguous tensor has one. */
void merge_dimensions(struct walk *walk)
{
    int last = 0;
    for (int i = 1; i < walk->dimensions; i++) {
        if (walk->shape[i] == 1) continue;
        if (walk->shape[last] == 1 || walk->strides[last] == walk->strides[i] * walk->shape[i]) {
            walk->shape[last] *= walk->shape[i];
        } else {
            walk->shape[++last] = walk->shape[i];
        }
        walk->strides[last] = walk->strides[i];
    }
    walk->dimensions = last + 1;
}

#define COPY_STRIDED(word) \
    do { \
        word *to = (word *)into; \
        for (int64_t i = 0; i < count; i++) to[i] = *(const word *)(from + i * stride); \
    } while (0)

static void copy_strided(char *into, const char *from, int64_t stride, int64_t count, int width)
{
    if (stride == width) {
        memcpy(into, from, (size_t)(count * width));
        return;
    }
    switch (width) {
    case 1: COPY_STRIDED(uint8_t); break;
    case 2: COPY_STRIDED(uint16_t); break;
    case 4: COPY_STRIDED(uint32_t); break;
    default: COPY_STRIDED(uint64_t);
    }
}

/* Copies the next elements in row-major order. */
void gather(struct walk *walk, int64_t count, char *into)
{
    int inner = walk->dimensions - 1;
    while (count) {
        int64_t run = walk->shape[inner] - walk->index[inner];
        if (run > count) run = count;
        copy_strided(into, walk->at, walk->strides[inner], run, walk->width);
        into += run * walk->width;
        count -= run;
        walk->index[inner] += run;
        walk->at += run * walk->strides[inner];
        for (int i = inner; walk->index[i] == walk->shape[i]; i--) {
            walk->at -= walk->shape[i] * walk->strides[i];
            walk->index[i] = 0;
            if (i == 0) return;
            walk->index[i - 1]++;
            walk->at += walk->strides[i - 1];
        }
    }
}
