"""How many topics and groups there may be: all members keep them until somebody deletes them."""

from __future__ import annotations

from collections.abc import Sequence

from ledgermq.broker.groups import GroupTable
from ledgermq.broker.state_commands import Change, GroupSet, TopicSet
from ledgermq.broker.topics import TopicTable
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.settings import LimitsSection
from ledgermq.serving.broker_tables import BrokerTables


class TableRoom:
    """What one command may add to the tables.

    Attributes:
        limits: of the settings; may be replaced.
    """

    def __init__(self, tables: BrokerTables, limits: LimitsSection) -> None:
        self.limits = limits
        self._tables = tables
        self._topics: set[str] = set()
        self._groups: set[str] = set()

    def begin(self) -> None:
        """Another command: the tables have what those before it have added."""
        self._topics.clear()
        self._groups.clear()

    def check(self, planned: Sequence[Change]) -> None:
        """Take what is to be changed, too, or refuse it as a whole.

        What is there already can be changed and deleted whatever the limits are.

        Raises:
            MessageIllegalError: names what is too many, the limit and the setting.
        """
        topics = self._fresh(planned, TopicSet, self._tables.topics, self._topics)
        groups = self._fresh(planned, GroupSet, self._tables.groups, self._groups)
        tables, limits = self._tables, self.limits
        for what, there, fresh, limit in (
            ("topics", len(tables.topics) + len(self._topics), topics, limits.topics_max),
            ("groups", len(tables.groups) + len(self._groups), groups, limits.groups_max),
        ):
            if fresh and there + len(fresh) > limit:
                raise MessageIllegalError(
                    f"too many {what}: delete some that nobody uses",
                    there=there,
                    new=min(fresh),
                    limit=limit,
                    setting=f"limits.{what}_max",
                )
        self._topics |= topics
        self._groups |= groups

    @staticmethod
    def _fresh(
        planned: Sequence[Change],
        kind: type[TopicSet] | type[GroupSet],
        table: TopicTable | GroupTable,
        taken: set[str],
    ) -> set[str]:
        return {
            change.name
            for change in planned
            if isinstance(change, kind)
            and change.fields is not None
            and change.name not in taken
            and table.get(change.name) is None
        }
