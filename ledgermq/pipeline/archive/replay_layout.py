"""Replay state: its arguments, and notes of its progress.

A document for each queue of the archive stands in the replay's folder:

    {"generation": N, "offset": N, "target": QUEUE ID, "from": N}

All messages of the queue before that generation and offset are stored. Some of those behind it may
be, too: in the target's queue, at ``from`` or behind it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.pipeline.archive.archive_layout import ArchivedFile, escaped
from ledgermq.pipeline.archive.archive_store import OWN_FOLDER
from ledgermq.pipeline.queue_ranges import Queue
from ledgermq.store.files.checked_document import read_document, write_document

ORIGIN = "LEDGERMQ_REPLAYED"
"""Property of each replayed message: ``NAME/TOPIC/QUEUE/GENERATION/OFFSET``, where it was."""

Place = tuple[int, int]
"""Generation and queue offset of a message of the archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayChoice:
    """Which messages are replayed, and to where; all of it must hold.

    Attributes:
        topics, queues: None for all.
        begin_ms, end_ms: store times; the second one is excluded.
        tag, key: of the message.
        to_topic: None for the topic that a message was in.
        by_sink: whether a run of the archive is stored as a whole.
    """

    topics: tuple[str, ...] | None = None
    queues: tuple[int, ...] | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    tag: str | None = None
    key: str | None = None
    to_topic: str | None = None
    by_sink: bool = False

    def has_file(self, file: ArchivedFile) -> bool:
        """Whether a file may have some of them."""
        return (
            (self.topics is None or file.topic in self.topics)
            and (self.begin_ms is None or file.last_stored >= self.begin_ms)
            and (self.end_ms is None or file.first_stored < self.end_ms)
        )

    def has_queue(self, queue_id: int) -> bool:
        """Whether messages of the queue are wanted."""
        return self.queues is None or queue_id in self.queues


class ReplayMark(NamedTuple):
    """How far a queue is replayed; see the module."""

    next: Place
    target_queue: int
    scan_from: int


class ReplayFolder:
    """The documents of one replay, in the folder ``path``, which has its name."""

    def __init__(self, path: Path) -> None:
        """Nothing is read or made yet."""
        self.path = path

    @classmethod
    def within(cls, archive: Path, name: str) -> ReplayFolder:
        """Where the notes of an archive's replay stand unless another place is named."""
        return cls(archive / OWN_FOLDER / "replays" / name)

    def begin(self, choice: ReplayChoice, *, archive: str | None = None) -> None:
        """Have the folder, for this choice.

        Args:
            archive: where it is, if the folder is not within it.

        Raises:
            ConfigError: a replay of that name was begun with another one.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        wanted = json.loads(json.dumps(asdict(choice)))
        if not choice.by_sink:
            # Replays that were begun before there was a choice do not say so.
            del wanted["by_sink"]
        if archive is not None:
            wanted["archive"] = archive
        file = self.path / "replay.json"
        found = read_document(file)
        if found is None:
            write_document(file, wanted)
        elif found != wanted:
            raise ConfigError(
                "replay of that name was begun otherwise: choose the same, or another name",
                option="--name",
                value=self.path.name,
                begun=found,
                wanted=wanted,
            )

    def read(self, queue: Queue) -> ReplayMark | None:
        """How far a queue is; None before its first message.

        Raises:
            CorruptLogError: the document is damaged.
        """
        file = self._file(queue)
        document = read_document(file)
        if document is None:
            return None
        numbers = [_integer(document, name, file) for name in ("generation", "offset")]
        target, scan_from = (_integer(document, name, file) for name in ("target", "from"))
        return ReplayMark((numbers[0], numbers[1]), target, scan_from)

    def write(self, queue: Queue, mark: ReplayMark) -> None:
        """Note how far a queue is; durable on return.

        Raises:
            StorageError: the operating system refused.
        """
        generation, offset = mark.next
        document: dict[str, object] = {
            "generation": generation,
            "offset": offset,
            "target": mark.target_queue,
            "from": mark.scan_from,
        }
        write_document(self._file(queue), document)

    def _file(self, queue: Queue) -> Path:
        return self.path / f"{escaped(queue[0])}@{queue[1]}.json"


def check_name(name: str) -> str:
    """A replay's name, which is that of a folder and part of a property.

    Raises:
        ConfigError: it has something else than letters, digits, ``-`` and ``_``.
    """
    if not name or not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ConfigError("not the name of a replay", option="--name", value=name)
    return name


def origin(name: str, queue: Queue, place: Place) -> str:
    """The property of a replayed message."""
    return f"{name}/{queue[0]}/{queue[1]}/{place[0]}/{place[1]}"


def place_of(text: str, name: str, queue: Queue) -> Place | None:
    """The place in the property of a message of this replay and queue; None of all others."""
    prefix = f"{name}/{queue[0]}/{queue[1]}/"
    if not text.startswith(prefix):
        return None
    generation, _, offset = text.removeprefix(prefix).partition("/")
    return (int(generation), int(offset)) if generation.isdigit() and offset.isdigit() else None


def _integer(document: Mapping[str, object], name: str, file: Path) -> int:
    value = document.get(name)
    if not isinstance(value, int):
        raise CorruptLogError("progress of a replay not read", file=str(file), field=name)
    return value
