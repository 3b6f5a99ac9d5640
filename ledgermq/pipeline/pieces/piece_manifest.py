"""Manifest of a place of pieces: which pieces follow one another, and which queues are in them.

It is a checked document, and small beside the pieces: of each queue it says first and last offset
in each piece, and where a row group is, the piece's footer says. Pieces that it does not name are
none: one that was put by a run that was killed is taken by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from ledgermq.conversion.stream.log_facts import StretchFacts
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.pipeline.pieces.piece_footer import PieceFooter, QueueStretch
from ledgermq.pipeline.pieces.piece_places import (
    MANIFEST,
    PIECES,
    ReadPlace,
    SealedPlace,
    file_name,
)
from ledgermq.store.files.checked_document import decode_document, encode_document

_VERSION, _VERSION_EDITED = 1, 2
_MADE_ANEW = "manifest of pieces is not whole: `ledgermq piece manifest` makes it anew"

PUT_TRIES = 16
"""How often a manifest is read anew because somebody else has replaced it meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceRow:
    """What the manifest says of a piece.

    Attributes:
        start, end: positions of the log.
        header_size: of entries in it; 0 in a plain log.
        size: bytes of the file; ``tail`` of its footers.
        facts: of its records.
        queues: by topic, in the order of queues and of the log. What was dropped message by
            message is among it.
        snapshots: as the footer has them.
        topic_bytes: as the footer has them.
        edition: of its file (``PieceName``).
        dropped: how many of its records it has no more.
        locked: topics whose rows are locked with a key, ascending.
    """

    start: int
    end: int
    header_size: int
    size: int
    tail: int
    facts: StretchFacts
    queues: Mapping[str, tuple[QueueStretch, ...]]
    snapshots: tuple[int, ...]
    topic_bytes: Mapping[str, int] = field(default_factory=dict)
    edition: int = 0
    dropped: int = 0
    locked: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of its file in the place."""
        return f"{PIECES}/{file_name(self.start, self.end, self.edition)}"


class DroppedPart(NamedTuple):
    """Positions of pieces that were dropped as a whole, one behind the other.

    Attributes:
        follows: where the pieces before them ended; -1 of the first ones.
    """

    follows: int
    start: int
    end: int


class DroppedEnd(NamedTuple):
    """How far a queue goes whose messages were dropped of a piece: the queue offset behind the last
    of them; ``position`` is where that piece ends.
    """

    queue_id: int
    position: int
    end: int


class PieceManifest(NamedTuple):
    """The pieces of a place, ascending; none overlaps another one.

    Attributes:
        edition: number of the last run that drops; only that one may change what is in a row.
        gone: what such runs have dropped as a whole, ascending.
        ends: of queues of which they have dropped messages, by topic.
    """

    rows: tuple[PieceRow, ...]
    edition: int = 0
    gone: tuple[DroppedPart, ...] = ()
    ends: Mapping[str, tuple[DroppedEnd, ...]] = MappingProxyType({})

    @property
    def end(self) -> int:
        """Position behind the last piece; -1 without any."""
        return self.rows[-1].end if self.rows else -1

    def ends_known(self, since: int, before: int) -> dict[tuple[str, int], int] | None:
        """Ends of all queues that have got messages from the position ``since`` on, as of the
        position ``before``, where a piece begins; None where a part of the log in between never was
        in a piece.
        """
        parts = [(row.start, row.end) for row in self.rows]
        parts += [(one.start, one.end) for one in self.gone]
        at = since
        for start, end in sorted(parts):
            if start <= at < end:
                at = end
        if at < before:
            return None
        found = {
            (topic, one.queue_id): (one.position, one.end)
            for topic, ends in self.ends.items()
            for one in ends
            if since < one.position <= before
        }
        for row in self.rows:
            if not since < row.end <= before:
                continue
            for topic, stretches in row.queues.items():
                for stretch in stretches:
                    queue = topic, stretch.queue_id
                    found[queue] = max(found.get(queue, (0, 0)), (row.end, stretch.end))
        return {queue: end for queue, (_, end) in found.items()}

    def with_row(self, row: PieceRow) -> PieceManifest:
        """The same with ``row`` behind the last one.

        Raises:
            ConfigError: that is not where it belongs: somebody else seals into the place.
        """
        if row.start < self.end:
            raise ConfigError(
                "another run has sealed this part of the log meanwhile: run it again",
                begin=row.start,
                sealed=self.end,
            )
        return self._replace(rows=(*self.rows, row))


def row_of(footer: PieceFooter, *, size: int, tail: int, edition: int = 0) -> PieceRow:
    """What the manifest is to say of a piece."""
    return PieceRow(
        start=footer.start,
        end=footer.end,
        header_size=footer.header_size,
        size=size,
        tail=tail,
        facts=footer.facts,
        queues={
            topic: footer.thinned[topic] if topic in footer.thinned else _stretches(footer, topic)
            for topic in sorted(footer.runs.keys() | footer.thinned.keys())
        },
        snapshots=footer.snapshots,
        topic_bytes=footer.topic_bytes,
        edition=edition,
        dropped=footer.dropped.records,
        locked=tuple(sorted({one.topic for one in footer.locked.values()})),
    )


def _stretches(footer: PieceFooter, topic: str) -> tuple[QueueStretch, ...]:
    """The runs of a topic's queues, joined where one goes on in the next row group."""
    found: list[QueueStretch] = []
    for run in sorted(footer.runs[topic], key=lambda one: (one.queue_id, one.group, one.row)):
        last = found[-1] if found else None
        if last is not None and (last.queue_id, last.end) == (run.queue_id, run.offset):
            times = min(last.min_ms, run.min_ms), max(last.max_ms, run.max_ms)
            found[-1] = QueueStretch(run.queue_id, last.offset, run.end, *times)
        else:
            found.append(QueueStretch(run.queue_id, run.offset, run.end, run.min_ms, run.max_ms))
    return tuple(found)


