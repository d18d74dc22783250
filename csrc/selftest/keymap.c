/* Hashes of keys against published vectors; the map against a plain model. */
#include "selftest/selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "keymap.h"

void test_key_hashes(void) {
    /* The key 00 01 .. 0f over the bytes 00 01 ..: for SipHash-2-4-128 the authors' own vectors. */
    static const struct {
        size_t size;
        const char *published, *used;
    } sip[] = {
        {0, "A3817F04BA25A8E66DF67214C7550293", "E77EBCB22788A5BEFD62DB6ADD303001"},
        {1, "DA87C1D86B99AF44347659119B22FC45", "FC6F370460D3EDA85E0573CC2B2FF063"},
        {7, "A1F1EBBED8DBC153C0B84AA61FF08239", "1084B923F2AAE0C3A62F2EC80848AB77"},
        {8, "3B62A9BA6258F5610F83E264F31497B4", "AA12FEE1D5E3DAB4724F16AB35F9C799"},
        {15, "5493E99933B0A8117E08EC0F97CFC3D9", "C17E5505B2BD526C2921CDEC1E7E0109"},
        {33, "77C6077146F01C32B6B69D5F4EA9FFCF", "C5F57BAE1320FCF4B4E868E71D56C66B"},
        {64, "1EAF077DC0D4CD3F8CAD4D383658A74B", "1253DEF24B4AA5364EC8A759BA6A66C2"},
    };
    uint8_t secret[16], out[16];
    for (int i = 0; i < 16; i++)
        secret[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof sip / sizeof *sip; i++) {
        uint8_t plain[64];
        for (size_t j = 0; j < sizeof plain; j++)
            plain[j] = (uint8_t)j;
        uint8_t *data = exact_copy(plain, sip[i].size);
        for (int last = 0; last < 2; last++) {
            kl_siphash128(secret, data, sip[i].size, last ? 1 : 2, last ? 3 : 4, out);
            for (int j = 0; j < 16; j++) {
                unsigned byte = 0;
                CHECK(sscanf((last ? sip[i].used : sip[i].published) + 2 * j, "%2x", &byte) == 1 && byte == out[j]);
            }
        }
        free(data);
    }
    /* RFC 4493, section 4. */
    static const uint8_t rfc_secret[16] = {0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6,
                                           0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c};
    static const uint8_t message[64] = {
        0x6b, 0xc1, 0xbe, 0xe2, 0x2e, 0x40, 0x9f, 0x96, 0xe9, 0x3d, 0x7e, 0x11, 0x73, 0x93, 0x17, 0x2a,
        0xae, 0x2d, 0x8a, 0x57, 0x1e, 0x03, 0xac, 0x9c, 0x9e, 0xb7, 0x6f, 0xac, 0x45, 0xaf, 0x8e, 0x51,
        0x30, 0xc8, 0x1c, 0x46, 0xa3, 0x5c, 0xe4, 0x11, 0xe5, 0xfb, 0xc1, 0x19, 0x1a, 0x0a, 0x52, 0xef,
        0xf6, 0x9f, 0x24, 0x45, 0xdf, 0x4f, 0x9b, 0x17, 0xad, 0x2b, 0x41, 0x7b, 0xe6, 0x6c, 0x37, 0x10};
    static const struct {
        size_t size;
        uint8_t mac[16];
    } cmac[] = {
        {0, {0xbb, 0x1d, 0x69, 0x29, 0xe9, 0x59, 0x37, 0x28, 0x7f, 0xa3, 0x7d, 0x12, 0x9b, 0x75, 0x67, 0x46}},
        {16, {0x07, 0x0a, 0x16, 0xb4, 0x6b, 0x4d, 0x41, 0x44, 0xf7, 0x9b, 0xdd, 0x9d, 0xd0, 0x4a, 0x28, 0x7c}},
        {40, {0xdf, 0xa6, 0x67, 0x47, 0xde, 0x9a, 0xe6, 0x30, 0x30, 0xca, 0x32, 0x61, 0x14, 0x97, 0xc8, 0x27}},
        {64, {0x51, 0xf0, 0xbe, 0xbf, 0x7e, 0x3b, 0x9d, 0x92, 0xfc, 0x49, 0x74, 0x17, 0x79, 0x36, 0x3c, 0xfe}},
    };
    kl_keyhash_t hash;
    if (kl_keyhash_init(&hash, rfc_secret, 1) != NULL)
        for (size_t i = 0; i < sizeof cmac / sizeof *cmac; i++) {
            kl_key_t keys[KL_KEYMAP_GROUP];
            kl_hash_t made[KL_KEYMAP_GROUP];
            uint8_t *data = exact_copy(message, cmac[i].size);
            for (int j = 0; j < KL_KEYMAP_GROUP; j++)
                keys[j] = (kl_key_t){data, cmac[i].size};
            hash.many(&hash, keys, 7, made); /* one group of lanes, and three single keys */
            for (int j = 0; j < 7; j++)
                CHECK(memcmp(made + j, cmac[i].mac, 16) == 0);
            free(data);
        }
    /* Lanes and single keys, of every size, at the end of their own memory. */
    for (int kernel = 0; kernel < 2; kernel++) {
        if (kl_keyhash_init(&hash, rfc_secret, kernel) == NULL)
            continue;
        for (size_t size = 0; size < 70; size++) {
            uint8_t bytes[80];
            random_fill(bytes, sizeof bytes);
            uint8_t *data = exact_copy(bytes, size), *other = exact_copy(bytes, size + 9);
            kl_key_t keys[5] = {{data, size}, {data, size}, {data, size}, {data, size}, {other, size + 9}};
            kl_hash_t together[5], alone;
            hash.many(&hash, keys, 5, together);
            for (int i = 0; i < 5; i++) {
                hash.many(&hash, keys + i, 1, &alone);
                CHECK(memcmp(&alone, together + i, sizeof alone) == 0);
            }
            free(data), free(other);
        }
    }
}

