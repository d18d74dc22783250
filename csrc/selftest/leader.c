/* A leader's checks, and the batches it rewrites. */
#include "selftest/selftest.h"

#include <stdlib.h>

#include "batch.h"
#include "leader.h"
#include "status.h"

static const kl_leader_rules_t anything = {.now = 1700000000000};

/* The scan agrees with kl_payload_validate, only payloads that it has flagged have refused records, and a rewritten
 * payload has the measured size and contains the same records. */
static void leader_walk(const uint8_t *payload, size_t size, int32_t count, const kl_leader_rules_t *rules) {
    uint8_t *at = exact_copy(payload, size);
    int32_t bad = -7, other = -7;
    kl_leader_result_t found;
    int status = kl_leader_scan(at, size, count, 5, rules, &found, &bad);
    CHECK(status == kl_payload_validate(at, size, count, -1, &other) && bad == other);
    if (status == KL_OK) {
        kl_refusal_t few[2];
        int32_t n = kl_leader_refusals(at, size, count, 5, rules, few, 2);
        CHECK(n <= count && (n == 0 || found.may_be_refused));
        for (int32_t i = 0; i < n && i < 2; i++)
            CHECK(few[i].number >= 0 && few[i].number < count && few[i].reason != KL_REFUSED_NOT);
        CHECK((kl_payload_validate(at, size, count, count - 1, &other) == KL_OK) == (found.misnumbered < 0));
        int64_t anew = kl_leader_rewrite_size(at, size, count);
        uint8_t *out = malloc((size_t)anew);
        if (out == NULL)
            abort();
        kl_leader_rewrite(at, size, count, out);
        kl_leader_result_t again;
        CHECK(kl_leader_scan(out, (size_t)anew, count, found.first_timestamp, &anything, &again, &bad) == KL_OK);
        CHECK(again.misnumbered < 0 && again.max_timestamp == found.max_timestamp);
        CHECK(again.first_timestamp == found.first_timestamp);
        CHECK(kl_leader_rewrite_size(out, (size_t)anew, count) == anew);
        free(out);
    }
    free(at);
}

void test_leader(void) {
    uint8_t out[16384];
    kl_leader_rules_t strict = {.now = 1700000000000, .range_checked = 1, .negative_refused = 1, .key_required = 1};
    for (int round = 0; round < 400; round++) {
        int32_t count = 1 + (int32_t)random_below(20);
        size_t size = make_batch(out, count) - KL_BATCH_HEADER;
        uint8_t *payload = out + KL_BATCH_HEADER;
        leader_walk(payload, size, count, round & 1 ? &strict : &anything);
        payload[random_below(size)] ^= (uint8_t)(1 + random_below(255));
        leader_walk(payload, size, count, round & 1 ? &strict : &anything);
        leader_walk(payload, random_below(size), count, &anything);
    }
}

void test_leader_sets(void) {
    uint8_t bytes[8192];
    kl_leader_rules_t strict = {.now = 1700000000000, .range_checked = 1, .after_max = 10, .key_required = 1};
    for (int round = 0; round < 400; round++) {
        int32_t count = 1 + (int32_t)random_below(20), bad = 77;
        size_t size = 0;
        kl_set_t set = {.magic = (int8_t)(round & 1), .wrapped = round & 2, .offset = 100};
        for (int32_t i = 0; i < count; i++)
            size += make_message(bytes + size, set.magic, i, (int32_t)random_below(20) - 1, (int32_t)random_below(60) - 1);
        for (int damaged = 0; damaged < 3; damaged++) {
            set.size = damaged == 2 ? random_below(size) : size;
            uint8_t *exact = exact_copy(bytes, set.size);
            set.at = exact;
            if (damaged == 1)
                exact[random_below(size)] ^= (uint8_t)(1 + random_below(255));
            kl_leader_result_t found;
            kl_refusal_t few[2];
            int status = kl_set_scan(&set, &strict, &found, &bad);
            if (status == KL_OK)
                CHECK(kl_set_refusals(&set, found.count, &strict, few, 2) <= found.count);
            status = kl_set_scan(&set, &anything, &found, &bad);
            CHECK(damaged || (status == KL_OK && found.count == count && !found.may_be_refused));
            if (status == KL_OK && !found.may_be_refused && found.count > 0) {
                uint8_t *payload = malloc((size_t)found.size);
                if (payload == NULL)
                    abort();
                kl_set_write(&set, &found, payload);
                CHECK(kl_payload_validate(payload, (size_t)found.size, found.count, found.count - 1, &bad) == KL_OK);
                free(payload);
            }
            free(exact);
        }
    }
}
