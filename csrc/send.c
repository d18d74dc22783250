#include "send.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STEP ((int64_t)1 << 30)     /* the most for one call, somewhat less than the kernel's 2 GiB */
#define PIPE_BYTES (1 << 20)        /* the default limit for a user without privileges */
#define COPY_BYTES ((size_t)1 << 18) /* read and sent while it is in the L2 cache */
/* The most to send in small steps without checking for a signal. */
#define UNCHECKED_BYTES ((int64_t)1 << 24)
#define MISALIGN 63                 /* memory keeps the file position's offset in a cache line */

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- no SIGPIPE -------------------------------------------------------------------------------------------------- */

typedef struct guard {
    sigset_t before;
    int blocked, was_pending;
} guard_t;

static void only_sigpipe(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGPIPE);
}

static void guard_on(guard_t *guard) {
    struct sigaction now;
    sigset_t set;
    guard->blocked = sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler != SIG_IGN;
    if (!guard->blocked)
        return;
    sigpending(&set);
    guard->was_pending = sigismember(&set, SIGPIPE);
    only_sigpipe(&set);
    pthread_sigmask(SIG_BLOCK, &set, &guard->before);
}

static void guard_off(const guard_t *guard) {
    const struct timespec at_once = {0, 0};
    sigset_t set;
    if (!guard->blocked)
        return;
    if (!guard->was_pending) { /* this call may have raised it: after some bytes, no errno reports that */
        only_sigpipe(&set);
        sigtimedwait(&set, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

/* ---- one step of each method: bytes sent, 0 at the end of the file, -errno, or one of these ----------------- */

enum { NOT_SUPPORTED = -100000, NO_MEMORY = -100001 };

/* Does this errno mean that the kernel does not support this method, rather than an error of the file or the target? */
static int refused(int error) {
    return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == ESPIPE || error == EXDEV;
}

/* Did an EIO of a call that reads and sends come from the target? A socket never returns one; another target did if the
 * file can be read. */
static int target_failed(const kl_io_t *io, int to, int from, int64_t at) {
    struct stat target;
    char byte;
    if (fstat(to, &target) == 0 && S_ISSOCK(target.st_mode))
        return 0;
    return kl_pread(io, from, &byte, 1, at) >= 0;
}

static int64_t by_sendfile(const kl_io_t *io, int to, int from, kl_send_t *s) {
    off_t at = s->at;
    ssize_t n;
    s->requested = s->left < STEP ? s->left : STEP;
    n = io->sendfile(to, from, &at, (size_t)s->requested);
    if (n >= 0)
        return n;
    n = -errno;
    if (refused((int)-n))
        return NOT_SUPPORTED;
    if (n == -EIO)
        s->from_target = target_failed(io, to, from, s->at);
    return n;
}

static int open_pipe(kl_send_t *s) {
    if (!s->pipe_open) {
        if (pipe2(s->pipe, O_CLOEXEC) < 0)
            return 0;
        s->pipe_open = 1;
        (void)fcntl(s->pipe[1], F_SETPIPE_SZ, PIPE_BYTES); /* the default size works too */
    }
    return 1;
}

static int64_t by_splice(const kl_io_t *io, int to, int from, kl_send_t *s) {
    ssize_t n;
    if (!open_pipe(s))
        return NOT_SUPPORTED;
    if (s->held == 0) {
        off_t at = s->at;
        size_t size = (size_t)(s->left < PIPE_BYTES ? s->left : PIPE_BYTES);
        n = io->splice(from, &at, s->pipe[1], NULL, size, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n == 0)
            return 0;
        if (n < 0)
            return refused(errno) || errno == EAGAIN ? NOT_SUPPORTED : -errno; /* EAGAIN: a pipe that takes no page */
        s->held = (size_t)n;
    }
    s->requested = (int64_t)s->held;
    n = io->splice(s->pipe[0], NULL, to, NULL, s->held, SPLICE_F_MOVE | ((int64_t)s->held < s->left ? SPLICE_F_MORE : 0));
    if (n > 0) {
        s->held -= (size_t)n;
        return n;
    }
    s->from_target = 1;
    return n == 0 || refused(errno) ? NOT_SUPPORTED : -errno;
}

static int64_t by_copy(const kl_io_t *io, int to, int from, kl_send_t *s) {
    ssize_t n;
    if (s->memory == NULL)
        return NO_MEMORY;
    if (s->held == 0) {
        size_t shift = (size_t)s->at & MISALIGN, space = s->memory_size - shift;
        size_t size = space < COPY_BYTES ? space : COPY_BYTES;
        int64_t got = kl_pread(io, from, s->memory + shift, s->left < (int64_t)size ? (size_t)s->left : size, s->at);
        if (got <= 0)
            return got;
        s->held = (size_t)got;
        s->held_at = shift;
    }
    s->requested = (int64_t)s->held;
    s->from_target = 1; /* any failure from here on */
    n = io->send(to, s->memory + s->held_at, s->held, MSG_NOSIGNAL | ((int64_t)s->held < s->left ? MSG_MORE : 0));
    if (n < 0)
        return -errno;
    s->held -= (size_t)n;
    s->held_at += (size_t)n;
    return n == 0 ? -EIO : n;
}

static int64_t step(const kl_io_t *io, int to, int from, kl_send_t *s) {
    for (;;) {
        int64_t n;
        s->from_target = 0;
        if (s->method == KL_BY_COPY)
            return by_copy(io, to, from, s);
        n = s->method == KL_BY_SENDFILE ? by_sendfile(io, to, from, s) : by_splice(io, to, from, s);
        if (n != NOT_SUPPORTED)
            return n;
        kl_send_end(s); /* the bytes in the pipe are read again */
        s->method++;
    }
}

/* ---- the whole slice --------------------------------------------------------------------------------------------- */

/* Returns 0 if the target may take more. */
static int wait_for(int to, int64_t wait_ns, int64_t *waited_ns) {
    struct pollfd target = {.fd = to, .events = POLLOUT};
    int64_t left = wait_ns - *waited_ns, began;
    struct timespec time = {left / 1000000000, left % 1000000000};
    int ready;
    if (wait_ns == 0)
        return -EAGAIN;
    if (wait_ns > 0 && left <= 0)
        return -ETIME;
    began = now_ns();
    ready = ppoll(&target, 1, wait_ns < 0 ? NULL : &time, NULL);
    *waited_ns += now_ns() - began;
    if (ready < 0)
        return -errno;
    return ready > 0 ? 0 : -ETIME;
}

static int send_all(const kl_io_t *io, int to, int from, kl_send_t *s) {
    int64_t unchecked = 0;
    while (s->left > 0) {
        int64_t n = step(io, to, from, s);
        if (n > 0) {
            s->at += n;
            s->left -= n;
            s->sent[s->method] += n;
            s->waited_ns = 0;
            unchecked += n;
            if (s->wait_ns < 0 && (n < s->requested || unchecked >= UNCHECKED_BYTES))
                return -EINTR; /* a signal interrupts a call that waits, and the next call would wait again */
            continue;
        }
        if (n == 0)
            return KL_SEND_END_OF_FILE;
        if (n == NO_MEMORY)
            return KL_SEND_NEEDS_MEMORY;
        if (n == -EAGAIN)
            n = wait_for(to, s->wait_ns, &s->waited_ns);
        if (n < 0)
            return (int)n;
    }
    return KL_SEND_DONE;
}

int kl_send(const kl_io_t *io, int to, int from, kl_send_t *send) {
    guard_t guard;
    int status;
    guard_on(&guard);
    status = send_all(io, to, from, send);
    guard_off(&guard);
    return status;
}

void kl_send_end(kl_send_t *send) {
    if (send->pipe_open) {
        close(send->pipe[0]);
        close(send->pipe[1]);
        send->pipe_open = 0;
    }
    send->held = 0;
}

static int bytes_all(const kl_io_t *io, int to, const char *data, size_t size, size_t *done, int more, int64_t wait_ns,
                     int64_t *waited_ns) {
    while (*done < size) {
        ssize_t n = io->send(to, data + *done, size - *done, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        int status;
        if (n > 0) {
            *done += (size_t)n;
            *waited_ns = 0;
            if (wait_ns < 0 && *done < size)
                return -EINTR; /* as in send_all */
            continue;
        }
        if (n == 0)
            return -EIO;
        if (errno != EAGAIN)
            return -errno;
        status = wait_for(to, wait_ns, waited_ns);
        if (status < 0)
            return status;
    }
    return KL_SEND_DONE;
}

int kl_send_bytes(const kl_io_t *io, int to, const char *data, size_t size, size_t *done, int more, int64_t wait_ns,
                  int64_t *waited_ns) {
    guard_t guard;
    int status;
    guard_on(&guard);
    status = bytes_all(io, to, data, size, done, more, wait_ns, waited_ns);
    guard_off(&guard);
    return status;
}
