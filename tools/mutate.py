"""Mutation testing: changes one expression or statement of a module at a time and expects that a test fails.

    python -m tools.mutate --map               which tests reach which line: minutes, once, and after large changes
    python -m tools.mutate [MODULE ...]        run the mutants that have no result yet; after Ctrl-C, run it again
    python -m tools.mutate --again             ... and survivors again, in copies of the tree, for their child processes
    python -m tools.mutate --report            survivors, without those of tools/equivalent.toml

A mutant is one flipped comparison, `and` for `or`, negated condition, + for -, number + 1, or removed statement. For
each mutant tests that reach its line run until one fails. Results are in build/mutation/. The key of a mutant is the
text of its function and its change, so results stay valid when other functions change.

Why not mutmut or cosmic-ray: this tool shares its copies of the tree with the planted bugs, Cython and C included.
Neither of the two selects tests by line with klog's child processes and compiled modules, and neither removes
statements.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tools.broken_copy import ROOT, Change, Copy, Unusable

MUTATED = (
    *(f"klog/log/load/{name}.py" for name in ("loader", "recovery", "leftovers", "rebuild", "replay", "reindex")),
    *(f"klog/log/load/{name}.py" for name in ("batch_epochs", "segment_starts", "damage", "overflow")),
    *(f"klog/log/write/{name}.py" for name in ("roll", "flush", "commit", "truncate", "undo", "log_end")),
    *(f"klog/log/directory/{name}.py" for name in ("checkpoint", "gaps", "cleaner_offsets")),
    "klog/log/closing.py",
    *(f"klog/log/state/{name}.py" for name in ("snapshots", "leader_epochs", "segments")),
    *(f"klog/cleaner/{name}.py" for name in ("swap", "rewriting", "checkpoints")),
    "klog/log/write/removal.py",
    "klog/segment/batches.py",
    "klog/segment/by_time.py",
    "klog/segment/segment.py",
    "klog/segment/active.py",
    "klog/segment/txn_index.py",
)


class Compiled(NamedTuple):
    """What to build for a mutant of a C source, and the tests that it runs."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


COMPILED = {
    "csrc/crc32c.c": Compiled(("klog/codec/crc32c.pyx",), ("tests/codec/test_crc32c.py",)),
    "csrc/index.c": Compiled(
        ("klog/segment/_index.pyx", "klog/log/write/_tail.pyx", "klog/segment/_span.pyx", "klog/segment/_opening.pyx"),
        ("tests/segment", "tests/log/test_fetch_range.py", "tests/log/test_time_lookup.py"),
    ),
}
TESTS = (
    "tests/log",
    "tests/segment",
    "tests/cleaner",
    "tests/crash",
    "tests/manager",
    "tests/spark/test_reindexing.py",
)
KINDS = "not deep and not java and not spark"
WORK = ROOT / "build" / "mutation"
LINES, RESULTS = WORK / "lines.json", WORK / "results.jsonl"
FEW = 20
EQUIVALENT = ROOT / "tools" / "equivalent.toml"

_OPERATORS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip

_OPERATORS_OF_C = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "<<": ">>", ">>": "<<",
    "+": "-", "-": "+", "^": "|", "&": "|", "|": "&", "+=": "-=", "-=": "+=", "^=": "|=", "|=": "&=", "&=": "|=",
    "<<=": ">>=", ">>=": "<<=",
}  # fmt: skip


class Mutant(NamedTuple):
    file: str
    line: int
    change: str  # "old → new"
    mutated: str  # the whole module
    key: str


# ---- making mutants --------------------------------------------------------------------------------------------------


