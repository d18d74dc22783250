/* A library for LD_PRELOAD: before a call of libc that reads, writes or names files, a hook is called. It also counts
 * allocations. See intercept.py.
 *
 * The hook is called if the path of the call, or that of its descriptor, is at or below the watched directory, or if
 * its memory is mapped from a file there. The hook returns what the call does: IC_PASS, an errno to fail with, or one
 * of the IC_ values below. Its arguments include the return addresses of all klog libraries on the stack, the innermost
 * first.
 *
 * An allocation is counted if klog's own libraries make it. From number ic_fail_first on, ic_fail_times of them fail.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { IC_PASS = 0, IC_SHORT = -1, IC_TEAR = -2, IC_LOSE = -3, IC_TEAR_AND_DIE = -4, IC_COLD = -5 };
enum { CALLERS_MAX = 48, RANGES_MAX = 256 };

typedef long (*hook_t)(const char *call, const char *path, long size, int n, void *const *callers);

static hook_t hook;
static char watched[PATH_MAX];
static size_t watched_size;
static struct { uintptr_t low, high; } ranges[RANGES_MAX];
static int ranges_count;
static uintptr_t mapped[64][2];
static _Thread_local int inside;

_Atomic int64_t ic_allocations;
int64_t ic_fail_first, ic_fail_times;
_Atomic int64_t ic_failed;
void *ic_failed_at[4];

static int is_klog(const void *address) {
    for (int i = 0; i < ranges_count; i++)
        if ((uintptr_t)address >= ranges[i].low && (uintptr_t)address < ranges[i].high)
            return 1;
    return 0;
}

static int note_library(struct dl_phdr_info *info, size_t size, void *prefix) {
    (void)size;
    if (strncmp(info->dlpi_name, prefix, strlen(prefix)) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X) && ranges_count < RANGES_MAX) {
            ranges[ranges_count].low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            ranges[ranges_count].high = ranges[ranges_count].low + info->dlpi_phdr[i].p_memsz;
            ranges_count++;
        }
    return 0;
}

/* Libraries loaded by now whose path begins with this are klog's. Returns the number of their code segments. */
int ic_libraries(const char *prefix) {
    ranges_count = 0;
    dl_iterate_phdr(note_library, (void *)prefix);
    return ranges_count;
}

/* hook NULL: calls pass. */
void ic_watch(const char *directory, hook_t new_hook) {
    hook = NULL;
    snprintf(watched, sizeof watched, "%s", directory);
    watched_size = strlen(watched);
    void *warm[2];
    backtrace(warm, 2); /* the first call loads a library */
    hook = new_hook;
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static int fails(const void *caller) {
    if (ic_fail_times == 0 || inside || !is_klog(caller))
        return 0;
    int64_t number = atomic_fetch_add(&ic_allocations, 1) + 1;
    if (number < ic_fail_first || number - ic_fail_first >= ic_fail_times)
        return 0;
    if (atomic_fetch_add(&ic_failed, 1) == 0)
        ic_failed_at[0] = (void *)caller;
    return 1;
}

#define FAIL_IF_ASKED(value)                                                                                               \
    if (ic_fail_times && fails(__builtin_return_address(0))) {                                                             \
        errno = ENOMEM;                                                                                                    \
        return value;                                                                                                      \
    }

void *malloc(size_t size) {
    FAIL_IF_ASKED(NULL)
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
    FAIL_IF_ASKED(NULL)
    return __libc_calloc(n, size);
}
void *realloc(void *old, size_t size) {
    FAIL_IF_ASKED(NULL)
    return __libc_realloc(old, size);
}
int posix_memalign(void **out, size_t alignment, size_t size) {
    FAIL_IF_ASKED(ENOMEM)
    void *memory = __libc_memalign(alignment, size);
    if (memory == NULL)
        return ENOMEM;
    *out = memory;
    return 0;
}

#define NEXT(name, type)                                                                                                   \
    static __typeof__(type) real;                                                                                          \
    if (real == NULL)                                                                                                      \
    real = (__typeof__(type))dlsym(RTLD_NEXT, name)

void *PyMem_Malloc(size_t size) {
    NEXT("PyMem_Malloc", void *(*)(size_t));
    FAIL_IF_ASKED(NULL)
    return real(size);
}
void *PyMem_Realloc(void *old, size_t size) {
    NEXT("PyMem_Realloc", void *(*)(void *, size_t));
    FAIL_IF_ASKED(NULL)
    return real(old, size);
}

/* ---- file calls -------------------------------------------------------------------------------------------------- */

static int is_below(const char *path) {
    return strncmp(path, watched, watched_size) == 0 && (path[watched_size] == '/' || path[watched_size] == 0);
}

static const char *path_of(int fd, char *out) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    out[n < 0 ? 0 : n] = 0;
    return out;
}

