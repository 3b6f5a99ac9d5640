# C types of _columns.py; see _scan.pxd.
cimport cython
from libc.string cimport memcpy

cdef inline void _copy(
    unsigned char[::1] out, Py_ssize_t to, const unsigned char[::1] span, Py_ssize_t start,
    Py_ssize_t size,
) noexcept:
    memcpy(&out[to], &span[start], size)

@cython.locals(row=cython.Py_ssize_t, to=cython.Py_ssize_t, size=cython.Py_ssize_t)
cpdef void join_slices(
    const unsigned char[::1] span, const long long[::1] starts, const long long[::1] ends,
    int[::1] bounds, unsigned char[::1] out,
) noexcept

@cython.locals(
    room=cython.Py_ssize_t, row=cython.Py_ssize_t, begin=cython.Py_ssize_t, pair=cython.Py_ssize_t,
    at=cython.Py_ssize_t, end=cython.Py_ssize_t, name_end=cython.Py_ssize_t,
    value_end=cython.Py_ssize_t,
)
cpdef Py_ssize_t split_properties(
    const unsigned char[::1] span, const long long[::1] starts, const long long[::1] ends,
    Py_ssize_t first, int[::1] bounds, long long[::1] name_starts, long long[::1] name_ends,
    long long[::1] value_ends,
) noexcept

@cython.locals(pair=cython.Py_ssize_t)
cdef Py_ssize_t _without(
    const unsigned char[::1] span, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t start,
    Py_ssize_t name_end, long long[::1] name_starts, long long[::1] name_ends,
    long long[::1] value_ends,
) noexcept

@cython.locals(at=cython.Py_ssize_t)
cdef bint _is_same(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end,
    const unsigned char[::1] other, Py_ssize_t other_start, Py_ssize_t other_end,
) noexcept

@cython.locals(count=cython.Py_ssize_t, row=cython.Py_ssize_t, pair=cython.Py_ssize_t)
cpdef Py_ssize_t find_property(
    const unsigned char[::1] span, int[::1] bounds, long long[::1] name_starts,
    long long[::1] name_ends, const unsigned char[::1] wanted, long long[::1] found,
) noexcept
