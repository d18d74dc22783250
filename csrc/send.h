/* Send a slice of a file to a socket, a pipe or another file, by the first of three methods that works:
 *
 *   sendfile  no copy, one call
 *   splice    no copy, two calls, through a pipe: if a file system or a target does not support sendfile
 *   copy      read into memory that the caller provides, and send from there: always works
 *
 * If the kernel refuses a method (EINVAL, ENOSYS, EOPNOTSUPP, ...), the next one is used, even in the middle of a
 * slice. Only bytes that the target has taken count as sent: bytes that were still in the pipe or in memory are read
 * again.
 *
 * If the peer has closed the connection, the result is -EPIPE, never a SIGPIPE: unless the process ignores the signal,
 * it is blocked in this thread during the call.
 */
#ifndef KL_SEND_H
#define KL_SEND_H

#include "osio.h"

enum { KL_BY_SENDFILE, KL_BY_SPLICE, KL_BY_COPY, KL_SEND_METHODS };

enum {
    KL_SEND_DONE = 0,
    KL_SEND_END_OF_FILE = 1,  /* the file ends before the slice does */
    KL_SEND_NEEDS_MEMORY = 2, /* provide memory, and call again */
};

/* The rest of a slice, and what was sent. The caller initializes all of it, with zeros unless stated otherwise. */
typedef struct kl_send {
    int64_t at;            /* position of the next byte to send */
    int64_t left;          /* bytes still to send */
    int64_t sent[KL_SEND_METHODS]; /* by method, in bytes */
    int64_t wait_ns;       /* how long to wait for a target that takes no bytes: -1 without a limit, 0 not at all */
    int64_t waited_ns;     /* how long it has waited since the last byte was sent */
    int64_t requested;     /* the size that the last call tried to send */
    int from_target;       /* 1 if the last error came from the target, not from the file */
    int method;
    int pipe[2];    /* with pipe_open: of splice */
    int pipe_open;
    char *memory;   /* of the copy method */
    size_t memory_size;
    size_t held;    /* bytes in the pipe or in memory: the file's from `at` on */
    size_t held_at; /* where they begin in memory */
} kl_send_t;

/* Send until nothing is left (KL_SEND_DONE), or the target takes no more in time: -EAGAIN if wait_ns is 0, -ETIME
 * otherwise. -EINTR: a signal may have arrived; handle it and call again. Other -errno: sending has failed. In the end
 * always call kl_send_end(). */
int kl_send(const kl_io_t *io, int to, int from, kl_send_t *send);

/* Close the pipe. The bytes in it have not been sent. */
void kl_send_end(kl_send_t *send);

/* Send bytes of memory before or after a slice: *done advances, otherwise as kl_send. more: other bytes follow at once,
 * so a partial packet may wait for them. */
int kl_send_bytes(const kl_io_t *io, int to, const char *data, size_t size, size_t *done, int more, int64_t wait_ns,
                  int64_t *waited_ns);

#endif
