cdef enum:
    NOT_MUTED
    MUTED
    RESPONSE_PENDING
    THROTTLED_AND_PENDING
    THROTTLED
    STATES

cdef enum:
    MUTE
    REQUEST_RECEIVED
    THROTTLE_STARTED
    RESPONSE_SENT
    THROTTLE_ENDED
    UNMUTE
    EVENTS

cdef int after(int state, int event) except -1
