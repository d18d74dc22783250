r"""Pattern: regular expressions of clients, matched in time that grows with pattern times text, as Google's RE2 does.

    pattern  := branch ("|" branch)*
    branch   := (atom ("*" | "+" | "?" | "{n}" | "{n,}" | "{n,m}")* "?"?)*
    atom     := character | "." | "[" class "]" | "(" pattern ")" | "(?:" pattern ")" | "^" | "$" | "\" escape
    escape   := d D w W s S | t n r f v a | x41 | x{1F600} | A z | a punctuation character
    flags    := "(?i)" or "(?s)" or both at the beginning: ignore case; "." matches a line end, too

Python's `re` may need exponential time, so a client could stop the broker by a pattern. The pattern becomes a program
for a set of states (Thompson); it has no back references and no look-around, like RE2. Named classes such as [:alpha:]
and \pL, which RE2 has, are refused. Kafka: ListTransactions 2 (KIP-1152) takes re2j patterns.
"""

from __future__ import annotations

from typing import Final

_PROGRAM_MAX: Final = 4000  # instructions; RE2 has a limit of memory
_STEPS_MAX: Final = 20_000  # of the compiler: a repetition of nothing has no instructions
_REPEAT_MAX: Final = 1000
_DEPTH_MAX: Final = 50
_CHARACTER_MAX: Final = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
_CLASSES: Final[dict[str, Ranges]] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 10), (12, 13), (32, 32)),
}
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7}
_ANY: Final[Ranges] = ((0, _CHARACTER_MAX),)
_ANY_IN_LINE: Final[Ranges] = ((0, 9), (11, _CHARACTER_MAX))

# Instructions: (op, x, y). A split continues at x and y, a jump at x; a character of `ranges` passes to the next one.
_CHARACTER, _SPLIT, _JUMP, _BEGIN, _END, _MATCH = range(6)
Instruction = tuple[int, int, int]
# A tree: a node is a tuple whose first entry is its kind.
Node = tuple[object, ...]


class Pattern:
    """A compiled pattern. Raises ValueError for one that is invalid, unknown here or too large."""

    def __init__(self, text: str) -> None:
        compiler = _Compiler()
        compiler.add(_Parser(text).parse())
        compiler.emit(_MATCH)
        self._program = compiler.program
        self._ranges = compiler.ranges

    def matches(self, text: str) -> bool:
        """Does the pattern match the whole text?"""
        states = self._reached([0], True, not text)
        for index, character in enumerate(text):
            code = ord(character)
            passed = [
                state + 1
                for state in states
                if self._program[state][0] == _CHARACTER and _holds(self._ranges[self._program[state][1]], code)
            ]
            if not passed:
                return False
            states = self._reached(passed, False, index + 1 == len(text))
        return any(self._program[state][0] == _MATCH for state in states)

    def _reached(self, states: list[int], at_begin: bool, at_end: bool) -> list[int]:
        """The states that take a character or match, from these without a character."""
        seen: set[int] = set()
        found = []
        waiting = states
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            op, x, y = self._program[state]
            if op == _SPLIT:
                waiting += (x, y)
            elif op == _JUMP:
                waiting.append(x)
            elif op in (_BEGIN, _END):
                if at_begin if op == _BEGIN else at_end:
                    waiting.append(state + 1)
            else:
                found.append(state)
        return found


def _holds(ranges: Ranges, code: int) -> bool:
    return any(low <= code <= high for low, high in ranges)


