"""Every field has one owner: no module of klog stores into a private field of another object, and none but the declaring
one into a field of the state of a log, a manager, a coordinator or a broker."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog

PACKAGE = Path(klog.__file__).parent


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """The targets that a statement assigns to or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        waiting = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        waiting = [node.target]
    else:
        return
    while waiting:
        target = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += target.elts
        elif isinstance(target, ast.Starred):
            waiting.append(target.value)
        else:
            yield target


def foreign_fields(source: str) -> set[str]:
    """Private fields of other objects than self or cls that the source stores into."""
    return {
        target.attr
        for node in ast.walk(ast.parse(source))
        for target in targets(node)
        if isinstance(target, ast.Attribute)
        and target.attr.startswith("_")
        and not target.attr.endswith("__")
        and not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"))
    }


def test_no_module_stores_into_a_private_field_of_another_object() -> None:
    found = {
        str(path.relative_to(PACKAGE)): fields
        for path in sorted(PACKAGE.rglob("*.py"))
        if (fields := foreign_fields(path.read_text()))
    }
    assert found == {}


def test_every_form_of_a_store_is_found() -> None:
    source = (
        "log._a = 1\nlog._b += 1\nlog._c: int = 1\ndel log._d\nx, (*self.log._e, y._f) = z\nself._own = log.g = 1\n"
    )
    assert foreign_fields(source) == {"_a", "_b", "_c", "_d", "_e", "_f"}


# The names by which klog's modules call state objects: the modules whose classes these are, and which alone store into
# their fields.
STATE = {
    "active": "segment/segment.py",
    "cleaned": "segment/segment.py",
    "cleaning": "log/state/cleaning_state.py",
    "connection": "network/_connection.pyx broker/authentication.py",  # state: of whoever authenticates it
    "core": "log/state/_log_core.pyx",
    "counters": "log/state/_counters.pyx",
    "directory": "log/state/partition_dir.py manager/directories.py",
    "draft": "coordinator/groups/consumer_draft.py coordinator/share/heartbeat.py",
    "epochs": "log/state/leader_epochs.py",
    "first": "segment/segment.py",
    "flush_state": "log/state/_flush_state.pyx",
    "fresh": "segment/segment.py",
    "group": "coordinator/groups/classic_group.py coordinator/groups/consumer_group.py coordinator/share/share_group.py",
    "health": "log/state/_health.pyx",
    "live": "segment/segment.py",
    "log": "log/state/_log_core.pyx",
    "made": "segment/segment.py",
    "member": "coordinator/groups/classic_member.py coordinator/groups/consumer_member.py coordinator/share/share_group.py",
    "options": "log/options.py",
    "producers": "log/state/producers.py",
    "segment": "segment/segment.py",
    "segment_dir": "segment/segment_dir.py",
    "segment_list": "log/state/_segment_list.pyx",
    "session": "broker/fetch_sessions.py broker/share_sessions.py",
    "shared": "coordinator/share/state_log.py",
    "txn_index": "segment/txn_index.py",
    "under_way": "manager/moving.py",
    "waiting": "broker/purgatory.py",
    "watermark": "log/state/_high_watermark.pyx",
    "worker": "manager/cleaner_worker.py",
}
_STORE = re.compile(
    r"^\s*(?!(?:if|elif|while|return|assert|cdef|for)\b)([\w.\[\], <>?()-]+?)\s*(?:[-+*/|&%]|//|<<|>>)?=(?!=)"
)
_FIELD = re.compile(r"(\w+)(?:\(\)|\[[^\]]*\]|\))*\.(\w+)(?:\[[^\]]*\])?$")


def native_stores(source: str) -> Iterator[tuple[str, str]]:
    """(last name of the object, field) of each store into a field in a .pyx source."""
    code = re.sub(r'"""(?:.|\n)*?"""|"[^"\n]*"', "s", re.sub(r"#[^\n]*", "", source))
    for line in map(str.strip, code.splitlines()):
        chain = _STORE.match(line)
        while chain is not None and chain[1].count("(") == chain[1].count(")"):  # otherwise an argument of a call
            for target in chain[1].split(","):
                if (field := _FIELD.search(target.strip())) is not None:
                    yield field[1], field[2]
            line = line[chain.end() :]
            chain = _STORE.match(line)


