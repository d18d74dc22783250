"""The table of the mute state machine: engine semantics 11.2."""

from __future__ import annotations

import itertools

import pytest

from klog.network._mute import next_state

PENDING = "MUTED_AND_RESPONSE_PENDING"
BOTH = "MUTED_AND_THROTTLED_AND_RESPONSE_PENDING"
THROTTLED = "MUTED_AND_THROTTLED"
STATES = ["NOT_MUTED", "MUTED", PENDING, BOTH, THROTTLED]
EVENTS = ["MUTE", "REQUEST_RECEIVED", "THROTTLE_STARTED", "RESPONSE_SENT", "THROTTLE_ENDED", "UNMUTE"]
TABLE = {
    ("NOT_MUTED", "MUTE"): "MUTED",
    ("MUTED", "REQUEST_RECEIVED"): PENDING,
    (PENDING, "THROTTLE_STARTED"): BOTH,
    (PENDING, "RESPONSE_SENT"): "MUTED",
    (BOTH, "RESPONSE_SENT"): THROTTLED,
    (THROTTLED, "THROTTLE_ENDED"): "MUTED",
    (BOTH, "THROTTLE_ENDED"): PENDING,
    **{(state, "UNMUTE"): state for state in STATES},
    ("MUTED", "UNMUTE"): "NOT_MUTED",
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(STATES, EVENTS)))
def test_each_event_in_each_state(state: str, event: str) -> None:
    if (state, event) in TABLE:
        assert next_state(state, event) == TABLE[state, event]
    else:
        with pytest.raises(AssertionError, match=f"{event} while {state}$"):
            next_state(state, event)
