"""docs/configuration.md matches the tables of klog.config and klog.broker."""

from __future__ import annotations

from klog.broker.explain import KEYED, explain, group_keys
from klog.broker.properties import PROPERTY_NAMES, known_properties
from klog.config import BROKER_KEYS, TOPIC_KEYS
from klog.config.table import REMOVED, SYNONYMS
from klog.security import SecurityConfig
from klog.values import fields_of
from tools import config_docs


def test_the_document_matches_the_tables() -> None:
    assert config_docs.FILE.read_text() == config_docs.text(), "run python tools/config_docs.py"


def test_every_key_is_in_it() -> None:
    text = config_docs.text()
    for name in (*TOPIC_KEYS, *BROKER_KEYS, *SYNONYMS, *REMOVED):
        assert f"`{name}`" in text


def test_every_property_of_a_broker_and_of_a_group_is_in_it_and_can_be_explained() -> None:
    text = config_docs.text()
    further = {key.name for key in (*SecurityConfig.documented(), *group_keys())}
    for name in known_properties(PROPERTY_NAMES) | further:
        assert f"`{name}`" in text
        found = explain(name)
        assert found.name == name and found.meaning and explain(name.replace(".", "_")).name == name


def test_the_default_of_a_broker_is_shown_where_it_is_another_than_the_tables() -> None:
    for owner in KEYED:
        shown = {key.name for key in owner.documented()}
        for each in fields_of(owner):
            name = each.metadata["name"]
            if name is not None and name not in shown and each.default is not None:
                assert BROKER_KEYS[name].default == each.default, name
