/* A child that is stopped at every system call by which it may change files, and killed at one of them: see killer.py.
 *
 * The child calls kl_be_traced(): a seccomp filter makes these calls stop, and no others, and then it stops itself. Then
 * the parent calls kl_kill_at(), which runs it from one call to the next. A call is counted when it begins, so that a
 * kill there leaves the effects of all calls before it. A kill at any other call leaves the same files as one at the next
 * counted call.
 *
 * kind KL_TEAR counts only calls that write to a file, lets the last of them move half of its bytes, and then kills: as
 * the kernel itself may do to a long write. All threads of the child that begin after its call are traced. It must not
 * fork: a process that nobody traces gets ENOSYS from these calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
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
    {SYS_msync, "msync"},           {SYS_mkdirat, "mkdir"},       {SYS_linkat, "link"},
    {SYS_symlinkat, "symlink"},     {SYS_sendfile, "sendfile"},   {SYS_copy_file_range, "copy_file_range"},
    {SYS_truncate, "truncate"},
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
#ifdef SYS_rmdir
    {SYS_rmdir, "rmdir"},
#endif
#ifdef SYS_link
    {SYS_link, "link"},
#endif
#ifdef SYS_symlink
    {SYS_symlink, "symlink"},
#endif
};

enum { CHANGING_COUNT = sizeof CHANGING / sizeof CHANGING[0] };

const char *kl_call_name(long number) {
    for (size_t i = 0; i < CHANGING_COUNT; i++)
        if (CHANGING[i].number == number)
            return CHANGING[i].name;
    return "";
}

int kl_can_tear(void) { return CAN_TEAR; }

static int is_counted(long number, int kind) {
    return kind == KL_KILL || number == SYS_write || number == SYS_pwrite64;
}

/* The argument of a call that has its flags, if it changes nothing without O_CREAT or O_TRUNC; else -1. */
static int flags_of(long number) {
#ifdef SYS_open
    if (number == SYS_open)
        return 1;
#endif
    return number == SYS_openat ? 2 : -1;
}

/* From the next call on, the counted calls of this thread, and of those that it begins, stop. */
static int stop_at_counted_calls(int kind) {
    struct sock_filter code[5 * CHANGING_COUNT + 2];
    struct sock_fprog program = {0, code};
    struct sock_filter *at = code;
    *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < CHANGING_COUNT; i++) {
        long number = CHANGING[i].number;
        int flags = flags_of(number);
        if (!is_counted(number, kind))
            continue;
        *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, flags < 0 ? 1 : 4);
        if (flags >= 0) {
            uint32_t position = (uint32_t)offsetof(struct seccomp_data, args) + 8 * (uint32_t)flags;
            *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, position);
            *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT | O_TRUNC, 1, 0);
            *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        }
        *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    }
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program.len = (unsigned short)(at - code);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return -errno;
    return 0;
}

/* Called in the child: the parent traces it from here on. Returns 0, or -errno if that is not allowed. */
int kl_be_traced(int kind) {
    int status;
    if (setpgid(0, 0) != 0 || ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
        return -errno;
    status = stop_at_counted_calls(kind);
    if (status == 0 && raise(SIGSTOP) != 0)
        status = -errno;
    return status;
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

/* Run a child that is stopped, or about to be stopped, until its nth counted call begins (0: to its end). Stores the
 * numbers of the calls in calls[0..calls_max). status[0] is waitpid()'s status. Returns how many calls were counted. */
int64_t kl_kill_at(pid_t child, int64_t nth, int kind, int32_t *calls, int64_t calls_max, int *status) {
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACESECCOMP;
    int64_t count = 0;
    if (waitpid(child, status, __WALL) != child || !WIFSTOPPED(*status))
        return 0;
    ptrace(PTRACE_SETOPTIONS, child, 0, options);
    ptrace(PTRACE_CONT, child, 0, 0);
    for (;;) {
        int now, pass_on = 0;
        pid_t thread = waitpid(-child, &now, __WALL);
        if (thread < 0)
            return errno == EINTR ? -EINTR : count;
        if (WIFEXITED(now) || WIFSIGNALED(now)) {
            if (thread != child)
                continue;
            *status = now;
            return count;
        }
        if (now >> 8 == (SIGTRAP | (PTRACE_EVENT_SECCOMP << 8))) {
            struct __ptrace_syscall_info info;
            memset(&info, 0, sizeof info);
            ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
            if (count < calls_max)
                calls[count] = (int32_t)info.seccomp.nr;
            if (++count == nth && kind == KL_TEAR) {
                if (halve(thread) != 0)
                    return -ENOSYS;
                ptrace(PTRACE_SYSCALL, thread, 0, 0); /* it stops again when the call has ended */
                continue;
            }
            if (count == nth) {
                kill_and_reap(child, status);
                return count;
            }
        } else if (WSTOPSIG(now) == (SIGTRAP | 0x80)) {
            kill_and_reap(child, status);
            return count;
        } else if (WSTOPSIG(now) != SIGTRAP && WSTOPSIG(now) != SIGSTOP) {
            pass_on = WSTOPSIG(now);
        }
        ptrace(PTRACE_CONT, thread, 0, pass_on);
    }
}
