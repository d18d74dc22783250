"""Argument checks of the public functions: each argument that is used as a key, a path or a number is checked here and
returned as exactly one type. A wrong type raises TypeError, a wrong value ValueError; both name the argument.

A hot call checks the exact type itself and calls this module only for other types:

    if type(offset) is not int:
        offset = whole("offset", offset)
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
INT_MAX, LONG_MIN, LONG_MAX = 2**31 - 1, -(2**63), 2**63 - 1
SECONDS_MAX = 2**33  # fits into 64 bits as nanoseconds: about 272 years


def whole(name: str, value: Any, low: int = LONG_MIN, high: int = LONG_MAX, hint: str = "") -> int:
    """An int; numpy integers are accepted, a bool is not."""
    if isinstance(value, bool):
        raise wrong_type(name, value, "an int", hint)
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong_type(name, value, "an int", hint or ("; use int()" if isinstance(value, str) else "")) from None
    if not low <= number <= high:
        raise ValueError(f"{name}={shown(number)}: {_bounds(low, high)}{hint}")
    return number


def _bounds(low: int, high: int) -> str:
    if high < LONG_MAX:
        return f"from {low} to {high}"
    return f"an int of 64 bits, of {low} or more" if low > LONG_MIN else "an int of 64 bits"


def optional_whole(name: str, value: Any, low: int = LONG_MIN, high: int = LONG_MAX) -> int | None:
    """An int, or None."""
    return None if value is None else whole(name, value, low, high)


def wholes(name: str, value: Any, low: int = LONG_MIN) -> list[int]:
    """An iterable of int."""
    return [whole(f"{name}[{number}]", each, low) for number, each in enumerate(items(name, value, "a list of int"))]


def seconds(name: str, value: Any) -> float | None:
    """A time to wait in seconds, not negative; None means for ever."""
    return None if value is None else some_seconds(name, value, "; None waits for ever")


def some_seconds(name: str, value: Any, hint: str = "") -> float:
    """A time in seconds, not negative."""
    if isinstance(value, bool | str | bytes) or is_numpy_bool(value) or not hasattr(type(value), "__float__"):
        raise wrong_type(name, value, "seconds as int or float", hint)
    try:
        number = float(value)
    except TypeError:  # an array of several numbers
        raise wrong_type(name, value, "seconds as int or float", hint) from None
    except (OverflowError, ValueError):  # an int of hundreds of digits, a signaling NaN
        number = -1.0
    if not 0 <= number <= SECONDS_MAX:
        raise ValueError(f"{name}={shown(value)}: seconds, from 0 to {SECONDS_MAX}{hint}")
    return number


def flag(name: str, value: Any) -> bool:
    """True or False, also those of numpy; no other type."""
    if value is True or value is False:
        return bool(value)
    if is_numpy_bool(value):
        return bool(value)
    raise wrong_type(name, value, "True or False")


def is_numpy_bool(value: object) -> bool:
    """Is the value a numpy bool? Does not import numpy. The class was named bool_ before numpy 2."""
    return type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")


def optional_flag(name: str, value: Any) -> bool | None:
    """True, False or None."""
    return None if value is None else flag(name, value)


def text(name: str, value: Any, hint: str = "") -> str:
    """A str that can be written as UTF-8."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "a str", hint)
    plain = str.__str__(value)
    try:
        plain.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}={plain!r}: a lone surrogate cannot be written as UTF-8{hint}") from None
    return plain


def texts(name: str, value: Any) -> list[str]:
    """An iterable of str, also the keys of a mapping; not a single str."""
    hint = f"; write [{value!r}]" if isinstance(value, str | bytes) else ""
    return [text(f"{name}[{number}]", each) for number, each in enumerate(items(name, value, "a list of str", hint))]


def items(name: str, value: Any, expected: str, hint: str = "") -> Iterator[Any]:
    """The items of an iterable; not those of text, of bytes, or of an array without a dimension."""
    if not has_items(value):
        raise wrong_type(name, value, expected, hint)
    return iter(value)


def has_items(value: Any) -> bool:
    """Is it an iterable, and not text, bytes, or an array without a dimension?"""
    single = isinstance(value, str | bytes | bytearray | memoryview) or getattr(value, "ndim", 1) == 0
    return not single and isinstance(value, Iterable)


def log_dirs(name: str, value: Any, hint: str = "") -> list[str]:
    """The path of a log.dir, or an iterable of them, as a list. A mapping is not accepted. hint: of a TypeError."""
    if isinstance(value, str | bytes | os.PathLike):
        return [path(name, value)]
    expected = "a log.dir, as str or pathlib.Path, or a list of them,"
    if isinstance(value, Mapping):
        raise wrong_type(name, value, expected, hint)
    found = [path(f"{name}[{number}]", each) for number, each in enumerate(items(name, value, expected, hint))]
    if not found:
        raise ValueError(f"{name}=[]: no log.dir given: name one or more")
    return found


def path(name: str, value: Any) -> str:
    """A path as str. A file descriptor is not accepted: it would be closed after use."""
    if not isinstance(value, str | bytes | os.PathLike):
        raise wrong_type(name, value, "a path, as str or pathlib.Path,")
    try:
        found = str.__str__(os.fsdecode(value))
    except TypeError:  # its __fspath__ returns neither
        raise wrong_type(name, value, "a path, as str or pathlib.Path,") from None
    if not found or "\0" in found:
        raise ValueError(f"{name}={shown(value)}: a path must not be empty or contain NUL")
    try:
        os.fsencode(found)
    except UnicodeEncodeError as error:
        why = "a lone surrogate is in no file name"
        if error.encoding != "utf-8":
            why = f"file names are {error.encoding} in this process; set LC_ALL=C.UTF-8 or PYTHONUTF8=1 for it"
        raise ValueError(f"{name}={shown(value)}: {why}") from None
    return found


def file_name(name: str, value: Any) -> str:
    """The name of a file without a directory."""
    found = text(name, value)
    if found in ("", ".", "..") or "/" in found or "\0" in found:
        raise ValueError(f"{name}={found!r}: a file name without a directory expected")
    return found


def chosen(name: str, value: Any, choices: Sequence[str], hint: str = "") -> None:
    """Check that the value is one of these words."""
    if not isinstance(value, str):
        raise wrong_type(name, value, f"one of {_listed(choices)}", hint)
    if value not in choices:
        raise ValueError(f"{name}={value!r}: choose {_listed(choices)}{hint}")


def instance(name: str, value: Any, kind: type[T], expected: str) -> T:
    """An object of this class."""
    if not isinstance(value, kind):
        raise wrong_type(name, value, expected)
    return value


def having(name: str, value: T, methods: Sequence[str], expected: str) -> T:
    """An object with these methods."""
    for method in methods:
        if not callable(getattr(value, method, None)):
            raise wrong_type(name, value, expected)
    return value


def function(name: str, value: Any) -> None:
    """Check that the value is callable or None."""
    if value is not None and not callable(value):
        raise wrong_type(name, value, "a function, or None,")


def wrong_type(name: str, value: object, expected: str, hint: str = "") -> TypeError:
    """The TypeError for a value of another type."""
    return TypeError(f"{name}={shown(value)}: {expected} expected, not {type(value).__name__}{hint}")


def shown(value: object) -> str:
    """A value as an error shows it: at most 80 characters."""
    try:
        text = repr(value)
    except Exception:  # its own, or that of an int of thousands of digits: sys.set_int_max_str_digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _listed(choices: Sequence[str]) -> str:
    return f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
