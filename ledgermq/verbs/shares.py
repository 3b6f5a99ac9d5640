"""Verbs about share groups: any number of consumers take messages of one queue, one by one.

A *delivery* is one message handed out once. It is known by its handle, a text, until the message is
settled, is given back, or is handed out again; who leads meanwhile does not matter.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator
from dataclasses import KW_ONLY
from typing import Annotated, ClassVar, Literal, NamedTuple

from ledgermq.formats.records.body_compression import plain_body
from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import BodyUnreadableError, ConfigError, ProtocolError
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.message_filter import ALL_TAGS, EXPRESSION_SIZE_MAX, SQL_MARK
from ledgermq.model.names.answer_keys import PAYLOAD
from ledgermq.model.rights import Right
from ledgermq.verbs.answers import Fields, integer, integers, rows, text, texts
from ledgermq.verbs.needs import CHANGE, GROUP, both_rights, shown
from ledgermq.verbs.verb import (
    Bounds,
    DoneVerb,
    GroupName,
    Json,
    Length,
    RowsVerb,
    Texts,
    TopicName,
    Verb,
)

RECEIVED_MAX = 256
"""Messages of one answer."""

PLAIN_SIZE_MAX = 32 * 1024 * 1024
"""Bytes of all bodies of a document: compressed ones are a thousand times as large at times."""

HANDLES_MAX = 1_024
HANDLE_SIZE_MAX = 512
INVISIBLE_MS_MIN = 100
INVISIBLE_MS_MAX = 12 * 60 * 60 * 1_000
RECEIVE_WAIT_MS_MAX = 60_000

GIVE_UP = "share_give_up"
"""A process's own verb, for a client of its own that has gone: its receive waits no more."""

FOR_OWNER = "for_owner"
"""An argument of processes for whom no bound holds: whose bounds hold for what they ask."""

MEMBER = "member"
"""An argument of processes that ask for many clients over one connection: which one it is."""

ATTEMPT = "attempt"
"""An argument of a receive: its client's number for it. With the same number once more it is given
the same messages, as far as nobody has settled them or was given them since."""

Start = Literal["first", "last"]
AT_FIRST: Start = "first"
AT_LAST: Start = "last"

Action = Literal["accept", "release", "reject", "extend", "return"]

IN_RUNS = "in_runs"
"""What those ask for who read messages that follow one another in one row; older clients do not."""

RUNS = "runs"
LATE = "late"

STRETCH = "*"
"""Between a handle and a number: of so many messages that follow one another in a queue, and were
handed out together, the first of which has that handle. ``accept`` of a receive knows it."""

DONE = "done"
SETTLED = "settled"
OVER = "over"
OTHER_GROUP = "other_group"
UNREADABLE = "unreadable"


class SharedMessage(NamedTuple):
    """One message that was handed out.

    Attributes:
        offset: of the message in its queue.
        delivery: how often it was handed out, this time included.
        until: it is invisible to others up to then, epoch ms, by the leader's clock.
        record: as in the log (``decode_message``).
    """

    handle: str
    queue: int
    offset: int
    delivery: int
    until: int
    record: memoryview


class SharedRun(NamedTuple):
    """Messages that follow one another in a queue, and were handed out together.

    Attributes:
        before, behind: what stands before and behind the offset in the handle of each.
        offset: of the first one.
        sizes: of the record of each.
        single: the handle, where a node tells each message for itself.
    """

    before: str
    behind: str
    queue: int
    offset: int
    delivery: int
    until: int
    sizes: list[int]
    single: str = ""

    def handle_of(self, offset: int) -> str:
        """The handle of one of them."""
        return self.single or f"{self.before}{offset}{self.behind}"

    def handles_of(self, first: int, count: int) -> str:
        """The text that names some of them that follow one another."""
        handle = self.handle_of(first)
        return handle if count == 1 else f"{handle}{STRETCH}{count}"


class ReceivedMessages(list[SharedMessage]):
    """Messages that were handed out, in the order of their offsets within each queue.

    Attributes:
        late: handles that the same call was to accept, and for which it was too late. None: the
            node is an older one, which accepts nothing by this call.
    """

    late: Collection[str] | None = None


class SettledHandle(NamedTuple):
    """What became of one handle.

    Attributes:
        outcome: ``done``: it is in the log, by this call. ``settled``: the message was settled
            before, by this delivery or by another one; nothing was changed. ``over``: the message
            is not settled, and this delivery of it is over: its time had passed and it was handed
            out again, or it was given back, or the group was reset; nothing was changed.
            ``other_group``, ``unreadable``: the text is none of this group's handles, or none.
        until: of ``release`` and ``extend`` that are done: the message is invisible up to then,
            epoch ms; else 0.
    """

    handle: str
    outcome: str
    until: int = 0


