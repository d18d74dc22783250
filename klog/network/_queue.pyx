"""The queue between network threads and handler threads: at most `limit` requests. Kafka: RequestChannel.

A full queue refuses a request; its network thread keeps it, and does not read that connection meanwhile. Once a request
has been taken, the thread is notified.
"""

cimport cython

from klog.network._mailbox cimport Mailbox
from klog.network._network_thread cimport QUEUE_SPACE

from queue import SimpleQueue


@cython.final
cdef class RequestQueue:
    """Requests in order of arrival. Any thread, under the GIL."""

    cdef object items
    cdef set waiting
    cdef readonly int limit
    cdef readonly int size

    def __cinit__(self, int limit):
        self.items = SimpleQueue()
        self.waiting = set()
        self.limit = limit

    def offer(self, request, Mailbox mailbox):
        """Append a request. False if the queue is full: the mailbox is notified once it has space."""
        if self.size >= self.limit:
            self.waiting.add(mailbox)
            return False
        self.size += 1
        self.items.put(request)
        return True

    def take(self):
        """Wait for the next request and remove it; None: this handler thread is to end."""
        cdef Mailbox mailbox
        request = self.items.get()
        if request is None:
            return None
        self.size -= 1
        while self.waiting:
            mailbox = self.waiting.pop()
            mailbox.post((QUEUE_SPACE, None))
        return request

    def end_one(self):
        """Let one handler thread end, after the requests before."""
        self.items.put(None)
