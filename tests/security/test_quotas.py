"""Client quotas: which applies, how long a client waits, requests and their file."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.clock import ManualClock
from klog.errors import CorruptCheckpoint
from klog.protocol import ErrorCode, messages
from klog.security import ClientQuotas, SecurityConfig
from klog.security.quota_entities import CLIENT_ID, IP, USER, Entity, applied
from klog.security.quotas import FILE
from tests.security.asking import ask
from tests.support.failing_files import FailingFiles

Alter, Describe = messages.AlterClientQuotas.Request, messages.DescribeClientQuotas.Request
PRODUCE, FETCH, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)


class Quotas:
    """Quotas in a directory, on a manual clock."""

    def __init__(self, path: Path, **properties: str) -> None:
        self.clock = ManualClock()
        values = {name.replace("_", "."): value for name, value in properties.items()}
        self.quotas = ClientQuotas(str(path), SecurityConfig.of(values), self.clock)

    def set(self, entity: dict[str, str | None], **values: float | None) -> None:
        response = ask(self.quotas.handlers(), Alter(entries=[entry(entity, **values)]))
        assert [each.error_code for each in response.entries] == [0], response

    def throttle(self, kind: Any, amount: float, user: str = "u", client: str = "c") -> int:
        return self.quotas.throttle_ms(user, client, kind, amount)


def entry(entity: dict[str, str | None], **values: float | None) -> Any:
    return Alter.Entry(
        entity=[Alter.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[Alter.Op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


@pytest.fixture
def place(tmp_path: Path) -> Quotas:
    return Quotas(tmp_path)


def test_without_a_quota_no_client_waits(place: Quotas) -> None:
    assert place.throttle(PRODUCE, 1e18) == 0
    assert place.quotas.bound("u", "c", "producer_byte_rate") is None
    assert place.quotas.fetch_bytes_max("u", "c") is None
    assert place.quotas.mutation_throttle_ms("u", "c", 1e9, strict=True) == 0
    assert place.quotas.connection_throttle_ms("10.0.0.1") == 0


def test_nw12_bytes_above_the_quota_are_paid_by_waiting(place: Quotas) -> None:
    place.set({USER: "u"}, producer_byte_rate=500)
    for _ in range(10):
        assert place.throttle(PRODUCE, 400) == 0
        place.clock.advance(1000)
    place.clock.advance(500)
    assert place.throttle(PRODUCE, 2300) == 2100
    place.clock.advance(10_000)
    assert place.throttle(PRODUCE, 0) == 0


def test_a_wait_for_bytes_may_be_longer_than_the_windows(place: Quotas) -> None:
    place.set({USER: "u"}, consumer_byte_rate=100)
    assert place.throttle(FETCH, 100_000) == 990_000
    assert place.throttle(PRODUCE, 100_000) == 0


def test_the_wait_for_request_time_is_at_most_one_window(place: Quotas) -> None:
    place.set({USER: "u"}, request_percentage=1)
    assert place.throttle(REQUEST, 0.1) == 0  # 10 % of a second, over 10 seconds
    assert place.throttle(REQUEST, 0.01) == 1000
    place.clock.advance(20_000)
    assert place.throttle(REQUEST, 0.101) == 100


def test_what_is_taken_back_does_not_count(place: Quotas) -> None:
    place.set({USER: "u"}, consumer_byte_rate=100)
    assert place.quotas.fetch_bytes_max("u", "c") == 1000
    assert place.throttle(FETCH, 1001) == 10
    place.quotas.unrecord("u", "c", "consumer_byte_rate", 1001)
    assert place.throttle(FETCH, 1000) == 0
    assert place.throttle(FETCH, 1) == 10


def test_a_changed_quota_counts_at_once(place: Quotas) -> None:
    place.set({USER: "u"}, producer_byte_rate=100)
    assert place.throttle(PRODUCE, 2000) == 10_000
    place.set({USER: "u"}, producer_byte_rate=200)
    assert place.throttle(PRODUCE, 0) == 0
    place.set({USER: "u"}, producer_byte_rate=50)
    assert place.throttle(PRODUCE, 0) == 30_000
    place.set({USER: "u"}, producer_byte_rate=None)
    assert place.throttle(PRODUCE, 1e18) == 0


ORDER: list[tuple[dict[str, str | None], str]] = [  # the strongest first; who shares its rate
    ({USER: "u", CLIENT_ID: "c"}, "one client of one user"),
    ({USER: "u", CLIENT_ID: None}, "one client of one user"),
    ({USER: "u"}, "one user"),
    ({USER: None, CLIENT_ID: "c"}, "one client of one user"),
    ({USER: None, CLIENT_ID: None}, "one client of one user"),
    ({USER: None}, "one user"),
    ({CLIENT_ID: "c"}, "one client"),
    ({CLIENT_ID: None}, "one client"),
]
EVERY: list[Entity] = [tuple(sorted(entity.items())) for entity, _ in ORDER]


def test_the_strongest_quota_applies() -> None:
    for present in itertools.product([False, True], repeat=8):
        bounds = {place: 10.0 + place for place in range(8) if present[place]}
        quotas = {EVERY[place]: {PRODUCE: bound} for place, bound in bounds.items()}
        if bounds and min(bounds) > 0:  # one of another kind hides nothing
            quotas[EVERY[0]] = {FETCH: 1.0}
        found = applied(quotas, PRODUCE, "u", "c")
        assert (found.bound if found else None) == (bounds[min(bounds)] if bounds else None), bounds


@pytest.mark.parametrize(("entity", "shared_by"), ORDER)
def test_who_shares_the_rate_of_a_quota(place: Quotas, entity: dict[str, str | None], shared_by: str) -> None:
    place.set(entity, producer_byte_rate=100)
    assert place.throttle(PRODUCE, 1000) == 0
    waits = {
        (user, client): place.throttle(PRODUCE, 10, user, client) > 0
        for user, client in (("u", "c"), ("u", "d"), ("v", "c"), ("v", "d"))
    }
    assert waits[("u", "c")]
    assert waits[("u", "d")] == (shared_by == "one user")
    assert waits[("v", "c")] == (shared_by == "one client")
    assert not waits[("v", "d")]


def test_mutations_are_counted_by_a_bucket_of_tokens(place: Quotas) -> None:
    place.set({USER: "u"}, controller_mutation_rate=2)

    def strict(count: int) -> int:
        return place.quotas.mutation_throttle_ms("u", "c", count, strict=True)

    def lenient(count: int) -> int:
        return place.throttle(MUTATION, count)

    assert strict(22) == 0 and strict(10) == 0  # the burst: 11 windows of 1 s; then nothing is left, and -10
    assert strict(1) == 5000 and strict(1) == 5000  # refused, and not counted
    assert lenient(4) == 7000
    place.clock.advance(6999)
    assert strict(1) == 1
    place.clock.advance(1)
    assert strict(1) == 0
    assert strict(1) == 500
    place.clock.advance(10**9)
    assert strict(23) == 0 and strict(1) == 500


def test_connections_of_an_address(place: Quotas) -> None:
    place.set({IP: "10.0.0.1"}, connection_creation_rate=2)
    place.set({IP: None}, connection_creation_rate=1)
    place.set({IP: "0:0:0:0:0:0:0:1"}, connection_creation_rate=3)
    for address, count in (("/10.0.0.1", 20), ("10.0.0.2", 10), ("10.0.0.3", 10), ("::1", 30)):
        assert [place.quotas.connection_throttle_ms(address) for _ in range(count)] == [0] * count
        waits = [place.quotas.connection_throttle_ms(address) for _ in range(3)]
        assert waits[0] > 0 and waits == [waits[0]] * 3  # those that are refused do not count


def test_rates_of_idle_clients_are_forgotten(place: Quotas) -> None:
    place.set({USER: None}, producer_byte_rate=100)
    for _round in range(3):
        for number in range(900):
            place.throttle(PRODUCE, 10, f"u{_round}-{number}")
        place.clock.advance(3_600_001)
    assert len(place.quotas._rates) < 1100
    assert place.throttle(PRODUCE, 2000) == 10_000


def test_many_client_ids_do_not_grow_the_memory_of_what_applies(place: Quotas) -> None:
    place.set({USER: "v"}, producer_byte_rate=100)
    for number in range(12_000):
        place.throttle(PRODUCE, 10, "u", f"c{number}")
    assert len(place.quotas._applied) <= 10_000


def described(place: Quotas, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = Describe(
        components=[Describe.Component(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )
    response = ask(place.quotas.handlers(), request)
    if response.error_code:
        assert response.entries is None and response.error_message
        return response.error_code
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }


def test_quotas_are_set_described_and_removed(place: Quotas, tmp_path: Path) -> None:
    place.set({USER: "u", CLIENT_ID: None}, producer_byte_rate=100, consumer_byte_rate=200)
    place.set({IP: "10.0.0.1"}, connection_creation_rate=5)
    place.set({USER: "u", CLIENT_ID: None}, producer_byte_rate=None, request_percentage=0.5)
    expected = {
        ((CLIENT_ID, None), (USER, "u")): {"consumer_byte_rate": 200.0, "request_percentage": 0.5},
        ((IP, "10.0.0.1"),): {"connection_creation_rate": 5.0},
    }
    assert described(place) == expected == described(Quotas(tmp_path))
    place.set({USER: "u", CLIENT_ID: None}, consumer_byte_rate=None, request_percentage=None, producer_byte_rate=None)
    place.set({IP: "10.0.0.1"}, connection_creation_rate=None)
    assert described(place) == {} == described(Quotas(tmp_path))


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, range(8)),
        ([], True, []),
        ([(USER, 0, "u")], False, [0, 1, 2]),
        ([(USER, 0, "u")], True, [2]),
        ([(USER, 1, None)], False, [3, 4, 5]),
        ([(USER, 2, None)], False, range(6)),
        ([(USER, 2, None)], True, [2, 5]),
        ([(USER, 0, "u"), (CLIENT_ID, 0, "c")], True, [0]),
        ([(USER, 2, None), (CLIENT_ID, 1, None)], False, [1, 4]),
        ([(CLIENT_ID, 2, None)], True, [6, 7]),
        ([(USER, 0, "x")], False, []),
        ([(IP, 2, None)], False, []),
    ],
)
def test_filters_find_what_they_should(place: Quotas, components: Any, strict: bool, expected: Any) -> None:
    place.quotas.change({entity: {PRODUCE: 1.0} for entity in EVERY})
    assert set(described(place, *components, strict=strict)) == {EVERY[number] for number in expected}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([(USER, 0, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 1, "u")], ErrorCode.INVALID_REQUEST),
        ([(USER, 2, "u")], ErrorCode.INVALID_REQUEST),
        ([(USER, 3, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 0, "u"), (USER, 0, "v")], ErrorCode.INVALID_REQUEST),
        ([(USER, 0, "u"), (IP, 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_filter_is_refused(place: Quotas, components: Any, code: ErrorCode) -> None:
    assert described(place, *components) == code


@pytest.mark.parametrize(
    "bad",
    [
        entry({}, producer_byte_rate=1),
        entry({"group": "g"}, producer_byte_rate=1),
        entry({USER: ""}, producer_byte_rate=1),
        entry({USER: "u", IP: "10.0.0.1"}, connection_creation_rate=1),
        entry({IP: "localhost"}, connection_creation_rate=1),
        entry({IP: "10.0.0.256"}, connection_creation_rate=1),
        entry({IP: "10.0.0.1\0"}, connection_creation_rate=1),
        entry({IP: None}, producer_byte_rate=1),
        entry({USER: "u"}, connection_creation_rate=1),
        entry({USER: "u"}, fly=1),
        entry({USER: "u"}, producer_byte_rate=0),
        entry({USER: "u"}, producer_byte_rate=-1),
        entry({USER: "u"}, producer_byte_rate=0.5),
        entry({USER: "u"}, producer_byte_rate=2.0**64),
        entry({USER: "u"}, request_percentage=math.nan),
        entry({USER: "u"}, request_percentage=math.inf),
        entry({USER: "u"}, request_percentage=-math.inf),
        entry({IP: None}, connection_creation_rate=2**31),
        Alter.Entry(
            entity=[Alter.Entity(entity_type=USER, entity_name=name) for name in ("u", "w")],
            ops=[Alter.Op(key=PRODUCE, value=1.0)],
        ),
        Alter.Entry(
            entity=[Alter.Entity(entity_type=USER, entity_name="u")],
            ops=[Alter.Op(key=PRODUCE, value=1.0), Alter.Op(key=PRODUCE, value=2.0)],
        ),
        entry({USER: "twice"}, producer_byte_rate=1),
    ],
)
def test_an_invalid_quota_is_refused_and_the_others_are_set(place: Quotas, bad: Any) -> None:
    twice = entry({USER: "twice"}, producer_byte_rate=2)
    request = Alter(entries=[bad, entry({USER: "v"}, producer_byte_rate=9), twice, entry({USER: "twice"})])
    response = ask(place.quotas.handlers(), request)
    codes = [each.error_code for each in response.entries]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert described(place) == {((USER, "v"),): {PRODUCE: 9.0}}


def test_validate_only_changes_nothing(place: Quotas, tmp_path: Path) -> None:
    request = Alter(entries=[entry({USER: "u"}, producer_byte_rate=1), entry({USER: "v"}, fly=1)], validate_only=True)
    codes = [each.error_code for each in ask(place.quotas.handlers(), request).entries]
    assert codes == [0, ErrorCode.INVALID_REQUEST]
    assert described(place) == {} and os.listdir(tmp_path) == []


def test_the_requests_need_rights_on_the_cluster(place: Quotas) -> None:
    handlers = place.quotas.handlers()
    request = Alter(entries=[entry({USER: "u"}, producer_byte_rate=1)])
    response = ask(handlers, request, denied=[("ALTER_CONFIGS", "CLUSTER")])
    assert [each.error_code for each in response.entries] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    answer = ask(handlers, Describe(components=[], strict=False), denied=[("DESCRIBE_CONFIGS", "CLUSTER")])
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and answer.entries is None
    assert described(place) == {}


def test_a_change_that_cannot_be_written_has_not_happened(tmp_path: Path) -> None:
    files = FailingFiles(1, forever=True)
    quotas = ClientQuotas(str(tmp_path), SecurityConfig(), ManualClock(), files)
    request = Alter(entries=[entry({USER: "u"}, producer_byte_rate=1), entry({}, producer_byte_rate=1)])
    codes = [each.error_code for each in ask(quotas.handlers(), request).entries]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_REQUEST]
    assert quotas.quotas() == {} and quotas.bound("u", "c", "producer_byte_rate") is None


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), max_size=40), st.integers(1, 500))
def test_a_client_that_waits_is_within_its_quota_then(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, int]], bound: int
) -> None:
    place = Quotas(tmp_path_factory.mktemp("quotas"))
    place.set({USER: "u"}, producer_byte_rate=bound)
    for wait_ms, amount in events:
        place.clock.advance(wait_ms)
        throttled = place.throttle(PRODUCE, amount)
        assert throttled >= 0
        place.clock.advance(throttled)
        if throttled > 11_000:
            assert place.throttle(PRODUCE, 0) == 0


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda quota: quota.pop("values"), "missing"),
        (lambda quota: quota.update(values={}), "values"),
        (lambda quota: quota.update(values={PRODUCE: "1"}), "values"),
        (lambda quota: quota.update(values={PRODUCE: True}), "values"),
        (lambda quota: quota.update(values={PRODUCE: 0}), "greater than 0"),
        (lambda quota: quota.update(values={PRODUCE: math.nan}), "greater than 0"),
        (lambda quota: quota.update(values={"fly": 1}), "Invalid configuration key"),
        (lambda quota: quota.update(entity={}), "empty client quota entity"),
        (lambda quota: quota.update(entity={USER: 7}), "entity"),
        (lambda quota: quota.update(entity=[USER]), "missing or has another type"),
        (lambda quota: quota.update(entity={IP: "x"}), "not a valid IP"),
    ],
)
def test_a_hostile_file_is_refused_by_name(place: Quotas, tmp_path: Path, change: Any, where: str) -> None:
    place.set({USER: "u"}, producer_byte_rate=100)
    document = json.loads((tmp_path / FILE).read_bytes())
    del document["crc32c"]
    change(document["quotas"][0])
    (tmp_path / FILE).write_text(json.dumps(document))
    with pytest.raises(CorruptCheckpoint, match=where) as caught:
        Quotas(tmp_path)
    assert caught.value.path == str(tmp_path / FILE)
