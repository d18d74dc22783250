"""Random changes of valid bytes."""

from __future__ import annotations

from hypothesis import strategies as st

Step = tuple[int, str, int]  # position, action, byte

VARINT_HUGE = b"\xfe\xff\xff\xff\x0f"  # 2^31-1 as zigzag varint
INT32_HUGE = b"\x7f\xff\xff\xff"


def flip(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]


def mutations(steps_max: int = 4) -> st.SearchStrategy[list[Step]]:
    kinds = st.sampled_from(("set", "insert", "delete", "huge"))
    return st.lists(st.tuples(st.integers(0, 2**16), kinds, st.integers(0, 255)), min_size=1, max_size=steps_max)


def mutate(data: bytes, steps: list[Step], *, huge: bytes, replaces: int) -> bytes:
    """Apply the steps. Each sets, inserts or deletes a byte, or overwrites bytes with `huge`, the largest length of the
    format."""
    for where, kind, byte in steps:
        at = where % (len(data) + 1)
        if kind == "set":
            data = data[:at] + bytes((byte,)) + data[at + 1 :]
        elif kind == "insert":
            data = data[:at] + bytes((byte,)) + data[at:]
        elif kind == "delete":
            data = data[:at] + data[at + 1 :]
        else:
            data = data[:at] + huge + data[at + replaces :]
    return data
