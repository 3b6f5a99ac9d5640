"""Source of a mirror: committed entries and whole files of this node's log, read from the files.

Nothing is kept between two questions: the files may be deleted, cut or replaced meanwhile, and what
was open would be of another log. Called in a thread; a question reads at most
``ANSWER_SIZE_MAX`` bytes, or one file to its end for a digest.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ledgermq.formats.dledger_entry import decode_entry_header
from ledgermq.ipc.cursor_page import CursorPage, LogCursor, PublishedRole
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import BusyError, ConfigError, ProtocolError, StorageError
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.raft.message_codec import encode_message
from ledgermq.raft.messages import Append, EntryId, TermRun
from ledgermq.raft_node.entries.entry_exchange import EntryExchange, LogExtent
from ledgermq.raft_node.repair.repair_source import entries_for, repair_answer
from ledgermq.raft_node.shipping.file_shipper import (
    SLICE_SIZE_MAX,
    is_offered,
    read_ends,
    read_slice,
)
from ledgermq.repair.log_scrub import LogScrub, ScrubEnd
from ledgermq.store.files.file_names import file_name
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import EntrySpan, LogPlaces
from ledgermq.store.queues.queue_ends import ends_path, read_queue_ends
from ledgermq.store.recovery.staged_log import file_digest
from ledgermq.wire.mirror_frames import ANSWER_SIZE_MAX, PARTS_MAX, SourceState
from ledgermq.wire.repair_frames import (
    RepairFrame,
    RepairKind,
    decode_repair_frame,
    is_repair_frame,
)
from ledgermq.wire.ship_frames import (
    Ask,
    AskDigest,
    AskEnds,
    Digest,
    Ends,
    Gone,
    Offer,
    ShipFrame,
    Slice,
    decode_ship_frame,
    encode_ship_frame,
)

FRAME_SIZE = 1024 * 1024
"""Bytes of the entries of one append: one verification, and one place in the append ring."""

QUESTIONS_MAX = ANSWER_SIZE_MAX // SLICE_SIZE_MAX
"""Frames of one question about files."""


class LogSource:
    """This node's log, for mirrors. It has no state of its own."""

    def __init__(self, settings: Settings, page: CursorPage) -> None:
        """Nothing is opened.

        Args:
            page: of the node; only cursors are read.
        """
        self._settings = settings
        self._paths = StorePaths.of(settings)
        self._page = page

    def entries(self, after: EntryId, size_max: int) -> list[bytes]:
        """The state, and committed entries behind ``after`` as appends, each with its bytes behind.

        Without entries there is one append that has none, of which a mirror learns what is
        committed. Where the log begins behind ``after``, there is the state alone: files are to be
        asked for.

        Args:
            after: the last entry that the mirror has; a term below 0 is one that it does not know.
            size_max: bytes of entries, unless the only one is larger.

        Raises:
            ConfigError: that entry is another one here, so the mirror's log is no copy of this one.
            BusyError: this node does not know yet what is committed.
            CorruptLogError, StorageError: the log cannot be read, or entries are damaged.
        """
        with self._opened() as (log, committed, extent):
            parts = [self._state(committed, extent).encode()]
            if extent is None or after.index < extent.first - 1:
                return parts
            if after.index >= committed.index:
                # It asks a member that is behind the one it asked before, or has all.
                return [*parts, _append(EntryId(committed.term, committed.index), None, committed)]
            if after.index >= extent.first:
                _check_same(after, Term(int(log.items(after.index, after.index)["term"][0])))
            previous, left = after, size_max
            while previous.index < committed.index and left > 0 and len(parts) < PARTS_MAX - 1:
                span = log.read(
                    Index(previous.index + 1),
                    committed.index,
                    size_max=min(left, FRAME_SIZE),
                    committed=committed.index,
                )
                parts += [_append(previous, span, committed), span.data]
                previous = EntryId(Term(int(span.items["term"][-1])), span.last)
                left -= len(span.data)
            return parts

    def offer(self, term: Term) -> list[bytes]:
        """The state, and an offer of the log's whole files, as ``Shipping`` makes them.

        The state alone where this log has no files to offer, or no table yet that says how far the
        queues go which have no message in it.

        Raises:
            BusyError, CorruptLogError, StorageError: as ``entries``.
        """
        with self._opened() as (_log, committed, extent):
            parts = [self._state(committed, extent).encode()]
            if extent is None:
                return parts
            has_ends = extent.begin > 0
            table = read_queue_ends(ends_path(self._paths.root)) if has_ends else None
            if has_ends and (table is None or table.position < extent.begin):
                return parts
            # The members of this log are not those of the mirror.
            offer = Offer(term, *extent, members=b"", has_ends=has_ends)
            return [*parts, encode_ship_frame(offer)]

    def files(self, asks: Sequence[memoryview]) -> list[bytes]:
        """The state, and an answer to each question about files; bytes are in the part behind.

        Of questions for a digest the first one is answered. Questions of members for entries that
        are damaged on their disk count among them.

        Raises:
            ProtocolError: one is no question about files, or there are too many.
            BusyError, CorruptLogError, StorageError: as ``entries``.
        """
        if not 0 < len(asks) <= QUESTIONS_MAX:
            raise ProtocolError("no questions about files, or too many", limit=QUESTIONS_MAX)
        frames = [
            decode_repair_frame(part) if is_repair_frame(part) else decode_ship_frame(part)
            for part in asks
        ]
        digests = 0
        with self._opened() as (log, committed, extent):
            parts = [self._state(committed, extent).encode()]
            places = None if extent is None else log.places
        for frame in frames:
            if isinstance(frame, RepairFrame):
                parts += _repaired(frame, places, committed)
                continue
            if not isinstance(frame, Ask | AskDigest | AskEnds):
                raise ProtocolError("not a question about files", frame=type(frame).__name__)
            # A digest reads a whole file: of more, who asks is told with the next question.
            if isinstance(frame, AskDigest):
                digests += 1
                if digests > 1:
                    continue
            offered = None if extent is None else Offer(frame.term, *extent)
            parts += self._answer(frame, offered)
        return parts

    def _answer(self, ask: Ask | AskDigest | AskEnds, offered: Offer | None) -> list[bytes]:
        try:
            if isinstance(ask, AskEnds):
                data, digest, size = read_ends(ends_path(self._paths.root), ask.offset)
                return [encode_ship_frame(Ends(ask.term, ask.offset, size, digest)), data]
            if offered is None or not is_offered(ask, offered):
                return [encode_ship_frame(Gone(ask.term, ask.position))]
            start = ask.position - ask.position % offered.file_size
            path = self._paths.data / file_name(start)
            if isinstance(ask, AskDigest):
                digest = file_digest(path, ask.size)
                return [encode_ship_frame(Digest(ask.term, ask.position, ask.size, digest))]
            data, digest, _size = read_slice(path, ask.position - start, ask.size)
            return [encode_ship_frame(Slice(ask.term, ask.position, digest)), data]
        except StorageError as error:
            # Retention was faster.
            if error.errno != errno.ENOENT:
                raise
            return [] if isinstance(ask, AskEnds) else [_gone(ask)]

    @contextmanager
    def _opened(self) -> Iterator[tuple[EntryExchange, LogCursor, LogExtent | None]]:
        """The log as it is committed now; None for its extent where nothing is."""
        if not self._page.has_committed():
            raise BusyError("node is starting: it does not know yet what is committed")
        committed = self._page.read_committed()
        log = EntryExchange(self._paths, self._settings.store.mapped_file_size_commit_log)
        try:
            extent = None
            if committed.index > NO_INDEX:
                log.open_at(committed.index, committed.position)
                extent = log.extent(committed.index)
            yield log, committed, extent
        finally:
            log.close()

    def _state(self, committed: LogCursor, extent: LogExtent | None) -> SourceState:
        node, grant = self._settings.node, self._page.read_grant()
        leads = grant.role is PublishedRole.LEADER
        return SourceState(
            cluster=node.broker_cluster_name,
            group=node.group,
            node=node.self_id,
            leads=leads,
            hears=leads or grant.leader != "",
            file_size=0 if extent is None else extent.file_size,
            first=NO_INDEX if extent is None else extent.first,
            position=committed.position,
            index=committed.index,
            term=committed.term,
        )


