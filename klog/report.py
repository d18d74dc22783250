"""The result of verify: problems, and how much was checked. Plain values that can be written as JSON."""

from __future__ import annotations

from typing import Any, Literal

from klog.errors import CorruptData
from klog.shown import first_few
from klog.values import asdict, dataclass, field

Kind = Literal[
    "crc",
    "length",
    "offset_order",
    "epoch",
    "index",
    "timeindex",
    "txnindex",
    "snapshot",
    "checkpoint",
    "leftover",
    "gap",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken invariant. position: byte in the file; offset: of the record; None where there is none."""

    path: str
    position: int | None
    offset: int | None
    message: str
    kind: str

    def __str__(self) -> str:
        where = "".join(
            f", {name} {value}"
            for name, value in (("position", self.position), ("offset", self.offset))
            if value is not None
        )
        return f"{self.path}{where}: {self.kind}: {self.message}"


@dataclass(slots=True, repr=False)
class Report:
    """problems: in the order of the files; without any the directory is intact. The counts are of what was read.

    notes: what an intact directory may also contain, such as files of deleted segments, which the next start removes.
    """

    path: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0

    def __repr__(self) -> str:
        found = f"problems=[{first_few(self.problems)}], notes=[{first_few(self.notes)}]"
        return (
            f"Report(path={self.path!r}, {found}, partitions={self.partitions}, segments={self.segments}, "
            f"batches={self.batches}, records={self.records}, bytes={self.bytes})"
        )

    @property
    def ok(self) -> bool:
        """True if there is no problem."""
        return not self.problems

    def add(
        self, kind: Kind, path: str, message: str, *, position: int | None = None, offset: int | None = None
    ) -> None:
        """Add a problem."""
        self.problems.append(Problem(path, position, offset, message, kind))

    def note(self, path: str, message: str, *, kind: Kind = "leftover", offset: int | None = None) -> None:
        """Add a note: something that is not a problem."""
        self.notes.append(Problem(path, None, offset, message, kind))

    def add_error(self, error: CorruptData, path: str) -> None:
        """Add an error of a parser."""
        self.problems.append(Problem(error.path or path, error.position, error.offset, error.reason, error.kind))

    def include(self, other: Report) -> None:
        """Add what a report of a part has, except its partitions."""
        self.problems += other.problems
        self.notes += other.notes
        self.segments += other.segments
        self.batches += other.batches
        self.records += other.records
        self.bytes += other.bytes

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that can be written as JSON."""
        return {"ok": self.ok, **asdict(self)}
