"""Kafka 4.1.0's configuration keys (tests/config/kafka_keys.tsv), and the text format of such a list.

kind TAB name TAB type TAB default TAB bounds          kind: topic, broker
synonyms TAB topic key TAB broker key, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent.parent / "config" / "kafka_keys.tsv"
OURS = ("log.", "replica.", "replication.", "remote.log.manager.", "producer.id.", "quota.", "alter.log.dirs.")


@dataclass(frozen=True)
class KafkaKey:
    """One row, as text."""

    kind: str
    name: str
    type: str
    default: str
    bounds: str


def text_of(answer: Mapping[str, Any]) -> str:
    """The text of the file, made from the output of Kafka's classes."""
    lines = ["\t".join((kind, *row)) for kind in ("topic", "broker") for row in answer[kind]]
    lines += [f"synonyms\t{topic}\t{','.join(names)}" for topic, names in answer["synonyms"].items()]
    return "".join(f"{line}\n" for line in lines if "\tsasl." not in line and "\tgroup." not in line)


def kafka_keys() -> list[KafkaKey]:
    rows = [line.split("\t") for line in FILE.read_text().splitlines()]
    return [KafkaKey(*row) for row in rows if row[0] != "synonyms"]


def kafka_synonyms() -> dict[str, list[str]]:
    rows = [line.split("\t") for line in FILE.read_text().splitlines()]
    return {row[1]: row[2].split(",") for row in rows if row[0] == "synonyms"}