def _repaired(ask: RepairFrame, places: LogPlaces | None, committed: LogCursor) -> list[bytes]:
    """Entries that are damaged at the mirror: those of its index and its term, which are the same.

    Raises:
        ProtocolError: it is no question.
        StorageError: the log cannot be read.
    """
    if ask.kind is not RepairKind.ASK_ENTRIES:
        raise ProtocolError("not a question about entries", kind=ask.kind)
    data = None
    if places is not None:
        end = ScrubEnd(committed.position, committed.index)
        data = entries_for(LogScrub(places), ask, end)
    if data is not None and decode_entry_header(memoryview(data)).term != ask.term:
        data = None
    return repair_answer(ask, data)


def _append(previous: EntryId, span: EntrySpan | None, committed: LogCursor) -> bytes:
    """An append behind ``previous``, as of a leader in the term of what is committed last."""
    runs = () if span is None else _runs(span)
    return encode_message(Append(committed.term, previous, runs, committed.index, 0))


def _runs(span: EntrySpan) -> tuple[TermRun, ...]:
    terms = span.items["term"]
    begins = [0, *(np.flatnonzero(terms[1:] != terms[:-1]) + 1).tolist()]
    ends = [*begins[1:], len(terms)]
    return tuple(
        TermRun(Term(int(terms[begin])), end - begin)
        for begin, end in zip(begins, ends, strict=True)
    )


def _check_same(after: EntryId, term: Term) -> None:
    if after.term not in (term, -1):
        raise ConfigError(
            "the mirror has another entry than this group: it is no copy of this log",
            index=after.index,
            term=after.term,
            term_here=term,
        )


def _gone(ask: Ask | AskDigest) -> bytes:
    frame: ShipFrame = Gone(ask.term, Position(ask.position))
    return encode_ship_frame(frame)
