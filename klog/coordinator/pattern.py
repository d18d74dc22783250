"""Pattern: a regular expression of a client, in RE2's syntax, matched against whole texts in linear time.

A client can send any pattern, and Python's `re` takes exponential time for some, such as (a+)+b, which no
check of the pattern finds reliably. So the pattern becomes a nondeterministic automaton, and all its states advance
together over the text: at most STATES_MAX steps for each character. What RE2 cannot match in linear time, such as
backreferences and lookarounds, is an error here as it is there. Kafka: TopicRegexResolver and ListTransactions
(KIP-1152), which use re2j.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from klog.coordinator.pattern_syntax import (
    BEGIN,
    BOUNDARY,
    END,
    Choice,
    InvalidPattern,
    Parser,
    Repeat,
    Sequence,
)

if TYPE_CHECKING:
    from klog.coordinator.pattern_syntax import Node

__all__ = ["STATES_MAX", "TOPIC_CHARACTERS", "InvalidPattern", "Pattern"]

STATES_MAX = 2000
TOPIC_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_CACHE_MAX = 10_000


class Pattern:
    """A compiled pattern. One thread at a time: a match adds to a cache. characters: those of the texts.

    Raises InvalidPattern for text that is not a pattern of RE2, or that needs more than STATES_MAX states.
    """

    def __init__(self, text: str, characters: frozenset[str] = TOPIC_CHARACTERS) -> None:
        self.text = text
        # (characters, next): take one of them. (assertion, next): go on if it holds. (None, (next, next)): a choice.
        self._states: list[tuple[frozenset[str] | int | None, tuple[int, ...]]] = [(None, ())]
        self._steps = 0
        self._start = self._compile(Parser(text, characters).parse(), 0)
        self._cache: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Does the pattern match the whole text?"""
        states = frozenset((self._start,))
        before = ""
        for char in text:
            states = self._advance(states, before, char)
            if not states:
                return False
            before = char
        return bool(self._advance(states, before, ""))

    def _advance(self, states: frozenset[int], before: str, char: str) -> frozenset[int]:
        """The states after a character; char "" for the end: state 0, if the pattern matches."""
        context = "" if not before else "w" if before in _WORD else "-"
        key = (states, context, char)
        found = self._cache.get(key)
        if found is None:
            found = self._step(states, context, char)
            if len(self._cache) < _CACHE_MAX:
                self._cache[key] = found
        return found

    def _step(self, states: frozenset[int], context: str, char: str) -> frozenset[int]:
        waiting, seen, found = list(states), set(states), set()
        while waiting:
            number = waiting.pop()
            what, following = self._states[number]
            if isinstance(what, frozenset):
                if char in what:
                    found.add(following[0])
            elif number == 0:
                if not char:
                    found.add(0)
            elif what is None or _holds(what, context, char):
                for state in following:
                    if state not in seen:
                        seen.add(state)
                        waiting.append(state)
        return frozenset(found)

    # ---- compilation, from the end ---------------------------------------------------------------------------------

    def _add(self, what: frozenset[str] | int | None, following: tuple[int, ...]) -> int:
        self._states.append((what, following))
        return len(self._states) - 1

    def _compile(self, node: Node, following: int) -> int:
        """Add the states of a node. Returns the first of them; after the last comes `following`."""
        self._steps += 1  # an empty group adds no state, and may be repeated, too
        if self._steps > STATES_MAX:
            raise InvalidPattern(f"the expression needs more than {STATES_MAX} states")
        if isinstance(node, Sequence):
            for part in reversed(node.nodes):
                following = self._compile(part, following)
            return following
        if isinstance(node, Choice):
            return self._add(None, tuple([self._compile(part, following) for part in node.nodes]))
        if isinstance(node, Repeat):
            return self._compile_repeat(node, following)
        return self._add(node, (following,))

    def _compile_repeat(self, repeat: Repeat, following: int) -> int:
        if repeat.most is None:
            loop = self._add(None, ())
            self._states[loop] = (None, (self._compile(repeat.node, loop), following))
            first = loop
        else:
            first = following
            for _ in range(repeat.most - repeat.least):
                first = self._add(None, (self._compile(repeat.node, first), following))
        for _ in range(repeat.least):
            first = self._compile(repeat.node, first)
        return first


def _holds(assertion: int, context: str, char: str) -> bool:
    """Does an assertion hold before `char`? context: "" at the beginning, "w" after a character of words, "-" after one
    of the others."""
    if assertion == BEGIN:
        return not context
    if assertion == END:
        return not char
    at_boundary = (context == "w") != (char in _WORD)
    return at_boundary == (assertion == BOUNDARY)
