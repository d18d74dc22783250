/* The peers of a send: a receiver in its own thread, and loops that send slices of a file.  bench/send_contests.py
 * loads it. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crc32c.h"

enum { TAKE = 1 << 18 };

typedef struct receiver {
    pthread_t thread;
    int fd;
    int checks;
    _Atomic int64_t got;
    uint32_t crc;
    char memory[TAKE];
} receiver_t;

static void *receive(void *of) {
    receiver_t *r = of;
    ssize_t n;
    while ((n = recv(r->fd, r->memory, TAKE, 0)) > 0) {
        if (r->checks)
            r->crc = kl_crc32c(r->crc, (const uint8_t *)r->memory, (size_t)n);
        r->got += n;
    }
    return NULL;
}

/* Receive everything on fd, on this processor (-1: any). NULL without memory or a thread. */
receiver_t *receiver_start(int fd, int processor) {
    receiver_t *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return NULL;
    r->fd = fd;
    if (pthread_create(&r->thread, NULL, receive, r) != 0) {
        free(r);
        return NULL;
    }
    if (processor >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(processor, &set);
        pthread_setaffinity_np(r->thread, sizeof(set), &set);
    }
    return r;
}

void receiver_check(receiver_t *r, int checks) {
    r->crc = 0;
    r->checks = checks;
}

int64_t receiver_got(receiver_t *r) {
    return r->got;
}

/* Wait until `bytes` bytes have arrived since the start.  Returns the checksum since receiver_check(r, 1). */
uint32_t receiver_wait(receiver_t *r, int64_t bytes) {
    while (r->got < bytes)
        sched_yield();
    return r->crc;
}

/* Wait for the thread and free the receiver.  Call it after the other end was closed. */
void receiver_end(receiver_t *r) {
    pthread_join(r->thread, NULL);
    free(r);
}

/* Send n slices of one size from these positions, by sendfile.  Returns 0 or an errno. */
int send_by_sendfile(int to, int from, const int64_t *positions, int64_t n, int64_t size) {
    for (int64_t i = 0; i < n; i++) {
        off_t at = positions[i];
        for (int64_t left = size; left > 0;) {
            ssize_t sent = sendfile(to, from, &at, (size_t)left);
            if (sent <= 0 && errno != EINTR)
                return errno ? errno : EIO;
            left -= sent > 0 ? sent : 0;
        }
    }
    return 0;
}

/* The same by pread into `memory` and send. */
int send_by_copy(int to, int from, const int64_t *positions, int64_t n, int64_t size, char *memory) {
    for (int64_t i = 0; i < n; i++) {
        if (pread(from, memory, (size_t)size, positions[i]) != size)
            return EIO;
        for (int64_t done = 0; done < size;) {
            ssize_t sent = send(to, memory + done, (size_t)(size - done), MSG_NOSIGNAL);
            if (sent < 0 && errno != EINTR)
                return errno;
            done += sent > 0 ? sent : 0;
        }
    }
    return 0;
}