static long ask(const char *call, int fd, const char *path, long size) {
    char buffer[PATH_MAX], whole[2 * PATH_MAX];
    void *all[CALLERS_MAX], *callers[CALLERS_MAX];
    int kept = errno, n = 0;
    long action = IC_PASS;
    inside++;
    if (path == NULL)
        path = path_of(fd, buffer);
    else if (path[0] != '/') {
        if (fd != AT_FDCWD)
            path_of(fd, buffer);
        else if (getcwd(buffer, sizeof buffer) == NULL)
            buffer[0] = 0;
        snprintf(whole, sizeof whole, "%s/%s", buffer, path);
        path = whole;
    }
    if (is_below(path)) {
        int depth = backtrace(all, CALLERS_MAX);
        for (int i = 0; i < depth; i++)
            if (is_klog(all[i]))
                callers[n++] = all[i];
        action = hook(call, path, size, n, callers);
    }
    inside--;
    errno = kept;
    return action;
}

#define ASK(call, fd, path, size) (hook != NULL && !inside ? ask(call, fd, path, (long)(size)) : IC_PASS)
#define OR_FAIL(call, fd, path)                                                                                            \
    long action = ASK(call, fd, path, 0);                                                                                  \
    if (action > 0) {                                                                                                      \
        errno = (int)action;                                                                                               \
        return -1;                                                                                                         \
    }

static void die(void) { kill(getpid(), SIGKILL); }

#define HALF(size) ((size) / 2 > 0 ? (size) / 2 : (size))

/* A read or a write of size bytes: LESS is the call with fewer of them, ALL the whole call. */
#define MOVES(call, fd, size, ALL, LESS)                                                                                   \
    long action = ASK(call, fd, NULL, size);                                                                               \
    if (action == IC_PASS)                                                                                                 \
        return ALL;                                                                                                        \
    if (action == IC_SHORT)                                                                                                \
        return LESS;                                                                                                       \
    if (action == IC_LOSE)                                                                                                 \
        return (ssize_t)(size);                                                                                            \
    if (action < 0) {                                                                                                      \
        (void)!LESS;                                                                                                       \
        if (action == IC_TEAR_AND_DIE)                                                                                     \
            die();                                                                                                         \
        action = EIO;                                                                                                      \
    }                                                                                                                      \
    errno = (int)action;                                                                                                   \
    return -1;

static ssize_t do_pread(int fd, void *data, size_t size, off_t at) {
    NEXT("pread", ssize_t(*)(int, void *, size_t, off_t));
    MOVES("pread", fd, size, real(fd, data, size, at), real(fd, data, HALF(size), at))
}
ssize_t pread(int fd, void *data, size_t size, off_t at) { return do_pread(fd, data, size, at); }
ssize_t pread64(int fd, void *data, size_t size, off_t at) { return do_pread(fd, data, size, at); }

