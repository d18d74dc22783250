"""sdist, the wheel built from it, a fresh venv, and klog used there: python tools/check_package.py [FOLDER [EXTRA ...]]

Builds both as `python -m build` does, in isolation, so that only what pyproject.toml lists is present. Both stay in
FOLDER (build/package). Fails if a source is missing from the sdist, or if the wheel has other files than expected.
tools/try_install.py tests the installed klog, and once more with each EXTRA, such as spark, which pip fetches.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def tracked(*folders: str) -> set[PurePosixPath]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return {PurePosixPath(name) for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def sdist_difference(file: Path) -> list[str]:
    """Return the sources that the sdist lacks (-), and the folders that it should not have (+)."""
    with tarfile.open(file) as archive:
        names = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in archive.getnames()}
    wanted = tracked("klog", "pyspark_klog", "csrc") | {
        PurePosixPath(name) for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
    }
    folders = {name.parts[0] for name in names if len(name.parts) > 1}
    unwanted = folders - {"klog", "pyspark_klog", "csrc", "klog.egg-info"}
    return [f"+{folder}/" for folder in sorted(unwanted)] + [f"-{name}" for name in sorted(wanted - names)]


def wheel_content() -> set[PurePosixPath]:
    """Return the files of a wheel: modules, stubs, schemas, an extension for each .pyx, cffi's module for any
    Python."""
    sources = {path for path in tracked("klog", "pyspark_klog") if path.parts[:2] != ("klog", "_c")}
    modules = {path for path in sources if path.suffix in (".py", ".pyi", ".txt") or path.name == "py.typed"}
    extensions = {path.with_name(path.stem + SUFFIX) for path in sources if path.suffix == ".pyx"}
    return modules | extensions | {PurePosixPath("klog/disk/_os.abi3.so")}


def wheel_difference(file: Path) -> list[str]:
    """Return the files that the wheel should not have (+), and those that it lacks (-)."""
    with zipfile.ZipFile(file) as archive:
        names = {PurePosixPath(name) for name in archive.namelist()}
    names = {name for name in names if not name.parts[0].endswith(".dist-info")}
    wanted = wheel_content()
    return [f"+{name}" for name in sorted(names - wanted)] + [f"-{name}" for name in sorted(wanted - names)]


def try_wheel(file: Path, extra: str = "") -> None:
    """Install a wheel into a new venv, with an extra unless it is empty, and test it from another folder."""
    with tempfile.TemporaryDirectory(prefix="klog-package-") as folder:
        venv.create(f"{folder}/venv", with_pip=True)
        python = f"{folder}/venv/bin/python"
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", f"{file}[{extra}]" if extra else str(file)], check=True, cwd=folder)
        subprocess.run([python, str(ROOT / "tools" / "try_install.py")], check=True, cwd=folder)


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "package").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for stale in [*folder.glob("klog-*.tar.gz"), *folder.glob("klog-*.whl")]:
        stale.unlink()
    build = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n")
        return 1
    (sdist,), (wheel,) = folder.glob("klog-*.tar.gz"), folder.glob("klog-*.whl")
    problems = [f"{sdist.name}: {line}" for line in sdist_difference(sdist)]
    problems += [f"{wheel.name}: {line}" for line in wheel_difference(wheel)]
    for problem in problems:
        print(problem)
    if problems:
        return 1
    for extra in ("", *sys.argv[2:]):
        try_wheel(wheel, extra)
    return 0


if __name__ == "__main__":
    sys.exit(main())
