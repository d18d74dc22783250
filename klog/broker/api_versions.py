"""ApiVersions: what this broker serves. Kafka: ApiVersionManager, KafkaApis.handleApiVersionsRequest.

A request of a version that klog does not know gets version 0 of the response with error 35 and one entry, that of
ApiVersions itself (KIP-511): the client goes on with a version from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.protocol import ApiKey, ErrorCode, messages
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from klog.broker.context import RequestContext
    from klog.protocol import Message

_ALNUM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_INNER = _ALNUM | frozenset("-.")
_NAMED_VERSION = 3
_ZERO_MINIMUM_VERSION = 4


class Release(NamedTuple):
    """The APIs of a release of Kafka, for a broker that imitates it. newest: the last version of each of its APIs."""

    newest: Mapping[ApiKey, int]
    has_features: bool

    def has(self, api: ApiKey, version: int) -> bool:
        """Did the release have this version of a request?"""
        return version <= self.newest.get(api, -1)


class ApiVersions:
    """Any thread. served: the keys with a handler. features: {name: (lowest, highest, finalized level)}. release: None
    for klog itself."""

    def __init__(
        self,
        served: Iterable[ApiKey],
        features: Mapping[str, tuple[int, int, int]],
        release: Release | None = None,
    ) -> None:
        Response = messages.ApiVersions.Response
        self._apis = [
            Response.Api(api_key=api, min_version=api.advertised[0], max_version=_newest(api, release))
            for api in sorted({*served, ApiKey.API_VERSIONS})
            if release is None or release.has(api, api.low)
        ]
        self._features = dict(features) if release is None or release.has_features else {}
        if release is not None and ApiKey.SHARE_FETCH not in release.newest:
            self._features.pop("share.version", None)

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.API_VERSIONS: self.api_versions}

    def api_versions(self, context: RequestContext, request: Any) -> Message:
        """The versions and features."""
        if context.version >= _NAMED_VERSION and not (
            _is_software_name(request.client_software_name) and _is_software_name(request.client_software_version)
        ):
            return messages.ApiVersions.Response(error_code=ErrorCode.INVALID_REQUEST)
        zero_minimum = context.version >= _ZERO_MINIMUM_VERSION
        Response = messages.ApiVersions.Response  # a new one: it gets the throttle time of its client
        return Response(
            api_keys=self._apis,
            supported_features=[
                Response.SupportedFeature(name=name, min_version=low, max_version=high)
                for name, (low, high, _) in self._features.items()
                if low > 0 or zero_minimum
            ],
            finalized_features_epoch=1 if self._features else -1,
            finalized_features=[
                Response.FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
                for name, (_, _, level) in self._features.items()
                if level > 0
            ],
        )


def unknown_version(release: Release | None = None) -> Message:
    """The response to an ApiVersions request of an unknown version, to be encoded in version 0."""
    api = ApiKey.API_VERSIONS
    Response = messages.ApiVersions.Response
    return Response(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[Response.Api(api_key=api, min_version=api.low, max_version=_newest(api, release))],
    )


def _newest(api: ApiKey, release: Release | None) -> int:
    return api.advertised[1] if release is None else release.newest[api]


def _is_software_name(name: str) -> bool:
    return bool(name) and name[0] in _ALNUM and name[-1] in _ALNUM and _INNER.issuperset(name)
