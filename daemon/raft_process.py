"""The raft process: term, vote and commit cursor of this node.

It alone writes ``ROOT/ledgermq/term``, DLedger's ``currterm``, the cursors ``committed`` and
``grant``, and the append ring. It reads the cursors ``written`` and ``durable``. It never writes
the log: what it wants in it goes through the append ring to the writer.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping

from ledgermq.daemon.loop import Pollable, StopFlag
from ledgermq.daemon.loop import run as run_loop
from ledgermq.daemon.node import Surroundings
from ledgermq.daemon.store_paths import StorePaths
from ledgermq.daemon.system_entries import no_op_record
from ledgermq.daemon.term_file import TermFile
from ledgermq.ipc.append_ring import AppendRing, RingEntry
from ledgermq.ipc.cursor_page import Grant, LogCursor, Role
from ledgermq.ipc.cursor_page import RaftRole as PageRole
from ledgermq.ipc.orders import Order, OrderKind, parse
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Position, Term
from ledgermq.model.settings import AckMode, LogKind, Settings
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId, RaftRole
from ledgermq.raft.timing import FlowLimits, Timing

logger = logging.getLogger(__name__)

REPEAT_NS = 50_000_000
"""An order without an answer is repeated after this long."""

COUNTER_NAMES = ("elections", "grants", "commits", "orders_refused")
_ELECTIONS, _GRANTS, _COMMITS, _ORDERS_REFUSED = range(4)

_UNSEEN = LogCursor(Position(-1), Index(-2), Term(-1))
"""No cursor is like that: the next look at the page finds a change."""

_PAGE_ROLES = {
    RaftRole.FOLLOWER: PageRole.FOLLOWER,
    RaftRole.PRE_CANDIDATE: PageRole.FOLLOWER,
    RaftRole.CANDIDATE: PageRole.CANDIDATE,
    RaftRole.LEADER: PageRole.LEADER,
}


class RaftWorker:
    """Carries events from the page and the inbox into the core, and its effects out."""

    def __init__(self, around: Surroundings, term_file: TermFile) -> None:
        settings = around.settings
        self._around = around
        self._page = around.page
        self._term_file = term_file
        self._writer = around.bell(Role.WRITER)
        self._dispatcher = around.bell(Role.DISPATCHER)
        self._ring = AppendRing.create(around.paths.append_ring)
        self._counters = around.page.counters(Role.RAFT)
        self._dledger = settings.store.log is LogKind.DLEDGER
        self._waits_for_sync = settings.ack.mode is AckMode.MAJORITY_FSYNC
        node = NodeId(settings.node.self_id)
        committed = self._page.read_committed()
        self._core = RaftCore(
            node,
            Membership(frozenset({node})),
            term_file.state,
            commit=committed.index if self._page.has_committed() else NO_INDEX,
            entries_have_terms=self._dledger,
            timing=Timing(),
            flow=FlowLimits(),
            seed=0,
            now=0,
        )
        self._held = _UNSEEN
        self._marks: deque[LogCursor] = deque()
        # Whatever an earlier raft process had granted ends here.
        self._awaited: Order | None = Order(OrderKind.REVOKE, term=term_file.state.term)
        self._sent_ns = 0
        self._proposed: RingEntry | None = None
        self._publish_grant()

    def sources(self) -> list[Pollable]:
        """The inbox."""
        return [*self._around.inbox.sources]

    def sleep_ms(self, now_ns: int) -> int:
        """Nothing to do while the counted cursor stands still and every order is answered."""
        if self._counted() != self._held:
            return 0
        if self._awaited is not None:
            return max(0, (self._sent_ns + REPEAT_NS - now_ns) // 1_000_000)
        return 1_000

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """Answers first, then the cursors, then the order that still waits."""
        for message in self._around.inbox.drain(ready):
            self._take(message)
        counted = self._counted()
        if counted != self._held:
            self._held = counted
            self._marks.append(counted)
            self._carry_out(self._core.entries_held(self._core.node, counted.index))
        if self._awaited is not None and now_ns - self._sent_ns >= REPEAT_NS:
            self._writer.send(self._awaited.encode())
            self._sent_ns = now_ns

    def close(self) -> None:
        """Close files and the ring."""
        self._ring.close()
        self._term_file.close()

    def _counted(self) -> LogCursor:
        """The cursor that an acknowledgement needs (``ack.mode``)."""
        if self._waits_for_sync:
            return self._page.read_durable()[0]
        return self._page.read_written()

    def _take(self, message: bytes) -> None:
        try:
            order = parse(message)
        except ProtocolError as error:
            self._counters[_ORDERS_REFUSED] += 1
            logger.warning("order refused: %s", error)
            return
        last = EntryId(Term(order.extra), Index(order.number))
        if order.kind is OrderKind.READY or (
            order.kind is OrderKind.REVOKED and self._awaits(OrderKind.REVOKE)
        ):
            self._awaited = None
            self._carry_out(self._core.log_ready(last))
        elif order.kind is OrderKind.GRANTED and order.term == self._core.term:
            if not self._awaits(OrderKind.GRANT):
                return
            self._awaited = None
            self._carry_out(self._core.writer_granted(Term(order.term), last))
            # What the log held already may be committed now.
            self._held = _UNSEEN
            self._publish_grant()

    def _awaits(self, kind: OrderKind) -> bool:
        return self._awaited is not None and self._awaited.kind is kind

    def _carry_out(self, effects: Effects) -> None:
        """In the order that ``Effects`` demands."""
        if effects.persist is not None:
            self._term_file.persist(effects.persist)
            self._counters[_ELECTIONS] += 1
            logger.info("term begins: term=%d role=%s", effects.persist.term, self._core.role.value)
        if effects.grant is not None:
            self._counters[_GRANTS] += 1
            self._order(Order(OrderKind.GRANT, term=effects.grant))
            self._publish_grant()
        if effects.propose is not None:
            self._propose(effects.propose)
        if effects.commit is not None:
            self._commit(effects.commit)

    def _order(self, order: Order) -> None:
        """Send now, and again until the answer is there."""
        self._awaited = order
        self._sent_ns = time.monotonic_ns()
        self._writer.send(order.encode())

    def _propose(self, term: Term) -> None:
        """Hand the empty entry of ``term`` to the writer."""
        entry = self._ring.put(no_op_record(term, self._core.node, self._around.settings))
        assert entry is not None, "the ring is empty at the beginning of a term"
        order = Order(
            OrderKind.PROPOSE, term=term, number=entry.head, position=entry.offset, extra=entry.size
        )
        # The order is repeated until an entry of this term is held, not until an answer comes.
        self._proposed = entry
        self._order(order)

    def _commit(self, index: Index) -> None:
        cursor: LogCursor | None = None
        while self._marks and self._marks[0].index <= index:
            cursor = self._marks.popleft()
        if cursor is None:
            return
        if self._proposed is not None and self._awaits(OrderKind.PROPOSE):
            self._awaited = None
            self._proposed = None
        self._page.publish_committed(cursor)
        self._counters[_COMMITS] += 1
        self._writer.ring()
        self._dispatcher.ring()

    def _publish_grant(self) -> None:
        self._page.publish_grant(
            Grant(self._core.term, self._core.granted, _PAGE_ROLES[self._core.role])
        )


def run(settings: Settings, stop: StopFlag) -> int:
    """Run the raft process until it is told to stop; the exit status."""
    around = Surroundings.enter(Role.RAFT, settings)
    paths = StorePaths.of(settings)
    worker = RaftWorker(around, TermFile(paths.term, paths.current_term))
    try:
        run_loop(worker, page=around.page, role=Role.RAFT, stop=stop)
    finally:
        worker.close()
        around.leave()
    return 0
