"""Received messages, their lives, and dead letters as JSON, for commands and the observer."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterable

from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.dead_letters import DeadLetter
from ledgermq.client.reading.message_life import MessageLife
from ledgermq.model.errors import BodyUnreadableError
from ledgermq.verbs.dead_letters import DeadLetterQueue

Json = dict[str, object]


def received_as_json(message: ReceivedMessage, *, body_max: int | None = None) -> Json:
    """All that is known of ``message``, under RocketMQ's names where it has one.

    A body that cannot be decompressed is given as it is stored, and ``bodyFault`` says why.

    Args:
        body_max: of a longer body only so many bytes are given, and of a compressed one no more are
            made. ``bodySize`` says how many it has, or where only decompressing all of it would
            tell, ``bodyLongerThan`` how many it has at least.

    Raises:
        CorruptLogError: its body is not the one that was sent.
    """
    row: Json = {
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
    body, is_whole, size = message.stored_body, True, len(message.stored_body)
    fault: BodyUnreadableError | None = None
    try:
        if message.is_compressed and body_max is not None:
            start = message.body_start(body_max)
            body, is_whole = memoryview(start.content), start.is_whole
        else:
            body = message.body_view
            size = len(body)
    except BodyUnreadableError as error:
        fault = error
    cut = len(body) if body_max is None else body_max
    try:
        text, _ = codecs.utf_8_decode(body, "strict", is_whole)
        # A letter that is cut is left out.
        row["body"] = text if len(body) <= cut else bytes(body[:cut]).decode(errors="ignore")
    except UnicodeDecodeError:
        row["bodyBase64"] = base64.b64encode(body[:cut]).decode()
    if not is_whole:
        row["bodyLongerThan"] = len(body)
    elif len(body) > cut:
        row["bodySize"] = size
    if fault is not None:
        row["bodyFault"] = str(fault)
    return row


def life_as_json(life: MessageLife) -> Json:
    """What has happened to a message, in order of time, and why traces are missing, if they are."""
    events = [
        {
            "time": event.time,
            "what": event.stage.value,
            "by": event.by,
            "host": event.host,
            "costMs": event.cost_ms,
            "retries": event.retries,
        }
        for event in life.events
    ]
    return {"life": events, "tracesFault": life.traces_fault}


def dead_letter_as_json(letter: DeadLetter) -> Json:
    """A dead letter: its message, the topic that it was first sent to, whether it was replayed.

    Raises:
        CorruptLogError: its body is not the one that was sent.
    """
    return {
        **received_as_json(letter.message),
        "firstTopic": letter.first_topic,
        "replayed": letter.is_replayed,
    }


def dead_letter_sums(queues: Iterable[DeadLetterQueue]) -> list[dict[str, int]]:
    """What queues of dead letters hold: offsets, and how many were replayed."""
    return [
        {
            "queue": queue.queue_id,
            "min": queue.begin,
            "max": queue.end,
            "replayed": queue.replayed_count,
        }
        for queue in queues
    ]
