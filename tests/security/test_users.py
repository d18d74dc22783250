"""The store of SCRAM credentials: its requests, its file, and the secrets that it never shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptCheckpoint, NewerFormat
from klog.protocol import ErrorCode, messages
from klog.security import Users, scram
from klog.security.scram import MECHANISMS
from klog.security.users import FILE
from tests.security.asking import ask
from tests.support.failing_files import FailingFiles

Describe = messages.DescribeUserScramCredentials.Request
Alter = messages.AlterUserScramCredentials.Request
SHA_256, SHA_512 = MECHANISMS.values()


def upsertion(user: str, mechanism: int = 1, **fields: Any) -> Alter.Upsertion:
    size = 64 if mechanism == 2 else 32
    values = {"iterations": 4096, "salt": b"salt", "salted_password": b"p" * size, **fields}
    return Alter.Upsertion(name=user, mechanism=mechanism, **values)


def alter(users: Users, *changes: Any, **options: Any) -> dict[str, tuple[int, str | None]]:
    deletions = [each for each in changes if isinstance(each, Alter.Deletion)]
    upsertions = [each for each in changes if isinstance(each, Alter.Upsertion)]
    response = ask(users.handlers(), Alter(deletions=deletions, upsertions=upsertions), **options)
    return {each.user: (each.error_code, each.error_message) for each in response.results}


def described(users: Users, *names: str, **options: Any) -> dict[str, Any]:
    request = Describe(users=[Describe.User(name=name) for name in names] or None)
    response = ask(users.handlers(), request, **options)
    return {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] or each.error_code
        for each in response.results
    }


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(str(tmp_path))


def test_credentials_are_set_described_and_removed(users: Users, tmp_path: Path) -> None:
    assert described(users) == {}
    assert alter(users, upsertion("alice"), upsertion("bob", 2, iterations=16384)) == {
        "alice": (0, None),
        "bob": (0, None),
    }
    alter(users, upsertion("alice", 2))
    for store in (users, Users(str(tmp_path))):
        assert described(store) == {"alice": [(1, 4096), (2, 4096)], "bob": [(2, 16384)]}
        assert described(store, "bob", "carol") == {"bob": [(2, 16384)], "carol": ErrorCode.RESOURCE_NOT_FOUND}
        assert described(store, "bob", "bob") == {"bob": ErrorCode.DUPLICATE_RESOURCE}
    assert alter(users, Alter.Deletion(name="alice", mechanism=1), Alter.Deletion(name="bob", mechanism=2)) == {
        "alice": (0, None),
        "bob": (0, None),
    }
    assert described(Users(str(tmp_path))) == {"alice": [(2, 4096)]}


def test_the_credential_is_derived_from_the_salted_password(users: Users) -> None:
    salted = scram.salted_password(SHA_256, "secret", b"salt", 4096)
    alter(users, upsertion("alice", salted_password=salted))
    assert users.credential(SHA_256, "alice") == scram.credential_of(SHA_256, salted, b"salt", 4096)


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("bob", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("bob", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("bob", -128), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("bob", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("bob", iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("bob", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion("bob", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt must have 1 to 1024 bytes"),
        (upsertion("bob", salt=b"s" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt must have 1 to 1024 bytes"),
        (upsertion("bob", salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "must have 32 bytes"),
        (upsertion("bob", 2, salted_password=b"p" * 32), ErrorCode.UNACCEPTABLE_CREDENTIAL, "must have 64 bytes"),
        (upsertion("bo\0b"), ErrorCode.UNACCEPTABLE_CREDENTIAL, "SASLprep"),
        (upsertion("\u00aa"), ErrorCode.UNACCEPTABLE_CREDENTIAL, "SASLprep"),
        (upsertion("b" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL, "1024 bytes"),
        (Alter.Deletion(name="bob", mechanism=1), ErrorCode.RESOURCE_NOT_FOUND, "does not exist"),
        (Alter.Deletion(name="bob", mechanism=9), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (Alter.Deletion(name="", mechanism=1), ErrorCode.UNACCEPTABLE_CREDENTIAL, "must not be empty"),
    ],
)
def test_a_refused_change_leaves_the_others(users: Users, change: Any, code: ErrorCode, reason: str) -> None:
    results = alter(users, change, upsertion("alice"))
    assert results.pop("alice") == (0, None)
    ((got, text),) = results.values()
    assert got == code and reason in str(text)
    assert described(users) == {"alice": [(1, 4096)]}


def test_a_user_cannot_be_altered_twice(users: Users) -> None:
    results = alter(users, upsertion("alice"), upsertion("alice", 2), upsertion("bob"))
    assert results["alice"] == (
        ErrorCode.DUPLICATE_RESOURCE,
        "A user credential cannot be altered twice in the same request",
    )
    assert described(users) == {"bob": [(1, 4096)]}
    results = alter(users, upsertion("bob"), Alter.Deletion(name="bob", mechanism=1))
    assert results["bob"][0] == ErrorCode.DUPLICATE_RESOURCE and described(users) == {"bob": [(1, 4096)]}


def test_the_requests_need_rights_on_the_cluster(users: Users) -> None:
    results = alter(users, upsertion("alice"), denied=[("ALTER", "CLUSTER")])
    assert results["alice"][0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and users.names() == []
    response = ask(users.handlers(), Describe(users=None), denied=[("DESCRIBE", "CLUSTER")])
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_change_that_cannot_be_written_has_no_effect(tmp_path: Path) -> None:
    files = FailingFiles(forever=True, armed=False)
    users = Users(str(tmp_path), files)
    alter(users, upsertion("alice"))
    files.armed, files.nth, files.only = True, 1, ("fsync",)
    assert alter(users, upsertion("bob"), upsertion("", 1))["bob"][0] == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(OSError):
        users.set_password("carol", "SCRAM-SHA-256", "secret")
    assert users.names() == Users(str(tmp_path)).names() == ["alice"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("", "SCRAM-SHA-256", "secret"), ValueError),
        (("\u00aa", "SCRAM-SHA-256", "secret"), ValueError),
        (("alice", "SCRAM-SHA-1", "secret"), ValueError),
        (("alice", "SCRAM-SHA-256", ""), ValueError),
        (("alice", "SCRAM-SHA-256", "secret\u00ad"), ValueError),
        (("alice", "SCRAM-SHA-256", b"secret"), TypeError),
    ],
)
def test_set_password_checks_its_arguments_and_does_not_repeat_the_password(
    users: Users, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        users.set_password(*arguments)
    assert "secret" not in str(caught.value) and users.names() == []
    for iterations in (4095, 16385):
        with pytest.raises(ValueError, match="iterations"):
            users.set_password("alice", "SCRAM-SHA-256", "secret", iterations=iterations)


def test_passwords_and_keys_are_in_no_log_line_and_no_repr(
    users: Users, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    alter(users, upsertion("alice"))
    users.set_password("bob", "SCRAM-SHA-512", "a secret")
    assert repr(users) == f"Users({str(tmp_path / FILE)!r}, 2 users)"
    assert [record.getMessage() for record in caplog.records] == [
        "event=scram_credentials_altered users=['alice'] by='User:admin'"
    ]
    assert b"a secret" not in (tmp_path / FILE).read_bytes()
    assert os.stat(tmp_path / FILE).st_mode & 0o777 == 0o600


def test_a_file_that_others_may_read_is_refused(users: Users, tmp_path: Path) -> None:
    alter(users, upsertion("alice"))
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(PermissionError, match="chmod 600"):
        Users(str(tmp_path))


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the document in a file and remove its checksum, as a user with a text editor may do."""
    document = json.loads(path.read_bytes())
    del document["crc32c"]
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda document: document.pop("secret"), "missing"),
        (lambda document: document.update(secret="AAAA"), "size of secret"),
        (lambda document: document.update(secret=7), "secret"),
        (lambda document: document.update(users=[]), "missing or has another type"),
        (lambda document: document["users"].update({"": {}}), "user"),
        (lambda document: document["users"].update({"bob": {}}), "no credential"),
        (lambda document: document["users"]["alice"].update(PLAIN={"iterations": 1}), "unknown mechanism PLAIN"),
        (lambda document: document["users"]["alice"]["SCRAM-SHA-256"].update(iterations=1), "iterations of"),
        (lambda document: document["users"]["alice"]["SCRAM-SHA-256"].update(iterations=True), "iterations of"),
        (lambda document: document["users"]["alice"]["SCRAM-SHA-256"].update(salt=""), "size of salt"),
        (
            lambda document: document["users"]["alice"]["SCRAM-SHA-256"].update(stored_key="TkVWRVI="),
            "size of stored_key",
        ),
        (lambda document: document["users"]["alice"]["SCRAM-SHA-256"].update(server_key="NEVER!"), "server_key"),
        (lambda document: document["users"]["alice"].update({"SCRAM-SHA-256": None}), "missing or has another type"),
    ],
)
def test_a_hostile_file_raises_with_its_path(users: Users, tmp_path: Path, change: Any, text: str) -> None:
    alter(users, upsertion("alice"))
    rewritten(tmp_path / FILE, change)
    with pytest.raises(CorruptCheckpoint, match=text) as caught:
        Users(str(tmp_path))
    assert caught.value.path == str(tmp_path / FILE) and "NEVER" not in str(caught.value)


def test_a_damaged_file_is_refused(users: Users, tmp_path: Path) -> None:
    alter(users, upsertion("alice"))
    path = tmp_path / FILE
    good = path.read_bytes()
    for bad in (b"", b"{}", b"[]", b"\xff", good[:-20], good.replace(b"4096", b"8192"), b"[" * 100_000):
        path.write_bytes(bad)
        with pytest.raises(CorruptCheckpoint, match="klog-users.json"):
            Users(str(tmp_path))
    rewritten_version = json.loads(good) | {"version": 2}
    path.write_text(json.dumps(rewritten_version))
    with pytest.raises(NewerFormat):
        Users(str(tmp_path))


@given(position=st.integers(0, 9999), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int
) -> None:
    directory = tmp_path_factory.mktemp("users")
    users = Users(str(directory))
    alter(users, upsertion("alice"))
    path = directory / FILE
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1 << bit
    path.write_bytes(content)
    try:
        read = Users(str(directory))
    except (CorruptCheckpoint, NewerFormat):
        return
    # The flip changed white space, or the name of the checksum. A file without this name is not checked.
    assert read.names() == ["alice"]
