# cython: language_level=3
"""Kernel of an exchange: one message is sent by itself, and its answer is taken.

Cython in pure-Python mode, as ``_steady`` is. It has no state of its own that tells of messages: it
reads and changes that of a producer's sender, pipeline, stream, and, where threads wait, driver,
under the driver's lock, as the long way through them does, and does with an event what they do with
it. What is not as it mostly is, is left to them, with nothing changed.

A handler of a signal may raise wherever code of Python begins. So what was taken from the socket is
kept in the stream before anything else is done, and its bytes stay there until all is noted of it;
and a frame counts as sent before it is handed over.
"""

from __future__ import annotations

from functools import partial
from threading import get_ident
from time import monotonic, time_ns

import cython

from ledgermq.formats.kernels._lone import write_batch, write_record
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.sent_layout import ONE_SENT

_DIGITS = cython.declare(cython.Py_ssize_t, 12)
_READ_SIZE = cython.declare(cython.Py_ssize_t, 64 * 1024)
_STREAM_HEAD = cython.declare(cython.Py_ssize_t, 8)
_ANSWER_SIZE = cython.declare(cython.Py_ssize_t, 72)
assert ONE_SENT.size == 64

_PATIENCE_S = cython.declare(cython.double, 0.02)
"""Most answers come within it; for others the long way waits, which looks after everything."""

_IDS = cython.declare(cython.int, 64)
_IDS_S = cython.declare(cython.double, 0.1)
"""Unique ids are drawn so many at a time, and used for so long: they tell when they were drawn."""

# Sizes of the two parts on the stream, and how a SENT without duplicates begins.
_ANSWER_BEGIN = b"\x40\0\0\0\0\0\0\0LMQ\x01\x0b\0\0\0"


