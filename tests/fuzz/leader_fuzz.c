/* The leader's validator: choices:16 subject; a payload of magic 2, or a set of messages.
 *
 *   choices := kind:u8 rules:u8 count:u16 offset:i64 spread:u32     kind: bit 0 a set, bit 1 its magic, bit 2 wrapped
 *
 * Rewritten batches have the announced length, and a reader finds all of their records, in order.
 */
#include "fuzz.h"

#include "batch.h"
#include "leader.h"
#include "status.h"

static void renewed(const uint8_t *payload, int64_t size, int32_t count) {
    int32_t bad = -1;
    CLAIM(size >= 0 && kl_payload_validate(payload, (size_t)size, count, count - 1, &bad) == KL_OK);
}

static void batch(const uint8_t *payload, size_t size, int32_t count, int64_t base, const kl_leader_rules_t *rules) {
    kl_leader_result_t found;
    int32_t bad = -1, also_bad = -1;
    int status = kl_leader_scan(payload, size, count, base, rules, &found, &bad);
    CLAIM(status == kl_payload_validate(payload, size, count, -1, &also_bad) && (status == KL_OK || bad == also_bad));
    if (status != KL_OK)
        return;
    kl_refusal_t few[3] = {{0}};
    int32_t refused = kl_leader_refusals(payload, size, count, base, rules, few, 3);
    CLAIM(refused >= 0 && refused <= count && (refused == 0 || found.may_be_refused));
    for (int32_t i = 0; i < refused && i < 3; i++)
        CLAIM(few[i].number >= 0 && few[i].number < count && few[i].reason != KL_REFUSED_NOT);
    CLAIM(found.count == count && found.misnumbered < count);
    int64_t anew = kl_leader_rewrite_size(payload, size, count);
    uint8_t *to = malloc((size_t)anew);
    CLAIM(to != NULL);
    kl_leader_rewrite(payload, size, count, to);
    renewed(to, anew, count);
    free(to);
}

static void messages(const kl_set_t *set, const kl_leader_rules_t *rules) {
    kl_leader_result_t found;
    int32_t bad = -1;
    if (kl_set_scan(set, rules, &found, &bad) != KL_OK)
        return;
    kl_refusal_t few[3];
    int32_t refused = kl_set_refusals(set, found.count, rules, few, 3);
    CLAIM(refused >= 0 && refused <= found.count && (refused == 0 || found.may_be_refused));
    if (found.may_be_refused || found.count == 0)
        return;
    uint8_t *to = malloc((size_t)found.size);
    CLAIM(to != NULL);
    kl_set_write(set, &found, to);
    renewed(to, found.size, found.count);
    free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *choices = fuzz_choices(&data, &size, 16);
    int64_t offset;
    uint16_t count;
    uint32_t spread;
    memcpy(&count, choices + 2, 2);
    memcpy(&offset, choices + 4, 8);
    memcpy(&spread, choices + 12, 4);
    kl_leader_rules_t rules = {
        .now = offset,
        .before_max = choices[1] & 1 ? INT64_MAX : spread,
        .after_max = choices[1] & 2 ? INT64_MAX : spread,
        .range_checked = choices[1] >> 2 & 1,
        .negative_refused = choices[1] >> 3 & 1,
        .key_required = choices[1] >> 4 & 1,
        .log_append_time = choices[1] >> 5 & 1,
    };
    uint8_t *exact = fuzz_exact(data, size);
    if (choices[0] & 1) {
        kl_set_t set = {
            .at = exact,
            .size = size,
            .offset = offset,
            .magic = choices[0] >> 1 & 1,
            .wrapped = choices[0] >> 2 & 1,
        };
        messages(&set, &rules);
    } else if (count != 0 && count <= size / KL_RECORD_MIN) { /* no leader scans an empty batch */
        batch(exact, size, count, offset, &rules);
    }
    free(exact);
    return 0;
}
