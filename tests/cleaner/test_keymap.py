"""The map of keys compared with a dict. csrc/selftest/keymap.c compares its hashes with published vectors."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.cleaner import KeyMap
from tests.support.aes import encrypt, xor

SLOT = 24
SECRET = bytes(range(16))
KERNELS = ["siphash-1-3-128", "aes-128-cmac"]


def kernels() -> list[str]:
    return [name for name in KERNELS if name == KERNELS[0] or KeyMap(SLOT).kernel == name]


@pytest.mark.parametrize("items", [10, 100, 1000, 5000])
@pytest.mark.parametrize("kernel", kernels())
def test_every_key_is_found_at_its_offset(items: int, kernel: str) -> None:
    """OM1: many keys and few, in two slots each."""
    keys = [b"key-%d" % i for i in range(items)]
    found = KeyMap(2 * SLOT * items, kernel=kernel)
    assert found.put(keys, range(items)) == items
    assert found.get(keys) == list(range(items))
    assert found.get([b"another", b""]) == [-1, -1]
    assert (len(found), found.latest_offset, found.utilization) == (items, items - 1, 0.5)


def test_utilization_and_latest_offset() -> None:
    """OM2: the utilization is size / slots after each put, and 0 at first. The latest offset changes without a key,
    too.

    The map of a new round has no key of an earlier round."""
    keys = [b"key-%d" % i for i in range(10)]
    found = KeyMap(20 * SLOT)
    assert (found.utilization, found.latest_offset) == (0.0, -1)
    for number, key in enumerate(keys):
        assert found.put([key], [number]) == 1
        assert (found.utilization, found.latest_offset) == ((number + 1) / 20, number)
    found.latest_offset = 98
    assert (found.latest_offset, found.get(keys), len(found)) == (98, list(range(10)), 10)
    cleared = KeyMap(20 * SLOT)
    assert (cleared.get(keys), cleared.latest_offset, cleared.utilization) == ([-1] * 10, -1, 0.0)


def test_a_full_map_stores_nothing_more() -> None:
    """OM3: in a full map, a lookup of a missing key ends, and put() stores nothing, whether the map has the key or
    not."""
    found = KeyMap(4 * SLOT, 1.0)
    assert found.put([b"a", b"b", b"c", b"d", b"e"], range(5)) == 4
    assert found.full
    assert (found.get([b"missing"]), found.get([b"d"]), found.latest_offset) == ([-1], [3], 3)
    assert found.put([b"a"], [9]) == 0
    assert found.get([b"a"]) == [0]


@pytest.mark.parametrize(
    ("slots", "load", "keys"), [(20, 0.9, 18), (3, 0.75, 2), (1, 0.9, 0), (1, 1.0, 1), (5000, 0.9, 4500)]
)
def test_keys_are_slots_times_the_load_factor(slots: int, load: float, keys: int) -> None:
    """The number of keys is that of Kafka; it decides where rounds end."""
    found = KeyMap(slots * SLOT + 23, load)
    assert (found.slots, found.keys_max) == (slots, keys)
    names = [b"%d" % i for i in range(keys + 5)]
    assert found.put(names, range(keys + 5)) == keys
    assert found.get(names) == [*range(keys), *[-1] * 5]


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2**62)), max_size=300),
    st.integers(1, 400),
    st.sampled_from(kernels()),
)
def test_the_map_keeps_the_latest_offset_of_a_key(puts: list[tuple[bytes, int]], slots: int, kernel: str) -> None:
    model: dict[bytes, int] = {}
    fits = 0
    found = KeyMap(SLOT * slots, 1.0, kernel=kernel)
    for key, offset in puts:
        if len(model) == slots:
            break
        model[key] = offset
        fits += 1
    assert found.put([key for key, _ in puts], [offset for _, offset in puts]) == fits
    asked = sorted({key for key, _ in puts} | {b"", b"?"})
    assert found.get(asked) == [model.get(key, -1) for key in asked]
    assert len(found) == len(model)


def test_growing_many_times_keeps_every_key() -> None:
    numbers = random.Random(11)
    found, model = KeyMap(SLOT * 300_001), {}
    for start in range(0, 260_000, 1000):
        keys = [b"%d" % numbers.randrange(200_000) for _ in range(1000)]
        assert found.put(keys, range(start, start + 1000)) == 1000
        model.update(zip(keys, range(start, start + 1000), strict=True))
    names = [b"%d" % i for i in range(200_000)]
    assert found.get(names) == [model.get(name, -1) for name in names]


def test_keys_that_collide_in_an_unkeyed_hash_do_not_collide() -> None:
    """Blocks whose swap a linear checksum does not detect: no two keys collide, whatever the secret."""
    keys = [bytes(a) + bytes(b) for a in ([0] * 16, [1] * 16) for b in ([0] * n for n in range(40))]
    keys += [key + b"\x80" for key in keys]
    for _ in range(20):
        found = KeyMap(SLOT * 1000)
        found.put(keys, range(len(keys)))
        assert len(found) == len(set(keys))


def colliding_keys(secret: bytes, count: int) -> list[bytes]:
    """This many keys of two blocks that collide under CMAC with this secret: E(E(first) ^ second ^ K) is the same."""
    wanted = bytes(16)
    firsts = (number.to_bytes(16, "big") for number in range(count))
    return [first + xor(encrypt(secret, first), wanted) for first in firsts]


@pytest.mark.skipif("aes-128-cmac" not in kernels(), reason="needs: AES instructions")
def test_keys_that_collide_under_one_secret_differ_under_another() -> None:
    """An attacker who knows the secret could make a thousand keys collide: so the secret is random."""
    keys = colliding_keys(SECRET, 1000)
    known = KeyMap(SLOT * 2000, secret=SECRET, kernel=KERNELS[1])
    known.put(keys, range(1000))
    assert (len(known), known.get(keys[:1])) == (1, [999])
    for kernel in kernels():
        found = KeyMap(SLOT * 2000, kernel=kernel)
        found.put(keys, range(1000))
        assert found.get(keys) == list(range(1000))


def test_the_aes_model_matches_the_standards_vector() -> None:
    plain, key = bytes.fromhex("00112233445566778899aabbccddeeff"), bytes(range(16))
    assert encrypt(key, plain).hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="16"):
        KeyMap(SLOT, secret=b"short")
    with pytest.raises(ValueError, match="kernel"):
        KeyMap(SLOT, kernel="xxh3")
    for wrong in (0, 23, -24):
        with pytest.raises(ValueError, match="bytes"):
            KeyMap(wrong)
