"""Log damage, and the mark that a member keeps of it in ``ROOT/ledgermq/log-damage``.

Damage is what was durable once and is not whole now. A torn tail is something else: what was being
written when the machine stopped, and was never called durable. Only ``store/recovery/recovery.py``
tells the two apart at a start; whoever finds at run time that a record does not match its
checksums notes it here with ``mark_damage``, and ends: recovery looks again from there on.

The mark (``store/files/checked_document.py``) is written before anything is cut, and says what the
log once had durable. It is removed by the writer when the log has that much again, or by the
operator (``ledgermq store accept-loss``). What a node may do meanwhile: docs/decisions/0010.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ledgermq.model.errors import CorruptLogError, refused_as
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.disk_sync import sync_directory

_FIELDS = ("position", "last_position", "last_index", "last_term")


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Where a log is damaged, and what it once had.

    Attributes:
        position: where the first record begins that is not whole, or one before it.
        file: name of the file that has that position.
        field: what did not match, in the words of ``RecordFault``.
        last_position: first position behind what was durable once.
        last_index: index of the last entry that was (with a CommitLog the position).
        last_term: its term.
    """

    position: Position
    file: str
    field: str
    last_position: Position
    last_index: Index
    last_term: Term

    @property
    def last(self) -> tuple[Term, Index]:
        """Term and index of the last entry that was durable once, in the order of elections."""
        return self.last_term, self.last_index

    def is_mended_by(self, term: int, index: int) -> bool:
        """Whether a log that ends durably with this entry has all again that may count.

        It has: entries come from leaders alone after a cut, and a leader of a later term has all
        that was committed before (docs/decisions/0010).
        """
        return (term, index) >= self.last

    def merged(self, other: LogDamage | None) -> LogDamage:
        """Both together: the first place, and the last entry."""
        if other is None:
            return self
        first = min(self, other, key=lambda one: one.position)
        last = max(self, other, key=lambda one: one.last)
        return LogDamage(
            first.position,
            first.file,
            first.field,
            Position(max(self.last_position, other.last_position)),
            last.last_index,
            last.last_term,
        )

    def describe(self) -> str:
        """The damage in words, for people."""
        return (
            f"damaged at position {self.position:,} (file {self.file}, {self.field}); once durable"
            f" up to entry {self.last_term}/{self.last_index} at position {self.last_position:,}"
        )


def damage_path(root: Path) -> Path:
    """Where the mark of the store at ``root`` is."""
    return root / "ledgermq" / "log-damage"


def read_damage(path: Path) -> LogDamage | None:
    """The mark at ``path``; None when there is none.

    Raises:
        CorruptLogError: there is one, and it is not whole: nobody knows what the log once had.
        StorageError: the operating system refused.
    """
    document = read_document(path)
    if document is None:
        return None
    numbers = [document.get(name) for name in _FIELDS]
    if not all(isinstance(number, int) for number in numbers):
        raise CorruptLogError("mark of a damage lacks a number", file=str(path), found=numbers)
    position, last_position, last_index, last_term = (int(str(number)) for number in numbers)
    return LogDamage(
        Position(position),
        str(document.get("file", "")),
        str(document.get("field", "")),
        Position(last_position),
        Index(last_index),
        Term(last_term),
    )


def mark_damage(path: Path, damage: LogDamage) -> LogDamage:
    """Note ``damage`` beside what is noted already; durable on return. What is noted now.

    Raises:
        CorruptLogError, StorageError: as ``read_damage``; or it could not be made durable.
    """
    known = read_damage(path)
    merged = damage.merged(known)
    if merged != known:
        document: dict[str, object] = {
            "position": merged.position,
            "file": merged.file,
            "field": merged.field,
            "last_position": merged.last_position,
            "last_index": merged.last_index,
            "last_term": merged.last_term,
        }
        write_document(path, document)
    return merged


def remove_damage(path: Path) -> None:
    """The log has again what it once had, or the operator goes without; durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    with refused_as("mark not removed", file=path):
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
