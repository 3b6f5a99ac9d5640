"""Read-only copy of the broker's tables, from their files and the log.

Any process of the node may have its own: it begins with the files that the broker writes, each of
which says up to where in the log it goes, and applies what is behind that (``state_reader``).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from ledgermq.model.config.settings import NodeSection, Settings
from ledgermq.model.errors import GroupUnknownError, NotLeaderError
from ledgermq.model.names.group_topics import dead_letter_topic, retry_topic
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.table_files import load_tables, table_files
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_tables import FILES
from ledgermq.sessions.keys.user_secrets import UserSecrets


class AppliedTables:
    """Tables that were loaded, and to which commands are applied through ``state``.

    Those of ``state`` that others ask for are attributes, too: each is what it is as far as the log
    is applied.

    Attributes:
        secrets: seals and opens those of users.
        is_starting: they may lack what was acknowledged before this process began; nobody is told
            what they say, or do not say.
    """

    _writes_files: ClassVar[bool] = False

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
        _, state = load_tables(self._files, keeps=self._writes_files)
        self.state = state
        self.topics, self.groups, self.offsets = state.topics, state.groups, state.offsets
        self.locks, self.users, self.quotas = state.locks, state.users, state.quotas
        self.archives, self.names = state.archives, state.names
        self.features, self.cluster = state.features, state.cluster
        self.schemas, self.shares = state.schemas, state.shares
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
        settled = unsettled - again.unsettled
        for file in settled:
            self.state.settle(file, again.place(file))
        # Meanwhile the writer has put positions right that were outside of their queues.
        if self.offsets.file in settled:
            self.offsets.replace_with(again.offsets)
        for moved, found in ((self.state.delays, again.delays), (self.state.moves, again.moves)):
            if moved.file in settled:
                moved.replace_with(found)
        return not self.state.unsettled

    def check_started(self) -> None:
        """Refuse to tell what the tables say before they are those of the log.

        Raises:
            NotLeaderError: this process has just begun; ask again.
        """
        if self.is_starting:
            raise NotLeaderError("node is starting: it has not read yet what was changed before")

    def check_group(self, name: str, members: Collection[str] = ()) -> None:
        """Refuse to tell of a group that is not there, or is misspelt.

        Args:
            members: who consumes for it now, where that is known.

        Raises:
            GroupUnknownError: there is none; see ``has_group``.
            NotLeaderError: the node is starting, and may only not know it yet.
        """
        if not members and not self.has_group(name):
            raise GroupUnknownError("group does not exist", group=name)

    def has_group(self, name: str) -> bool:
        """Whether a group has settings, has consumed something, or got something back.

        Raises:
            NotLeaderError: the node is starting, and may only not know it yet.
        """
        if self.groups.get(name) is not None or self.offsets.of_group(name):
            return True
        if any(self.topics.get(own) for own in (retry_topic(name), dead_letter_topic(name))):
            return True
        self.check_started()
        return False

    def keep_places(self) -> None:
        """Have the places of all tables in their files: the broker's matter, which writes them."""

    @property
    def node(self) -> NodeSection:
        """Names of this node."""
        return self._settings.node

    def first_offset(self, queue: QueueName) -> int:
        """Where a queue begins that had messages of an earlier topic of the same name."""
        topic = self.topics.get(queue.topic)
        return 0 if topic is None else topic.first_offsets.get(queue.queue_id, 0)