class _Source:
    """Replaces nodes of one module by other text."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.text = (ROOT / file).read_text()
        self.tree = ast.parse(self.text)
        self._starts = [0]
        for line in self.text.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: Any) -> tuple[int, int]:
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def of(self, node: ast.AST) -> str:
        begin, end = self.span(node)
        return self.text.encode()[begin:end].decode()

    def put(self, begin: int, end: int, new: str) -> str:
        plain = self.text.encode()
        return (plain[:begin] + new.encode() + plain[end:]).decode()


def mutants(file: str) -> Iterator[Mutant]:
    if file in COMPILED:
        yield from _mutants_of_c(file)
        return
    source = _Source(file)
    seen: Counter[str] = Counter()
    for function in ast.walk(source.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in _own(function):
            for begin, end, new in _replacements(source, node):
                old = source.text.encode()[begin:end].decode()
                line: int = node.lineno  # type: ignore[attr-defined]
                change = f"{' '.join(old.split())} → {new}"
                body = hashlib.sha256(source.of(function).encode()).hexdigest()[:12]
                name = f"{file} {function.name} {body} {line - function.lineno} {change}"
                seen[name] += 1
                yield Mutant(file, line, change, source.put(begin, end, new), f"{name} {seen[name]}")


def _mutants_of_c(file: str) -> Iterator[Mutant]:
    """One token or one statement of a line is changed. Comments, directives and constant tables stay."""
    lines = (ROOT / file).read_text().splitlines(keepends=True)
    seen: Counter[str] = Counter()
    in_comment = False
    for number, line in enumerate(lines, 1):
        code = line.partition("/*")[0].rstrip()
        if not in_comment and not line.startswith("#"):
            for begin, end, new in _replacements_in_c(code):
                mutated = f"{line[:begin]}{new}{line[end:]}"
                change = f"{code[begin:end].strip()} → {new.strip()}"
                name = f"{file} {line.strip()} {begin} {change}"
                seen[name] += 1
                whole = "".join([*lines[: number - 1], mutated, *lines[number:]])
                yield Mutant(file, number, change, whole, f"{name} {seen[name]}")
        in_comment = line.rfind("/*") > line.rfind("*/") or (in_comment and "*/" not in line)


def _replacements_in_c(code: str) -> Iterator[tuple[int, int, str]]:
    for found in re.finditer(r" (<=|>=|==|!=|&&|\|\||<<|>>|[<>+\-^&|]|[+\-^|&]=|<<=|>>=) ", code):
        yield found.start(1), found.end(1), _OPERATORS_OF_C[found[1]]
    for found in re.finditer(r"(?<![\w.])(0x[0-9a-f]+|[0-9]+)(u?)\b", code):
        yield found.start(1), found.end(1), str(int(found[1], 0) + 1)
    statement = re.fullmatch(r"( +)((?:[\w.\[\]>*-]+(?: [-+^|&]?= |\()[^{]*|continue|break|return);)", code)
    if statement and not re.match(r"(return .*|[a-z]\w+ \*?\w+ = )", statement[2]):
        yield statement.start(2), statement.end(2), ";"


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, without inner functions, docstrings, messages and log lines."""
    waiting: list[ast.AST] = list(function.body[::-1])
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.JoinedStr | ast.AnnAssign) and not getattr(node, "value", None):
            continue
        if isinstance(node, ast.FunctionDef | ast.JoinedStr | ast.Assert):
            continue
        if isinstance(node, ast.Expr) and (isinstance(node.value, ast.Constant) or _is_log(node.value)):
            continue
        yield node
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(node, ast.Raise)][::-1]


def _is_log(node: ast.AST) -> bool:
    return ast.unparse(node).startswith("_log.")


def _is_flipped(test: ast.expr) -> bool:
    """Whether a condition is one comparison, whose operator is replaced."""
    return isinstance(test, ast.Compare) and len(test.ops) == 1


def _replacements(source: _Source, node: ast.AST) -> Iterator[tuple[int, int, str]]:
    match node:
        case (
            ast.Compare(left=before, ops=[op], comparators=[after])
            | ast.BoolOp(op=op, values=[*_, before, after])
            | ast.BinOp(left=before, op=op, right=after)
        ) if type(op) in _OPERATORS:
            begin, end = source.span(before)[1], source.span(after)[0]
            yield begin, end, source.text.encode()[begin:end].decode().replace(*_OPERATORS[type(op)], 1)
        case ast.Constant(value=bool(value)):
            yield *source.span(node), str(not value)
        case ast.Constant(value=int(value)):
            yield *source.span(node), str(value + 1)
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not _is_flipped(node.test):
        yield *source.span(node.test), f"not ({source.of(node.test)})"
    if isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)
    ):
        yield *source.span(node), "pass"
    if isinstance(node, ast.Return) and node.value is None:
        yield *source.span(node), "pass"


# ---- running them ----------------------------------------------------------------------------------------------------


