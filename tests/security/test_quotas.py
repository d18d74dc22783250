"""Client quotas: which quota applies, how long a client waits, the requests, and the file of quotas."""

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
    """Quotas stored in a directory, with a manual clock."""

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
def harness(tmp_path: Path) -> Quotas:
    return Quotas(tmp_path)


def test_without_a_quota_no_client_waits(harness: Quotas) -> None:
    assert harness.throttle(PRODUCE, 1e18) == 0
    assert harness.quotas.bound("u", "c", "producer_byte_rate") is None
    assert harness.quotas.fetch_bytes_max("u", "c") is None
    assert harness.quotas.mutation_throttle_ms("u", "c", 1e9, strict=True) == 0
    assert harness.quotas.connection_throttle_ms("10.0.0.1") == 0


def test_nw12_a_client_waits_for_bytes_above_the_quota(harness: Quotas) -> None:
    harness.set({USER: "u"}, producer_byte_rate=500)
    for _ in range(10):
        assert harness.throttle(PRODUCE, 400) == 0
        harness.clock.advance(1000)
    harness.clock.advance(500)
    assert harness.throttle(PRODUCE, 2300) == 2100
    harness.clock.advance(10_000)
    assert harness.throttle(PRODUCE, 0) == 0


def test_a_wait_for_bytes_may_be_longer_than_the_windows(harness: Quotas) -> None:
    harness.set({USER: "u"}, consumer_byte_rate=100)
    assert harness.throttle(FETCH, 100_000) == 990_000
    assert harness.throttle(PRODUCE, 100_000) == 0


def test_the_wait_for_request_time_is_at_most_one_window(harness: Quotas) -> None:
    harness.set({USER: "u"}, request_percentage=1)
    assert harness.throttle(REQUEST, 0.1) == 0  # 10 % of a second, over 10 seconds
    assert harness.throttle(REQUEST, 0.01) == 1000
    harness.clock.advance(20_000)
    assert harness.throttle(REQUEST, 0.101) == 100


def test_unrecorded_bytes_do_not_count(harness: Quotas) -> None:
    harness.set({USER: "u"}, consumer_byte_rate=100)
    assert harness.quotas.fetch_bytes_max("u", "c") == 1000
    assert harness.throttle(FETCH, 1001) == 10
    harness.quotas.unrecord("u", "c", "consumer_byte_rate", 1001)
    assert harness.throttle(FETCH, 1000) == 0
    assert harness.throttle(FETCH, 1) == 10


def test_a_changed_quota_applies_at_once(harness: Quotas) -> None:
    harness.set({USER: "u"}, producer_byte_rate=100)
    assert harness.throttle(PRODUCE, 2000) == 10_000
    harness.set({USER: "u"}, producer_byte_rate=200)
    assert harness.throttle(PRODUCE, 0) == 0
    harness.set({USER: "u"}, producer_byte_rate=50)
    assert harness.throttle(PRODUCE, 0) == 30_000
    harness.set({USER: "u"}, producer_byte_rate=None)
    assert harness.throttle(PRODUCE, 1e18) == 0


