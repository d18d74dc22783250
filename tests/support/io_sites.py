"""The call sites of file I/O in the engine's sources: Python, Cython and C.

    Python  calls of the methods of Files and LogFile, of os, os.path and shutil, and open(); found in the syntax tree
    Cython  the same, and calls of the kl_ functions of csrc/osio.h and of libc; found by line
    C       calls through the kl_io_t table and of libc; found by line

A site of Python is known by the position of its call, which a frame knows, too; one of Cython or C by its line, to
which the debug information of the libraries leads from a return address.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ENGINE = (
    "klog/config/",
    "klog/disk/",
    "klog/log/",
    "klog/segment/",
    "klog/manager/",
    "klog/cleaner/",
    "klog/record/",
    "klog/codec/",
    "klog/repairing/",
    "klog/security/",
    "klog/coordinator/",
    "klog/broker/",
    "klog/handover/",
    "klog/inspect/",
    "klog/spark/jobs.py",
    "klog/spark/stream_memory.py",
    "klog/spark/table_files.py",
    "klog/spark/table_store.py",
)
"""The packages that read or write the files of a log.dir, and the modules of klog.spark that write files. klog.importing
and the rest of klog.spark write through these."""
FILES = (
    "open",
    "open_direct",
    "fsync",
    "fdatasync",
    "truncate",
    "replace",
    "fsync_dir",
    "rename",
    "exchange",
    "link",
    "unlink",
    "create",
    "mkdir",
    "rmdir",
)
LOG_FILE = ("write", "write_parts", "read", "preallocate", "write_behind", "advise", "length")
BARE = ("open", "exists", "is_directory", "read_whole", "identity_of", "exchange", "DirectoryPass")
ENTRY = ("stat", "is_dir", "is_file", "is_symlink")
OPEN_FILES = ("file", "_file", "copy", "original", "source", "target", "staged", "out", "beside")
OS = [
    "open",
    "pread",
    "pwrite",
    "read",
    "write",
    "mkdir",
    "makedirs",
    "rmdir",
    "rename",
    "replace",
    "link",
    "symlink",
    "unlink",
    "remove",
    "stat",
    "lstat",
    "fstat",
    "scandir",
    "listdir",
    "fsync",
    "ftruncate",
    "truncate",
    "chmod",
    "utime",
    "statvfs",
    "access",
]
OS_PATH = ["exists", "isdir", "isfile", "getsize", "getmtime", "realpath", "samefile", "islink", "lexists"]
IN_C = (
    r"kl_(?:pread|pwrite|preadv|pwritev|write_zeros|pread_direct|pwrite_direct|fsync|fdatasync|write_behind|ftruncate|"
    r"fallocate|fadvise|sendfile|splice|cachestat|mincore|pread_cached|stat)|io->\w+|"
    r"open|fstat|stat|mmap|msync|mincore|kl_getdents|kl_exchange|syscall|pread|pwrite"
)
_CALL_IN_C = re.compile(rf"(?<![\w.>])({IN_C})\(|\b(?:os|_?files)\.(\w+)\(")
_DEFINED_IN_C = re.compile(r"(?:\w+ \**)+(\w+)\([^;]*$")
_DEFINED_IN_CYTHON = re.compile(r"\s*(?:cdef|cpdef|def|async def)\b[^=(]*\b(\w+)\(")


class Site(NamedTuple):
    """A call site. column: 0 outside Python. function: the function around the call, so that `key` does not change when
    lines above it change."""

    path: str
    line: int
    column: int
    call: str
    function: str

    @property
    def key(self) -> str:
        return f"{self.path} {self.function} {self.call}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.call}"


def modules() -> Iterator[Path]:
    """The modules of ENGINE, in Python and Cython."""
    for name in ENGINE:
        where = ROOT / name
        for path in [where] if where.is_file() else sorted(where.rglob("*.py*")):
            if path.suffix in (".py", ".pyx") and not path.stem.endswith("_build"):
                yield path


def sites() -> dict[tuple[str, int, int], Site]:
    """All call sites, by path, line and column."""
    found: list[Site] = []
    for path in modules():
        found += _in_python(path) if path.suffix == ".py" else _in_c(path)
    for path in sorted((ROOT / "csrc").glob("*.[ch]")):
        found += _in_c(path)
    return {site[:3]: site for site in found}


def _in_python(path: Path) -> Iterator[Site]:
    name = str(path.relative_to(ROOT))
    for node, function in _calls(ast.parse(path.read_text()), ()):
        if call := _io_of(node.func):
            yield Site(name, node.lineno, node.col_offset, call, function or "<module>")


def _calls(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[ast.Call, str]]:
    """Yields every call below a node, and the names of the classes and functions around it."""
    if isinstance(node, ast.Call):
        yield node, ".".join(inside)
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        inside = (*inside, node.name)
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, inside)


def _io_of(called: ast.expr) -> str | None:
    words = ast.unparse(called).split(".")
    last, of = words[-1], words[-2] if len(words) > 1 else ""
    if (
        (len(words) == 1 and last in BARE)
        or (of == "entry" and last in ENTRY)
        or (of in ("files", "_files") and last in FILES)
        or (of in OPEN_FILES and last in LOG_FILE)
        or (words[:-1] == ["os"] and last in OS)
        or (words[:-1] == ["os", "path"] and last in OS_PATH)
        or of == "shutil"
    ):
        return ".".join(words[-2:])
    return None


def _in_c(path: Path) -> Iterator[Site]:
    name, is_cython = str(path.relative_to(ROOT)), path.suffix == ".pyx"
    outside, function = True, ""
    for number, line in enumerate(_without_comments(path.read_text(), is_cython).split("\n"), 1):
        if is_cython and line.strip():
            indented = line.startswith(" ")
            outside = line.startswith(("cdef extern", "from ")) or (outside and indented)
        if defined := (_DEFINED_IN_CYTHON if is_cython else _DEFINED_IN_C).match(line):
            function = defined[1]
        declares = outside if is_cython else not line.startswith(" ")
        if declares or re.match(r"\s*(?:cdef|cpdef|def) .*[:,(]$", line):
            continue
        for match in _CALL_IN_C.finditer(line):
            call = match[1] or match[2]
            if call == "mmap" and "MAP_ANONYMOUS" in line:
                continue
            if match[1] or call in (*FILES, *OS):
                yield Site(name, number, 0, call, function)


def _without_comments(text: str, is_cython: bool) -> str:
    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    if is_cython:
        return re.sub(r"#[^\n]*", "", re.sub(r'"""(?:.|\n)*?"""', blank, text))
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*(?:.|\n)*?\*/", blank, text))


# ---- from return addresses to lines ----------------------------------------------------------------------------------


def lines_of(library: str, addresses: list[int]) -> dict[int, list[tuple[str, int]]]:
    """The source lines of addresses in a library, the innermost of inlined functions first: path in the repository and
    line; those of C that Cython generated lead to the line of the .pyx."""
    if not addresses:
        return {}
    text = subprocess.run(
        ["addr2line", "-i", "-a", "-e", library],
        input="".join(f"{address:#x}\n" for address in addresses),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found: dict[int, list[tuple[str, int]]] = {}
    for line in text.splitlines():
        if line.startswith("0x"):
            of = found.setdefault(int(line, 16), [])
        else:
            of += _source_line(*line.split(" ")[0].rsplit(":", 1))
    return found


def _source_line(path: str, line: str) -> list[tuple[str, int]]:
    if not line.isdigit():
        return []
    if match := re.search(r"/(build/[^/]+/cython/klog/.*\.c)$", path):
        return [_pyx_line(match[1], int(line))]
    if match := re.search(r"(?:^|/)(csrc/[^/]*)$", path):
        return [(match[1], int(line))]
    return []


@cache
def _generated(path: str) -> list[tuple[str, int]]:
    """For each line of a generated file, the line of the .pyx from which it was generated."""
    here, lines = ("", 0), []
    for line in (ROOT / path).read_text().split("\n"):
        if match := re.match(r'\s*/\* "(klog/[^"]*)":(\d+)$', line):
            here = match[1], int(match[2])
        lines.append(here)
    return lines


def _pyx_line(path: str, line: int) -> tuple[str, int]:
    lines = _generated(path)
    return lines[line - 1] if line <= len(lines) else ("", 0)
