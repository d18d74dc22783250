/* Shared by the fuzz targets.  Each *_fuzz.c defines LLVMFuzzerTestOneInput over csrc; libFuzzer provides main(), or
 * replay.c without it.
 *
 * Inputs are copied to the end of a block of their own, so that the sanitizer detects a read past the end. A failed
 * claim ends the process, as a sanitizer's finding does.
 */
#ifndef KL_FUZZ_H
#define KL_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLAIM(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Exactly these bytes in a separate block; free() it. */
static inline uint8_t *fuzz_exact(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size != 0 ? size : 1);
    if (copy == NULL)
        abort();
    if (size != 0)
        memcpy(copy, data, size);
    return copy;
}

/* The first n bytes of the input as choices (zeros where it is shorter); the rest is the subject. */
static inline const uint8_t *fuzz_choices(const uint8_t **data, size_t *size, size_t n) {
    static uint8_t choices[64];
    memset(choices, 0, sizeof choices);
    size_t taken = *size < n ? *size : n;
    if (taken != 0)
        memcpy(choices, *data, taken);
    *data += taken;
    *size -= taken;
    return choices;
}

#endif