class Lines:
    """Finds the tests that reach a line, in an order that finds most mutants soon.

    First those that have found mutants of the module, then those whose names have words of the line, rare words first.
    Of equal ones, one of each file in turn: those that reach lines of the module which few tests reach, in proportion
    to their time. For nearly every test opens a log, few recover one.
    """

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._tests: dict[str, Any] = {}
        for path in sorted(WORK.glob("lines*.json")):
            self._tests.update(json.loads(path.read_text()))
        self._words = {name: _words(name) for name in self._tests}
        self._frequent = Counter(word for words in self._words.values() for word in words)
        for result in results().values():
            if result["verdict"] == "found":
                self.found(result["file"], result["reason"].split(": ")[0])

    def found(self, file: str, test: str) -> None:
        """The test has found a mutant of the file."""
        self._found[file][test] += 1

    def tests(self, mutant: Mutant) -> list[str]:
        file, line, taken = mutant.file, mutant.line, 0.0
        chosen: list[str] = []
        words = _words(line_of(mutant)) | _words(mutant.key.split()[1])

        def apart(name: str) -> float:
            return -sum(math.log(len(self._tests) / self._frequent[word]) for word in words & self._words[name])

        reaching = [name for name in self._ordered(file) if line in self._tests[name]["lines"][file]]
        before = [name for name, _ in self._found[file].most_common() if name in reaching][:_FIRST]
        for name in dict.fromkeys([*before, *sorted(reaching, key=apart)]):
            seconds = float(self._tests[name]["seconds"])
            if not chosen or taken + seconds <= self._seconds_max:
                taken += seconds
                chosen.append(name)
        return chosen

    @functools.cache  # noqa: B019  there is one for a run
    def _ordered(self, file: str) -> list[str]:
        reached = Counter(line for test in self._tests.values() for line in test["lines"].get(file, ()))
        of_files: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        for name, test in self._tests.items():
            if file in test["lines"]:
                rare = sum(1 / reached[line] for line in test["lines"][file])
                of_files[name.split("::")[0]].append((rare / (0.05 + float(test["seconds"])), name))
        turns = [
            (turn, -worth, name)
            for tests in of_files.values()
            for turn, (worth, name) in enumerate(sorted(tests, reverse=True))
        ]
        return [name for _, _, name in sorted(turns)]


_FIRST = 20


def _words(text: str) -> set[str]:
    """The words of a text without their endings."""
    return {re.sub(r"(s|ed|d|ing)$", "", word) for word in re.findall(r"[a-z]{3,}", text.lower())}


def results() -> dict[str, dict[str, Any]]:
    if not RESULTS.exists():
        return {}
    return {found["key"]: found for found in map(json.loads, RESULTS.read_text().splitlines())}


def store(mutant: Mutant, verdict: str, seconds: float, reason: str) -> None:
    found = {"key": mutant.key, "file": mutant.file, "line": mutant.line, "change": mutant.change, "verdict": verdict}
    with RESULTS.open("a") as file:
        file.write(json.dumps({**found, "seconds": seconds, "reason": reason}) + "\n")
    print(f"{verdict:9} {seconds:6.1f} s  {mutant.file}:{mutant.line}  {mutant.change}", flush=True)


def run_in_place(todo: list[Mutant], jobs: int, seconds_max: float) -> None:
    """Run mutants in forks of one process (tools/mutate_in_place.py)."""
    keys = WORK / "todo.json"
    keys.write_text(json.dumps([mutant.key for mutant in todo]))
    options = [
        "-p",
        "tools.mutate_in_place",
        "-p",
        "no:cacheprovider",
        f"--mutants={keys}",
        f"--mutant-jobs={jobs}",
        f"--mutant-seconds={seconds_max}",
        "--timeout=30",
        "-o",
        "tmp_path_retention_policy=none",
        "-s",
        "-q",
    ]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "ci"}
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", KINDS, *TESTS], cwd=ROOT, env=environment, check=True
    )