ORDER: list[tuple[dict[str, str | None], str]] = [  # the strongest first, and which clients share its rate
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
        bounds = {rank: 10.0 + rank for rank in range(8) if present[rank]}
        quotas = {EVERY[rank]: {PRODUCE: bound} for rank, bound in bounds.items()}
        if bounds and min(bounds) > 0:  # a quota of another kind has no influence
            quotas[EVERY[0]] = {FETCH: 1.0}
        found = applied(quotas, PRODUCE, "u", "c")
        assert (found.bound if found else None) == (bounds[min(bounds)] if bounds else None), bounds


@pytest.mark.parametrize(("entity", "shared_by"), ORDER)
def test_which_clients_share_the_rate_of_a_quota(
    harness: Quotas, entity: dict[str, str | None], shared_by: str
) -> None:
    harness.set(entity, producer_byte_rate=100)
    assert harness.throttle(PRODUCE, 1000) == 0
    waits = {
        (user, client): harness.throttle(PRODUCE, 10, user, client) > 0
        for user, client in (("u", "c"), ("u", "d"), ("v", "c"), ("v", "d"))
    }
    assert waits[("u", "c")]
    assert waits[("u", "d")] == (shared_by == "one user")
    assert waits[("v", "c")] == (shared_by == "one client")
    assert not waits[("v", "d")]


def test_mutations_are_counted_by_a_bucket_of_tokens(harness: Quotas) -> None:
    harness.set({USER: "u"}, controller_mutation_rate=2)

    def strict(count: int) -> int:
        return harness.quotas.mutation_throttle_ms("u", "c", count, strict=True)

    def lenient(count: int) -> int:
        return harness.throttle(MUTATION, count)

    assert strict(22) == 0 and strict(10) == 0  # the burst of 11 windows of 1 s: 0 tokens are left, then -10
    assert strict(1) == 5000 and strict(1) == 5000  # refused, and not counted
    assert lenient(4) == 7000
    harness.clock.advance(6999)
    assert strict(1) == 1
    harness.clock.advance(1)
    assert strict(1) == 0
    assert strict(1) == 500
    harness.clock.advance(10**9)
    assert strict(23) == 0 and strict(1) == 500


def test_connections_of_an_address(harness: Quotas) -> None:
    harness.set({IP: "10.0.0.1"}, connection_creation_rate=2)
    harness.set({IP: None}, connection_creation_rate=1)
    harness.set({IP: "0:0:0:0:0:0:0:1"}, connection_creation_rate=3)
    for address, count in (("/10.0.0.1", 20), ("10.0.0.2", 10), ("10.0.0.3", 10), ("::1", 30)):
        assert [harness.quotas.connection_throttle_ms(address) for _ in range(count)] == [0] * count
        waits = [harness.quotas.connection_throttle_ms(address) for _ in range(3)]
        assert waits[0] > 0 and waits == [waits[0]] * 3  # refused connections do not count


def test_rates_of_idle_clients_are_dropped(harness: Quotas) -> None:
    harness.set({USER: None}, producer_byte_rate=100)
    for _round in range(3):
        for number in range(900):
            harness.throttle(PRODUCE, 10, f"u{_round}-{number}")
        harness.clock.advance(11_000)  # the windows
    assert len(harness.quotas._rates) < 1100
    assert harness.throttle(PRODUCE, 2000) == 10_000


def test_what_a_client_owes_is_not_forgotten(harness: Quotas) -> None:
    harness.set({USER: None}, controller_mutation_rate=1)
    harness.throttle(MUTATION, 10_000)
    harness.clock.advance(3_600_001)
    for number in range(1_100):
        harness.throttle(MUTATION, 1, f"u{number}")
    assert harness.throttle(MUTATION, 0) > 6_000_000
    harness.clock.advance(20_000)
    for number in range(1_100, 2_200):
        harness.throttle(MUTATION, 1, f"u{number}")
    assert len(harness.quotas._buckets) < 1_300


def test_the_cache_of_applied_quotas_is_bounded(harness: Quotas) -> None:
    harness.set({USER: "v"}, producer_byte_rate=100)
    for number in range(12_000):
        harness.throttle(PRODUCE, 10, "u", f"c{number}")
    assert len(harness.quotas._applied) <= 10_000


def described(harness: Quotas, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = Describe(
        components=[Describe.Component(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )
    response = ask(harness.quotas.handlers(), request)
    if response.error_code:
        assert response.entries is None and response.error_message
        return response.error_code
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }


def test_quotas_are_set_described_and_removed(harness: Quotas, tmp_path: Path) -> None:
    harness.set({USER: "u", CLIENT_ID: None}, producer_byte_rate=100, consumer_byte_rate=200)
    harness.set({IP: "10.0.0.1"}, connection_creation_rate=5)
    harness.set({USER: "u", CLIENT_ID: None}, producer_byte_rate=None, request_percentage=0.5)
    expected = {
        ((CLIENT_ID, None), (USER, "u")): {"consumer_byte_rate": 200.0, "request_percentage": 0.5},
        ((IP, "10.0.0.1"),): {"connection_creation_rate": 5.0},
    }
    assert described(harness) == expected == described(Quotas(tmp_path))
    harness.set({USER: "u", CLIENT_ID: None}, consumer_byte_rate=None, request_percentage=None, producer_byte_rate=None)
    harness.set({IP: "10.0.0.1"}, connection_creation_rate=None)
    assert described(harness) == {} == described(Quotas(tmp_path))


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
def test_filters_find_what_they_should(harness: Quotas, components: Any, strict: bool, expected: Any) -> None:
    harness.quotas.change({entity: {PRODUCE: 1.0} for entity in EVERY})
    assert set(described(harness, *components, strict=strict)) == {EVERY[number] for number in expected}


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
def test_an_invalid_filter_is_refused(harness: Quotas, components: Any, code: ErrorCode) -> None:
    assert described(harness, *components) == code


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
def test_an_invalid_quota_is_refused_and_the_others_are_set(harness: Quotas, bad: Any) -> None:
    twice = entry({USER: "twice"}, producer_byte_rate=2)
    request = Alter(entries=[bad, entry({USER: "v"}, producer_byte_rate=9), twice, entry({USER: "twice"})])
    response = ask(harness.quotas.handlers(), request)
    codes = [each.error_code for each in response.entries]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert described(harness) == {((USER, "v"),): {PRODUCE: 9.0}}


def test_validate_only_changes_nothing(harness: Quotas, tmp_path: Path) -> None:
    request = Alter(entries=[entry({USER: "u"}, producer_byte_rate=1), entry({USER: "v"}, fly=1)], validate_only=True)
    codes = [each.error_code for each in ask(harness.quotas.handlers(), request).entries]
    assert codes == [0, ErrorCode.INVALID_REQUEST]
    assert described(harness) == {} and os.listdir(tmp_path) == []


def test_the_requests_need_rights_on_the_cluster(harness: Quotas) -> None:
    handlers = harness.quotas.handlers()
    request = Alter(entries=[entry({USER: "u"}, producer_byte_rate=1)])
    response = ask(handlers, request, denied=[("ALTER_CONFIGS", "CLUSTER")])
    assert [each.error_code for each in response.entries] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    response = ask(handlers, Describe(components=[], strict=False), denied=[("DESCRIBE_CONFIGS", "CLUSTER")])
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and response.entries is None
    assert described(harness) == {}


def test_a_change_that_cannot_be_written_has_no_effect(tmp_path: Path) -> None:
    files = FailingFiles(1, forever=True)
    quotas = ClientQuotas(str(tmp_path), SecurityConfig(), ManualClock(), files)
    request = Alter(entries=[entry({USER: "u"}, producer_byte_rate=1), entry({}, producer_byte_rate=1)])
    codes = [each.error_code for each in ask(quotas.handlers(), request).entries]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_REQUEST]
    assert quotas.quotas() == {} and quotas.bound("u", "c", "producer_byte_rate") is None


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000), st.booleans()), max_size=40), st.integers(1, 500))
def test_a_client_waits_for_what_it_has_sent_above_its_quota(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, int, bool]], bound: int
) -> None:
    """Ten full windows and the current one are measured, 10 to 12 seconds: the oldest window may have begun a second
    before them. Some clients wait, others send before that."""
    harness = Quotas(tmp_path_factory.mktemp("quotas"))
    harness.set({USER: "u"}, producer_byte_rate=bound)
    now, sent = 0, []

    def seconds_for(newer_than_ms: int) -> float:
        """How long the quota allows for what was sent since then."""
        return sum(amount for at, amount in sent if at > now - newer_than_ms) / bound

    for pause_ms, amount, waits in events:
        harness.clock.advance(pause_ms)
        now += pause_ms
        sent.append((now, amount))
        throttled = harness.throttle(PRODUCE, amount)
        assert throttled / 1000 >= seconds_for(10_999) - 12 - 0.001
        assert throttled / 1000 <= max(0, seconds_for(12_001) - 10) + 0.001
        if waits:
            harness.clock.advance(throttled)
            now += throttled


@pytest.mark.parametrize(
    ("change", "text"),
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
def test_a_hostile_file_raises_with_its_path(harness: Quotas, tmp_path: Path, change: Any, text: str) -> None:
    harness.set({USER: "u"}, producer_byte_rate=100)
    document = json.loads((tmp_path / FILE).read_bytes())
    del document["crc32c"]
    change(document["quotas"][0])
    (tmp_path / FILE).write_text(json.dumps(document))
    with pytest.raises(CorruptCheckpoint, match=text) as caught:
        Quotas(tmp_path)
    assert caught.value.path == str(tmp_path / FILE)
