/* Compaction of the plain records of one batch: put their keys into the map (pass 1), choose the records to keep
 * and write them (pass 2).  The caller has checked the batch's checksum, and decompressed it.
 *
 * Kept records are copied byte by byte.  Their offset deltas do not change, because the batch keeps its base offset.
 * Their timestamp deltas change if its base timestamp does: to the first kept record's timestamp, or to the delete
 * horizon.
 * Kafka: Cleaner, MemoryRecords.filterTo.
 */
#ifndef KL_CLEAN_H
#define KL_CLEAN_H

#include "batch.h"
#include "keymap.h"
#include "waste.h"

/* Pass 1: put the key of each record at or above offset start into the map, except records without a key.
 * KL_OK | KL_EFULL (the map is full; keys of records after *latest are not in it) | any code of kl_payload_validate
 * (*bad is set): KL_EORDER for an offset outside its batch, which would make older records look like the newest ones.
 * If offsets do not rise within their batch, stale ones are no longer tracked.  Records without a key or a value are
 * marked. *latest is the offset of the last key that was put, unchanged if there was none. */
int kl_clean_put_keys(kl_keymap_t *map, const kl_batch_t *b, const uint8_t *records, size_t size, int64_t start,
                  int64_t *latest, int32_t *bad);

/* The rules for the records to keep. */
typedef struct {
    const kl_keymap_t *map;
    int64_t latest_offset;  /* the last offset in the map; every record above it is kept */
    int64_t now;            /* ms */
    int64_t new_horizon;    /* now + delete.retention.ms, for batches that get one */
    int32_t keep_legacy_tombstones;
    kl_key_t purged;        /* at != NULL: records of this key are removed; no rule above applies */
    kl_waste_t *waste;      /* NULL, or counts every removed record that has a key */
} kl_clean_rules_t;

/* Bytes [from, to) of the records: adjacent kept records. */
typedef struct {
    uint32_t from, to;
} kl_clean_run_t;

/* The rest of a batch after cleaning. */
typedef struct {
    int64_t base_timestamp; /* the new one */
    int64_t max_timestamp;
    int64_t first_offset, last_offset; /* of the kept records */
    int64_t bytes_max;      /* the most that kl_clean_write needs */
    int32_t count;          /* of the kept records; if it is 0, the fields above are not set */
    int32_t runs;
    int32_t keyless;        /* records removed because they have no key */
    int32_t sets_horizon;
    int32_t whole;          /* every record is kept, and no horizon is set: the batch can be copied unchanged. For the
                             * old formats only when a key is purged: otherwise they become magic 2 */
} kl_cleaned_t;

/* How many runs a batch of count records may leave. */
static inline size_t kl_clean_runs_max(int32_t count) { return (size_t)count / 2 + 1; }

/* The result that kl_clean_choose would have, if pass 1 determines it.  Then the records need not even be decompressed.
 * EMPTY: it would keep no record, because each record's key has a later offset.
 * WHOLE: it would set whole, because no record's key has a later offset, and no record is a tombstone. */
typedef enum {
    KL_PREDICT_NOTHING,
    KL_PREDICT_EMPTY,
    KL_PREDICT_WHOLE,
} kl_prediction_t;
kl_prediction_t kl_clean_predict(const kl_clean_rules_t *rules, const kl_batch_t *b);

/* Pass 2, first half: choose the records to keep.  runs has space for kl_clean_runs_max(b->count).
 * all: keep all records; for a control batch, whose record's key is not a user key.  marker_done: the batch ends a
 * transaction that has no records left, so it gets a delete horizon.
 * KL_OK, or any code of kl_payload_validate, with *bad set. */
int kl_clean_choose(const kl_clean_rules_t *rules, const kl_batch_t *b, const uint8_t *records, size_t size, int all,
                    int marker_done, kl_clean_run_t *runs, kl_cleaned_t *out, int32_t *bad);

/* Pass 2, second half: write the kept records at to, which has space for out->bytes_max.  Returns the bytes written.
 * base_offset is b's own or, for a batch made of old messages, the first kept record's. */
int64_t kl_clean_write(const kl_batch_t *b, const uint8_t *records, const kl_clean_run_t *runs, const kl_cleaned_t *out,
                       int64_t base_offset, uint8_t *to);

/* Write the header of the kept records at at, with its checksum: the header *b with the changes.  The size bytes after
 * the header have been written already; codec is the one that they are compressed with. */
void kl_clean_seal(const kl_batch_t *b, const kl_cleaned_t *cleaned, int64_t base_offset, int codec, int64_t size,
                   uint8_t *at);

/* Write the 61 bytes of a batch that has lost all records, and is kept for its offsets and its producer's sequence. */
void kl_clean_empty(const kl_batch_t *b, uint8_t *at);

/* Result so far of a search for one key. */
typedef struct {
    kl_key_t key;
    int64_t records, bytes;             /* bytes of the plain records */
    int64_t first_offset, last_offset;  /* of them; undefined while records is 0 */
} kl_found_t;

/* Look for a key among the plain records of a batch: KL_OK, or any code of kl_payload_validate, with *bad set. */
int kl_clean_find(kl_found_t *found, const kl_batch_t *b, const uint8_t *records, size_t size, int32_t *bad);

/* The type of a control batch by its first record: 0 abort, 1 commit, ...; -1 for a batch without records, -2 for a
 * record without a valid type. */
int32_t kl_clean_control_type(const kl_batch_t *b, const uint8_t *records, size_t size);

#endif
