# The one thing of _stamp.py that pure-Python mode cannot say: a call through a C function's address.

cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>
    typedef uint32_t (*ledgermq_crc32)(uint32_t, const unsigned char *, uint64_t);
    static uint32_t call_crc32(
        size_t function, uint32_t value, const unsigned char *data, size_t size)
    {
        return ((ledgermq_crc32)function)(value, data, size);
    }
    """
    unsigned int call_crc32(
        size_t function, unsigned int value, const unsigned char *data, size_t size
    ) noexcept
