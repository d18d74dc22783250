"""docs/configuration.md says what the tables say."""

from __future__ import annotations

from klog.config import BROKER_KEYS, TOPIC_KEYS
from klog.config.table import REMOVED, SYNONYMS
from tools import config_docs


def test_the_document_is_that_of_the_tables() -> None:
    assert config_docs.FILE.read_text() == config_docs.text(), "run python tools/config_docs.py"


def test_every_key_is_in_it() -> None:
    text = config_docs.text()
    for name in (*TOPIC_KEYS, *BROKER_KEYS, *SYNONYMS, *REMOVED):
        assert f"`{name}`" in text