@cython.cclass
class Exchange:
    """The short way of a producer's single messages; see the module.

    Attributes:
        is_open: false once the producer is closed.
    """

    is_open = cython.declare(cython.bint, visibility="public")
    _driver = cython.declare(object)
    _sender = cython.declare(object)
    _pipeline = cython.declare(object)
    # What stays the same objects: an attribute that is looked up may lie in memory that is cold.
    _link = cython.declare(object)
    _request_ids = cython.declare(object)
    _in_flight = cython.declare(dict)
    _turns = cython.declare(dict)
    _lone = cython.declare(dict)
    _lingers = cython.declare(cython.bint)
    _allowed_max = cython.declare(cython.int)
    _known_routes = cython.declare(dict)
    _topic_bytes = cython.declare(object)
    _body_end = cython.declare(cython.Py_ssize_t)
    _timeout_s = cython.declare(cython.double)
    _batch_bytes = cython.declare(cython.Py_ssize_t)
    _window_bytes = cython.declare(cython.Py_ssize_t)
    _prefix = cython.declare(object)
    _next_id = cython.declare(cython.longlong)
    _ids_end = cython.declare(cython.longlong)
    _ids_until = cython.declare(cython.double)
    _make_future = cython.declare(object)
    _make_frame = cython.declare(object)
    _make_batch = cython.declare(object)
    _tail = cython.declare(object)
    _sent = cython.declare(object)
    _span = cython.declare(object)
    _answer = cython.declare(object)

    def __init__(
        self, pipeline, sender, driver, *,
        known_routes, topic_bytes, body_end, makers, make_batch, make_tail,
    ):  # fmt: skip
        self._pipeline = pipeline
        self._sender = sender
        self._driver = driver
        self._link = pipeline.link
        self._request_ids = pipeline.link._ids
        self._in_flight = pipeline._in_flight
        self._turns = sender.turns
        self._lone = sender.lone
        self._lingers = pipeline.options.linger_ms > 0
        self._allowed_max = pipeline.options.max_in_flight
        self._known_routes = known_routes
        self._topic_bytes = topic_bytes
        self._body_end = body_end
        self._timeout_s = pipeline.options.timeout_s
        self._batch_bytes = pipeline.options.batch_bytes
        self._window_bytes = pipeline.options.window_bytes
        self._make_future, self._make_frame, self._sent, self._span, self._answer = makers
        self._make_batch = make_batch
        self._tail = make_tail
        self._prefix = ""
        self._next_id = self._ids_end = 0
        self._ids_until = 0.0
        self.is_open = True

    def send(self, topic, body, properties):
        """Send ``body`` now, by itself, or behind others that wait in one frame for those under
        way; its future, or None: it goes the long way.

        Args:
            properties: as ``properties_bytes`` gives them; None: it has none of its own.
        """
        driver = self._driver
        with driver.lock:
            future = _send(self, topic, body, properties, None)
            if future is None:
                future = _gather(self, topic, body, properties, None)
            elif driver._poller or driver._background_sleeps or driver._followers:
                driver.wake_poller()
        if self._pipeline.callbacks:
            driver.deliver()
        return future

    def put(self, topic, body, properties, callback):
        """Send ``body`` as ``send`` does where there is a loop, and no driver; whether it was."""
        return (
            _send(self, topic, body, properties, callback) is not None
            or _gather(self, topic, body, properties, callback) is not None
        )

    def put_batch(self, topic, bodies, properties, callback):
        """Send ``bodies`` as ``send_batch`` does where there is a loop; whether they were sent."""
        return _send_batch(self, topic, bodies, properties, callback) is not None

    def take(self):
        """Whether all that has come where there is a loop were answers, which are taken."""
        return bool(self._in_flight) and _take(self, None)

    def send_batch(self, topic, bodies, properties):
        """Send ``bodies`` now, in a frame of their own, also behind others under way; its future,
        or None: they go the long way.

        Args:
            properties: of each; as ``send`` takes them.
        """
        driver = self._driver
        with driver.lock:
            future = _send_batch(self, topic, bodies, properties, None)
            if future is not None:
                if driver._poller or driver._background_sleeps or driver._followers:
                    driver.wake_poller()
                now: cython.double = monotonic()
                if now >= driver._look_at:
                    # Who never waits for answers has them taken now and then.
                    driver.advance_behind_send(now, is_urgent=False)
        if self._pipeline.callbacks:
            driver.deliver()
        return future

    def wait_for(self, future, timeout):
        """Return when ``future`` is done, as the driver's ``wait_for`` does."""
        begun_at: cython.double = monotonic()
        if not self._wait(future, timeout):
            self._driver.wait_for(future, timeout, begun_at)

    @cython.cfunc
    @cython.exceptval(-1)
    def _wait(self, future, timeout) -> cython.bint:
        """Whether ``future`` is done: its answer has come soon."""
        driver = self._driver
        pipeline = self._pipeline
        me = get_ident()
        seconds: cython.double = _PATIENCE_S
        if timeout is not None and timeout < _PATIENCE_S:
            seconds = timeout
        if seconds <= 0.0:
            return False
        try:
            with driver.lock:
                if not _begin_wait(self, future, me, seconds):
                    return False
            came = driver._waiters_watch.poll.poll(seconds * 1_000)
            with driver.lock:
                if not _is_done(future):
                    _take(self, came)
                is_done = _is_done(future)
                _end_wait(self, is_done, me)
            if pipeline.callbacks:
                driver.deliver()
        except BaseException:
            # Interrupted: somebody else must poll now.
            with driver.lock:
                driver._stop_polling(me)
            raise
        return is_done


@cython.cfunc
def _send(self: Exchange, topic, body, properties, callback):
    now: cython.double = monotonic()
    known = self._known_routes.get(topic)
    if known is None or now > known[1] or len(body) >= self._body_end:
        return None
    pipeline = self._pipeline
    link = self._link
    stream = link.stream
    welcome = link.welcome
    if (
        not self.is_open
        or self._lingers
        or stream is None
        or welcome is None
        or pipeline.unanswered_bytes
        or pipeline._hold_until
        or pipeline._has_to_resume
        or pipeline.callbacks
        or pipeline._form_of is not welcome
        or stream.unsent
    ):
        return None
    sender = self._sender
    form = pipeline._form
    name = self._topic_bytes(topic)
    turn = self._turns.get(name, -1) + 1
    queue = name, turn % known[0]
    forms = self._lone.get(queue)
    if forms is None or sender.lone_form is not form:
        sender.prepare_lone(queue, form)
        return None
    tail = _tail_of(self, forms, properties)
    if len(body) + len(tail) > forms.body_max + len(forms.tail):
        return None
    if not _has_id(self, queue, forms, now):
        return None
    number = self._next_id
    self._next_id += 1
    request_id = next(self._request_ids)
    born_ms = time_ns() // 1_000_000
    whole, sizes = write_batch(
        forms.frame, forms.begin, tail, [body], request_id, number, born_ms,
        form.entry_header_size, crc32,
    )  # fmt: skip
    # As ``unique_id``.
    id_ = f"{forms.prefix}{number:012X}"
    make = partial(self._answer.one, number=0, id_=id_)
    future = self._make_future(self, make, id_, callback)
    frame = self._make_frame(form, forms.run, whole, sizes, future)
    self._turns[name] = turn
    _hand_over(self, stream, request_id, frame, whole, now)
    return future


