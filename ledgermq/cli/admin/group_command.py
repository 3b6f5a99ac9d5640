"""``ledgermq group``: list, show, create, alter and delete groups, and tell how far they are."""

from __future__ import annotations

import argparse
import json

from ledgermq.cli.arguments import takes
from ledgermq.cli.node_verbs import add_command, add_verb, confirm
from ledgermq.cli.output import print_table, tell, when
from ledgermq.cli.seen_text import shown
from ledgermq.cli.verb_options import add_options, given
from ledgermq.client.admin.admin import Admin
from ledgermq.client.core.questions import asking
from ledgermq.model.errors import ConfigError
from ledgermq.verbs.groups import (
    AlterGroup,
    CreateGroup,
    DeleteGroup,
    GroupRow,
    QueueLag,
    ShowGroup,
    ShowLag,
)
from ledgermq.verbs.verb import Verb


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``group`` and its verbs."""
    verbs = add_command(
        subparsers,
        "group",
        "list, show, create, alter and delete groups; their lag",
        "A group's members share its messages, and what they have consumed is kept for it.",
    )
    listing = add_verb(
        verbs, "list", "show the groups and what they consume", _list,
        examples=["group list", "group list --all --json"],
    )  # fmt: skip
    takes(listing, "--all", "those of the system too")
    show = add_verb(
        verbs, "show", "show one group: its settings, its lag, its members", _show,
        examples=["group show billing"],
    )  # fmt: skip
    members = add_verb(
        verbs, "members", "show who consumes for a group, which queues, and how far", _members,
        examples=["group members billing", "group members billing --json"],
    )  # fmt: skip
    create = add_verb(
        verbs, "create", "create a group", _create,
        examples=["group create billing --retry-max 5"],
    )  # fmt: skip
    alter = add_verb(
        verbs, "alter", "change what is given", _alter,
        examples=["group alter billing --consume off"],
    )  # fmt: skip
    delete = add_verb(
        verbs, "delete", "delete a group", _delete,
        examples=["group delete billing --yes", "group delete billing --offsets --topics --yes"],
        more="What it has consumed is kept for a group of the same name, unless --offsets.",
    )  # fmt: skip
    lag = add_verb(
        verbs, "lag", "show how far a group is in each queue", _lag,
        examples=["group lag billing", "group lag billing --topic orders --json"],
    )  # fmt: skip
    for verb in (show, members, create, alter, delete, lag):
        takes(verb, "group GROUP")
    add_options(create, CreateGroup)
    add_options(alter, AlterGroup)
    takes(delete, "--offsets", "forget what it has consumed")
    takes(delete, "--topics", "delete its retry topic and its dead letters")
    takes(delete, "--yes", "do not ask")
    takes(lag, "--topic TOPIC", "only in this topic")


def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    rows = [row for row in admin.groups() if arguments.all or not row.system]
    if arguments.json:
        print(json.dumps({"groups": [row._asdict() for row in rows]}))
    elif rows:
        print_table(
            ["group", "consume", "retries", "topics"],
            [
                [
                    row.group,
                    ("on" if row.fields.get("consumeEnable") else "off") if row.exists else "gone",
                    f"{row.fields.get('retryMaxTimes')}",
                    ", ".join(row.topics) or "-",
                ]
                for row in rows
            ],
        )
    else:
        print("no groups yet: consume with one, or ledgermq group create GROUP")
    return 0


def _show(admin: Admin, arguments: argparse.Namespace) -> int:
    show = ShowGroup(arguments.group)
    state = admin.run(asking(show))
    if arguments.json:
        print(json.dumps(show.document(state)))
        return 0
    width = max(map(len, state.fields)) + 2
    print(f"{'group':<{width}}{state.group}" + ("" if state.exists else ", only its offsets"))
    for field, value in state.fields.items():
        if field != "groupName":
            print(f"{field:<{width}}{json.dumps(value)}")
    print(f"{'members':<{width}}{shown(', '.join(state.members)) or '-'}")
    for warning in state.warnings:
        print(f"{'warning':<{width}}{shown(warning)}")
    if state.lag:
        print()
        print_table(["topic", "lag"], [[topic, f"{lag:,}"] for topic, lag in state.lag.items()])
    return 0


def _members(admin: Admin, arguments: argparse.Namespace) -> int:
    found = admin.members(arguments.group)
    if arguments.json:
        print(json.dumps(found.to_fields()))
        return 0
    for warning in found.warnings:
        print(f"warning: {shown(warning)}")
    if not found.members:
        print(f"{arguments.group}: nobody consumes")
    else:
        print_table(
            ["client", "host", "subscription", "mode", "queues", "lag"],
            [
                [
                    member.client,
                    member.host,
                    member.subscription_text,
                    member.mode,
                    f"{len(found.queues_of(member.client))}",
                    f"{sum(queue.lag for queue in found.queues_of(member.client)):,}",
                ]
                for member in found.members
            ],
        )
    if found.queues:
        print()
        print_table(
            ["topic", "queue", "client", "committed", "lag"],
            [
                [
                    queue.topic,
                    f"{queue.queue_id}",
                    queue.client or "-",
                    "-" if queue.committed is None else f"{queue.committed:,}",
                    f"{queue.lag:,}",
                ]
                for queue in found.queues
            ],
        )
    return 0


def _create(admin: Admin, arguments: argparse.Namespace) -> int:
    create = CreateGroup(arguments.group, **given(arguments, CreateGroup))
    return _told(create, admin.run(asking(create)), arguments)


def _alter(admin: Admin, arguments: argparse.Namespace) -> int:
    alter = AlterGroup(arguments.group, **given(arguments, AlterGroup))
    if not alter.fields:
        raise ConfigError("nothing to alter: see ledgermq group alter --help")
    return _told(alter, admin.run(asking(alter)), arguments)


def _told(verb: Verb[GroupRow], row: GroupRow, arguments: argparse.Namespace) -> int:
    consumes = "may consume" if row.fields.get("consumeEnable") else "may not consume"
    text = f"{row.group}: {consumes}, {row.fields.get('retryMaxTimes')} retries"
    return tell(arguments, verb.document(row), text)


def _delete(admin: Admin, arguments: argparse.Namespace) -> int:
    what = f"delete {arguments.group}"
    what += " and what it has consumed" if arguments.offsets else ""
    confirm(arguments, what + (" and its dead letters" if arguments.topics else ""))
    delete = DeleteGroup(
        arguments.group, with_offsets=arguments.offsets, with_topics=arguments.topics
    )
    told = delete.document(admin.run(asking(delete)))
    return tell(arguments, told, f"{arguments.group}: deleted")


def _lag(admin: Admin, arguments: argparse.Namespace) -> int:
    lag = ShowLag(arguments.group, arguments.topic)
    rows = admin.run(asking(lag))
    none = f"{arguments.group} has consumed nothing yet"
    total = sum(row.lag for row in rows)
    return tell(arguments, lag.document(rows), (lambda: print_lag(rows, total)) if rows else none)


def print_lag(rows: list[QueueLag], total: int | None = None) -> None:
    """Print a table, a line for each queue, and below it ``total``."""
    print_table(
        ["topic", "queue", "first", "end", "consumed", "lag", "last consumed"],
        [
            [
                row.topic,
                f"{row.queue}",
                f"{row.begin:,}",
                f"{row.end:,}",
                "-" if row.offset is None else f"{row.offset:,}",
                f"{row.lag:,}",
                when(row.last_consumed),
            ]
            for row in rows
        ],
    )
    if total is not None:
        print(f"lag {total:,}")
