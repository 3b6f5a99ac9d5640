"""Plans for a subscription group: what its creation, alteration or deletion changes.

The fields are those of RocketMQ 4.9.4's ``SubscriptionGroupConfig``, under its names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledgermq.model.errors import GroupUnknownError, MessageIllegalError, NoPermissionError
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.names.message_types import ATTRIBUTES
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.groups import (
    BUILTIN_GROUPS,
    ORDERED,
    PRIORITY_FACTOR,
    PRIORITY_FACTOR_MAX,
    SYSTEM_GROUP_PREFIX,
    GroupTable,
    SubscriptionGroup,
    check_group_name,
)
from ledgermq.rules.tables.table_changes import Change, GroupSet, OffsetsSet

INTEGER_MAX = 2**31 - 1
"""They are Java's int."""

FLAGS = (
    "consumeEnable",
    "consumeFromMinEnable",
    "consumeBroadcastEnable",
    "notifyConsumerIdsChangedEnable",
    ORDERED,
)
FACTOR = "priorityFactor"
"""In calls what RocketMQ 5.5 has as a group's attribute ``priority.factor``."""

NUMBERS: Mapping[str, int] = {
    "retryQueueNums": QUEUE_ID_MAX,
    "retryMaxTimes": INTEGER_MAX,
    "brokerId": INTEGER_MAX,
    "whichBrokerWhenConsumeSlowly": INTEGER_MAX,
    FACTOR: PRIORITY_FACTOR_MAX,
}
"""The largest value of each; the smallest is 0."""


def plan_create(table: GroupTable, name: str, wish: Mapping[str, object]) -> SubscriptionGroup:
    """A new group; one that is there already and is as wished will do.

    Raises:
        MessageIllegalError: the name or a field breaks a rule, or there is another one.
        NoPermissionError: the name is reserved for the broker.
    """
    _check_name(name)
    existing = table.get(name)
    if existing is None:
        return _with_wish(SubscriptionGroup(name), wish)
    if _with_wish(existing, wish).to_fields() != existing.to_fields():
        raise MessageIllegalError("group exists already, and is another one: alter it", group=name)
    return existing


def plan_alter(table: GroupTable, name: str, wish: Mapping[str, object]) -> SubscriptionGroup:
    """The group as it is to be.

    Raises:
        GroupUnknownError: there is no such group.
        MessageIllegalError: a field breaks a rule.
        NoPermissionError: it is the broker's own.
    """
    _check_name(name)
    existing = _existing(table, name)
    wanted = _with_wish(existing, wish)
    return existing if wanted.to_fields() == existing.to_fields() else wanted


def plan_delete(
    table: GroupTable, offsets: GroupOffsets, name: str, *, with_offsets: bool
) -> list[Change]:
    """What deletes the group.

    Args:
        with_offsets: what it has consumed is forgotten, too. Else a group that is made anew under
            the name goes on there.

    Raises:
        GroupUnknownError: there is no such group, nor offsets of one.
        NoPermissionError: it is the broker's own.
    """
    _check_name(name)
    owned = [owner for owner, _ in offsets.of_group(name)] if with_offsets else []
    if not owned:
        _existing(table, name)
    changes: list[Change] = [GroupSet(name, None)] if table.get(name) is not None else []
    changes += [OffsetsSet(name, owner.topic, None) for owner in owned]
    return changes


def is_builtin(name: str) -> bool:
    """Whether the group is the broker's own; nobody changes or deletes it."""
    return name in BUILTIN_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def names_of(table: GroupTable, offsets: GroupOffsets) -> list[str]:
    """All groups: of the table, and those that only have offsets."""
    names: Iterable[str] = (group.name for group in table)
    return sorted({*names, *offsets.groups()})


def _check_name(name: str) -> None:
    check_group_name(name)
    if is_builtin(name):
        raise NoPermissionError("group is the broker's own", group=name)


def _existing(table: GroupTable, name: str) -> SubscriptionGroup:
    group = table.get(name)
    if group is None:
        raise GroupUnknownError("group does not exist", group=name)
    return group


def _with_wish(group: SubscriptionGroup, wish: Mapping[str, object]) -> SubscriptionGroup:
    """``group`` with what is wished.

    Raises:
        MessageIllegalError: a field is not known, or out of its range.
    """
    for field, value in wish.items():
        if field in FLAGS:
            if not isinstance(value, bool):
                raise MessageIllegalError(
                    "not true or false", group=group.name, field=field, value=value
                )
        elif field in NUMBERS:
            limit = NUMBERS[field]
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
                raise MessageIllegalError(
                    "not a number in its range",
                    group=group.name,
                    field=field,
                    value=value,
                    minimum=0,
                    limit=limit,
                )
        else:
            raise MessageIllegalError(
                "no field of a group", group=group.name, field=field, allowed=(*FLAGS, *NUMBERS)
            )
    fields = {**group.to_fields(), **wish}
    if (factor := fields.pop(FACTOR, None)) is not None:
        attributes = fields.get(ATTRIBUTES)
        others = dict(attributes) if isinstance(attributes, Mapping) else {}
        # A text, as RocketMQ writes it; as 4 does, where it is what it is without one.
        others.pop(PRIORITY_FACTOR, None)
        if factor != PRIORITY_FACTOR_MAX:
            others[PRIORITY_FACTOR] = str(factor)
        fields = {name: value for name, value in fields.items() if name != ATTRIBUTES}
        fields |= {ATTRIBUTES: others} if others else {}
    if not fields.get(ORDERED) and ORDERED not in group.fields:
        # RocketMQ 4 does not know it.
        fields.pop(ORDERED, None)
    return SubscriptionGroup.read(group.name, fields)
