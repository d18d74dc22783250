/* A table of system calls. A call that matches a rule follows it; any other call goes to the kernel. Every call is
 * counted.
 *
 * A rule is for one function. Beginning with call number `first` (1: the next call), `times` calls wait `delay_us`, or
 * until the rule is released, and then fail with `error`, or move at most `at_most` bytes. If several rules match, the
 * first one is used.
 */
#include "osio.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { PREAD, PWRITE, PREADV2, PWRITEV2, FSYNC, FDATASYNC, SYNC_FILE_RANGE, FTRUNCATE, FALLOCATE, FADVISE, SENDFILE,
       SPLICE, SEND, CACHESTAT, MINCORE, FUNCTIONS };
enum { RULES = 32 };

typedef struct rule {
    int64_t function; /* -1: no rule */
    int64_t first;
    int64_t times;
    int64_t error;
    int64_t at_most; /* bytes, -1: as requested */
    int64_t delay_us;
    int64_t claims; /* sendfile, fsync, fdatasync: nothing is done, and success is returned */
} rule_t;

rule_t faulty_rules[RULES];
_Atomic int64_t faulty_calls[FUNCTIONS];
_Atomic int64_t faulty_hits[RULES];
_Atomic int64_t faulty_released[RULES];

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* In steps of at most a millisecond: a signal ends a step, but not the wait. */
static void wait_for(int64_t delay_us, _Atomic int64_t *released) {
    int64_t end = now_us() + delay_us, left;
    while (!atomic_load(released) && (left = end - now_us()) > 0) {
        struct timespec step = {0, (left < 1000 ? left : 1000) * 1000};
        nanosleep(&step, NULL);
    }
}

static const rule_t *look(int function) {
    int64_t number = atomic_fetch_add(&faulty_calls[function], 1) + 1;
    for (int i = 0; i < RULES; i++) {
        const rule_t *rule = &faulty_rules[i];
        if (rule->times == 0 || rule->function != function || number < rule->first ||
            number - rule->first >= rule->times)
            continue;
        atomic_fetch_add(&faulty_hits[i], 1);
        if (rule->delay_us)
            wait_for(rule->delay_us, &faulty_released[i]);
        return rule;
    }
    return NULL;
}

static int fails(const rule_t *rule) {
    if (rule == NULL || rule->error == 0)
        return 0;
    errno = (int)rule->error;
    return 1;
}

static size_t bound(const rule_t *rule, size_t size) {
    return rule != NULL && rule->at_most >= 0 && (size_t)rule->at_most < size ? (size_t)rule->at_most : size;
}

static ssize_t f_pread(int fd, void *buf, size_t size, off_t at) {
    const rule_t *rule = look(PREAD);
    return fails(rule) ? -1 : kl_io_kernel()->pread(fd, buf, bound(rule, size), at);
}

static ssize_t f_pwrite(int fd, const void *buf, size_t size, off_t at) {
    const rule_t *rule = look(PWRITE);
    return fails(rule) ? -1 : kl_io_kernel()->pwrite(fd, buf, bound(rule, size), at);
}

/* Only the first part, shortened: a short count is any count below the total. Of a write without its flags, which the
 * file system may refuse. */
static ssize_t f_preadv2(int fd, const struct iovec *parts, int n, off_t at, int flags) {
    const rule_t *rule = look(PREADV2);
    if (fails(rule))
        return -1;
    if (rule == NULL || rule->at_most < 0)
        return kl_io_kernel()->preadv2(fd, parts, n, at, flags);
    struct iovec first = {parts[0].iov_base, bound(rule, parts[0].iov_len)};
    return kl_io_kernel()->preadv2(fd, &first, 1, at, flags);
}

static ssize_t f_pwritev2(int fd, const struct iovec *parts, int n, off_t at, int flags) {
    const rule_t *rule = look(PWRITEV2);
    if (fails(rule))
        return -1;
    if (rule == NULL || rule->at_most < 0)
        return kl_io_kernel()->pwritev2(fd, parts, n, at, flags);
    struct iovec first = {parts[0].iov_base, bound(rule, parts[0].iov_len)};
    return kl_io_kernel()->pwritev2(fd, &first, 1, at, 0);
}

static int f_fsync(int fd) {
    const rule_t *rule = look(FSYNC);
    if (rule != NULL && rule->claims)
        return 0;
    return fails(rule) ? -1 : kl_io_kernel()->fsync(fd);
}

static int f_fdatasync(int fd) {
    const rule_t *rule = look(FDATASYNC);
    if (rule != NULL && rule->claims)
        return 0;
    return fails(rule) ? -1 : kl_io_kernel()->fdatasync(fd);
}

static int f_sync_file_range(int fd, off_t at, off_t size, unsigned flags) {
    return fails(look(SYNC_FILE_RANGE)) ? -1 : kl_io_kernel()->sync_file_range(fd, at, size, flags);
}

static int f_ftruncate(int fd, off_t size) {
    return fails(look(FTRUNCATE)) ? -1 : kl_io_kernel()->ftruncate(fd, size);
}

static int f_fallocate(int fd, int mode, off_t at, off_t size) {
    return fails(look(FALLOCATE)) ? -1 : kl_io_kernel()->fallocate(fd, mode, at, size);
}

static int f_fadvise(int fd, off_t at, off_t size, int advice) {
    return fails(look(FADVISE)) ? errno : kl_io_kernel()->fadvise(fd, at, size, advice);
}

static ssize_t f_sendfile(int to, int from, off_t *at, size_t size) {
    const rule_t *rule = look(SENDFILE);
    if (rule != NULL && rule->claims)
        return (ssize_t)size;
    return fails(rule) ? -1 : kl_io_kernel()->sendfile(to, from, at, bound(rule, size));
}

static ssize_t f_splice(int from, off_t *from_at, int to, off_t *to_at, size_t size, unsigned flags) {
    const rule_t *rule = look(SPLICE);
    return fails(rule) ? -1 : kl_io_kernel()->splice(from, from_at, to, to_at, bound(rule, size), flags);
}

static ssize_t f_send(int to, const void *data, size_t size, int flags) {
    const rule_t *rule = look(SEND);
    return fails(rule) ? -1 : kl_io_kernel()->send(to, data, bound(rule, size), flags);
}

static int f_cachestat(int fd, int64_t at, int64_t size, kl_cached_t *found) {
    return fails(look(CACHESTAT)) ? -1 : kl_io_kernel()->cachestat(fd, at, size, found);
}

static int f_mincore(int fd, off_t at, size_t size, unsigned char *pages) {
    return fails(look(MINCORE)) ? -1 : kl_io_kernel()->mincore(fd, at, size, pages);
}

const kl_io_t faulty_table = {
    .pread = f_pread,
    .pwrite = f_pwrite,
    .preadv2 = f_preadv2,
    .pwritev2 = f_pwritev2,
    .fsync = f_fsync,
    .fdatasync = f_fdatasync,
    .sync_file_range = f_sync_file_range,
    .ftruncate = f_ftruncate,
    .fallocate = f_fallocate,
    .fadvise = f_fadvise,
    .sendfile = f_sendfile,
    .splice = f_splice,
    .send = f_send,
    .cachestat = f_cachestat,
    .mincore = f_mincore,
};