class SharedQueue(NamedTuple):
    """How a share group stands in one queue.

    Attributes:
        low: all messages below this queue offset are settled: it is the group's offset.
        next: queue offset of the first message that was never handed out.
        end: queue offset behind the last message.
        in_flight: handed out, not settled, and still invisible.
        late: handed out, and not settled in time: they are handed out again.
        returned: given back, and handed out again once their time has come.
        behind: not handed out, because others of their key are not settled.
        again: of all that are not settled, those that were handed out more than once.
        next_due: when the first of these is to be handed out again, epoch ms; None: there are none.
    """

    topic: str
    queue: int
    low: int
    next: int
    end: int
    in_flight: int
    late: int
    returned: int
    behind: int
    again: int
    next_due: int | None


class SharedGroup(NamedTuple):
    """How a share group stands.

    Attributes:
        deliveries_max: a message that was handed out so often becomes a dead letter.
        ordered: the messages of a key are handed out one after another.
        unsettled: messages that were handed out and are not settled, in all topics.
        limit: most of them (``limits.share_unsettled_per_group``).
        waiting: receives that wait for messages now.
        members: clients that have taken messages, or settled some, in the last minute and a half.
    """

    group: str
    deliveries_max: int
    ordered: bool
    unsettled: int
    limit: int
    waiting: int
    queues: list[SharedQueue]
    members: int = 0


class ReceiveShared(Verb[ReceivedMessages]):
    """Take messages of a topic for a share group; none when there are none within ``wait_ms``.

    That they are handed out is in the log before they are told: no other member gets them before
    their time is over, whoever leads. A group begins where its offsets are, and with the first
    message of a queue of which it has none; by the first call it becomes a share group.

    Args:
        max_messages: at most so many; of large ones fewer, at least one.
        invisible_ms: for so long nobody else gets them.
        wait_ms: for so long they are waited for.
        filter: as ``A || B`` of tags, ``*`` is all; behind ``SQL92 `` an expression. What the
            filter leaves out is settled for the whole group: its members have one filter.
        queue: of this queue alone.
        start: where a group begins that has consumed nothing of a queue: with its ``first``
            message, or behind the ``last`` one; with the first one all the same in a queue that
            still has all that it ever had, and in memory.
        accept: handles of the group and topic that are done with, as by ``share_settle``: they are
            in the log when this returns, and before anybody waits for messages.

    Raises:
        TopicUnknownError: there is no such topic or queue.
        NoPermissionError: the group may not consume, or the topic may not be read.
        GroupActiveError: members of the group consume queue by queue now.
        BusyError: too many messages are not settled, or too many receives wait.
        FilterIllegalError: the filter is none.
        ConfigError: the feature level of share groups is not in force.
    """

    NAME: ClassVar = "share_receive"
    NEEDS: ClassVar = both_rights(Right.SUB)
    SHAPE: ClassVar = {"topic": "string", "messages": "array", "late": "array"}

    group: GroupName
    topic: TopicName
    max_messages: Annotated[int, Bounds(1, RECEIVED_MAX), "At most so many"] = 32
    _: KW_ONLY
    invisible_ms: Annotated[
        int, Bounds(INVISIBLE_MS_MIN, INVISIBLE_MS_MAX), "For so long nobody else gets them, in ms"
    ] = 30_000
    wait_ms: Annotated[
        int, Bounds(0, RECEIVE_WAIT_MS_MAX), "For so long they are waited for, in ms"
    ] = 0
    filter: Annotated[
        str,
        Length(1, EXPRESSION_SIZE_MAX + len(SQL_MARK)),
        "Tags as A || B, or SQL92 and an expression",
    ] = ALL_TAGS
    queue: Annotated[int | None, Bounds(0, QUEUE_ID_MAX), "Of this queue alone"] = None
    start: Annotated[Start, "Where a group begins that has consumed nothing of a queue"] = AT_FIRST
    accept: Annotated[
        Collection[str] | None,
        Texts("handles", HANDLES_MAX, HANDLE_SIZE_MAX),
        "Of deliveries that are done with",
    ] = None

    def arguments(self) -> dict[str, object]:
        """What goes over the wire: the answer may be short."""
        return {**super().arguments(), IN_RUNS: True}

    def told(self, answer: Fields) -> ReceivedMessages:
        """The messages, in the order of their offsets within each queue."""
        found = ReceivedMessages(
            SharedMessage(run.handle_of(offset), run.queue, offset, run.delivery, run.until, record)
            for run, offset, record in shared_messages(answer)
        )
        found.late = late_of(answer)
        return found

    def document(self, told: ReceivedMessages) -> Json:
        """The messages with what they say; a body that is no UTF-8 as ``bodyBase64``, and one that
        stays compressed, with why as ``bodyFault``: it cannot be made plain, or those before it are
        large.
        """
        left, rows_ = PLAIN_SIZE_MAX, []
        for one in told:
            row, size = _message_document(one, left)
            left -= size
            rows_.append(row)
        return {"topic": self.topic, "messages": rows_, "late": list(told.late or ())}


