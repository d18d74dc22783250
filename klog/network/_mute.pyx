"""The mute state of a connection: whether its next request is read, and what it waits for.

A connection is muted from the moment a request is complete until its response has been sent and its throttle has ended,
so that at most one request of a connection is handled at a time. Muting makes no system call: descriptors are
registered once, edge-triggered, and a muted connection is not read. Kafka: KafkaChannel.ChannelMuteState.
"""

cdef tuple STATE_NAMES = (
    "NOT_MUTED", "MUTED", "MUTED_AND_RESPONSE_PENDING", "MUTED_AND_THROTTLED_AND_RESPONSE_PENDING", "MUTED_AND_THROTTLED"
)
cdef tuple EVENT_NAMES = (
    "MUTE", "REQUEST_RECEIVED", "THROTTLE_STARTED", "RESPONSE_SENT", "THROTTLE_ENDED", "UNMUTE"
)
cdef int NEXT[STATES][EVENTS]

for _state in range(STATES):
    for _event in range(EVENTS):
        NEXT[_state][_event] = _state if _event == UNMUTE else -1
NEXT[NOT_MUTED][MUTE] = MUTED
NEXT[MUTED][REQUEST_RECEIVED] = RESPONSE_PENDING
NEXT[RESPONSE_PENDING][THROTTLE_STARTED] = THROTTLED_AND_PENDING
NEXT[RESPONSE_PENDING][RESPONSE_SENT] = MUTED
NEXT[THROTTLED_AND_PENDING][RESPONSE_SENT] = THROTTLED
NEXT[THROTTLED_AND_PENDING][THROTTLE_ENDED] = RESPONSE_PENDING
NEXT[THROTTLED][THROTTLE_ENDED] = MUTED
NEXT[MUTED][UNMUTE] = NOT_MUTED


cdef int after(int state, int event) except -1:
    """The state after an event. AssertionError for an event that cannot happen in this state."""
    cdef int found = NEXT[state][event]
    if found < 0:
        raise AssertionError(f"{EVENT_NAMES[event]} while {STATE_NAMES[state]}")
    return found
