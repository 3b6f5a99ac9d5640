"""Stored messages as JSON, as RocketMQ's client shows them.

Bodies of stored ones come decompressed, and hosts in Java's notation.
"""

from __future__ import annotations

import hashlib
from ipaddress import IPv6Address

from ledgermq.formats.records import body_compression
from ledgermq.formats.records.host_address import Host, is_v6
from ledgermq.formats.records.message import Message
from ledgermq.formats.records.message_id import OffsetId, encode_offset_id
from ledgermq.model.errors import BodyUnreadableError

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
