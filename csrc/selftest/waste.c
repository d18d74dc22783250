/* The keys that waste the most bytes, counted in little memory. */
#include "selftest/selftest.h"

#include <string.h>

#include "keymap.h"
#include "waste.h"

void test_waste(void) {
    enum { SLOTS = 64, KEYS = 2000 };
    static kl_waste_counter_t table[SLOTS], scratch[SLOTS];
    static int64_t truth[KEYS];
    uint8_t secret[16] = {7};
    kl_keyhash_t hash;
    kl_keyhash_init(&hash, secret, -1);
    memset(table, 0, sizeof table);
    memset(truth, 0, sizeof truth);
    kl_waste_t waste = {.hash = &hash, .table = table, .scratch = scratch, .slots = SLOTS};
    int64_t all = 0;
    for (int i = 0; i < 50000; i++) {
        uint32_t key = random_below(3) == 0 ? (uint32_t)random_below(3) : (uint32_t)random_below(KEYS);
        int64_t n = 1 + (int64_t)random_below(90);
        kl_waste_add(&waste, (kl_key_t){(const uint8_t *)&key, sizeof key}, n, key);
        truth[key] += n;
        all += n;
    }
    int64_t keys = 0, often = 0;
    for (int i = 0; i < SLOTS; i++) {
        if (table[i].records == 0)
            continue;
        keys++;
        often += table[i].offset < 3;
        CHECK(table[i].bytes <= truth[table[i].offset]);
        CHECK(table[i].bytes >= truth[table[i].offset] - waste.reduced_by);
    }
    CHECK(keys == waste.keys && keys <= SLOTS / 4 * 3 && often == 3);
    CHECK(waste.reduced_by > 0 && waste.reduced_by <= 2 * all / (SLOTS / 4 * 3));
}
