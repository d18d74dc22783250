"""The native build: one static csrc library, an extension for every .pyx, and the cffi module of klog.disk.

KLOG_BUILD picks a flavour, each with its own build directory (see Makefile):
  release  -O3, no bounds checks in Cython (default)
  debug    -O1, bounds checks on
  asan     address and undefined sanitizers
  tsan     thread sanitizer
  profile  as release, with frame pointers for profilers, and line numbers of .pyx files instead of generated C
  coverage -O0, counting the executed lines of C for gcov

KLOG_ONLY names .pyx files, separated by spaces: only their modules are built.
"""

import os
import platform
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_clib import build_clib
from setuptools.command.build_ext import build_ext

FLAVOUR = os.environ.get("KLOG_BUILD", "release")
FLAGS = {
    "release": ["-O3", "-g1", "-fno-semantic-interposition"],
    "debug": ["-O1", "-g"],
    "profile": ["-O3", "-g", "-fno-semantic-interposition", "-fno-omit-frame-pointer"],
    "coverage": ["-O0", "-g", "--coverage"],
    # The last one, from gcc 12 on: a variable that was not set has an unlikely value, so that code that reads it fails.
    "asan": [
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-omit-frame-pointer",
        "-fno-sanitize-recover=undefined",
        "-ftrivial-auto-var-init=pattern",
    ],
    "tsan": ["-O1", "-g", "-fsanitize=thread", "-fno-omit-frame-pointer"],
}[FLAVOUR]
# The instructions are those of any x86-64. With its default tuning for all processors, gcc clears an object of 128
# bytes by `rep stos`, whose start takes longer than the rest of making a Record.
TUNE = ["-mtune=skylake-avx512"] if platform.machine() == "x86_64" else []
LINK = [flag for flag in FLAGS if flag.startswith(("-fsanitize", "--coverage"))]
WARN = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function", "-fstack-protector-strong"]
BUILD = Path("build") / FLAVOUR

ONLY = os.environ.get("KLOG_ONLY", "").split()
SOURCES = sorted(str(path) for path in Path("csrc").glob("*.c"))
HEADERS = sorted(str(path) for path in Path("csrc").glob("*.h"))


def extension(path: Path) -> Extension:
    name = ".".join(path.with_suffix("").parts)
    return Extension(
        name,
        [str(path)],
        include_dirs=["csrc"],
        depends=[*HEADERS, *SOURCES],
        extra_compile_args=[*FLAGS, *TUNE, "-std=c11", "-D_GNU_SOURCE", "-Wno-unused-function"],
        extra_link_args=LINK,
    )


class BuildClib(build_clib):
    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_temp = str(BUILD / "csrc")
        self.build_clib = str(BUILD / "lib")

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = str(BUILD / "csrc")
        self.build_clib = str(BUILD / "lib")


class BuildExt(build_ext):
    """build_ext that builds the static csrc library first; setuptools does that only for `build`."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_temp = str(BUILD / "ext")
        self.parallel = len(os.sched_getaffinity(0))

    def run(self) -> None:
        self.run_command("build_clib")
        super().run()


extensions = cythonize(
    [extension(path) for path in sorted(Path("klog").rglob("*.pyx")) if not ONLY or str(path) in ONLY],
    build_dir=str(BUILD / "cython"),
    emit_linenums=FLAVOUR == "profile",
    compiler_directives={
        "language_level": 3,
        "boundscheck": FLAVOUR in ("debug", "asan"),
        "wraparound": False,
        "cdivision": True,
        "initializedcheck": False,
        "autotestdict": False,
        "embedsignature": False,
        "freethreading_compatible": False,
    },
    quiet=True,
)

setup(
    # Repeated from [project] as separate fields: the pip of Python 3.11 and 3.12 shows only these.
    url="https://github.com/klog-project/klog",
    license="Apache-2.0",
    ext_modules=extensions,
    libraries=[
        (
            "klogcore",
            {
                "sources": SOURCES,
                "include_dirs": ["csrc"],
                "obj_deps": {"": HEADERS},
                "cflags": [*FLAGS, *TUNE, *WARN, "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden"],
            },
        )
    ],
    cffi_modules=["klog/disk/_os_build.py:builder"] if Path("klog/disk/_os_build.py").exists() and not ONLY else [],
    cmdclass={"build_clib": BuildClib, "build_ext": BuildExt},
)
