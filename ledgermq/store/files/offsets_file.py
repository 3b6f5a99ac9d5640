"""Consumed offsets of all groups: ``consumerOffset.json``, or the file that ``enableLmq`` makes.

With light queues RocketMQ 4.9 keeps the offsets of every group in ``lmqConsumerOffset.json``, and
neither reads nor writes ``consumerOffset.json``; without them it is the other way round. A node
reads the one that was written last, and writes both as long as there is the second: whichever
broker gets the directory back finds what was consumed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.config_json import (
    APPLIED_KEY,
    LIGHT_OFFSET_TABLE,
    LIGHT_OFFSETS_FILE,
    OFFSETS_FILE,
    Chosen,
    chosen,
)
from ledgermq.model.errors import CorruptLogError, refused_as
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.small_file import read_file


class OffsetsFile(ConfigFile):
    """The table's file; ``path`` and ``backup`` are those that count when it was looked at last.

    Attributes:
        passed_over: the file that is there too, is not ours as it stands, and does not count.
    """

    def __init__(self, config: Path, *, mode: int = 0o640) -> None:
        """The file below ``config``, the folder ``ROOT/config``.

        Raises:
            StorageError: the operating system refused.
        """
        super().__init__(config / OFFSETS_FILE, mode=mode)
        self._usual = ConfigFile(config / OFFSETS_FILE, mode=mode)
        self._light = ConfigFile(config / LIGHT_OFFSETS_FILE, mode=mode)
        self.passed_over: Path | None = None
        self._choose()

    def load(self) -> dict[str, object]:
        usual, light = self._choose()
        document = super().load()
        if self.path == usual.path and light is not None and light.document is not None:
            # Its offsets are too old; those of light queues stand nowhere else.
            lights = light.document.get(LIGHT_OFFSET_TABLE)
            return document if lights is None else {LIGHT_OFFSET_TABLE: lights, **document}
        return document

    def save_content(self, content: bytes) -> None:
        """Put ``content`` into the file, and into that of a broker with light queues where it is.

        The usual one first: of two that say that they are ours it is never the older one.
        """
        self._usual.save_content(content)
        if _is_there(self._light):
            self._light.save_content(content)

    def _choose(self) -> tuple[_Side, _Side | None]:
        """Find out which of both counts: what they hold, the second where it is there."""
        usual, light = _look(self._usual), None
        file, passed_over = self._usual, None
        if _is_there(self._light):
            light = _look(self._light)
            if light.counts_before(usual):
                file = self._light
            if usual.is_there and light.is_there and not (usual.is_ours and light.is_ours):
                passed_over = (self._usual if file is self._light else self._light).path
        self.path, self.backup, self.passed_over = file.path, file.backup, passed_over
        return usual, light


class _Side(NamedTuple):
    """One of both files, with its copy.

    Attributes:
        path: as it is called.
        is_there: something is written in it.
        document: what it says; None where nobody can read it.
        written_ns: when it was written.
    """

    path: Path
    is_there: bool
    document: dict[str, object] | None
    written_ns: int

    @property
    def is_ours(self) -> bool:
        """Whether a node wrote it last."""
        return self.document is not None and APPLIED_KEY in self.document

    def counts_before(self, usual: _Side) -> bool:
        """Whether this one, of light queues, was written after ``usual``.

        A node writes both: what does not say that it is a node's was written later. Of two that
        are RocketMQ's the time of the file tells.
        """
        if not (self.is_there and usual.is_there):
            return self.is_there
        if self.is_ours or usual.is_ours:
            return usual.is_ours and not self.is_ours
        return self.written_ns > usual.written_ns


def _is_there(file: ConfigFile) -> bool:
    return file.path.exists() or file.backup.exists()


def _look(file: ConfigFile) -> _Side:
    contents = read_file(file.path), read_file(file.backup)
    try:
        found = chosen(*contents, file=str(file.path))
    except CorruptLogError:
        # Told by who loads it, if it counts.
        found = Chosen(None)
    is_there = any(contents) and found.document != {}
    source = file.path if contents[0] else file.backup
    return _Side(file.path, is_there, found.document, _written_ns(source) if is_there else 0)


def _written_ns(path: Path) -> int:
    with refused_as("file not looked at", why="", file=path):
        return path.stat().st_mtime_ns
