# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of a writer's wait in a run: what is of the steady state is done before anybody is woken.

While raft lets a writer run (docs/decisions/0133), nearly all that wakes it is an append of the
leader's writer, or an answer of a follower's. Here they are taken where the process waits for them,
by the straight line (``_steady``), from the socket to the answer: with the fence held, in the order
and by the rules of ``writer/followed_run.py`` and ``writer/led_run.py``, whose state this is. What
is anything else is left to them, with nothing changed, and the wait is over.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, strerror

from posix.unistd cimport read

from ledgermq.formats.kernels._cells cimport (
    CLOCK_MONOTONIC,
    EPOLLIN,
    LMQ_EVENTS,
    LMQ_FIELDS,
    LOCK_UN,
    epoll_event,
    epoll_wait,
    flock,
    lmq_cell,
    lmq_lock,
    lmq_publish,
    lmq_pwrite,
    lmq_ring,
    lmq_set,
    lmq_snapshot,
    lmq_time,
)

cdef enum:
    TAKEN, LEFT, FAILED

cdef enum:
    MARKS_MAX = 256
    BODY_MAX = 256 * 1024
    BYTES_MAX = 512 * 1024
    TURN_NS = 100 * 1000000
    APPEND_SIZE = 80
    HEARTBEAT_SIZE = 64
    ITEM_SIZE = 32
    TICK_NS = 1000000

cdef struct Mark:
    int64_t index
    int64_t position

cdef struct Tail:
    int fd
    int64_t start
    int64_t position
    int64_t blocks


