"""perf output to a flame graph: names are parsed, widths add up, and the SVG is valid XML."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tools import flamegraph

ROOT = Path(__file__).resolve().parent.parent
PRINTED = """\
python
    7f1101 kl_pwrite+0x10
  /src/klog/csrc/osio.c:93
    7f1102 __pyx_pw_4klog_3log_5write_7_append_1append_batches
  klog/log/write/_append.pyx:120
    7f1103 _PyEval_EvalFrameDefault
  /usr/src/Python/ceval.c:4847

python
    7f1104 memcpy@plt (inlined)
    7f1102 __pyx_pw_4klog_3log_5write_7_append_1append_batches
  klog/log/write/_append.pyx:120
    7f1103 _PyEval_EvalFrameDefault

other name
    7f1105 [unknown]
"""
APPEND = "klog.log.write._append.append_batches (klog/log/write/_append.pyx:120)"


def found() -> list[flamegraph.Stack]:
    return list(flamegraph.stacks(PRINTED.splitlines(keepends=True)))


def test_stacks_are_read_outermost_first_with_their_lines() -> None:
    assert found() == [
        ("python", "_PyEval_EvalFrameDefault", APPEND, "kl_pwrite (csrc/osio.c:93)"),
        ("python", "_PyEval_EvalFrameDefault", APPEND, "memcpy@plt"),
        ("other name", "[unknown]"),
    ]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("__pyx_pw_4klog_3log_5write_7_append_1append_batches", "klog.log.write._append.append_batches"),
        ("__pyx_f_4klog_4disk_3_io_7LogFile_write", "klog.disk._io.LogFile.write"),
        ("__pyx_pf_4klog_6record_6_batch_5Batch_2read", "klog.record._batch.Batch.read"),
        ("__pyx_f_4klog_6record_6_batch_decode.constprop.0", "klog.record._batch.decode"),
        ("kl_scan.part.0.cold", "kl_scan"),
        ("_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault"),
        ("__pyx_pw_", "__pyx_pw_"),
    ],
)
def test_additions_of_cython_and_gcc_to_names_are_removed(symbol: str, name: str) -> None:
    assert flamegraph.readable(symbol) == name


def test_a_frame_has_the_samples_of_all_its_callees() -> None:
    root = flamegraph.tree(found())
    append = root.calls["python"].calls["_PyEval_EvalFrameDefault"].calls[APPEND]
    assert (root.samples, append.samples, root.depth) == (3, 2, 5)
    assert sorted(call.samples for call in append.calls.values()) == [1, 1]
    assert dict(flamegraph.own_samples(found()))["memcpy@plt"] == 1


def test_the_picture_is_xml_whose_widths_are_shares() -> None:
    picture = ElementTree.fromstring(flamegraph.svg(flamegraph.tree([("a<b>", "x & y")] * 3 + [("c",)]), "a & b"))
    boxes = {}
    for group in picture.iterfind(".//{*}g"):
        title, box = group.find("{*}title"), group.find("{*}rect")
        assert title is not None
        assert title.text is not None
        assert box is not None
        boxes[title.text] = (round(float(box.get("width", 0))), round(float(box.get("x", 0))))
    assert boxes == {
        "all: 4 samples, 100.0%": (1200, 0),
        "a<b>: 3 samples, 75.0%": (900, 0),
        "x & y: 3 samples, 75.0%": (900, 0),
        "c: 1 samples, 25.0%": (300, 900),
    }


def test_a_picture_without_samples() -> None:
    ElementTree.fromstring(flamegraph.svg(flamegraph.tree([]), "empty"))


def test_it_works_as_a_filter() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "flamegraph.py", "appends"], input=PRINTED, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "appends" in done.stdout
    assert APPEND in done.stdout
