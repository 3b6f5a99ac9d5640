"""Subscription group table: settings of groups; RocketMQ's ``config/subscriptionGroup.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from ledgermq.formats.config_json import with_field_names
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import ConfigError, NoPermissionError
from ledgermq.model.limits import GROUP_SIZE_MAX
from ledgermq.model.names.message_types import ATTRIBUTES
from ledgermq.rules.tables.documents import (
    cast_flag,
    cast_integer,
    check_name,
)
from ledgermq.rules.tables.table import VersionedTable
from ledgermq.rules.tables.table_changes import GroupSet

FILE = "subscriptionGroup.json"

BUILTIN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

_DEFAULTS: Mapping[str, int] = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


ORDERED = "consumeMessageOrderly"
"""RocketMQ 5's; a file in which no group has it stays as RocketMQ 4 writes it."""

PRIORITY_FACTOR = "priority.factor"
"""RocketMQ 5.5's attribute: of a hundred receives of a topic of ``PRIORITY`` so many go by it."""

PRIORITY_FACTOR_MAX = 100

_NAMES = frozenset({*_DEFAULTS, "groupName", ORDERED})


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """One group; what the file leaves out has RocketMQ's default.

    ``is_ordered``: as a share group it hands out the messages of one key one after another.
    """

    name: str
    consume_enable: bool = True
    retry_queues: int = 1
    retry_times_max: int = 16
    is_ordered: bool = False
    fields: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str, value: object) -> Self:
        """The group that the table has under ``name``.

        Raises:
            ConfigError: a field has another type.
        """
        if not isinstance(value, Mapping):
            raise ConfigError("group is not a JSON object", file=FILE, group=name)
        fields = dict(with_field_names({str(key): item for key, item in value.items()}, _NAMES))
        for key in fields.keys() & _DEFAULTS.keys():
            # As RocketMQ writes them: members of older versions read nothing else.
            default = _DEFAULTS[key]
            if type(fields[key]) is type(default):
                continue
            if isinstance(default, bool):
                fields[key] = cast_flag(fields, key, default, file=FILE, owner=name)
            else:
                fields[key] = cast_integer(fields, key, default, file=FILE, owner=name)
        return cls(
            name,
            cast_flag(fields, "consumeEnable", True, file=FILE, owner=name),
            cast_integer(fields, "retryQueueNums", 1, file=FILE, owner=name),
            cast_integer(fields, "retryMaxTimes", 16, file=FILE, owner=name),
            cast_flag(fields, ORDERED, False, file=FILE, owner=name),
            fields,
        )

    @property
    def priority_factor(self) -> int:
        """How many of a hundred receives of a topic of ``PRIORITY`` have the highest first."""
        attributes = self.fields.get(ATTRIBUTES)
        text = str(attributes.get(PRIORITY_FACTOR)) if isinstance(attributes, Mapping) else ""
        is_one = text.isascii() and text.isdecimal() and len(text) <= len(str(PRIORITY_FACTOR_MAX))
        return min(int(text), PRIORITY_FACTOR_MAX) if is_one else PRIORITY_FACTOR_MAX

    def to_fields(self) -> dict[str, object]:
        """The JSON object, keys in RocketMQ's order."""
        fields = {**_DEFAULTS, "groupName": self.name, **self.fields}
        return {key: fields[key] for key in sorted(fields)}


def check_group_name(name: str) -> None:
    """Refuse a name that RocketMQ's clients refuse.

    Raises:
        MessageIllegalError: empty, too long, or with a character that is not allowed.
    """
    check_name("group", name, size_max=GROUP_SIZE_MAX)


class GroupTable(VersionedTable[SubscriptionGroup, GroupSet]):
    """All subscription groups by name."""

    file = FILE
    takes = (GroupSet,)
    rows_key = "subscriptionGroupTable"
    read_row = SubscriptionGroup.read

    def add_builtin(self, now_ms: int) -> bool:
        """Make sure of the broker's own groups; true when one was missing."""
        missing = [name for name in BUILTIN_GROUPS if name not in self._rows]
        for name in missing:
            self._rows[name] = SubscriptionGroup(name)
        if missing:
            self._advance(now_ms)
        return bool(missing)

    def plan_use(self, name: str, rules: TopicsSection) -> SubscriptionGroup:
        """The group called ``name``: the one that is there, or one to ``put`` where settings allow.

        Raises:
            MessageIllegalError: the name breaks a rule.
            NoPermissionError: the group is unknown and not made on first use, or it is switched
                off in the table.
        """
        group = self._rows.get(name)
        if group is None:
            check_group_name(name)
            if not (rules.auto_create_subscription_group or name.startswith(SYSTEM_GROUP_PREFIX)):
                raise NoPermissionError(
                    "group does not exist, and is not created on first use",
                    group=name,
                    setting="topics.auto_create_subscription_group",
                )
            group = SubscriptionGroup(name)
        if not group.consume_enable:
            raise NoPermissionError("group may not consume", group=name, field="consumeEnable")
        return group

    def apply(self, change: GroupSet, _place: int, at_ms: int, /) -> None:
        if change.fields is None:
            self.delete(change.name, at_ms)
        else:
            self.put(SubscriptionGroup.read(change.name, change.fields), at_ms)

    def put(self, group: SubscriptionGroup, now_ms: int) -> bool:
        """The table has ``group`` from now on; true when that is a change."""
        if not self._is_news(group):
            return False
        self._rows[group.name] = group
        self._advance(now_ms)
        return True

    def delete(self, name: str, now_ms: int) -> bool:
        """The table has no group called ``name`` from now on; true when that is a change."""
        if self._rows.pop(name, None) is None:
            return False
        self._advance(now_ms)
        return True
