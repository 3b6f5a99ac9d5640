"""Threads around a ``SendPipeline``: who polls the sockets, and who waits for whom.

One thread at a time polls, the *poller*. A thread that waits for a result polls itself when nobody
else does: a caller with one message under way sends, polls, and takes its own answer, and no other
thread runs. A background thread polls while messages are under way and nobody waits for them; when
all is quiet it sleeps until it is woken.

ZeroMQ sockets are used under the lock only. Polling needs no lock: it looks at their descriptors.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ledgermq.client.frames import AnyFuture
from ledgermq.client.send_future import SendFuture
from ledgermq.client.send_pipeline import NEVER, SendPipeline
from ledgermq.model.errors import TimedOutError

logger = logging.getLogger(__name__)

QUIET_TICK_S = 0.02
"""How soon the background looks after a message whose sender went away without waiting."""

QUIET_S = 1.0
"""After so long without messages the background thread sleeps until it is woken."""

POLL_S_MAX = 60.0

MakeWaiter = Callable[[], threading.Lock]


class Bell:
    """Wakes one poller, from any thread; many rings before it looks are one."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        """Wake who polls the descriptor."""
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Forget the rings so far."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


class SendDriver:
    """Drives one pipeline, which nobody touches but under ``lock``.

    Invariants, under ``lock``: ``_poller`` is the thread that polls or is about to, 0 when there is
    none; whoever stops polling wakes the background thread if there is still work.
    """

    def __init__(self, pipeline: SendPipeline, *, name: str) -> None:
        self.pipeline = pipeline
        self.lock = threading.Lock()
        self._poller = 0
        self._poller_until = NEVER
        self._poller_bell = Bell()
        self._poll = select.poll()
        self._poll_generation = -1
        self._followers = 0
        self._room_waiters: list[threading.Lock] = []
        self._background_bell = Bell()
        self._background_sleeps = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def advance(self, *, is_urgent: bool = False) -> None:
        """Let the pipeline go on after a change; under ``lock``, and ``deliver`` outside of it.

        Args:
            is_urgent: an answer must be taken at once, even if nobody comes to wait for it.
        """
        taken = self.pipeline.advance(time.monotonic())
        if taken:
            self._release_room_waiters()
        if self._poller == threading.get_ident():
            return
        if self._poller:
            # The poller may wait for what was taken just now, sleep too long, or poll what is gone.
            if (
                taken
                or self.pipeline.deadline < self._poller_until
                or self.pipeline.link.generation != self._poll_generation
            ):
                self._poller_bell.ring()
        elif self._has_work() and (is_urgent or self._should_wake_background()):
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
            _call_back(future)

    def wait_for(self, future: SendFuture[object], timeout: float | None) -> None:
        """Return when ``future`` is done.

        Raises:
            TimedOutError: it is not, after ``timeout`` seconds.
        """
        until = NEVER if timeout is None else time.monotonic() + timeout
        if not self._wait_until(future.done, until, future.waiter):
            raise TimedOutError("no outcome yet; the message is under way", waited_s=timeout)

    def wait_for_room(self, size: int, until: float) -> bool:
        """Return when ``size`` bytes may come in; false when they may not at ``until``."""
        pipeline = self.pipeline

        def has_room() -> bool:
            return pipeline.link.failure is not None or (
                pipeline.form is not None and pipeline.has_room(size)
            )

        return self._wait_until(has_room, until, self._room_waiter)

    def wait_until_idle(self, until: float) -> bool:
        """Return when every message has its outcome; false when not at ``until``."""
        pipeline = self.pipeline

        def is_idle() -> bool:
            return pipeline.unanswered_bytes == 0

        with self.lock:
            pipeline.flush()
        return self._wait_until(is_idle, until, self._room_waiter)

    def close(self) -> None:
        """Stop the background thread, fail what has no outcome, close the sockets."""
        with self.lock:
            if self._closing:
                return
            self._closing = True
            self._background_bell.ring()
            self._poller_bell.ring()
        if self._thread is not threading.current_thread():
            self._thread.join()
        with self.lock:
            self.pipeline.abandon()
            self.pipeline.link.close()
            self._release_room_waiters()
        self.deliver()
        self._poller_bell.close()
        self._background_bell.close()

    def _wait_until(self, done: Callable[[], bool], until: float, make_waiter: MakeWaiter) -> bool:
        """Return when ``done()``, which is asked under the lock; false when not at ``until``."""
        me = threading.get_ident()
        try:
            while True:
                with self.lock:
                    self.advance()
                    is_done = done()
                    now = time.monotonic()
                    if is_done or now >= until or self._closing:
                        self._stop_polling(me)
                        break
                    waiter = None if self._poller in (0, me) else make_waiter()
                    if waiter is None:
                        self._poller = me
                        seconds = self._prepare_poll(until, now)
                self.deliver()
                if waiter is None:
                    self._poll_once(seconds)
                else:
                    self._follow(waiter, until - now)
        except BaseException:
            # Interrupted in a wait: somebody else must poll now.
            with self.lock:
                self._stop_polling(me)
            raise
        self.deliver()
        return is_done

    def _follow(self, waiter: threading.Lock, seconds: float) -> None:
        """Wait for another thread to poll what this one waits for."""
        with self.lock:
            self._followers += 1
            if self._poller == 0:
                self._background_bell.ring()
        try:
            if waiter.acquire(timeout=min(seconds, POLL_S_MAX)):
                # Others may wait at the same lock.
                waiter.release()
        finally:
            with self.lock:
                self._followers -= 1

    def _run(self) -> None:
        me = threading.get_ident()
        active_at = time.monotonic()
        frames = -1
        while True:
            with self.lock:
                if self._closing:
                    self._stop_polling(me)
                    return
                now = time.monotonic()
                self._background_sleeps = False
                if self._poller == 0 and self._has_work() and self._is_left_alone(frames):
                    self._poller = me
                self.advance()
                if self._poller == me and not self._is_needed():
                    self._stop_polling(me)
                is_poller = self._poller == me
                if is_poller or frames != self.pipeline.frames_made:
                    active_at, frames = now, self.pipeline.frames_made
                if is_poller:
                    seconds = self._prepare_poll(NEVER, now)
                else:
                    self._background_sleeps = now - active_at > QUIET_S
            self.deliver()
            if is_poller:
                self._poll_once(seconds)
            else:
                self._sleep_in_background(forever=now - active_at > QUIET_S)

    def _sleep_in_background(self, *, forever: bool) -> None:
        select.select(
            [self._background_bell.descriptor], [], [], POLL_S_MAX if forever else QUIET_TICK_S
        )
        self._background_bell.clear()

    def _prepare_poll(self, until: float, now: float) -> float:
        """Know what to poll; for how many seconds."""
        link = self.pipeline.link
        if self._poll_generation != link.generation:
            self._poll_generation = link.generation
            self._poll = select.poll()
            self._poll.register(self._poller_bell.descriptor, select.POLLIN)
            for descriptor in link.descriptors:
                self._poll.register(descriptor, select.POLLIN)
        self._poller_until = min(until, self.pipeline.deadline, now + POLL_S_MAX)
        return max(0.0, self._poller_until - now)

    def _poll_once(self, seconds: float) -> None:
        bell = self._poller_bell
        for descriptor, _ in self._poll.poll(seconds * 1_000):
            if descriptor == bell.descriptor:
                bell.clear()

    def _stop_polling(self, me: int) -> None:
        if self._poller != me:
            return
        self._poller = 0
        if self._has_work() and not self._closing:
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
        pipeline = self.pipeline
        return self._followers > 0 or pipeline.in_flight != 1 or pipeline.frames_made == frames

    def _should_wake_background(self) -> bool:
        # A lone frame waits for its sender, or for the background's next tick.
        return self._background_sleeps or self.pipeline.in_flight != 1

    def _room_waiter(self) -> threading.Lock:
        lock = threading.Lock()
        lock.acquire()
        self._room_waiters.append(lock)
        return lock

    def _release_room_waiters(self) -> None:
        for lock in self._room_waiters:
            lock.release()
        self._room_waiters.clear()


def _call_back(future: AnyFuture) -> None:
    assert future.callback is not None
    try:
        # Each kind of future has a callback of its own kind.
        future.callback(future)  # type: ignore[arg-type]
    except Exception:
        # The application's own: as with concurrent.futures, it must not stop the others'.
        logger.exception("callback of a message failed")
