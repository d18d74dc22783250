"""The README's first steps as printed, from a fresh clone; and the error of `import klog` if they were not followed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klog._source_tree import not_compiled
from tests.test_docs import Block, blocks, commands, matches

ROOT = Path(__file__).resolve().parent.parent
ANYTHING = "...\n"


def clone(target: Path, *folders: str) -> Path:
    """The files under version control in their current state, without build output."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs: a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def environment(home: Path) -> dict[str, str]:
    """The environment of a new user's shell: this Python as python3, and no trace of this tree."""
    names = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    tools = home / "tools"
    tools.mkdir()
    (tools / "python3").symlink_to(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
    own = {name: value for name, value in os.environ.items() if name not in names}
    return {**own, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}


def first_steps() -> list[Block]:
    text = (ROOT / "README.md").read_text()
    begin, end = text.index("## First steps"), text.index("## The demo and the tests")
    return blocks(text[begin:end])


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_first_steps_work_as_printed(tmp_path: Path) -> None:
    """One shell for all commands, as a user would paste them; each command's output follows a separate line."""
    tree = clone(tmp_path / "klog")
    script, expected = [], []
    for block in first_steps():
        if block.language == "python":
            name = block.text.split()[1]
            script.append(f"cat > {name} <<'END_OF_FILE'\n{block.text}END_OF_FILE")
            continue
        for command, printed in commands(block.text):
            script.append(f"echo '$ {command}'; {command}")
            expected.append(f"$ {command}\n{printed or ANYTHING}")
    assert len(expected) == 6, expected
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=tree, env=environment(tmp_path), capture_output=True, text=True
    )
    printed = done.stdout.replace("$ python writer.py\n", "$ python writer.py\nKilled\n")
    assert matches("".join(expected), printed), f"{done.stdout}\n{done.stderr}"
    assert "Killed" in done.stderr  # bash reports the killed job here; a terminal shows both together


@pytest.mark.parametrize("arguments", [("-c", "import klog"), ("-m", "klog", "ls"), ("-c", "import klog.record")])
def test_an_import_from_an_unbuilt_tree_says_what_to_do(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    tree = clone(tmp_path, "klog", "setup.py")
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environment(tmp_path), capture_output=True, text=True
    )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: klog."), done.stderr
    for part in (str(tree), "source tree", "run from another folder", "`make build`"):
        assert part in last, last


def test_other_missing_modules_do_not_mention_compiling() -> None:
    assert not_compiled("klog.locks") is not None
    assert [not_compiled(name) for name in ("klog.clock", "klog.nothing", "klog", "lz4.block")] == [None] * 4
