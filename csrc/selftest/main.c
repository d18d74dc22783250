/* The C code of codec and record, tested without Python: run it under address and undefined sanitizers.
 *
 *   make test-c; build/selftest/selftest [seed]
 *
 * Inputs to the walks are copied to the end of their own malloc, so that a read one byte too far is detected.  Random
 * parts print their seed.
 */
#include "selftest/selftest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
static const char *current;
static uint64_t random_state;

void check_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "%s: %s:%d: %s\n", current, file, line, condition);
    failures++;
}

uint64_t random_u64(void) {
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t random_below(size_t n) { return (size_t)(random_u64() % n); }

void random_fill(uint8_t *at, size_t size) {
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)random_u64();
}

uint8_t *exact_copy(const uint8_t *from, size_t size) {
    uint8_t *copy = malloc(size != 0 ? size : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, from, size);
    return copy;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"crc", test_crc},
        {"waste", test_waste},
        {"varint table", test_varint_table},
        {"varint ends", test_varint_ends},
        {"varint random", test_varint_random},
        {"batch header", test_header},
        {"walk over batches", test_walk},
        {"walk over hostile bytes", test_walk_hostile},
        {"record fields", test_record_fields},
        {"hostile payloads", test_hostile},
        {"checksums along a walk", test_summed},
        {"record offsets", test_offsets},
        {"message", test_message},
        {"message header", test_message_header},
        {"message sets", test_message_sets},
        {"leader", test_leader},
        {"leader's sets", test_leader_sets},
        {"pool", test_pool},
        {"shared columns", test_columns_shared},
        {"picked columns", test_columns_picked},
        {"Spark's columns", test_columns_spark},
        {"views", test_columns_views},
        {"views far away", test_views_far_away},
        {"headers", test_headers},
        {"utf-8", test_utf8},
        {"rows", test_rows},
        {"key hashes", test_key_hashes},
        {"key map", test_key_map},
        {"lz4", test_lz4},
        {"clean", test_clean},
        {"wire", test_wire},
        {"hostile messages", test_wire_hostile},
    };
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 20130208;
    printf("seed %" PRIu64 "\n", seed);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        current = tests[i].name;
        random_state = seed;
        int before = failures;
        tests[i].run();
        printf("%s %s\n", failures == before ? "ok  " : "FAIL", current);
    }
    return failures != 0;
}
