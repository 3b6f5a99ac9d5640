"""Driver threads of a ``SendPipeline``: a poller at a time, and those that wait for it.

One thread at a time polls, the *poller*. A thread that waits for a result polls itself when no
other waiting thread does: it sends, polls, and takes its own answer, and no other thread runs. A
background thread polls while messages are under way and nobody waits for them, and makes way for
who comes to wait; when all is quiet it sleeps until it is woken.

ZeroMQ sockets are used under the lock only. Polling needs no lock: it looks at their descriptors.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ledgermq.client.core.link import NEVER
from ledgermq.client.forks import OfOneProcess
from ledgermq.client.sending.frames import AnyFuture
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import SendPipeline
from ledgermq.hosts.wake_bell import READABLE, SLEEP_S_MAX, new_bell, new_poll, wait_for_descriptors
from ledgermq.model.errors import OutcomeUnknownError, TimedOutError

logger = logging.getLogger(__name__)

QUIET_TICK_S = 0.02
"""How soon the background looks after messages whose sender went away without waiting; who has just
waited gets a second one: it mostly comes back.
"""

LOOK_S = 0.002
"""A thread that sends and does not wait looks for answers no more often."""

QUIET_S = 1.0
"""After so long without messages the background thread sleeps until it is woken."""

MakeWaiter = Callable[[], threading.Lock]


class Watch:
    """What one poller at a time sleeps at: the descriptors of a link, and a bell of its own."""

    def __init__(self) -> None:
        self.bell = new_bell()
        self.generation = -1
        """A bell beside the link whose descriptors are watched."""
        self.until = NEVER
        """When the sleep ends by itself."""
        self.is_fresh = False
        """Whether the link has not gone on since it was prepared."""
        self.poll = new_poll()

    def prepare(self, pipeline: SendPipeline, until: float) -> None:
        """Know what to poll, and until when; under the pipeline's lock."""
        link = pipeline.link
        generation = link.generation
        if self.generation != generation:
            self.generation = generation
            self.poll = new_poll()
            self.poll.register(self.bell.descriptor, READABLE)
            for descriptor in link.descriptors:
                self.poll.register(descriptor, READABLE)
        self.is_fresh = True
        deadline = pipeline.deadline
        self.until = deadline if deadline < until else until

    def sleep(self, now: float) -> None:
        """Until something can be read, the bell rings, or it is time; without the lock."""
        seconds = self.until - now
        if seconds > SLEEP_S_MAX:
            seconds = SLEEP_S_MAX
        elif seconds < 0.0:
            seconds = 0.0
        bell = self.bell.descriptor
        for descriptor, _ in self.poll.poll(seconds * 1_000):
            if descriptor == bell:
                self.bell.clear()


