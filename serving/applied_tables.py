"""The broker's tables as their files and the log have them, for whoever only reads them.

Any process of the node may have its own: it begins with the files that the broker writes, each of
which says up to where in the log it goes, and applies what is behind that (``state_reader``).
"""

from __future__ import annotations

from pathlib import Path

from ledgermq.broker.access import UserTable
from ledgermq.broker.archives import ArchiveTable
from ledgermq.broker.broker_state import FILES, BrokerState
from ledgermq.broker.group_offsets import GroupOffsets
from ledgermq.broker.groups import GroupTable
from ledgermq.broker.name_values import NameValues
from ledgermq.broker.queue_locks import QueueLocks
from ledgermq.broker.quotas import QuotaTable
from ledgermq.broker.topics import TopicTable
from ledgermq.model.errors import NotLeaderError
from ledgermq.model.queue_name import QueueName
from ledgermq.model.settings import NodeSection, Settings
from ledgermq.process.table_files import table_files
from ledgermq.process.user_secrets import UserSecrets


class AppliedTables:
    """Tables that were loaded, and to which commands are applied through ``state``.

    Attributes:
        secrets: seals and opens those of users.
        is_starting: they may lack what was acknowledged before this process began; nobody is told
            what they say, or do not say.
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        """Load the tables.

        Raises:
            ConfigError, CorruptLogError: a file cannot be understood; names file, key and value.
            StorageError: the operating system refused.
        """
        self.is_starting = False
        self.secrets = UserSecrets(settings)
        self._settings = settings
        self._files = table_files(directory)
        self.state = BrokerState({file: self._files[file].load() for file in FILES})
        self.topics.reserve_builtin(settings.node, settings.topics)

    def settle(self) -> bool:
        """Whether each table says now where in the log it stands: files from outside are given
        their places by the writer, and looked at again here.

        Raises:
            ConfigError, CorruptLogError, StorageError: as when they are loaded.
        """
        unsettled = self.state.unsettled
        if not unsettled:
            return True
        again = BrokerState({file: self._files[file].load() for file in FILES})
        for file in unsettled - again.unsettled:
            self.state.settle(file, again.place(file))
        return not self.state.unsettled

    def check_started(self) -> None:
        """Refuse to tell what the tables say before they are those of the log.

        Raises:
            NotLeaderError: this process has just begun; ask again.
        """
        if self.is_starting:
            raise NotLeaderError("node is starting: it has not read yet what was changed before")

    def keep_places(self) -> None:
        """Have the places of all tables in their files: the broker's matter, which writes them."""

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
