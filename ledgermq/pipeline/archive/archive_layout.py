"""Archive manifest: one document a run, and what all of them together tell.

docs/formats/archive.md describes folders and documents. Nothing here touches a disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.pipeline.queue_ranges import Queue

if TYPE_CHECKING:
    import pyarrow.parquet as pq

VERSION_PLAIN, VERSION_TYPED = 1, 2
"""Versions of a document: the second one where bodies are fields, too."""

PLAIN, STORED = "plain", "stored"
"""Bodies as the application sent them, or as the store has them."""

_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(32)}
"""What Spark writes as ``%XX`` in the name of a partition's folder (ExternalCatalogUtils)."""

_EPOCH = date(1970, 1, 1)

Value = TypeVar("Value")


TopicDocument = Mapping[str, object]
"""``{}``, ``{"topics": [...]}`` or ``{"pattern": TEXT}``."""


class QueueSpan(NamedTuple):
    """Messages of one queue in one file.

    Attributes:
        generation: how often the queue was made anew before, with offsets from its beginning.
        first, end: least queue offset, and that behind the largest.
        rows: as many; fewer than ``end - first`` where days interleave.
    """

    queue_id: int
    generation: int
    first: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One Parquet file: messages of one topic and one day.

    Attributes:
        path: below the archive's folder.
        day: days since 1970-01-01, UTC, of the store time.
        sha256: of the file's bytes, in hexadecimal digits.
        first_stored, last_stored: least and largest store time, epoch ms.
        damaged: rows whose ``crcOk`` is false.
        unparsed: rows whose body is not there as fields, where it should be.
        value: type of the bodies as fields, as Spark writes it; None where they are none.
        footer: what Parquet says of its columns, where a table is to know it; no document has it.
    """

    path: str
    topic: str
    day: int
    rows: int
    bytes: int
    sha256: str
    first_stored: int
    last_stored: int
    damaged: int
    spans: tuple[QueueSpan, ...]
    unparsed: int = 0
    value: object = None
    footer: pq.FileMetaData | None = None


class QueueMark(NamedTuple):
    """How far a queue is archived.

    Attributes:
        end: queue offset behind the last message that is archived, or known to be gone.
        position: in the log, of the last message that is archived.
        stored: its store time, epoch ms.
    """

    generation: int
    first: int
    end: int
    position: int
    stored: int


class Gap(NamedTuple):
    """Messages that were deleted before they were archived; half-open."""

    topic: str
    queue_id: int
    generation: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """One document of the manifest: what one run has added.

    Attributes:
        number: from 1.
        at_ms: when it was written.
        source: the store's directory, or the cluster's addresses.
        bodies: ``plain`` or ``stored``, the same in all runs of an archive.
        topics: which topics it takes, the same in all runs: ``{}`` all but the system's.
        position: of the log: all that the archive wants below it is archived; None where the
            source does not tell.
        marks: of the queues that have changed.
        subjects: by whose schemas bodies are fields; without them they are none.
        value: the type of those fields in its files, as Spark writes it; None for tables, which
            have their own.
    """

    number: int
    at_ms: int
    source: str
    bodies: str
    topics: TopicDocument
    position: int | None
    marks: Mapping[Queue, QueueMark]
    gaps: tuple[Gap, ...]
    files: tuple[ArchivedFile, ...]
    subjects: tuple[str, ...] = ()
    value: object = None


@dataclass(slots=True)
class ArchiveState:
    """What all documents together say."""

    runs: int = 0
    bodies: str | None = None
    topics: TopicDocument | None = None
    position: int | None = None
    marks: dict[Queue, QueueMark] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    files: list[ArchivedFile] = field(default_factory=list)
    subjects: tuple[str, ...] = ()
    value: object = None

    @classmethod
    def of(cls, runs: Iterable[ArchiveRun]) -> ArchiveState:
        """The state behind ``runs``, in their order."""
        state = cls()
        for run in runs:
            state.add(run)
        return state

    def add(self, run: ArchiveRun) -> None:
        """One more run."""
        self.runs = run.number
        self.bodies = run.bodies
        self.topics = run.topics
        self.subjects = run.subjects
        self.value = run.value
        if run.position is not None:
            self.position = max(run.position, self.position or 0)
        self.marks |= run.marks
        self.gaps += run.gaps
        self.files += run.files

    def check_choice(
        self, bodies: str, topics: TopicDocument, subjects: tuple[str, ...] = ()
    ) -> None:
        """Compare what a run is to write with what is there.

        Bodies may become fields with a later run: rows that are there have none. They stay so then.

        Raises:
            ConfigError: the archive has other bodies, or other topics: then nobody could say up to
                where it has everything. Or its bodies are fields by other subjects, or would be
                none any more.
        """
        if not self.runs:
            return
        for option, found, wanted in (
            ("--stored-bodies", self.bodies, bodies),
            ("--topics, --pattern", self.topics, topics),
            ("--columns, --subject", self.subjects or subjects, subjects),
        ):
            if found != wanted:
                raise ConfigError(
                    "archive was begun otherwise: give it what it has, or another directory",
                    option=option,
                    archive=found,
                    wanted=wanted,
                )


def day_of(stored_ms: int) -> int:
    """Days since 1970-01-01 of a store time."""
    return stored_ms // 86_400_000


def day_text(day: int) -> str:
    """A day as folders have it: ``2026-11-22``; beyond the calendar its number."""
    try:
        return (_EPOCH + timedelta(days=day)).isoformat()
    except OverflowError:
        return str(day)


def file_path(topic: str, day: int, *, run: int, task: int, number: int, attempt: str) -> str:
    """Where the ``number``-th file of a task stands in the archive.

    Args:
        attempt: differs where Spark runs a task twice, so that neither writes the other's file.
    """
    name = f"part-{run:08d}-{task:05d}-{number:05d}-{attempt}.parquet"
    return f"topic={escaped(topic)}/day={day_text(day)}/{name}"


def escaped(topic: str) -> str:
    """A topic as names of folders and files have it."""
    text = "".join(f"%{ord(one):02X}" if one in _ESCAPED else one for one in topic)
    # No topic of a broker is so; a folder must not get a name that leads elsewhere.
    return {".": "%2E", "..": "%2E%2E"}.get(text, text)


def encode_run(run: ArchiveRun) -> dict[str, object]:
    """The document of a run."""
    is_typed = bool(run.subjects)
    typed = {"subjects": list(run.subjects), "value": run.value} if is_typed else {}
    return {
        "version": VERSION_TYPED if is_typed else VERSION_PLAIN,
        "run": run.number,
        "at": run.at_ms,
        "source": run.source,
        "bodies": run.bodies,
        "topics": run.topics,
        **typed,
        "position": run.position,
        "queues": encode_marks(run.marks),
        "gaps": [list(gap) for gap in run.gaps],
        "files": [
            {
                "path": file.path,
                "topic": file.topic,
                "day": file.day,
                "rows": file.rows,
                "bytes": file.bytes,
                "sha256": file.sha256,
                "stored": [file.first_stored, file.last_stored],
                "damaged": file.damaged,
                **({"unparsed": file.unparsed} if is_typed else {}),
                "queues": [list(span) for span in file.spans],
            }
            for file in run.files
        ],
    }


def decode_run(document: Mapping[str, object], *, file: str) -> ArchiveRun:
    """The run that a document describes.

    Args:
        file: named in errors.

    Raises:
        ConfigError: it is of a later version of the layout.
        CorruptLogError: it is none.
    """
    version = document.get("version")
    if isinstance(version, int) and version > VERSION_TYPED:
        raise ConfigError(
            "archive is of a later layout", file=file, version=version, known=VERSION_TYPED
        )
    take = _Fields(document, file)
    subjects = tuple(take.texts("subjects")) if version == VERSION_TYPED else ()
    value = document.get("value") if subjects else None
    if subjects and value is None:
        raise take.corrupt("value")
    position = document.get("position")
    return ArchiveRun(
        number=take.value("run", int),
        at_ms=take.value("at", int),
        source=take.value("source", str),
        bodies=take.value("bodies", str),
        topics=take.value("topics", dict),
        position=position if isinstance(position, int) else None,
        marks=decode_marks(take.value("queues", dict), file=file),
        gaps=tuple(_gap(gap, take) for gap in take.value("gaps", list)),
        files=tuple(_file(item, take, value) for item in take.value("files", list)),
        subjects=subjects,
        value=value,
    )


def encode_marks(marks: Mapping[Queue, QueueMark]) -> dict[str, dict[str, list[int]]]:
    """How far queues are archived, as documents have it: by topic and queue."""
    queues: dict[str, dict[str, list[int]]] = {}
    for (topic, queue_id), mark in sorted(marks.items()):
        queues.setdefault(topic, {})[str(queue_id)] = list(mark)
    return queues


def decode_marks(queues: Mapping[str, object], *, file: str) -> dict[Queue, QueueMark]:
    """What ``encode_marks`` has made a document of.

    Args:
        file: named in errors.

    Raises:
        CorruptLogError: it is none.
    """
    take = _Fields(queues, file)
    return {
        (topic, _queue_id(number, take)): QueueMark(*take.integers(numbers, 5))
        for topic in queues
        for number, numbers in take.value(topic, dict).items()
    }


def _queue_id(text: str, take: _Fields) -> int:
    if not (text.isascii() and text.isdigit()):
        raise take.corrupt("queues")
    return int(text)


def _gap(item: object, take: _Fields) -> Gap:
    if not (isinstance(item, list) and item and isinstance(item[0], str)):
        raise take.corrupt("gaps")
    return Gap(item[0], *take.integers(item[1:], 4))


def _file(item: object, take: _Fields, value: object) -> ArchivedFile:
    if not isinstance(item, dict):
        raise take.corrupt("files")
    fields = _Fields(item, take.file)
    first, last = fields.integers(fields.value("stored", list), 2)
    path: str = fields.value("path", str)
    if not all(map(is_file_name, path.split("/"))):
        # Files are moved, read and written over by it.
        raise CorruptLogError(
            "manifest of the archive names a file outside of it", file=take.file, path=path
        )
    return ArchivedFile(
        path=path,
        topic=fields.value("topic", str),
        day=fields.value("day", int),
        rows=fields.value("rows", int),
        bytes=fields.value("bytes", int),
        sha256=fields.value("sha256", str),
        first_stored=first,
        last_stored=last,
        damaged=fields.value("damaged", int),
        spans=tuple(QueueSpan(*fields.integers(span, 5)) for span in fields.value("queues", list)),
        unparsed=0 if value is None else fields.value("unparsed", int),
        value=value,
    )


class _Fields:
    """Fields of a document, each of the type that is asked for."""

    def __init__(self, document: Mapping[str, object], file: str) -> None:
        self._document = document
        self.file = file

    def corrupt(self, field: str) -> CorruptLogError:
        """What is raised of a field."""
        return CorruptLogError("manifest of the archive not read", file=self.file, field=field)

    def value(self, field: str, kind: type[Value]) -> Value:
        """The field ``field``."""
        found = self._document.get(field)
        if not isinstance(found, kind):
            raise self.corrupt(field)
        return found

    def texts(self, field: str) -> list[str]:
        """The field ``field``, a list of texts."""
        found = [text for text in self.value(field, list) if isinstance(text, str)]
        if len(found) != len(self.value(field, list)):
            raise self.corrupt(field)
        return found

    def integers(self, numbers: object, count: int) -> list[int]:
        """A list of so many integers."""
        if isinstance(numbers, list) and len(numbers) == count:
            found = [number for number in numbers if type(number) is int]
            if len(found) == count:
                return found
        raise self.corrupt("numbers")
