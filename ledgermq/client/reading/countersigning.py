"""Counter-signatures: who has a log of its own, as a mirror has, goes through its checkpoints.

What it signs beside the broker set is that its copy has what was signed, and that the tree goes on
from the last one that it has signed. So who owns the source's nodes and their key cannot show one
history to some and another one to others: one of them lacks this signature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ledgermq.client.reading.receipts import QueueSource, ReceiptMaker
from ledgermq.formats.receipts.checkpoint import ReceiptCheckpoint, SignedHead, SignedStretch
from ledgermq.formats.receipts.checkpoint_chain import chained
from ledgermq.formats.receipts.merkle_tree import Peaks, leaf_hash
from ledgermq.formats.receipts.signed_note import NoteKey
from ledgermq.model.limits import RECEIPTS_TOPIC


class SeenCheckpoints(NamedTuple):
    """What was gone through, and found to be what was signed.

    Attributes:
        head: of the newest checkpoint.
        messages: that were compared.
        lacking: stretches of which messages were deleted before: they could not be compared.
    """

    head: SignedHead
    checkpoints: int
    messages: int
    lacking: int


def look_through(
    source: QueueSource, keys: Sequence[NoteKey], *, since: SignedHead | None
) -> SeenCheckpoints:
    """Go through the checkpoints that a copy has, and the messages behind them.

    Args:
        keys: one of them has signed each.
        since: the last one that was gone through; None: from the first one that is there.

    Raises:
        CorruptLogError: they do not go on from ``since``, or are not signed, or messages are others
            than those that were signed; names them.
        MessageUnknownError: there is no checkpoint.
        LedgerError: as of the source.
    """
    first = ReceiptMaker(source).offset_of(0 if since is None else since.size)
    seen: SeenCheckpoints | None = None
    for one in chained(_checkpoints(source, first), keys, since=since):
        checkpoints, messages, lacking = (0, 0, 0) if seen is None else seen[1:]
        if since is None or one.tree.size > since.size:
            for stretch in one.checkpoint.stretches:
                if _has(source, stretch):
                    messages += stretch.end - stretch.first
                else:
                    lacking += 1
        seen = SeenCheckpoints(one.head, checkpoints + 1, messages, lacking)
    assert seen is not None, first
    return seen


def _checkpoints(source: QueueSource, first: int) -> Iterator[tuple[int, ReceiptCheckpoint]]:
    for message in source.read(RECEIPTS_TOPIC, 0, first):
        yield message.queue_offset, ReceiptCheckpoint.decode(message.body)


def _has(source: QueueSource, stretch: SignedStretch) -> bool:
    """Whether all messages of a stretch are there, and those that were signed.

    Raises:
        CorruptLogError: they are others.
    """
    tree = Peaks()
    for message in source.read(stretch.topic, stretch.queue_id, stretch.first):
        if message.queue_offset != stretch.first + tree.size:
            return False
        tree.append(leaf_hash(message.record))
        if tree.size == stretch.end - stretch.first:
            break
    if tree.size < stretch.end - stretch.first:
        return False
    stretch.check(tree.root())
    return True
