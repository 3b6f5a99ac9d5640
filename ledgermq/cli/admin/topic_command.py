"""``ledgermq topic``: list, show, create, alter and delete topics."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from ledgermq.cli.admin.strict_spread import add_strict, reopen, spread_strictly
from ledgermq.cli.arguments import NAME, takes
from ledgermq.cli.durations import (
    LONG_UNITS_MS,
    duration_text,
    parse_age,
    parse_duration,
    parse_size,
)
from ledgermq.cli.node_verbs import ON_OFF, add_command, add_verb, asks, confirm
from ledgermq.cli.output import print_table, tell, when
from ledgermq.cli.verb_options import add_options, given
from ledgermq.client.admin.admin import Admin
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import PERMIT_READ, PERMIT_WRITE, asking
from ledgermq.model.config.amounts import size_text
from ledgermq.model.errors import ConfigError
from ledgermq.verbs.clusters import TopicOverGroups
from ledgermq.verbs.topics import AlterTopic, CreateTopic, DeleteTopic, ShowTopic, TopicSettings
from ledgermq.verbs.verb import as_json

ALL = "all"


def register_spread(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``topic spread``."""
    text = "give a topic queues in more groups of the cluster"
    spread = asks(
        verbs.add_parser(
            "spread",
            help=text,
            description=f"{text[0].upper()}{text[1:]}. Is asked of the cluster's home. What other"
            " groups have of it stays as it is. A key may change its queue at that moment: of each"
            " key, what was sent before is in order, and what is sent after; with --strict all of"
            " it is. Without --over and promises the groups are shown.",
        ),
        connect_broker,
        _spread,
    )
    takes(spread, "topic TOPIC")
    takes(spread, "--over GROUPS", "groups by commas, or all")
    takes(
        spread,
        "--queues N",
        "at least so many in each of these groups (default: as many as the one that has most,"
        " where a group has none yet)",
    )
    add_strict(spread)
    add_fails_over(spread)
    takes(
        spread, "--order", "an order topic in its groups: nothing fails over", choices=tuple(ON_OFF)
    )
    text = "have a topic over no groups of the cluster any more"
    release = asks(
        verbs.add_parser(
            "release",
            help=text,
            description=f"{text[0].upper()}{text[1:]}. Is asked of the cluster's home. Each group"
            " keeps what it has of it, with all messages, as a topic of its own, and can delete"
            " it.",
        ),
        connect_broker,
        _release,
    )
    takes(release, "topic TOPIC")


def add_fails_over(parser: argparse.ArgumentParser) -> None:
    """Add ``--fails-over``."""
    takes(
        parser,
        "--fails-over",
        "a message that one group has not stored in time is sent to another one, and may be in"
        " both then",
        choices=tuple(ON_OFF),
    )


def create_over(arguments: argparse.Namespace, others: Sequence[str]) -> int:
    """``topic create --over``; ``others`` are options beside the number of queues.

    Raises:
        ConfigError: there are some, or no groups.
    """
    if arguments.over is None:
        raise ConfigError(
            "--adopt and --fails-over are for topics over groups: name them with --over"
        )
    if others:
        raise ConfigError(
            "a topic over groups is made with a number of queues and promises alone: alter the rest"
            " in each group",
            given=" ".join(others),
        )
    groups = _groups(arguments.over)
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        found = ClusterAdmin(broker).set_topic(
            arguments.topic,
            groups,
            queues=arguments.queues,
            adopt=arguments.adopt,
            **_promises(arguments),
        )
    return _tell(arguments, found)


def _spread(broker: Broker, arguments: argparse.Namespace) -> int:
    cluster, topic, promises = ClusterAdmin(broker), arguments.topic, _promises(arguments)
    found = None
    if arguments.reopen and (arguments.over is not None or arguments.strict):
        raise ConfigError("--reopen opens a topic as it is, without --over and --strict")
    if arguments.strict and arguments.over is None:
        raise ConfigError("--strict needs the groups that the topic is to be over: --over")
    if arguments.reopen:
        found = reopen(cluster, topic)
    elif arguments.over is not None:
        groups = _groups(arguments.over)
        if arguments.strict:
            found = spread_strictly(broker, arguments, groups)
        else:
            found = cluster.set_topic(topic, groups, queues=arguments.queues, spread=True)
    if any(value is not None for value in promises.values()):
        found = cluster.promise(topic, **promises)
    return _tell(arguments, found or cluster.topic_groups(topic))


def _release(broker: Broker, arguments: argparse.Namespace) -> int:
    ClusterAdmin(broker).release_topic(arguments.topic)
    released = {"topic": arguments.topic}
    return tell(arguments, released, lambda: print(f"topic {arguments.topic} is over no groups"))


