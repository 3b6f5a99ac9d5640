# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of plain frames in a leader's wait: from their producers' sockets to their answers.

What comes of producers on this machine is taken, stamped, written and sent to the followers where
the writer waits for it (``_wait``), frame by frame, by the checks of ``writer/lone_frames.py``, and
in the order of ``ProduceService.take_frames``. A frame that is not as most are, and all behind it
of the same producer, is left to them, with nothing changed. The state is theirs, lent for one wait.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, strerror

from ledgermq.formats.kernels._cells cimport (
    CLOCK_MONOTONIC,
    CLOCK_REALTIME,
    EPOLLIN,
    LMQ_EVENTS,
    LMQ_FIELDS,
    LOCK_UN,
    epoll_event,
    epoll_wait,
    flock,
    lmq_add,
    lmq_cell,
    lmq_give,
    lmq_lock,
    lmq_observe,
    lmq_publish,
    lmq_pwrite,
    lmq_ring,
    lmq_snapshot,
    lmq_take,
    lmq_time,
)

cdef enum:
    READ_SIZE = 64 * 1024
    STAGED_MAX = 1024 * 1024
    HEAD_SIZE = 8
    ITEM_SIZE = 32
    PUTS_MAX = 512
    RECORDS_MAX = 4096
    ANSWER_MAX = 1024

cdef object _new = tuple.__new__


