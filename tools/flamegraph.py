"""Draws stacks that Linux perf recorded as a flame graph:

    perf script -F comm,ip,sym,srcline | python tools/flamegraph.py TITLE > picture.svg

    sample  := "comm" line, then a line per frame (address, symbol; optionally followed by the source line), innermost
               first
    stack   := ("python", "append (klog/log/write/_append.pyx:120)", "kl_pwrite (osio.c:93)"), outermost first
    tree    := for each prefix of a stack, its number of samples

The width of a box is its share of all samples; it stands on its caller. Boxes on one caller are sorted by name, so the
x axis is not time. The result is an SVG without scripts: each box has its name in a tooltip, and in the box if it fits.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

Stack = tuple[str, ...]

_FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)?(?: \(inlined\))?$")
_SOURCE = re.compile(r"^\s+(\S+:\d+)(?: \(inlined\))?$")
_OWN_SOURCE = re.compile(r"(?:^|/)(csrc/\w+\.[ch]:\d+|klog/[\w/]+\.p(?:yx|xd):\d+)$")
_CYTHON = re.compile(r"^__pyx_(?P<kind>f|pf|pw|fuse\w*|tp_new|tp_dealloc)_(?P<rest>.+)$")
_PARTIAL = re.compile(r"\.(?:cold|constprop|isra|part|lto_priv)(?:\.\d+)*")


# --- what perf prints ---------------------------------------------------------------------------------------------


def stacks(lines: Iterable[str]) -> Iterator[Stack]:
    """Yield the stacks of `perf script -F comm,ip,sym,srcline`, outermost frame first. Frames of klog have their
    line."""
    command, frames = "", list[str]()
    for line in lines:
        text = line.rstrip("\n")
        if not text.strip():
            if command:
                yield (command, *reversed(frames))
            command, frames = "", []
        elif source := _SOURCE.match(text):
            if frames and (own := _OWN_SOURCE.search(source[1])):
                frames[-1] = f"{frames[-1]} ({own[1]})"
        elif frame := _FRAME.match(text):
            frames.append(readable(frame[1]))
        elif not text[0].isspace():
            command = text.strip()
    if command:
        yield (command, *reversed(frames))


def readable(symbol: str) -> str:
    """Return a symbol without the affixes of Cython and gcc: __pyx_pw_4klog_5clock_1now becomes klog.clock.now."""
    symbol = _PARTIAL.sub("", symbol)
    made = _CYTHON.match(symbol)
    return ".".join(_parts(made["rest"])) if made else symbol


def _parts(mangled: str) -> list[str]:
    """Cython writes each name after its length, and may add a counter after the last one."""
    parts, rest = [], mangled
    while (sized := re.match(r"(\d+)(\D.*)", rest)) and sized[2][int(sized[1]) :].startswith("_"):
        size = int(sized[1])
        parts.append(sized[2][:size])
        rest = sized[2][size + 1 :]
    last = re.sub(r"^\d+", "", rest)
    return [*parts, last] if last else parts


# --- the tree -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Node:
    """A frame at a position in the tree: its number of samples, and the frames that it called."""

    name: str
    samples: int = 0
    calls: dict[str, Node] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 1 + max((call.depth for call in self.calls.values()), default=0)


def tree(found: Iterable[Stack]) -> Node:
    root = Node("all")
    for stack, samples in Counter(found).items():
        node = root
        node.samples += samples
        for name in stack:
            node = node.calls.setdefault(name, Node(name))
            node.samples += samples
    return root


def own_samples(found: Iterable[Stack]) -> list[tuple[str, int]]:
    """Return (frame, samples in which it was the innermost), most first."""
    return Counter(stack[-1] for stack in found).most_common()


# --- the picture --------------------------------------------------------------------------------------------------

_WIDTH, _ROW, _TOP, _LETTER = 1200, 17, 40, 6.6
_NARROWEST = 0.4
_COLOURS = {"cython": (48, 70), "klog": (18, 75), "kernel": (265, 35), "python": (205, 45)}


def _kind(name: str) -> str:
    if ".pyx" in name or ".pxd" in name or name.startswith("klog."):
        return "cython"
    if name.startswith("kl_") or "(csrc/" in name:
        return "klog"
    if name.startswith(("_Py", "Py", "py::")):
        return "python"
    return "kernel"


def _colour(name: str) -> str:
    hue, saturation = _COLOURS[_kind(name)]
    return f"hsl({hue},{saturation}%,{66 + crc32(name.encode()) % 14}%)"


def svg(root: Node, title: str) -> str:
    """Return the SVG: `all` at the bottom, and on each box the frames that it called."""
    height = _TOP + _ROW * root.depth + 30
    boxes = _boxes(root, 0.0, float(_WIDTH), height - 30 - _ROW, root.samples)
    legend = (
        (name, f"hsl({hue},{saturation}%,70%)")
        for name, (hue, saturation) in zip(
            ("Cython", "C of klog", "kernel and libraries", "Python"), _COLOURS.values(), strict=True
        )
    )
    marks = "".join(
        f'<rect x="{20 + 190 * n}" y="{height - 22}" width="12" height="12" fill="{colour}"/>'
        f'<text x="{38 + 190 * n}" y="{height - 12}">{name}</text>'
        for n, (name, colour) in enumerate(legend)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="monospace" font-size="11">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>\n'
        f'<text x="{_WIDTH / 2}" y="22" font-size="15" text-anchor="middle">{escape(title)}</text>\n'
        f"{''.join(boxes)}{marks}\n</svg>\n"
    )


def _boxes(node: Node, x: float, width: float, y: int, total: int) -> Iterator[str]:
    share = f"{node.samples} samples, {100 * node.samples / max(1, total):.1f}%"
    letters = int((width - 4) / _LETTER)
    text = node.name if len(node.name) <= letters else f"{node.name[: letters - 1]}…"
    label = f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(text)}</text>' if letters >= 3 else ""
    yield (
        f"<g><title>{escape(node.name)}: {share}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.3, 0.3):.1f}" height="{_ROW - 1}" '
        f'fill="{_colour(node.name)}"/>'
        f"{label}</g>\n"
    )
    for name in sorted(node.calls):
        call = node.calls[name]
        part = width * call.samples / node.samples
        if part >= _NARROWEST:
            yield from _boxes(call, x, part, y - _ROW, total)
        x += part


def main() -> int:
    title = sys.argv[1] if len(sys.argv) > 1 else "perf"
    sys.stdout.write(svg(tree(stacks(sys.stdin)), title))
    return 0


if __name__ == "__main__":
    sys.exit(main())
