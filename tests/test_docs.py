"""Every snippet of the documents works as a new user would try it: top to bottom, in an empty directory.

    ```python            a separate script; with a first line "# NAME.py" it is saved under that name instead
    ```python WORD ...   the same, if it needs WORD: a module, or `spark` (a JVM)
    ```python FILE.py    lines of this file, as they are there; its output, if any, is what the whole file prints
    ```text              right after a script: its output
    ```console           "$ COMMAND" lines, each followed by its output

In output, "..." stands for any text within a line, and a line of three dots for any lines; a command without output
below it may print anything. Commands that build or install (make, git, and blocks with `pip install`) do not run here:
their targets and extras must exist. tests/test_first_steps.py runs those of the README. BROKERS: paths that stand for
directories of killed Kafka brokers.
"""

from __future__ import annotations

import html
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import klog
from klog.broker.explain import broker_keys, group_keys
from klog.cli import VERBS
from klog.config import BROKER_KEYS, TOPIC_KEYS
from klog.config.table import REMOVED, SYNONYMS
from klog.network import NetworkConfig

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLES = [path for path in DOCUMENTS if path.parent.name == "examples"]
BROKERS = {
    "/var/lib/kafka/data": "flights",
    "/mnt/dead-broker": "internal",
}  # path in a snippet: directory of tests/golden
NETWORK_KEYS = [*NetworkConfig.names(), *(key.name for key in (*broker_keys(), *group_keys()))]

_FENCE = re.compile(r"^```(\w*)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the words after it, its text, the line where it begins."""

    language: str
    needs: tuple[str, ...]
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    return [
        Block(match[1], tuple(match[2].split()), match[3], text.count("\n", 0, match.start()) + 2)
        for match in _FENCE.finditer(text)
    ]


def matches(expected: str, printed: str) -> bool:
    """Whether the output matches the expected text, in which dots stand for any text."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else r"[^\n]*?".join(map(re.escape, line.split("..."))) + r"[ ]*\n"
        for line in expected.rstrip("\n").split("\n")
    ]
    return re.fullmatch("".join(lines), printed if printed.endswith("\n") else f"{printed}\n") is not None


# A program that starts Spark without settings for klog, then runs the scripts that it gets, each as a JSON string in a
# line. After each it prints a line: DONE, or the exception.
BARE_SESSION = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for line in sys.stdin:
    try:
        exec(compile(json.loads(line), "snippet", "exec"), {"__name__": "__main__"})
        outcome = "DONE"
    except BaseException as error:
        outcome = f"FAILED {error!r}"
    for query in spark.streams.active:
        query.stop()
    print("\\n" + outcome.replace("\\n", " "), flush=True)
"""


class BareSession:
    """The process of BARE_SESSION. One session for all scripts of a page: a JVM takes half a minute to start."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._errors = directory.parent / "errors"
        with open(self._errors, "w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BARE_SESSION],
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(self, code: str, where: str) -> str:
        """What a script prints."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line == "DONE\n":
                errors = self._errors.read_text()
                assert "was never closed" not in errors, f"{where}: {errors}"
                return "".join(printed)[:-1]  # without the newline before DONE
            printed.append(line)
            if line.startswith("FAILED "):
                break
        raise AssertionError(f"{where}: {''.join(printed)}{self._errors.read_text()}")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        errors = self._errors.read_text()
        assert code == 0 and "was never closed" not in errors, f"exit code {code}\n{errors}"


class Reader:
    """Runs a document's snippets in a fresh directory. bare: those for Spark in one BareSession."""

    def __init__(self, document: Path, home: Path, *, bare: bool = False) -> None:
        self._document = document
        self._home = home
        tools = home / "bin"
        tools.mkdir(parents=True)
        for name, words in (("python", '"$@"'), ("python3", '"$@"'), ("klog", '-m klog.cli "$@"')):
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}\n')
            (tools / name).chmod(0o755)
        self._brokers = {path: str(home / name) for path, name in BROKERS.items()}
        for name in BROKERS.values():
            shutil.copytree(ROOT / "tests/golden" / name / "logdir", home / name)
            (home / name / ".kafka_cleanshutdown").unlink(missing_ok=True)  # it was killed
        self._directory = home / "here"
        self._directory.mkdir()
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")},
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONWARNINGS": "always::ResourceWarning:klog.manager.manager,always::ResourceWarning:klog.log.opening",
        }
        self._session = BareSession(self._directory, self._environment) if bare else None

    def read(self, only: frozenset[str]) -> None:
        """Run the blocks that need nothing beyond `only`."""
        try:
            self._read(only)
        finally:
            if self._session is not None:
                self._session.close()

    def _read(self, only: frozenset[str]) -> None:
        previous, printed = "", ""
        for block in blocks((ROOT / self._document).read_text()):
            where = f"{self._document}:{block.line}"
            if block.language == "python" and only.issuperset(block.needs):
                printed = self._script(block, where)
            elif block.language == "text" and previous == "python":
                assert matches(block.text, printed), f"{where}: printed was\n{printed}"
            elif block.language == "console" and only.issuperset(block.needs):
                self._console(block, where)
            skipped = block.language == "python" and not only.issuperset(block.needs)
            previous = "" if skipped else block.language

    def _script(self, block: Block, where: str) -> str:
        code = self._with_brokers(block.text)
        named = _FILE_NAME.match(code)
        if named:
            (self._directory / named[1]).write_text(code)
            return ""
        if self._session is not None and "spark" in block.needs:
            return self._session.run(code, where)
        return self._run([sys.executable, "-c", code], where)

    def _console(self, block: Block, where: str) -> None:
        for command, expected in commands(block.text):
            if "pip install" in block.text or command.split()[0] in ("make", "git", "sudo"):
                _check_by_eye(command, where)
                continue
            printed = self._run(["bash", "-c", self._with_brokers(command)], f"{where}: {command}")
            assert not expected or matches(expected, printed), f"{where}: {command} printed\n{printed}"

    def _with_brokers(self, text: str) -> str:
        for path, copied in self._brokers.items():
            text = text.replace(path, copied)
        return text

    def _run(self, command: list[str], where: str) -> str:
        done = subprocess.run(command, cwd=self._directory, env=self._environment, capture_output=True, text=True)
        killed = done.returncode in (-9, 137)
        assert killed or done.returncode == 0, f"{where}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert "was never closed" not in done.stderr, f"{where}: {done.stderr}"
        return done.stdout + ("Killed\n" if killed else "")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """(command, its expected output)"""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command.partition("  #")[0].rstrip(), expected


