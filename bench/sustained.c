/* Write batch after batch to a new file by pwrite, with blocks allocated in steps and a write-behind window: the
 * write-back of new bytes begins every `step` bytes, and pages are dropped from the page cache when they are `window`
 * bytes before the end.  window 0: neither. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#define FOLIO_MAX (2 << 20)

int sustained_run(const char *path, const uint8_t *batch, int64_t batch_bytes, int count, int64_t window, int64_t step) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        return -errno;
    int64_t end = 0, allocated = 0, begun = 0, dropped = 0;
    int status = 0;
    for (int i = 0; i < count && status == 0; i++) {
        if (end + batch_bytes > allocated) {
            int64_t more = allocated < 65536 ? 65536 : allocated < (16 << 20) ? allocated : (16 << 20);
            if (more < end + batch_bytes - allocated)
                more = end + batch_bytes - allocated;
            if (fallocate(fd, FALLOC_FL_KEEP_SIZE, allocated, more) < 0 && errno != EOPNOTSUPP)
                status = -errno;
            allocated += more;
        }
        if (status == 0 && pwrite(fd, batch, (size_t)batch_bytes, end) != batch_bytes)
            status = -EIO;
        end += batch_bytes;
        if (status || window == 0 || end < begun + step)
            continue;
        int64_t to = end & -4096, drop = (to - window) & -4096;
        if (sync_file_range(fd, begun, to - begun, SYNC_FILE_RANGE_WRITE) < 0)
            status = -errno;
        begun = to;
        if (drop > dropped && status == 0) {
            int64_t from = dropped > FOLIO_MAX ? dropped - FOLIO_MAX : 0;
            unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
            if (sync_file_range(fd, dropped, drop - dropped, wait) < 0)
                status = -errno;
            posix_fadvise(fd, from, drop - from, POSIX_FADV_DONTNEED);
            dropped = drop;
        }
    }
    close(fd);
    return status;
}
