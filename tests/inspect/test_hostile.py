"""Any bytes in a file give a problem or an entry, never an exception."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from klog.inspect import dump, ls, verify
from tests.support import golden


def _inspect(directory: Path) -> None:
    json.dumps(verify(directory).to_dict())
    json.dumps(ls(directory))
    for file in dump(directory):
        for entry in file.entries:
            json.dumps(entry)


@pytest.mark.parametrize("case", ["txn-v1", "unclean", "compacted"])
def test_no_damage_to_any_file_raises(case: str, tmp_path: Path) -> None:
    seed = 20130208
    rng = random.Random(seed)
    directory = golden.copy_logdir(case, tmp_path)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    for round_ in range(120):
        path = rng.choice(files)
        content = path.read_bytes()
        data = bytearray(content)
        match rng.randrange(5):
            case 0:
                data = data[: rng.randrange(len(data) + 1)]
            case 1:
                data += rng.randbytes(rng.randrange(1, 200))
            case 2:
                data = bytearray(rng.randbytes(rng.randrange(300)))
            case 3:
                data[:0] = bytes(rng.randrange(1, 100))
            case _:
                for _ in range(rng.randrange(1, 30)):
                    if data:
                        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        path.write_bytes(data)
        try:
            _inspect(directory)
        except Exception as error:
            raise AssertionError(f"seed {seed}, round {round_}, {path.name}: {error!r}") from error
        path.write_bytes(content)


def test_missing_and_swapped_files(tmp_path: Path) -> None:
    directory = golden.copy_logdir("txn-v1", tmp_path) / "orders-0"
    names = sorted(path.name for path in directory.iterdir())
    for name in names:
        content = (directory / name).read_bytes()
        (directory / name).unlink()
        _inspect(directory.parent)
        (directory / name).mkdir()
        _inspect(directory.parent)
        (directory / name).rmdir()
        (directory / name).write_bytes(content)
    shutil.copy(directory / names[1], directory / names[0])
    _inspect(directory.parent)
    assert verify(directory.parent).problems
