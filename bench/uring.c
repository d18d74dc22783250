/* Durable appends to one file, one after the other, by one thread: the calls that make bytes durable, without Python.
 * io_uring by its system calls and the kernel's header: no liburing. bench/uring.py loads it.
 *
 *   0  pwrite, then fdatasync                                 two system calls an append, as klog makes them
 *   1  pwritev2 with RWF_DSYNC                                one
 *   2  io_uring: a write linked to an fsync of the data       one io_uring_enter for both, and for their completion
 *   3  io_uring: a write with RWF_DSYNC                       one
 *   4  as 2, submitted by a kernel thread (SQPOLL)            one, which only waits
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { PWRITE_FDATASYNC, PWRITEV2_DSYNC, URING_LINKED, URING_DSYNC, URING_LINKED_SQPOLL };
enum { ENTRIES = 4, SQPOLL_IDLE_MS = 50 };

typedef struct {
    int fd;
    size_t ring_bytes;
    uint8_t *ring;
    struct io_uring_sqe *sqes;
    uint32_t *sq_head, *sq_tail, *sq_flags, *sq_array, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask;
    struct io_uring_cqe *cqes;
    int polled;
} ring_t;

static int64_t now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* The voluntary context switches of all threads of this process, kernel threads of its rings included. */
static int64_t waits(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_nvcsw;
}

/* Returns 0, or -errno: -EPERM if io_uring is not permitted, -ENOSYS if the kernel does not have it. */
static int ring_open(ring_t *ring, int polled) {
    struct io_uring_params params = {.flags = polled ? IORING_SETUP_SQPOLL : 0, .sq_thread_idle = SQPOLL_IDLE_MS};
    int fd = (int)syscall(__NR_io_uring_setup, ENTRIES, &params);
    if (fd < 0)
        return -errno;
    size_t sq_bytes = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
    size_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    size_t bytes = sq_bytes > cq_bytes ? sq_bytes : cq_bytes;
    int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    if (!(params.features & IORING_FEAT_SINGLE_MMAP)) {
        close(fd);
        return -ENOSYS;
    }
    uint8_t *at = mmap(NULL, bytes, protection, flags, fd, IORING_OFF_SQ_RING);
    void *sqes = mmap(NULL, params.sq_entries * sizeof(struct io_uring_sqe), protection, flags, fd, IORING_OFF_SQES);
    if (at == MAP_FAILED || sqes == MAP_FAILED) {
        int status = -errno;
        close(fd);
        return status;
    }
    *ring = (ring_t){
        .fd = fd,
        .ring_bytes = bytes,
        .ring = at,
        .sqes = sqes,
        .sq_head = (uint32_t *)(at + params.sq_off.head),
        .sq_tail = (uint32_t *)(at + params.sq_off.tail),
        .sq_flags = (uint32_t *)(at + params.sq_off.flags),
        .sq_array = (uint32_t *)(at + params.sq_off.array),
        .cq_head = (uint32_t *)(at + params.cq_off.head),
        .cq_tail = (uint32_t *)(at + params.cq_off.tail),
        .sq_mask = *(uint32_t *)(at + params.sq_off.ring_mask),
        .cq_mask = *(uint32_t *)(at + params.cq_off.ring_mask),
        .cqes = (struct io_uring_cqe *)(at + params.cq_off.cqes),
        .polled = polled,
    };
    return 0;
}

static void ring_close(ring_t *ring) {
    munmap(ring->sqes, ENTRIES * sizeof(struct io_uring_sqe));
    munmap(ring->ring, ring->ring_bytes);
    close(ring->fd);
    if (ring->polled) /* wait for its kernel thread, whose processor time would count in the next run */
        nanosleep(&(struct timespec){.tv_nsec = 4 * SQPOLL_IDLE_MS * 1000000L}, NULL);
}

