"""Worker of the process that reads sealed pieces: questions in, answers out, threads between.

The loop never waits for the place: threads do, ``cold.readers`` of them, and one that reads ahead.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple

import pyarrow as pa
import zmq

from ledgermq.cold.cold_reader import ColdReader
from ledgermq.cold.disk_cache import DiskCache
from ledgermq.cold.same_log import SameLog, SealedEnd
from ledgermq.cold.watched_place import WatchedPlace
from ledgermq.ipc.counters import ColdCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import Pollable, StopFlag
from ledgermq.ipc.zmq_flags import NOBLOCK
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    ColdAwayError,
    CorruptLogError,
    LedgerError,
    ProtocolError,
    StorageError,
)
from ledgermq.model.names.queue_name import QueueName
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest
from ledgermq.pipeline.pieces.piece_places import place_at
from ledgermq.process.node import Surroundings
from ledgermq.process.one_loop import bound_memory
from ledgermq.process.worker_main import run_worker
from ledgermq.sessions.request_faults import RequestFaults
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.wire.cold_frames import (
    QUESTION_SIZE_MAX,
    SEARCH_WAIT_MS,
    AnyQuestion,
    ColdBegins,
    ColdGreeting,
    ColdMessage,
    ColdQuestion,
    ColdRecords,
    ColdRefusal,
    ColdSearch,
    decode_question,
    encode_answer,
)

logger = logging.getLogger(__name__)

QUESTIONS_PER_TURN_MAX = 256
ASKERS_MAX = 64
"""Processes that are told where queues begin: a broker, port processes, and their next lives."""

ASKING_MAX = 4_096
"""Questions that wait for a thread; those of one life of the broker are bounded by
``cold.pulls_max``, and whoever was told that it has waited too long asks again."""

AHEAD_MAX = 8
"""Read-aheads that wait for their thread; of more none is made."""

GIVES_WAY_BY = 5
"""What is added to the nice value of the process."""

RETRY_NS = 5_000_000_000
"""Without a manifest, it is looked for again after so long."""


class _Greeted(NamedTuple):
    """Somebody wants to know where queues begin, by a manifest that is read from ``at_ns`` on."""

    asker: bytes
    serial: int
    at_ns: int


class ColdWorker:
    """What one turn of the process does."""

    zmq_uses: Final = None

    def __init__(self, environment: Surroundings) -> None:
        """Bind the socket, take over the cache, and begin to read the manifest.

        Raises:
            ConfigError: the place is none, or the cache cannot be used.
        """
        settings = environment.settings.cold
        assert settings.place is not None, "cold reads without a place"
        folder = settings.cache_dir or StorePaths.of(environment.settings).cold_cache
        cache = DiskCache(folder, settings.cache_bytes)
        self._counts = environment.page.counters(Role.COLD)
        self._counts[ColdCounter.AWAY_SINCE] = 0
        self._counts[ColdCounter.CACHE_BYTES] = cache.size
        # What an earlier life has found may have gone meanwhile.
        self._tell_sealed(0)
        self._faults = RequestFaults(self._counts, ColdCounter.REQUESTS_FAILED)
        self._place = WatchedPlace(
            place_at(settings.place),
            cache,
            folder / "manifest",
            self._counts,
            epoch_ns=environment.clock.epoch_ns,
        )
        self._sealed = SealedEnd(environment.settings, environment.page, self._place)
        same_log = SameLog(environment.settings, environment.page)
        self._reader = ColdReader(self._place, same_log.check)
        self._inbox = environment.inbox
        self._wait_ns = settings.wait_ms * 1_000_000
        self._refresh_ns = settings.refresh_s * 1_000_000_000
        self._refresh_due_ns = 0
        self._is_refreshing = False
        self._asking = self._reading_ahead = 0
        self._askers: dict[bytes, Mapping[QueueName, int] | None] = {}
        self._greetings: list[_Greeted] = []
        self._done: deque[Callable[[], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._threads = ThreadPoolExecutor(settings.readers, thread_name_prefix="cold-reader")
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="cold-ahead")
        self._searches = ThreadPoolExecutor(1, thread_name_prefix="cold-searches")
        self._checks = ThreadPoolExecutor(1, thread_name_prefix="cold-checks")
        self._is_checking = False
        self._socket: zmq.Socket[bytes] = environment.context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, QUESTION_SIZE_MAX)
        self._socket.bind(f"ipc://{environment.paths.cold}")
        # Whatever the umask says: who asks here is asked for no rights.
        environment.paths.cold.chmod(0o600)

    def sources(self) -> list[Pollable]:
        """The inbox, the socket, and what threads tell by."""
        return [*self._inbox.sources, self._socket, self._bell]

    def sleep_ms(self, now_ns: int) -> int:
        """Until the manifest is to be read again."""
        return 1_000 if self._is_refreshing else max(0, self._refresh_due_ns - now_ns) // 1_000_000

    def hears_bells(self, now_ns: int) -> bool:
        """Nobody rings."""
        del now_ns
        return False

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """Take questions, send answers; have the manifest read when it is time."""
        self._inbox.drain(ready)
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        while self._done:
            self._done.popleft()()
        for _ in range(QUESTIONS_PER_TURN_MAX):
            try:
                parts = self._socket.recv_multipart(NOBLOCK)
            except zmq.Again:
                break
            self._take(parts, now_ns)
        else:
            os.eventfd_write(self._bell, 1)
        if now_ns >= self._refresh_due_ns and not self._is_refreshing:
            self._is_refreshing = True
            self._threads.submit(self._refresh, now_ns)
        self._tell_begins()

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again."""
        self._wait_ns = settings.cold.wait_ms * 1_000_000

    def finish(self) -> None:
        """Nobody asks any more."""

    def close(self) -> None:
        """Let go; what a thread reads now is read in vain."""
        self._sealed.stopped.set()
        for threads in (self._checks, self._searches, self._threads, self._ahead):
            threads.shutdown(wait=False, cancel_futures=True)
        self._socket.close(0)
        if isinstance(self._counts, memoryview):
            self._counts.release()

    def _take(self, parts: list[bytes], now_ns: int) -> None:
        asker, *question = parts
        try:
            asked = decode_question(question)
        except ProtocolError as error:
            logger.error("question refused: %s", error)
            return
        if asker not in self._askers:
            if len(self._askers) >= ASKERS_MAX:
                # Long gone, or it is told with its next question.
                del self._askers[next(iter(self._askers))]
            self._askers[asker] = None
        if isinstance(asked, ColdGreeting):
            self._askers[asker] = None
            if len(self._greetings) < ASKERS_MAX:
                self._greetings.append(_Greeted(asker, asked.serial, now_ns))
                self._refresh_due_ns = 0
            return
        self._counts[ColdCounter.PULLS] += 1
        if self._asking >= ASKING_MAX:
            reason = StorageError("too many questions wait for it", limit=ASKING_MAX)
            self._send(asker, ColdRefusal(asked.number, self._place.away(reason)))
            return
        self._asking += 1
        if isinstance(asked, ColdSearch):
            # It goes through many pieces: readers do not wait for it.
            self._searches.submit(self._read, asker, asked, now_ns + SEARCH_WAIT_MS * 1_000_000)
        else:
            self._threads.submit(self._read, asker, asked, now_ns + self._wait_ns)

    def _read(self, asker: bytes, asked: AnyQuestion, until_ns: int) -> None:
        """By a thread: answer, unless nobody waits for that any more."""
        answer: ColdMessage | None = None
        if time.monotonic_ns() < until_ns:
            try:
                answer = self._reader.answer(asked)
            except LedgerError as error:
                answer = ColdRefusal(asked.number, error)
            except Exception as error:
                answer = ColdRefusal(asked.number, self._faults.refusal(error, "cold read"))
        self._tell(lambda: self._answered(asker, asked, answer))

    def _answered(self, asker: bytes, asked: AnyQuestion, answer: ColdMessage | None) -> None:
        self._asking -= 1
        if answer is None:
            return
        if isinstance(answer, ColdRefusal):
            self._counts[ColdCounter.PULLS_FAILED] += 1
            if not isinstance(answer.error, ColdAwayError):
                logger.error("cold read refused: %s", answer.error)
        self._send(asker, answer)
        if not (isinstance(asked, ColdQuestion) and isinstance(answer, ColdRecords)):
            return
        if self._reading_ahead < AHEAD_MAX:
            self._reading_ahead += 1
            self._ahead.submit(self._read_ahead, asked, answer.next_offset)

    def _read_ahead(self, asked: ColdQuestion, next_offset: int) -> None:
        """By a thread."""
        try:
            self._reader.read_ahead(asked, next_offset)
        finally:
            self._tell(self._is_read_ahead)

    def _is_read_ahead(self) -> None:
        self._reading_ahead -= 1

    def _refresh(self, now_ns: int) -> None:
        """By a thread."""
        try:
            manifest = self._reader.refresh(now_ns).manifest
            if self._reader.read_ns >= 0:
                self._tell(lambda: self._begin_checks(manifest))
        except LedgerError as error:
            # Who wants to know asks again.
            self._tell(self._greetings.clear)
            self._tell(lambda: self._tell_sealed(0))
            logger.warning("manifest of pieces not read: %s", error)
        except Exception as error:
            self._faults.refusal(error, "manifest of pieces")
        finally:
            self._tell(self._is_refreshed)

    def _begin_checks(self, manifest: PieceManifest) -> None:
        """Have pieces read through that came since, unless that is being done."""
        if not self._is_checking:
            self._is_checking = True
            self._checks.submit(self._check, manifest)

    def _check(self, manifest: PieceManifest) -> None:
        """By a thread."""
        try:
            self._sealed.look(
                manifest, lambda position: self._tell(lambda: self._tell_sealed(position))
            )
        except LedgerError as error:
            self._place.count(ColdCounter.DAMAGED, isinstance(error, CorruptLogError))
            logger.error("retention of the log waits for pieces: %s", error)
        except Exception as error:
            self._faults.refusal(error, "check of pieces")
        finally:
            self._tell(self._is_checked)

    def _is_checked(self) -> None:
        self._is_checking = False

    def _tell_sealed(self, position: int) -> None:
        self._counts[ColdCounter.SEALED_POSITION] = position

    def _is_refreshed(self) -> None:
        self._is_refreshing = False
        is_known = self._reader.read_ns >= 0
        pause_ns = self._refresh_ns if is_known else min(self._refresh_ns, RETRY_NS)
        if any(one.at_ns > self._reader.read_ns for one in self._greetings):
            # They came while it was read.
            pause_ns = 0
        self._refresh_due_ns = time.monotonic_ns() + pause_ns

    def _tell_begins(self) -> None:
        """Tell all who ask where queues begin, if that is news to them."""
        begins, read_ns = self._reader.begins, self._reader.read_ns
        if begins is None:
            return
        for one in [one for one in self._greetings if one.at_ns <= read_ns]:
            self._greetings.remove(one)
            self._send(one.asker, ColdBegins(one.serial, begins))
        for asker, told in self._askers.items():
            if told is not begins:
                self._askers[asker] = begins
                if told != begins:
                    self._send(asker, ColdBegins(0, begins))

    def _send(self, asker: bytes, answer: ColdMessage) -> None:
        try:
            self._socket.send_multipart([asker, *encode_answer(answer)], NOBLOCK, copy=True)
        except zmq.ZMQError as error:
            # It has gone, or does not read: it asks again.
            logger.warning("answer not sent: reason=%s", error)

    def _tell(self, act: Callable[[], None]) -> None:
        self._done.append(act)
        os.eventfd_write(self._bell, 1)


def serve(settings: Settings, stop: StopFlag) -> int:
    """Read pieces until told to stop; the exit status.

    Raises:
        ConfigError: as ``ColdWorker``.
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    bound_memory(settings.cold.memory_bytes_max)
    # Who decompresses old messages leaves the processors to who stores and reads new ones.
    os.nice(GIVES_WAY_BY)
    # What a row group took is given back, and counts in the bound no more.
    pa.set_memory_pool(pa.system_memory_pool())
    return run_worker(Role.COLD, settings, stop, ColdWorker)
