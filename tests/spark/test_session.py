"""The values that recommended_conf returns, and that enable sets."""

from __future__ import annotations

from typing import Any

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
