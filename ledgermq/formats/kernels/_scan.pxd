# C types of _scan.py: Cython reads this file for the module of the same name, Python never does.
# Everything is a signed 64-bit number: hashes are masked to 32 bits, and 31 times one still fits.
cimport cython

cdef long long _MASK, _SIGN, _WRAP, _UNREADABLE
cdef long long _MESSAGE_MAGIC, _MESSAGE_MAGIC_V2, _BLANK_MAGIC, _ENTRY_BLANK, _MESSAGE_SIZE_MIN
cdef int _END, _FULL, _CUT, _BAD_MAGIC, _BAD_SIZE, _BAD_POSITION, _BAD_BODY_SIZE
cdef int _BAD_MESSAGE_MAGIC, _BAD_MESSAGE_SIZE, _BAD_BLANK
cdef int _TAGS, _KEYS, _UNIQUE_KEY, _DELAY, _TOPIC
cdef int _NO_UNIT, _MALFORMED
cdef long long _REPLACEMENT

cdef long long _u16(const unsigned char[::1] span, Py_ssize_t at) noexcept

@cython.locals(high=cython.longlong, low=cython.longlong)
cdef long long _u32(const unsigned char[::1] span, Py_ssize_t at) noexcept

@cython.locals(value=cython.longlong)
cdef long long _i32(const unsigned char[::1] span, Py_ssize_t at) noexcept

@cython.locals(high=cython.longlong)
cdef long long _i64(const unsigned char[::1] span, Py_ssize_t at) noexcept

@cython.locals(
    count=cython.Py_ssize_t, at=cython.Py_ssize_t, status=cython.int, room=cython.Py_ssize_t,
    first=cython.longlong, second=cython.longlong, size=cython.longlong, blank=cython.bint,
)
cpdef tuple scan_entries(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end, Py_ssize_t header_size,
    long long base, long long[::1] starts, long long[::1] sizes,
)

@cython.locals(message=cython.Py_ssize_t, size=cython.longlong)
cdef int _check_entry(
    const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t end, Py_ssize_t header_size,
    long long base,
) noexcept

cdef bint _is_message_magic(long long magic) noexcept

@cython.locals(
    value=cython.longlong, at=cython.Py_ssize_t, octet=cython.int, first=cython.int,
    second=cython.int, third=cython.int, four=cython.int,
)
cpdef long long java_hash(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end, long long seed,
) noexcept

@cython.locals(
    value=cython.longlong, at=cython.Py_ssize_t, first=cython.longlong, length=cython.int,
    unit=cython.longlong, point=cython.longlong,
)
cdef long long _hash_decoded(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end, long long seed,
) noexcept

@cython.locals(first=cython.int, wanted=cython.int, low=cython.int, high=cython.int, length=cython.int)
cdef int _sequence_length(
    const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t end,
) noexcept

@cython.locals(size=cython.Py_ssize_t, name=cython.longlong)
cdef int _property_of(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end,
) noexcept

@cython.locals(
    sys_flag=cython.longlong, body=cython.Py_ssize_t, body_size=cython.longlong,
    topic=cython.Py_ssize_t, topic_end=cython.Py_ssize_t, size=cython.longlong,
    level=cython.longlong, code=cython.longlong, wide=cython.int,
)
cdef long long _read_message(
    const unsigned char[::1] span, Py_ssize_t at, Py_ssize_t end, long long base,
    long long[::1] delays, long long[::1] fields,
) noexcept

@cython.locals(
    item=cython.int, at=cython.Py_ssize_t, name_end=cython.Py_ssize_t,
    segment_end=cython.Py_ssize_t,
)
cdef void _find_properties(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end, long long[::1] fields,
) noexcept

@cython.locals(
    room=cython.Py_ssize_t, key=cython.Py_ssize_t, at=cython.Py_ssize_t, end=cython.Py_ssize_t,
    piece_end=cython.Py_ssize_t,
)
cdef long long _put_keys_of(
    const unsigned char[::1] span, long long[::1] fields, long long seed, Py_ssize_t row,
    int[::1] key_hashes, int[::1] key_rows, Py_ssize_t first, bint with_tags,
) noexcept

@cython.locals(row=cython.Py_ssize_t)
cpdef void hash_keys(
    const unsigned char[::1] span, long long[::1] starts, long long[::1] ends, long long seed,
    long long[::1] hashes,
) noexcept

cdef long long _absolute(long long value) noexcept

cdef bint _is_schedule_topic(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t size,
) noexcept

@cython.locals(at=cython.Py_ssize_t, negative=cython.bint, value=cython.longlong)
cdef long long _parse_int(
    const unsigned char[::1] span, Py_ssize_t start, Py_ssize_t end,
) noexcept

@cython.locals(
    mask=cython.longlong, size=cython.Py_ssize_t, slot=cython.longlong, group=cython.Py_ssize_t,
    other=cython.Py_ssize_t, at=cython.Py_ssize_t,
)
cdef Py_ssize_t _intern(
    const unsigned char[::1] span, Py_ssize_t topic, long long queue_id, long long topic_hash,
    long long[::1] group_topics, long long[::1] group_queues, Py_ssize_t count, int[::1] table,
) noexcept

@cython.locals(
    slot=cython.Py_ssize_t, keys=cython.Py_ssize_t, group_count=cython.Py_ssize_t,
    malformed=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t,
    end=cython.Py_ssize_t, sys_flag=cython.longlong, code=cython.longlong,
    topic=cython.Py_ssize_t, topic_hash=cython.longlong, transaction=cython.longlong,
    added=cython.longlong, group=cython.Py_ssize_t,
)
cpdef tuple dispatch_span(
    const unsigned char[::1] span, long long base, long long[::1] starts, long long[::1] sizes,
    Py_ssize_t first, Py_ssize_t last, long long[::1] delays, bint with_keys,
    bint with_tags, long long[::1] queue_offsets, long long[::1] store_times,
    long long[::1] tags_codes, int[::1] groups, int[::1] key_hashes, int[::1] key_rows,
    long long[::1] group_topics, long long[::1] group_queues, int[::1] table, long long[::1] fields,
)

@cython.locals(
    number=cython.Py_ssize_t, start=cython.Py_ssize_t, sys_flag=cython.longlong,
    place=cython.Py_ssize_t,
)
cpdef Py_ssize_t first_delayed(
    const unsigned char[::1] payload, Py_ssize_t at, const unsigned int[::1] sizes,
    Py_ssize_t first, Py_ssize_t count, Py_ssize_t header_size,
) noexcept