/* Hashes that put every key where the test needs it: for a key of 8 bytes, high is its value. */
static void plain_hash(const kl_keyhash_t *hash, const kl_key_t *keys, int32_t n, kl_hash_t *out) {
    (void)hash;
    for (int32_t i = 0; i < n; i++)
        out[i] = (kl_hash_t){kl_load_u64(keys[i].at), 0};
}

static void check_table(const kl_keymap_t *map) {
    int64_t space = map->slots + (map->slots < KL_KEYMAP_TAIL ? map->slots : KL_KEYMAP_TAIL), seen = 0;
    const kl_entry_t *last = NULL;
    for (int64_t i = 0; i < space; i++) {
        const kl_entry_t *e = map->entries + i;
        if (e->offset_1 == 0)
            continue;
        int64_t home = (int64_t)((unsigned __int128)~e->order * (uint64_t)map->slots >> 64);
        CHECK(home <= i); /* K1 */
        for (int64_t j = home; j < i; j++)
            CHECK(map->entries[j].offset_1 != 0);
        CHECK(last == NULL || last->order > e->order || (last->order == e->order && last->low < e->low));
        last = e;
        seen++;
    }
    CHECK(map->entries[space].offset_1 == 0); /* K3 */
    CHECK(seen == map->size);
}

void test_key_map(void) {
    static const int64_t sizes[] = {1, 2, 3, 20, 4095, 4097, 9001, 50000};
    uint8_t secret[16];
    random_fill(secret, sizeof secret);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int hostile = 0; hostile < 3; hostile++) {
            if (hostile && sizes[k] > 9001) /* each step would pass thousands of slots */
                continue;
            int64_t slots = sizes[k], limit = hostile ? slots : slots * 9 / 10;
            kl_keymap_t map;
            void *memory = calloc(1, kl_keymap_bytes(slots));
            int64_t *model = malloc((size_t)slots * 2 * sizeof *model); /* indexed by the key's number */
            uint64_t *names = malloc((size_t)slots * 2 * sizeof *names);
            if (memory == NULL || model == NULL || names == NULL)
                abort();
            kl_keyhash_init(&map.hash, secret, -1);
            if (hostile)
                map.hash.many = plain_hash;
            kl_keymap_init(&map, memory, slots, limit);
            int64_t tracked = 1 + (int64_t)random_below((size_t)(4 * slots)), first = (int64_t)random_below(70);
            uint64_t *words = calloc((size_t)(tracked + 63) / 64, 8), *marked = calloc((size_t)(tracked + 4095) / 4096, 8);
            char *stale = calloc(1, (size_t)(4 * slots) + KL_KEYMAP_GROUP);
            if (words == NULL || marked == NULL || stale == NULL)
                abort();
            kl_keymap_track_stale(&map, words, marked, first, tracked);
            for (int64_t i = 0; i < 2 * slots; i++) {
                model[i] = -1;
                /* random; all after the last home; all at the first */
                names[i] = __builtin_bswap64(hostile == 1 ? UINT64_MAX - (uint64_t)i : hostile == 2 ? (uint64_t)i : random_u64());
            }
            int full = 0;
            for (int64_t offset = 0; offset < 4 * slots && !full; offset += KL_KEYMAP_GROUP) {
                kl_key_t keys[KL_KEYMAP_GROUP];
                int64_t offsets[KL_KEYMAP_GROUP], numbers[KL_KEYMAP_GROUP];
                int32_t n = 1 + (int32_t)random_below(KL_KEYMAP_GROUP);
                for (int32_t i = 0; i < n; i++) {
                    numbers[i] = (int64_t)random_below((size_t)(2 * slots));
                    keys[i] = (kl_key_t){(const uint8_t *)(names + numbers[i]), 8};
                    offsets[i] = offset + i;
                }
                int32_t put = kl_keymap_put(&map, keys, offsets, n);
                for (int32_t i = 0; i < put; i++) {
                    if (model[numbers[i]] >= 0)
                        stale[model[numbers[i]]] = 1;
                    model[numbers[i]] = offsets[i];
                }
                full = put < n;
                CHECK(map.size <= limit);
                if (full && !hostile)
                    CHECK(map.size == limit);
            }
            check_table(&map);
            int64_t count = 0;
            for (int64_t i = 0; i < 2 * slots; i++) {
                kl_key_t key = {(const uint8_t *)(names + i), 8};
                int64_t found;
                kl_keymap_get(&map, &key, 1, &found);
                CHECK(found == model[i]);
                count += model[i] >= 0;
            }
            CHECK(count == map.size);
            count = 0;
            for (int64_t i = 0; i < 4 * slots; i++) {
                CHECK(kl_keymap_tracks(&map, i, 1) == (i >= first && i < first + tracked));
                if (!kl_keymap_tracks(&map, i, 1))
                    continue;
                CHECK(kl_keymap_stale(&map, i) == stale[i]);
                count += stale[i];
                CHECK(kl_keymap_count_stale(&map, first, i + 1 - first) == count);
                CHECK(!kl_keymap_is_marked(&map, first, i + 1 - first));
            }
            int64_t mark = (int64_t)random_below((size_t)(4 * slots)) - 5;
            kl_keymap_mark(&map, mark);
            for (int64_t i = first; i < first + tracked; i++) { /* a mark covers the 64 offsets of its word */
                int64_t n = 1 + (int64_t)random_below((size_t)(first + tracked - i));
                int64_t from = i - (i - first) % 64, to = i + n - 1 - (i + n - 1 - first) % 64 + 64;
                CHECK(kl_keymap_is_marked(&map, i, n) == (kl_keymap_tracks(&map, mark, 1) && mark >= from && mark < to));
            }
            CHECK(!kl_keymap_tracks(&map, first, tracked + 1));
            kl_keymap_untrack_stale(&map);
            CHECK(!kl_keymap_tracks(&map, first, 1));
            free(memory), free(model), free(names), free(words), free(marked), free(stale);
        }
}