cdef class SteadyWait:
    """Waits in a writer's loop, in the place of its poll set.

    Its owner, ``writer/steady_wait.py``, lends it what it goes on with, for one wait.
    """

    cdef Py_buffer _page
    cdef int64_t *_cells
    cdef bint _is_open
    cdef object _owner
    cdef int _fence
    cdef int _bell
    cdef int _dispatcher_bell
    cdef int _asleep_at
    cdef int _beat_at
    cdef int _dispatcher_at
    cdef int _run_at
    cdef int _counters_at
    cdef int _written
    cdef int _durable
    cdef int _committed
    cdef int _grant
    cdef int _heard
    cdef bint _waits_for_sync
    cdef epoll_event _events[LMQ_EVENTS]
    # What is lent for one wait.
    cdef int64_t _run
    cdef int64_t _told
    cdef int64_t _durable_seen
    cdef int _feed
    cdef object _ring
    cdef object _line
    # The rest of it, of who leads.
    cdef object _led
    cdef dict _followers
    cdef object _led_marks
    cdef object _plain
    cdef int _local
    cdef object _ready
    cdef object _uses
    cdef int64_t _uses_seen
    cdef epoll_event _heard_events[LMQ_EVENTS]
    # The rest of it, of a follower.
    cdef object _leader
    cdef object _verify
    cdef object _wake
    cdef object _end
    cdef object _connection
    cdef int64_t _term
    cdef int64_t _file_size
    cdef int64_t _index
    cdef Tail _data
    cdef Tail _items
    cdef Mark _marks[MARKS_MAX]
    cdef int _first_mark
    cdef int _mark_count
    cdef int64_t _entries
    cdef int64_t _bytes

    def __init__(self, cells, owner, places, descriptors, *, bint waits_for_sync):
        """Nothing is lent.

        Args:
            cells: the cursor page, which stays mapped until ``close``.
            owner: lends, and takes back.
            places: what stands where in it, as ``PagePlaces`` of ``ipc/cursor_page.py`` has it.
            descriptors: see ``Descriptors`` of ``writer/steady_wait.py``.
            waits_for_sync: what is durable is answered for, and not what is written.
        """
        PyObject_GetBuffer(cells, &self._page, PyBUF_SIMPLE)
        self._is_open = True
        self._cells = <int64_t *>self._page.buf
        self._owner = owner
        self._fence, self._bell, self._dispatcher_bell = descriptors
        self._asleep_at, self._beat_at = places.asleep_at, places.beat_at
        self._dispatcher_at = places.dispatcher_at
        self._run_at, self._counters_at = places.run_at, places.counters_at
        self._written, self._durable = places.written, places.durable
        self._committed, self._grant, self._heard = places.committed, places.grant, places.heard
        self._waits_for_sync = waits_for_sync

    @property
    def address(self):
        """Where the page is mapped, until ``close``."""
        return <size_t>self._cells

    def __dealloc__(self):
        if self._is_open:
            PyBuffer_Release(&self._page)

    def close(self):
        """Let go of the page."""
        if self._is_open:
            self._is_open = False
            self._cells = NULL
            PyBuffer_Release(&self._page)
        self._owner = None

    def wait(self, int epoll, long wait_ms):
        """Descriptors with their events, as a poll set tells them; none when the time is over, or
        there is something to do that no descriptor tells of.
        """
        cdef int64_t run
        if wait_ms > 0 and self._is_open:
            run = lmq_cell(self._cells, self._run_at)
            if run < 0 and self._owner.lend_followed(self):
                try:
                    return self._follow(epoll, wait_ms)
                finally:
                    self._return()
            if run > 0 and self._owner.lend_led(self):
                try:
                    return self._lead(epoll, wait_ms)
                finally:
                    self._return_led()
        return self._told_by(self._poll(epoll, wait_ms))

    def step(self, int64_t now_ns, bint is_fed, list heard):
        """Do once what is done in a wait; whether nothing is left to a turn.

        It is for the simulator, which has no descriptors, and a time of its own.

        Args:
            is_fed: the leader has sent something.
            heard: connections of followers that have sent something.
        """
        cdef int64_t run = lmq_cell(self._cells, self._run_at)
        if run < 0 and is_fed and self._owner.lend_followed(self):
            try:
                return (
                    self._take_appends(now_ns // TICK_NS)
                    and (not self._has_durable() or self._answer_for_durable())
                    and self._is_quiet()
                )
            finally:
                self._return()
        if run > 0 and heard and self._owner.lend_led(self):
            try:
                return (
                    self._take_answers_of(heard, now_ns // TICK_NS)
                    and (not self._has_durable() or self._count_durable())
                    and self._is_quiet()
                )
            finally:
                self._return_led()
        return False

    cdef int _return_led(self) except -1:
        self._line = self._ring = self._plain = self._led = None
        self._followers = self._led_marks = None
        self._owner.take_back_led()
        return 0

    def lend(self, line, int64_t run, int64_t told, int64_t durable_seen, int feed, ring):
        """What a run of any kind goes on with.

        Args:
            line: the straight line; None in the run of a node alone.
            run: what the cell of runs says as long as it lasts.
            told: sequence of the grant that is known.
            durable_seen: that of ``durable``, as far as it was looked at.
            feed: descriptor that can be read when another member's writer has sent something.
            ring: raft's append ring, or None.
        """
        self._line, self._run, self._told = line, run, told
        self._durable_seen, self._feed, self._ring = durable_seen, feed, ring

    def lend_led(self, led, followers, marks, plain, int local, ready, uses):
        """What the run of who leads goes on with besides.

        Args:
            led: the leader's run; None in that of a node alone.
            followers: connections by descriptor.
            marks: ends of what was written and is not committed, oldest first; shared.
            plain: takes what local producers send, and answers; None: that is left.
            local: descriptor that can be read when one has sent something.
            ready: producers whose turn it is; the wait is over when there are any.
            uses: see ``Worker.zmq_uses``.
        """
        self._led, self._followers, self._led_marks = led, followers, marks
        self._plain, self._local, self._ready, self._uses = plain, local, ready, uses
        self._uses_seen = uses[0]

    def lend_log(self, leader, connection, verify, wake, end, int64_t file_size, data, items, marks):
        """What a follower's run goes on with besides.

        Args:
            leader: its name, as the line has it.
            connection: to its writer.
            verify: see ``verify_following``.
            wake: told of each end of the log.
            end: where the log ends.
            file_size: bytes of a file of the log.
            data, items: the open files of the log and of its index, as ``FileTail`` has them.
            marks: ends of appends that are not committed: index and position, oldest first.
        """
        cdef int k = 0
        self._leader, self._connection, self._verify, self._wake = leader, connection, verify, wake
        self._end, self._file_size = end, file_size
        self._index, self._term = end[1], end[2]
        self._data.fd, self._data.start, self._data.position, self._data.blocks = data
        self._items.fd, self._items.start, self._items.position, self._items.blocks = items
        self._first_mark = self._mark_count = 0
        for index, position in marks:
            assert k < MARKS_MAX
            self._marks[k].index, self._marks[k].position = index, position
            k += 1
        self._mark_count = k
        self._entries = self._bytes = 0

    cdef int _return(self) except -1:
        """Give back what was lent for a follower's run, as it is now."""
        cdef int k
        marks = []
        for k in range(self._mark_count):
            mark = self._marks[(self._first_mark + k) % MARKS_MAX]
            marks.append((mark.index, mark.position))
        self._line = None
        self._ring = None
        self._connection = None
        end, self._end = self._end, None
        self._owner.take_back(end, self._entries, marks, self._durable_seen)
        return 0

    cdef int _poll(self, int epoll, long wait_ms) except -1:
        """Wait; how many events there are."""
        cdef int count
        cdef int timeout = <int>wait_ms
        while True:
            with nogil:
                count = epoll_wait(epoll, self._events, LMQ_EVENTS, timeout)
            if count >= 0:
                return count
            if errno != EINTR:
                raise OSError(errno, strerror(errno).decode())
            # What the handler has done is seen by who waits.
            PyErr_CheckSignals()
            timeout = 0

    cdef list _told_by(self, int count):
        cdef int k
        return [(self._events[k].data.fd, self._events[k].events) for k in range(count)]

    cdef bint _is_quiet(self) except -1:
        """Whether nothing has changed that no descriptor of the run tells of."""
        if not self._lasts():
            return False
        if lmq_cell(self._cells, self._grant * LMQ_FIELDS) != self._told:
            return False
        return self._ring is None or self._ring.head[0] == self._ring.taken

    cdef bint _lasts(self) noexcept:
        return lmq_cell(self._cells, self._run_at) == self._run

    cdef bint _has_durable(self) noexcept:
        return (
            self._waits_for_sync
            and lmq_cell(self._cells, self._durable * LMQ_FIELDS) != self._durable_seen
        )

    cdef bint _look(self, int count, bint *is_fed, bint *is_asked) noexcept:
        """Whether all events are of the bell, which is silent then, of the feed and of producers.
        """
        cdef int k
        cdef int others = 0
        cdef uint8_t swallowed[4096]
        is_fed[0] = is_asked[0] = False
        for k in range(count):
            if self._events[k].data.fd == self._feed:
                is_fed[0] = True
            elif self._events[k].data.fd == self._local:
                is_asked[0] = True
            elif self._events[k].data.fd == self._bell:
                # Non-blocking: nothing of it is lost, for all that it may tell of is looked at.
                read(self._bell, swallowed, sizeof(swallowed))
            else:
                others += 1
        return others == 0

    cdef int _ring_dispatcher(self) noexcept:
        lmq_ring(self._cells, self._dispatcher_at, self._dispatcher_bell)
        return 0

    cdef list _follow(self, int epoll, long wait_ms):
        cdef int64_t until = lmq_time(CLOCK_MONOTONIC) + wait_ms * 1000000
        cdef int64_t now
        cdef int count
        cdef bint is_fed, is_asked
        self._local = -1
        while True:
            now = lmq_time(CLOCK_MONOTONIC)
            if now >= until or self._bytes >= BYTES_MAX:
                return []
            count = self._poll(epoll, (until - now + 999999) // 1000000)
            now = self._awake()
            if not self._look(count, &is_fed, &is_asked):
                return self._told_by(count)
            if is_fed and not self._take_appends(now // TICK_NS):
                return self._told_by(count)
            if self._entries:
                until = min(until, now + TURN_NS)
            if self._has_durable() and not self._answer_for_durable():
                return []
            if not self._may_sleep():
                return []

    cdef int64_t _awake(self) noexcept:
        """The time; the process has given a sign of life, and wants no bell now."""
        cdef int64_t now = lmq_time(CLOCK_MONOTONIC)
        lmq_set(self._cells, self._beat_at, now)
        lmq_set(self._cells, self._asleep_at, 0)
        return now

    cdef bint _may_sleep(self) except -1:
        """Want a bell, and look whether something has changed before it was wanted."""
        lmq_set(self._cells, self._asleep_at, 1)
        if self._is_quiet() and not self._has_durable():
            return True
        lmq_set(self._cells, self._asleep_at, 0)
        return False

    cdef bint _take_appends(self, int64_t now) except -1:
        """Take what the leader has sent; false when something is left to others."""
        cdef list messages = self._connection.receive()
        cdef int done
        cdef Py_ssize_t k
        if self._connection.failure:
            self._owner.connection_ended(self._leader)
            return False
        if not messages:
            # Of another connection, or not whole.
            return False
        for k in range(len(messages)):
            done = self._take_append(<list>messages[k], now)
            if done == LEFT:
                self._owner.put_back_appends(self._leader, messages[k:])
            if done != TAKEN:
                return False
        return True

    cdef int _take_append(self, list parts, int64_t now) except -1:
        cdef uint8_t head[APPEND_SIZE]
        cdef Py_buffer given
        cdef Py_ssize_t size
        cdef int64_t previous
        cdef int64_t count = 0
        cdef int64_t commit
        cdef int result = TAKEN
        cdef bint is_committed = False
        cdef Py_ssize_t kinds = len(parts)
        verified = reply = None
        PyObject_GetBuffer(parts[0], &given, PyBUF_SIMPLE)
        size = given.len
        if size == APPEND_SIZE or size == HEARTBEAT_SIZE:
            memcpy(head, given.buf, size)
        PyBuffer_Release(&given)
        if size != (HEARTBEAT_SIZE if kinds == 1 else APPEND_SIZE):
            return LEFT
        if kinds != 1:
            memcpy(&previous, head + 24, 8)
            memcpy(&count, head + 64, 8)
            verified = self._verified(parts[1], previous, count)
            if verified is None:
                return LEFT
        if lmq_lock(self._fence):
            raise OSError(errno, strerror(errno).decode())
        try:
            if lmq_cell(self._cells, self._run_at) != self._run:
                return LEFT
            if not self._line.receive(now, self._leader, parts[0], kinds != 1):
                return LEFT
            reply, commit = self._line.reply, self._line.commit
            if verified is not None:
                if not self._append(verified, count):
                    result = FAILED
                elif not self._waits_for_sync:
                    is_held = self._line.held(self._index)
                    assert is_held
                    reply = self._line.reply or reply
                    commit = max(commit, <int64_t>self._line.commit)
            if result == TAKEN:
                self._publish_heard(now)
                is_committed = self._publish_commit(commit)
        finally:
            flock(self._fence, LOCK_UN)
        if result == FAILED:
            # Raft hears of it, and sends what could not be written the other way, where what is
            # wrong with the disk is said.
            self._owner.give_back("it was not written")
            return FAILED
        if is_committed:
            self._ring_dispatcher()
        if verified is not None:
            self._wake(self._end)
        if reply is not None:
            self._connection.send(reply)
            if self._connection.failure:
                self._owner.connection_ended(self._leader)
                return FAILED
        return TAKEN

    cdef object _verified(self, body, int64_t previous, int64_t count):
        """What of an append follows the log, and may be written as it is; None: others look."""
        cdef int64_t size = len(body)
        if (
            previous != self._index
            or not 0 < count < MARKS_MAX
            or not 0 < size <= BODY_MAX
            or self._data.position + size > self._data.blocks
            or self._items.position + count * ITEM_SIZE > self._items.blocks
            or self._mark_count == MARKS_MAX
        ):
            return None
        try:
            verified = self._verify(
                body, previous + 1, previous + count, end=self._end, size=self._file_size
            )
        except Exception:
            # Whoever takes it then finds the same, and says it.
            return None
        if len(verified[0]) != size or <int64_t>verified[2][0] != self._data.position + size:
            return None
        return verified

    cdef bint _append(self, verified, int64_t count) except -1:
        """Write entries and their items, and publish that; false when that did not work."""
        cdef int64_t values[4]
        if not _write(&self._data, verified[0]) or not _write(&self._items, verified[1]):
            return False
        end = verified[2]
        self._data.position = values[0] = end[0]
        self._items.position += count * ITEM_SIZE
        self._index = values[1] = end[1]
        values[2] = end[2]
        self._end = end
        self._entries += count
        self._bytes += len(verified[0])
        values[3] = lmq_cell(self._cells, self._counters_at)
        lmq_publish(self._cells, self._written, values, 4)
        mark = &self._marks[(self._first_mark + self._mark_count) % MARKS_MAX]
        mark.index, mark.position = values[1], values[0]
        self._mark_count += 1
        return True

    cdef int _publish_heard(self, int64_t now) except -1:
        cdef int64_t values[4]
        cdef int k
        following = self._line.state.following
        values[0], values[1] = -self._run, now
        values[2], values[3] = following.round, following.round_began
        for k in range(4):
            lmq_set(self._cells, self._heard * LMQ_FIELDS + k, values[k])
        return 0

    cdef bint _publish_commit(self, int64_t commit) except -1:
        """Publish the last mark up to ``commit``; whether there was one."""
        cdef int64_t values[3]
        cdef int64_t known[1]
        cdef bint is_found = False
        while self._mark_count and self._marks[self._first_mark].index <= commit:
            values[0] = self._marks[self._first_mark].position
            values[1] = self._marks[self._first_mark].index
            self._first_mark = (self._first_mark + 1) % MARKS_MAX
            self._mark_count -= 1
            is_found = True
        if not is_found or not lmq_snapshot(self._cells, self._committed, known, 1):
            return False
        if values[0] <= known[0]:
            return False
        values[2] = self._term
        lmq_publish(self._cells, self._committed, values, 3)
        return True

    cdef bint _answer_for_durable(self) except -1:
        """Answer for what is durable now; false when the run is over."""
        cdef int64_t values[2]
        cdef bint is_committed
        self._durable_seen = lmq_cell(self._cells, self._durable * LMQ_FIELDS)
        if not lmq_snapshot(self._cells, self._durable, values, 2):
            # It changes right now, and is looked at again.
            self._durable_seen -= 1
            return True
        if lmq_lock(self._fence):
            raise OSError(errno, strerror(errno).decode())
        try:
            if lmq_cell(self._cells, self._run_at) != self._run:
                return False
            is_held = self._line.held(values[1])
            assert is_held
            is_committed = self._publish_commit(self._line.commit)
        finally:
            flock(self._fence, LOCK_UN)
        if is_committed:
            self._ring_dispatcher()
        if self._line.reply is not None:
            self._connection.send(self._line.reply)
            if self._connection.failure:
                self._owner.connection_ended(self._leader)
                return False
        return True

    cdef list _lead(self, int epoll, long wait_ms):
        cdef int64_t until = lmq_time(CLOCK_MONOTONIC) + wait_ms * 1000000
        cdef int64_t now
        cdef int count
        cdef bint is_fed, is_asked
        while True:
            now = lmq_time(CLOCK_MONOTONIC)
            if now >= until:
                return []
            count = self._poll(epoll, (until - now + 999999) // 1000000)
            now = self._awake()
            if not self._look(count, &is_fed, &is_asked) or not self._lasts():
                return self._told_by(count)
            if is_asked:
                until = min(until, now + TURN_NS)
            # Answers first: what they commit is waited for.
            if is_fed and not self._take_answers(now // TICK_NS):
                return self._told_by(count)
            if is_asked:
                is_done = self._plain.take()
                if not self._commit_led(self._plain.commit) or not is_done:
                    return self._told_by(count)
            if self._has_durable() and not self._count_durable():
                return []
            if self._ready or self._uses[0] != self._uses_seen:
                return []
            if not self._may_sleep():
                return []

    cdef bint _take_answers(self, int64_t now) except -1:
        """Take followers' answers; false when something is left to others."""
        cdef int count, k
        cdef list heard = []
        count = epoll_wait(self._feed, self._heard_events, LMQ_EVENTS, 0)
        for k in range(count):
            connection = self._followers.get(self._heard_events[k].data.fd)
            if connection is None or self._heard_events[k].events != EPOLLIN:
                return False
            if connection.peer is None:
                return False
            heard.append(connection)
        return self._take_answers_of(heard, now)

    cdef bint _take_answers_of(self, list heard, int64_t now) except -1:
        cdef int64_t commit = -1
        cdef Py_ssize_t at
        line, led = self._line, self._led
        for connection in heard:
            peer = connection.peer
            messages = connection.receive()
            if connection.failure:
                self._owner.connection_ended(peer)
                return False
            for at in range(len(messages)):
                parts = messages[at]
                if len(parts) != 1 or not line.receive(now, peer, parts[0], False):
                    self._owner.put_back_answers(peer, messages[at:])
                    return False
                commit = max(commit, <int64_t>line.commit)
                if line.wants:
                    led.send_wanted()
                    if not led.lasts:
                        return False
        if led.awaits_round:
            led.look_at_round()
            if not led.lasts:
                return False
        return self._commit_led(commit)

    cdef bint _count_durable(self) except -1:
        """Count what this node holds durably; false when that is for a turn."""
        cdef int64_t values[3]
        cdef int64_t seen = lmq_cell(self._cells, self._durable * LMQ_FIELDS)
        cdef int64_t last
        if not lmq_snapshot(self._cells, self._durable, values, 3):
            # It changes right now, and is looked at again.
            return True
        self._durable_seen = seen
        if self._led is None:
            return self._plain is not None and self._plain.commit_up_to(
                values[0], values[1], values[2]
            )
        last = self._line.state.log.last_index
        if not self._line.held(min(values[1], last)):
            # The run looks at it in a turn, and gives itself back.
            return False
        self._led.note_durable(seen)
        return self._commit_led(self._line.commit)

    cdef bint _commit_led(self, int64_t commit) except -1:
        """Publish the last mark up to ``commit``, and answer; false when the run is over."""
        cdef int64_t values[3]
        cdef int64_t known[1]
        cdef bint is_committed = False
        cursor = None
        if commit < 0:
            return True
        while self._led_marks and <int64_t>self._led_marks[0][1] <= commit:
            cursor = self._led_marks.popleft()
        if cursor is None:
            return True
        values[0], values[1], values[2] = cursor
        if lmq_lock(self._fence):
            raise OSError(errno, strerror(errno).decode())
        if lmq_cell(self._cells, self._run_at) != self._run:
            flock(self._fence, LOCK_UN)
            return False
        if lmq_snapshot(self._cells, self._committed, known, 1) and values[0] > known[0]:
            lmq_publish(self._cells, self._committed, values, 3)
            is_committed = True
        flock(self._fence, LOCK_UN)
        if is_committed:
            self._ring_dispatcher()
            if self._plain is not None:
                self._plain.acknowledge(values[0])
            else:
                self._owner.acknowledge(values[0])
        return True


cdef bint _write(Tail *tail, data) except -1:
    cdef Py_buffer given
    cdef ssize_t written
    PyObject_GetBuffer(data, &given, PyBUF_SIMPLE)
    # A disk that blocks writes keeps nobody from telling what it has made durable.
    with nogil:
        written = lmq_pwrite(tail.fd, given.buf, given.len, tail.position - tail.start)
    PyBuffer_Release(&given)
    return written == given.len
