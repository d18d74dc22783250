# cython: auto_pickle=False
"""The entry of one producer id: its epoch, its last five batches, its open transaction.

Sequence numbers count records and wrap from 2^31-1 to 0. Kafka: ProducerStateEntry, BatchMetadata.
"""

cimport cython
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t

from klog._c.batch cimport KL_ATTR_CONTROL, KL_ATTR_TRANSACTIONAL, kl_batch_last_offset, kl_batch_t

from klog.log.state.producer_state import ProducerState

cdef enum:
    BATCHES_MAX = 5
    SEQUENCE_MASK = 0x7FFFFFFF

BATCHES_KEPT = BATCHES_MAX


cpdef int64_t last_sequence_of(int64_t base_sequence, int64_t last_offset_delta) noexcept:
    """The last sequence number of a batch, -1 for one without."""
    return -1 if base_sequence < 0 else (base_sequence + last_offset_delta) & SEQUENCE_MASK


@cython.final
@cython.freelist(16)
cdef class DataBatch:
    """A batch that a producer wrote: enough to recognize a duplicate and to return its offsets. Immutable."""

    def __init__(self, int64_t last_sequence, int64_t last_offset, int64_t offset_delta, int64_t timestamp):
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp

    cdef tuple what(self):
        return self.last_sequence, self.last_offset, self.offset_delta, self.timestamp

    def __eq__(self, other):
        return type(other) is DataBatch and self.what() == (<DataBatch>other).what()

    def __hash__(self):
        return hash(self.what())

    def __repr__(self):
        return (f"DataBatch(last_sequence={self.last_sequence}, last_offset={self.last_offset}, "
                f"offset_delta={self.offset_delta}, timestamp={self.timestamp})")

    @property
    def first_sequence(self):
        """Sequence number of its first record."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self):
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


cdef inline void put_item(tuple made, Py_ssize_t i, object item) noexcept:
    """Put an item into a new tuple."""
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, i, item)


@cython.final
@cython.freelist(16)
cdef class ProducerEntry:
    """The state of one producer. An append changes a copy, which then replaces the entry."""

    def __init__(self, int64_t producer_id, int64_t epoch=-1):
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.timestamp = -1
        self.batches = ()

    @staticmethod
    def of(int64_t producer_id, state):
        """The entry of a snapshot."""
        cdef ProducerEntry entry = ProducerEntry(producer_id, state.epoch)
        entry.coordinator_epoch, entry.timestamp = state.coordinator_epoch, state.timestamp
        entry.txn_first_offset = state.current_txn_first_offset
        if state.last_offset >= 0:
            entry.batches = (DataBatch(state.last_sequence, state.last_offset, state.offset_delta, state.timestamp),)
        return entry

    cpdef ProducerEntry copy(self):
        """A copy for an append to change."""
        cdef ProducerEntry entry = ProducerEntry.__new__(ProducerEntry)
        entry.producer_id, entry.epoch = self.producer_id, self.epoch
        entry.coordinator_epoch, entry.timestamp = self.coordinator_epoch, self.timestamp
        entry.txn_first_offset, entry.batches = self.txn_first_offset, self.batches
        return entry

    @property
    def state(self):
        """The state as users and snapshots see it."""
        cdef DataBatch last = self.batches[len(self.batches) - 1] if self.batches else DataBatch(-1, -1, 0, -1)
        return ProducerState(
            self.epoch, last.last_sequence, last.last_offset, last.offset_delta, self.timestamp, self.coordinator_epoch,
            self.txn_first_offset,
        )

    @property
    def last_sequence(self):
        """Of its last data batch, -1 for none."""
        return self.batches[len(self.batches) - 1].last_sequence if self.batches else -1

    @property
    def last_offset(self):
        """Of its last data batch, -1 for none."""
        return self.batches[len(self.batches) - 1].last_offset if self.batches else -1

    cdef int take_epoch(self, int64_t epoch) except -1:
        """Set the epoch. A new epoch forgets the batches of the last one."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = ()
        return 0

    cpdef add(self, int64_t epoch, DataBatch batch):
        """Add a data batch. Only the last five are kept."""
        cdef tuple before, after
        cdef Py_ssize_t i, kept, left_out
        self.take_epoch(epoch)
        before = self.batches
        kept = min(len(before), <Py_ssize_t>BATCHES_MAX - 1)
        left_out = len(before) - kept
        after = PyTuple_New(kept + 1)       # one tuple, where a slice and a sum would be three
        for i in range(kept):
            put_item(after, i, before[left_out + i])
        put_item(after, kept, batch)
        self.batches = after
        self.timestamp = batch.timestamp

    def end_transaction(self, int64_t epoch, int64_t coordinator_epoch, int64_t timestamp):
        """Apply a marker."""
        self.take_epoch(epoch)
        self.coordinator_epoch, self.timestamp, self.txn_first_offset = coordinator_epoch, timestamp, None

    def duplicate(self, int64_t epoch, int64_t base_sequence, int64_t last_sequence):
        """The remembered batch with exactly these sequence numbers, None if there is none."""
        return self.remembered(base_sequence, last_sequence) if epoch == self.epoch else None

    cdef DataBatch remembered(self, int64_t base_sequence, int64_t last_sequence):
        cdef DataBatch batch
        for batch in self.batches:
            if batch.last_sequence == last_sequence and (
                (batch.last_sequence - batch.offset_delta) & SEQUENCE_MASK == base_sequence
            ):
                return batch
        return None

    cdef bint continues(self, const kl_batch_t *b, bint client):
        """Is this data batch the next one: of the same epoch, in the open transaction if there is one, and for a client
        with the next sequence number? Any other batch is for ProducerAppend, which has the rules."""
        cdef DataBatch last
        cdef bint in_transaction = (b.attributes & KL_ATTR_TRANSACTIONAL) != 0
        if b.attributes & KL_ATTR_CONTROL or b.producer_epoch != self.epoch or not self.batches:
            return False
        if in_transaction != (self.txn_first_offset is not None):
            return False
        if not client:
            return True
        last = self.batches[len(self.batches) - 1]
        if b.base_sequence != ((last.last_sequence + 1) & SEQUENCE_MASK):
            return False
        return self.remembered(b.base_sequence, last_sequence_of(b.base_sequence, b.last_offset_delta)) is None

    cdef int take(self, const kl_batch_t *b) except -1:
        """Add a batch that continues this entry."""
        cdef DataBatch batch = DataBatch.__new__(DataBatch)     # arguments would be Python ints
        batch.last_sequence = last_sequence_of(b.base_sequence, b.last_offset_delta)
        batch.last_offset, batch.offset_delta = kl_batch_last_offset(b), b.last_offset_delta
        batch.timestamp = b.max_timestamp
        self.add(self.epoch, batch)
        return 0
