/* The frame around lz4 blocks round-trips, and an invalid one never leads outside its buffers. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "lz4.h"

/* A simple codec for the test: every byte twice, if possible. */
static int half(const char *from, char *to, int size, int space) {
    if (size % 2 != 0 || size / 2 > space)
        return 0;
    for (int i = 0; i < size; i += 2) {
        if (from[i] != from[i + 1])
            return 0;
        to[i / 2] = from[i];
    }
    return size / 2;
}

static int twofold(const char *from, char *to, int size, int space) {
    if (2 * (int64_t)size > space)
        return -1;
    for (int i = 0; i < 2 * size; i++)
        to[i] = from[i / 2];
    return 2 * size;
}

/* Decompress an exact copy into a buffer of the stated size; -1 for a refused payload. */
static int64_t unpacked(const uint8_t *payload, size_t size, const uint8_t *plain) {
    static const kl_lz4_t lz4 = {twofold, half};
    uint8_t *exact = exact_copy(payload, size);
    int64_t space = kl_lz4_plain_max(exact, size), made = -1;
    if (space >= 0) {
        uint8_t *out = malloc((size_t)space + (space == 0));
        if (out == NULL)
            abort();
        made = kl_lz4_unpack(&lz4, exact, size, out, space);
        CHECK(made <= space);
        if (plain != NULL)
            CHECK(made >= 0 && memcmp(out, plain, (size_t)made) == 0);
        free(out);
    }
    free(exact);
    return made;
}

void test_lz4(void) {
    static const kl_lz4_t lz4 = {twofold, half};
    for (int round = 0; round < 200; round++) {
        int64_t size = (int64_t)random_below(round % 8 == 0 ? 300000 : 400);
        uint8_t *plain = malloc((size_t)size + 1), *packed = malloc((size_t)kl_lz4_packed_max(size));
        if (plain == NULL || packed == NULL)
            abort();
        for (int64_t i = 0; i < size; i++)
            plain[i] = i % 2 != 0 && round % 2 != 0 ? plain[i - 1] : (uint8_t)random_u64();
        int64_t made = kl_lz4_pack(&lz4, plain, size, packed);
        CHECK(made <= kl_lz4_packed_max(size));
        CHECK(unpacked(packed, (size_t)made, plain) == size);
        CHECK(unpacked(packed, (size_t)made - 1, NULL) == -1);
        for (int i = 0; i < 30; i++) {
            size_t at = random_below((size_t)made), cut = random_below((size_t)made + 1);
            uint8_t before = packed[at];
            packed[at] ^= (uint8_t)(1u << random_below(8));
            unpacked(packed, (size_t)made, NULL);
            packed[at] = before;
            CHECK(unpacked(packed, cut, NULL) == (cut == (size_t)made ? size : -1));
        }
        free(plain), free(packed);
    }
}
