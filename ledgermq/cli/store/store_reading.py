"""``ledgermq store dump`` and ``query``: what they read, and how they print it."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address
from pathlib import Path

from ledgermq.cli.output import time_text
from ledgermq.formats.index_file import ITEM_SIZE, SLOT_SIZE, IndexLayout
from ledgermq.formats.records import body_compression
from ledgermq.formats.records.host_address import Host, is_v6
from ledgermq.formats.records.message import Message
from ledgermq.formats.records.message_id import OffsetId, encode_offset_id
from ledgermq.model.errors import BodyUnreadableError, ConfigError
from ledgermq.store.files.file_names import is_index_name, own_names
from ledgermq.store.store_view import QueuedMessage, StoreView

MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"


def dump_queue(arguments: argparse.Namespace) -> int:
    """Print the messages of a queue."""
    with _opened(arguments) as view:
        for queued in view.messages(arguments.topic, arguments.queue):
            if arguments.json:
                _print_json(queued_message_as_json(queued))
            else:
                queue = queued.queue
                place = f"{queue.topic}/{queue.queue_id} {queued.queue_offset}"
                print(f"{place} {_described(queued.message)}")
    return 0


def query_messages(arguments: argparse.Namespace) -> int:
    """Print the messages that have a key, or the queue offset at a time."""
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


def queued_message_as_json(queued: QueuedMessage) -> Json:
    """What RocketMQ's client knows of a message that it pulled from a queue.

    The client adds two properties: the queue's bounds at that moment.
    """
    document = message_as_json(queued.message)
    properties = queued.message.parsed_properties()
    properties[MIN_OFFSET] = str(queued.queue.first)
    properties[MAX_OFFSET] = str(queued.queue.end)
    document["properties"] = dict(sorted(properties.items()))
    return {"readTopic": queued.queue.topic, "readQueue": queued.queue.queue_id, **document}


@contextmanager
def _opened(arguments: argparse.Namespace) -> Iterator[StoreView]:
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


Json = dict[str, object]


def message_as_json(message: Message) -> Json:
    """What the client knows of a message, wherever it was found.

    Raises:
        CorruptLogError: a compressed body that cannot be decompressed.
    """
    body = plain_body(message)
    offset_id = encode_offset_id(OffsetId(message.store_host, message.physical_offset))
    properties = message.parsed_properties()
    return {
        "topic": message.topic,
        "queue": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.size,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCrc": message.body_crc,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": java_address(message.born_host),
        "storeHost": _java_host(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.unique_id or offset_id,
        "offsetMsgId": offset_id,
        "bodyLength": len(body),
        "bodyMd5": hashlib.md5(body, usedforsecurity=False).hexdigest(),
        "properties": dict(sorted(properties.items())),
    }


def plain_body(message: Message) -> bytes | bytearray | memoryview:
    """The body as it was sent.

    Raises:
        CorruptLogError: it is compressed, and cannot be decompressed.
    """
    try:
        return body_compression.plain_body(message.body, message.sys_flag)
    except BodyUnreadableError as error:
        error.details |= {"offset": message.physical_offset, "field": "body"}
        raise


def java_address(host: Host) -> str:
    """The address of ``host`` as ``InetAddress.getHostAddress`` writes it: IPv6 in full."""
    if not is_v6(host):
        return host[0]
    groups = IPv6Address(host[0]).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups)


def _java_host(host: Host) -> str:
    """``host`` as ``InetSocketAddress.toString`` writes it."""
    address = java_address(host)
    return f"/[{address}]:{host[1]}" if is_v6(host) else f"/{address}:{host[1]}"
