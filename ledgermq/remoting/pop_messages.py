"""POP of RocketMQ 5: requests for messages that are taken singly, and the texts that name them.

A client makes itself, of the reply's header and the message, the text by which it acknowledges
(``ExtraInfoUtil``), its parts with blanks between them:

    START_OFFSET POP_TIME INVISIBLE_TIME REVIVE_QUEUE RETRY BROKER QUEUE OFFSET

Clients look at times, broker, queue and offset. The revive queue is a number that they only hand
back: here it is the mark of the delivery, which nobody can guess who was not given the message.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.fields import Fields, flag, int32, int64, json_field, objects_in, text
from ledgermq.remoting.pull_request import TAG

FROM_MAX = 1
"""``ConsumeInitMode.MAX``: a group that is new begins behind the last message."""

OF_TOPIC = "0"
"""Mark of a message that comes from its topic, and not from a retry topic."""

Kind = TypeVar("Kind", str, int)

ANY_QUEUE = -1
"""Names all queues of a broker."""

_BLANK = " "
_WORDS_LEAST, _WORDS_MOST = 7, 8
_TEXT_SIZE_MAX = 512
_WORD = 2**32
_SET = re.compile(rb"[^\0]")


class PopRequest(NamedTuple):
    """What a consumer asks for (``PopMessageRequestHeader``).

    Attributes:
        queue_id: negative: of any queue.
        poll_ms: how long the broker may wait for messages.
        is_new_at_end: where a group begins that has consumed nothing of a queue: behind its end.
        expression: of ``expression_type``; empty: all messages.
        is_ordered: messages of a queue one after another.
        attempt: its client's name for it, the same when it asks once more; empty: it has none.
    """

    group: str
    topic: str
    queue_id: int
    max_messages: int
    invisible_ms: int
    poll_ms: int
    is_new_at_end: bool
    expression: str
    expression_type: str
    is_ordered: bool
    attempt: str = ""


class PoppedMessage(NamedTuple):
    """One message that was taken, as a client names it.

    Attributes:
        mark: of the delivery.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    mark: int


class PopReply(NamedTuple):
    """What the header of a reply says (``PopMessageResponseHeader``).

    Attributes:
        pop_ms: when the messages were taken, epoch ms.
        rest: messages of the group's that are left.
        offsets: of the messages, by queue, in the order of the body; None: nothing was taken of
            what the body has.
        counts: in the order of queues: how often each message was tried before, by queue and
            offset; None: of others.
    """

    pop_ms: int
    invisible_ms: int
    mark: int = 0
    rest: int = 0
    offsets: Mapping[int, Sequence[int]] | None = MappingProxyType({})
    counts: Mapping[int, Mapping[int, int]] | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The fields, all of which clients want to find in each reply, whatever came of it."""
        found = {
            "popTime": str(self.pop_ms),
            "invisibleTime": str(self.invisible_ms),
            "reviveQid": str(revive_queue(self.mark)),
            "restNum": str(self.rest),
        }
        if self.offsets is None:
            return found
        if self.counts is not None:
            found["orderCountInfo"] = ";".join(_order_counts(self.counts))
        queues = self.offsets.items()
        starts = (f"{OF_TOPIC} {queue} {min(offsets)}" for queue, offsets in queues)
        told = (f"{OF_TOPIC} {queue} {','.join(map(str, offsets))}" for queue, offsets in queues)
        return {**found, "startOffsetInfo": ";".join(starts), "msgOffsetInfo": ";".join(told)}


def _order_counts(counts: Mapping[int, Mapping[int, int]]) -> Iterator[str]:
    """How often messages were tried before: of those that were, and of each queue the least."""
    for queue, of in counts.items():
        for offset, count in of.items():
            if count:
                yield f"{OF_TOPIC} qo{queue}%{offset} {count}"
        yield f"{OF_TOPIC} {queue} {min(of.values())}"


def decode_pop(fields: Fields) -> PopRequest:
    """What a ``POP_MESSAGE`` asks for.

    Raises:
        ProtocolError: a field is missing, or is no number.
    """
    return PopRequest(
        text(fields, "consumerGroup"),
        text(fields, "topic"),
        int32(fields, "queueId"),
        int32(fields, "maxMsgNums"),
        int64(fields, "invisibleTime"),
        int64(fields, "pollTime"),
        int32(fields, "initMode") == FROM_MAX,
        fields.get("exp", ""),
        fields.get("expType") or TAG,
        flag(fields, "order"),
        fields.get("attemptId", ""),
    )


def revive_queue(mark: int) -> int:
    """The mark of a delivery as a number of Java's ``int``."""
    return mark - _WORD if mark >= _WORD // 2 else mark