class SendDriver(OfOneProcess):
    """Drives one pipeline, which nobody touches but under ``lock``.

    Invariants, under ``lock``: ``_poller`` is the thread that polls or is about to, 0 when there is
    none; whoever stops polling leaves followers to the background thread, and the rest to its tick.
    """

    def __init__(self, pipeline: SendPipeline, *, name: str) -> None:
        self.pipeline = pipeline
        self.lock = threading.Lock()
        self._poller = 0
        self._background = 0
        self._look_at = 0.0
        self._has_changed = False
        # Two: the background may still be on its way out of its sleep when a waiter begins its own.
        self._waiters_watch = Watch()
        self._backgrounds_watch = Watch()
        self._has_just_waited = False
        self._followers = 0
        self._room_waiters: list[threading.Lock] = []
        self._background_bell = new_bell()
        self._background_sleeps = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._belong()

    def advance_behind_send(self, now: float, *, is_urgent: bool) -> None:
        """Let the pipeline go on after a message came in, unless that one only waits for others.

        Who sends without waiting looks for answers now and then: with each message they would come
        at once, and the frames that wait for them go with few messages each.
        """
        if not is_urgent and now < self._look_at and self.pipeline.only_gathers:
            self._has_changed = True
            return
        self._look_at = now + LOOK_S
        self.advance(now, is_urgent=is_urgent)

    def advance(self, now: float, *, me: int = 0, is_urgent: bool = False) -> None:
        """Let the pipeline go on after a change; under ``lock``, and ``deliver`` outside of it.

        Args:
            now: by ``time.monotonic``.
            me: the thread that calls, if that is known.
            is_urgent: an answer must be taken at once, even if nobody comes to wait for it.
        """
        self._has_changed = self._waiters_watch.is_fresh = False
        taken = self.pipeline.advance(now)
        if taken and self._room_waiters:
            self._release_room_waiters()
        if not me or self._poller != me:
            self.wake_poller(taken, me=me, is_urgent=is_urgent)

    def wake_poller(self, taken: int = 0, *, me: int = 0, is_urgent: bool = False) -> None:
        """Have somebody poll for what is under way; under ``lock``, as part of ``advance``."""
        if self._poller:
            if self._poller == (me or threading.get_ident()):
                return
            watch = self._watch_of_poller()
            # The poller may wait for what was taken just now, sleep too long, or poll what is gone.
            if (
                taken
                or self.pipeline.deadline < watch.until
                or self.pipeline.link.generation != watch.generation
            ):
                watch.bell.ring()
        elif (self.pipeline.unanswered_bytes or self._followers) and (
            is_urgent or self._should_wake_background()
        ):
            self._background_sleeps = False
            self._background_bell.ring()

    def deliver(self) -> None:
        """Call the callbacks of messages that have an outcome; not under ``lock``."""
        if not self.pipeline.callbacks:
            return
        with self.lock:
            futures = self.pipeline.callbacks
            self.pipeline.callbacks = []
        for future in futures:
            call_back(future)

    def wait_for(
        self, future: SendFuture[object], timeout: float | None, since: float | None = None
    ) -> None:
        """Return when ``future`` is done.

        Args:
            since: when the time began, by ``time.monotonic``; now, without it.

        Raises:
            TimedOutError: it is not, after ``timeout`` seconds.
            OutcomeUnknownError: the producer is closed meanwhile.
        """
        until = NEVER
        if timeout is not None:
            until = (time.monotonic() if since is None else since) + timeout
        if self._wait_until(future.done, until, future.waiter, has_advanced=True):
            return
        if not self._closing:
            raise TimedOutError("no outcome yet; the message is under way", waited_s=timeout)
        if not future.done():
            raise OutcomeUnknownError("producer is closed; the message may be stored")

    def wait_for_room(self, size: int, until: float) -> bool:
        """Return when ``size`` bytes may come in; false when they may not at ``until``."""
        pipeline = self.pipeline

        def has_room() -> bool:
            return pipeline.link.failure is not None or (
                pipeline.form is not None and pipeline.has_room(size)
            )

        return self.wait_until(has_room, until)

    def wait_until(self, done: Callable[[], bool], until: float) -> bool:
        """Return when ``done()``, which is asked under the lock; false when not at ``until``."""
        return self._wait_until(done, until, self._room_waiter)

    def wait_until_idle(self, until: float) -> bool:
        """Return when every message has its outcome; false when not at ``until``."""
        pipeline = self.pipeline

        def is_idle() -> bool:
            return pipeline.unanswered_bytes == 0

        with self.lock:
            pipeline.flush()
        return self.wait_until(is_idle, until)

    def _leave(self) -> None:
        """Leave all to the parent: nobody drives it here; who waits is told what the link says."""
        self.lock = threading.Lock()
        self._poller = self._followers = 0
        self._closing = self._has_changed = True

    def close(self) -> None:
        """Stop the background thread, fail what has no outcome, close the sockets."""
        with self.lock:
            if self._closing:
                return
            self._closing = True
            self._background_bell.ring()
            self._waiters_watch.bell.ring()
            self._backgrounds_watch.bell.ring()
        if self._thread is not threading.current_thread():
            self._thread.join()
        with self.lock:
            self.pipeline.abandon()
            self.pipeline.link.close()
            self._release_room_waiters()
        self.deliver()

    def _wait_until(
        self,
        done: Callable[[], bool],
        until: float,
        make_waiter: MakeWaiter,
        *,
        has_advanced: bool = False,
    ) -> bool:
        """Return when ``done()``, which is asked under the lock; false when not at ``until``.

        Args:
            has_advanced: nothing was changed since the pipeline went on.
        """
        me = threading.get_ident()
        try:
            while True:
                now = time.monotonic()
                with self.lock:
                    if not has_advanced or self._has_changed:
                        self.advance(now, me=me)
                    has_advanced = False
                    is_done = done()
                    if is_done or now >= until or self._closing:
                        self._stop_polling(me)
                        break
                    waiter = None
                    if self._poller in (0, me):
                        self._poller = me
                        self._waiters_watch.prepare(self.pipeline, until)
                    elif self._poller == self._background and self._followers == 0:
                        # No other waiting thread polls, nor wants to: the background makes way.
                        self._backgrounds_watch.bell.ring()
                        self._poller = me
                        self._waiters_watch.prepare(self.pipeline, until)
                    else:
                        waiter = make_waiter()
                if self.pipeline.callbacks:
                    self.deliver()
                if waiter is None:
                    self._waiters_watch.sleep(now)
                else:
                    self._follow(waiter, until - now)
        except BaseException:
            # Interrupted in a wait: somebody else must poll now.
            with self.lock:
                self._stop_polling(me)
            raise
        if self.pipeline.callbacks:
            self.deliver()
        return is_done

    def _watch_of_poller(self) -> Watch:
        is_background = self._poller == self._background
        return self._backgrounds_watch if is_background else self._waiters_watch

    def _follow(self, waiter: threading.Lock, seconds: float) -> None:
        """Wait for another thread to poll what this one waits for."""
        with self.lock:
            self._followers += 1
            if self._poller == 0:
                self._background_bell.ring()
        try:
            if waiter.acquire(timeout=min(seconds, SLEEP_S_MAX)):
                # Others may wait at the same lock.
                waiter.release()
        finally:
            with self.lock:
                self._followers -= 1

    def _run(self) -> None:
        me = self._background = threading.get_ident()
        active_at = time.monotonic()
        frames = -1
        while True:
            with self.lock:
                if self._closing:
                    self._stop_polling(me)
                    return
                now = time.monotonic()
                self._background_sleeps = False
                if not self._has_work():
                    self._has_just_waited = False
                if self._poller == 0 and self._has_work() and self._is_left_alone(frames):
                    self._poller = me
                self.advance(now, me=me)
                if self._poller == me and not self._is_needed():
                    self._stop_polling(me)
                is_poller = self._poller == me
                if is_poller or frames != self.pipeline.frames_made:
                    active_at, frames = now, self.pipeline.frames_made
                if is_poller:
                    self._backgrounds_watch.prepare(self.pipeline, NEVER)
                else:
                    self._background_sleeps = now - active_at > QUIET_S
            self.deliver()
            if is_poller:
                self._backgrounds_watch.sleep(now)
            else:
                self._sleep_in_background(forever=now - active_at > QUIET_S)

    def _sleep_in_background(self, *, forever: bool) -> None:
        bell = self._background_bell
        wait_for_descriptors((bell.descriptor,), SLEEP_S_MAX if forever else QUIET_TICK_S)
        bell.clear()

    def _stop_polling(self, me: int) -> None:
        if self._poller != me:
            return
        self._poller = 0
        self._has_just_waited = me != self._background
        has_work = self.pipeline.unanswered_bytes or self._followers
        if has_work and not self._closing and self._should_wake_background():
            self._background_sleeps = False
            self._background_bell.ring()

    def _has_work(self) -> bool:
        return self.pipeline.unanswered_bytes > 0 or self._followers > 0

    def _is_needed(self) -> bool:
        """Whether the background must go on polling.

        Those whose answer has come are still counted as followers until they run: polling on for
        them would keep them from polling for their next message themselves.
        """
        pipeline = self.pipeline
        return pipeline.unanswered_bytes > 0 or (self._followers > 0 and pipeline.form is None)

    def _is_left_alone(self, frames: int) -> bool:
        """Whether nobody polls for what is under way, and nobody is about to.

        Args:
            frames: how many frames there were at the last tick: the sender of a newer one has had
                no time to come and wait.
        """
        has_just_waited, self._has_just_waited = self._has_just_waited, False
        if self._followers > 0:
            return True
        pipeline = self.pipeline
        return not has_just_waited and (pipeline.in_flight != 1 or pipeline.frames_made == frames)

    def _should_wake_background(self) -> bool:
        # A lone frame waits for its sender, or for the background's next tick; so do all when the
        # last thread that waited may be back in a moment.
        if self._background_sleeps or self._followers > 0:
            return True
        return not self._has_just_waited and self.pipeline.in_flight != 1

    def _room_waiter(self) -> threading.Lock:
        lock = threading.Lock()
        lock.acquire()
        self._room_waiters.append(lock)
        return lock

    def _release_room_waiters(self) -> None:
        for lock in self._room_waiters:
            lock.release()
        self._room_waiters.clear()


def call_back(future: AnyFuture) -> None:
    """Tell the application of a message that has its outcome."""
    assert future.callback is not None
    try:
        # Each kind of future has a callback of its own kind.
        future.callback(future)  # type: ignore[arg-type]
    except Exception:
        # The application's own: as with concurrent.futures, it must not stop the others'.
        logger.exception("callback of a message failed")
