/* Shared by the self tests: one file for each of csrc, and main.c that runs them all. */
#ifndef KL_SELFTEST_H
#define KL_SELFTEST_H

#include <stddef.h>
#include <stdint.h>

#include "columns.h"

/* Continues after a failure; the test is reported as failed at its end. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            check_failed(__FILE__, __LINE__, #condition);                                                              \
    } while (0)
void check_failed(const char *file, int line, const char *condition);

/* splitmix64; every test begins with the same seed. */
uint64_t random_u64(void);
size_t random_below(size_t n);
void random_fill(uint8_t *at, size_t size);

/* A copy of exactly these bytes in its own block, which the caller frees: a read one byte too far is detected. */
uint8_t *exact_copy(const uint8_t *from, size_t size);

/* Write a batch of records with random fields (batch.c); returns its size. */
size_t make_batch(uint8_t *out, int32_t count);

/* Write a message without codec at out (legacy.c); returns its size. */
size_t make_message(uint8_t *out, int8_t magic, int64_t offset, int32_t key_size, int32_t value_size);

extern const kl_column_t every_kind[KL_COLUMN_KINDS]; /* columns.c */

void test_crc(void);
void test_waste(void);
void test_varint_table(void);
void test_varint_ends(void);
void test_varint_random(void);
void test_header(void);
void test_walk(void);
void test_walk_hostile(void);
void test_record_fields(void);
void test_hostile(void);
void test_summed(void);
void test_offsets(void);
void test_message(void);
void test_message_header(void);
void test_message_sets(void);
void test_leader(void);
void test_leader_sets(void);
void test_pool(void);
void test_columns_shared(void);
void test_columns_picked(void);
void test_columns_spark(void);
void test_columns_views(void);
void test_views_far_away(void);
void test_headers(void);
void test_utf8(void);
void test_rows(void);
void test_key_hashes(void);
void test_key_map(void);
void test_lz4(void);
void test_clean(void);
void test_wire(void);
void test_wire_hostile(void);

#endif
