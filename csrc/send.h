/* A slice of a file goes to a socket, a pipe or another file, by the first of three ways that serves:
 *
 *   sendfile  no copy, one call
 *   splice    no copy, two calls, through a pipe: where a file system or a target knows no sendfile
 *   copy      read into memory that the caller brings, and sent from there: always
 *
 * A way that the kernel refuses (EINVAL, ENOSYS, EOPNOTSUPP, ...) is given up for the next one, in the middle of a
 * slice too. Only what the target has taken counts as sent: what a pipe or the memory still held is read again.
 *
 * A peer that is gone is -EPIPE, never a SIGPIPE: where the process has not said that it ignores the signal, it is
 * blocked in this thread for the length of the call.
 */
#ifndef KL_SEND_H
#define KL_SEND_H

#include "osio.h"

enum { KL_BY_SENDFILE, KL_BY_SPLICE, KL_BY_COPY, KL_WAYS };

enum {
    KL_SEND_DONE = 0,
    KL_SEND_ENDS = 1,         /* the file ends before the slice does */
    KL_SEND_WANTS_MEMORY = 2, /* bring some, and call again */
};

/* What is left of a slice, and what has become of the rest. The caller sets all of it, zeros where nothing is said. */
typedef struct kl_send {
    int64_t at;            /* byte of the file that goes next */
    int64_t left;          /* bytes still to go */
    int64_t went[KL_WAYS]; /* bytes that went, by way */
    int64_t wait_ns;       /* how long to wait for a target that takes nothing: -1 for ever, 0 not at all */
    int64_t waited_ns;     /* of that, since something went */
    int64_t asked;         /* what the last call that moved something was to move */
    int of_target;         /* was it the target, not the file, that the last error came from? */
    int way;
    int pipe[2];    /* with pipe_open: of splice */
    int pipe_open;
    char *memory;   /* of the copying way */
    size_t memory_size;
    size_t held;    /* bytes in the pipe or in memory: the file's from `at` on */
    size_t held_at; /* where in memory they begin */
} kl_send_t;

/* Send until nothing is left (KL_SEND_DONE), or the target takes no more in time: -EAGAIN where wait_ns is 0, -ETIME
 * otherwise. -EINTR: a signal may have come; deal with it and call again. Other -errno: no more will go. In the end,
 * whatever it is, kl_send_end(). */
int kl_send(const kl_io_t *io, int to, int from, kl_send_t *send);

/* Give back the pipe. What it still holds has not been sent. */
void kl_send_end(kl_send_t *send);

/* Bytes of memory that go to a target before or after a slice: *done moves on, else as kl_send. more: what follows is
 * on its way, so that a packet need not leave for these alone. */
int kl_send_bytes(const kl_io_t *io, int to, const char *data, size_t size, size_t *done, int more, int64_t wait_ns,
                  int64_t *waited_ns);

#endif
