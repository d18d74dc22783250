/* Varints, UTF-8 repair and the checksum: each compared with a plain implementation. */
#include "fuzz.h"

#include "crc32c.h"
#include "encode.h"
#include "status.h"
#include "utf8.h"
#include "varint.h"

/* One varint of at most bits bits, byte by byte: KL_OK, KL_ETRUNCATED or KL_EOVERLONG. */
static int plain(const uint8_t *at, size_t left, int bits, uint64_t *out, size_t *used) {
    uint64_t value = 0;
    for (size_t i = 0; i < (size_t)(bits + 6) / 7; i++) {
        if (i == left)
            return KL_ETRUNCATED;
        value |= (uint64_t)(at[i] & 0x7f) << (7 * i);
        if (!(at[i] & 0x80)) {
            *out = bits == 32 ? value & UINT32_MAX : value;
            *used = i + 1;
            return KL_OK;
        }
    }
    return KL_EOVERLONG;
}

static void varints(const uint8_t *at, size_t left) {
    uint8_t space[KL_VARLONG_MAX];
    uint64_t zigzag = 0;
    size_t used = 0, want_used = 0;
    int32_t small = 0;
    int64_t large = 0;
    int want = plain(at, left, 32, &zigzag, &want_used);
    CLAIM(kl_varint_decode(at, left, &small, &used) == want);
    if (want == KL_OK) {
        CLAIM(used == want_used && kl_zigzag32(small) == zigzag);
        CLAIM(kl_varint_encode(space, small) == kl_varint_size(small) && kl_varint_size(small) <= used);
    }
    want = plain(at, left, 64, &zigzag, &want_used);
    CLAIM(kl_varlong_decode(at, left, &large, &used) == want);
    if (want == KL_OK) {
        CLAIM(used == want_used && kl_zigzag64(large) == zigzag);
        size_t size = kl_varlong_encode(space, large);
        CLAIM(size == kl_varlong_size(large) && size <= used);
        int64_t again = 0;
        CLAIM(kl_varlong_decode(space, size, &again, &used) == KL_OK && again == large && used == size);
    }
}

static void utf8(const uint8_t *at, size_t size) {
    size_t space = kl_utf8_repaired_size(at, size);
    CLAIM(space >= size / 3 && space <= 3 * size);
    uint8_t *out = malloc(space != 0 ? space : 1);
    CLAIM(out != NULL && kl_utf8_repair(at, size, out, space) == space);
    CLAIM(kl_utf8_repaired_size(out, space) == space);
    for (size_t done = 0; done < space;) {
        int step = kl_utf8_step(out + done, space - done);
        CLAIM(step > 0);
        done += (size_t)step;
    }
    if (space != 0)
        CLAIM(kl_utf8_repair(at, size, out, space - 1) == space);
    free(out);
}

static void checksums(const uint8_t *at, size_t size) {
    uint32_t whole = kl_crc32c(0, at, size);
    for (int number = 0;; number++) {
        const char *name = NULL;
        kl_crc32c_fn kernel = kl_crc32c_kernel(number, &name);
        if (name == NULL)
            break;
        if (kernel != NULL)
            CLAIM(kernel(0, at, size) == whole);
    }
    size_t cut = size != 0 ? at[0] % size : 0;
    CLAIM(kl_crc32c(kl_crc32c(0, at, cut), at + cut, size - cut) == whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = fuzz_exact(data, size);
    size_t from = size > KL_VARLONG_MAX + 2 ? size - KL_VARLONG_MAX - 2 : 0; /* near the end: a read past it is detected */
    for (size_t at = from; at <= size; at++)
        varints(copy + at, size - at);
    utf8(copy, size);
    checksums(copy, size);
    free(copy);
    return 0;
}
