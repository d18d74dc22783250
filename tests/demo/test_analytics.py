"""If Spark cannot run, the Spark step reports what is missing and how to install it."""

from __future__ import annotations

import pytest

from klog.demo import analytics
from klog.demo.child import python_module
from klog.demo.failure import DemoFailed


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Put a java with the fixture's version on the PATH, and hide the real one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(analytics, "find_spec", lambda name: object())

    def install(version_text: str | None, *, home: bool = False) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setenv("PATH", "/nowhere" if home else str(folder))
        if home:
            monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        if version_text is not None:
            (folder / "java").write_text(f"#!/bin/sh\necho '{version_text}' >&2\n")
            (folder / "java").chmod(0o755)

    return install


@pytest.mark.parametrize(
    "version_text", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19', "strange"]
)
def test_a_suitable_java(java, version_text):
    java(version_text)
    assert analytics.missing() is None


@pytest.mark.parametrize(
    ("version_text", "version"), [('java version "1.8.0_402"', 8), ('openjdk version "11.0.2"', 11)]
)
def test_an_old_java_is_named(java, version_text, version):
    java(version_text)
    assert f"is Java {version}" in analytics.missing()
    assert "apt install" in analytics.missing()


def test_without_java_the_text_explains_how_to_install_it(java):
    java(None)
    assert "there is none on the PATH" in analytics.missing()
    assert "apt install" in analytics.missing()


def test_java_home_decides(java):
    java('openjdk version "17.0.1"', home=True)
    assert analytics.missing() is None


def test_without_pyspark_the_text_explains_how_to_install_it(monkeypatch):
    monkeypatch.setattr(analytics, "find_spec", lambda name: None)
    assert "pip install 'klog[demo]'" in analytics.missing()


def test_a_failed_job_names_its_output_file(tmp_path, monkeypatch):
    def no_such_job(module, *arguments, stderr):
        return python_module("klog.demo.no_such_job", *arguments, stderr=stderr)

    monkeypatch.setattr(analytics, "python_module", no_such_job)
    with pytest.raises(DemoFailed, match=r"spark\.log") as failed:
        analytics.ask(tmp_path)
    assert "no_such_job" in str(failed.value)
    assert "no_such_job" in (tmp_path / "spark.log").read_text()