static ssize_t do_pwrite(int fd, const void *data, size_t size, off_t at) {
    NEXT("pwrite", ssize_t(*)(int, const void *, size_t, off_t));
    MOVES("pwrite", fd, size, real(fd, data, size, at), real(fd, data, HALF(size), at))
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return do_pwrite(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) { return do_pwrite(fd, data, size, at); }

ssize_t read(int fd, void *data, size_t size) {
    NEXT("read", ssize_t(*)(int, void *, size_t));
    MOVES("read", fd, size, real(fd, data, size), real(fd, data, HALF(size)))
}

ssize_t write(int fd, const void *data, size_t size) {
    NEXT("write", ssize_t(*)(int, const void *, size_t));
    MOVES("write", fd, size, real(fd, data, size), real(fd, data, HALF(size)))
}

/* from is the log; to is a socket, a pipe, or a file. */
static ssize_t do_sendfile(int to, int from, off_t *at, size_t size) {
    NEXT("sendfile", ssize_t(*)(int, int, off_t *, size_t));
    MOVES("sendfile", from, size, real(to, from, at, size), real(to, from, at, HALF(size)))
}
ssize_t sendfile(int to, int from, off_t *at, size_t size) { return do_sendfile(to, from, at, size); }
ssize_t sendfile64(int to, int from, off_t *at, size_t size) { return do_sendfile(to, from, at, size); }

ssize_t splice(int from, off_t *from_at, int to, off_t *to_at, size_t size, unsigned flags) {
    NEXT("splice", ssize_t(*)(int, off_t *, int, off_t *, size_t, unsigned));
    MOVES("splice", from_at == NULL ? to : from, size, real(from, from_at, to, to_at, size, flags),
          real(from, from_at, to, to_at, HALF(size), flags))
}

/* Only the first part, shortened. */
static long vector_call(long number, int fd, const struct iovec *parts, long n, long at, long high, long flags) {
    NEXT("syscall", long (*)(long, ...));
    const char *name = number == SYS_preadv2 ? "preadv2" : "pwritev2";
    size_t size = 0;
    for (long i = 0; i < n; i++)
        size += parts[i].iov_len;
    struct iovec first = parts[0];
    first.iov_len = HALF(first.iov_len);
    MOVES(name, fd, size, real(number, (long)fd, parts, n, at, high, flags),
          real(number, (long)fd, &first, 1L, at, high, flags))
}

long syscall(long number, ...) {
    NEXT("syscall", long (*)(long, ...));
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), d = va_arg(list, long),
         e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (number == SYS_preadv2 || number == SYS_pwritev2)
        return vector_call(number, (int)a, (const struct iovec *)b, c, d, e, f);
    if (number == SYS_getdents64 || number == 451) {
        OR_FAIL(number == 451 ? "cachestat" : "getdents64", (int)a, NULL)
        if (action == IC_COLD) { /* no page is cached */
            memset((void *)c, 0, 5 * sizeof(uint64_t));
            return 0;
        }
    }
    if (number == SYS_renameat2) {
        OR_FAIL("renameat2", AT_FDCWD, (const char *)b)
    }
    return real(number, a, b, c, d, e, f);
}

static int do_open(const char *path, int flags, mode_t mode) {
    NEXT("open", int (*)(const char *, int, ...));
    OR_FAIL(flags & (O_CREAT | O_TRUNC) ? "creat" : "open", AT_FDCWD, path)
    return real(path, flags, mode);
}
static int do_openat(int dir, const char *path, int flags, mode_t mode) {
    NEXT("openat", int (*)(int, const char *, int, ...));
    OR_FAIL(flags & (O_CREAT | O_TRUNC) ? "creat" : "open", dir, path)
    return real(dir, path, flags, mode);
}
#define MODE                                                                                                               \
    va_list list;                                                                                                          \
    va_start(list, flags);                                                                                                 \
    mode_t mode = va_arg(list, mode_t);                                                                                    \
    va_end(list);
