/* Every kernel that this processor can run, against the checksum bit by bit. */
#include "selftest/selftest.h"

#include <stdio.h>
#include <stdlib.h>

#include "crc32c.h"

static uint32_t crc_by_bits(uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
    }
    return ~crc;
}

void test_crc(void) {
    enum { SIZE = 1 << 17 };
    uint8_t *data = malloc(SIZE);
    if (data == NULL)
        abort();
    random_fill(data, SIZE);
    CHECK(kl_crc32c(0, (const uint8_t *)"123456789", 9) == 0xe3069283u);
    CHECK(kl_crc32c(7, data, 0) == 7);
    int kernels = 0;
    for (int number = 0;; number++) {
        const char *name = NULL;
        kl_crc32c_fn kernel = kl_crc32c_kernel(number, &name);
        if (name == NULL)
            break;
        if (kernel == NULL) {
            printf("  kernel %s: needs a processor that has it\n", name);
            continue;
        }
        kernels++;
        for (size_t size = 0; size < 1200; size++) {
            uint8_t *exact = exact_copy(data + size % 17, size);
            uint32_t before = (uint32_t)random_u64();
            CHECK(kernel(0, exact, size) == crc_by_bits(0, exact, size));
            CHECK(kernel(before, exact, size) == crc_by_bits(before, exact, size));
            free(exact);
        }
        static const size_t edges[] = {6143, 6144, 6145, 6519, 6520, 48383, 48384, 48385, 48640, 96768, 96769};
        for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
            uint8_t *exact = exact_copy(data, edges[i]);
            CHECK(kernel(3, exact, edges[i]) == crc_by_bits(3, exact, edges[i]));
            free(exact);
        }
        for (int i = 0; i < 300; i++) {
            size_t from = random_below(64), size = random_below(SIZE - 64);
            uint32_t before = (uint32_t)random_u64();
            uint32_t whole = kl_crc32c_kernel(0, &name)(before, data + from, size);
            CHECK(kernel(before, data + from, size) == whole);
            size_t cut = random_below(size + 1);
            CHECK(kernel(kernel(before, data + from, cut), data + from + cut, size - cut) == whole);
        }
    }
    CHECK(kernels >= 1);
    free(data);
}
