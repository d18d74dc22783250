/* A library for LD_PRELOAD: below the directory KLOG_TEST_FOLDING, names that differ only by case are the same name, as
 * on the file systems of Windows and macOS that are mounted into containers and WSL. A new name keeps its case. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Replace a component of `path` that begins at `from` by the name on disk that equals it but for case. */
static void fold(char *path, char *from) {
    char parent[PATH_MAX], *slash = strchr(from, '/');
    if (slash)
        *slash = 0;
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &(struct stat){0}, AT_SYMLINK_NOFOLLOW) != 0) {
        size_t length = (size_t)(from - path);
        memcpy(parent, path, length);
        parent[length] = 0;
        DIR *listed = REAL(opendir)(parent);
        for (struct dirent *entry; listed && (entry = readdir(listed));)
            if (strcasecmp(entry->d_name, from) == 0) {
                memcpy(from, entry->d_name, strlen(from));
                break;
            }
        if (listed)
            closedir(listed);
    }
    if (slash) {
        *slash = '/';
        fold(path, slash + 1);
    }
}

static const char *folded(const char *path, char *into) {
    const char *root = getenv("KLOG_TEST_FOLDING");
    size_t length = root ? strlen(root) : 0;
    if (!length || strncmp(path, root, length) != 0 || path[length] != '/' || strlen(path) >= PATH_MAX)
        return path;
    fold(strcpy(into, path), into + length + 1);
    return into;
}

#define OPENING(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                       \
        char into[PATH_MAX];                                                                                           \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                                                      \
        va_end(rest);                                                                                                  \
        return (int)syscall(SYS_openat, AT_FDCWD, folded(path, into), flags, mode);                                    \
    }
OPENING(open)
OPENING(open64)

#define OF_A_PATH(name, result, last_type, last)                                                                       \
    result name(const char *path, last_type last) {                                                                    \
        char into[PATH_MAX];                                                                                           \
        return REAL(name)(folded(path, into), last);                                                                   \
    }
OF_A_PATH(stat, int, struct stat *, found)
OF_A_PATH(lstat, int, struct stat *, found)
OF_A_PATH(stat64, int, struct stat64 *, found)
OF_A_PATH(lstat64, int, struct stat64 *, found)
OF_A_PATH(access, int, int, mode)
OF_A_PATH(mkdir, int, mode_t, mode)

#define OF_ONE_PATH(name, result)                                                                                      \
    result name(const char *path) {                                                                                    \
        char into[PATH_MAX];                                                                                           \
        return REAL(name)(folded(path, into));                                                                         \
    }
OF_ONE_PATH(unlink, int)
OF_ONE_PATH(rmdir, int)
OF_ONE_PATH(opendir, DIR *)

int rename(const char *from, const char *to) {
    char one[PATH_MAX], other[PATH_MAX];
    return REAL(rename)(folded(from, one), folded(to, other));
}
