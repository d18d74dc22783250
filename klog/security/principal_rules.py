"""Names of principals from the subjects of client certificates: ssl.principal.mapping.rules.

    rules := rule ("," rule)*
    rule  := "DEFAULT" | "RULE:" pattern "/" replacement "/" ["L" | "U"]

The first rule whose pattern matches the whole subject decides: `$1` in its replacement is the first group of the
pattern, L and U make the name lower or upper case. DEFAULT is the subject as it is. A client whose subject no rule
matches is refused. Kafka: SslPrincipalMapper.
"""

from __future__ import annotations

import re
from typing import Final

from klog.errors import InvalidConfig
from klog.security.config import RULES

_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(rf"(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?)")
_SPLIT: Final = re.compile(rf"\s*((?:DEFAULT|RULE:{_PART}/{_PART}/[LU]?)?)\s*(?:,|$)")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|([$\\])", re.DOTALL)


class PrincipalRules:
    """Any thread. Raises InvalidConfig, naming the property."""

    def __init__(self, text: str, name: str = RULES) -> None:
        self._text = text
        self._rules: list[tuple[re.Pattern[str] | None, str, str]] = []
        at = 0
        while at < len(text):
            found = _SPLIT.match(text, at)
            if found is None:
                raise InvalidConfig(
                    f"{name}={text!r}: DEFAULT or RULE:pattern/replacement/[LU] expected at {text[at:]!r}"
                )
            at = found.end()
            if found[1]:
                self._add(name, found[1])

    def _add(self, name: str, rule: str) -> None:
        parsed = _RULE.fullmatch(rule)
        assert parsed is not None
        _, pattern, replacement, case = parsed.groups()
        if pattern is None:
            self._rules.append((None, "", ""))
            return
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise InvalidConfig(f"{name}: the pattern {pattern!r} is invalid: {error}") from None
        if any(each[3] for each in _REFERENCE.finditer(replacement)):
            raise InvalidConfig(f"{name}: the replacement {replacement!r} has a $ without a number; write \\$")
        self._rules.append((compiled, replacement, case))

    def __repr__(self) -> str:
        return f"PrincipalRules({self._text!r})"

    def __call__(self, subject: str) -> str:
        """The name of the principal with this subject. Raises ValueError if no rule matches."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return subject
            if pattern.fullmatch(subject):
                name = pattern.sub(lambda found: _expanded(replacement, found), subject)  # noqa: B023
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        raise ValueError(f"no rule of {RULES} matches {subject!r}")


def _expanded(replacement: str, found: re.Match[str]) -> str:
    """The replacement with the groups of a match. `$12` is group 1 and a 2 where there are no twelve, and as it is
    where there is no group 1, as in Java."""

    def part(reference: re.Match[str]) -> str:
        literal, digits, _ = reference.groups()
        if literal is not None:
            return str(literal)
        for size in range(len(digits), 0, -1):
            if int(digits[:size]) <= (found.re.groups):
                return (found[int(digits[:size])] or "") + digits[size:]
        return f"${digits}"

    return _REFERENCE.sub(part, replacement)
