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
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, strerror

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/epoll.h>
    #include <sys/file.h>
    #include <time.h>
    #include <unistd.h>

    #define LMQ_EVENTS 64
    #define LMQ_FIELDS 8
    #define LMQ_SECOND (32 * LMQ_FIELDS)

    /* Fields that belong together stand twice; the sequence before them names the copy. */
    static void lmq_publish(int64_t *cells, int slot, const int64_t *values, int count) {
        int64_t *at = cells + slot * LMQ_FIELDS, *copy;
        int64_t sequence = *at + 1;
        int k;
        copy = at + (sequence & 1 ? LMQ_SECOND : 0);
        for (k = 0; k < count; k++)
            __atomic_store_n(copy + 1 + k, values[k], __ATOMIC_RELAXED);
        __atomic_store_n(at, sequence, __ATOMIC_RELEASE);
    }

    /* Whether what was read is of one moment. */
    static int lmq_snapshot(int64_t *cells, int slot, int64_t *values, int count) {
        int64_t *at = cells + slot * LMQ_FIELDS, *copy;
        int64_t sequence = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        int k;
        copy = at + (sequence & 1 ? LMQ_SECOND : 0);
        for (k = 0; k < count; k++) values[k] = __atomic_load_n(copy + 1 + k, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return __atomic_load_n(at, __ATOMIC_RELAXED) == sequence;
    }

    static int64_t lmq_cell(int64_t *cells, int at) {
        return __atomic_load_n(cells + at, __ATOMIC_ACQUIRE);
    }

    static void lmq_set(int64_t *cells, int at, int64_t value) {
        /* With a barrier behind it: who sets ``asleep`` reads the cursors after that. */
        __atomic_store_n(cells + at, value, __ATOMIC_SEQ_CST);
    }

    static int64_t lmq_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }

    static int lmq_lock(int fd) {
        int result;
        while ((result = flock(fd, LOCK_EX)) != 0 && errno == EINTR);
        return result;
    }
    """
    enum:
        LMQ_EVENTS, LMQ_FIELDS, LOCK_UN, EPOLLIN
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_wait(int, epoll_event *, int, int) nogil
    int flock(int, int)
    ssize_t pwrite(int, const void *, size_t, int64_t)
    ssize_t read(int, void *, size_t)
    ssize_t write(int, const void *, size_t)
    void lmq_publish(int64_t *, int, const int64_t *, int) noexcept
    bint lmq_snapshot(int64_t *, int, int64_t *, int) noexcept
    int64_t lmq_cell(int64_t *, int) noexcept
    void lmq_set(int64_t *, int, int64_t) noexcept
    int64_t lmq_now() noexcept
    int lmq_lock(int) noexcept

cdef enum:
    TAKEN, LEFT, FAILED

cdef enum:
    MARKS_MAX = 256
    BODY_MAX = 256 * 1024
    BYTES_MAX = 512 * 1024
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
    cdef int _messages_at
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

    def __init__(
        self,
        cells,
        owner,
        *,
        int fence,
        int bell,
        int dispatcher_bell,
        int asleep_at,
        int beat_at,
        int dispatcher_at,
        int run_at,
        int messages_at,
        int written,
        int durable,
        int committed,
        int grant,
        int heard,
        bint waits_for_sync,
    ):
        """Nothing is lent.

        Args:
            cells: the cursor page, which stays mapped until ``close``.
            owner: lends, and takes back.
            fence, bell, dispatcher_bell: descriptors of the fence's file, of this process's bell
                and of the dispatcher's.
            asleep_at, beat_at, dispatcher_at, run_at, messages_at: cells of this process's slot, of
                the dispatcher's ``asleep``, of runs, and of the messages counted.
            written, durable, committed, grant, heard: slots.
            waits_for_sync: what is durable is answered for, and not what is written.
        """
        PyObject_GetBuffer(cells, &self._page, PyBUF_SIMPLE)
        self._is_open = True
        self._cells = <int64_t *>self._page.buf
        self._owner = owner
        self._fence, self._bell, self._dispatcher_bell = fence, bell, dispatcher_bell
        self._asleep_at, self._beat_at, self._dispatcher_at = asleep_at, beat_at, dispatcher_at
        self._run_at, self._messages_at = run_at, messages_at
        self._written, self._durable, self._committed = written, durable, committed
        self._grant, self._heard = grant, heard
        self._waits_for_sync = waits_for_sync

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
        if wait_ms > 0 and self._is_open:
            if self._owner.lend_followed(self):
                try:
                    return self._follow(epoll, wait_ms)
                finally:
                    self._return()
            if self._owner.lend_led(self):
                try:
                    return self._lead(epoll, wait_ms)
                finally:
                    self._line = None
                    self._ring = None
        return self._told_by(self._poll(epoll, wait_ms))

    def lend(self, line, int64_t run, int64_t told, int64_t durable_seen, int feed, ring):
        """What a run of either kind goes on with.

        Args:
            run: what the cell of runs says as long as it lasts.
            told: sequence of the grant that is known.
            durable_seen: that of ``durable``, as far as it was looked at.
            feed: descriptor that can be read when another member's writer has sent something.
            ring: raft's append ring, or None.
        """
        self._line, self._run, self._told = line, run, told
        self._durable_seen, self._feed, self._ring = durable_seen, feed, ring

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
        if lmq_cell(self._cells, self._run_at) != self._run:
            return False
        if lmq_cell(self._cells, self._grant * LMQ_FIELDS) != self._told:
            return False
        return self._ring is None or self._ring.head[0] == self._ring.taken

    cdef bint _has_durable(self) noexcept:
        return (
            self._waits_for_sync
            and lmq_cell(self._cells, self._durable * LMQ_FIELDS) != self._durable_seen
        )

    cdef int _look(self, int count, bint *is_fed) noexcept:
        """Whether all events are of the bell, which is silent then, and of the feed."""
        cdef int k
        cdef int others = 0
        cdef uint8_t swallowed[4096]
        is_fed[0] = False
        for k in range(count):
            if self._events[k].data.fd == self._feed:
                is_fed[0] = True
            elif self._events[k].data.fd == self._bell:
                # Non-blocking: nothing of it is lost, for all that it may tell of is looked at.
                read(self._bell, swallowed, sizeof(swallowed))
            else:
                others += 1
        return others == 0

    cdef int _ring_dispatcher(self) noexcept:
        cdef uint8_t byte = 0
        if lmq_cell(self._cells, self._dispatcher_at):
            lmq_set(self._cells, self._dispatcher_at, 0)
            # Non-blocking: a full one holds bells enough.
            write(self._dispatcher_bell, &byte, 1)
        return 0

    cdef list _follow(self, int epoll, long wait_ms):
        cdef int64_t until = lmq_now() + wait_ms * 1000000
        cdef int64_t now
        cdef int count
        cdef bint is_fed
        while True:
            now = lmq_now()
            if now >= until or self._bytes >= BYTES_MAX:
                return []
            count = self._poll(epoll, (until - now + 999999) // 1000000)
            now = lmq_now()
            lmq_set(self._cells, self._beat_at, now)
            lmq_set(self._cells, self._asleep_at, 0)
            if not self._look(count, &is_fed):
                return self._told_by(count)
            if is_fed and not self._take_appends(now // TICK_NS):
                return self._told_by(count)
            if self._has_durable() and not self._answer_for_durable():
                return []
            lmq_set(self._cells, self._asleep_at, 1)
            if not self._is_quiet() or self._has_durable():
                lmq_set(self._cells, self._asleep_at, 0)
                return []

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
        values[3] = lmq_cell(self._cells, self._messages_at)
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
        cdef int64_t until = lmq_now() + wait_ms * 1000000
        cdef int64_t now
        cdef int count
        cdef bint is_fed
        while True:
            now = lmq_now()
            if now >= until:
                return []
            count = self._poll(epoll, (until - now + 999999) // 1000000)
            now = lmq_now()
            lmq_set(self._cells, self._beat_at, now)
            lmq_set(self._cells, self._asleep_at, 0)
            if not self._look(count, &is_fed):
                return self._told_by(count)
            if is_fed and not self._take_answers(now // TICK_NS):
                return self._told_by(count)
            if self._has_durable():
                return []
            lmq_set(self._cells, self._asleep_at, 1)
            if not self._is_quiet() or self._has_durable():
                lmq_set(self._cells, self._asleep_at, 0)
                return []

    cdef bint _take_answers(self, int64_t now) except -1:
        """Take followers' answers; false when something is left to others."""
        cdef int64_t commit = -1
        cdef Py_ssize_t k
        line = self._line
        for connection in self._owner.heard():
            messages = connection.receive()
            if connection.failure:
                self._owner.connection_ended(connection.peer)
                return False
            for k in range(len(messages)):
                parts = messages[k]
                if len(parts) != 1 or not line.receive(now, connection.peer, parts[0], False):
                    self._owner.put_back_answers(connection.peer, messages[k:])
                    return False
                commit = max(commit, <int64_t>line.commit)
                if line.wants:
                    self._owner.send_wanted()
        return self._owner.answered(commit)


cdef bint _write(Tail *tail, data) except -1:
    cdef Py_buffer given
    cdef ssize_t written
    PyObject_GetBuffer(data, &given, PyBUF_SIMPLE)
    written = pwrite(tail.fd, given.buf, given.len, tail.position - tail.start)
    PyBuffer_Release(&given)
    return written == given.len
