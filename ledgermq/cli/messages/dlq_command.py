"""``ledgermq dlq``: messages that a group has given up, shown and replayed.

Exit status: 0 done; 1 nothing there, or a letter that was named was not replayed, or the node
refused or did not answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from ledgermq.cli.arguments import NAME, add_node_options, takes
from ledgermq.cli.message_text import preview, print_details
from ledgermq.cli.messages.query_command import EXIT_NOTHING
from ledgermq.cli.output import print_table, tell, time_text
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.reading.dead_letters import DeadLetter, DeadLetters, Replay
from ledgermq.client.reading.received_json import dead_letter_as_json, dead_letter_sums
from ledgermq.model.errors import ConfigError
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX
from ledgermq.verbs.dead_letters import DeadLetterQueue

LISTED_DEFAULT = 50


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``dlq`` and its verbs."""
    parser = subparsers.add_parser(
        "dlq",
        help="look at dead letters, and replay them",
        description="A message that a group could not process, however often it was tried, ends "
        "as a dead letter of that group. It stays there until the log lets go of it.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    listing = verbs.add_parser("list", help="the groups that have dead letters, or those of one")
    takes(listing, "group GROUP", "whose; all when left out", nargs="?")
    takes(listing, "--from OFFSET", dest="first", default=0)
    takes(listing, "--max N", f"only N of them (default: {LISTED_DEFAULT})", default=LISTED_DEFAULT)
    listing.set_defaults(func=_list)

    show = verbs.add_parser("show", help="all about one")
    takes(show, "group GROUP")
    takes(show, "offset OFFSET")
    show.set_defaults(func=_show)

    replay = verbs.add_parser("replay", help="give them to the group once more")
    takes(replay, "group GROUP")
    which = replay.add_mutually_exclusive_group(required=True)
    takes(which, "--offset N", "this one; may be repeated", action="append")
    takes(which, "--all", "all that were not replayed yet")
    takes(
        replay,
        "--to",
        "to this group alone, or into the topics that they were first sent to, where all "
        "groups get them (default: group)",
        choices=("group", "origin"),
        default="group",
    )
    takes(replay, "--again", "also what was replayed before")
    replay.set_defaults(func=_replay)
    for verb in (listing, show, replay):
        add_node_options(verb)
        if verb is not listing:
            takes(verb, "--queue N", "default: 0", default=0)


def _open(arguments: argparse.Namespace) -> DeadLetters:
    return DeadLetters(
        arguments.address, group=arguments.group, name=NAME, timeout_s=arguments.timeout
    )


def _list(arguments: argparse.Namespace) -> int:
    if arguments.group is None:
        return _list_groups(arguments)
    with _open(arguments) as letters:
        queues = letters.queues()
        found = [
            letter
            for queue in queues
            for letter in _read(letters, queue, arguments.first, arguments.max)
        ][: arguments.max]
    rows = [dead_letter_as_json(letter) for letter in found] if arguments.json else []
    document = {"group": arguments.group, "queues": dead_letter_sums(queues), "messages": rows}
    total = sum(queue.end - max(queue.begin, arguments.first) for queue in queues)
    none = f"no dead letters of group {arguments.group}"
    return tell(arguments, document, (lambda: _print_letters(found, total)) if found else none)


def _print_letters(found: list[DeadLetter], total: int) -> None:
    head = ("offset", "stored", "topic", "tries", "replayed", "id", "body")
    print_table(head, (_row(letter) for letter in found))
    if total > len(found):
        last = found[-1].message.queue_offset
        print(f"{total - len(found):,} more: --from {last + 1}, or a higher --max", file=sys.stderr)


def _list_groups(arguments: argparse.Namespace) -> int:
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        topics = [row.topic for row in broker.topics()]
    groups = sorted(
        topic.removeprefix(DEAD_LETTER_PREFIX)
        for topic in topics
        if topic.startswith(DEAD_LETTER_PREFIX)
    )
    found: list[tuple[str, list[DeadLetterQueue]]] = []
    for group in groups:
        arguments.group = group
        with _open(arguments) as letters:
            found.append((group, letters.queues()))
    rows = [{"group": group, "queues": dead_letter_sums(queues)} for group, queues in found]
    none = "no group has dead letters"
    return tell(arguments, {"groups": rows}, (lambda: _print_groups(found)) if found else none)


def _print_groups(found: list[tuple[str, list[DeadLetterQueue]]]) -> None:
    print_table(
        ("group", "dead letters", "replayed"),
        (
            (
                group,
                f"{sum(queue.end - queue.begin for queue in queues):,}",
                f"{sum(queue.replayed_count for queue in queues):,}",
            )
            for group, queues in found
        ),
    )


def _show(arguments: argparse.Namespace) -> int:
    with _open(arguments) as letters:
        found = letters.read(arguments.offset, queue_id=arguments.queue, messages_max=1)
    letter = found[0] if found else None
    if letter is None or letter.message.queue_offset != arguments.offset:
        none = (
            f"ledgermq: group {arguments.group} has no dead letter at offset "
            f"{arguments.offset}: ledgermq dlq list {arguments.group} shows which it has"
        )
        tell(arguments, {"message": None}, lambda: print(none, file=sys.stderr))
        return EXIT_NOTHING
    known = letter
    document = {"message": dead_letter_as_json(known)} if arguments.json else None
    return tell(arguments, document, lambda: _print_letter(known))


def _print_letter(letter: DeadLetter) -> None:
    print_details(letter.message)
    print("replayed" if letter.is_replayed else "not replayed")


def _replay(arguments: argparse.Namespace) -> int:
    with _open(arguments) as letters:
        offsets = _wanted(letters, arguments)
        done = Replay([], [], [])
        if offsets:
            done = letters.replay(
                offsets,
                queue_id=arguments.queue,
                origin=arguments.to == "origin",
                again=arguments.again,
            )
    document = {"group": arguments.group, **done._asdict()}
    tell(arguments, document, lambda: _print_replay(done, arguments))
    return 1 if arguments.offset and len(done.replayed) < len(set(arguments.offset)) else 0


def _print_replay(done: Replay, arguments: argparse.Namespace) -> None:
    target = f"group {arguments.group}" if arguments.to == "group" else "their topics"
    print(f"{len(done.replayed):,} replayed to {target}")
    for offset in done.already:
        print(f"offset {offset} was replayed before; --again replays it once more", file=sys.stderr)
    for offset in done.missing:
        print(f"offset {offset} is not there (any more)", file=sys.stderr)


def _wanted(letters: DeadLetters, arguments: argparse.Namespace) -> list[int]:
    if arguments.offset:
        if min(arguments.offset) < 0:
            raise ConfigError("--offset is negative", given=min(arguments.offset))
        return list(arguments.offset)
    return [
        offset
        for queue in letters.queues()
        if queue.queue_id == arguments.queue
        for offset in range(queue.begin, queue.end)
        if arguments.again or not queue.was_replayed(offset)
    ]


def _read(
    letters: DeadLetters, queue: DeadLetterQueue, first: int, count: int
) -> Iterator[DeadLetter]:
    """Up to ``count`` dead letters of a queue."""
    offset = max(first, queue.begin)
    while count > 0 and offset < queue.end:
        found = letters.read(offset, queue_id=queue.queue_id, messages_max=min(count, 256))
        if not found:
            return
        yield from found
        count -= len(found)
        offset = found[-1].message.queue_offset + 1


def _row(letter: DeadLetter) -> tuple[str, ...]:
    message = letter.message
    return (
        str(message.queue_offset),
        time_text(message.store_timestamp),
        letter.first_topic or "-",
        str(message.reconsume_times),
        "yes" if letter.is_replayed else "no",
        message.unique_id or message.offset_message_id,
        preview(message),
    )
