"""Offsets of a broadcasting consumer, in a file of its own machine, as RocketMQ keeps them.

    DIRECTORY/CLIENT/GROUP/offsets.json    {"offsetTable": {TOPIC: {QUEUE: OFFSET}}}

RocketMQ's ``LocalFileOffsetStore`` has ``~/.rocketmq_offsets`` and keys that are no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ledgermq.client.groups.allocation import TopicQueue
from ledgermq.formats.config_json import OFFSET_TABLE
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.small_file import replace_file

DIRECTORY_DEFAULT = "~/.ledgermq_offsets"

_FILE = "offsets.json"


class LocalOffsets:
    """The offsets of one client in one group.

    Invariant: the file is whole at any moment; what ``commit`` has returned for is durable.
    """

    def __init__(self, directory: Path, client: str, group: str) -> None:
        """Read what is there.

        Raises:
            ConfigError: a name cannot be that of a folder.
            CorruptLogError: the file is not one of ours.
            StorageError: the operating system refused.
        """
        for name in (client, group):
            if not is_file_name(name):
                raise ConfigError("name cannot be that of a folder", name=name)
        self.path = directory.expanduser() / client / group / _FILE
        self._offsets = self._read()

    def offsets(self) -> dict[TopicQueue, int]:
        """Next offset to read, by queue; queues never committed are left out."""
        return dict(self._offsets)

    def commit(self, offsets: Mapping[TopicQueue, int]) -> None:
        """Have ``offsets`` in the file.

        Raises:
            StorageError: the operating system refused; the file is as it was.
        """
        merged = {**self._offsets, **offsets}
        if merged == self._offsets:
            return
        table: dict[str, dict[str, int]] = {}
        for queue, offset in sorted(merged.items()):
            table.setdefault(queue.topic, {})[str(queue.queue_id)] = offset
        try:
            make_directories(self.path.parent, mode=0o700)
        except OSError as error:
            raise StorageError(
                "offsets not written", errno=error.errno, file=str(self.path), reason=str(error)
            ) from error
        replace_file(self.path, json.dumps({OFFSET_TABLE: table}, indent="\t").encode())
        self._offsets = merged

    def _read(self) -> dict[TopicQueue, int]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError(
                "offsets not read", errno=error.errno, file=str(self.path), reason=str(error)
            ) from error
        try:
            table = json.loads(content)[OFFSET_TABLE]
            return {
                TopicQueue(str(topic), int(queue)): int(offset)
                for topic, queues in table.items()
                for queue, offset in queues.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptLogError(
                "not a file of offsets: move it away to begin anew", file=str(self.path)
            ) from error
