"""The result of an examination. Plain values that can be written as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from klog.shown import display, note
from klog.values import asdict, dataclass

Severity = Literal["ok", "warning", "critical"]
ORDER: Sequence[Severity] = ("critical", "warning", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of one subject: a log, a log.dir, a device, the process or the machine.

    value: what was measured; threshold: the one that was exceeded, or, if none was, that of the next severity;
    None for checks without numbers. next_step: empty for "ok".
    """

    severity: Severity
    check: str
    subject: str
    message: str
    value: float | None
    threshold: float | None
    next_step: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """findings: the worst first, also by iteration. unknown: {check: why it was not made}."""

    findings: Sequence[Finding]
    unknown: Mapping[str, str]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def severity(self) -> Severity:
        """The worst severity of all findings."""
        return self.findings[0].severity if self.findings else "ok"

    def _repr_html_(self) -> str:
        """Return the findings as a table, for a notebook."""
        heads = ("severity", "check", "subject", "message", "next step")
        return display(
            f"health: {self.severity}",
            heads,
            lambda: [(each.severity, each.check, each.subject, each.message, each.next_step) for each in self.findings],
        ) + "".join(note(f"{check}: not checked: {why}") for check, why in self.unknown.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that can be written as JSON."""
        return {"severity": self.severity, **asdict(self)}
