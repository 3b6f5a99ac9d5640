"""The questions behind ``Admin`` and ``AsyncAdmin``: each asks one thing, or page by page."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Literal

from ledgermq.client.admin_results import (
    Fields,
    GroupRow,
    GroupState,
    OffsetMove,
    QueueLag,
    TopicSettings,
    TopicState,
    group_row,
    group_state,
    offset_move,
    queue_lag,
    rows,
    topic_settings,
    topic_state,
)
from ledgermq.client.broker import TopicRow, topic_row
from ledgermq.client.requests import Steps, call_request, call_result
from ledgermq.model.errors import ConfigError

PAGE = 250
TOKEN_BYTES = 8

Target = Literal["first", "last", "time", "number"]


class TopicWish(dict[str, object]):
    """What is wanted of a topic: only what was given goes over the wire."""

    def __init__(self, topic: str, **fields: object) -> None:
        given = {name: value for name, value in fields.items() if value is not None}
        super().__init__(topic=topic, **given)


def ask(verb: str, **arguments: object) -> Steps[Fields]:
    """One call."""
    request = call_request(verb, arguments)
    yield request
    return call_result(request)


def all_topics() -> Steps[list[TopicRow]]:
    """All topics by name, those of the system too."""
    found: list[TopicRow] = []
    while True:
        page = yield from ask("topics", limit=PAGE, after=found[-1].topic if found else None)
        found += rows(page, "topics", topic_row)
        if not page.get("more"):
            return found


def show_topic(topic: str) -> Steps[TopicState]:
    """One topic."""
    return topic_state((yield from ask("topic_show", topic=topic)))


def change_topic(verb: str, wish: TopicWish) -> Steps[TopicSettings]:
    """Create or alter a topic."""
    return topic_settings((yield from ask(verb, **wish)))


def delete_topic(topic: str) -> Steps[None]:
    """Delete a topic."""
    yield from ask("topic_delete", topic=topic)


def all_groups() -> Steps[list[GroupRow]]:
    """All groups by name."""
    found: list[GroupRow] = []
    while True:
        page = yield from ask("group_list", limit=PAGE, after=found[-1].group if found else None)
        found += rows(page, "groups", group_row)
        if not page.get("more"):
            return found


def show_group(group: str) -> Steps[GroupState]:
    """One group."""
    return group_state((yield from ask("group_show", group=group)))


def change_group(verb: str, group: str, fields: Fields) -> Steps[GroupRow]:
    """Create or alter a group."""
    return group_row((yield from ask(verb, group=group, fields=dict(fields))))


def delete_group(group: str, *, with_offsets: bool, with_topics: bool) -> Steps[None]:
    """Delete a group; asked again of the next leader it is the same act."""
    yield from ask(
        "group_delete",
        group=group,
        with_offsets=with_offsets,
        with_topics=with_topics,
        token=secrets.token_hex(TOKEN_BYTES),
    )


def group_lag(group: str, topic: str | None) -> Steps[list[QueueLag]]:
    """How far a group is."""
    told = yield from ask("group_lag", group=group, topic=topic)
    return rows(told, "queues", queue_lag)


def reset_offsets(
    group: str,
    topic: str,
    to: Target,
    value: int | None,
    *,
    queues: Collection[int] | None,
    force: bool,
    dry_run: bool,
) -> Steps[list[OffsetMove]]:
    """Set offsets.

    Raises:
        ConfigError: ``time`` or ``number`` without a value, or a value that nothing asks for.
    """
    if (value is not None) != (to in ("time", "number")):
        raise ConfigError("a value belongs to 'time' and 'number', and only to them", to=to)
    told = yield from ask(
        "offset_reset",
        group=group,
        topic=topic,
        to=to,
        value=value,
        queues=None if queues is None else sorted(queues),
        force=force,
        dry_run=dry_run,
    )
    return rows(told, "queues", offset_move)


def clone_offsets(
    source: str, group: str, topic: str | None, *, force: bool, dry_run: bool
) -> Steps[list[OffsetMove]]:
    """Copy offsets."""
    told = yield from ask(
        "offset_clone", source=source, group=group, topic=topic, force=force, dry_run=dry_run
    )
    return rows(told, "queues", offset_move)
