"""Checkpoints one after the other: whether each is signed, and goes on from the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ledgermq.formats.receipts.checkpoint import ReceiptCheckpoint, SignedHead
from ledgermq.formats.receipts.merkle_tree import Peaks
from ledgermq.formats.receipts.signed_note import NoteKey
from ledgermq.model.errors import CorruptLogError


class ChainedCheckpoint(NamedTuple):
    """A checkpoint, what is signed of it, and the tree that it leaves."""

    checkpoint: ReceiptCheckpoint
    head: SignedHead
    tree: Peaks


def chained(
    found: Iterable[tuple[int, ReceiptCheckpoint]],
    keys: Sequence[NoteKey],
    *,
    since: SignedHead | None = None,
) -> Iterator[ChainedCheckpoint]:
    """Checkpoints of one log with their offsets, in their order, each signed by one of ``keys``.

    Args:
        since: a checkpoint that was kept: they have to go on from it.

    Raises:
        CorruptLogError: one is not signed, or does not go on from the one before, or they do not go
            on from ``since``.
    """
    tree: Peaks | None = None
    is_known = since is None
    for offset, one in found:
        if tree is None:
            is_known |= since is not None and is_tree(since, one.before)
        elif one.before != tree:
            raise CorruptLogError("checkpoints do not follow one another", offset=offset)
        head, tree = one.head(keys), one.after()
        is_known |= since is not None and is_tree(since, tree)
        yield ChainedCheckpoint(one, head, tree)
    if not is_known and since is not None:
        raise CorruptLogError(
            "checkpoints do not go on from the one that was kept",
            kept=since.size,
            newest=0 if tree is None else tree.size,
        )


def is_tree(known: SignedHead, tree: Peaks) -> bool:
    """Whether a tree is the one that was signed.

    Raises:
        CorruptLogError: it is another one of that size.
    """
    if known.size == tree.size and known.root != tree.root():
        raise CorruptLogError("another tree of that size was signed once", size=known.size)
    return known.size == tree.size
