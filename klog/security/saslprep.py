"""Names and passwords as SASL compares them. RFC 4013 (SASLprep), by the tables of stringprep.

Kafka and its clients do not prepare text, other clients do. So klog accepts only text that preparation does not change:
then both agree.
"""

from __future__ import annotations


def is_prepared(text: str) -> bool:
    """Is the text what SASLprep makes of it, and not empty? False for text that SASLprep forbids."""
    if text.isascii():
        return text.isprintable() and bool(text)
    return prepared(text) == text


def prepared(text: str) -> str | None:
    """Return the text after SASLprep; None if it is forbidden or empty."""
    import stringprep  # with its tables of Unicode, only for text that needs them
    import unicodedata

    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter for letter in text if not stringprep.in_table_b1(letter)
    )
    found = unicodedata.normalize("NFKC", mapped)
    if not found or any(_is_prohibited(letter) for letter in found):
        return None
    if any(map(stringprep.in_table_d1, found)):  # right to left
        if any(map(stringprep.in_table_d2, found)):
            return None
        if not (stringprep.in_table_d1(found[0]) and stringprep.in_table_d1(found[-1])):
            return None
    return found


def _is_prohibited(letter: str) -> bool:
    import stringprep

    return (
        stringprep.in_table_c12(letter)
        or stringprep.in_table_c21_c22(letter)
        or stringprep.in_table_c3(letter)
        or stringprep.in_table_c4(letter)
        or stringprep.in_table_c5(letter)
        or stringprep.in_table_c6(letter)
        or stringprep.in_table_c7(letter)
        or stringprep.in_table_c8(letter)
        or stringprep.in_table_c9(letter)
        or stringprep.in_table_a1(letter)
    )