@cython.cfunc
def _send_batch(self: Exchange, topic, bodies, properties, callback):
    now: cython.double = monotonic()
    known = self._known_routes.get(topic)
    count: cython.Py_ssize_t = len(bodies)
    pipeline = self._pipeline
    link = self._link
    stream = link.stream
    welcome = link.welcome
    if (
        known is None
        or now > known[1]
        or not self.is_open
        or stream is None
        or welcome is None
        or pipeline._open is not None
        or pipeline._ready
        or pipeline._refused
        or pipeline._hold_until
        or pipeline._has_to_resume
        or pipeline.callbacks
        or pipeline._form_of is not welcome
        or stream.unsent
        or len(self._in_flight) >= pipeline._allowed
        or not 0 < count <= welcome.frame_records_max
    ):
        return None
    sender = self._sender
    form = pipeline._form
    name = self._topic_bytes(topic)
    turn = self._turns.get(name, -1) + 1
    queue = name, turn % known[0]
    forms = self._lone.get(queue)
    if forms is None or sender.lone_form is not form:
        sender.prepare_lone(queue, form)
        return None
    tail = _tail_of(self, forms, properties)
    body_max: cython.Py_ssize_t = forms.body_max + len(forms.tail) - len(tail)
    size: cython.Py_ssize_t = count * (len(forms.begin) + len(tail) + _DIGITS)
    for body in bodies:
        if type(body) is not bytes or len(body) > body_max or len(body) >= self._body_end:
            return None
        size += len(body)
    unanswered: cython.Py_ssize_t = pipeline.unanswered_bytes
    if size > welcome.frame_size_max or (
        unanswered and unanswered + size > min(self._window_bytes, welcome.window_bytes)
    ):
        return None
    prefix, number = sender.ids.reserve(count)
    if prefix != forms.prefix:
        del self._lone[queue]
        return None
    request_id = next(self._request_ids)
    whole, sizes = write_batch(
        forms.frame, forms.begin, tail, bodies, request_id, number, time_ns() // 1_000_000,
        form.entry_header_size, crc32,
    )  # fmt: skip
    make = self._make_batch(count, prefix, number)
    future = self._make_future(self, make, f"{prefix}{number:012X}", callback)
    run = forms.run._replace(records=count)
    frame = self._make_frame(form, run, whole, sizes, future)
    self._turns[name] = turn
    _hand_over(self, stream, request_id, frame, whole, now)
    return future


@cython.cfunc
def _tail_of(self: Exchange, forms, properties) -> bytes:
    """What stands behind a body with ``properties``, but for the digits of its unique id."""
    if properties is None:
        return forms.tail
    return self._tail(forms.run.topic, properties, forms.prefix)


