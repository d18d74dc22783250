/* A child that is stopped at every system call it makes, and killed at one of them: see killer.py.
 *
 * The child calls kl_be_traced(), which stops it. Then the parent calls kl_kill_at(), which runs it from one system
 * call to the next. A call is counted when it begins, so that a kill there leaves the effects of all calls before it.
 * Calls that only affect memory, threads, signals or clocks are not counted.
 *
 * kind KL_TEAR counts only calls that write to a file, lets the last of them move half of its bytes, and then kills: as
 * the kernel itself may do to a long write. All threads of the child that begin after its call are traced.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/elf.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define LENGTH(regs) ((regs).rdx)
#define CAN_TEAR 1
#elif defined(__aarch64__)
#define LENGTH(regs) ((regs).regs[2])
#define CAN_TEAR 1
#else
#define CAN_TEAR 0
#endif

enum { KL_KILL = 0, KL_TEAR = 1 };

typedef struct {
    long number;
    const char *name;
} named_t;

static const named_t CHANGING[] = {
    {SYS_openat, "openat"},         {SYS_write, "write"},         {SYS_pwrite64, "pwrite64"},
    {SYS_pwritev, "pwritev"},       {SYS_pwritev2, "pwritev2"},   {SYS_writev, "writev"},
    {SYS_fsync, "fsync"},           {SYS_fdatasync, "fdatasync"}, {SYS_sync_file_range, "sync_file_range"},
    {SYS_ftruncate, "ftruncate"},   {SYS_fallocate, "fallocate"}, {SYS_renameat, "rename"},
    {SYS_renameat2, "rename"},      {SYS_unlinkat, "unlink"},     {SYS_utimensat, "utimensat"},
    {SYS_msync, "msync"},           {SYS_mkdirat, "mkdir"},
#ifdef SYS_rename
    {SYS_rename, "rename"},
#endif
#ifdef SYS_unlink
    {SYS_unlink, "unlink"},
#endif
#ifdef SYS_open
    {SYS_open, "open"},
#endif
#ifdef SYS_mkdir
    {SYS_mkdir, "mkdir"},
#endif
};

static const long APART_FROM_FILES[] = {
    SYS_brk, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_clock_gettime, SYS_clock_nanosleep,
    SYS_nanosleep, SYS_gettimeofday, SYS_getpid, SYS_gettid, SYS_getppid, SYS_getuid, SYS_geteuid, SYS_getrandom,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_sched_yield, SYS_sched_getaffinity,
    SYS_set_robust_list, SYS_rseq, SYS_clone, SYS_clone3, SYS_prlimit64, SYS_sysinfo, SYS_uname, SYS_restart_syscall,
};

const char *kl_call_name(long number) {
    for (size_t i = 0; i < sizeof CHANGING / sizeof CHANGING[0]; i++)
        if (CHANGING[i].number == number)
            return CHANGING[i].name;
    return "";
}

int kl_can_tear(void) { return CAN_TEAR; }

static int is_counted(long number, int kind) {
    if (kind == KL_TEAR)
        return number == SYS_write || number == SYS_pwrite64;
    for (size_t i = 0; i < sizeof APART_FROM_FILES / sizeof APART_FROM_FILES[0]; i++)
        if (APART_FROM_FILES[i] == number)
            return 0;
    return 1;
}

/* Opening an existing file changes nothing. */
static int may_change(const struct __ptrace_syscall_info *info) {
    if (info->entry.nr == SYS_openat)
        return (info->entry.args[2] & (O_CREAT | O_TRUNC)) != 0;
    return 1;
}

/* Called in the child: the parent traces it from here on. Returns 0, or -errno if that is not allowed. */
int kl_be_traced(void) {
    if (setpgid(0, 0) != 0 || ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
        return -errno;
    return raise(SIGSTOP) == 0 ? 0 : -errno;
}

#if CAN_TEAR
static int halve(pid_t thread) {
    struct user_regs_struct regs;
    struct iovec all = {&regs, sizeof regs};
    if (ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &all) != 0)
        return -1;
    LENGTH(regs) /= 2;
    return (int)ptrace(PTRACE_SETREGSET, thread, (void *)NT_PRSTATUS, &all);
}
#else
static int halve(pid_t thread) {
    (void)thread;
    return -1;
}
#endif

/* The end of a process is reported after those of its other threads, so all of them are waited for. */
static void kill_and_reap(pid_t child, int *status) {
    int now;
    pid_t thread;
    kill(child, SIGKILL);
    while ((thread = waitpid(-child, &now, __WALL)) > 0 || (thread < 0 && errno == EINTR)) {
        int ended = thread > 0 && (WIFEXITED(now) || WIFSIGNALED(now));
        if (ended && thread == child) {
            *status = now;
            return;
        }
        if (thread > 0 && !ended)
            ptrace(PTRACE_CONT, thread, 0, 0);
    }
}

/* Run a child that is stopped, or about to be stopped, until its nth call begins (0: to its end). Stores the numbers of
 * the counted calls in calls[0..calls_max), -1 for one that only opens a file. status[0] is waitpid()'s status.
 * Returns how many calls were counted. */
int64_t kl_kill_at(pid_t child, int64_t nth, int kind, int32_t *calls, int64_t calls_max, int *status) {
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE;
    int64_t count = 0;
    pid_t torn = 0;
    if (waitpid(child, status, __WALL) != child || !WIFSTOPPED(*status))
        return 0;
    ptrace(PTRACE_SETOPTIONS, child, 0, options);
    ptrace(PTRACE_SYSCALL, child, 0, 0);
    for (;;) {
        int now;
        pid_t thread = waitpid(-child, &now, __WALL);
        if (thread < 0)
            return errno == EINTR ? -EINTR : count;
        if (WIFEXITED(now) || WIFSIGNALED(now)) {
            if (thread != child)
                continue;
            *status = now;
            return count;
        }
        int pass_on = 0, signal = WSTOPSIG(now);
        if (signal == (SIGTRAP | 0x80)) {
            struct __ptrace_syscall_info info;
            memset(&info, 0, sizeof info);
            ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
            if (thread == torn && info.op == PTRACE_SYSCALL_INFO_EXIT) {
                kill_and_reap(child, status);
                return count;
            }
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY && is_counted((long)info.entry.nr, kind)) {
                if (count < calls_max)
                    calls[count] = may_change(&info) ? (int32_t)info.entry.nr : -1;
                count++;
                if (count == nth && kind == KL_TEAR) {
                    torn = thread;
                    if (halve(thread) != 0)
                        return -ENOSYS;
                } else if (count == nth) {
                    kill_and_reap(child, status);
                    return count;
                }
            }
        } else if (signal != SIGTRAP && signal != SIGSTOP) {
            pass_on = signal;
        }
        ptrace(PTRACE_SYSCALL, thread, 0, pass_on);
    }
}
