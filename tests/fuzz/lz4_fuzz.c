/* The framing of lz4 payloads: choices:2 payload, and the way back.
 *
 *   choices := kind:u8 capacity:u8      kind: bit 0 pack the payload and unpack it; capacity: less than enough by this
 * much
 *
 * In place of the LZ4 library there is a codec of runs, (count, byte) pairs, which also fails where the library may:
 * what is tested is that the framing reads and writes only what it may.
 */
#include "fuzz.h"

#include "lz4.h"

static int unruns(const char *from, char *to, int size, int space) {
    int made = 0;
    for (int i = 0; i + 1 < size; i += 2) {
        int run = (uint8_t)from[i];
        if (run == 0 || run > space - made)
            return -1;
        memset(to + made, from[i + 1], (size_t)run);
        made += run;
    }
    return size & 1 ? -1 : made;
}

static int runs(const char *from, char *to, int size, int space) {
    int made = 0;
    for (int at = 0; at < size;) {
        int run = 1;
        while (at + run < size && run < 255 && from[at + run] == from[at])
            run++;
        if (space - made < 2)
            return 0;
        to[made++] = (char)run;
        to[made++] = from[at];
        at += run;
    }
    return made;
}

static const kl_lz4_t codec = {unruns, runs};

static void there_and_back(const uint8_t *plain, size_t size) {
    int64_t space = kl_lz4_packed_max((int64_t)size);
    uint8_t *packed = malloc((size_t)space), *again = malloc(size != 0 ? size : 1);
    CLAIM(packed != NULL && again != NULL);
    int64_t used = kl_lz4_pack(&codec, plain, (int64_t)size, packed);
    CLAIM(used > 0 && used <= space && kl_lz4_plain_max(packed, (size_t)used) >= (int64_t)size);
    CLAIM(kl_lz4_unpack(&codec, packed, (size_t)used, again, (int64_t)size) == (int64_t)size);
    CLAIM(size == 0 || memcmp(plain, again, size) == 0);
    free(packed);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *choices = fuzz_choices(&data, &size, 2);
    int64_t less = choices[1];
    if (choices[0] & 1) {
        there_and_back(data, size);
        return 0;
    }
    uint8_t *payload = fuzz_exact(data, size);
    int64_t most = kl_lz4_plain_max(payload, size);
    CLAIM(most >= -1 && most <= (int64_t)size * 255);
    int64_t space = most < 0 ? less : less < most ? most - less : 0;
    uint8_t *to = malloc(space != 0 ? (size_t)space : 1);
    CLAIM(to != NULL);
    int64_t made = kl_lz4_unpack(&codec, payload, size, to, space);
    CLAIM(made >= -1 && made <= space && (most >= 0 || made == -1));
    free(to);
    free(payload);
    return 0;
}
