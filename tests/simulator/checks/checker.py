"""Invariants of consensus and log at every step: the promises I1 to I16.

The checker sees what everybody sees: the files, the cursor pages, the messages on the network and
the answers to the clients. It believes nobody.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import NodeId
from ledgermq.raft.message_codec import decode_message as decode_peer_message
from ledgermq.raft.messages import VoteReply
from ledgermq.wire.repair_frames import decode_repair_frame, is_repair_frame
from ledgermq.wire.run_frames import decode_run_frame, is_run_frame


class BrokenPromiseError(AssertionError):
    """A promise of the group was broken."""


def require(condition: bool, promise: str, *values: object) -> None:
    """Raise ``BrokenPromiseError`` unless ``condition`` holds."""
    if not condition:
        raise BrokenPromiseError(f"{promise}: {', '.join(map(str, values))}")


class NodeEntry(NamedTuple):
    """One entry as it stands in the files of a node: header and message."""

    term: int
    number: int
    position: int
    data: bytes

    @property
    def end(self) -> int:
        """Position behind it."""
        return self.position + len(self.data)

    def __str__(self) -> str:
        return f"{self.term}/{self.number} at {self.position}"


class CommittedEntry(NamedTuple):
    """A committed entry, and the term of the node that was first to know."""

    entry: NodeEntry
    term: int


class CommittedMessage(NamedTuple):
    """A committed message: where a client must find it."""

    unique_id: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class Checker:
    """Knows everything that any node ever stored, committed or acknowledged.

    Attributes:
        leaders: who led in each term.
        committed: all committed entries, and the term in which each was.
        messages: the committed messages of clients, by their ids.
        acknowledged: ids of messages whose senders were told that they are stored.
    """

    def __init__(self) -> None:
        self.leaders: dict[int, NodeId] = {}
        self.committed: list[CommittedEntry] = []
        self.messages: dict[str, CommittedMessage] = {}
        self.acknowledged: set[str] = set()
        self.attempted: set[str] = set()
        self._stamped: dict[tuple[int, int], tuple[NodeEntry, int]] = {}
        self._votes: dict[tuple[NodeId, int], NodeId] = {}
        self._next_offsets: dict[tuple[str, int], int] = {}

    def sent(self, source: NodeId, target: NodeId, parts: Sequence[bytes]) -> None:
        """One vote a term and node, whatever happens to the node between (I5)."""
        try:
            if is_repair_frame(parts[0]):
                # Of entries that a disk has changed: no word of the consensus.
                decode_repair_frame(parts[0])
                return
            if is_run_frame(parts[0]):
                decode_run_frame(parts[0])
                return
            message = decode_peer_message(parts[0])
        except ProtocolError as error:
            raise BrokenPromiseError(f"{source} sends what is no message") from error
        if isinstance(message, VoteReply) and message.reason is None:
            known = self._votes.setdefault((source, message.asked), target)
            require(known == target, "one vote a term", source, message.asked, known, target)

    def leads(self, node: NodeId, term: int) -> None:
        """At most one leader a term (I1)."""
        known = self.leaders.setdefault(term, node)
        require(known == node, "one leader a term", term, known, node)

    def stored(self, node: NodeId, entry: NodeEntry, before: int) -> None:
        """One term and index is one entry, with one entry before it, on all nodes (I2).

        Args:
            before: term of the entry before it.
        """
        known = self._stamped.setdefault((entry.number, entry.term), (entry, before))
        require(known == (entry, before), "logs match", node, known[0], known[1], entry, before)

    def stamped(self, term: int, number: int) -> NodeEntry | None:
        """The entry of ``term`` at ``number`` that some node has, or had."""
        known = self._stamped.get((number, term))
        return None if known is None else known[0]

    def is_stamped(self, entry: NodeEntry) -> bool:
        """Whether some node has, or had, exactly this entry."""
        known = self._stamped.get((entry.number, entry.term))
        return known is not None and known[0] == entry

    def cut(self, node: NodeId, entry: NodeEntry) -> None:
        """An entry that was taken back was never committed (I4)."""
        if entry.number < len(self.committed):
            known = self.committed[entry.number].entry
            require(known != entry, "committed entries are not taken back", node, entry)

    def granted(
        self, node: NodeId, term: int, log: Sequence[NodeEntry], *, spoilt: Container[int]
    ) -> None:
        """A leader has all that was committed in earlier terms (I3)."""
        for known, committed_in in self.committed:
            has = known.number < len(log) and (log[known.number] == known or known.number in spoilt)
            require(
                has or committed_in >= term, "leaders have all that is committed", node, term, known
            )

    def commits(self, node: NodeId, entry: NodeEntry, term: int) -> None:
        """A committed entry is the same for everybody and for ever (I3, I4)."""
        if entry.number < len(self.committed):
            known = self.committed[entry.number].entry
            require(known == entry, "committed entries never change", node, known, entry)
            return
        require(entry.number == len(self.committed), "commits have no gap", node, entry)
        self.committed.append(CommittedEntry(entry, term))
        self._number(node, entry)

    def answered(self, stored: CommittedMessage) -> None:
        """What a client is told to be stored is committed, and where it says (I13)."""
        known = self.messages.get(stored.unique_id)
        require(known == stored, "acknowledged is committed", stored, known)
        self.acknowledged.add(stored.unique_id)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset behind the last committed message of a queue."""
        return self._next_offsets.get((topic, queue_id), 0)

    def _number(self, node: NodeId, entry: NodeEntry) -> None:
        """No queue offset is shared or skipped (I16); no message is there twice (I14)."""
        message = decode_message(memoryview(entry.data), HEADER_SIZE)
        queue = (message.topic, message.queue_id)
        expected = self._next_offsets.get(queue, 0)
        require(
            message.queue_offset == expected,
            "queue offsets follow one another",
            node,
            entry,
            queue,
            expected,
            message.queue_offset,
        )
        self._next_offsets[queue] = expected + 1
        require(
            message.physical_offset == entry.position + HEADER_SIZE,
            "a message says where it is",
            node,
            entry,
            message.physical_offset,
        )
        if message.unique_id:
            self._note(node, entry, message)

    def _note(self, node: NodeId, entry: NodeEntry, message: Message) -> None:
        """A message of a client is committed."""
        require(message.unique_id in self.attempted, "nobody sent this", message.unique_id)
        require(message.unique_id not in self.messages, "stored once", message.unique_id, entry)
        self.messages[message.unique_id] = CommittedMessage(
            message.unique_id, message.queue_id, message.queue_offset, message.physical_offset
        )
