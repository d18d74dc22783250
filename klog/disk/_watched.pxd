from libc.stdint cimport int64_t

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <sys/stat.h>
    #include <time.h>

    typedef struct { uint64_t inode; int64_t size, stamp_ns; } kl_stat_t;

    static inline int64_t kl_ns(struct timespec at) { return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec; }

    static inline int64_t kl_tick_ns(void) {
        struct timespec at;
        clock_gettime(CLOCK_REALTIME_COARSE, &at);
        return kl_ns(at);
    }

    static inline int64_t kl_elapsed_ns(void) {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &at);
        return kl_ns(at);
    }

    static inline int kl_stat(const char *path, kl_stat_t *seen) {
        struct stat found;
        if (stat(path, &found) != 0)
            return 0;
        seen->inode = found.st_ino;
        seen->size = found.st_size;
        seen->stamp_ns = kl_ns(found.st_mtim);
        return 1;
    }

    static inline int kl_same(const kl_stat_t *a, const kl_stat_t *b) {
        return a->inode == b->inode && a->size == b->size && a->stamp_ns == b->stamp_ns;
    }
    """
    ctypedef struct kl_stat_t:
        int64_t size
        int64_t stamp_ns
    int64_t kl_tick_ns()
    int64_t kl_elapsed_ns()
    int kl_stat(const char *path, kl_stat_t *seen)
    int kl_same(const kl_stat_t *a, const kl_stat_t *b)


cdef class Watched:
    cdef bytes file
    cdef bytes directory
    cdef kl_stat_t of_file
    cdef kl_stat_t of_directory
    cdef int64_t until_ns       # by the monotonic clock: from then on nothing counts as unchanged
    cdef bint certain           # an accepted stat() counts
    cdef readonly bint same_directory
    cdef bint seen              # `certain` of the last stat(), before accept()

    cdef bint unchanged(self) noexcept
