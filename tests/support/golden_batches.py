"""The directories under tests/golden, written by Apache Kafka, and the records that Kafka reads in them."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"


@dataclass(frozen=True)
class GoldenPartition:
    case: str
    manifest: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.case}-{self.manifest['topic']}-{self.manifest['partition']}"

    @property
    def directory(self) -> Path:
        return GOLDEN / self.case / "logdir" / f"{self.manifest['topic']}-{self.manifest['partition']}"

    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def records(self) -> list[dict[str, Any]]:
        """The manifest's lines, with keys and values as bytes."""
        if self.manifest["records_file"] is None:
            return []
        with gzip.open(GOLDEN / self.case / self.manifest["records_file"], "rt") as lines:
            records = [json.loads(line) for line in lines]
        for record in records:
            record["k"], record["v"] = plain(record["k"]), plain(record["v"])
            record["h"] = [(name, plain(value)) for name, value in record["h"]]
        return records


def plain(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def partitions() -> list[GoldenPartition]:
    return [
        GoldenPartition(manifest.parent.name, partition)
        for manifest in sorted(GOLDEN.glob("*/manifest.json"))
        for partition in json.loads(manifest.read_text())["partitions"]
    ]