cdef class PlainTurns:
    """Owned by a writer's wait.

    Attributes:
        commit: commit index that the line has told of since ``take`` began; -1 without one.
        is_left: something that has come is left to a turn.
    """

    cdef int64_t *_cells
    cdef readonly int64_t commit
    cdef readonly bint is_left
    cdef object _owner
    # What stays.
    cdef int _epoll
    cdef int _fence, _dispatcher_bell, _dispatcher_at, _run_at, _counters_at, _times_at
    cdef int _written, _committed, _put_lock
    cdef bint _waits_for_sync
    cdef int64_t _pid
    cdef dict _by_descriptor, _by_identity, _sessions
    cdef object _placed, _use, _unanswered, _waiting, _due_type, _cursor_type, _end_type
    cdef object _read_plain, _stamp_run, _crc32, _encode_sent
    cdef Py_ssize_t _header_size, _host_size, _record_max, _body_max, _blank
    cdef bytes _store_host
    cdef int _ack
    cdef epoll_event _events[LMQ_EVENTS]
    cdef uint8_t _received[READ_SIZE]
    cdef object _batch, _items
    cdef uint8_t *_bytes
    cdef list _staged
    # What is lent for one wait.
    cdef int64_t _run, _term
    cdef int64_t _position, _index, _chain, _chain_written
    cdef int _data_fd, _items_fd
    cdef int64_t _data_start, _data_blocks, _items_start, _items_at, _items_blocks
    cdef dict _topics, _offsets, _open, _sent
    cdef int64_t _client_max, _total_max, _frame_bytes
    cdef int64_t _taken, _slow, _recovered, _slow_ns
    cdef object _line, _led, _wake
    # What is staged.
    cdef Py_ssize_t _size, _records
    cdef int64_t _since, _timestamp
    cdef bint _has_written

    def __init__(self, size_t address, owner, places, descriptors, fixed):
        """Nothing is lent.

        Args:
            address: of the cursor page; nothing is called once that of ``SteadyWait`` is closed.
            owner: takes what is left.
            places, descriptors: see ``SteadyWait``.
            fixed: what stays; see ``PlainFixed`` of ``writer/steady_wait.py``.
        """
        self._cells = <int64_t *>address
        self._owner = owner
        self._epoll, self._times_at = fixed.local_epoll, fixed.times_at
        self._fence, _, self._dispatcher_bell = descriptors
        self._dispatcher_at, self._run_at = places.dispatcher_at, places.run_at
        self._counters_at = places.counters_at
        self._written, self._committed = places.written, places.committed
        self._put_lock = places.put_lock
        self._waits_for_sync = fixed.waits_for_sync
        self._pid = fixed.pid
        self._by_descriptor, self._by_identity = fixed.by_descriptor, fixed.by_identity
        self._sessions, self._placed, self._use = fixed.sessions, fixed.placed, fixed.use
        self._unanswered, self._waiting = fixed.unanswered, fixed.waiting
        self._due_type, self._cursor_type, self._end_type = fixed.types
        self._read_plain, self._stamp_run, self._crc32, self._encode_sent = fixed.functions
        self._header_size, self._host_size, self._record_max, self._body_max = fixed.form
        self._blank = fixed.blank_size
        self._store_host = fixed.store_host
        self._ack = fixed.ack
        self._batch = bytearray(STAGED_MAX)
        self._bytes = <uint8_t *><char *>self._batch
        self._items = bytearray(RECORDS_MAX * ITEM_SIZE)
        self._staged = []

    def lend(self, lent, line, led):
        """What a wait goes on with; see ``PlainLent`` of ``writer/steady_wait.py``.

        Args:
            line, led: of a leader's run; None in the run of a node alone.
        """
        data, items = lent.tails
        end = lent.end
        self._run, self._term = lent.run, lent.term
        self._position, self._index, self._chain = end[0], end[1], end[3]
        self._chain_written = self._chain
        self._data_fd, self._data_start, _, self._data_blocks = data
        self._items_fd = -1
        self._items_start = self._items_at = self._items_blocks = 0
        if items is not None:
            self._items_fd, self._items_start, self._items_at, self._items_blocks = items
        self._topics, self._offsets = lent.topics, lent.offsets
        self._open, self._sent = lent.followers, lent.sent
        self._client_max, self._total_max = lent.client_max, lent.total_max
        self._frame_bytes = lent.frame_bytes
        self._taken, self._slow, self._recovered, self._slow_ns = lent.put_lock
        self._line, self._led, self._wake = line, led, lent.wake
        self._timestamp = 0
        self._has_written = False

    def take_back(self):
        """Where the log ends now, None where it ends as before; and how often the put lock was
        taken in all.
        """
        self._line = self._led = self._wake = None
        self._topics = self._offsets = self._open = self._sent = None
        if not self._has_written:
            return None, self._taken
        return self._end(), self._taken

    cdef object _end(self):
        term = self._term if self._header_size else 0
        return _new(self._end_type, (self._position, self._index, term, self._chain_written))

    def take(self):
        """Take what producers have sent; whether all of it is done.

        Raises:
            OSError: the operating system refused to look.
        """
        cdef int count, k
        cdef list rest = []
        self.commit = -1
        self.is_left = False
        count = epoll_wait(self._epoll, self._events, LMQ_EVENTS, 0)
        if count < 0:
            raise OSError(errno, strerror(errno).decode())
        for k in range(count):
            connection = self._by_descriptor.get(self._events[k].data.fd)
            if (
                connection is None
                or self._events[k].events != EPOLLIN
                or connection.is_ready
                or connection.is_stranger
                or connection.reader.waits
                or connection.reader.messages
            ):
                self.is_left = True
            elif connection.reader.begun:
                self._take_begun(connection)
            else:
                self._take_small(connection, self._events[k].data.fd, rest)
        if self._staged:
            self._write()
        for connection, data in rest:
            self.is_left = True
            self._owner.feed_producer(connection, data)
        return not self.is_left

    cdef int _take_small(self, connection, int descriptor, list rest) except -1:
        """Take frames that come whole, and the beginning of one that does not."""
        cdef Py_ssize_t used
        cdef bint is_refused = False
        cdef ssize_t size = lmq_take(descriptor, self._received, READ_SIZE)
        if size <= 0:
            # Who reads next finds the same: that it has ended, or nothing.
            self.is_left = True
            return 0
        used = self._stage_all(connection, size, &is_refused)
        if used < size:
            data = PyBytes_FromStringAndSize(<const char *>self._received + used, size - used)
            if is_refused:
                # Behind what is written now, should that have to be put back.
                rest.append((connection, data))
            else:
                self._owner.feed_producer(connection, data)
                # Of a large frame the rest is mostly there.
                self._take_begun(connection)
        return 0

    cdef int _take_begun(self, connection) except -1:
        """Read on where a frame has begun, and take those that are whole now."""
        if not self._owner.read_producer(connection):
            return 0
        reader = connection.reader
        messages = reader.messages
        while messages:
            parts = messages[0]
            if len(parts) != 2 or not self._stage(connection, parts[0], parts[1]):
                break
            messages.popleft()
        if messages or reader.waits:
            self._owner.leave_producer(connection)
            self.is_left = True
        return 0

    cdef Py_ssize_t _stage_all(self, connection, Py_ssize_t size, bint *is_refused) except -1:
        """Stage the frames that were received; bytes of those."""
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t begin, middle, behind
        cdef uint32_t head[2]
        while size - at >= HEAD_SIZE:
            memcpy(head, self._received + at, HEAD_SIZE)
            begin = at + HEAD_SIZE
            middle = begin + head[0]
            behind = middle + head[1] - 1
            if head[1] < 2:
                is_refused[0] = True
                break
            if behind > size:
                break
            if not self._stage(
                connection,
                PyBytes_FromStringAndSize(<const char *>self._received + begin, middle - begin),
                PyBytes_FromStringAndSize(<const char *>self._received + middle, behind - middle),
            ):
                is_refused[0] = True
                break
            at = behind
        return at

    cdef bint _stage(self, connection, bytes head, bytes payload) except -1:
        """Check and stamp one frame, behind those that are staged; false: it is left."""
        cdef bytes identity = connection.identity
        cdef int64_t position, now
        cdef Py_ssize_t size = len(payload)
        cdef Py_ssize_t count
        cdef list runs
        if (
            len(self._staged) >= PUTS_MAX
            or self._records >= RECORDS_MAX
            or self._size + size > STAGED_MAX
            or self._position + self._size + size + self._blank > self._data_blocks
        ):
            return False
        session = self._sessions.get(identity)
        if session is None or session.is_refused:
            return False
        own = session.rights.peer
        if own is not connection.peer and own != connection.peer:
            return False
        if (
            <int64_t>session.in_flight + size > self._client_max
            or <int64_t>self._unanswered.total + size > self._total_max
        ):
            return False
        found = self._read_plain(
            head,
            payload,
            self._header_size,
            self._host_size,
            self._record_max,
            self._body_max,
            RECORDS_MAX - self._records,
            self._crc32,
        )
        if found is None:
            return False
        request_id, sizes, runs = found
        count = len(sizes)
        if (
            self._items_fd >= 0
            and self._items_at + (self._records + count) * ITEM_SIZE > self._items_blocks
        ):
            return False
        for _, queue_id, topic in runs:
            if (topic, queue_id) not in self._offsets or queue_id >= self._topics.get(topic, 0):
                return False
        if not self._staged:
            self._begin()
        now = lmq_time(CLOCK_REALTIME) // 1000000
        if now > self._timestamp:
            self._timestamp = now
        position = self._position + self._size
        memcpy(self._bytes + self._size, PyBytes_AS_STRING(payload), size)
        spans, before = self._stamp(sizes, runs)
        self._size += size
        self._records += count
        if identity in self._placed:
            self._use(identity)
        session.in_flight = self._unanswered.add(identity, own, size)
        answer = self._encode_sent(
            request_id, term=self._term, store_timestamp=self._timestamp, ack=self._ack, spans=spans
        )
        self._staged.append((connection, head, payload, before, count, answer, position + size))
        lmq_add(self._cells, self._counters_at, count)
        lmq_add(self._cells, self._counters_at + 1, size)
        lmq_add(self._cells, self._counters_at + 2, 1)
        return True

    cdef object _stamp(self, sizes, list runs):
        """Fill in what only the leader knows, in the records behind those that are staged; the
        spans that tell where they are, and the offsets that their queues had.
        """
        cdef Py_ssize_t first = 0
        cdef Py_ssize_t at = self._size
        cdef Py_ssize_t count, k
        cdef list spans = []
        cdef list before = []
        for count, queue_id, topic in runs:
            queue = topic, queue_id
            offset = self._offsets[queue]
            self._chain = self._stamp_run(
                self._batch,
                at,
                sizes,
                first,
                count,
                self._header_size,
                self._position + at,
                self._index + self._records + first + 1 if self._header_size else 0,
                self._term,
                offset,
                self._timestamp,
                self._store_host,
                self._chain,
                self._items,
                (self._records + first) * ITEM_SIZE,
                self._crc32,
            )
            self._offsets[queue] = offset + count
            spans.append((first, count, self._position + at + self._header_size, offset))
            before.append((queue, offset))
            for k in range(first, first + count):
                at += <Py_ssize_t>sizes[k]
            first += count
        return spans, before

    cdef int _begin(self) except -1:
        """Take the put lock."""
        cdef int64_t values[5]
        self._since = lmq_time(CLOCK_MONOTONIC)
        self._taken += 1
        values[0], values[1], values[2] = self._pid, self._since, self._taken
        values[3], values[4] = self._slow, self._recovered
        lmq_publish(self._cells, self._put_lock, values, 5)
        lmq_add(self._cells, self._counters_at + 7, 1)
        return 0

    cdef int _release(self) except -1:
        cdef int64_t values[5]
        cdef int64_t held = lmq_time(CLOCK_MONOTONIC) - self._since
        lmq_observe(self._cells, self._times_at + 24, held)
        if held > self._slow_ns:
            self._slow += 1
            self._owner.put_was_slow(held)
        values[0] = values[1] = 0
        values[2], values[3], values[4] = self._taken, self._slow, self._recovered
        lmq_publish(self._cells, self._put_lock, values, 5)
        return 0

    cdef int _write(self) except -1:
        """Write what is staged, publish it, and send it to the followers."""
        cdef int64_t values[4]
        cdef int64_t first = self._index + 1
        cdef int64_t begin = self._position
        cdef Py_ssize_t size = self._size
        cdef Py_ssize_t count = self._records
        cdef list staged = self._staged
        cdef int64_t since = self._since
        cdef bint is_written
        cdef char *items
        self._staged = []
        self._size = self._records = 0
        items = <char *>self._items
        # A disk that blocks writes keeps nobody from telling what it has made durable.
        with nogil:
            is_written = (
                lmq_pwrite(self._data_fd, self._bytes, size, begin - self._data_start) == size
            )
            if is_written and self._items_fd >= 0:
                is_written = (
                    lmq_pwrite(
                        self._items_fd,
                        items,
                        count * ITEM_SIZE,
                        self._items_at - self._items_start,
                    )
                    == count * ITEM_SIZE
                )
        if not is_written:
            self._undo(staged)
            return 0
        self._has_written = True
        self._chain_written = self._chain
        self._position = begin + size
        if self._header_size:
            self._index += count
            self._items_at += count * ITEM_SIZE
        else:
            self._index = self._position
        values[0], values[1] = self._position, self._index
        values[2] = self._term if self._header_size else 0
        values[3] = lmq_cell(self._cells, self._counters_at)
        lmq_publish(self._cells, self._written, values, 4)
        self._release()
        for connection, head, payload, _, _, answer, behind in staged:
            self._waiting.append(
                _new(self._due_type, (behind, connection.identity, answer, len(payload), since))
            )
        self._wake(self._end())
        if self._line is not None:
            self._send(first, begin, size)
        elif not self._waits_for_sync:
            self._commit_alone(values)
        return 0

    cdef int _undo(self, list staged) except -1:
        """What is staged could not be written: it was never taken, and comes again in a turn."""
        cdef Py_ssize_t size
        for connection, head, payload, before, count, answer, behind in reversed(staged):
            size = len(payload)
            for queue, offset in reversed(before):
                self._offsets[queue] = offset
            session = self._sessions.get(connection.identity)
            left = self._unanswered.release(connection.identity, size)
            if session is not None:
                session.in_flight = left
            lmq_add(self._cells, self._counters_at, -<int64_t>count)
            lmq_add(self._cells, self._counters_at + 1, -size)
            lmq_add(self._cells, self._counters_at + 2, -1)
        self._release()
        self.is_left = True
        self._chain = self._chain_written
        for connection, head, payload, *_ in reversed(staged):
            self._owner.put_back_frame(connection, head, payload)
        return 0

    def commit_up_to(self, int64_t position, int64_t index, int64_t term):
        """Nobody else has to hold what is held here; false when the run is over."""
        cdef int64_t values[3]
        values[0], values[1], values[2] = position, index, term
        return self._commit_alone(values)

    cdef bint _commit_alone(self, int64_t *values) except -1:
        cdef bint lasts
        cdef int64_t known[1]
        if lmq_snapshot(self._cells, self._committed, known, 1) and values[0] <= known[0]:
            return True
        if lmq_lock(self._fence):
            raise OSError(errno, strerror(errno).decode())
        lasts = lmq_cell(self._cells, self._run_at) == self._run
        if lasts:
            lmq_publish(self._cells, self._committed, values, 3)
        flock(self._fence, LOCK_UN)
        if lasts:
            lmq_ring(self._cells, self._dispatcher_at, self._dispatcher_bell)
            self.acknowledge(values[0])
        return lasts

    cdef int _send(self, int64_t first, int64_t begin, Py_ssize_t size) except -1:
        """Send what was written to those who lack just this, and count what this node holds."""
        line, led = self._line, self._led
        if not line.written(self._index):
            # The run looks at it in a turn, and gives itself back.
            self.is_left = True
            return 0
        led.note_written(
            lmq_cell(self._cells, self._written * LMQ_FIELDS),
            _new(self._cursor_type, (self._position, self._index, self._term)),
        )
        wants = line.wants
        if size <= self._frame_bytes and all_are(wants, first, self._index):
            data = memoryview(self._batch)[:size]
            for peer, _, last in wants:
                head = line.replicated(peer, first, last, size)
                connection = self._open.get(peer)
                if head is None or connection is None or not connection.send(head, data):
                    if connection is not None and connection.failure:
                        self._owner.connection_ended(peer)
                    led.give_back(f"{peer} takes no entries")
                    self.is_left = True
                    return 0
                self._sent[peer] = begin
        elif wants:
            self._owner.log_ends(self._end())
            self._has_written = False
            self._owner.send_wanted()
        if not led.lasts:
            self.is_left = True
        elif not self._waits_for_sync:
            if line.held(self._index):
                self.commit = max(self.commit, <int64_t>line.commit)
            else:
                led.give_back("what is held is for raft to judge")
                self.is_left = True
        return 0

    def acknowledge(self, int64_t position):
        """Answer every frame that is stored before ``position``."""
        cdef int64_t now
        cdef bytes answer, identity
        cdef uint8_t framed[ANSWER_MAX]
        cdef uint32_t head[2]
        cdef Py_ssize_t size
        waiting = self._waiting
        if not waiting or <int64_t>waiting[0][0] > position:
            return
        now = lmq_time(CLOCK_MONOTONIC)
        while waiting and <int64_t>waiting[0][0] <= position:
            _, identity, answer, frame_size, since = waiting.popleft()
            lmq_observe(self._cells, self._times_at + 48, now - <int64_t>since)
            left = self._unanswered.release(identity, frame_size)
            session = self._sessions.get(identity)
            # Without a session it would go to who has taken the identity since.
            if session is None:
                continue
            session.in_flight = left
            connection = self._by_identity.get(identity)
            size = len(answer)
            if connection is not None and not connection.unsent and size + HEAD_SIZE <= ANSWER_MAX:
                head[0], head[1] = <uint32_t>size, 0
                memcpy(framed, head, HEAD_SIZE)
                memcpy(framed + HEAD_SIZE, PyBytes_AS_STRING(answer), size)
                size += HEAD_SIZE
                sent = lmq_give(connection.sock.fileno(), framed, size)
                if sent == size:
                    continue
                if sent > 0:
                    self._owner.keep_unsent(
                        connection,
                        PyBytes_FromStringAndSize(<const char *>framed + sent, size - sent),
                    )
                    continue
            self._owner.answer(identity, answer)


cdef bint all_are(wants, int64_t first, int64_t last) except -1:
    """Whether each lacks entries ``first`` to ``last``."""
    for _, begin, until in wants:
        if begin != first or until != last:
            return False
    return True
