"""Sending of entries by a leader: read from the log, checked when in doubt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.members.log_trouble import report
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, NodeId
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import ReplicateTo
from ledgermq.raft.message_codec import encode_message
from ledgermq.raft_node.entries.entry_exchange import EntryExchange
from ledgermq.store.log.entry_files import EntrySpan
from ledgermq.store.log.verified_span import check_span

logger = logging.getLogger(__name__)

Send = Callable[[NodeId, Sequence[bytes]], bool]


class EntrySender:
    """Carries out what the core wants replicated.

    Attributes:
        granted_after: the log's last entry when its writer was granted the term: what is behind
            it was made here.
    """

    def __init__(
        self,
        settings: Settings,
        core: RaftCore,
        page: CursorPage,
        exchange: EntryExchange,
        *,
        send: Send,
        suspect: Callable[[Index], None],
    ) -> None:
        """Nothing is sent yet.

        Args:
            send: message and entries to a member; false when it takes none now.
            suspect: an entry that is committed was read, and is not whole.
        """
        self.granted_after = NO_INDEX
        self._settings = settings
        self._frame_bytes = settings.raft.frame_bytes
        self._core = core
        self._page = page
        self._counters = page.counters(Role.RAFT)
        self._exchange = exchange
        self._send = send
        self._suspect = suspect
        self._sent_to: dict[str, Index] = {}

    def feed(self, wants: Sequence[tuple[str, int, int]]) -> None:
        """Send what the straight line wants sent: a peer, its first entry, the last one there is.

        Raises:
            LogDamagedError: entries that are not committed are wrong here, which was noted.
            CorruptLogError: they are wrong, and no member has others.
        """
        line = self._core.line
        written = self._page.read_written().index
        for peer, begin, last in wants:
            first = begin
            until = last if last < written else written
            while until >= first:
                span = self._read(peer, Index(first), Index(until))
                if span is None:
                    break
                head = line.replicated(peer, first, span.last, len(span.data))
                if head is None:
                    # There is something about it: the core is asked what to send.
                    self.replicate(self._core.request(NodeId(peer), Index(first), Index(last)))
                    break
                self._give(peer, head, span)
                if not line.more:
                    break
                first = span.last + 1

    def replicate(self, request: ReplicateTo) -> None:
        """Read what a peer lacks, and send as much as one frame holds.

        Raises:
            LogDamagedError: entries that are not committed are wrong here, which was noted.
            CorruptLogError: they are wrong, and no member has others.
        """
        # A leader that was just elected may know entries that its writer has not written yet.
        until = Index(min(request.until, self._page.read_written().index))
        if until < request.next:
            return
        span = self._read(request.peer, request.next, until)
        if span is None:
            return
        effects = self._core.replicated(request, span.last, len(span.data))
        for peer, message in effects.send:
            self._give(peer, encode_message(message), span)
        for following in effects.replicate:
            self.replicate(following)

    def _read(self, peer: str, first: Index, until: Index) -> EntrySpan | None:
        """The entries as far as one frame holds them; None where they are damaged.

        Raises:
            LogDamagedError, CorruptLogError: as ``replicate``.
        """
        commit = self._core.commit
        try:
            span = self._exchange.read(first, until, size_max=self._frame_bytes, committed=commit)
        except CorruptLogError as error:
            # Asked for again with the peer's next word: by then it may be repaired.
            if first > commit:
                raise
            logger.warning("entry not sent: index=%d error=%s", first, error)
            self._suspect(first)
            return None
        sent = self._sent_to.get(peer, 0)
        if commit < first and (first <= sent or first <= self.granted_after):
            # Written by others, or refused by the peer: perhaps not what it was any more.
            self._check(span)
        self._sent_to[peer] = span.last
        return span

    def _give(self, peer: str, head: bytes, span: EntrySpan) -> None:
        sent = self._send(NodeId(peer), (head, span.data))
        self._counters[RaftCounter.MESSAGES_SENT if sent else RaftCounter.MESSAGES_UNSENT] += 1
        self._counters[RaftCounter.ENTRIES_SENT] += len(span.items)

    def _check(self, span: EntrySpan) -> None:
        """Compare entries with their checksums before they are sent."""
        view = memoryview(span.data)
        try:
            check_span(
                view, 0, len(view), header_size=ENTRY_HEADER_SIZE, base=span.position,
                first=span.first,
            )  # fmt: skip
        except CorruptLogError as error:
            written = self._page.read_written()
            last = (written.position, written.index, written.term)
            raise report(self._settings, error, last=last) from error
