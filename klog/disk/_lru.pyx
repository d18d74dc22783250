"""The most recently used values of a kind, at most `limit` of them: open files, mapped indexes.

A linked list from the newest to the oldest, and a dict from key to link, which owns the links. A caller that holds an
evicted value keeps it; the value is closed when its last reference is dropped. Any thread: each call is one step under
the GIL. A value is released only after the list is consistent again.
"""

cimport cython


@cython.final
cdef class _Link:
    cdef object key
    cdef object value
    cdef void *newer
    cdef void *older


@cython.final
cdef class Lru:
    """Values by key; evicts the least recently used value first."""

    cdef dict links
    cdef void *newest
    cdef void *oldest
    cdef readonly Py_ssize_t limit

    def __cinit__(self, Py_ssize_t limit):
        if limit < 1:
            raise ValueError(f"limit={limit}: at least 1")
        self.links = {}
        self.limit = limit

    def __len__(self):
        return len(self.links)

    cdef void take_out(self, _Link link):
        if link.newer == NULL:
            self.newest = link.older
        else:
            (<_Link>link.newer).older = link.older
        if link.older == NULL:
            self.oldest = link.newer
        else:
            (<_Link>link.older).newer = link.newer
        link.newer = link.older = NULL

    cdef void put_first(self, _Link link):
        link.older = self.newest
        if self.newest == NULL:
            self.oldest = <void *>link
        else:
            (<_Link>self.newest).newer = <void *>link
        self.newest = <void *>link

    def find(self, key):
        """Return the value of key and make it the newest; None if it is not held."""
        cdef object found = self.links.get(key)
        cdef _Link link
        if found is None:
            return None
        link = <_Link>found
        if <void *>link != self.newest:
            self.take_out(link)
            self.put_first(link)
        return link.value

    def keep(self, key, value):
        """Hold value for key from now on. Returns value, or the value that another thread has stored first."""
        cdef object found = self.links.get(key)
        cdef _Link link, gone
        if found is not None:
            return (<_Link>found).value
        link = _Link.__new__(_Link)
        link.key = key
        link.value = value
        self.links[key] = link
        self.put_first(link)
        if len(self.links) > self.limit:
            gone = <_Link>self.oldest
            self.take_out(gone)
            del self.links[gone.key]
        return value

    def drop(self, key):
        """Forget key and its value, if it is held."""
        cdef object found = self.links.pop(key, None)
        if found is not None:
            self.take_out(<_Link>found)