int open(const char *path, int flags, ...) {
    MODE return do_open(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE return do_open(path, flags, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    MODE return do_openat(dir, path, flags, mode);
}
int openat64(int dir, const char *path, int flags, ...) {
    MODE return do_openat(dir, path, flags, mode);
}

#define ONE_FD(name, result, parameters, arguments)                                                                        \
    result name parameters {                                                                                               \
        NEXT(#name, result(*) parameters);                                                                                 \
        OR_FAIL(#name, fd, NULL)                                                                                           \
        return real arguments;                                                                                             \
    }
#define ONE_PATH(name, result, parameters, arguments)                                                                      \
    result name parameters {                                                                                               \
        NEXT(#name, result(*) parameters);                                                                                 \
        OR_FAIL(#name, AT_FDCWD, path)                                                                                     \
        return real arguments;                                                                                             \
    }
#define ONE_AT(name, result, parameters, arguments)                                                                        \
    result name parameters {                                                                                               \
        NEXT(#name, result(*) parameters);                                                                                 \
        OR_FAIL(#name, fd, path)                                                                                           \
        return real arguments;                                                                                             \
    }

ONE_FD(fsync, int, (int fd), (fd))
ONE_FD(fdatasync, int, (int fd), (fd))
ONE_FD(sync_file_range, int, (int fd, off64_t at, off64_t size, unsigned flags), (fd, at, size, flags))
ONE_FD(ftruncate, int, (int fd, off_t size), (fd, size))
ONE_FD(ftruncate64, int, (int fd, off64_t size), (fd, size))
ONE_FD(fallocate, int, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
ONE_FD(futimens, int, (int fd, const struct timespec *times), (fd, times))
ONE_FD(fstat, int, (int fd, struct stat *found), (fd, found))
ONE_FD(fstat64, int, (int fd, struct stat64 *found), (fd, found))
ONE_PATH(stat, int, (const char *path, struct stat *found), (path, found))
ONE_PATH(stat64, int, (const char *path, struct stat64 *found), (path, found))
ONE_PATH(lstat, int, (const char *path, struct stat *found), (path, found))
ONE_PATH(lstat64, int, (const char *path, struct stat64 *found), (path, found))
ONE_AT(fstatat64, int, (int fd, const char *path, struct stat64 *found, int flags), (fd, path, found, flags))
ONE_PATH(rename, int, (const char *path, const char *target), (path, target))
ONE_PATH(link, int, (const char *path, const char *target), (path, target))
ONE_PATH(unlink, int, (const char *path), (path))
ONE_PATH(access, int, (const char *path, int mode), (path, mode))
ONE_PATH(rmdir, int, (const char *path), (path))
ONE_PATH(mkdir, int, (const char *path, mode_t mode), (path, mode))
ONE_AT(unlinkat, int, (int fd, const char *path, int flags), (fd, path, flags))
ONE_AT(faccessat, int, (int fd, const char *path, int mode, int flags), (fd, path, mode, flags))
ONE_AT(mkdirat, int, (int fd, const char *path, mode_t mode), (fd, path, mode))
ONE_AT(utimensat, int, (int fd, const char *path, const struct timespec *times, int flags), (fd, path, times, flags))

struct statvfs;
ONE_FD(fstatvfs64, int, (int fd, struct statvfs *found), (fd, found))
ONE_PATH(statvfs64, int, (const char *path, struct statvfs *found), (path, found))

int posix_fadvise(int fd, off_t at, off_t size, int advice) {
    NEXT("posix_fadvise", int (*)(int, off_t, off_t, int));
    long action = ASK("fadvise", fd, NULL, 0);
    return action > 0 ? (int)action : real(fd, at, size, advice);
}

DIR *opendir(const char *path) {
    NEXT("opendir", DIR *(*)(const char *));
    long action = ASK("opendir", AT_FDCWD, path, 0);
    if (action > 0) {
        errno = (int)action;
        return NULL;
    }
    return real(path);
}

/* As of a file system that does not give the kind of a file with its name. */
int ic_no_kinds;

struct dirent *readdir(DIR *directory) {
    NEXT("readdir", struct dirent *(*)(DIR *));
    struct dirent *found = real(directory);
    if (found != NULL && ic_no_kinds)
        found->d_type = DT_UNKNOWN;
    return found;
}
struct dirent64 *readdir64(DIR *directory) {
    NEXT("readdir64", struct dirent64 *(*)(DIR *));
    struct dirent64 *found = real(directory);
    if (found != NULL && ic_no_kinds)
        found->d_type = DT_UNKNOWN;
    return found;
}

/* Mappings of watched files are stored, so that the hook is called for their msync. */
static void *do_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    NEXT("mmap", void *(*)(void *, size_t, int, int, int, off_t));
    if (fd < 0 || hook == NULL || inside)
        return real(at, size, protection, flags, fd, offset);
    long action = ASK("mmap", fd, NULL, size);
    if (action > 0) {
        errno = (int)action;
        return MAP_FAILED;
    }
    void *memory = real(at, size, protection, flags, fd, offset);
    char path[PATH_MAX];
    inside++;
    int mine = memory != MAP_FAILED && is_below(path_of(fd, path));
    inside--;
    for (int i = 0; mine && i < 64; i++)
        if (mapped[i][1] == 0 || (mapped[i][0] == (uintptr_t)memory)) {
            mapped[i][0] = (uintptr_t)memory;
            mapped[i][1] = (uintptr_t)memory + size;
            break;
        }
    return memory;
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    return do_mmap(at, size, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    return do_mmap(at, size, protection, flags, fd, offset);
}
int munmap(void *at, size_t size) {
    NEXT("munmap", int (*)(void *, size_t));
    for (int i = 0; i < 64; i++)
        if (mapped[i][1] && mapped[i][0] == (uintptr_t)at)
            mapped[i][1] = 0;
    return real(at, size);
}
int msync(void *at, size_t size, int flags) {
    NEXT("msync", int (*)(void *, size_t, int));
    for (int i = 0; i < 64; i++)
        if (mapped[i][1] > (uintptr_t)at && mapped[i][0] <= (uintptr_t)at) {
            OR_FAIL("msync", AT_FDCWD, watched)
        }
    return real(at, size, flags);
}
int mincore(void *at, size_t size, unsigned char *pages) {
    NEXT("mincore", int (*)(void *, size_t, unsigned char *));
    for (int i = 0; i < 64; i++)
        if (mapped[i][1] > (uintptr_t)at && mapped[i][0] <= (uintptr_t)at) {
            OR_FAIL("mincore", AT_FDCWD, watched)
        }
    return real(at, size, pages);
}