def _check_by_eye(command: str, where: str) -> None:
    """For a command that builds or installs, check that the targets and extras that it names exist."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    words = shlex.split(command)
    if words[0] == "make":
        assert [word for word in words[1:] if "=" not in word and word not in targets] == [], f"{where}: {command}"
    for extra in re.findall(r"\[([\w,]+)\]", command):
        assert [name for name in extra.split(",") if name not in extras] == [], f"{where}: {command}"


def wanted(document: Path) -> set[str]:
    """The modules that the blocks of a document need beyond klog's development dependencies."""
    found = {need for block in blocks((ROOT / document).read_text()) for need in block.needs}
    return {need for need in found if not need.endswith(".py")}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_snippets_work(document: Path, tmp_path: Path) -> None:
    Reader(document, tmp_path).read(frozenset())


@pytest.mark.parametrize("need", ["duckdb", "polars"])
@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_snippets_for_a_library_work(document: Path, need: str, tmp_path: Path) -> None:
    if need in wanted(document):
        Reader(document, tmp_path).read(frozenset({need}))


@pytest.mark.spark
@pytest.mark.parametrize(
    "document",
    [  # a JVM for each snippet: the front page always, the others in the deep run; those of spark.md share one, below
        pytest.param(path, id=str(path), marks=() if path.name == "README.md" else pytest.mark.deep)
        for path in DOCUMENTS
        if "spark" in wanted(path) and path.name != "spark.md"
    ],
)
def test_snippets_for_spark_work(document: Path, tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("needs: java")
    Reader(document, tmp_path).read(frozenset({"spark"}))


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("document", ["README.md", "docs/spark.md"])
def test_snippets_for_spark_work_in_a_session_without_klogs_settings(document: str, tmp_path: Path) -> None:
    """klog.spark.session() returns the session that runs: Spark has found klog and its Python by itself."""
    if shutil.which("java") is None:
        pytest.skip("needs: java")
    Reader(Path(document), tmp_path, bare=True).read(frozenset({"spark"}))


def test_every_page_and_every_public_name_is_in_the_built_documents() -> None:
    conf = (ROOT / "docs/conf.py").read_text()
    pages = [path for path in DOCUMENTS if path.parts[0] == "docs" and path.name != "index.md"]
    assert [path for path in pages if f'"{path.relative_to("docs").with_suffix("")}"' not in conf] == []
    reference = "".join(path.read_text() for path in (ROOT / "docs/reference").glob("*.rst"))
    modules = set(re.findall(r"automodule:: ([\w.]+)", reference))
    named = {f"klog.{name}" for name in {*klog.__all__, *klog._MODULES} - {"disk", "config", "KlogError", "verify"}}
    assert {name for name in named if not re.search(rf":: {name}\b", reference)} == set()
    assert {"klog.errors", "klog.inspect"} <= modules  # KlogError, verify


def test_the_documents_are_built_without_warnings(tmp_path: Path) -> None:
    """Sphinx comes with the extra `dev`."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(tmp_path / "html")]
    done = subprocess.run([*command, "-d", str(tmp_path / "trees")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "<topic>-<n>" in html.unescape((tmp_path / "html/reference/log.html").read_text())


def test_no_block_needs_more_than_the_tests_provide() -> None:
    assert set().union(*map(wanted, DOCUMENTS)) <= {"spark", "duckdb", "polars"}


@pytest.mark.parametrize("document", EXAMPLES, ids=str)
def test_the_page_of_an_example_quotes_it(document: Path) -> None:
    """tests/spark/test_examples.py compares the output on the page with that of the script."""
    text = (ROOT / document).read_text()
    script = f"examples/{document.stem.replace('-', '_')}.py"
    quotes = [block.text for block in blocks(text) if block.needs == (script,)]
    assert quotes and all(f"\n{quote}" in (ROOT / script).read_text() for quote in quotes), script
    assert f"({document.stem}.svg)" in text and f"python {script} DIR" in text
    assert (ROOT / document).with_suffix(".svg").stat().st_size < 60_000


@pytest.mark.parametrize("document", EXAMPLES, ids=str)
def test_the_numbers_on_the_page_of_an_example_are_in_its_output_or_code(document: Path) -> None:
    text = (ROOT / document).read_text()
    number = re.compile(r"(?<![\w-])\d+(?:[.,]\d+)*")
    shown = {found for block in blocks(text) for found in number.findall(block.text)}
    script = ROOT / "examples" / f"{document.stem.replace('-', '_')}.py"
    data = script.with_name("flights.py")
    known = shown.union(*(number.findall(path.read_text()) for path in (script, data)))
    assert set(number.findall(_FENCE.sub("", text))) <= known


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_and_file_names_exist(document: Path) -> None:
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text):
        assert (ROOT / document.parent / target).exists(), f"{document}: {target}"
    for name in re.findall(r"`((?:klog|csrc|tests|tools|docs|bench)/[\w./-]+)`", text):
        assert (ROOT / name.rstrip("/")).exists(), f"{document}: {name}"
    for name, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert re.search(rf"def {test}\b", (ROOT / name).read_text()), f"{document}: {name}::{test}"
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", text):
        page = (ROOT / document.parent / target if target else ROOT / document).read_text()
        assert anchor in map(_anchor, re.findall(r"^#+ (.*)", page, re.MULTILINE)), f"{document}: {target}#{anchor}"


def _anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_extras_are_named_in_one_form_and_exist() -> None:
    """pip takes the extras of the klog that is installed, so `'klog[arrow]'` holds for a clone and for a wheel."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [*(ROOT / "klog").rglob("*.py"), *(ROOT / "klog").rglob("*.pyx"), *(ROOT / "pyspark_klog").rglob("*.py")]
    for path in [*(ROOT / document for document in DOCUMENTS), *sources]:
        for form, extra in re.findall(r"pip install ([^\s`]*?\[([\w,{}]+)\]\S?)", path.read_text()):
            assert form == f"'klog[{extra}]'", f"{path}: {form}"
            assert extra in extras or path.name == "extras.py", f"{path}: {extra}"
    for path in sources:  # klog.extras makes the commands of errors
        for name in re.findall(r"extras\.(?:missing\(.*\"(\w+)\", error|command\('(\w+)')", path.read_text()):
            assert "".join(name) in extras, f"{path}: {name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_places_in_the_source_exist(document: Path) -> None:
    """`path/to/file.py: Class.name` stands for a definition in this file."""
    for path, dotted in re.findall(r"`([\w/]+\.\w+): ([\w.]+)`", (ROOT / document).read_text()):
        source = (ROOT / path).read_text()
        *owners, name = dotted.split(".")
        for word in owners:
            assert re.search(rf"^(cdef )?class {word}\b", source, re.MULTILINE), f"{document}: {path}: {dotted}"
        python = rf"^\s*(async def|def|class|cdef class|cpdef|cpdef \w+) {name}\b"
        definition = rf"^[a-z][\w *]*\b{name}\(" if path.startswith("csrc/") else python
        assert re.search(definition, source, re.MULTILINE), f"{document}: {path}: {dotted}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_names_of_klog_exist(document: Path) -> None:
    text = (ROOT / document).read_text()
    for dotted in re.findall(r"`(klog(?:\.[A-Za-z_]\w*)+)", text):
        if not any(f"{key}.".startswith(f"{dotted}.") for key in (*TOPIC_KEYS, *NETWORK_KEYS)):
            assert pkgutil.resolve_name(dotted) is not None, f"{document}: {dotted}"
    for owner, name, rest in re.findall(r"`(logs?)\.(\w+)((?:\.\w+)*)", text):
        if f"{owner}.{name}{rest}" in {*BROKER_KEYS, *SYNONYMS, *REMOVED}:
            continue
        assert hasattr(klog.Log if owner == "log" else klog.LogManager, name), f"{document}: {owner}.{name}"
    for verb in re.findall(r"`klog ([a-z]+)", text):
        assert verb in VERBS, f"{document}: klog {verb}"


@pytest.mark.parametrize(
    ("expected", "printed", "equal"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a ... c\n", "a b c\n", True),
        ("a ... c\n", "a b\nc\n", False),
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\n...\nz\n", "a\nb\nc\n", False),
        ("x.y\n", "xzy\n", False),
    ],
)
def test_dots_stand_for_anything(expected: str, printed: str, equal: bool) -> None:
    assert matches(expected, printed) is equal
