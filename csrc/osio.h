/* Every kernel call of the engine that moves or keeps bytes goes through one table, handed in: the real one is
 * kl_io_libc, tests bring tables that fail, tear and delay.
 *
 * The wrappers below continue after EINTR and after short counts, and answer -errno.
 */
#ifndef KL_OSIO_H
#define KL_OSIO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef struct kl_io {
    ssize_t (*pread)(int fd, void *buf, size_t size, off_t at);
    ssize_t (*pwrite)(int fd, const void *buf, size_t size, off_t at);
    int (*fsync)(int fd);
    int (*fdatasync)(int fd);
    int (*ftruncate)(int fd, off_t size);
    int (*fallocate)(int fd, int mode, off_t at, off_t size);
} kl_io_t;

extern const kl_io_t kl_io_libc;

/* The address of kl_io_libc, for languages that cannot take it. */
const kl_io_t *kl_io_kernel(void);

/* Read until size bytes or the end of the file: the number of bytes read, or -errno. */
int64_t kl_pread(const kl_io_t *io, int fd, void *buf, size_t size, int64_t at);

/* Write all of it: 0 or -errno.  On failure any part may have been written. */
int kl_pwrite(const kl_io_t *io, int fd, const void *buf, size_t size, int64_t at);

int kl_fsync(const kl_io_t *io, int fd);
int kl_fdatasync(const kl_io_t *io, int fd);
int kl_ftruncate(const kl_io_t *io, int fd, int64_t size);

/* Give blocks to [at, at + size).  keep_size: the file's length stays.  A file system that cannot is no failure: 0. */
int kl_fallocate(const kl_io_t *io, int fd, int keep_size, int64_t at, int64_t size);

#endif
