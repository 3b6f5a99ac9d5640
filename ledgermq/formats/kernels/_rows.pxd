# What pure-Python mode cannot say of _rows.py: a copy, and a call through a C function's address.
from libc.string cimport memcpy

cdef inline void _copy(
    unsigned char[::1] out, Py_ssize_t to, const unsigned char[::1] span, Py_ssize_t start,
    Py_ssize_t size,
) noexcept:
    memcpy(&out[to], &span[start], size)

cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>
    typedef uint32_t (*ledgermq_rows_crc32)(uint32_t, const unsigned char *, uint64_t);
    static uint32_t call_crc32(
        size_t function, uint32_t value, const unsigned char *data, size_t size)
    {
        return ((ledgermq_rows_crc32)function)(value, data, size);
    }
    """
    unsigned int call_crc32(
        size_t function, unsigned int value, const unsigned char *data, size_t size
    ) noexcept
