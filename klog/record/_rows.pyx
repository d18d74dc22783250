# cython: auto_pickle=False
"""Arrow columns as records to write: any object with __arrow_c_array__ or __arrow_c_stream__, of pyarrow or not.

  R1  an array or stream is moved out of its capsule and released once, with its last Rows.
  R2  one array of a stream is held at a time; the next one is requested when needed.
  R3  a stream is called without the GIL, also its release: it may take the GIL, or wait for a thread that does.

csrc/rows.h lists the types that a column may have.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from klog._c.arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema
from klog._c.rows cimport (
    KL_ROWS_MESSAGE, kl_rows_bind, kl_rows_point, kl_stream_next, kl_stream_schema,
)
from klog._c.status cimport KL_EMAGIC, KL_OK
from libc.errno cimport EINVAL, ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from klog.arguments import wrong_type


def is_arrow(records) -> bool:
    """Can RowSource take it: Rows, or an object with one of the two methods of the Arrow PyCapsule interface?"""
    return type(records) is Rows or hasattr(records, "__arrow_c_array__") or hasattr(records, "__arrow_c_stream__")


@cython.final
cdef class Rows:
    """Rows of one Arrow array, or some of them; len() is their number. Records for encode, Encoder and Log.append."""

    def __init__(self):
        raise TypeError("get rows from a RowSource")

    def __dealloc__(self):
        if self.array.release != NULL:
            with nogil:
                self.array.release(&self.array)
        free(self.picked)

    def __len__(self):
        return self.rows.length

    cdef Rows pick(self, int64_t n):
        """Return n of them. The caller writes their numbers into `picked` of the result, which frees it."""
        cdef Rows some = Rows.__new__(Rows)
        some.picked = <int64_t *>malloc(n * sizeof(int64_t))
        if some.picked == NULL:
            raise MemoryError
        some.whole = self
        some.first = self.first
        some.rows = self.rows
        some.rows.picked = some.picked
        some.rows.length = n
        return some


@cython.final
cdef class RowSource:
    """Iterates the Rows of any object with the Arrow C interface, array by array, without empty ones.

    Raises immediately, not at the first array: TypeError for a column of an unsupported type, ValueError for a missing
    or an unknown one. An error of a stream is raised as the exception of its code.
    """

    def __init__(self, records):
        cdef ArrowArray array
        cdef ArrowArray *given
        cdef ArrowArrayStream *stream
        cdef ArrowSchema schema
        cdef int status
        if self.stream.release != NULL or self.only is not None:
            raise ValueError("this source has its records already")
        if type(records) is Rows:
            self.only = records
        elif hasattr(records, "__arrow_c_array__"):
            capsules = records.__arrow_c_array__()
            given = <ArrowArray *>PyCapsule_GetPointer(capsules[1], "arrow_array")
            if given.release == NULL:
                raise ValueError("the Arrow array was already consumed")
            array = given[0]
            given.release = NULL    # moved: this object releases it from now on
            self.only = Rows.__new__(Rows)
            self.only.array = array
            self.bind(<ArrowSchema *>PyCapsule_GetPointer(capsules[0], "arrow_schema"))
            self.point(self.only)
        elif hasattr(records, "__arrow_c_stream__"):
            capsule = records.__arrow_c_stream__()
            stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
            if stream.release == NULL:
                raise ValueError("the Arrow stream was already consumed")
            self.stream = stream[0]
            stream.release = NULL
            memset(&schema, 0, sizeof(schema))
            with nogil:
                status = kl_stream_schema(&self.stream, &schema)
            if status != 0:
                self.fail(status)
            try:
                self.bind(&schema)
            finally:
                if schema.release != NULL:
                    schema.release(&schema)
        else:
            raise wrong_type("records", records, "an object with the Arrow C interface")

    def __dealloc__(self):
        if self.stream.release != NULL:
            with nogil:
                self.stream.release(&self.stream)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Rows rows = self.next_rows()
        if rows is None:
            raise StopIteration
        return rows

    cdef Rows next_rows(self):
        """Return the next rows, or None."""
        cdef Rows rows = self.only
        cdef ArrowArrayStream stream
        cdef int status
        if self.busy:
            raise ValueError("row source already executing")
        if rows is not None:
            self.only = None
            return rows if rows.rows.length != 0 else None
        while self.stream.release != NULL:
            rows = Rows.__new__(Rows)
            self.busy = True
            try:
                with nogil:
                    status = kl_stream_next(&self.stream, &rows.array)
            finally:
                self.busy = False
            if status != 0:
                rows.array.release = NULL   # a failed get_next leaves no array there
                self.fail(status)
            if rows.array.release == NULL:
                stream = self.stream
                self.stream.release = NULL
                with nogil:
                    stream.release(&stream)
                break
            self.point(rows)
            self.taken += rows.rows.length
            if rows.rows.length != 0:
                return rows
        return None

    cdef int bind(self, const ArrowSchema *schema) except -1:
        cdef char message[<int>KL_ROWS_MESSAGE]
        cdef int status = kl_rows_bind(schema, &self.layout, message)
        if status != KL_OK:
            self.refuse(status, message)
        return 0

    cdef int point(self, Rows rows) except -1:
        cdef char message[<int>KL_ROWS_MESSAGE]
        cdef int status
        rows.rows = self.layout
        rows.first = self.taken
        status = kl_rows_point(&rows.rows, &rows.array, message)
        if status != KL_OK:
            self.refuse(status, message)
        return 0

    cdef int refuse(self, int status, const char *message) except -1:
        text = (<bytes>message).decode("utf-8", "replace")
        if status == KL_EMAGIC:
            raise TypeError(f"Arrow records: {text}")
        raise ValueError(f"Arrow records: {text}")

    cdef int fail(self, int status) except -1:
        cdef const char *reason = self.stream.get_last_error(&self.stream)
        text = (<bytes>reason).decode("utf-8", "replace") if reason != NULL else "no reason given"
        if status == ENOMEM:
            raise MemoryError(f"the Arrow stream failed: {text}")
        if status == EINVAL:
            raise ValueError(f"the Arrow stream failed: {text}")
        raise OSError(status, f"the Arrow stream failed: {text}")