/* Submit these entries and wait until all are complete: user_data is the result that each must have. */
static int ring_run(ring_t *ring, const struct io_uring_sqe *entries, uint32_t count, int64_t *system_calls) {
    uint32_t tail = *ring->sq_tail;
    for (uint32_t i = 0; i < count; i++, tail++) {
        ring->sqes[tail & ring->sq_mask] = entries[i];
        ring->sq_array[tail & ring->sq_mask] = tail & ring->sq_mask;
    }
    __atomic_store_n(ring->sq_tail, tail, __ATOMIC_RELEASE);
    uint32_t submit = ring->polled ? 0 : count, flags = IORING_ENTER_GETEVENTS;
    if (ring->polled) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (__atomic_load_n(ring->sq_flags, __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP)
            flags |= IORING_ENTER_SQ_WAKEUP;
    }
    uint32_t head = *ring->cq_head, done = 0;
    while (done < count) {
        ++*system_calls;
        int entered = (int)syscall(__NR_io_uring_enter, ring->fd, submit, count - done, flags, NULL, 0);
        if (entered < 0 && errno != EINTR)
            return -errno;
        submit -= entered > 0 && !ring->polled ? (uint32_t)entered : 0;
        for (; head != __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE); head++, done++) {
            const struct io_uring_cqe *complete = &ring->cqes[head & ring->cq_mask];
            if (complete->res != (int32_t)complete->user_data)
                return complete->res < 0 ? complete->res : -EIO;
        }
        __atomic_store_n(ring->cq_head, head, __ATOMIC_RELEASE);
    }
    return 0;
}

static int append(int how, ring_t *ring, int fd, const uint8_t *from, int64_t bytes, int64_t position, int64_t *calls) {
    if (how == PWRITE_FDATASYNC) {
        *calls += 2;
        if (pwrite(fd, from, (size_t)bytes, position) != bytes)
            return -EIO;
        return fdatasync(fd) < 0 ? -errno : 0;
    }
    if (how == PWRITEV2_DSYNC) {
        ++*calls;
        struct iovec part = {.iov_base = (void *)from, .iov_len = (size_t)bytes};
        ssize_t written = pwritev2(fd, &part, 1, position, RWF_DSYNC);
        return written == bytes ? 0 : written < 0 ? -errno : -EIO;
    }
    struct io_uring_sqe write = {
        .opcode = IORING_OP_WRITE,
        .fd = fd,
        .off = (uint64_t)position,
        .addr = (uint64_t)(uintptr_t)from,
        .len = (uint32_t)bytes,
        .rw_flags = how == URING_DSYNC ? RWF_DSYNC : 0,
        .flags = how == URING_DSYNC ? 0 : IOSQE_IO_LINK,
        .user_data = (uint64_t)bytes,
    };
    struct io_uring_sqe sync = {.opcode = IORING_OP_FSYNC, .fd = fd, .fsync_flags = IORING_FSYNC_DATASYNC};
    return ring_run(ring, (struct io_uring_sqe[]){write, sync}, how == URING_DSYNC ? 1 : 2, calls);
}

/* `count` appends of `bytes` each to a new file whose blocks are allocated before: the bytes of append i are all i + 1.
 * zeros: the blocks are written, so that an append changes neither the file's length nor its extents.
 * Gives the nanoseconds of each append, and of all together the processor time of this process and how often it waited,
 * kernel threads of its ring included, and the number of its system calls. Returns 0 or -errno. */
int uring_run(const char *path, int how, int64_t bytes, int count, int zeros, int64_t *nanoseconds, int64_t *processor,
              int64_t *system_calls, int64_t *switches) {
    ring_t ring;
    int rings = how >= URING_LINKED;
    int status = rings ? ring_open(&ring, how == URING_LINKED_SQPOLL) : 0;
    if (status)
        return status;
    uint8_t *from = aligned_alloc(4096, (size_t)(bytes + 4095) & ~(size_t)4095);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (from == NULL || fd < 0 || fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, bytes * count) < 0)
        status = -errno;
    if (status == 0)
        memset(from, 0, (size_t)bytes);
    for (int i = 0; zeros && status == 0 && i < count; i++)
        if (pwrite(fd, from, (size_t)bytes, i * bytes) != bytes)
            status = -EIO;
    if (status == 0 && fsync(fd) < 0)
        status = -errno;
    int64_t before = now(CLOCK_PROCESS_CPUTIME_ID), waited = waits();
    *system_calls = 0;
    for (int i = 0; status == 0 && i < count; i++) {
        memset(from, i + 1, (size_t)bytes);
        int64_t started = now(CLOCK_MONOTONIC);
        status = append(how, &ring, fd, from, bytes, i * bytes, system_calls);
        nanoseconds[i] = now(CLOCK_MONOTONIC) - started;
    }
    *processor = now(CLOCK_PROCESS_CPUTIME_ID) - before;
    *switches = waits() - waited;
    if (rings)
        ring_close(&ring);
    if (fd >= 0)
        close(fd);
    free(from);
    return status;
}
