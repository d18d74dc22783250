"""The simulated disk leaves the states that a kernel may leave, also those in which names, lengths and bytes
disagree."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.crash_files import CrashFiles
from tests.support.crash_states import SECTOR, Cut, State
from tests.support.state_directory import StateDirectory


def prepared(tmp_path: Path) -> tuple[CrashFiles, Path]:
    root = tmp_path / "root"
    root.mkdir()
    return CrashFiles(), root


def put(files: CrashFiles, path: Path, *writes: tuple[int, bytes], sync: bool = False) -> None:
    file = files.open(str(path), write=True, create=True)
    for position, data in writes:
        file.write(data, position)
    if sync:
        files.fsync(file)
    file.close()


def drawn(cut: Cut, count: int = 600) -> list[State]:
    rng = random.Random(1)
    return [*cut.fixed(), *cut.torn(rng), *(cut.chosen(f"{number}", rng) for number in range(count))]


def some(states: list[State], wanted: Callable[[dict[str, bytes]], bool]) -> bool:
    return any(wanted(state.files) for state in states)


def test_a_body_may_be_lost_while_its_header_lands(tmp_path: Path) -> None:
    files, root = prepared(tmp_path)
    put(files, root / "f", (0, b"h" * SECTOR + b"b" * SECTOR + b"e" * SECTOR))
    states = drawn(files.cut(root))
    for kept in ("h", "b", "e"):
        expected = b"".join(letter.encode() * SECTOR if letter == kept else bytes(SECTOR) for letter in "hbe")
        assert some(states, lambda found, expected=expected: found.get("f") == expected), f"only {kept} landed"
        lost = b"".join(bytes(SECTOR) if letter == kept else letter.encode() * SECTOR for letter in "hbe")
        assert some(states, lambda found, lost=lost: found.get("f") == lost), f"only {kept} lost"


def test_a_write_is_torn_at_bytes(tmp_path: Path) -> None:
    files, root = prepared(tmp_path)
    put(files, root / "f", (0, b"x" * 100))
    lengths = {len(state.files["f"]) for seed in range(50) for state in files.cut(root).torn(random.Random(seed))}
    assert len(lengths) > 20


def old_and_new(tmp_path: Path) -> tuple[CrashFiles, Path]:
    """ "f" and "g" are on disk; then both change, "f" becomes "k", and a new "f" appears. Nothing is synced."""
    files, root = prepared(tmp_path)
    put(files, root / "f", (0, b"old f"), sync=True)
    put(files, root / "g", (0, b"old g"), sync=True)
    files.fsync_dir(str(root))
    put(files, root / "f", (5, b"+1"), (7, b"+2"))
    put(files, root / "g", (5, b"+1"))
    files.rename(str(root / "f"), str(root / "k"))
    put(files, root / "f", (0, b"new"))
    return files, root


def test_old_names_keep_any_of_the_bytes_written_under_newer_ones(tmp_path: Path) -> None:
    states = drawn(old_and_new(tmp_path)[0].cut(tmp_path / "root"))
    for f in (b"old f", b"old f+1", b"old f+1+2"):
        for g in (b"old g", b"old g+1"):
            expected = {"f": f, "g": g}
            assert some(states, lambda found, expected=expected: found == expected), expected


def test_new_names_may_come_before_their_bytes(tmp_path: Path) -> None:
    states = drawn(old_and_new(tmp_path)[0].cut(tmp_path / "root"))
    for expected in (
        {"k": b"old f", "g": b"old g"},
        {"k": b"old f", "f": b"", "g": b"old g"},
        {"k": b"old f+1+2", "f": b"", "g": b"old g"},
        {"k": b"old f", "f": b"new", "g": b"old g+1"},
    ):
        assert some(states, lambda found, expected=expected: found == expected), expected


def test_what_is_synced_never_changes(tmp_path: Path) -> None:
    files, root = old_and_new(tmp_path)
    assert {b"old g"} == {state.files["g"][:5] for state in drawn(files.cut(root))}


def two_directories(tmp_path: Path) -> tuple[CrashFiles, Path]:
    """ "a/p" and "b/p" are on disk, each with a file and an index."""
    files, root = prepared(tmp_path)
    for name in "ab":
        (root / name / "p").mkdir(parents=True)
        (root / name / "p" / "f").write_bytes(name.encode())
        (root / name / "p" / "0.index").write_bytes(name.encode() * 8)
    files.keep(root)
    return files, root


def test_an_exchange_of_directories_is_one_operation_that_a_cut_may_undo_as_a_whole(tmp_path: Path) -> None:
    files, root = two_directories(tmp_path)
    before = content(root)
    files.exchange(str(root / "a" / "p"), str(root / "b" / "p"))
    assert files.log == ["exchange p p"]
    after = {"a/p/f": b"b", "b/p/f": b"a", "a/p/0.index": b"b" * 8, "b/p/0.index": b"a" * 8}
    assert content(root) == after
    for synced in ("a", "b"):
        states = drawn(files.cut(root))
        assert all(state.files in (before, after) for state in states)
        assert some(states, lambda found: found == before) and some(states, lambda found: found == after)
        files.fsync_dir(str(root / synced))
    assert all(state.files == after for state in drawn(files.cut(root)))


def test_a_directory_is_missing_with_all_below_until_its_parent_is_synced(tmp_path: Path) -> None:
    files, root = prepared(tmp_path)
    files.mkdir(str(root / "new"))
    files.mkdir(str(root / "new" / "p"))
    put(files, root / "new" / "p" / "f", (0, b"f"), sync=True)
    files.fsync_dir(str(root / "new" / "p"))
    files.fsync_dir(str(root / "new"))
    assert some(drawn(files.cut(root)), lambda found: not found)
    files.fsync_dir(str(root))
    assert all(state.files == {"new/p/f": b"f"} for state in drawn(files.cut(root)))


def test_an_index_that_is_created_and_written_as_a_plain_file_keeps_its_bytes(tmp_path: Path) -> None:
    """A move of a partition and a repair copy an index in this manner."""
    files, root = prepared(tmp_path)
    put(files, root / "0.index", (0, b"12345678"), sync=True)
    files.fsync_dir(str(root))
    assert all(state.files == {"0.index": b"12345678"} for state in list(files.cut(root).fixed()))


def test_a_removed_tree_stays_removed_once_its_parent_is_synced(tmp_path: Path) -> None:
    files, root = prepared(tmp_path)
    for name in ("a", "a/b"):
        files.mkdir(str(root / name))
        files.fsync_dir(str((root / name).parent))
    put(files, root / "a" / "b" / "f", (0, b"f"), sync=True)
    files.fsync_dir(str(root / "a" / "b"))
    files.unlink(str(root / "a" / "b" / "f"))
    files.rmdir(str(root / "a" / "b"))
    files.rmdir(str(root / "a"))
    assert some(drawn(files.cut(root)), lambda found: found == {"a/b/f": b"f"})
    files.fsync_dir(str(root))
    assert all(state.files == {} for state in drawn(files.cut(root)))


def test_a_rename_to_another_directory_lands_after_what_came_before_it_in_both(tmp_path: Path) -> None:
    files, root = prepared(tmp_path)
    for name in "ab":
        files.mkdir(str(root / name))
    files.fsync_dir(str(root))
    put(files, root / "a" / "new", (0, b"new"), sync=True)
    put(files, root / "b" / "f", (0, b"old"), sync=True)
    files.fsync_dir(str(root / "a"))
    files.fsync_dir(str(root / "b"))
    files.rename(str(root / "b" / "f"), str(root / "b" / "aside"))
    files.rename(str(root / "a" / "new"), str(root / "b" / "f"))
    states = drawn(files.cut(root))
    for expected in (
        {"a/new": b"new", "b/f": b"old"},
        {"a/new": b"new", "b/aside": b"old"},
        {"b/f": b"new", "b/aside": b"old"},
    ):
        assert some(states, lambda found, expected=expected: found == expected), expected
    assert not some(states, lambda found: found.get("b/f") == b"new" and "b/aside" not in found)


def test_two_names_of_a_file_are_two_names_of_one_file_after_the_cut(tmp_path: Path) -> None:
    files, root = prepared(tmp_path)
    put(files, root / "f", (0, b"f"), sync=True)
    files.fsync_dir(str(root))
    files.link(str(root / "f"), str(root / "g"))
    states = drawn(files.cut(root))
    assert some(states, lambda found: found == {"f": b"f"}) and some(states, lambda found: "g" in found)
    place = StateDirectory(tmp_path / "states")
    for state in [*states, *states]:
        at = place.lay_out(state)
        assert content(at) == state.files
        names = [path for path in ("f", "g") if path in state.files]
        assert len({(at / path).stat().st_ino for path in names}) == 1
        (at / "h").hardlink_to(at / "f")
    files.unlink(str(root / "f"))
    put(files, root / "f", (0, b"other"))
    for state in drawn(files.cut(root)):
        assert content(place.lay_out(state)) == state.files


def test_a_state_is_laid_out_over_another(tmp_path: Path) -> None:
    """The state replaces any files that an engine has left in the directory."""
    files, root = old_and_new(tmp_path)
    place = StateDirectory(tmp_path / "states")
    for number, state in enumerate(drawn(files.cut(root), 40)):
        assert content(place.lay_out(state)) == state.files
        (place.path / "f").write_bytes(b"longer than before" * number)
        (place.path / f"extra-{number}").mkdir()
        (place.path / f"extra-{number}" / "file").touch()


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in files_below(root)}


def files_below(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file())
