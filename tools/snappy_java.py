"""Selects the snappy library of a Spark driver on a machine that has glibc and a musl loader (Debian's musl-tools).

snappy-java takes such a machine for one with musl, and then queries over Parquet with snappy fail. use_glibc() names
the library for glibc, from PySpark's own jar, in the options with which Spark starts a driver. Call it before the first
session of a process.
"""

from __future__ import annotations

import os
import platform
import zipfile
from importlib.util import find_spec
from pathlib import Path

_MUSL = Path("/lib/ld-musl-x86_64.so.1")
_HOME = Path(__file__).resolve().parent.parent / "build" / "snappy"
_MEMBER = "org/xerial/snappy/native/Linux/x86_64/libsnappyjava.so"


def use_glibc() -> None:
    """Add the options to SPARK_SUBMIT_OPTS, if they are needed and not set yet."""
    before = os.environ.get("SPARK_SUBMIT_OPTS", "")
    if not _MUSL.exists() or platform.libc_ver()[0] != "glibc" or "org.xerial.snappy.lib.path" in before:
        return
    found = find_spec("pyspark")
    for jar in Path(found.origin).parent.glob("jars/snappy-java-*.jar") if found and found.origin else ():
        folder = _HOME / jar.stem
        library = folder / Path(_MEMBER).name
        if not library.exists():
            folder.mkdir(parents=True, exist_ok=True)
            whole = folder / f"{os.getpid()}.so"
            with zipfile.ZipFile(jar) as content:
                whole.write_bytes(content.read(_MEMBER))
            whole.rename(library)
        options = f"-Dorg.xerial.snappy.lib.path={folder} -Dorg.xerial.snappy.lib.name={library.name}"
        os.environ["SPARK_SUBMIT_OPTS"] = f"{before} {options}".strip()
