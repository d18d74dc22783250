"""A response with one error wherever it can have one."""

from __future__ import annotations

import pytest

from klog.broker.error_responses import error_response
from klog.protocol import ApiKey, ErrorCode, decode, encode, messages

CODE = ErrorCode.NOT_CONTROLLER
VERSIONS = [(api, version) for api in ApiKey for version in range(api.low, api.high + 1)]
# These responses have no error at all.
WITHOUT = {ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS}


def full_request(api: ApiKey, version: int) -> object:
    """A request with one entry in each array that its version has."""
    request = filled(getattr(messages, api.message).Request, getattr(messages, api.message).Request)
    for names in ("groups", "coordinator_keys"):
        if hasattr(request, names) and all(type(each) is str for each in getattr(request, names)):
            setattr(request, names, ["g"])
    return request


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", str(each)))
def test_every_version_of_every_response_can_be_encoded(api: ApiKey, version: int) -> None:
    request = getattr(messages, api.message).Request()
    response = error_response(api, version, request, CODE)
    again = decode(type(response), version, encode(response, version))
    if hasattr(response, "error_code") and response.error_code:
        assert again.error_code in (CODE, 0)
