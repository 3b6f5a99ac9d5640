# C types of _link.py; see _scan.pxd.
cimport cython

cdef long long _MASK, _SIGN, _WRAP

@cython.locals(
    slot_count=cython.longlong, mask=cython.longlong, place=cython.Py_ssize_t,
    fresh=cython.Py_ssize_t, count=cython.longlong, key=cython.Py_ssize_t,
    key_hash=cython.longlong, slot=cython.longlong, previous=cython.longlong,
    row=cython.Py_ssize_t, store_time=cython.longlong, seconds=cython.longlong,
    at=cython.Py_ssize_t, position=cython.longlong,
)
cpdef Py_ssize_t link_keys(
    const unsigned char[::1] slots, int[::1] key_hashes, int[::1] key_rows, Py_ssize_t first,
    Py_ssize_t last, long long[::1] positions, long long[::1] store_times, long long index_count,
    long long begin_time, unsigned char[::1] items, int[::1] heads,
) noexcept

@cython.locals(slot_count=cython.longlong, key=cython.Py_ssize_t, slot=cython.longlong)
cpdef void set_slots(
    unsigned char[::1] slots, int[::1] key_hashes, Py_ssize_t first, Py_ssize_t last,
    long long index_count,
) noexcept

@cython.locals(place=cython.Py_ssize_t)
cdef Py_ssize_t _place_of(int[::1] heads, long long slot, long long mask) noexcept

cdef extern from *:
    """
    /* In one store: another process may read there meanwhile. */
    static inline void ledgermq_store32(unsigned char *at, unsigned int value) {
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        value = __builtin_bswap32(value);
    #endif
        memcpy(at, &value, sizeof value);
    }
    """
    void ledgermq_store32(unsigned char *at, unsigned int value) noexcept

cdef inline void _put32(unsigned char[::1] octets, Py_ssize_t at, long long value) noexcept:
    ledgermq_store32(&octets[at], <unsigned int>value)

@cython.locals(high=cython.longlong, value=cython.longlong)
cdef long long _get32(const unsigned char[::1] octets, Py_ssize_t at) noexcept
