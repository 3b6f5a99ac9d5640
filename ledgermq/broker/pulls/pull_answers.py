"""Answers to pulls as values, and pulls that are held."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.broker.callers import Client
from ledgermq.model.errors import LedgerError
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.store.record_parts import RecordParts
from ledgermq.wire.header import VERSION
from ledgermq.wire.pull_frame import Pull, PullStatus, encode_pulled

Payload = bytes | memoryview


class Answer(NamedTuple):
    """What a pull of one client found, or why it found nothing.

    Attributes:
        next_offset: queue offset to ask for next.
        begin, end: of the queue, as ``ReadableRange`` has them.
        parts: the messages, if there are any.
        suggested: id of the member that had better be asked next; empty = the leader.
        version: of the PULL.
        error: why there is no answer; then nothing of all that counts.
        topic: whose messages these are; empty without any.
    """

    client: Client
    request_id: int
    status: PullStatus = PullStatus.OFFSET_FOUND_NULL
    next_offset: int = 0
    begin: int = 0
    end: int = 0
    parts: RecordParts | None = None
    suggested: str = ""
    version: int = VERSION
    error: LedgerError | None = None
    topic: str = ""

    @property
    def messages(self) -> int:
        """How many there are."""
        return 0 if self.parts is None else len(self.parts.starts)

    @property
    def payload(self) -> Payload:
        """Part 2 of the PULLED."""
        return b"" if self.parts is None else self.parts.payload

    @property
    def head(self) -> bytes:
        """Part 1 of the PULLED."""
        parts = self.parts
        return encode_pulled(
            self.request_id,
            self.status,
            next_offset=self.next_offset,
            begin=self.begin,
            end=self.end,
            starts=b"" if parts is None else parts.starts.tobytes(),
            sizes=b"" if parts is None else parts.sizes.tobytes(),
            suggested=self.suggested,
            version=self.version,
            entry_header_size=0 if parts is None else parts.header_size,
        )


class Held(NamedTuple):
    """A pull that waits; ``scanned_to`` is how far its tags were looked for in vain.

    ``status`` is what the last message that was looked at is a case of.
    """

    pull: Pull
    scanned_to: int
    status: PullStatus = PullStatus.NO_MATCHED_MESSAGE


class Later(NamedTuple):
    """A pull of old messages whose turn has not come."""

    wait_ms: int
    held: Held


def nothing(
    client: Client, pull: Pull, status: PullStatus, next_offset: int, bounds: ReadableRange
) -> Answer:
    """The answer to a pull that has found none."""
    return Answer(
        client,
        pull.request_id,
        status,
        next_offset,
        bounds.first,
        bounds.end,
        version=pull.version,
    )


def refusal(client: Client, held: Held, error: LedgerError) -> Answer:
    """The answer to a pull that waited, and was refused then."""
    return Answer(client, held.pull.request_id, error=error)
