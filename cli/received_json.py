"""Received messages as JSON."""

from __future__ import annotations

import base64

from ledgermq.client.received import ReceivedMessage


def received_as_json(message: ReceivedMessage) -> dict[str, object]:
    """All that is known of ``message``, under RocketMQ's names where it has one.

    A body that cannot be decompressed is given as it is stored, and ``bodyFault`` says why.

    Raises:
        CorruptLogError: its body is not the one that was sent.
    """
    fault = message.body_fault
    body = bytes(message.body if fault is None else message.stored_body)
    row: dict[str, object] = {
        "topic": message.topic,
        "queue": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "msgId": message.unique_id or message.offset_message_id,
        "offsetMsgId": message.offset_message_id,
        "properties": message.properties,
    }
    try:
        row["body"] = body.decode()
    except UnicodeDecodeError:
        row["bodyBase64"] = base64.b64encode(body).decode()
    if fault is not None:
        row["bodyFault"] = str(fault)
    return row
