"""Subscription group table: settings of groups; RocketMQ's ``config/subscriptionGroup.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from ledgermq.formats.config_json import Rows, with_field_names
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import ConfigError, MessageIllegalError, NoPermissionError
from ledgermq.model.limits import GROUP_SIZE_MAX, TOPIC_CHARACTERS, TOPIC_NAME
from ledgermq.rules.tables.documents import (
    DataVersion,
    Document,
    Steps,
    cast_flag,
    cast_integer,
    finish,
    read_table,
    rows_in_steps,
)
from ledgermq.rules.tables.table import Table
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


_NAMES = frozenset({*_DEFAULTS, "groupName"})
_TABLES = frozenset({"dataVersion", "subscriptionGroupTable"})


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """One group; what the file leaves out has RocketMQ's default."""

    name: str
    consume_enable: bool = True
    retry_queues: int = 1
    retry_times_max: int = 16
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
            fields,
        )

    def to_fields(self) -> dict[str, object]:
        """The JSON object, keys in RocketMQ's order."""
        fields = {**_DEFAULTS, "groupName": self.name, **self.fields}
        return {key: fields[key] for key in sorted(fields)}


def check_group_name(name: str) -> None:
    """Refuse a name that RocketMQ's clients refuse.

    Raises:
        MessageIllegalError: empty, too long, or with a character that is not allowed.
    """
    if not name:
        raise MessageIllegalError("group name is empty")
    if len(name) > GROUP_SIZE_MAX:
        raise MessageIllegalError(
            "group name is too long", group=name, characters=len(name), limit=GROUP_SIZE_MAX
        )
    if TOPIC_NAME.fullmatch(name) is None:
        raise MessageIllegalError(
            "group name has a character that is not allowed", group=name, allowed=TOPIC_CHARACTERS
        )


class GroupTable(Table[GroupSet]):
    """All subscription groups by name, and the version of the table.

    Invariant: ``version`` grows by one with every change that must be written to the file.
    """

    file = FILE
    takes = (GroupSet,)
    is_own = is_younger = False

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, SubscriptionGroup] = {}
        self._version = DataVersion()
        self._unknown: dict[str, object] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        """The table in the document of ``subscriptionGroup.json``.

        Raises:
            ConfigError: it has another shape; names the group and the field.
        """
        return finish(cls.read_in_steps(document))

    @classmethod
    def read_in_steps(cls, document: Document) -> Steps[Self]:
        table = cls()
        document = with_field_names(document, _TABLES)
        table._version = DataVersion.read(document, file=FILE)
        groups = read_table(document, "subscriptionGroupTable", file=FILE)
        table._groups = yield from rows_in_steps(groups, SubscriptionGroup.read)
        known = {"dataVersion", "subscriptionGroupTable"}
        table._unknown = {key: document[key] for key in document.keys() - known}
        return table

    def to_document(self) -> dict[str, object]:
        """The document to write to ``subscriptionGroup.json``."""
        return {
            "dataVersion": self._version.to_fields(),
            "subscriptionGroupTable": {
                name: group.to_fields() for name, group in self._groups.items()
            },
            **self._unknown,
        }

    def to_document_later(self) -> dict[str, object]:
        """The same document, whose rows are made when they are written, by whichever thread."""
        groups = list(self._groups.values())
        rows = Rows((group.name, group.to_fields()) for group in groups)
        version = self._version.to_fields()
        return {"dataVersion": version, "subscriptionGroupTable": rows, **self._unknown}

    @property
    def version(self) -> int:
        """How many changes the table has seen."""
        return self._version.counter

    @property
    def data_version(self) -> dict[str, object]:
        """The version as RocketMQ writes it."""
        return self._version.to_fields()

    def __iter__(self) -> Iterator[SubscriptionGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, name: str) -> SubscriptionGroup | None:
        """The group called ``name``, if there is one."""
        return self._groups.get(name)

    def add_builtin(self, now_ms: int) -> bool:
        """Make sure of the broker's own groups; true when one was missing."""
        missing = [name for name in BUILTIN_GROUPS if name not in self._groups]
        for name in missing:
            self._groups[name] = SubscriptionGroup(name)
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
        group = self._groups.get(name)
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
        known = self._groups.get(group.name)
        if known is not None and known.to_fields() == group.to_fields():
            return False
        self._groups[group.name] = group
        self._advance(now_ms)
        return True

    def delete(self, name: str, now_ms: int) -> bool:
        """The table has no group called ``name`` from now on; true when that is a change."""
        if self._groups.pop(name, None) is None:
            return False
        self._advance(now_ms)
        return True

    def replace_with(self, other: GroupTable) -> None:
        """Have what ``other`` has."""
        self._groups, self._version, self._unknown = other._groups, other._version, other._unknown
        self.revision += 1

    def _advance(self, now_ms: int) -> None:
        self._version = self._version.next_version(now_ms)
        self.revision += 1
