# cython: auto_pickle=False
"""Programs: the layouts that csrc/wire.c reads, one for each version of a message, compiled when it is first used."""

cimport cython
from cpython.dict cimport PyDict_GetItemWithError
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from klog._c.status cimport (
    KL_ECOUNT, KL_ELENGTH, KL_ENULL, KL_EORDER, KL_EOVERLONG, KL_ERANGE, KL_ESLACK, KL_ETRUNCATED, KL_EUTF8,
)
from klog.protocol._message cimport Shape

from klog.arguments import whole, wrong_type
from klog.errors import UnsupportedVersion

from klog.protocol._message import Message

cdef dict TEXTS = {
    KL_ETRUNCATED: "the bytes end inside a value",
    KL_EOVERLONG: "a varint is too long",
    KL_ELENGTH: "a length is invalid",
    KL_ECOUNT: "more elements than the remaining bytes can hold",
    KL_ENULL: "null is not allowed",
    KL_EORDER: "tags do not rise",
    KL_ESLACK: "bytes are left over after the last field",
    KL_EUTF8: "not valid UTF-8",
    KL_ERANGE: "the integer is out of the range of its type",
}


cdef str text_of(int status):
    return TEXTS.get(status) or f"status {status}"


cdef class Program:
    """code: from Layout.compile()."""

    def __cinit__(self, code, str name, int version, dict classes=None):
        cdef Py_ssize_t number
        self.name, self.version = name, version
        self.names = tuple(field.name for field in code.fields)
        self.structs = <kl_wire_struct_t *>PyMem_Calloc(len(code.structs) + 1, sizeof(kl_wire_struct_t))
        self.fields = <kl_wire_field_t *>PyMem_Calloc(len(code.fields) + 1, sizeof(kl_wire_field_t))
        if not (self.structs and self.fields):
            raise MemoryError
        self.c = kl_wire_program_t(self.structs, self.fields)
        for number, field in enumerate(code.fields):
            self.fields[number] = kl_wire_field_t(field.kind, field.flags, field.child, field.tag, field.element_min)
        for number, struct in enumerate(code.structs):
            self.structs[number] = kl_wire_struct_t(
                struct.first, struct.plain, struct.tagged, struct.absent, struct.flexible
            )

    def __dealloc__(self):
        PyMem_Free(self.structs)
        PyMem_Free(self.fields)

    cdef str path(self, const kl_wire_location_t *location):
        steps = []
        for depth in range(location.depth):
            name = self.names[location.steps[depth].field - self.fields]
            index = location.steps[depth].index
            steps.append(name if index < 0 else f"{name}[{index}]")
        return ".".join(steps)


@cython.final
cdef class ObjectProgram(Program):
    """classes: the class of each struct, by its name."""

    def __cinit__(self, code, str name, int version, dict classes):
        cdef Py_ssize_t number, field
        cdef Shape shape
        self.kept = [classes[struct.name] for struct in code.structs]
        self.shapes = <PyObject **>PyMem_Calloc(len(code.structs) + 1, sizeof(PyObject *))
        self.offsets = <Py_ssize_t *>PyMem_Calloc(len(code.fields) + 1, sizeof(Py_ssize_t))
        self.numbers = <Py_ssize_t *>PyMem_Calloc(len(code.fields) + 1, sizeof(Py_ssize_t))
        self.errors = <bint *>PyMem_Calloc(len(code.fields) + 1, sizeof(bint))
        self.texts = <bint *>PyMem_Calloc(len(code.fields) + 1, sizeof(bint))
        if not (self.shapes and self.offsets and self.numbers and self.errors and self.texts):
            raise MemoryError
        for number, struct in enumerate(code.structs):
            shape = self.kept[number]._shape
            self.shapes[number] = <PyObject *>shape
            for field in range(struct.first, struct.first + struct.plain + struct.tagged + struct.absent):
                self.numbers[field] = shape.numbers[self.names[field]]
                self.offsets[field] = shape.offsets[self.numbers[field]]
                self.errors[field] = self.names[field].endswith("error_code")
                self.texts[field] = self.names[field].endswith("error_message")

    def __dealloc__(self):
        PyMem_Free(self.shapes)
        PyMem_Free(self.offsets)
        PyMem_Free(self.numbers)
        PyMem_Free(self.errors)
        PyMem_Free(self.texts)


@cython.final
cdef class Programs:
    """layout: of one message. make: the Program of (code, name, version)."""

    def __cinit__(self, layout, make):
        self.layout, self.make, self.made = layout, make, {}
        self.range = layout.versions.low, layout.versions.high

    cdef Program program(self, object version):
        cdef PyObject *found
        if type(version) is int:
            found = PyDict_GetItemWithError(self.made, version)
            if found != NULL:
                return <Program>found
        number, layout = whole("version", version), self.layout
        if number not in layout.versions:
            raise UnsupportedVersion(
                f"{layout.name} version {number}: klog knows versions {layout.versions.low} to {layout.versions.high}; "
                "use one of them"
            )
        made = self.made[number] = self.make(layout.compile(number), layout.name, number)
        return made


cdef ObjectProgram program_of(object owner, object version):
    programs = getattr(owner, "_programs", None) if isinstance(owner, type) else None
    if programs is not None and type(programs) is Programs:
        return <ObjectProgram?>(<Programs>programs).program(version)
    if isinstance(owner, type) and issubclass(owner, Message):
        raise TypeError(f"message={owner.__qualname__}: a whole message expected, not a struct in one")
    raise wrong_type("message", owner, "a message of klog.protocol.messages")