def _negated(ranges: Ranges) -> Ranges:
    found = []
    at = 0
    for low, high in sorted(ranges):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    if at <= _CHARACTER_MAX:
        found.append((at, _CHARACTER_MAX))
    return tuple(found)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignore_case = False
        self._dot = _ANY_IN_LINE

    def parse(self) -> Node:
        for flags in ("(?i)", "(?s)", "(?is)", "(?si)"):
            if self._text.startswith(flags):
                self._at = len(flags)
                self._ignore_case, self._dot = "i" in flags, _ANY if "s" in flags else _ANY_IN_LINE
        node = self._choice()
        if self._at < len(self._text):
            raise self._error("an unmatched )")
        return node

    def _error(self, what: str) -> ValueError:
        return ValueError(f"pattern {self._text[:100]!r}, character {self._at}: {what}")

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise self._error("the end, where more is expected")
        self._at += 1
        return character

    def _choice(self) -> Node:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else ("choice", branches)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return ("sequence", parts)

    def _repeated(self, atom: Node) -> Node:
        while self._peek() and self._peek() in "*+?{":
            bounds = self._bounds()
            if bounds is None:
                break
            low, high = bounds
            if self._peek() == "?":  # reluctant: the same for a match of the whole text
                self._at += 1
            atom = ("repeat", atom, low, high)
        return atom

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often; None if a { is a plain character, as in RE2."""
        character = self._peek()
        if character != "{":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not (low.isascii() and low.isdigit()) or not (not high or (high.isascii() and high.isdigit())):
            return None
        self._at = end + 1
        if len(low) > 4 or len(high) > 4:
            raise self._error("a repetition of more than 1000")
        least = int(low)
        most = int(high) if high else None if comma else least
        if max(least, most or 0) > _REPEAT_MAX or (most is not None and most < least):
            raise self._error("invalid numbers of repetitions")
        return least, most

    def _atom(self) -> Node:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return ("set", self._class())
        if character == ".":
            return ("set", self._dot)
        if character in "^$":
            return ("begin",) if character == "^" else ("end",)
        if character in "*+?":
            raise self._error(f"{character} repeats nothing")
        if character == "\\":
            return self._escape()
        return ("set", self._folded(((ord(character), ord(character)),)))

    def _folded(self, ranges: Ranges) -> Ranges:
        return _both_cases(ranges) if self._ignore_case else ranges

    def _group(self) -> Node:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise self._error("(? of a kind that is not supported")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._error("too many nested groups")
        node = self._choice()
        self._depth -= 1
        if self._peek() != ")":
            raise self._error("a missing )")
        self._at += 1
        return node

    def _escape(self) -> Node:
        if self._peek() in ("A", "z"):
            return ("begin",) if self._take() == "A" else ("end",)
        return ("set", self._folded(self._escaped()))

    def _escaped(self) -> Ranges:
        character = self._take()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in "DWS":
            return _negated(_CLASSES[character.lower()])
        if character in _CONTROLS:
            code = _CONTROLS[character]
        elif character == "x":
            code = self._hexadecimal()
        elif character.isalnum():
            raise self._error(f"the unknown escape \\{character}")
        else:
            code = ord(character)
        return ((code, code),)

    def _hexadecimal(self) -> int:
        if self._peek() == "{":
            end = self._text.find("}", self._at)
            digits, after = self._text[self._at + 1 : end] if end > 0 else "", end + 1
        else:
            digits, after = self._text[self._at : self._at + 2], self._at + 2
            digits = digits if len(digits) == 2 else ""
        if not 0 < len(digits) <= 6 or not set(digits) <= set("0123456789abcdefABCDEF"):
            raise self._error("two hexadecimal digits expected, or several in { }")
        self._at = after
        if int(digits, 16) > _CHARACTER_MAX:
            raise self._error(f"no character {digits}")
        return int(digits, 16)

    def _class(self) -> Ranges:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if self._text.startswith("[:", self._at):
                raise self._error("named classes are not supported")
            low = self._member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", "") and _is_one(low):
                self._at += 1
                high = self._member()
                if not _is_one(high) or high[0][0] < low[0][0]:
                    raise self._error("an invalid range")
                low = ((low[0][0], high[0][0]),)
            ranges += low
        self._at += 1
        found = self._folded(tuple(ranges))
        return _negated(found) if negated else found

    def _member(self) -> Ranges:
        character = self._take()
        return self._escaped() if character == "\\" else ((ord(character), ord(character)),)


def _is_one(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


class _Compiler:
    def __init__(self) -> None:
        self.program: list[Instruction] = []
        self.ranges: list[Ranges] = []
        self._steps = 0

    def emit(self, op: int, x: int = 0, y: int = 0) -> int:
        if len(self.program) >= _PROGRAM_MAX:
            raise ValueError("the pattern is too large")
        self.program.append((op, x, y))
        return len(self.program) - 1

    def add(self, node: Node) -> None:
        """Append the instructions of a tree."""
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise ValueError("the pattern is too large")
        kind, *parts = node
        match parts:
            case [] if kind in ("begin", "end"):
                self.emit(_BEGIN if kind == "begin" else _END)
            case [tuple(ranges)]:
                self.ranges.append(ranges)
                self.emit(_CHARACTER, len(self.ranges) - 1)
            case [list(nodes)] if kind == "sequence":
                for each in nodes:
                    self.add(each)
            case [list(nodes)]:
                self._choice(nodes)
            case [tuple(repeated), int(low), high]:
                self._repeat(repeated, low, high if isinstance(high, int) else None)

    def _choice(self, branches: list[Node]) -> None:
        ends = []
        for branch in branches[:-1]:
            split = self.emit(_SPLIT)
            self.add(branch)
            ends.append(self.emit(_JUMP))
            self.program[split] = _SPLIT, split + 1, len(self.program)
        self.add(branches[-1])
        for end in ends:
            self.program[end] = _JUMP, len(self.program), 0

    def _repeat(self, node: Node, low: int, high: int | None) -> None:
        for _ in range(low):
            self.add(node)
        if high is None:
            split = self.emit(_SPLIT)
            self.add(node)
            self.emit(_JUMP, split)
            self.program[split] = _SPLIT, split + 1, len(self.program)
            return
        splits = []
        for _ in range(high - low):
            splits.append(self.emit(_SPLIT))
            self.add(node)
        for split in splits:
            self.program[split] = _SPLIT, split + 1, len(self.program)


def _both_cases(ranges: Ranges) -> Ranges:
    """With the other case of each ASCII letter."""
    found = list(ranges)
    for low, high in ranges:
        for first, last, other in ((65, 90, 32), (97, 122, -32)):
            if max(low, first) <= min(high, last):
                found.append((max(low, first) + other, min(high, last) + other))
    return tuple(found)
