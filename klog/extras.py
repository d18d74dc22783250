"""What klog says when a library of one of its extras is missing: which function needs it, and the command that gets it.

pip takes the extras of the klog that is installed, so the command is the same for a klog from a clone and from a wheel.
"""

from __future__ import annotations


def command(extra: str) -> str:
    """The command that installs the libraries of an extra."""
    return f"pip install 'klog[{extra}]'"


def missing(what: str, library: str, extra: str, error: ImportError) -> ImportError:
    """The error to raise for a library that could not be imported; its name is that of the module that is missing."""
    return ImportError(f"{what} needs {library} ({error}): {command(extra)}", name=error.name or library)
