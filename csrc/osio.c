#include "osio.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 0x01
#endif

const kl_io_t kl_io_libc = {
    .pread = pread,
    .pwrite = pwrite,
    .fsync = fsync,
    .fdatasync = fdatasync,
    .ftruncate = ftruncate,
    .fallocate = fallocate,
};

const kl_io_t *kl_io_kernel(void) {
    return &kl_io_libc;
}

int64_t kl_pread(const kl_io_t *io, int fd, void *buf, size_t size, int64_t at) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = io->pread(fd, (char *)buf + done, size - done, at + (int64_t)done);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (int64_t)done;
}

int kl_pwrite(const kl_io_t *io, int fd, const void *buf, size_t size, int64_t at) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = io->pwrite(fd, (const char *)buf + done, size - done, at + (int64_t)done);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            return -EIO;
        done += (size_t)n;
    }
    return 0;
}

/* EINTR from fsync would leave the pages in doubt; Linux does not answer it for regular files.  No retry (S2). */
int kl_fsync(const kl_io_t *io, int fd) {
    return io->fsync(fd) < 0 ? -errno : 0;
}

int kl_fdatasync(const kl_io_t *io, int fd) {
    return io->fdatasync(fd) < 0 ? -errno : 0;
}

int kl_ftruncate(const kl_io_t *io, int fd, int64_t size) {
    int r;
    do {
        r = io->ftruncate(fd, size);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

int kl_fallocate(const kl_io_t *io, int fd, int keep_size, int64_t at, int64_t size) {
    int r;
    do {
        r = io->fallocate(fd, keep_size ? FALLOC_FL_KEEP_SIZE : 0, at, size);
    } while (r < 0 && errno == EINTR);
    if (r == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
        return 0;
    return -errno;
}
