/* What compaction does with the plain records of one batch: note their keys (pass 1), choose and write those that stay
 * (pass 2).  The caller has checked the batch's checksum, and decompressed it.
 *
 * Survivors are copied byte by byte.  Their offset deltas stay, since the batch keeps its base offset; their timestamp
 * deltas change where its base timestamp does: to the first survivor's timestamp, or to the delete horizon.
 * Kafka: Cleaner, MemoryRecords.filterTo.
 */
#ifndef KL_CLEAN_H
#define KL_CLEAN_H

#include "batch.h"
#include "keymap.h"
#include "waste.h"

/* Pass 1: put the key of each record at or above start into the map.  Records without a key have no place there.
 * KL_OK | KL_EFULL (the map; records behind *latest have not been noted) | what kl_payload_validate says, with *bad set:
 * KL_EORDER where an offset lies outside its batch, which would make older records look like the newest ones.  Offsets that
 * do not rise within their batch end the tracking of stale ones.  Records without a key or without a value are marked.
 * *latest is the offset of the last key that was put, as it was if there was none. */
int kl_clean_note(kl_keymap_t *map, const kl_batch_t *b, const uint8_t *records, size_t size, int64_t start,
                  int64_t *latest, int32_t *bad);

/* What stays. */
typedef struct {
    const kl_keymap_t *map;
    int64_t latest_offset;  /* what the map knows; every record above it stays */
    int64_t now;            /* ms */
    int64_t new_horizon;    /* now + delete.retention.ms, for batches that get one */
    int32_t keep_legacy_tombstones;
    kl_key_t purged;        /* at != NULL: records of this key go, all others stay, and nothing above is asked */
    kl_waste_t *waste;      /* NULL, or hears of every record that goes and has a key */
} kl_clean_rules_t;

/* Bytes [from, to) of the records: survivors side by side. */
typedef struct {
    uint32_t from, to;
} kl_clean_run_t;

/* What is left of a batch. */
typedef struct {
    int64_t base_timestamp; /* as it is to be */
    int64_t max_timestamp;
    int64_t first_offset, last_offset; /* of the survivors */
    int64_t bytes_max;      /* what kl_clean_write may need */
    int32_t count;          /* survivors, 0 for none; nothing above but the counts below is set then */
    int32_t runs;
    int32_t keyless;        /* records that went because they have no key */
    int32_t sets_horizon;
    int32_t whole;          /* every record stays, and no horizon is to be set: the batch can stay as it is. Of the old
                             * formats only where a key is purged: else they become magic 2 */
} kl_cleaned_t;

/* How many runs a batch of count records may leave. */
static inline size_t kl_clean_runs_max(int32_t count) { return (size_t)count / 2 + 1; }

/* What pass 1 knows of a batch as a whole.  Where that is something, its records need not even be decompressed:
 * STALE: of each record's key there is a later one.  kl_clean_choose would find no survivor.
 * INTACT: of no record's key there is, and none is a tombstone.  kl_clean_choose would call it whole. */
typedef enum {
    KL_FATE_UNKNOWN,
    KL_FATE_STALE,
    KL_FATE_INTACT,
} kl_fate_t;
kl_fate_t kl_clean_fate(const kl_clean_rules_t *rules, const kl_batch_t *b);

/* Pass 2, first half: choose.  runs has room for kl_clean_runs_max(b->count).
 * all: of a control batch, whose record is not asked for its key.  marker_done: it ends a transaction of which nothing is
 * left, and so gets a horizon.
 * KL_OK, or what kl_payload_validate says, with *bad set. */
int kl_clean_choose(const kl_clean_rules_t *rules, const kl_batch_t *b, const uint8_t *records, size_t size, int all,
                    int marker_done, kl_clean_run_t *runs, kl_cleaned_t *out, int32_t *bad);

/* Pass 2, second half: write the survivors at to, which has room for out->bytes_max; the bytes written.  base_offset is
 * b's own, or, of a batch made of old messages, the first survivor's. */
int64_t kl_clean_write(const kl_batch_t *b, const uint8_t *records, const kl_clean_run_t *runs, const kl_cleaned_t *out,
                       int64_t base_offset, uint8_t *to);

/* The header that goes before them, sealed: *b's, but for what has changed; codec is that of the size bytes behind the
 * header at at, which are there already. */
void kl_clean_seal(const kl_batch_t *b, const kl_cleaned_t *cleaned, int64_t base_offset, int codec, int64_t size,
                   uint8_t *at);

/* The 61 bytes of a batch that has lost all records and stays for its offsets and its producer's last sequence. */
void kl_clean_empty(const kl_batch_t *b, uint8_t *at);

/* What a search for one key has found so far. */
typedef struct {
    kl_key_t key;
    int64_t records, bytes;             /* bytes of the plain records */
    int64_t first_offset, last_offset;  /* of them; nothing said while records is 0 */
} kl_found_t;

/* Look for a key among the plain records of a batch: KL_OK, or what kl_payload_validate says, with *bad set. */
int kl_clean_find(kl_found_t *found, const kl_batch_t *b, const uint8_t *records, size_t size, int32_t *bad);

/* The type of a control batch by its first record: 0 abort, 1 commit, ...; -1 for a batch without records, -2 for a record that
 * says no type. */
int32_t kl_clean_control_type(const kl_batch_t *b, const uint8_t *records, size_t size);

#endif
