"""What `import klog` raises in a source tree whose extensions are not compiled for the running Python.

The tree has klog/ at its top, so in its folder it precedes an installed klog on Python's path: `pip install .` and then
a script there would end in "No module named 'klog.locks'".
"""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = Path(__file__).parent


def not_compiled(name: str) -> ImportError | None:
    """The error to raise for a module of klog that is not there; None where it is not an extension of a source tree."""
    package, *rest = name.split(".")
    if package != "klog" or not rest or not (_PACKAGE.parent / "setup.py").exists():
        return None
    if not _PACKAGE.joinpath(*rest).with_suffix(".pyi").exists():
        return None
    version = ".".join(map(str, sys.version_info[:2]))
    tree = _PACKAGE.parent
    return ImportError(
        f"{name} is not compiled for Python {version} ({sys.executable}): this is klog's source tree, {tree}, which "
        f"precedes an installed klog here. To use the installed klog, run from another folder; to use this tree, run "
        f"`make build` in it and then its .venv/bin/python",
        name=name,
    )
