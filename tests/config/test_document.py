"""docs/configuration.md matches the config tables."""

from __future__ import annotations

from klog.config import BROKER_KEYS, TOPIC_KEYS
from klog.config.table import REMOVED, SYNONYMS
from tools import config_docs


def test_the_document_matches_the_tables() -> None:
    assert config_docs.FILE.read_text() == config_docs.text(), "run python tools/config_docs.py"


def test_every_key_is_in_it() -> None:
    text = config_docs.text()
    for name in (*TOPIC_KEYS, *BROKER_KEYS, *SYNONYMS, *REMOVED):
        assert f"`{name}`" in text