def run_in_copies(todo: list[Mutant], jobs: int, seconds_max: float) -> None:
    """Run mutants each in a copy of the tree: slower, but child processes of the tests have the change."""
    lines, lock = Lines(seconds_max), threading.Lock()

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="klog-mutate-", ignore_cleanup_errors=True) as folder:
            copy = Copy(Path(folder))
            while True:
                with lock:
                    if not todo:
                        return
                    mutant = todo.pop()
                verdict, seconds, reason = _try(copy, mutant, lines)
                with lock:
                    store(mutant, verdict, seconds, reason)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _try(copy: Copy, mutant: Mutant, lines: Lines) -> tuple[str, float, str]:
    """Verdict, seconds and reason."""
    compiled = COMPILED.get(mutant.file)
    tests = [*(compiled.tests if compiled else lines.tests(mutant))]
    modules = compiled.modules if compiled else ()
    if not tests:
        return "unreached", 0.0, "no test reaches the line"
    try:
        with copy.changed(Change(mutant.file, (ROOT / mutant.file).read_text(), mutant.mutated, modules)):
            for some in filter(None, (tests[:FEW], tests[FEW:])):  # collecting many files takes long
                outcome = copy.test(some, 300, each=60)
                if outcome.found:
                    break
    except Unusable as error:  # the module cannot be imported
        return "unusable", 0.0, str(error)
    return "found" if outcome.found else "survived", outcome.seconds, outcome.reason


def map_lines() -> None:
    """Run all tests with a trace of the modules, and store which lines each test reaches."""
    WORK.mkdir(parents=True, exist_ok=True)
    for number, tests in enumerate(TESTS):
        subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tools.lines_by_test", f"--lines-by-test={WORK}/lines{number}.json",
             "-m", KINDS, "-q", tests],
            cwd=ROOT,
            check=False,
        )  # fmt: skip


# ---- the report ------------------------------------------------------------------------------------------------------


class Argued(NamedTuple):
    """A mutant that no test can find."""

    file: str
    line: str  # its text
    change: str
    why: str


def argued() -> list[Argued]:
    stored = tomllib.loads(EQUIVALENT.read_text())
    single = [Argued(**entry) for entry in stored["mutant"]]
    return single + [
        Argued(entry["file"], line, change, entry["why"])
        for entry in stored["mutants"]
        for line, *changes in entry["changes"]
        for change in changes
    ]


def survivors(known: Iterable[Mutant]) -> list[tuple[Mutant, str]]:
    done = results()
    equivalent = {(entry.file, entry.line, entry.change) for entry in argued()}
    return [
        (mutant, done[mutant.key]["verdict"])
        for mutant in known
        if done.get(mutant.key, {}).get("verdict") in ("survived", "unreached")
        and (mutant.file, line_of(mutant), mutant.change) not in equivalent
    ]


def line_of(mutant: Mutant) -> str:
    return (ROOT / mutant.file).read_text().splitlines()[mutant.line - 1].strip()


def report(known: list[Mutant]) -> None:
    done = results()
    for mutant, verdict in survivors(known):
        print(f"{verdict:9} {mutant.file}:{mutant.line}: {mutant.change}\n          {line_of(mutant)}")
    left = {mutant.key for mutant, _ in survivors(known)}
    counts = Counter(_shown(done.get(mutant.key, {}).get("verdict", "not run"), mutant.key in left) for mutant in known)
    print(f"{len(known)} mutants: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))


def _shown(verdict: str, left: bool) -> str:
    return verdict if left or verdict not in ("survived", "unreached") else "argued"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="part of a module's path; default: all")
    parser.add_argument("--map", action="store_true", help="find out which tests reach which line")
    parser.add_argument("--report", action="store_true", help="list the survivors, and run nothing")
    parser.add_argument("--again", action="store_true", help="run survivors again, in copies of the tree")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40.0, help="recorded time of the tests of one mutant, at most")
    asked = parser.parse_args()
    if asked.map:
        map_lines()
        return
    chosen = [m for part in asked.modules or [""] for m in (*MUTATED, *COMPILED) if part in m]
    known = [mutant for file in chosen for mutant in mutants(file)]
    if not asked.report:
        done = results()
        todo = [mutant for mutant in known if mutant.key not in done]
        if in_place := [mutant for mutant in todo if mutant.file not in COMPILED]:
            run_in_place(in_place, asked.jobs, asked.seconds)
        in_copies = [mutant for mutant in todo if mutant.file in COMPILED]
        if asked.again:
            in_copies += [mutant for mutant, _ in survivors(known)]
        if in_copies:
            run_in_copies(in_copies[::-1], asked.jobs, asked.seconds)
    report(known)


if __name__ == "__main__":
    main()
