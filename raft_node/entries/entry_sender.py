"""Sending of entries by a leader: read from the log, checked when in doubt."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.members.log_trouble import report
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, NodeId
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import ReplicateTo
from ledgermq.raft.messages import Message
from ledgermq.raft_node.entries.entry_exchange import EntryExchange
from ledgermq.store.log.entry_files import EntrySpan
from ledgermq.store.log.verified_span import check_span

logger = logging.getLogger(__name__)

SendMessage = Callable[[NodeId, Message, bytes | None], None]


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
        send: SendMessage,
        suspect: Callable[[Index], None],
    ) -> None:
        """Nothing is sent yet.

        Args:
            send: message and entries to a member.
            suspect: an entry that is committed was read, and is not whole.
        """
        self.granted_after = NO_INDEX
        self._settings = settings
        self._frame_bytes = settings.raft.frame_bytes
        self._core = core
        self._page = page
        self._exchange = exchange
        self._send = send
        self._suspect = suspect
        self._sent_to: dict[NodeId, Index] = {}

    def replicate(self, request: ReplicateTo) -> int:
        """Read what a peer lacks, and send as much as one frame holds; how many entries that is.

        Raises:
            LogDamagedError: entries that are not committed are wrong here, which was noted.
            CorruptLogError: they are wrong, and no member has others.
        """
        # A leader that was just elected may know entries that its writer has not written yet.
        until = Index(min(request.until, self._page.read_written().index))
        if until < request.next:
            return 0
        try:
            span = self._exchange.read(
                request.next, until, size_max=self._frame_bytes, committed=self._core.commit
            )
        except CorruptLogError as error:
            # Asked for again with the peer's next word: by then it may be repaired.
            if request.next > self._core.commit:
                raise
            logger.warning("entry not sent: index=%d error=%s", request.next, error)
            self._suspect(request.next)
            return 0
        sent = self._sent_to.get(request.peer, 0)
        if self._core.commit < request.next <= max(sent, self.granted_after):
            # Written by others, or refused by the peer: perhaps not what it was any more.
            self._check(span)
        self._sent_to[request.peer] = span.last
        effects = self._core.replicated(request, span.last, len(span.data))
        for peer, message in effects.send:
            self._send(peer, message, span.data)
        sent_count = len(span.items) * len(effects.send)
        return sent_count + sum(map(self.replicate, effects.replicate))

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
