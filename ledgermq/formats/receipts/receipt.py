"""Receipts: the proof that a message was stored, checked by public keys alone.

A receipt is a JSON object with the record as it is in the log, its stretch, the proofs that the
record is in the stretch and the stretch in the tree of the log, and the checkpoint's note. One that
was made for the holder of an older checkpoint has the proof that this one's tree goes on from the
older one.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from ledgermq.formats.receipts.checkpoint import SignedHead, SignedStretch, hash_of, text_of
from ledgermq.formats.receipts.merkle_tree import (
    PROOF_MAX,
    SIZE_MAX,
    included_root,
    is_consistent,
    leaf_hash,
)
from ledgermq.formats.receipts.signed_note import NOTE_SIZE_MAX, NoteKey, note_text
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.limits import ENTRY_SIZE_MAX

RECEIPT_SIZE_MAX = 8 * 1024 * 1024
"""Bytes of a receipt: the largest record, in base64, and all proofs."""

_RECEIPT_VERSION = 1


class Receipt(NamedTuple):
    """The proof of one message.

    Attributes:
        record: of the message, as it is in the log.
        in_stretch: proof that the record is in the stretch.
        place: of the stretch in the tree of the log: its index there.
        in_tree: proof that the stretch is in that tree.
        note: of the checkpoint.
        since: proof that the tree goes on from the one of ``since_size`` stretches; 0: there is
            none.
    """

    record: bytes
    stretch: SignedStretch
    in_stretch: tuple[bytes, ...]
    place: int
    in_tree: tuple[bytes, ...]
    note: str
    since_size: int = 0
    since: tuple[bytes, ...] = ()

    def encoded(self) -> str:
        """The file's content."""
        document = {
            "version": _RECEIPT_VERSION,
            "record": text_of(self.record),
            "stretch": self.stretch.as_json(),
            "in_stretch": [text_of(one) for one in self.in_stretch],
            "place": self.place,
            "in_tree": [text_of(one) for one in self.in_tree],
            "checkpoint": self.note,
        }
        if self.since_size:
            document["since"] = [self.since_size, [text_of(one) for one in self.since]]
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def decode(cls, content: bytes | str) -> Self:
        """The receipt in a file; whether it proves anything is not looked at.

        Raises:
            CorruptLogError: it is none, or one of a newer version.
        """
        if len(content) > RECEIPT_SIZE_MAX:
            raise CorruptLogError("receipt is too long", size=len(content), limit=RECEIPT_SIZE_MAX)
        try:
            document: Mapping[str, Any] = json.loads(content)
            if document["version"] != _RECEIPT_VERSION:
                raise ValueError(f"version {document['version']}")
            since_size, since = document.get("since", (0, ()))
            place, note = document["place"], document["checkpoint"]
            if type(place) is not int or type(since_size) is not int or type(note) is not str:
                raise TypeError("fields are of other types")
            if not 0 <= since_size <= SIZE_MAX:
                raise ValueError("number out of range")
            return cls(
                b64decode(document["record"], validate=True),
                SignedStretch.read(document["stretch"]),
                _hashes(document["in_stretch"]),
                place,
                _hashes(document["in_tree"]),
                note,
                since_size,
                _hashes(since),
            )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise CorruptLogError("receipt cannot be read", reason=str(error)) from error

    def verified(
        self,
        keys: Iterable[NoteKey],
        *,
        since: SignedHead | None = None,
        also: Iterable[NoteKey] = (),
    ) -> Proven:
        """What it proves, by the signature of one of ``keys``.

        Args:
            since: the newest checkpoint that is known: the receipt's has to be the same one, or to
                go on from it.
            also: each of them has to have signed the checkpoint, too.

        Raises:
            CorruptLogError: it proves nothing; says where it fails.
        """
        head = SignedHead.read(self.note, keys)
        for key in also:
            note_text(self.note, [key])
        if len(self.record) > ENTRY_SIZE_MAX:
            raise CorruptLogError("record is too long", size=len(self.record), limit=ENTRY_SIZE_MAX)
        message = decode_message(memoryview(self.record))
        if message.size != len(self.record):
            raise CorruptLogError("receipt has more than a record", size=message.size)
        stretch, offset = self.stretch, message.queue_offset
        if (message.topic, message.queue_id) != stretch[:2]:
            raise CorruptLogError(
                "receipt is of another queue than its record",
                record=f"{message.topic}/{message.queue_id}",
                receipt=f"{stretch.topic}/{stretch.queue_id}",
            )
        root = included_root(
            leaf_hash(self.record),
            offset - stretch.first,
            stretch.end - stretch.first,
            self.in_stretch,
        )
        if root != stretch.root:
            raise CorruptLogError("record is not in the stretch of its receipt", offset=offset)
        if included_root(stretch.leaf(), self.place, head.size, self.in_tree) != head.root:
            raise CorruptLogError("stretch is not in the tree that was signed", size=head.size)
        if since is not None:
            self._check_since(head, since)
        return Proven(message, head)

    def _check_since(self, head: SignedHead, known: SignedHead) -> None:
        if known.key.name != head.key.name:
            raise CorruptLogError(
                "checkpoints are of other logs", receipt=head.key.name, since=known.key.name
            )
        if known.size > head.size:
            raise CorruptLogError(
                "checkpoint of the receipt is older than the one that is known: ask for a receipt"
                " since that one",
                size=head.size,
                known=known.size,
            )
        old, new = (known.size, known.root), (head.size, head.root)
        if known.size == head.size:
            is_one = known.root == head.root
        else:
            is_one = self.since_size == known.size and is_consistent(old, new, self.since)
        if known.size and not is_one:
            raise CorruptLogError(
                "checkpoint of the receipt is not shown to go on from the one that is known",
                size=head.size,
                known=known.size,
                proof_since=self.since_size or "none",
            )


class Proven(NamedTuple):
    """A message, and the signed checkpoint that it was stored before."""

    message: Message
    head: SignedHead


def _hashes(values: Sequence[object]) -> tuple[bytes, ...]:
    if len(values) > PROOF_MAX + 1:
        raise ValueError(f"proof of {len(values)} hashes")
    return tuple(hash_of(one) for one in values)


def note_of(content: str) -> str:
    """The note in a file: of a checkpoint, or of the receipt that has it.

    Raises:
        CorruptLogError: it is neither.
    """
    if content.lstrip().startswith("{"):
        return Receipt.decode(content).note
    if len(content) > NOTE_SIZE_MAX:
        raise CorruptLogError("note is too long", size=len(content), limit=NOTE_SIZE_MAX)
    return content
