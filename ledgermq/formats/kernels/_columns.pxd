# C types of _columns.py; see _scan.pxd.
cimport cython
from libc.string cimport memchr, memcpy

cdef inline void _copy(
    unsigned char[::1] out, Py_ssize_t to, const unsigned char[::1] span, Py_ssize_t start,
    Py_ssize_t size,
) noexcept:
    memcpy(&out[to], &span[start], size)

cdef extern from *:
    """
    /* A load that nothing waits for: what it brings into the cache is all that it is for. */
    #define LEDGERMQ_TOUCH(at) ((void)*(const volatile unsigned char *)(at))
    """
    void LEDGERMQ_TOUCH(const void *at) noexcept

cdef inline void _touch(const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t size) noexcept:
    if at >= 0 and size > _HEAD_SIZE and at + size <= span.shape[0]:
        LEDGERMQ_TOUCH(&span[at])
        LEDGERMQ_TOUCH(&span[at + 64])
        LEDGERMQ_TOUCH(&span[at + size - _HEAD_SIZE])
        LEDGERMQ_TOUCH(&span[at + size - 1])

cdef inline Py_ssize_t _find(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end, int octet
) noexcept:
    if start >= end:
        return end
    cdef const unsigned char *found
    found = <const unsigned char *>memchr(&span[start], octet, end - start)
    return end if found == NULL else found - &span[0]

cdef int _HEAD_SIZE, _ENTRY_SIZE, _MAGIC, _MAGIC_V2, _BORN_V6, _STORE_V6, _V6_EXTRA, _AHEAD

cdef inline int _i32(const unsigned char[::1] span, Py_ssize_t at) noexcept:
    return <int>(
        (<unsigned int>span[at] << 24) | (<unsigned int>span[at + 1] << 16)
        | (<unsigned int>span[at + 2] << 8) | <unsigned int>span[at + 3]
    )

cdef inline long long _i64(const unsigned char[::1] span, Py_ssize_t at) noexcept:
    return <long long>(
        (<unsigned long long><unsigned int>_i32(span, at) << 32) | <unsigned int>_i32(span, at + 4)
    )

@cython.locals(
    count=cython.Py_ssize_t, last=cython.Py_ssize_t, ahead=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t,
    fault=cython.int,
)
cpdef Py_ssize_t read_heads(
    const unsigned char[::1] span, const long long[::1] starts, const long long[::1] sizes,
    Py_ssize_t header_size, long long base, long long[::1] fields, Py_ssize_t stride,
) noexcept

@cython.locals(magic=cython.int)
cdef int _head_fault(
    const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t size, Py_ssize_t header_size,
    long long base, Py_ssize_t last,
) noexcept

@cython.locals(
    sys_flag=cython.int, born=cython.Py_ssize_t, both=cython.Py_ssize_t, body=cython.Py_ssize_t,
    size=cython.Py_ssize_t, body_end=cython.Py_ssize_t, topic=cython.Py_ssize_t,
    topic_end=cython.Py_ssize_t,
)
cdef int _read_head(
    const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t end, Py_ssize_t row,
    Py_ssize_t stride, long long[::1] fields,
) noexcept

@cython.locals(row=cython.Py_ssize_t, to=cython.Py_ssize_t, size=cython.Py_ssize_t)
cpdef void join_slices(
    const unsigned char[::1] span, const long long[::1] starts, const long long[::1] ends,
    Py_ssize_t first, Py_ssize_t end, int[::1] bounds, unsigned char[::1] out,
) noexcept

@cython.locals(row=cython.Py_ssize_t, number=cython.Py_ssize_t)
cpdef Py_ssize_t find_other(
    const unsigned char[::1] span, const long long[::1] starts, const long long[::1] ends,
    const unsigned char[::1] names, const int[::1] bounds, const long long[::1] numbers,
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
