/* The necessary steps of an append of encoded batches, in one loop: copy (as a leader), check, checksum, write. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "batch.h"
#include "bytes.h"
#include "leader.h"
#include "status.h"

#define FIRST_STEP ((int64_t)64 << 10)
#define LAST_STEP ((int64_t)16 << 20)

/* Allocate blocks ahead of the end, in steps that double, as klog does.  Returns 0 or an errno. */
static int preallocate(int fd, int64_t end, int64_t *allocated) {
    while (end > *allocated) {
        int64_t step = *allocated < FIRST_STEP ? FIRST_STEP : *allocated < LAST_STEP ? *allocated : LAST_STEP;
        if (fallocate(fd, FALLOC_FL_KEEP_SIZE, *allocated, step) < 0 && errno != EOPNOTSUPP)
            return errno;
        *allocated += step;
    }
    return 0;
}

enum { WRITE, FOLLOW, LEAD };

/* Check a batch as a follower, or as a leader, which also sets its base offset.  Returns whether it is valid. */
static int take(uint8_t *at, size_t size, int64_t offset, int role) {
    const kl_leader_rules_t rules = {.now = INT64_MAX / 2, .before_max = INT64_MAX / 2, .after_max = 3600000};
    kl_leader_result_t found;
    kl_batch_t b;
    int32_t bad;
    if (kl_batch_header(at, size, &b) != KL_OK || b.crc != kl_batch_crc(at, b.size))
        return 0;
    if (role == FOLLOW)
        return 1;
    if (kl_leader_scan(at + KL_BATCH_HEADER, size - KL_BATCH_HEADER, b.count, b.base_timestamp, &rules, &found, &bad) !=
            KL_OK || found.misnumbered >= 0)
        return 0;
    b.base_offset = offset;
    kl_batch_header_store(at, &b);
    return 1;
}

/* Append n batches `repeats` times, from this byte position and this offset on.  buffer: memory for the largest batch.
 * Returns 0, an errno, or -1 for an invalid batch. */
int append_batches(int fd, uint8_t *const *batches, const int64_t *sizes, int64_t n, int64_t repeats, int64_t position,
                   int64_t offset, uint8_t *buffer, int role) {
    int64_t allocated = 0;
    for (int64_t i = 0; i < n * repeats; i++) {
        size_t size = (size_t)sizes[i % n];
        uint8_t *at = role == LEAD ? memcpy(buffer, batches[i % n], size) : batches[i % n];
        int failed;
        if (role != WRITE && !take(at, size, offset, role))
            return -1;
        offset += (int64_t)kl_load_u32(at + 57);
        failed = preallocate(fd, position + (int64_t)size, &allocated);
        if (failed)
            return failed;
        if (pwrite(fd, at, size, position) != (ssize_t)size)
            return errno ? errno : EIO;
        position += (int64_t)size;
    }
    return 0;
}
