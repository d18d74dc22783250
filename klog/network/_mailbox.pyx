"""Messages from other threads to a thread that waits in epoll: a queue, and an eventfd that ends the wait.

  M1  a message that is posted is taken: it is in the queue before the eventfd is written
  M2  the eventfd is written only if the thread sleeps, and once: a busy loop costs its senders no system call

The steps of each side happen under the GIL, without a call in between that could release it. The owner registers the
eventfd edge-triggered, and so never reads it.
"""

cimport cython
from posix.unistd cimport write
from libc.stdint cimport uint64_t

import os
from collections import deque


@cython.final
cdef class Mailbox:
    """Messages to one thread, which owns it. Any thread may post."""

    def __cinit__(self):
        self.fd = -1
        self.messages = deque()
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    cdef int post(self, message) except -1:
        cdef uint64_t one = 1
        self.messages.append(message)
        if self.sleeping:
            self.sleeping = False
            write(self.fd, &one, sizeof(one))   # fails only if the counter is full, and then the thread wakes up too
        return 0

    cdef bint may_sleep(self) noexcept:
        """Owner: from now on a message writes the eventfd. False if there is a message already."""
        self.sleeping = len(self.messages) == 0
        return self.sleeping

    def send(self, message):
        """Post a message. Any thread."""
        self.post(message)

    def receive(self):
        """Owner, awake: remove all messages and return them, oldest first."""
        self.sleeping = False
        if not self.messages:
            return ()
        found = list(self.messages)
        self.messages.clear()
        return found

    @property
    def size(self):
        """Number of messages. Any thread."""
        return len(self.messages)

    def sleeps(self):
        """Owner: announce a wait. False if there are messages, so that it must not wait."""
        return self.may_sleep()

    def close(self):
        """Close the eventfd. Messages that are posted later are kept and never taken."""
        self.sleeping = False
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
