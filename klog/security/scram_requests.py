"""DescribeUserScramCredentials and AlterUserScramCredentials. Kafka: ScramImage.describe, ScramControlManager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from klog.logger import logger_of
from klog.protocol import ErrorCode, messages
from klog.security import scram
from klog.security.refusals import UNAUTHORIZED, ItemRefused, cluster_authorized
from klog.security.saslprep import is_prepared
from klog.security.scram import BY_NUMBER, MECHANISMS, ScramCredential

if TYPE_CHECKING:
    from klog.security.context import Context

    Alteration = (
        messages.AlterUserScramCredentials.Request.Deletion | messages.AlterUserScramCredentials.Request.Upsertion
    )

_log = logger_of("security")
_TWICE = "A user credential cannot be altered twice in the same request"


class CredentialStore(Protocol):
    """Where the credentials are: klog.security.users.Users."""

    def names(self) -> list[str]:
        """All users, sorted."""

    def of(self, user: str) -> Mapping[str, ScramCredential]:
        """The credentials of a user by mechanism."""

    def change(self, changes: Mapping[str, Mapping[str, ScramCredential | None]]) -> None:
        """Set or remove credentials, durably; all or none."""


def describe(
    store: CredentialStore, context: Context, request: messages.DescribeUserScramCredentials.Request
) -> messages.DescribeUserScramCredentials.Response:
    response = messages.DescribeUserScramCredentials.Response
    if not cluster_authorized(context.authorized, "DESCRIBE"):
        return response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=UNAUTHORIZED)
    asked = Counter(each.name for each in request.users) if request.users else Counter(store.names())
    return response(results=[_described(store, user, times) for user, times in asked.items()])


def _described(store: CredentialStore, user: str, times: int) -> messages.DescribeUserScramCredentials.Response.Result:
    result = messages.DescribeUserScramCredentials.Response.Result
    if times > 1:
        return result(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    found = store.of(user)
    if not found:
        return result(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    infos = [
        messages.DescribeUserScramCredentials.Response.CredentialInfo(
            mechanism=mechanism.number, iterations=found[mechanism.name].iterations
        )
        for mechanism in MECHANISMS.values()
        if mechanism.name in found
    ]
    return result(user=user, credential_infos=infos)


def alter(
    store: CredentialStore, context: Context, request: messages.AlterUserScramCredentials.Request
) -> messages.AlterUserScramCredentials.Response:
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    times = Counter(each.name for each in alterations)
    errors: dict[str, tuple[ErrorCode, str | None]] = {}
    if not cluster_authorized(context.authorized, "ALTER"):
        errors = dict.fromkeys(times, (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, UNAUTHORIZED))
        return _response(errors)
    changes: dict[str, dict[str, ScramCredential | None]] = {}
    for each in alterations:
        try:
            if times[each.name] > 1:
                raise ItemRefused(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
            changes[each.name] = _change(store, each)
            errors[each.name] = ErrorCode.NONE, None
        except ItemRefused as error:
            errors[each.name] = error.code, error.reason
    if changes:
        try:
            store.change(changes)
            _log.info("event=scram_credentials_altered users=%r by=%r", sorted(changes), context.principal)
        except OSError as error:
            _log.error("event=scram_credentials_not_written reason=%s", error)
            for user in changes:
                errors[user] = ErrorCode.KAFKA_STORAGE_ERROR, "The credentials could not be written"
    return _response(errors)


def _response(errors: dict[str, tuple[ErrorCode, str | None]]) -> messages.AlterUserScramCredentials.Response:
    response = messages.AlterUserScramCredentials.Response
    return response(
        results=[
            response.Result(user=user, error_code=code, error_message=reason) for user, (code, reason) in errors.items()
        ]
    )


def _change(
    store: CredentialStore,
    each: Alteration,
) -> dict[str, ScramCredential | None]:
    """The credentials to set, by mechanism. Raises ItemRefused."""
    if not each.name:
        raise ItemRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = BY_NUMBER.get(each.mechanism)
    if mechanism is None:
        raise ItemRefused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(each, messages.AlterUserScramCredentials.Request.Deletion):
        if mechanism.name not in store.of(each.name):
            raise ItemRefused(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return {mechanism.name: None}
    if len(each.name.encode()) > scram.USER_BYTES_MAX or not is_prepared(each.name):
        raise ItemRefused(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Username must be at most {scram.USER_BYTES_MAX} bytes that SASLprep (RFC 4013) does not change",
        )
    if each.iterations < scram.ITERATIONS_MIN:
        raise ItemRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if each.iterations > scram.ITERATIONS_MAX:
        raise ItemRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    salt, salted = bytes(each.salt), bytes(each.salted_password)
    if not 0 < len(salt) <= scram.SALT_BYTES_MAX:
        raise ItemRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Salt must have 1 to {scram.SALT_BYTES_MAX} bytes")
    if len(salted) != mechanism.size:
        raise ItemRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Salted password must have {mechanism.size} bytes")
    return {mechanism.name: scram.credential_of(mechanism, salted, salt, each.iterations)}
