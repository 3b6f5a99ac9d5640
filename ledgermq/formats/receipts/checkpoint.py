"""Checkpoints of receipts: what a message of the topic of receipts says, and what of it is signed.

A *stretch* is what a queue of one topic had between two positions of the log: its messages are the
leaves of a tree, each its record as it is in the log. Stretches are the leaves of the tree of the
log, to which each checkpoint adds some. The text of its note, in C2SP's form of a checkpoint
(c2sp.org/tlog-checkpoint):

    NAME              of the key: origin of the tree
    SIZE              stretches of the tree
    ROOT              its root, base64
    time MS           when it was signed, epoch ms
    position N        of the log: all before it is in the tree, of topics with receipts

docs/formats/receipt.md has the rest.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, NamedTuple, Self

from ledgermq.formats.receipts.merkle_tree import HASH_SIZE, SIZE_MAX, GrownTree, Peaks, leaf_hash
from ledgermq.formats.receipts.signed_note import NoteKey, NoteSigner, note_text
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.limits import (
    QUEUE_ID_MAX,
    QUEUE_OFFSET_MAX,
    STORED_TOPIC_SIZE_MAX,
    TIMESTAMP_MAX,
)

STRETCHES_MAX = 8_192
"""Stretches that one checkpoint adds: more queues of topics with receipts than that there may not
be."""

STRETCH_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of the log that one checkpoint goes through: who makes a receipt reads a stretch of it."""

_CHECKPOINT_VERSION = 1
_MARK = b"ledgermq stretch 1\0"
_PLACE = Struct(">HIqq")
_TIME, _POSITION = "time ", "position "
_HEAD_LINES = 5


class SignedStretch(NamedTuple):
    """Messages of a queue from offset ``first`` to ``end``, and the root of the tree of them."""

    topic: str
    queue_id: int
    first: int
    end: int
    root: bytes

    def leaf(self) -> bytes:
        """Its hash as a leaf of the tree of the log."""
        topic = self.topic.encode()
        place = _PLACE.pack(len(topic), self.queue_id, self.first, self.end)
        return leaf_hash(_MARK + place + topic + self.root)

    def check(self, root: bytes | None) -> None:
        """Refuse the root of a tree of other messages.

        Raises:
            CorruptLogError: they are others.
        """
        if root != self.root:
            raise CorruptLogError(
                "messages are not those that were signed",
                topic=self.topic,
                queue=self.queue_id,
                first=self.first,
                end=self.end,
            )

    def as_json(self) -> list[object]:
        """The fields, as a document has them."""
        return [*self[:4], text_of(self.root)]

    @classmethod
    def read(cls, value: Any) -> Self:
        """The stretch in a document.

        Raises:
            ValueError, TypeError: it is none.
        """
        topic, queue_id, first, end, root = value
        numbers = queue_id, first, end
        if type(topic) is not str or any(type(one) is not int for one in numbers):
            raise TypeError("fields of a stretch are of other types")
        is_topic = 0 < len(topic.encode()) <= STORED_TOPIC_SIZE_MAX
        if not is_topic or not 0 <= queue_id <= QUEUE_ID_MAX:
            raise ValueError("stretch of no queue")
        if not 0 <= first < end <= QUEUE_OFFSET_MAX:
            raise ValueError(f"stretch from {first} to {end}")
        return cls(topic, queue_id, first, end, hash_of(root))


class SignedHead(NamedTuple):
    """What a checkpoint says of the tree, signed by ``key``.

    Attributes:
        size, root: of the tree of the log.
        at_ms: when it was signed, epoch ms.
        position: of the log: all before it is in the tree.
        note: the signed text.
    """

    key: NoteKey
    size: int
    root: bytes
    at_ms: int
    position: int
    note: str

    @classmethod
    def signed(
        cls, signer: NoteSigner, size: int, root: bytes, *, at_ms: int, position: int
    ) -> Self:
        """Sign it."""
        text = (
            f"{signer.key.name}\n{size}\n{text_of(root)}\n{_TIME}{at_ms}\n{_POSITION}{position}\n"
        )
        return cls(signer.key, size, root, at_ms, position, signer.signed(text))

    @classmethod
    def read(cls, note: str, keys: Iterable[NoteKey]) -> Self:
        """What a note says, signed by one of ``keys``.

        Raises:
            CorruptLogError: it is no checkpoint, or none of them has signed it.
        """
        text, key = note_text(note, keys)
        lines = text.splitlines()
        try:
            origin, size, root, time, position = lines[:_HEAD_LINES]
            numbers = size, _behind(time, _TIME), _behind(position, _POSITION)
            found = cls(
                key,
                _number(numbers[0], SIZE_MAX),
                hash_of(root),
                _number(numbers[1], TIMESTAMP_MAX),
                _number(numbers[2], TIMESTAMP_MAX),
                note,
            )
        except ValueError as error:
            raise CorruptLogError("note is no checkpoint", reason=str(error)) from error
        if origin != key.name:
            raise CorruptLogError("checkpoint is of another log", origin=origin, key=key.name)
        return found