class SettleShared(RowsVerb[SettledHandle]):
    """Say what is to become of messages that were handed out; a row for each handle, in order.

    What is done is in the log when this returns. The same call once more changes nothing.

    Args:
        action: ``accept``: it is done with, and never handed out again. ``reject``: it becomes a
            dead letter of the group. ``release``: it is handed out again, after ``delay_ms``.
            ``return``: the same, and the delivery does not count: nobody has looked at it.
            ``extend``: it stays with this delivery for ``delay_ms`` from now on.
        delay_ms: of ``release`` and ``extend``.

    Raises:
        NoPermissionError: a topic may not be read.
        BusyError: too many wait.
    """

    NAME: ClassVar = "share_settle"
    NEEDS: ClassVar = GROUP
    ROWS: ClassVar = "handles", SettledHandle
    SHAPE: ClassVar = {"handles": "array"}

    group: GroupName
    action: Annotated[Action, "What is to become of them"]
    handles: Annotated[
        Collection[str], Texts("handles", HANDLES_MAX, HANDLE_SIZE_MAX), "Of deliveries"
    ]
    delay_ms: Annotated[
        int, Bounds(0, INVISIBLE_MS_MAX), "Of release and extend: invisible for so long, in ms"
    ] = 0

    def __post_init__(self) -> None:
        if self.delay_ms and self.action in ("accept", "reject"):
            raise ConfigError(
                "what is accepted or rejected is not handed out again: delay_ms says nothing",
                action=self.action, delay_ms=self.delay_ms,
            )  # fmt: skip


class ShowShared(Verb[SharedGroup]):
    """How a share group stands, queue by queue.

    Raises:
        GroupUnknownError: there is no such group, or it is no share group.
    """

    NAME: ClassVar = "share_show"
    NEEDS: ClassVar = shown(GROUP)
    ROW: ClassVar = SharedGroup

    group: GroupName


class EndShared(DoneVerb):
    """Have a share group consume queue by queue from now on, from its offsets on.

    Args:
        force: although messages are not settled. They, and all behind the first of them in its
            queue, are consumed again.

    Raises:
        GroupUnknownError: there is no such group, or it is no share group.
        GroupActiveError: messages are not settled.
    """

    NAME: ClassVar = "share_end"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "ended", "group"

    group: GroupName
    _: KW_ONLY
    force: Annotated[bool, "Although messages are not settled: they are consumed again"] = False


def shared_messages(answer: Fields) -> Iterator[tuple[SharedRun, int, memoryview]]:
    """The messages of an answer: the run of each, its offset and its record.

    Raises:
        ProtocolError: the broker answered with something else.
    """
    payload, at = answer.get(PAYLOAD, b""), 0
    if not isinstance(payload, bytes | memoryview):
        raise ProtocolError("field is not bytes", field=PAYLOAD)
    records = memoryview(payload)
    runs = rows(answer, RUNS if RUNS in answer else "messages", _read_run)
    for run in runs:
        for offset, size in enumerate(run.sizes, run.offset):
            if not 0 < size <= len(records) - at:
                raise ProtocolError("record of an answer is not all there", size=size, at=at)
            yield run, offset, records[at : at + size]
            at += size


def late_of(answer: Fields) -> Collection[str] | None:
    """What the answer to a receive says of the handles that it was to accept; None: nothing.

    Raises:
        ProtocolError: the broker answered with something else.
    """
    return texts(answer, LATE) if LATE in answer else None


def _read_run(fields: Fields) -> SharedRun:
    queue, offset = integer(fields, "queue"), integer(fields, "offset")
    delivery, until = integer(fields, "delivery"), integer(fields, "until")
    if "handle" in fields:
        sizes = [integer(fields, "size")]
        return SharedRun("", "", queue, offset, delivery, until, sizes, text(fields, "handle"))
    before, behind = text(fields, "before"), text(fields, "behind")
    return SharedRun(before, behind, queue, offset, delivery, until, integers(fields, "sizes"))


def _message_document(told: SharedMessage, size_max: int) -> tuple[Json, int]:
    """A message, and how many bytes of ``size_max`` its body takes."""
    message = decode_message(told.record)
    row: Json = {
        "handle": told.handle,
        "topic": message.topic,
        "queue": told.queue,
        "queueOffset": told.offset,
        "delivery": told.delivery,
        "until": told.until,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "properties": message.parsed_properties(),
    }
    body: bytes | bytearray | memoryview = message.body
    try:
        body = plain_body(message.body, message.sys_flag, size_max=max(0, size_max))
        row["body"] = bytes(body).decode()
    except BodyUnreadableError as error:
        row["bodyBase64"], row["bodyFault"] = base64.b64encode(body).decode(), str(error)
    except UnicodeDecodeError:
        row["bodyBase64"] = base64.b64encode(body).decode()
    return row, len(body)
