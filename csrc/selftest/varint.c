/* Numbers of every length, and ends in the middle of one. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "varint.h"

void test_varint_table(void) {
    static const struct {
        int64_t value;
        const char *bytes;
        size_t size;
    } rows[] = {
        {0, "\x00", 1},
        {-1, "\x01", 1},
        {1, "\x02", 1},
        {-2, "\x03", 1},
        {63, "\x7e", 1},
        {64, "\x80\x01", 2},
        {-64, "\x7f", 1},
        {-65, "\x81\x01", 2},
        {300, "\xd8\x04", 2},
        {8191, "\xfe\x7f", 2},
        {8192, "\x80\x80\x01", 3},
        {INT32_MAX, "\xfe\xff\xff\xff\x0f", 5},
        {INT32_MIN, "\xff\xff\xff\xff\x0f", 5},
        {86400000, "\x80\xf0\xb2\x52", 4},
        {-86400990, "\xbb\xff\xb2\x52", 4},
        {INT64_MAX, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10},
        {INT64_MIN, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t out[KL_VARLONG_MAX];
        CHECK(kl_varlong_encode(out, rows[i].value) == rows[i].size);
        CHECK(kl_varlong_size(rows[i].value) == rows[i].size);
        CHECK(memcmp(out, rows[i].bytes, rows[i].size) == 0);
        int64_t wide = 99;
        size_t used = 99;
        CHECK(kl_varlong_decode(out, rows[i].size, &wide, &used) == KL_OK);
        CHECK(wide == rows[i].value && used == rows[i].size);
        if (rows[i].value >= INT32_MIN && rows[i].value <= INT32_MAX) {
            int32_t narrow = 99;
            CHECK(kl_varint_size((int32_t)rows[i].value) == rows[i].size);
            CHECK(kl_varint_decode(out, rows[i].size, &narrow, &used) == KL_OK);
            CHECK(narrow == rows[i].value && used == rows[i].size);
        }
    }
}

void test_varint_ends(void) {
    uint8_t more[11];
    memset(more, 0xff, sizeof more);
    int32_t narrow = 5;
    int64_t wide = 5;
    size_t used = 7;
    for (size_t left = 0; left <= sizeof more; left++) {
        uint8_t *at = exact_copy(more, left);
        CHECK(kl_varint_decode(at, left, &narrow, &used) == (left < 5 ? KL_ETRUNCATED : KL_EOVERLONG));
        CHECK(kl_varlong_decode(at, left, &wide, &used) == (left < 10 ? KL_ETRUNCATED : KL_EOVERLONG));
        free(at);
    }
    CHECK(narrow == 5 && wide == 5 && used == 7); /* untouched on failure */
    static const uint8_t longer[] = {0x82, 0x80, 0x80, 0x80, 0x00};
    CHECK(kl_varint_decode(longer, 5, &narrow, &used) == KL_OK && narrow == 1 && used == 5);
}

void test_varint_random(void) {
    for (int i = 0; i < 20000; i++) {
        int64_t value = (int64_t)(random_u64() >> random_below(64));
        if (random_u64() & 1)
            value = -value;
        uint8_t out[KL_VARLONG_MAX];
        size_t size = kl_varlong_encode(out, value), used;
        int64_t back;
        CHECK(size == kl_varlong_size(value));
        CHECK(kl_varlong_decode(out, size, &back, &used) == KL_OK && back == value && used == size);
    }
}
