"""Limits of the number of topics and groups, which all members keep until they are deleted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import LimitsSection
from ledgermq.model.errors import MessageIllegalError, QuotaError
from ledgermq.process.clock import Clock
from ledgermq.rules.messages.token_bucket import TokenBucket
from ledgermq.rules.tables.groups import GroupTable
from ledgermq.rules.tables.table_changes import Change, GroupSet, TopicSet
from ledgermq.rules.tables.topics import TopicTable

BURST_S = 20
"""Seconds whose creations may come at once: a client that starts has all its groups made."""

OWNERS_MAX = 10_000
"""Who has created something lately; those longest ago are forgotten."""


class TableRoom:
    """What one command may add to the tables.

    Attributes:
        limits: of the settings; may be replaced.
    """

    def __init__(
        self, tables: BrokerTables, limits: LimitsSection, *, clock: Clock, counts: Counts
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._counts = counts
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._tables = tables
        self._topics: set[str] = set()
        self._groups: set[str] = set()

    def begin(self) -> None:
        """Another command: the tables have what those before it have added."""
        self._topics.clear()
        self._groups.clear()

    def check(self, planned: Sequence[Change], owner: str = "") -> None:
        """Take what is to be changed, too, or refuse it as a whole.

        What is there already can be changed and deleted whatever the limits are.

        Args:
            owner: whose creations it counts among; empty: an operator's, or the node's own.

        Raises:
            MessageIllegalError: names what is too many, the limit and the setting.
            QuotaError: the owner creates too many a second.
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
        self._charge(owner, len(topics) + len(groups))
        self._topics |= topics
        self._groups |= groups

    def _charge(self, owner: str, count: int) -> None:
        rate = self.limits.creations_per_s
        if not (owner and count and rate):
            return
        now_ns = self._clock.monotonic_ns()
        bucket = self._buckets.pop(owner, None)
        if bucket is None or bucket.rate != rate:
            bucket = TokenBucket(rate, burst=BURST_S * rate, now_ns=now_ns, is_full=True)
        self._buckets[owner] = bucket
        if len(self._buckets) > OWNERS_MAX:
            self._buckets.popitem(last=False)
        wait_ms = bucket.wait_ms(now_ns)
        if wait_ms:
            self._counts[BrokerCounter.CREATIONS_REFUSED] += 1
            raise QuotaError(
                "too many topics and groups are made by one client: nothing was changed",
                owner=owner,
                limit_per_s=rate,
                setting="limits.creations_per_s",
                retry_after_ms=wait_ms,
            )
        bucket.take(count)

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