def _promises(arguments: argparse.Namespace) -> dict[str, bool | None]:
    return {name: ON_OFF.get(getattr(arguments, name)) for name in ("fails_over", "order")}


def _groups(given: str) -> list[str]:
    if given == ALL:
        return []
    found = [one.strip() for one in given.split(",")]
    if not all(found):
        raise ConfigError("--over names groups by commas, or all", given=given)
    return found


def _tell(arguments: argparse.Namespace, found: TopicOverGroups) -> int:
    def show() -> None:
        print_table(
            ("group", "queues", "phase"),
            [(one.group, f"{one.queues}", one.phase) for one in found.groups],
        )
        if found.order:
            print("order is promised: nothing fails over")
        elif found.fails_over:
            print("messages fail over to other groups, and may be in two then")
        if found.refused:
            print(f"{found.group} does not follow: {found.refused}")

    return tell(arguments, as_json(found), show)


PERMIT_INHERIT = 1
PERMISSIONS = {"r": PERMIT_READ, "w": PERMIT_WRITE, "i": PERMIT_INHERIT}
"""Letters of ``--perm``, and RocketMQ's bits."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``topic`` and its verbs."""
    verbs = add_command(
        subparsers,
        "topic",
        "list, show, create, alter and delete topics",
        "Topics are the same on all nodes of a group, and known to every later leader.",
    )
    listing = add_verb(
        verbs, "list", "show the topics and what they hold", _list,
        examples=["topic list", "topic list --all --json"],
    )  # fmt: skip
    takes(listing, "--all", "those of the system too")
    show = add_verb(
        verbs, "show", "show one topic, its queues and its groups", _show,
        examples=["topic show orders"],
    )  # fmt: skip
    create = add_verb(
        verbs, "create", "create a topic, or give one more queues", _create,
        examples=[
            "topic create orders --queues 16", "topic create payments --order on",
            "topic create orders --queues 8 --over all  # of a cluster, at its home",
        ],
    )  # fmt: skip
    alter = add_verb(
        verbs, "alter", "change what is given", _alter,
        examples=[
            "topic alter orders --queues 32",
            "topic alter orders --perm r          # producers are refused",
            "topic alter orders --deduplication-window 10m",
            "topic alter orders --keep 2y         # in pieces: see ledgermq piece prune",
            "topic alter prices --compact on      # in pieces: of each key the newest message",
            "topic alter audit --receipts on      # see ledgermq receipt",
            "topic alter orders --write-queues 4  # fewer queues: first this,",
            "topic alter orders --read-queues 4   # and this when all is consumed",
        ],
    )  # fmt: skip
    delete = add_verb(
        verbs, "delete", "delete a topic, and what groups have consumed of it", _delete,
        examples=["topic delete orders --yes"],
        more="Its messages cannot be read any more; they leave the disk with the log.",
    )  # fmt: skip
    for verb in (show, create, alter, delete):
        takes(verb, "topic TOPIC")
    words = {
        "perm": "RW", "deduplication_window_ms": "TIME", "keep_ms": "AGE", "keep_bytes": "SIZE",
    }  # fmt: skip
    add_options(create, CreateTopic, words=words)
    add_options(alter, AlterTopic, words=words)
    takes(delete, "--yes", "do not ask")
    takes(
        create,
        "--over GROUPS",
        "so many queues in each of these groups of the cluster, by commas, or in all; is asked"
        " of its home",
    )
    takes(
        create, "--adopt", "with --over: take up topics of that name that groups have of their own"
    )
    add_fails_over(create)
    register_spread(verbs)


def parse_permission(text: str | None) -> int | None:
    """RocketMQ's bits.

    Raises:
        ConfigError: it is no permission.
    """
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    if text == "none":
        return 0
    if not text or set(text) - PERMISSIONS.keys() or len(set(text)) != len(text):
        raise ConfigError("no permission", given=text, allowed="rw, r, w, none, or a number")
    return sum(PERMISSIONS[letter] for letter in text)


def permission_text(permission: int) -> str:
    """Letters of ``--perm``."""
    letters = [letter for letter, bit in PERMISSIONS.items() if permission & bit]
    return "".join(letters) or "none"


def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    rows = [row for row in admin.topics() if arguments.all or not row.system]

    def print_rows() -> None:
        print_table(
            ["topic", "queues", "perm", "messages"],
            [
                [
                    row.topic,
                    queues_text(row.read_queues, row.write_queues),
                    permission_text(row.perm),
                    f"{row.messages:,}",
                ]
                for row in rows
            ],
        )

    none = "no topics yet: send to one, or ledgermq topic create TOPIC"
    return tell(
        arguments, {"topics": [row._asdict() for row in rows]}, print_rows if rows else none
    )


