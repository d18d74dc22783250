"""cffi declaration of the kernel calls that may block. setup.py builds it into klog.disk._os. Calls release the GIL."""

from pathlib import Path

from cffi import FFI

builder = FFI()
builder.cdef(
    """
    typedef struct kl_io kl_io_t;
    const kl_io_t *kl_io_kernel(void);
    int kl_ftruncate(const kl_io_t *io, int fd, int64_t size);
    int inotify_init1(int flags);
    int inotify_add_watch(int fd, const char *path, uint32_t mask);
    """
)
builder.set_source(
    "klog.disk._os",
    '#include "osio.h"\n#include <sys/inotify.h>',
    sources=[str(Path("csrc/osio.c"))],
    include_dirs=["csrc"],
    define_macros=[("_GNU_SOURCE", None)],
    extra_compile_args=["-O2", "-std=c11", "-fvisibility=hidden"],
)

if __name__ == "__main__":
    builder.compile(verbose=True)
