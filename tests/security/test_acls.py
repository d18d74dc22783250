"""Access rules: decisions, compared with a slow model; filters, requests, and the file of rules."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptCheckpoint
from klog.protocol import ErrorCode, messages
from klog.security import Authorizer, SecurityConfig, authorized_operations
from klog.security.acl_index import AclIndex
from klog.security.acl_types import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from klog.security.acls import FILE
from klog.security.addresses import comparable_host
from tests.security.acl_model import ACLS, HOSTS, NAMES, OPERATIONS, PRINCIPALS, TYPES, allows, allows_some
from tests.security.asking import ask
from tests.support.failing_files import FailingFiles

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
Create, Delete, Describe = messages.CreateAcls.Request, messages.DeleteAcls.Request, messages.DescribeAcls.Request


def acl(
    name: str = "flights",
    principal: str = "User:alice",
    operation: str = "READ",
    permission: str = "ALLOW",
    *,
    kind: str = "TOPIC",
    pattern: str = "LITERAL",
    host: str = "*",
) -> Acl:
    return Acl(
        ResourceType[kind], PatternType[pattern], name, principal, host, Operation[operation], Permission[permission]
    )


def authorizer(path: Path, *acls: Acl, **properties: str) -> Authorizer:
    values = {name.replace("_", "."): value for name, value in properties.items()}
    made = Authorizer(str(path), SecurityConfig.of({**AUTHORIZER, **values}))
    made.change(add=acls)
    return made


def may(
    made: Authorizer, operation: str = "READ", name: str = "flights", principal: str = "User:alice", **more: str
) -> bool:
    return made.authorized(principal, more.get("host", "10.0.0.1"), operation, more.get("kind", "TOPIC"), name)


def test_without_an_authorizer_everything_is_allowed(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("not read")
    made = Authorizer(str(tmp_path), SecurityConfig())
    assert not made.enabled and may(made) and made.authorized_by_type("User:x", "::1", "WRITE", "TOPIC")
    with pytest.raises(RuntimeError, match=r"authorizer\.class\.name"):
        made.change(add=[acl()])


def test_without_a_rule_an_operation_is_not_allowed(tmp_path: Path) -> None:
    made = authorizer(tmp_path)
    assert not may(made)
    made.change(add=[acl()])
    assert may(made) and not may(made, "WRITE") and not may(made, name="flight") and not may(made, principal="User:bob")
    made.change(remove=[acl()])
    assert not may(made)


def test_everything_without_rules_is_allowed_if_so_configured(tmp_path: Path) -> None:
    made = authorizer(tmp_path, acl(), allow_everyone_if_no_acl_found="true")
    assert may(made, "WRITE", "other", "User:bob")
    assert not may(made, "WRITE") and not may(made, principal="User:bob")


def test_deny_takes_precedence_over_allow(tmp_path: Path) -> None:
    made = authorizer(
        tmp_path,
        acl("*", "User:*", "ALL"),
        acl("f", "User:alice", "READ", "DENY", pattern="PREFIXED"),
    )
    assert not may(made) and may(made, "WRITE") and may(made, name="x") and may(made, principal="User:bob")


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER"])
def test_describe_is_implied_by_rules_that_allow(tmp_path: Path, operation: str) -> None:
    made = authorizer(tmp_path, acl(operation=operation))
    assert may(made, "DESCRIBE") and not may(made, "DESCRIBE_CONFIGS")
    made.change(
        remove=made.find(AclFilter()), add=[acl(operation="DESCRIBE"), acl(operation=operation, permission="DENY")]
    )
    assert may(made, "DESCRIBE") and not may(made, operation)


def test_describe_configs_is_implied_by_alter_configs(tmp_path: Path) -> None:
    made = authorizer(tmp_path, acl(operation="ALTER_CONFIGS"))
    assert may(made, "DESCRIBE_CONFIGS") and not may(made, "DESCRIBE")


def test_super_users_may_do_everything(tmp_path: Path) -> None:
    made = authorizer(tmp_path, acl("*", "User:*", "ALL", "DENY"), super_users="User:root; User:CN=a,O=b")
    assert may(made, principal="User:root") and may(made, principal="User:CN=a,O=b") and not may(made)
    assert made.authorized_by_type("User:root", "::1", "WRITE", "TOPIC")


def test_hosts_are_compared_as_addresses(tmp_path: Path) -> None:
    made = authorizer(tmp_path, acl(host="10.0.0.1"), acl(host="0:0:0:0:0:0:0:1"))
    for host, expected in (
        ("10.0.0.1", True),
        ("/10.0.0.1", True),
        ("::ffff:10.0.0.1", True),
        ("10.0.0.10", False),
        ("::1", True),
        ("/0:0:0:0:0:0:0:1%lo", True),
        ("::2", False),
    ):
        assert may(made, host=host) == expected, host
    assert comparable_host("not:an:address") == "not:an:address"


def test_cached_decisions_are_dropped_when_rules_change(tmp_path: Path) -> None:
    made = authorizer(tmp_path, acl())
    assert may(made)
    made.change(add=[acl(permission="DENY")])
    assert not may(made)
    made.change(remove=[acl(permission="DENY")])
    assert may(made)


def test_the_caches_of_decisions_are_bounded(tmp_path: Path) -> None:
    index = AclIndex([acl()], frozenset(), False)
    for number in range(25_000):
        index.allows("User:alice", "::1", "READ", "TOPIC", f"t{number}")
        index.allows_some("User:alice", f"h{number}", "READ", "TOPIC")
    assert len(index._decisions) <= 10_000 and len(index._some) <= 10_000


def test_an_unknown_operation_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        may(authorizer(tmp_path), "FLY")


def test_idempotent_writes_need_one_topic_to_write(tmp_path: Path) -> None:
    made = authorizer(tmp_path, acl(operation="READ"))
    assert not made.may_write_idempotently("User:alice", "::1")
    made.change(add=[acl("other", operation="WRITE")])
    assert made.may_write_idempotently("User:alice", "::1")
    made.change(add=[acl("o", operation="WRITE", permission="DENY", pattern="PREFIXED")])
    assert not made.may_write_idempotently("User:alice", "::1")
    made.change(add=[acl("kafka-cluster", operation="IDEMPOTENT_WRITE", kind="CLUSTER")])
    assert made.may_write_idempotently("User:alice", "::1")


def test_a_rule_for_every_topic_is_enough_whatever_other_rules_deny(tmp_path: Path) -> None:
    denied = [acl(name, operation="WRITE", permission="DENY", pattern="PREFIXED") for name in ("h", "*")]
    made = authorizer(tmp_path, acl("*", operation="WRITE"), *denied)
    assert not may(made, "WRITE", "hardcode") and made.authorized_by_type("User:alice", "::1", "WRITE", "TOPIC")


def test_the_operations_of_a_resource_as_bits(tmp_path: Path) -> None:
    made = authorizer(tmp_path, acl(operation="READ"), acl(operation="CREATE"), acl(operation="CLUSTER_ACTION"))
    bits = authorized_operations(lambda *question: made.authorized("User:alice", "::1", *question), "TOPIC", "flights")
    assert bits == 1 << Operation.READ | 1 << Operation.CREATE | 1 << Operation.DESCRIBE


QUESTIONS = st.tuples(
    st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS), st.sampled_from(OPERATIONS), st.sampled_from(TYPES), NAMES
)


@given(
    st.lists(ACLS, max_size=12),
    st.lists(QUESTIONS, min_size=1, max_size=30),
    st.booleans(),
    st.sets(st.sampled_from(PRINCIPALS)),
)
def test_decisions_are_those_of_the_model(
    acls: list[Acl], questions: list[tuple[str, ...]], default: bool, supers: set[str]
) -> None:
    index = AclIndex(acls, frozenset(supers), default)
    for question in (*questions, *questions):  # the second time from the cache
        principal, host, operation, kind, name = question
        assert index.allows(principal, host, operation, kind, name) == allows(acls, supers, default, *question)
        assert index.allows_some(principal, host, operation, kind) == allows_some(
            acls, supers, default, principal, host, operation, kind
        )


FILTERS = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    st.none() | NAMES,
    st.sampled_from([None, *PRINCIPALS]),
    st.sampled_from([None, *HOSTS]),
    st.sampled_from([Operation.ANY, Operation.READ, Operation.ALL]),
    st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY]),
)


def found_by(wanted: AclFilter, acls: Iterable[Acl]) -> set[Acl]:
    """Return the rules that a filter matches, one comparison at a time."""
    left = set(acls)
    for field in ("resource_type", "operation", "permission"):
        if getattr(wanted, field).name != "ANY":
            left = {each for each in left if getattr(each, field) == getattr(wanted, field)}
    for field in ("principal", "host"):
        if getattr(wanted, field) is not None:
            left = {each for each in left if getattr(each, field) == getattr(wanted, field)}
    if wanted.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
        left = {each for each in left if each.pattern_type == wanted.pattern_type}
    if wanted.name is not None and wanted.pattern_type is PatternType.MATCH:
        prefixes = {wanted.name[:size] for size in range(len(wanted.name) + 1)}
        left = {
            each
            for each in left
            if (each.name in prefixes if each.pattern_type is PatternType.PREFIXED else each.name in ("*", wanted.name))
        }
    elif wanted.name is not None:
        left = {each for each in left if each.name == wanted.name}
    return left


@given(st.lists(ACLS, max_size=20), FILTERS)
def test_filters_find_what_they_should(acls: list[Acl], wanted: AclFilter) -> None:
    assert {each for each in acls if wanted.matches(each)} == found_by(wanted, acls)


def creation(each: Acl) -> Any:
    return Create.Creation(
        resource_type=each.resource_type,
        resource_name=each.name,
        resource_pattern_type=each.pattern_type,
        principal=each.principal,
        host=each.host,
        operation=each.operation,
        permission_type=each.permission,
    )


def filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def described(made: Authorizer, wanted: AclFilter, version: int = 3) -> set[Acl]:
    response = ask(made.handlers(), Describe(**filter_fields(wanted)), version=version)
    assert (response.error_code, response.error_message) == (0, "")
    return {
        Acl(
            ResourceType(resource.resource_type),
            PatternType(resource.pattern_type),
            resource.resource_name,
            each.principal,
            each.host,
            Operation(each.operation),
            Permission(each.permission_type),
        )
        for resource in response.resources
        for each in resource.acls
    }


def create(made: Authorizer, *acls: Acl, **options: Any) -> list[int]:
    response = ask(made.handlers(), Create(creations=list(map(creation, acls))), **options)
    assert all(bool(each.error_code) == bool(each.error_message) for each in response.results)
    return [each.error_code for each in response.results]


def delete(made: Authorizer, *wanted: AclFilter, **options: Any) -> list[int | set[str]]:
    filters = [Delete.Filter(**filter_fields(each)) for each in wanted]
    response = ask(made.handlers(), Delete(filters=filters), **options)
    return [
        each.error_code or {match.resource_name for match in each.matching_acls} for each in response.filter_results
    ]


@given(st.lists(ACLS, max_size=10), FILTERS)
def test_rules_are_created_described_and_deleted(
    tmp_path_factory: pytest.TempPathFactory, acls: list[Acl], wanted: AclFilter
) -> None:
    path = tmp_path_factory.mktemp("acls")
    made = authorizer(path)
    assert create(made, *acls, *acls[:1]) == [0] * (len(acls) + len(acls[:1]))
    assert described(made, AclFilter()) == set(acls)
    assert described(made, wanted) == found_by(wanted, acls)
    assert delete(made, wanted, wanted) == [{each.name for each in found_by(wanted, acls)}] * 2
    left = set(acls) - found_by(wanted, acls)
    assert described(made, AclFilter()) == left == described(authorizer(path), AclFilter())


@pytest.mark.parametrize(
    "bad",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_type": -1},
        {"resource_pattern_type": 0},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 0},
        {"operation": 1},
        {"operation": 99},
        {"permission_type": 0},
        {"permission_type": 1},
        {"resource_name": ""},
        {"resource_type": ResourceType.CLUSTER},
        {"principal": "alice"},
        {"principal": ":alice"},
        {"principal": "User:"},
        {"host": ""},
    ],
)
def test_an_invalid_rule_is_refused_and_the_others_are_created(tmp_path: Path, bad: dict[str, Any]) -> None:
    made = authorizer(tmp_path)
    wrong = creation(acl())
    for field, value in bad.items():
        setattr(wrong, field, value)
    response = ask(made.handlers(), Create(creations=[wrong, creation(acl("other"))]))
    assert [each.error_code for each in response.results] == [ErrorCode.INVALID_REQUEST, 0]
    assert described(made, AclFilter()) == {acl("other")}


@pytest.mark.parametrize(
    "bad",
    [
        {"resource_type_filter": 0},
        {"resource_type_filter": 99},
        {"pattern_type_filter": 0},
        {"pattern_type_filter": -5},
        {"operation": 0},
        {"permission_type": 0},
    ],
)
def test_an_unknown_filter_is_refused(tmp_path: Path, bad: dict[str, int]) -> None:
    made = authorizer(tmp_path, acl())
    fields = {**filter_fields(AclFilter()), **bad}
    assert ask(made.handlers(), Describe(**fields)).error_code == ErrorCode.INVALID_REQUEST
    response = ask(made.handlers(), Delete(filters=[Delete.Filter(**fields)]))
    assert [each.error_code for each in response.filter_results] == [ErrorCode.INVALID_REQUEST]
    assert described(made, AclFilter()) == {acl()}


def test_the_requests_need_rights_on_the_cluster(tmp_path: Path) -> None:
    made = authorizer(tmp_path, acl())
    assert create(made, acl("other"), denied=[("ALTER", "CLUSTER")]) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert delete(made, AclFilter(), denied=[("ALTER", "CLUSTER")]) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    response = ask(made.handlers(), Describe(**filter_fields(AclFilter())), denied=[("DESCRIBE", "CLUSTER")])
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and response.resources == []
    assert described(made, AclFilter()) == {acl()}


def test_the_requests_fail_without_an_authorizer(tmp_path: Path) -> None:
    made = Authorizer(str(tmp_path), SecurityConfig())
    assert create(made, acl()) == delete(made, AclFilter()) == [ErrorCode.SECURITY_DISABLED]
    response = ask(made.handlers(), Describe(**filter_fields(AclFilter())))
    assert response.error_code == ErrorCode.SECURITY_DISABLED
    assert os.listdir(tmp_path) == []


def test_a_change_that_cannot_be_written_has_no_effect(tmp_path: Path) -> None:
    files = FailingFiles(forever=True, armed=False)
    made = Authorizer(str(tmp_path), SecurityConfig.of(AUTHORIZER), files)
    made.change(add=[acl()])
    files.armed, files.nth, files.only = True, 1, ("fsync",)
    assert create(made, acl("other")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert delete(made, AclFilter()) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert described(made, AclFilter()) == described(authorizer(tmp_path), AclFilter()) == {acl()}
    assert may(made) and not may(made, name="other")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda rule: rule.pop("host"), "missing"),
        (lambda rule: rule.update(host=""), r"acls\[0\]: host"),
        (lambda rule: rule.update(name=7), r"acls\[0\]: name"),
        (lambda rule: rule.update(operation="FLY"), "operation='FLY'"),
        (lambda rule: rule.update(operation="ANY"), "Invalid operation ANY"),
        (lambda rule: rule.update(operation=["READ"]), "missing or has another type"),
        (lambda rule: rule.update(permission="MAYBE"), "permission='MAYBE'"),
        (lambda rule: rule.update(principal="alice"), "Invalid principal"),
        (lambda rule: rule.update(resource_type="CLUSTER"), "kafka-cluster"),
        (lambda rule: rule.clear(), "missing"),
    ],
)
def test_a_hostile_file_raises_with_its_path(tmp_path: Path, change: Any, text: str) -> None:
    authorizer(tmp_path, acl())
    document = json.loads((tmp_path / FILE).read_bytes())
    del document["crc32c"]
    change(document["acls"][0])
    (tmp_path / FILE).write_text(json.dumps(document))
    with pytest.raises(CorruptCheckpoint, match=text) as caught:
        authorizer(tmp_path)
    assert caught.value.path == str(tmp_path / FILE)