def python_stores(source: str) -> Iterator[tuple[str, str]]:
    """The same for a .py source."""
    for node in ast.walk(ast.parse(source)):
        for target in targets(node):
            if isinstance(target, ast.Attribute):
                value: ast.AST = target.value
                while isinstance(value, ast.Subscript | ast.Call):
                    value = value.value if isinstance(value, ast.Subscript) else value.func
                yield getattr(value, "attr", getattr(value, "id", "")), target.attr


def stores_into_state(path: Path) -> set[str]:
    """Fields of state objects that a module stores into and does not own."""
    module = str(path.relative_to(PACKAGE))
    stores = python_stores if path.suffix == ".py" else native_stores
    return {
        f"{name}.{field}"
        for name, field in stores(path.read_text())
        if module not in STATE.get(name.lstrip("_"), module)
    }


def test_state_is_stored_by_its_owners_alone() -> None:
    paths = sorted(
        path
        for name in ("segment", "log", "cleaner", "manager", "coordinator", "broker")
        for path in (PACKAGE / name).rglob("*")
        if path.suffix in (".py", ".pyx")
    )
    assert {str(path.relative_to(PACKAGE)): fields for path in paths if (fields := stores_into_state(path))} == {}


def test_every_owner_exists() -> None:
    assert [path for paths in STATE.values() for path in paths.split() if not (PACKAGE / path).exists()] == []


def test_every_form_of_a_native_store_is_found() -> None:
    source = (
        "cdef int f(log):\n    log.a = 1  # log.no = 1\n    log.b += 1\n    x.log.c, log.d = log.e = y\n"
        '    if log.no == 1:\n    (<Log?>log).f = 2\n    log.g[0] = 1\n    s = "log.no = 1"\n    g(log.no, k=1)\n'
        "    own = log.no = 1\n"
    )
    found = [field for name, field in native_stores(source) if name == "log"]
    assert found == ["a", "b", "c", "d", "e", "f", "g", "no"]


# Fields of a log's state that a move between log.dirs leaves where they are.
KEPT = {
    "SegmentList": {"generation", "rewritten", "taken_back", "known_sizes"},  # of the readers of each log
    "HighWatermark": {"listener"},
    "LogCore": {"written_end", "applied"},  # of a commit: none runs during a move
}
_DECLARED = re.compile(r"    cdef (?:readonly |public )?[\w.]+ (\w+)$", re.MULTILINE)


@pytest.mark.parametrize(
    ("owner", "module"),
    [("LogCore", "_log_core"), ("SegmentList", "_segment_list"), ("HighWatermark", "_high_watermark")],
)
def test_a_move_exchanges_every_field_of_the_files(owner: str, module: str) -> None:
    """A field that is neither exchanged nor listed as kept has been forgotten."""
    declared = (PACKAGE / f"log/state/{module}.pxd").read_text()
    declared = declared[declared.index(f"cdef class {owner}:") :]
    of_users, _, of_files = declared.rpartition("# Of its files")
    fields = set(_DECLARED.findall(of_files))
    (body,) = re.findall(
        r"    def exchange\(.*?\n((?: {8}.*\n|\n)+)", (PACKAGE / f"log/state/{module}.pyx").read_text()
    )
    swapped = {
        one for one, other in re.findall(r"self\.(\w+), other\.(\w+) = other\.\1, self\.\1$", body, re.MULTILINE)
    }
    swapped |= set(re.findall(r"self\.(\w+)\.exchange\(other\.\1\)", body))
    swapped |= set(re.findall(r"self\.(\w+) = other\.\1 = None$", body, re.MULTILINE))
    owned = set(_DECLARED.findall(of_users))
    assert len(fields) > 1 and fields - swapped == KEPT[owner]
    assert swapped - fields <= owned & {"segment_list"}, "a field of the log as its users know it is exchanged"
