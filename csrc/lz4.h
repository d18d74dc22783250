/* lz4 payloads as Kafka's clients and klog write them, by the block functions of an LZ4 library that the caller has found.
 *
 *   payload := 04 22 4d 18 60 40 82 block* 00 00 00 00          independent blocks of up to 64 KiB, no checksums or sizes
 *   block   := size:u32, its top bit for bytes that are stored as they are; size bytes                  little-endian
 *
 * Any other frame, and one that is broken, is refused without a word: klog.codec.decompress takes those that are good, and
 * says what is wrong with the others.
 */
#ifndef KL_LZ4_H
#define KL_LZ4_H

#include <stddef.h>
#include <stdint.h>

/* LZ4_decompress_safe and LZ4_compress_default: (from, to, bytes at from, room at to) -> bytes written, not above 0 if it
 * fails (0 is also nothing).  Neither reads or writes beyond what it was given. */
typedef int (*kl_lz4_block_t)(const char *from, char *to, int size, int room);

typedef struct {
    kl_lz4_block_t decompress, compress;
} kl_lz4_t;

/* The most bytes that can come out of a payload, by the blocks that are there; -1 for one that is refused. */
int64_t kl_lz4_plain_max(const uint8_t *payload, size_t size);

/* Decompress a payload to to[0..capacity). Returns the number of bytes, or -1 if the payload is refused or does not fit:
 * kl_lz4_plain_max(payload) bytes are enough. Stays within both buffers even if another thread changes the payload. */
int64_t kl_lz4_unpack(const kl_lz4_t *lz4, const uint8_t *payload, size_t size, uint8_t *to, int64_t capacity);

/* The room that kl_lz4_pack needs for size bytes. */
int64_t kl_lz4_packed_max(int64_t size);

/* Write size bytes as a payload at to: its size. */
int64_t kl_lz4_pack(const kl_lz4_t *lz4, const uint8_t *plain, int64_t size, uint8_t *to);

#endif
