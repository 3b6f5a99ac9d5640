# C types of _ids.py; see _scan.pxd. Hashes are made of unsigned numbers, and kept as signed ones.
cimport cython

cdef unsigned long long _MASK, _MASK_63, _BASIS, _PRIME, _MIX
cdef long long _SIGN, _WRAP
cdef int _UNIQUE_KEY, _REAL_TOPIC, _LAST_OF_MAGIC_V2

cpdef long long text_hash(const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end) noexcept

@cython.locals(
    row=cython.Py_ssize_t, at=cython.Py_ssize_t, end=cython.Py_ssize_t, flag=cython.int,
    body=cython.Py_ssize_t, topic=cython.Py_ssize_t, topic_end=cython.Py_ssize_t,
    value=cython.ulonglong,
)
cpdef void scan_ids(
    const unsigned char[::1] span, long long[::1] starts, long long[::1] ends,
    long long[::1] waiting, long long[::1] topics, long long[::1] ids, long long[::1] id_starts,
    long long[::1] id_ends, long long[::1] topic_starts, long long[::1] topic_ends,
    long long[::1] fields,
) noexcept

@cython.locals(
    row=cython.Py_ssize_t, one=cython.Py_ssize_t, at=cython.Py_ssize_t, start=cython.Py_ssize_t,
)
cpdef void compare_ids(
    const unsigned char[::1] payload, long long[::1] payload_columns,
    const unsigned char[::1] span, long long[::1] span_columns, long long[::1] queue_ids,
    long long[::1] queue_offsets, long long[::1] store_times, long long[::1] sameness,
) noexcept

@cython.locals(
    mask=cython.longlong, row=cython.Py_ssize_t, value=cython.longlong, slot=cython.longlong,
)
cpdef void find_ids(
    long long[::1] table, long long[::1] places, long long[::1] wanted, long long[::1] found,
) noexcept

@cython.locals(
    mask=cython.longlong, row=cython.Py_ssize_t, value=cython.longlong, slot=cython.longlong,
    fresh=cython.Py_ssize_t,
)
cpdef Py_ssize_t put_ids(
    long long[::1] table, long long[::1] places, long long[::1] hashes, long long[::1] positions,
) noexcept

@cython.locals(
    items=cython.longlong, found=cython.Py_ssize_t, row=cython.Py_ssize_t, wanted=cython.longlong,
    begun=cython.Py_ssize_t, number=cython.longlong, newest=cython.longlong,
    steps=cython.longlong, at=cython.longlong, seconds=cython.longlong, is_cut=cython.bint,
)
cpdef tuple find_keys(
    const unsigned char[::1] file, long long slot_count, long long item_count,
    long long begin_time, long long[::1] hashes, long long[::1] since, Py_ssize_t first,
    long long[::1] rows, long long[::1] positions, long long steps_max, Py_ssize_t found_max,
)

@cython.locals(value=cython.ulonglong, at=cython.Py_ssize_t)
cdef unsigned long long _hash(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end, unsigned long long seed,
) noexcept

@cython.locals(mixed=cython.ulonglong)
cdef long long _mixed(unsigned long long value) noexcept

@cython.locals(item=cython.Py_ssize_t)
cdef bint _is_among(long long[::1] waiting, long long value) noexcept

@cython.locals(at=cython.Py_ssize_t)
cdef bint _are_same(
    const unsigned char[::1] one, Py_ssize_t start, Py_ssize_t end,
    const unsigned char[::1] other, Py_ssize_t other_start, Py_ssize_t other_end,
) noexcept

@cython.locals(
    at=cython.Py_ssize_t, name_end=cython.Py_ssize_t, segment_end=cython.Py_ssize_t,
    item=cython.int,
)
cdef void _find_properties(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end, long long[::1] fields,
) noexcept

cdef extern from *:
    """
    /* In one load: another process may write there meanwhile. */
    static inline long long ledgermq_load32(const unsigned char *at) {
        unsigned int value;
        memcpy(&value, at, sizeof value);
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        value = __builtin_bswap32(value);
    #endif
        return value;
    }
    """
    long long ledgermq_load32(const unsigned char *at) noexcept

cdef inline long long _u32(const unsigned char[::1] span, Py_ssize_t at) noexcept:
    return ledgermq_load32(&span[at])

@cython.locals(value=cython.longlong)
cdef long long _i32(const unsigned char[::1] span, Py_ssize_t at) noexcept

@cython.locals(high=cython.longlong)
cdef long long _i64(const unsigned char[::1] span, Py_ssize_t at) noexcept
