"""``ledgermq store``: read a store directory, of a stopped node or of a copy, without any settings.

``dump`` and ``query`` change nothing, and take no lock: a running node's store can be read too, and
shows what it held when it was opened. What changes a store has a module of its own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ledgermq.cli.message_json import Json, message_as_json, plain_body, queued_message_as_json
from ledgermq.cli.output import time_text
from ledgermq.cli.store import (
    store_accept_loss_command,
    store_check_command,
    store_downgrade_command,
    store_install_derived_command,
    store_rebuild_command,
    store_upgrade_command,
)
from ledgermq.formats.index_file import ITEM_SIZE, SLOT_SIZE, IndexLayout
from ledgermq.formats.records.message import Message
from ledgermq.model.errors import ConfigError
from ledgermq.store.files.file_names import is_index_name, own_names

if TYPE_CHECKING:
    from ledgermq.store.store_view import StoreView


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``store`` with its verbs."""
    parser = subparsers.add_parser("store", help="read and convert a store directory")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    dump = verbs.add_parser("dump", help="print all messages, queue by queue")
    dump.add_argument("--topic", help="of this topic only")
    dump.add_argument("--queue", type=int, metavar="N", help="of queues with this number only")
    dump.set_defaults(func=_dump)

    query = verbs.add_parser(
        "query",
        help="find messages by key, or a queue offset by time",
        description="With --key: the newest messages (64 at most) that have it as a key or as "
        "their unique id. With --time: the offset of the message of --queue nearest to it.",
    )
    query.add_argument("--topic", required=True)
    what = query.add_mutually_exclusive_group(required=True)
    what.add_argument("--key", help="a key, or a unique message id")
    what.add_argument("--time", type=int, metavar="MS", help="a store time, epoch milliseconds")
    query.add_argument("--queue", type=int, metavar="N", help="queue number, with --time")
    query.add_argument(
        "--hash-slots",
        type=int,
        metavar="N",
        help="maxHashSlotNum of the index files, where it cannot be told from them",
    )
    query.set_defaults(func=_query)

    for verb in (dump, query):
        verb.add_argument("directory", type=Path, help="storePathRootDir")
        verb.add_argument("--self-id", help="whose DLedger log, where there are several")
        verb.add_argument("--json", action="store_true", help="print one JSON object a line")

    store_check_command.register(verbs)
    store_accept_loss_command.register(verbs)
    store_rebuild_command.register(verbs)
    store_install_derived_command.register(verbs)
    store_upgrade_command.register(verbs)
    store_downgrade_command.register(verbs)


def _dump(arguments: argparse.Namespace) -> int:
    with _opened(arguments) as view:
        for queued in view.messages(arguments.topic, arguments.queue):
            if arguments.json:
                _print_json(queued_message_as_json(queued))
            else:
                queue = queued.queue
                place = f"{queue.topic}/{queue.queue_id} {queued.queue_offset}"
                print(f"{place} {_described(queued.message)}")
    return 0


def _query(arguments: argparse.Namespace) -> int:
    if arguments.time is not None and arguments.queue is None:
        raise ConfigError("--time needs --queue")
    with _opened(arguments) as view:
        if arguments.time is None:
            _print_found(view.query_key(arguments.topic, arguments.key), as_json=arguments.json)
            return 0
        offset = view.query_time(arguments.topic, arguments.queue, arguments.time)
    if arguments.json:
        _print_json(
            {
                "topic": arguments.topic,
                "queue": arguments.queue,
                "timestamp": arguments.time,
                "offset": offset,
            }
        )
    else:
        print(offset)
    return 0


@contextmanager
def _opened(arguments: argparse.Namespace) -> Iterator[StoreView]:
    from ledgermq.store.store_view import StoreView

    slots: int | None = getattr(arguments, "hash_slots", None)
    layout = None if slots is None else _layout_of(arguments.directory, slots)
    view = StoreView(arguments.directory, self_id=arguments.self_id, index_layout=layout)
    try:
        yield view
    finally:
        view.close()


def _layout_of(directory: Path, slots: int) -> IndexLayout:
    """The geometry that ``slots`` and the size of the first index file make."""
    folder = directory / "index"
    for path in (folder / name for name in own_names(folder, is_index_name)):
        space = path.stat().st_size - IndexLayout(slots=0, items=0).file_size
        items, rest = divmod(space - SLOT_SIZE * slots, ITEM_SIZE)
        if slots > 0 and items > 0 and not rest:
            return IndexLayout(slots=slots, items=items)
        raise ConfigError(
            "index files cannot have that many slots", file=str(path), hash_slots=slots
        )
    return IndexLayout(slots=slots)


def _print_found(messages: Iterable[Message], *, as_json: bool) -> None:
    for message in messages:
        if as_json:
            _print_json(message_as_json(message))
        else:
            place = f"{message.topic}/{message.queue_id} {message.queue_offset}"
            print(f"{place} {_described(message)}")


def _print_json(document: Json) -> None:
    # A lone surrogate, legal in Java's strings, survives as an escape only.
    print(json.dumps(document))


def _described(message: Message) -> str:
    parts = [
        f"position={message.physical_offset}",
        f"stored={time_text(message.store_timestamp)}",
        f"body={len(plain_body(message))}",
    ]
    if message.tags:
        parts.append(f"tag={message.tags!r}")
    if message.keys:
        parts.append(f"keys={list(message.keys)!r}")
    if message.unique_id:
        parts.append(f"id={message.unique_id}")
    return " ".join(parts)
