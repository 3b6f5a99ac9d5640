"""The broker's tables as their files and the log have them, for whoever only reads them.

Any process of the node may have its own: it begins with the files that the broker writes, each of
which says up to where in the log it goes, and applies what is behind that (``state_reader``).
"""

from __future__ import annotations

from pathlib import Path

from ledgermq.broker import access
from ledgermq.broker.access import UserTable
from ledgermq.broker.archives import ArchiveTable
from ledgermq.broker.broker_state import FILES, OWN_FILES, BrokerState
from ledgermq.broker.group_offsets import GroupOffsets
from ledgermq.broker.groups import GroupTable
from ledgermq.broker.holds import QueueName
from ledgermq.broker.name_values import NameValues
from ledgermq.broker.queue_locks import QueueLocks
from ledgermq.broker.quotas import QuotaTable
from ledgermq.broker.topics import TopicTable
from ledgermq.model.settings import NodeSection, Settings
from ledgermq.process.config_file import ConfigFile

PUBLIC_MODE = 0o640
SECRET_MODE = 0o600
"""Of the file that has the users' secrets."""


class AppliedTables:
    """Tables that were loaded, and to which commands are applied through ``state``."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        """Load the tables.

        Raises:
            ConfigError, CorruptLogError: a file cannot be understood; names file, key and value.
            StorageError: the operating system refused.
        """
        self._settings = settings
        own = directory.parent / "ledgermq"
        self._files = {
            file: ConfigFile(
                (own if file in OWN_FILES else directory) / file,
                mode=SECRET_MODE if file == access.FILE else PUBLIC_MODE,
            )
            for file in FILES
        }
        self.state = BrokerState({file: self._files[file].load() for file in FILES})
        self.topics.reserve_builtin(settings.node, settings.topics)

    @property
    def node(self) -> NodeSection:
        """Names of this node."""
        return self._settings.node

    @property
    def topics(self) -> TopicTable:
        """As far as the log is applied."""
        return self.state.topics

    @property
    def groups(self) -> GroupTable:
        """As far as the log is applied."""
        return self.state.groups

    @property
    def offsets(self) -> GroupOffsets:
        """As far as the log is applied."""
        return self.state.offsets

    def first_offset(self, queue: QueueName) -> int:
        """Where a queue begins that had messages of an earlier topic of the same name."""
        topic = self.topics.get(queue.topic)
        return 0 if topic is None else topic.first_offsets.get(queue.queue_id, 0)

    @property
    def locks(self) -> QueueLocks:
        """As far as the log is applied."""
        return self.state.locks

    @property
    def users(self) -> UserTable:
        """As far as the log is applied."""
        return self.state.users

    @property
    def quotas(self) -> QuotaTable:
        """As far as the log is applied."""
        return self.state.quotas

    @property
    def archives(self) -> ArchiveTable:
        """As far as the log is applied."""
        return self.state.archives

    @property
    def names(self) -> NameValues:
        """As far as the log is applied."""
        return self.state.names
