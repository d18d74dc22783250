"""The text of the demo: aligned, wrapped, without escape codes outside a terminal."""

from __future__ import annotations

import io

import pytest

from klog.demo.narrator import WIDTH, Narrator, duration, size, when


@pytest.fixture
def out():
    return io.StringIO()


def test_no_escape_codes_outside_a_terminal(out):
    to = Narrator(out)
    to.title("title")
    to.chapter(1, "chapter")
    assert out.getvalue() == "title\n\n1. chapter\n"


def test_headings_are_bold_on_a_terminal_unless_no_color(out, monkeypatch):
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    Narrator(out).title("title")
    assert out.getvalue() == "\x1b[1mtitle\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    out.truncate(out.seek(0))
    Narrator(out).title("title")
    assert out.getvalue() == "title\n"


def test_paragraphs_and_facts_are_wrapped(out):
    to = Narrator(out)
    to.say("word " * 100)
    to.facts([("a", "word " * 100), ("longer", "x")])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert lines[-1] == "     longer  x"
    assert out.getvalue().count("word") == 200


def test_columns_are_aligned(out):
    Narrator(out).table(["name", "n"], [["a", "1"], ["bcdef", "1,000"]])
    assert out.getvalue() == "\n     name       n\n     a          1\n     bcdef  1,000\n"


def test_code_is_never_wrapped(out):
    Narrator(out).code("x" * 200)
    assert "x" * 200 in out.getvalue()


def test_when():
    assert when(1360299600000) == "2013-02-08T05:00Z"
    assert when(1388565000000) == "2014-01-01T08:30Z"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1.0 kB"), (325_893_309, "325.9 MB"), (2_500_000_000, "2.50 GB")],
)
def test_size(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00084, "840 µs"), (0.0123, "12.3 ms"), (0.9999, "1 s"), (4.561, "4.56 s"), (12.34, "12.3 s"), (125.4, "125 s")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_a_long_path_stays_whole(out):
    path = "/" + "-directory" * 20 + "/00000000000000033000.log"
    to = Narrator(out)
    to.say(f"see {path}: it was cut")
    to.facts([("finding", f"{path}: a truncated batch")])
    assert out.getvalue().count(path) == 2
