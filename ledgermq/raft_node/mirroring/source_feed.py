"""Feed of a mirror: a thread that asks the source, one question at a time, and keeps the answers.

What is under way to the log is bounded: entries are asked for while less than ``WINDOW_SIZE`` of
them waits to be held here. The feed goes on behind the last entry that it was given, without being
told; where the core has not taken one, it says how its log ends, and the feed begins anew there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ledgermq.model.config.settings import MirrorSection
from ledgermq.model.errors import ConfigError, LedgerError, ProtocolError
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.model.units import KIB
from ledgermq.raft.entry_terms import UNKNOWN_TERM
from ledgermq.raft.message_codec import decode_message, encode_message
from ledgermq.raft.messages import Append, EntryId, TermRun
from ledgermq.raft_node.mirroring.mirror_lag import Lag, MirrorLag
from ledgermq.raft_node.mirroring.source_link import (
    DIGEST_S,
    SILENCE_S,
    SourceAnswer,
    SourceLink,
)
from ledgermq.raft_node.shipping.file_receiver import WINDOW_SLICES
from ledgermq.raft_node.shipping.file_shipper import SLICE_SIZE_MAX
from ledgermq.wire.mirror_frames import ANSWER_SIZE_MAX, NUMBER_MAX, SourceState, join_parts
from ledgermq.wire.repair_frames import RepairKind, decode_repair_frame, is_repair_frame
from ledgermq.wire.ship_frames import (
    AskDigest,
    Digest,
    Ends,
    Gone,
    Offer,
    Slice,
    decode_ship_frame,
    is_ship_frame,
)

logger = logging.getLogger(__name__)

WINDOW_SIZE = 8 * 1024 * KIB
WAITING_SIZE_MAX = 2 * WINDOW_SIZE
"""Nothing is asked while more than this waits to be taken, whatever it is."""

SIZE_MIN = 64 * KIB

POLL_S = 0.2
"""Who has everything asks again so much later."""

IDLE_S, IDLE_POLL_S = 10.0, 1.0
"""And so much later when nothing has come for a while."""

OFFER_S = 1.0
"""An offer of files is asked for again so often: one that is not repeated counts no more."""

PAUSE_S, PAUSE_S_MAX = 0.5, 10.0
"""Pause after a question that was not answered, and the longest one; doubled each time."""

SWIFT_S = 1.0
"""Where an answer comes faster, more is asked for next."""

SLOW_S = 2.5
"""And less, where it takes longer."""

MARK_S = 10.0
"""The source is told so often what is held here, while that grows."""

MARK_SIZE = 1024 * KIB
MARK_AGAIN_S = 300.0
"""A mark is an entry of the source's log, which comes here: of less than this it is told so seldom,
and all the same then, for it says that the mirror lives."""

QUEUED_ASKS_MAX = 32

NO_MORE = Index(NUMBER_MAX)
"""Behind it nobody has an entry: who is asked says only how far it is."""

Parts = list[memoryview]


class FeedStatus(NamedTuple):
    """What is known of the source.

    Attributes:
        url: of the member that is asked; empty: nobody answers.
        trouble: why nothing comes; empty while it does.
        state: what was heard last.
        received: bytes of answers since the process began.
        mark: position that the source was told last; -1: none.
        mark_trouble: why it was not told; empty while it was.
    """

    url: str
    trouble: str
    state: SourceState | None
    received: int
    mark: int
    mark_trouble: str


class SourceFeed:
    """Owned by the raft process, whose loop calls all but ``_run``.

    Invariant: messages wait in the order of the log, and behind them are those on their way in
    ``_run``; what was asked before a new beginning is dropped when it comes.
    """

    def __init__(
        self, mirror: MirrorSection, link: SourceLink, *, wake: Callable[[], None]
    ) -> None:
        """Nothing is asked before ``start``.

        Args:
            wake: called in the thread when there is something to take.
        """
        self._mirror = mirror
        self._link = link
        self._wake = wake
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="mirror-feed", daemon=True)
        self._is_closed = False
        self._waiting: deque[Parts] = deque()
        self._waiting_size = 0
        self._asks: list[bytes] = []
        self._asked: list[bytes] = []
        self._term = Term(0)
        self._after: EntryId | None = None
        self._proposed: EntryId | None = None
        self._beginning = 0
        self._under_way: deque[tuple[Index, int]] = deque()
        self._size = 4 * SIZE_MIN
        self._free_at = self._told_at = 0.0
        self._held_position = self._to_mark = 0
        self._marked_at = self._mark_taken_at = self._entries_at = 0.0
        self._lag = MirrorLag()
        self._status = FeedStatus("", "", None, 0, -1, "")

    def remember(self, index: Index, position: Position) -> None:
        """What the source was known to have before this process began; called before ``start``."""
        self._lag.remember(index, position)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def take(self) -> Parts | None:
        """The next message of the source, None when none waits."""
        with self._changed:
            if not self._waiting:
                return None
            parts = self._waiting.popleft()
            self._waiting_size -= sum(map(len, parts))
            return parts

    def ask(self, frame: bytes) -> bool:
        """Ask for files, or entries; false when too much is asked for already."""
        with self._changed:
            if len(self._asks) >= QUEUED_ASKS_MAX:
                return False
            # What is being answered is asked for again on a slow line, and would come twice.
            if frame not in self._asks and frame not in self._asked:
                self._asks.append(frame)
                self._changed.notify()
            return True

    def held(self, index: Index, term: Term) -> None:
        """The core holds all that it was given up to ``index``; it is in ``term``."""
        with self._changed:
            self._term = max(self._term, term)
            was_full = self._is_full()
            while self._under_way and self._under_way[0][0] <= index:
                self._under_way.popleft()
            # Of each answer of the core it is told: only who waits for room is to be woken.
            if was_full and not self._is_full():
                self._changed.notify()

    def accepted(self, verified: Index) -> None:
        """The core has the entry that it was asked for first, if its log is right up to there."""
        with self._changed:
            proposed = self._proposed
            if self._after is None and proposed is not None and verified >= proposed.index:
                self._after = proposed
                self._changed.notify()

    def begin_after(self, last: EntryId, term: Term) -> None:
        """The core's log ends with ``last``: what was given behind it was not taken."""
        with self._changed:
            self._term = max(self._term, term)
            self._after = last
            self._beginning += 1
            self._waiting.clear()
            self._waiting_size = 0
            self._under_way.clear()
            self._changed.notify()

    def follow_term(self, term: Term) -> None:
        """The core is in ``term``: what it is given must not be of a lesser one."""
        with self._changed:
            self._term = max(self._term, term)

    def tell_held(self, position: int) -> None:
        """This node holds the log durably up to ``position``: the source may delete it."""
        with self._changed:
            self._held_position = position

    def look(self, held: Index, position: Position, now: float) -> tuple[FeedStatus, Lag]:
        """What is known of the source, and how far behind it a log up to ``held`` is."""
        with self._changed:
            status = self._status._replace(url=self._link.url)
            return status, self._lag.look(held, position, now)

    @property
    def trouble(self) -> str:
        """Why nothing comes; empty while it does."""
        with self._changed:
            return self._status.trouble

    def close(self) -> None:
        """End the thread, or leave it where it waits for the network: it changes nothing more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=0.2)

    def _run(self) -> None:
        pause_s = PAUSE_S
        while not self._is_closed:
            try:
                wait_s = self._turn()
                pause_s = PAUSE_S
                self._note("")
            except Exception as error:
                # A bug of ours, too: nobody would notice that the thread has ended.
                if not isinstance(error, LedgerError):
                    logger.exception("mirror's question failed")
                self._note(str(error) or type(error).__name__)
                self._size = max(SIZE_MIN, self._size // 2)
                if not isinstance(error, ConfigError):
                    self._link.leave()
                wait_s, pause_s = pause_s, min(2 * pause_s, PAUSE_S_MAX)
            with self._changed:
                if wait_s and not self._is_closed and not self._asks:
                    self._changed.wait(wait_s)
        self._link.close()

    def _is_full(self) -> bool:
        return sum(size for _, size in self._under_way) >= WINDOW_SIZE

    def _turn(self) -> float:
        """Ask one question; for how long nothing more need be asked, in seconds.

        Raises:
            LedgerError: nobody answers, or what came cannot be.
        """
        wait = self._free_at - time.monotonic()
        if wait > 0:
            time.sleep(min(wait, POLL_S))
            return 0.0
        with self._changed:
            self._asked = []
            if self._waiting_size >= WAITING_SIZE_MAX:
                return POLL_S
            # However many files are asked for: that the source lives, and offers them still, is
            # told in time.
            if time.monotonic() < self._told_at + OFFER_S:
                count = max(1, min(WINDOW_SLICES, self._size // SLICE_SIZE_MAX))
                self._asked, self._asks = self._asks[:count], self._asks[count:]
            asks = self._asked
            after, beginning, is_full = self._after, self._beginning, self._is_full()
        if asks:
            self._ask_files(asks, beginning)
            return 0.0
        self._mark_when_due()
        if after is None or is_full:
            # No entries; but that the source lives, and then the core says how its log ends.
            return self._ask_entries(EntryId(UNKNOWN_TERM, NO_MORE), beginning, size=1)
        wait_s = self._ask_entries(after, beginning, size=self._size)
        if wait_s >= 0:
            return wait_s
        with self._changed:
            term = self._term
        self._give(self._heard(self._link.get(f"/offer?term={term}")), beginning)
        return OFFER_S

    def _ask_files(self, asks: list[bytes], beginning: int) -> None:
        has_digest = any(_is_for_digest(ask) for ask in asks)
        begun = time.monotonic()
        silence_s = DIGEST_S if has_digest else SILENCE_S
        answer = self._heard(self._link.post("/files", join_parts(asks), silence_s=silence_s))
        if not has_digest:
            self._suit_size(time.monotonic() - begun)
        self._give(answer, beginning)

    def _suit_size(self, took_s: float) -> None:
        """Ask for more where an answer is swift, and for less where it keeps others waiting: that
        the source lives has to be told now and then.
        """
        if took_s < SWIFT_S:
            self._size = min(ANSWER_SIZE_MAX, 2 * self._size)
        elif took_s > SLOW_S:
            self._size = max(SIZE_MIN, self._size // 2)

    def _ask_entries(self, after: EntryId, beginning: int, *, size: int) -> float:
        """Entries behind ``after``; seconds to wait, below 0 where files are needed."""
        begun = time.monotonic()
        path = f"/entries?after={after.index}&term={after.term}&size={size}"
        answer = self._heard(self._link.get(path))
        self._told_at = time.monotonic()
        took = self._told_at - begun
        if not answer.frames:
            # Its log begins behind it; that it lives is told all the same.
            state = answer.state
            self._give_heartbeat(EntryId(state.term, state.index), state.index, beginning)
            return -1.0
        has_entries = self._give(answer, beginning)
        if has_entries:
            self._suit_size(took)
            self._entries_at = self._told_at
            return 0.0
        return POLL_S if self._told_at < self._entries_at + IDLE_S else IDLE_POLL_S

    def _heard(self, answer: SourceAnswer) -> SourceAnswer:
        now = time.monotonic()
        self._free_at = now + answer.size / self._mirror.bytes_per_s
        with self._changed:
            furthest = self._link.furthest
            if furthest is not None:
                # Another member may be asked, which hears its leader, and has it later.
                self._lag.heard(furthest.index, furthest.position, now, hears=False)
            self._lag.heard(
                answer.state.index, answer.state.position, now, hears=answer.state.hears
            )
            received = self._status.received + answer.size
            self._status = self._status._replace(state=answer.state, received=received)
        return answer

    def _give(self, answer: SourceAnswer, beginning: int) -> bool:
        """Hand the frames over; whether there are entries among them.

        Raises:
            ProtocolError: a frame is none that a source sends.
        """
        frames = iter(answer.frames)
        has_entries = False
        for frame in frames:
            if is_ship_frame(frame):
                self._put(_file_parts(frame, frames), beginning)
                continue
            append = decode_message(frame)
            if not isinstance(append, Append):
                raise ProtocolError("a source sends another message than its entries")
            _check_terms(append, answer.state.term)
            if append.runs:
                has_entries = True
                self._give_entries(append, _next(frames), beginning)
            else:
                self._give_heartbeat(append.previous, append.commit, beginning)
        return has_entries

    def _give_entries(self, append: Append, data: memoryview, beginning: int) -> None:
        count = sum(run.count for run in append.runs)
        last = EntryId(append.runs[-1].term, Index(append.previous.index + count))
        message = self._as_leaders(append.previous, append.runs, append.commit)
        self._put([message, data], beginning, last)

    def _give_heartbeat(self, previous: EntryId, commit: Index, beginning: int) -> None:
        """What the source has committed, behind what was given: who lacks that says so."""
        with self._changed:
            after = self._after
            if after is None:
                self._proposed = previous
        known = previous if after is None or after.term == UNKNOWN_TERM else after
        self._put([self._as_leaders(known, (), commit)], beginning)

    def _as_leaders(
        self, previous: EntryId, runs: tuple[TermRun, ...], commit: Index
    ) -> memoryview:
        """An append of the leader that this node follows, in its term, which never falls."""
        with self._changed:
            state = self._status.state
            assert state is not None, "an answer has a state"
            self._term = max(self._term, state.term)
            message = Append(self._term, previous, runs, commit, 0)
        return memoryview(encode_message(message))

    def _put(self, parts: Parts, beginning: int, last: EntryId | None = None) -> None:
        """Have a message taken, unless the log begins anew since it was asked for."""
        with self._changed:
            if self._is_closed or beginning != self._beginning:
                return
            self._waiting.append(parts)
            self._waiting_size += sum(map(len, parts))
            if last is not None:
                self._after = last
                self._under_way.append((last.index, sum(map(len, parts))))
            # Within the lock: who closes what it wakes by has closed the feed before.
            self._wake()

    def _mark_when_due(self) -> None:
        """Tell the source what is held here; that it does not take it stops nothing."""
        now = time.monotonic()
        if now < self._marked_at + MARK_S:
            return
        self._marked_at = now
        with self._changed:
            # What was held a while ago: whoever leads may not have dispatched yet what is now.
            position, self._to_mark = self._to_mark, self._held_position
            told = self._status.mark
        is_more = position >= told + MARK_SIZE or (told <= 0 < position)
        if not position or not (is_more or now >= self._mark_taken_at + MARK_AGAIN_S):
            return
        trouble = ""
        try:
            self._link.mark(position)
        except LedgerError as error:
            trouble = str(error)
            if trouble != self._status.mark_trouble:
                logger.warning("source's retention is not told: %s", trouble)
        else:
            self._mark_taken_at = now
        with self._changed:
            mark = told if trouble else position
            self._status = self._status._replace(mark=mark, mark_trouble=trouble)

    def _note(self, trouble: str) -> None:
        """Why nothing comes; told when it changes."""
        with self._changed:
            is_news = trouble != self._status.trouble
            self._status = self._status._replace(trouble=trouble)
        if is_news and trouble:
            logger.warning("mirror gets nothing: %s", trouble)
        elif is_news:
            logger.info("mirror goes on: source=%s", self._link.url)


def _next(frames: Iterator[memoryview]) -> memoryview:
    """The part behind one that has bytes there.

    Raises:
        ProtocolError: there is none.
    """
    try:
        return next(frames)
    except StopIteration:
        raise ProtocolError("answer of a source without its bytes") from None


def _file_parts(frame: memoryview, frames: Iterator[memoryview]) -> Parts:
    """A frame about files or damaged entries, and its bytes."""
    if is_repair_frame(frame):
        match decode_repair_frame(frame).kind:
            case RepairKind.ENTRIES:
                return [frame, _next(frames)]
            case RepairKind.NO_ENTRIES:
                return [frame]
            case _:
                raise ProtocolError("a source asks for entries")
    match decode_ship_frame(frame):
        case Slice() | Ends():
            return [frame, _next(frames)]
        case Offer() | Digest() | Gone():
            return [frame]
        case _:
            raise ProtocolError("a source asks for files")


def _is_for_digest(ask: bytes) -> bool:
    return not is_repair_frame(ask) and isinstance(decode_ship_frame(ask), AskDigest)


def _check_terms(append: Append, latest: Term) -> None:
    """Refuse what no leader sends: the core would take it for a bug of its own."""
    before = append.previous.term
    for term in (*(run.term for run in append.runs), latest):
        if term < before:
            raise ProtocolError("terms of a source's entries fall", term=term, before=before)
        before = term
    last = append.previous.index + sum(run.count for run in append.runs)
    if not NO_INDEX <= append.previous.index <= last <= append.commit <= NUMBER_MAX:
        raise ProtocolError(
            "entries of a source behind what it has committed",
            last=last,
            commit=append.commit,
        )
