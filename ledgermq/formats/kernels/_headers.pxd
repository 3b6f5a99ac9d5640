# C types of _headers.py; see _scan.pxd.
cimport cython
from cpython.unicode cimport PyUnicode_DecodeASCII

cdef int _QUOTE, _BACKSLASH, _OPEN, _CLOSE, _COMMA, _COLON, _MINUS, _ZERO
cdef long long _INT32_MAX
cdef Py_ssize_t _behind

cdef inline str _ascii(const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t stop):
    return PyUnicode_DecodeASCII(<const char *>&span[0] + start, stop - start, NULL)

@cython.locals(
    seen=cython.int, bit=cython.int, code=cython.longlong, opaque=cython.longlong,
    flag=cython.longlong, version=cython.longlong, number=cython.longlong, at=cython.Py_ssize_t,
    key=str, fields=dict,
)
cpdef scan_header(const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end)

@cython.locals(name=str, value=str)
cdef _read_fields(const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t end, dict fields)

@cython.locals(is_negative=cython.bint, first=cython.Py_ssize_t, value=cython.longlong)
cdef long long _number(const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(start=cython.Py_ssize_t, octet=cython.int)
cdef str _text(const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t end)

@cython.locals(out=bytearray, size=cython.Py_ssize_t, octet=cython.int)
cdef str _unescaped(const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t end)

@cython.locals(mark=cython.int, value=cython.int)
cdef int _escape(const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t end) noexcept

cdef int _nibble(int digit) noexcept