class ReceiptCheckpoint(NamedTuple):
    """What a message of the topic of receipts says.

    Attributes:
        begin, end: positions of the log: what is between them was added.
        before: the tree of the checkpoint before it.
        stretches: what was added; none where it was only signed anew.
        note: signed.
    """

    begin: int
    end: int
    before: Peaks
    stretches: tuple[SignedStretch, ...]
    note: str

    def tree(self) -> GrownTree:
        """The tree of this checkpoint."""
        return GrownTree(self.before, [one.leaf() for one in self.stretches])

    def after(self) -> Peaks:
        """The tree of this checkpoint, to go on from."""
        found = self.before.copy()
        for one in self.stretches:
            found.append(one.leaf())
        return found

    def head(self, keys: Iterable[NoteKey]) -> SignedHead:
        """What is signed, which is of this tree.

        Raises:
            CorruptLogError: none of ``keys`` has signed it, or it is of another tree.
        """
        head = SignedHead.read(self.note, keys)
        after = self.after()
        if (head.size, head.root, head.position) != (after.size, after.root(), self.end):
            raise CorruptLogError(
                "signature of a checkpoint is of another tree", size=head.size, expected=after.size
            )
        return head

    def encoded(self) -> bytes:
        """The body of the message."""
        document = {
            "version": _CHECKPOINT_VERSION,
            "begin": self.begin,
            "end": self.end,
            "before": peaks_as_json(self.before),
            "stretches": [one.as_json() for one in self.stretches],
            "note": self.note,
        }
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, body: bytes | memoryview) -> Self:
        """The checkpoint in the body of a message.

        Raises:
            CorruptLogError: it is none, or one of a newer version.
        """
        try:
            document: Mapping[str, Any] = json.loads(bytes(body))
            version, stretches = document["version"], document["stretches"]
            if version != _CHECKPOINT_VERSION or len(stretches) > STRETCHES_MAX:
                raise ValueError(f"version {version}, {len(stretches)} stretches")
            size, hashes = document["before"]
            begin, end = (_position(document[name]) for name in ("begin", "end"))
            return cls(
                begin,
                end,
                Peaks(_position(size), [hash_of(one) for one in hashes]),
                tuple(SignedStretch.read(one) for one in stretches),
                str(document["note"]),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise CorruptLogError("checkpoint cannot be read", reason=str(error)) from error


def peaks_as_json(peaks: Peaks) -> list[object]:
    """The peaks of a tree, as a document has them."""
    return [peaks.size, [text_of(one) for one in peaks.hashes]]


def text_of(content: bytes) -> str:
    """Bytes, as a document has them."""
    return b64encode(content).decode()


def hash_of(text: object) -> bytes:
    """The hash in a document.

    Raises:
        TypeError, ValueError: it is none.
    """
    if type(text) is not str:
        raise TypeError("hash is no text")
    found = b64decode(text, validate=True)
    if len(found) != HASH_SIZE:
        raise ValueError(f"hash of {len(found)} bytes")
    return found


def _position(value: object) -> int:
    if type(value) is not int or not 0 <= value <= TIMESTAMP_MAX:
        raise ValueError("number out of range")
    return value


def _behind(line: str, word: str) -> str:
    if not line.startswith(word):
        raise ValueError(f"no line with {word.strip()}")
    return line.removeprefix(word)


def _number(text: str, limit: int) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(limit)):
        raise ValueError("not a number")
    found = int(text)
    if found > limit:
        raise ValueError("number out of range")
    return found