@cython.cfunc
def _gather(self: Exchange, topic, body, properties, callback):
    """Put ``body`` into the frame that waits for those under way; its future, or None."""
    pipeline = self._pipeline
    frame = pipeline._open
    welcome = self._link.welcome
    if (
        frame is None
        or not self.is_open
        or welcome is None
        or pipeline._form_of is not welcome
        or not pipeline.only_gathers
        or frame.records >= welcome.frame_records_max
    ):
        return None
    now: cython.double = monotonic()
    known = self._known_routes.get(topic)
    length: cython.Py_ssize_t = len(body)
    if known is None or now > known[1] or length >= self._body_end:
        return None
    form = pipeline._form
    name = self._topic_bytes(topic)
    queue_id = frame.queues.get(name)
    if queue_id is None or (frame.form is not form and frame.form != form):
        return None
    sender = self._sender
    queue = name, queue_id
    forms = self._lone.get(queue)
    if forms is None or sender.lone_form is not form:
        sender.prepare_lone(queue, form)
        return None
    tail = _tail_of(self, forms, properties)
    size: cython.Py_ssize_t = len(forms.begin) + length + len(tail) + _DIGITS
    if (
        length + len(tail) > forms.body_max + len(forms.tail)
        or frame.size + size >= self._batch_bytes
        or pipeline.unanswered_bytes + size > self._window_bytes
        or not _has_id(self, queue, forms, now)
    ):
        return None
    number = self._next_id
    self._next_id += 1
    record = write_record(
        forms.begin, tail, body, number, time_ns() // 1_000_000,
        form.entry_header_size, crc32,
    )  # fmt: skip
    id_ = f"{forms.prefix}{number:012X}"
    future = self._make_future(self, partial(frame.rows.place, frame.records, id_), id_, callback)
    join_frame(frame, queue, [record], size, future)
    pipeline.unanswered_bytes += size
    driver = self._driver
    if driver is not None:
        if now < driver._look_at:
            driver._has_changed = True
        else:
            driver.advance_behind_send(now, is_urgent=False)
    return future


def join_frame(frame, queue, parts, size: cython.Py_ssize_t, future):
    """Put a message into an ``OpenFrame``; compiled, all of it is done, or nothing.

    Args:
        parts: bytes of its record, to be joined; ``size`` in all.
    """
    runs: dict = frame._runs
    futures: list = frame._futures
    of_frame: list = frame._parts
    run_of, sizes = frame._run_of, frame._sizes
    run_of.append(runs.setdefault(queue, len(runs)))
    of_frame.append(parts)
    sizes.append(size)
    futures.append(future)
    frame.size += size
    frame.records += 1


@cython.cfunc
@cython.exceptval(-1)
def _has_id(self: Exchange, queue, forms, now: cython.double) -> cython.bint:
    """Whether ``forms`` are of the unique ids that are drawn."""
    if self._next_id == self._ids_end or now > self._ids_until:
        self._prefix, self._next_id = self._sender.ids.reserve(_IDS)
        self._ids_end = self._next_id + _IDS
        self._ids_until = now + _IDS_S
    if self._prefix != forms.prefix:
        del self._lone[queue]
        return False
    return True


@cython.cfunc
@cython.exceptval(-1)
def _hand_over(self: Exchange, stream, request_id, frame, whole, now: cython.double) -> cython.int:
    """Give a frame to the kernel, or leave it in line where the connection has ended."""
    pipeline = self._pipeline
    size: cython.Py_ssize_t = frame.size
    sent: cython.Py_ssize_t
    sequence = pipeline._next_sequence
    frame.sequence = sequence
    pipeline._next_sequence = sequence + 1
    deadline: cython.double = now + self._timeout_s
    frame.deadline = deadline
    pipeline.expire_at = min(pipeline.expire_at, deadline)
    frame.first_position = self._link.position
    self._in_flight[request_id] = frame
    pipeline._in_flight_bytes += size
    pipeline.unanswered_bytes += size
    try:
        sent = stream.socket.send(whole)
    except BlockingIOError:
        sent = 0
    except OSError:
        stream.end()
        del self._in_flight[request_id]
        pipeline._in_flight_bytes -= size
        pipeline.keep_unsent(frame)
        return 0
    except BaseException:
        del self._in_flight[request_id]
        pipeline._in_flight_bytes -= size
        pipeline.unanswered_bytes -= size
        raise
    if sent < len(whole):
        stream.send_later(memoryview(whole)[sent:])
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _keeps_nothing(stream) -> cython.bint:
    """Whether all that has come was taken, and all that was to be sent has left."""
    if stream is None or stream.came or stream.unsent:
        return False
    reader = stream.reader
    return not (reader.begun or reader.messages)


@cython.cfunc
@cython.exceptval(-1)
def _is_done(future) -> cython.bint:
    return future._answer is not None or future._error is not None