def _show(admin: Admin, arguments: argparse.Namespace) -> int:
    show = ShowTopic(arguments.topic)
    state = admin.run(asking(show))
    if arguments.json:
        print(json.dumps(show.document(state)))
        return 0
    _print_settings(state.settings)
    print(f"groups       {', '.join(state.groups) or '-'}")
    print(f"messages     {state.messages:,}")
    if state.queues:
        print()
        print_table(
            ["queue", "first", "end", "messages", "last stored"],
            [
                [
                    f"{one.queue}",
                    f"{one.begin:,}",
                    f"{one.end:,}",
                    f"{one.end - one.begin:,}",
                    when(one.last_stored),
                ]
                for one in state.queues
            ],
        )
    return 0


def _create(admin: Admin, arguments: argparse.Namespace) -> int:
    fields = given(arguments, CreateTopic, parsers=_PARSERS)
    if arguments.over is not None or arguments.adopt or arguments.fails_over is not None:
        others = [
            name
            for name, value in fields.items()
            if value is not None and name not in ("queues", "order")
        ]
        return create_over(arguments, others)
    return _told(admin.create_topic(arguments.topic, **fields), arguments)


def _alter(admin: Admin, arguments: argparse.Namespace) -> int:
    fields = given(arguments, AlterTopic, parsers=_PARSERS)
    if all(value is None for name, value in fields.items() if name != "force"):
        raise ConfigError("nothing to alter: see ledgermq topic alter --help")
    altered = admin.alter_topic(arguments.topic, **fields)
    return _told(altered, arguments)


def _delete(admin: Admin, arguments: argparse.Namespace) -> int:
    if not arguments.yes:
        state = admin.topic(arguments.topic)
        groups = f", consumed by {', '.join(state.groups)}" if state.groups else ""
        confirm(arguments, f"delete {arguments.topic} with {state.messages:,} messages{groups}")
    delete = DeleteTopic(arguments.topic)
    told = delete.document(admin.run(asking(delete)))
    return tell(arguments, told, f"{arguments.topic}: deleted")


def _told(settings: TopicSettings, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(settings._asdict()))
        return 0
    queues = queues_text(settings.read_queues, settings.write_queues)
    print(f"{settings.topic}: {queues} queues, {permission_text(settings.perm)}")
    for warning in settings.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _print_settings(settings: TopicSettings) -> None:
    print(f"topic        {settings.topic}")
    print(f"queues       {settings.read_queues} to read, {settings.write_queues} to write")
    print(f"permission   {permission_text(settings.perm)}")
    print(f"order        {settings.order_config if settings.order else 'no'}")
    print(f"filter type  {settings.filter_type}")
    print(f"sys flag     {settings.sys_flag}")
    print(f"unique ids   {_unique_ids(settings.deduplication_window_ms)}")
    print(f"in pieces    {_kept(settings)}")
    if settings.message_type == "PRIORITY":
        print("share groups get messages of the highest priority first")
    for warning in settings.warnings:
        print(f"warning      {warning}")


def _parse_window(text: str | None) -> int | None:
    return None if text is None else parse_duration(text, "--deduplication-window")


def _parse_keep(text: str | None) -> int | None:
    return None if text is None else parse_age(text, "--keep")


def _parse_keep_bytes(text: str | None) -> int | None:
    return None if text is None else parse_size(text, "--keep-bytes")


_PARSERS = {
    "perm": parse_permission,
    "deduplication_window_ms": _parse_window,
    "keep_ms": _parse_keep,
    "keep_bytes": _parse_keep_bytes,
}


def _kept(settings: TopicSettings) -> str:
    of_keys = ", of each key the newest message" if settings.compact else ""
    if not settings.keep_ms and not settings.keep_bytes:
        return f"for ever{of_keys}"
    age = duration_text(settings.keep_ms, units=LONG_UNITS_MS)
    size = size_text(settings.keep_bytes) if settings.keep_bytes else "-"
    return f"for {age}{f', at most {size}' if settings.keep_bytes else ''}{of_keys}"


def _unique_ids(window_ms: int) -> str:
    return f"stored once in {duration_text(window_ms)}" if window_ms else "are not looked at"


def queues_text(read_queues: int, write_queues: int) -> str:
    """One number where both are the same."""
    if read_queues == write_queues:
        return f"{write_queues}"
    return f"{read_queues}r/{write_queues}w"