def decode_popped(fields: Fields) -> PoppedMessage | None:
    """The message that a request names by header and text; None: the text is none, or another's.

    Raises:
        ProtocolError: a field is missing, or is no number.
    """
    found = PoppedMessage(
        text(fields, "consumerGroup"),
        text(fields, "topic"),
        int32(fields, "queueId"),
        int64(fields, "offset"),
        0,
    )
    told = text(fields, "extraInfo")
    parts = told.split(_BLANK) if len(told) <= _TEXT_SIZE_MAX else []
    if not _WORDS_LEAST <= len(parts) <= _WORDS_MOST:
        return None
    numbers = dict(zip(("start", "pop", "kept", "mark", "retry"), parts, strict=False))
    numbers.update(queue=parts[6], offset=parts[-1] if len(parts) == _WORDS_MOST else "0")
    try:
        mark, queue = int32(numbers, "mark"), int32(numbers, "queue")
        offset = int64(numbers, "offset") if len(parts) == _WORDS_MOST else found.offset
    except ProtocolError:
        return None
    if numbers["retry"] != OF_TOPIC or (queue, offset) != (found.queue_id, found.offset):
        return None
    return found._replace(mark=mark % _WORD)


def decode_acks(body: bytes | memoryview, *, count_max: int) -> list[PoppedMessage]:
    """The messages that a ``BATCH_ACK_MESSAGE`` names, in its order; those of retry topics, which
    there are none of here, have the mark 0.

    Raises:
        ProtocolError: it is not what a client writes, or there are more than ``count_max``.
    """
    found: list[PoppedMessage] = []
    for row in ack_rows(body):
        group, topic = _named(row, "c", "consumerGroup", str), _named(row, "t", "topic", str)
        start, queue = _named(row, "so", "startOffset", int), _named(row, "q", "queueId", int)
        mark = _named(row, "rq", "reviveQueueId", int) % _WORD
        if _named(row, "r", "retry", str) != OF_TOPIC:
            mark = 0
        offsets = _bits(_named(row, "b", "bitSet", str), count_max - len(found))
        found += (PoppedMessage(group, topic, queue, start + at, mark) for at in offsets)
    return found


def ack_rows(body: bytes | memoryview) -> list[dict[str, object]]:
    """The rows of a ``BATCH_ACK_MESSAGE``, not looked at yet.

    Raises:
        ProtocolError: there is no list of them.
    """
    return objects_in(body, "acks")


def ack_names(row: Mapping[str, object]) -> tuple[str, str]:
    """Group and topic that a row of a ``BATCH_ACK_MESSAGE`` names.

    Raises:
        ProtocolError: it names none.
    """
    return _named(row, "c", "consumerGroup", str), _named(row, "t", "topic", str)


def _named(row: Mapping[str, object], short: str, long: str, kind: type[Kind]) -> Kind:
    return json_field(row, short if short in row else long, kind)


def _bits(told: str, count_max: int) -> Iterable[int]:
    """Numbers of the bits that are set (``BitSet.toByteArray``, in base64)."""
    try:
        data = base64.b64decode(told, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError("set of offsets is not base64", field="bitSet") from error
    number = int.from_bytes(data, "little")
    if number.bit_count() > count_max:
        raise ProtocolError(
            "too many messages are acknowledged at once",
            count=number.bit_count(),
            left=count_max,
        )
    # Most bytes of a long one are zeros, which nothing is done for.
    return [
        8 * found.start() + bit
        for found in _SET.finditer(data)
        for bit in range(8)
        if found[0][0] >> bit & 1
    ]
