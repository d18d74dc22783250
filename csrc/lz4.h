/* lz4 payloads as Kafka's clients and klog write them, with the block functions of an LZ4 library found by the caller.
 *
 *   payload := 04 22 4d 18 60 40 82 block* 00 00 00 00     independent blocks of up to 64 KiB, no checksums or sizes
 *   block   := size:u32, its top bit for bytes that are stored as they are; size bytes                  little-endian
 *
 * Any other frame, and an invalid one, is refused without a reason: klog.codec.decompress handles the valid ones and
 * reports what is wrong with the others.
 */
#ifndef KL_LZ4_H
#define KL_LZ4_H

#include <stddef.h>
#include <stdint.h>

/* LZ4_decompress_safe and LZ4_compress_default: (from, to, bytes at from, space at to) -> bytes written, not above 0 on
 * failure (0 also means no bytes).  Neither reads or writes beyond its arguments. */
typedef int (*kl_lz4_block_t)(const char *from, char *to, int size, int space);

typedef struct {
    kl_lz4_block_t decompress, compress;
} kl_lz4_t;

/* The most bytes that a payload can decompress to, computed from its blocks; -1 for one that is refused. */
int64_t kl_lz4_plain_max(const uint8_t *payload, size_t size);

/* Decompress a payload to to[0..capacity).  Returns the number of bytes, or -1 if the payload is refused or does not
 * fit: kl_lz4_plain_max(payload) bytes are enough.  Stays within both buffers even if another thread changes the
 * payload. */
int64_t kl_lz4_unpack(const kl_lz4_t *lz4, const uint8_t *payload, size_t size, uint8_t *to, int64_t capacity);

/* The space that kl_lz4_pack needs for size bytes. */
int64_t kl_lz4_packed_max(int64_t size);

/* Compress size bytes to a payload at to.  Returns its size. */
int64_t kl_lz4_pack(const kl_lz4_t *lz4, const uint8_t *plain, int64_t size, uint8_t *to);

#endif