def read_manifest(place: ReadPlace, *, is_sealed: bool = False) -> PieceManifest:
    """The manifest of a place; an empty one where there is none.

    Args:
        is_sealed: there is to be one: else a name that is misspelt would be a place without pieces.

    Raises:
        CorruptLogError: it is not what was written.
        ConfigError: a later version wrote it, or there is to be one and is none.
        StorageError: the place refused.
    """
    found, version = _read(place)
    if is_sealed and version is None:
        raise ConfigError(
            "nothing was sealed there, or the manifest is lost: `ledgermq piece manifest` makes it"
            " anew",
            place=place.as_text(),
        )
    return found


def _read(place: ReadPlace) -> tuple[PieceManifest, str | None]:
    found = place.document(MANIFEST)
    if found is None:
        return PieceManifest(()), None
    where = place.as_text(MANIFEST)
    try:
        document = decode_document(found[0], file=where)
    except CorruptLogError as error:
        raise CorruptLogError(_MADE_ANEW, file=where, reason=error.message) from error
    if document.get("version") not in (_VERSION, _VERSION_EDITED):
        raise ConfigError(
            "manifest of pieces of a later version", file=where, version=document.get("version")
        )
    try:
        rows = tuple(_row(row) for row in _list(document["pieces"]))
        edition = _integer(document.get("edition", 0))
        gone = tuple(_gone(one) for one in _list(document.get("gone", [])))
        ends = {
            topic: tuple(_dropped_end(row) for row in _list(rows_))
            for topic, rows_ in dict(cast("Any", document.get("ends", {}))).items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptLogError(_MADE_ANEW, file=where, reason=str(error)) from error
    if any(one.end > other.start for one, other in pairwise(rows)) or edition < max(
        (row.edition for row in rows), default=0
    ):
        raise CorruptLogError("manifest has pieces that overlap, or of a run to come", file=where)
    return PieceManifest(rows, edition, gone, ends), found[1]


def change_manifest(
    place: SealedPlace, change: Callable[[PieceManifest], PieceManifest]
) -> PieceManifest:
    """Have the manifest changed, which it is durably on return; the manifest then.

    Args:
        change: what it is to be in the place of what it is; called again where somebody else has
            replaced it meanwhile.

    Raises:
        ConfigError: others keep on replacing the manifest; or what ``change`` raises.
        CorruptLogError, StorageError: as ``read_manifest``.
    """
    for _ in range(PUT_TRIES):
        found, version = _read(place)
        wanted = change(found)
        if wanted == found:
            return found
        if place.replace(MANIFEST, encode_manifest(wanted), over=version):
            return wanted
    raise ConfigError("others keep on changing this place", place=place.as_text())


def add_row(place: SealedPlace, row: PieceRow) -> PieceManifest:
    """Have ``row`` in the manifest, which it is durably on return; the manifest then.

    Raises:
        ConfigError: somebody else has sealed that part of the log, or keeps on replacing the
            manifest.
        CorruptLogError, StorageError: as ``read_manifest``.
    """
    return change_manifest(place, lambda found: found if row in found.rows else found.with_row(row))


def replace_manifest(place: SealedPlace, rows: list[PieceRow]) -> PieceManifest:
    """Have a manifest of these rows, whatever there was; durable on return.

    Raises:
        ConfigError: somebody seals there now.
        StorageError: the place refused.
    """
    found = place.document(MANIFEST)
    wanted = PieceManifest(())
    for row in sorted(rows, key=lambda one: (one.start, -one.end, -one.edition)):
        if row.start >= wanted.end:
            wanted = wanted.with_row(row)
    wanted = wanted._replace(edition=max((row.edition for row in rows), default=0))
    content = encode_manifest(wanted)
    if not place.replace(MANIFEST, content, over=found and found[1]):
        raise ConfigError(
            "another run seals into this place now: run it again", place=place.as_text()
        )
    return wanted


def encode_manifest(manifest: PieceManifest) -> bytes:
    """The document of a manifest."""
    return encode_document(_document(manifest))


def _document(manifest: PieceManifest) -> dict[str, object]:
    pieces = [_row_as_json(row) for row in manifest.rows]
    if not manifest.edition:
        return {"version": _VERSION, "pieces": pieces}
    return {
        "version": _VERSION_EDITED,
        "edition": manifest.edition,
        "gone": manifest.gone,
        "ends": dict(manifest.ends),
        "pieces": pieces,
    }


def _row_as_json(row: PieceRow) -> dict[str, object]:
    found = asdict(row)
    if not row.locked:
        del found["locked"]
    return found


def _row(fields_: Any) -> PieceRow:
    facts = {one.name: _integer(fields_["facts"][one.name]) for one in fields(StretchFacts)}
    numbers = {
        name: _integer(fields_[name]) for name in ("start", "end", "header_size", "size", "tail")
    }
    row = PieceRow(
        **numbers,
        facts=StretchFacts(**facts),
        queues={
            topic: tuple(_stretch(one) for one in _list(rows))
            for topic, rows in dict(fields_["queues"]).items()
        },
        snapshots=tuple(_integer(one) for one in _list(fields_["snapshots"])),
        topic_bytes={
            topic: _integer(size) for topic, size in dict(fields_.get("topic_bytes", {})).items()
        },
        edition=_integer(fields_.get("edition", 0)),
        dropped=_integer(fields_.get("dropped", 0)),
        locked=tuple(_topic(one) for one in _list(fields_.get("locked", []))),
    )
    if not (
        0 <= row.start < row.end
        and row.header_size in (0, HEADER_SIZE)
        and 0 < row.tail < row.size
        and min(row.edition, row.dropped, *row.topic_bytes.values()) >= 0
        and row.dropped < max(1, row.facts.records)
    ):
        raise ValueError("a piece that cannot be")
    return row


def _gone(values: object) -> DroppedPart:
    found = DroppedPart(*(_integer(value) for value in _list(values)))
    if not found.follows <= found.start < found.end:
        raise ValueError("positions that cannot be")
    return found


def _dropped_end(values: object) -> DroppedEnd:
    found = DroppedEnd(*(_integer(value) for value in _list(values)))
    if not (0 <= found.queue_id <= QUEUE_ID_MAX and min(found.position, found.end) > 0):
        raise ValueError("end of a queue that cannot be")
    return found


def _stretch(values: object) -> QueueStretch:
    found = QueueStretch(*(_integer(value) for value in _list(values)))
    if not (0 <= found.queue_id <= QUEUE_ID_MAX and 0 <= found.offset < found.end):
        raise ValueError("messages of a queue that cannot be")
    return found


def _topic(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no topic")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return value


def _integer(value: object) -> int:
    if type(value) is not int or not -1 <= value < 1 << 63:
        raise TypeError("no integer of 63 bits")
    return value
