"""The values that recommended_conf returns, and that enable sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klog.spark import enable, recommended_conf

ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def test_values() -> None:
    assert recommended_conf() == {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.buffer.size": "1048576",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.driver.extraJavaOptions": ARROW,
        "spark.executor.extraJavaOptions": ARROW,
    }


def test_given_values_take_precedence_and_java_options_are_appended() -> None:
    conf = recommended_conf({"spark.buffer.size": "65536", "spark.driver.extraJavaOptions": "-Xss4m", "spark.x": "1"})
    assert conf["spark.buffer.size"] == "65536"
    assert conf["spark.driver.extraJavaOptions"] == f"-Xss4m {ARROW}"
    assert conf["spark.x"] == "1"


def test_applying_it_twice_changes_nothing() -> None:
    assert recommended_conf(recommended_conf()) == recommended_conf()


SCRIPT = """
import sys, klog.spark
from klog.spark import session
class Builder(dict):
    def config(self, name, value):
        self[name] = value
        return self
    def getOrCreate(self):
        return self
class Session:
    builder = Builder()
    getActiveSession = staticmethod(lambda: None)
sys.modules["klog.spark.session"]._pyspark = lambda: Session
made = session()
print(made["spark.driver.extraJavaOptions"], made["spark.executor.extraJavaOptions"], sep="|")
"""
DRIVER, EXECUTOR = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"


@pytest.mark.parametrize(
    ("submit", "driver", "executor"),
    [
        ("pyspark-shell", "-Dd=file", "-De=file -Xss4m"),
        (f"--conf '{DRIVER}=-Da=1 -Db=2' -c {EXECUTOR}=-Dc=3 pyspark-shell", "-Da=1 -Db=2", "-Dc=3"),
        ("--driver-java-options '-Dd=argument' --jars a.jar pyspark-shell", "-Dd=argument", "-De=file -Xss4m"),
        ("--properties-file {other} pyspark-shell", "-Dd=other", ""),
        (f"--conf {DRIVER}='{ARROW} -Dd=1' pyspark-shell", None, "-De=file -Xss4m"),
    ],
)
def test_java_options_that_spark_has_already_are_kept(
    tmp_path: Path, submit: str, driver: str | None, executor: str
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"# mine\n{DRIVER}  -Dd=file\n{EXECUTOR}=-De=file -Xss4m\n")
    (tmp_path / "other").write_text(f"{DRIVER} -Dd=other\n")
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": submit.format(other=tmp_path / "other"),
    }
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    expected = [f"{ARROW} -Dd=1" if driver is None else f"{driver} {ARROW}", f"{executor} {ARROW}".strip()]
    assert done.stdout.strip().split("|") == expected


@pytest.mark.spark
@pytest.mark.deep
def test_java_options_reach_the_driver_and_the_session(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"{DRIVER} -Dmine=1\n{EXECUTOR} -Dmine=2\n")
    script = f"""
import klog.spark
spark = klog.spark.session({{"spark.master": "local[1]", "spark.ui.enabled": "false"}})
get = spark.sparkContext._jvm.System.getProperty
print(get("mine"), get("arrow.enable_unsafe_memory_access"), spark.conf.get("{EXECUTOR}"), sep="|")
spark.stop()
print(klog.spark.session({{"spark.master": "local[1]", "spark.ui.enabled": "false"}}).conf.get("{EXECUTOR}"))
"""
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"1|true|-Dmine=2 {ARROW}", f"-Dmine=2 {ARROW}"], done.stderr


class Session:
    """A SparkSession with these settings, of which only those of spark.sql can be changed."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.conf: Any = self

    def isModifiable(self, name: str) -> bool:  # noqa: N802  Spark's name
        return name.startswith("spark.sql.")

    def set(self, name: str, value: str) -> None:
        assert self.isModifiable(name)
        self.settings[name] = value

    def get(self, name: str, default: str | None) -> str | None:
        return self.settings.get(name, default)


def test_enable_sets_what_it_can_and_returns_the_names_of_the_rest() -> None:
    session: Any = Session(**{"spark.buffer.size": str(1 << 20)})
    late = enable(session)
    assert late == [
        "spark.driver.extraJavaOptions",
        "spark.executor.extraJavaOptions",
        "spark.python.unix.domain.socket.enabled",
    ]
    assert session.settings["spark.sql.python.filterPushdown.enabled"] == "true"
    whole: Any = Session(**{**recommended_conf(), "spark.sql.python.filterPushdown.enabled": "false"})
    assert enable(whole) == [] and whole.settings == recommended_conf()
