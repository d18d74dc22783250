"""Sphinx: the pages of this directory, and the API reference from the docstrings. `make docs` builds docs/_build/html.

Docstrings of klog are plain text, not reStructuredText: as_rst() keeps paragraphs, and makes each aligned block a
literal block. The pages are Markdown for GitHub, so the table of contents is added here.
"""

from __future__ import annotations

import re
from typing import Any

project = "klog"
author = "klog maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "klog"
smartquotes = False  # "..." in a docstring is code
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "undoc-members": False}
# The first is for links to files of the repository, which tests/test_docs.py checks; the second for "type" in an
# annotation, because several classes have an attribute of that name.
suppress_warnings = ["myst.xref_missing", "ref.python"]

_PAGES = {
    "Start": ["embedding", "data-engineering", "broker", "operating", "testing", "cookbook"],
    "Reference": ["reference/index", "cli", "configuration", "formats"],
    "Trust": ["guarantees", "deviations", "forensics", "metrics"],
    "In depth": ["log", "records", "compaction", "tables", "spark", "io", "network", "protocol"],
    "Speed and code": ["performance", "profiling", "tour"],
    "Examples": ["examples/flights-by-delay", "examples/late-events", "examples/latest-state"],
}
_SPECIAL = re.compile(r"([\\*|])|(?<=\w)_(?=\W|$)")


def as_rst(lines: list[str]) -> list[str]:
    """Return a docstring in plain text as reStructuredText."""
    made: list[str] = []
    for block in "\n".join(lines).strip("\n").split("\n\n"):
        rows = block.split("\n")
        if any(row.startswith(" ") or re.search(r"\S {2,}\S", row) for row in rows):
            made += ["::", "", *(f"    {row}" for row in rows), ""]
        else:
            made += [*map(_inline, rows), ""]
    return made


def _inline(row: str) -> str:
    """Return a line with its `code` as literals and every other special character escaped."""
    parts = row.split("`")
    if len(parts) % 2 == 0:  # a quotation that ends in another line
        return _SPECIAL.sub(r"\\\g<0>", row.replace("`", "'"))
    return "".join(f"``{part}``" if number % 2 else _SPECIAL.sub(r"\\\g<0>", part) for number, part in enumerate(parts))


def _docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines)


def _contents(app: Any, page: str, source: list[str]) -> None:
    if page == "index":
        for caption, pages in _PAGES.items():
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("source-read", _contents)
