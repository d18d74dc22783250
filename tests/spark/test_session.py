"""recommended_conf, as values."""

from __future__ import annotations

from klog.spark import recommended_conf

ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def test_values() -> None:
    assert recommended_conf() == {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.buffer.size": "1048576",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.driver.extraJavaOptions": ARROW,
        "spark.executor.extraJavaOptions": ARROW,
    }


def test_given_values_win_and_java_options_are_appended() -> None:
    conf = recommended_conf({"spark.buffer.size": "65536", "spark.driver.extraJavaOptions": "-Xss4m", "spark.x": "1"})
    assert conf["spark.buffer.size"] == "65536"
    assert conf["spark.driver.extraJavaOptions"] == f"-Xss4m {ARROW}"
    assert conf["spark.x"] == "1"


def test_applying_it_twice_changes_nothing() -> None:
    assert recommended_conf(recommended_conf()) == recommended_conf()