@cython.cfunc
@cython.exceptval(-1)
def _begin_wait(self: Exchange, future, me, seconds: cython.double) -> cython.bint:
    """Become the poller, if there is none, and nothing is to be done but to wait for answers."""
    driver = self._driver
    pipeline = self._pipeline
    if (
        driver._poller
        or driver._followers
        or driver._closing
        or pipeline.callbacks
        or future.callback is not None
        or not self._in_flight
    ):
        return False
    now: cython.double = monotonic()
    if now + seconds > pipeline.expire_at or not _keeps_nothing(self._link.stream):
        return False
    watch = driver._waiters_watch
    if driver._has_changed:
        if not pipeline.only_gathers:
            return False
        # What was put into the open frame waits for the same answers.
        driver._has_changed = watch.is_fresh = False
    if not watch.is_fresh:
        watch.prepare(pipeline, now + seconds)
    driver._poller = me
    watch.until = now + seconds
    return True


@cython.cfunc
@cython.exceptval(-1)
def _end_wait(self: Exchange, is_done: cython.bint, me) -> cython.int:
    """Poll no more; others may wait, or have sent meanwhile."""
    driver = self._driver
    if is_done and driver._room_waiters:
        driver._release_room_waiters()
    if not is_done:
        # The long way looks at what has come, or at what was not done in time.
        driver._has_changed = True
    elif self._pipeline.unanswered_bytes or driver._followers:
        driver.advance(monotonic(), me=me)
        driver._stop_polling(me)
        return 0
    if driver._poller == me:
        driver._poller = 0
        driver._has_just_waited = True
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _take(self: Exchange, came) -> cython.bint:
    """Whether something has come to the stream, and all of it were answers, which are taken.

    Args:
        came: what a poll has said; None: none was asked.
    """
    stream = self._link.stream
    if not _keeps_nothing(stream) or (came is not None and came != stream.told):
        return False
    try:
        data: bytes = stream.socket.recv(_READ_SIZE)
    except OSError:
        # There is nothing, or no connection any more: that is found once more.
        return False
    stream.came = data
    answered = _answers(self, data)
    if answered is None:
        return False
    # From here on nothing of Python is called: all of it happens, or nothing.
    pipeline = self._pipeline
    link = self._link
    for frame, request_id, position, answer in answered:
        size = frame.size
        del self._in_flight[request_id]
        pipeline._in_flight_bytes -= size
        pipeline.unanswered_bytes -= size
        link.position = max(link.position, position)
        pipeline._backoff_ms = pipeline.BACKOFF_MS_MIN
        if pipeline._allowed < self._allowed_max:
            pipeline._allowed += 1
        for future in frame.futures:
            future._answer = answer
            if future._waiter is not None:
                future._waiter.release()
            if future.callback is not None:
                pipeline.callbacks.append(future)
    stream.came = b""
    return True


@cython.cfunc
def _answers(self: Exchange, data: bytes):
    """The answers that ``data`` are, each with its frame, request and position; None for what is
    not such answers alone, to frames under way.
    """
    in_flight = self._in_flight
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t = len(data)
    if size == 0 or size % _ANSWER_SIZE:
        return None
    found = []
    known = set()
    for at in range(0, size, _ANSWER_SIZE):
        if not data.startswith(_ANSWER_BEGIN, at):
            return None
        (
            _, _, _, _, _, request_id, term, stored_at, ack, spans, first, records, position, offset
        ) = ONE_SENT.unpack_from(data, at + _STREAM_HEAD)  # fmt: skip
        frame = in_flight.get(request_id)
        if (
            frame is None
            or request_id in known
            or frame.on_settled is not None
            or (spans, first, records) != (1, 0, len(frame.sizes))
            or not 0 <= ack < self._answer.ACK_COUNT
        ):
            return None
        known.add(request_id)
        span = tuple.__new__(self._span, (first, records, position, offset))
        sent = tuple.__new__(self._sent, (request_id, term, stored_at, ack, [span], ()))
        answer = self._answer(sent, frame.sizes, frame.runs, self._pipeline._host)
        found.append((frame, request_id, position, answer))
    return found
