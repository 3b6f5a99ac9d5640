"""Link from raft to its writer: handshakes, entries, proposals, repairs.

A *handshake* says whether this node's writer stamps (GRANT) or takes another leader's entries as
they are (FOLLOW), and begins a fresh append ring. Its order is repeated until it is answered; what
is put into the ring afterwards needs no answer but the cursor ``written``.
"""

from __future__ import annotations

from collections.abc import Callable

from ledgermq.ipc.append_ring import AppendRing, LeaderEntries, ProposedRecord, RepairedBytes
from ledgermq.ipc.orders import Follow, Followed, Granted, GrantTerm, encode
from ledgermq.model.ids import Index, Term
from ledgermq.process.clock import Clock
from ledgermq.process.environment import OrderBell
from ledgermq.raft.messages import EntryId
from ledgermq.store.log.log_writer import LogEnd

REPEAT_NS = 50_000_000
"""An order without an answer is repeated after this long."""

KEEP_ALL = Index(2**62)

_ANSWERED_BY = {GrantTerm: Granted, Follow: Followed}


class WriterLink:
    """Owned by the raft process. Invariant: at most one handshake waits for its answer.

    Attributes:
        is_settled: cursors and files are those of the log: none is being recovered or cut.
    """

    def __init__(self, bell: OrderBell, new_ring: Callable[[], AppendRing], clock: Clock) -> None:
        self._bell = bell
        self._clock = clock
        self._new_ring = new_ring
        self._ring: AppendRing | None = None
        self._awaited: GrantTerm | Follow | None = None
        self._sent_ns = 0
        self._is_read = False
        self.is_settled = False

    @property
    def is_read(self) -> bool:
        """Whether a writer has recovered the log, and its end is known; the process sets it."""
        return self._is_read

    @is_read.setter
    def is_read(self, is_read: bool) -> None:
        self._is_read = is_read
        self.is_settled = is_read and self._awaited is None

    @property
    def awaits_answer(self) -> bool:
        """Whether a handshake is under way."""
        return self._awaited is not None

    def grant(self, term: Term, last: EntryId) -> None:
        """The writer is to stamp in ``term`` behind ``last``, and nowhere else."""
        self._shake_hands(GrantTerm(term, last.index, last.term))

    def follow(self, term: Term, keep: Index) -> None:
        """The writer is to stamp no more, to cut what is behind ``keep``, and to take entries."""
        self._shake_hands(Follow(term, keep))

    def take_answer(self, answer: Granted | Followed) -> bool:
        """Whether ``answer`` is the one that is waited for; then nothing is waited for any more."""
        awaited = self._awaited
        if awaited is None or answer.sequence != awaited.sequence:
            return False
        if type(answer) is not _ANSWERED_BY[type(awaited)]:
            return False
        self._awaited = None
        self.is_settled = self._is_read
        return True

    def repeat_ms(self, now_ns: int) -> int | None:
        """Milliseconds until an order must be repeated; None while none is under way."""
        if self._awaited is None:
            return None
        return max(0, (self._sent_ns + REPEAT_NS - now_ns) // 1_000_000)

    def repeat_when_due(self, now_ns: int) -> None:
        """Send an order again that has no answer."""
        if self._awaited is not None and now_ns - self._sent_ns >= REPEAT_NS:
            self._sent_ns = now_ns
            self._bell.send(encode(self._awaited))

    def propose(self, term: Term, record: bytes) -> None:
        """Have ``record`` stamped in ``term`` and appended.

        A leader's ring has nothing else in it, and one change of the membership at a time.
        """
        assert self._ring is not None
        placed = self._ring.put(ProposedRecord(term), record)
        assert placed, "the ring has room for the few entries of a leader's own"
        self._bell.ring()

    def append(self, entries: memoryview, items: bytearray, end: LogEnd) -> bool:
        """Hand over entries of another leader; false when the ring has no room now.

        ``ring`` afterwards, once for many.

        Args:
            items: their index items.
            end: the log's end behind them.
        """
        assert self._ring is not None
        content = LeaderEntries(end.position, end.index_, end.term, end.chain, len(items))
        return self._ring.put(content, items, entries)

    def repair(self, content: RepairedBytes, data: bytes | memoryview) -> bool:
        """Have ``data`` written over committed bytes; false when there is no room or no ring now.

        The answer is ``Repaired`` with its number; none comes when a handshake has begun meanwhile.
        """
        if self._ring is None:
            return False
        placed = self._ring.put(content, data)
        self._bell.ring()
        return placed

    def ring(self) -> None:
        """Wake the writer: the ring or a cursor has changed."""
        self._bell.ring()

    def close(self) -> None:
        """Close the ring."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _shake_hands(self, order: GrantTerm | Follow) -> None:
        self.close()
        self._ring = self._new_ring()
        # The clock orders the handshakes of one raft process behind those of the one before it.
        self._sent_ns = self._clock.monotonic_ns()
        self._awaited = order._replace(sequence=self._sent_ns)
        self.is_settled = False
        self._bell.send(encode(self._awaited))
