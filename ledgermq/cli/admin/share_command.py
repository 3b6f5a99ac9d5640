"""``ledgermq share``: messages of share groups, taken and settled one by one."""

from __future__ import annotations

import argparse
import json
from typing import get_args

from ledgermq.cli.arguments import takes
from ledgermq.cli.node_verbs import add_command, add_verb, confirm
from ledgermq.cli.output import print_table, tell, when
from ledgermq.cli.verb_options import add_options, given
from ledgermq.client.admin.admin import Admin
from ledgermq.client.core.questions import asking
from ledgermq.verbs.shares import (
    AT_FIRST,
    DONE,
    SETTLED,
    Action,
    EndShared,
    ReceiveShared,
    SettleShared,
    SharedGroup,
    ShowShared,
)

EXIT_NOT_SETTLED = 1


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``share`` and its verbs."""
    verbs = add_command(
        subparsers,
        "share",
        "take messages one by one, beside others on the same queues",
        "A group is a share group from its first receive on.",
    )
    show = add_verb(
        verbs, "show", "show what a share group has taken, queue by queue", _show,
        examples=["share show billing", "share show billing --json"],
    )  # fmt: skip
    receive = add_verb(
        verbs, "receive", "take messages, and print them as JSON, a line each", _receive,
        examples=["share receive billing orders", "share receive billing orders --wait 5000"],
        more="Those that are not settled in time are handed out again.",
    )  # fmt: skip
    settle = add_verb(
        verbs, "settle", "say what is to become of messages", _settle,
        examples=["share settle billing accept HANDLE", "share settle billing reject HANDLE"],
    )  # fmt: skip
    end = add_verb(
        verbs, "end", "have a share group consume queue by queue from now on", _end,
        examples=["share end billing --yes"],
    )  # fmt: skip
    for verb in (show, receive, settle, end):
        takes(verb, "group GROUP")
    takes(receive, "topic TOPIC")
    options = ("max_messages", "invisible_ms", "wait_ms", "filter", "queue", "start")
    add_options(receive, ReceiveShared, only=options, words={"filter": "FILTER"})
    receive.set_defaults(max_messages=1, invisible_ms=30_000, wait_ms=0, filter="*", start=AT_FIRST)
    takes(settle, "action", "what is to become of them", choices=get_args(Action))
    takes(settle, "handles HANDLE", "as receive tells it", nargs="+")
    add_options(settle, SettleShared)
    settle.set_defaults(delay_ms=0)
    add_options(end, EndShared)
    takes(end, "--yes", "do not ask")


def _show(admin: Admin, arguments: argparse.Namespace) -> int:
    show = ShowShared(arguments.group)
    found = admin.run(asking(show))
    return tell(arguments, show.document(found), lambda: _print_group(found))


def _print_group(found: SharedGroup) -> None:
    by_key = "ordered by key; " if found.ordered else ""
    dead = f"dead letters after {found.deliveries_max} deliveries"
    print(
        f"{found.group}: {found.unsettled:,} of at most {found.limit:,} messages not settled, "
        f"{found.members:,} members, {found.waiting:,} receives wait; {by_key}{dead}"
    )
    print_table(
        [
            *("topic", "queue", "low", "next", "end", "in flight", "late", "returned", "behind"),
            *("again", "due"),
        ],
        [
            [
                row.topic,
                *(f"{number:,}" for number in row[1:10]),
                when(row.next_due),
            ]
            for row in found.queues
        ],
    )


def _receive(admin: Admin, arguments: argparse.Namespace) -> int:
    asked = ReceiveShared(arguments.group, arguments.topic, **given(arguments, ReceiveShared))
    document = asked.document(admin.run(asking(asked)))
    if arguments.json:
        print(json.dumps(document))
        return 0
    messages = document["messages"]
    assert isinstance(messages, list)
    for message in messages:
        print(json.dumps(message))
    return 0


def _settle(admin: Admin, arguments: argparse.Namespace) -> int:
    asked = SettleShared(
        arguments.group, arguments.action, arguments.handles, **given(arguments, SettleShared)
    )
    rows = admin.run(asking(asked))
    status = 0 if all(row.outcome in (DONE, SETTLED) for row in rows) else EXIT_NOT_SETTLED
    tell(
        arguments,
        asked.document(rows),
        lambda: print_table(
            ["handle", "outcome", "until"],
            [[row.handle, row.outcome, when(row.until or None)] for row in rows],
        ),
    )
    return status


def _end(admin: Admin, arguments: argparse.Namespace) -> int:
    confirm(arguments, f"have {arguments.group} consume queue by queue")
    end = EndShared(arguments.group, **given(arguments, EndShared))
    admin.run(asking(end))
    return tell(arguments, end.document(None), f"{arguments.group}: is no share group any more")
