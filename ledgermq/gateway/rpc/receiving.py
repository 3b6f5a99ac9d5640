"""Calls of gRPC consumers: messages taken singly, and what becomes of them.

The groups of these consumers are share groups; handles are the broker's, which no member, no port
and no process has to remember. A client that takes messages and leaves it to the node to keep them
from others is looked after while it is heard: its deliveries are extended.

What waits in a group's retry topic, as what RocketMQ's POP had handed out before a move, comes
before what is new: these clients know of no such topic.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from ledgermq.client.core.questions import ask
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.requests import Request, Result, Steps
from ledgermq.formats.records.delayed_message import DELIVER_AT
from ledgermq.formats.records.priority import priority_of
from ledgermq.formats.records.properties import (
    DELAY,
    MESSAGE_GROUP,
    RETRY_TOPIC,
    TRANSACTION_PREPARED,
)
from ledgermq.gateway.rpc.callers import RpcCaller
from ledgermq.gateway.rpc.clients import RpcClients
from ledgermq.gateway.rpc.definition import FilterType, MessageType, RpcCode, make
from ledgermq.gateway.rpc.given_messages import AnswerBytes, given_message
from ledgermq.gateway.rpc.node_link import AGE_S_MAX, NAMES_KNOWN_MAX, NodeLink
from ledgermq.gateway.rpc.sent_messages import check_topic_name
from ledgermq.gateway.rpc.statuses import (
    RpcRefusedError,
    duration_ms,
    duration_of,
    fine,
    status,
    status_of,
    timestamp_of,
)
from ledgermq.hosts.host_name import host_and_port
from ledgermq.model.errors import (
    BodyUnreadableError,
    BusyError,
    ConfigError,
    LedgerError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.model.limits import GROUP_SIZE_MAX, TOPIC_NAME
from ledgermq.model.message_filter import ALL_TAGS, SQL_MARK
from ledgermq.model.names.group_topics import RETRY_PREFIX, retry_topic
from ledgermq.model.rights import Right
from ledgermq.verbs.shares import (
    ATTEMPT,
    DONE,
    FOR_OWNER,
    HANDLE_SIZE_MAX,
    HANDLES_MAX,
    INVISIBLE_MS_MAX,
    MEMBER,
    RECEIVED_MAX,
    SETTLED,
    Action,
    ReceiveShared,
    SettledHandle,
    SettleShared,
    SharedMessage,
)
from ledgermq.verbs.verb import Told, Verb, check_arguments

logger = logging.getLogger(__name__)

INVISIBLE_MS_MIN = 10_000
RENEWED_MS = 60_000
POLLING_MS_MAX = 30_000
"""A poll that was to wait longer comes back empty, and its client asks again."""

TRANSPORT_MS = 500
"""What the way of an answer takes of the time that its client waits."""

ANSWER_MS_MIN = 3_000
"""Whoever waits that long for an answer may ask for a longer poll: it is shortened."""

RENEW_EACH_S = 20.0
RENEWED_FOR_S = 3 * 60 * 60.0
RENEWED_MAX = 200_000
"""Deliveries that are extended; of more, the oldest are left to their time."""

SETTLE_S = 8.0
ATTEMPT_SIZE_MAX = 255

Key = tuple[str, str]
"""Group and handle."""


@dataclass(slots=True)
class _Renewed:
    caller: RpcCaller
    until: float


class RpcReceives:
    """Owned by the process's loop."""

    def __init__(self, node: NodeLink, clients: RpcClients, answers: AnswerBytes) -> None:
        """Nothing was taken."""
        self._node = node
        self._answers = answers
        self._clients = clients
        self._renewed: OrderedDict[Key, _Renewed] = OrderedDict()
        self._renew_at = 0.0
        self._without_retries: OrderedDict[str, float] = OrderedDict()
        """Groups in whose retry topic nothing waited, and until when that is believed."""
        self._making = asyncio.Lock()
        self._background: set[asyncio.Task[object]] = set()

    async def close(self) -> None:
        """Give up what is done in the background."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def receive(
        self, caller: RpcCaller, request: Any, time_s: float | None
    ) -> AsyncGenerator[Any, None]:
        """The answers to a call: a status, each message, and the time of delivery.

        Args:
            time_s: until the client gives the call up; None: it has not said.

        Raises:
            BusyError: clients of the caller's owner do not read what they have taken.
            LedgerError: nothing was taken.
        """
        group, topic = _group(caller, request.group), check_topic_name(request.message_queue.topic)
        caller.check_topic(topic, Right.SUB)
        polling_ms = _polling_ms(request, time_s)
        self._clients.hear(caller)
        verb = ReceiveShared(
            group,
            topic,
            max(1, min(request.batch_size, RECEIVED_MAX)),
            invisible_ms=_invisible_ms(request),
            wait_ms=polling_ms,
            filter=_filter(request.filter_expression),
        )
        attempt = request.attempt_id
        more = {ATTEMPT: attempt} if 0 < len(attempt) <= ATTEMPT_SIZE_MAX else {}
        taken = await self._take_retries(caller, verb)
        if taken:
            topic = retry_topic(group)
        else:
            taken = await self._take(caller, verb, more)
        given = 0
        try:
            if taken:
                self._answers.check(caller.owner)
            if request.auto_renew:
                self._keep(caller, group, taken)
            told = fine() if taken else status(RpcCode.MESSAGE_NOT_FOUND, "no new message")
            yield make("ReceiveMessageResponse", status=told)
            for one in taken:
                message = await self._made(caller, topic, one)
                if message is None:
                    break
                with self._answers.held(caller.owner, len(message.body)):
                    yield make("ReceiveMessageResponse", message=message)
                given += 1
            now_ms = time.time_ns() // 1_000_000
            yield make("ReceiveMessageResponse", delivery_timestamp=timestamp_of(now_ms))
        finally:
            # What the client has not got, because it has gone, others get at once.
            self._give_back(caller, group, taken[given:])

    async def _made(self, caller: RpcCaller, topic: str, taken: SharedMessage) -> Any:
        """A message as its consumer gets it; None: there is no room for it.

        A compressed body is up to a thousand times as large as its record. So these are made one by
        one, and beside the loop, by which this process and all other clients live.
        """
        stored = ReceivedMessage(topic, taken.record, 0, len(taken.record))
        async with self._making if stored.is_compressed else nullcontext():
            try:
                self._answers.check(caller.owner)
            except BusyError:
                return None
            if stored.is_compressed:
                return await asyncio.to_thread(_message, stored, taken)
            return _message(stored, taken)

    async def ack(self, caller: RpcCaller, request: Any) -> Any:
        """Messages are done with.

        Raises:
            LedgerError: nothing is known of any of them.
        """
        group = _group(caller, request.group)
        check_topic_name(request.topic)
        if not 0 < len(request.entries) <= HANDLES_MAX:
            raise RpcRefusedError(
                RpcCode.BAD_REQUEST, "call has no handle, or many", limit=HANDLES_MAX
            )
        handles = [one.receipt_handle for one in request.entries]
        rows = await self._settle(caller, group, "accept", handles)
        entries = [
            make(
                "AckMessageResultEntry",
                message_id=asked.message_id,
                receipt_handle=asked.receipt_handle,
                status=_status_of(row),
            )
            for asked, row in zip(request.entries, rows, strict=True)
        ]
        codes = {entry.status.code for entry in entries}
        told = entries[0].status
        if len(codes) > 1:
            told = status(RpcCode.MULTIPLE_RESULTS, "messages have other outcomes")
        return make("AckMessageResponse", status=told, entries=entries)

    async def change_invisible(self, caller: RpcCaller, request: Any) -> Any:
        """A message is kept from others for another time, or given back after it.

        Raises:
            LedgerError: it was not changed, as far as is known.
        """
        group = _group(caller, request.group)
        check_topic_name(request.topic)
        invisible_ms = duration_ms(request.invisible_duration)
        if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
            raise _bad_time(invisible_ms)
        # The handle goes on to be the message's, also with a client that does not take a new one.
        (row,) = await self._settle(
            caller, group, "extend", [request.receipt_handle], delay_ms=invisible_ms
        )
        return make(
            "ChangeInvisibleDurationResponse", status=_status_of(row), receipt_handle=row.handle
        )

    async def reject(self, caller: RpcCaller, request: Any) -> Any:
        """A message becomes a dead letter.

        Raises:
            LedgerError: it has not, as far as is known.
        """
        group = _group(caller, request.group)
        check_topic_name(request.topic)
        (row,) = await self._settle(caller, group, "reject", [request.receipt_handle])
        return make("ForwardMessageToDeadLetterQueueResponse", status=_status_of(row))

    def look(self) -> None:
        """Extend the deliveries of clients that are heard; call it a few times a second."""
        now = time.monotonic()
        if now < self._renew_at or not self._renewed:
            return
        self._renew_at = now + RENEW_EACH_S
        by_owner: dict[tuple[str, str, str], tuple[RpcCaller, str, list[str]]] = {}
        for (group, handle), one in list(self._renewed.items()):
            if now > one.until or self._clients.find(one.caller) is None:
                del self._renewed[group, handle]
                continue
            whose = one.caller.owner, one.caller.client_id, group
            by_owner.setdefault(whose, (one.caller, group, []))[2].append(handle)
        for caller, group, handles in by_owner.values():
            for at in range(0, len(handles), HANDLES_MAX):
                self._begin(self._extend(caller, group, handles[at : at + HANDLES_MAX]))

    async def _take(
        self, caller: RpcCaller, verb: ReceiveShared, more: Mapping[str, str]
    ) -> list[SharedMessage]:
        wait_s = verb.wait_ms / 1_000 + SETTLE_S
        asked: list[Request] = []
        steps = _noting(asking_for(caller, verb, **more), asked)
        taking = asyncio.create_task(self._node.ask(caller, steps, wait_s=wait_s))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            # The client has gone; what comes meanwhile is nobody's.
            self._begin(self._return_taken(caller, verb.group, taking))
            for request in asked:
                self._begin(self._give_up(caller, verb, request))
            raise
        except ConfigError as error:
            raise RpcRefusedError(RpcCode.UNSUPPORTED, error.message, **error.details) from error

    async def _take_retries(self, caller: RpcCaller, verb: ReceiveShared) -> list[SharedMessage]:
        """What waits in the group's retry topic; its filter has chosen these messages before."""
        group, now = verb.group, time.monotonic()
        if now < self._without_retries.get(group, 0.0):
            return []
        waiting = replace(verb, topic=retry_topic(group), wait_ms=0, filter=ALL_TAGS)
        try:
            taken = await self._take(caller, waiting, {})
        except (TopicUnknownError, NoPermissionError):
            # There is none, or it is closed; what the group may not do the topic itself says.
            taken = []
        if not taken:
            self._without_retries[group] = now + AGE_S_MAX
            self._without_retries.move_to_end(group)
            while len(self._without_retries) > NAMES_KNOWN_MAX:
                self._without_retries.popitem(last=False)
        return taken

    async def _return_taken(
        self, caller: RpcCaller, group: str, taking: asyncio.Task[list[SharedMessage]]
    ) -> None:
        try:
            taken = await taking
        except LedgerError:
            return
        await self._return(caller, group, [one.handle for one in taken])

    async def _give_up(self, caller: RpcCaller, verb: ReceiveShared, request: Request) -> None:
        try:
            await self._node.give_up(caller, request, group=verb.group, topic=verb.topic)
        except LedgerError as error:
            # Then it waits for its time, or has been answered.
            logger.debug("receive of a client that has gone not given up: %s", error)

    def _give_back(self, caller: RpcCaller, group: str, left: Sequence[SharedMessage]) -> None:
        if left:
            handles = [one.handle for one in left]
            self._drop(group, handles)
            self._begin(self._return(caller, group, handles))

    async def _return(self, caller: RpcCaller, group: str, handles: list[str]) -> None:
        try:
            await self._settle(caller, group, "return", handles)
        except LedgerError as error:
            # Then they come back when their time is over.
            logger.debug("messages of a client that has gone not given back: %s", error)

    async def _extend(self, caller: RpcCaller, group: str, handles: list[str]) -> None:
        try:
            rows = await self._ask_settle(caller, group, "extend", handles, RENEWED_MS)
        except LedgerError as error:
            logger.debug("deliveries not extended: group=%s: %s", group, error)
            return
        self._drop(group, (row.handle for row in rows if row.outcome != DONE))

    async def _settle(
        self,
        caller: RpcCaller,
        group: str,
        action: Action,
        handles: list[str],
        *,
        delay_ms: int = 0,
    ) -> list[SettledHandle]:
        if any(not 0 < len(one) <= HANDLE_SIZE_MAX for one in handles):
            raise RpcRefusedError(
                RpcCode.INVALID_RECEIPT_HANDLE, "no handle of a message", limit=HANDLE_SIZE_MAX
            )
        self._drop(group, handles)
        return await self._ask_settle(caller, group, action, handles, delay_ms)

    async def _ask_settle(
        self, caller: RpcCaller, group: str, action: Action, handles: list[str], delay_ms: int
    ) -> list[SettledHandle]:
        verb = SettleShared(group, action, handles, delay_ms)
        return await self._node.ask(caller, asking_for(caller, verb))

    def _keep(self, caller: RpcCaller, group: str, taken: Iterable[SharedMessage]) -> None:
        until = time.monotonic() + RENEWED_FOR_S
        for one in taken:
            self._renewed[group, one.handle] = _Renewed(caller, until)
        while len(self._renewed) > RENEWED_MAX:
            self._renewed.popitem(last=False)

    def _drop(self, group: str, handles: Iterable[str]) -> None:
        for handle in handles:
            self._renewed.pop((group, handle), None)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def asking_for(caller: RpcCaller, verb: Verb[Told], **more: str) -> Steps[Told]:
    """What the broker tells, asked for a caller: by the node's own session, where there are no
    users, its bounds hold all the same.
    """
    check_arguments(verb)
    whose = {FOR_OWNER: caller.owner, MEMBER: caller.client_id}
    return verb.told((yield from ask(verb.NAME, **verb.arguments(), **whose, **more)))


def _noting(steps: Steps[Result], asked: list[Request]) -> Steps[Result]:
    """The same steps, whose questions are put into ``asked``."""
    while True:
        try:
            request = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        asked.append(request)
        yield request


def _group(caller: RpcCaller, resource: Any) -> str:
    """The group that a call consumes as.

    Raises:
        RpcRefusedError: it cannot be one.
        NoPermissionError: the caller may not.
    """
    name: str = resource.name
    has_name = 0 < len(name) <= GROUP_SIZE_MAX and TOPIC_NAME.match(name) is not None
    if not has_name or resource.resource_namespace:
        raise RpcRefusedError(
            RpcCode.ILLEGAL_CONSUMER_GROUP,
            "group is empty, too long, or has a character that is not allowed",
            group=name[:GROUP_SIZE_MAX],
            limit=GROUP_SIZE_MAX,
        )
    caller.check_group(name)
    return name


def _polling_ms(request: Any, time_s: float | None) -> int:
    left_ms = POLLING_MS_MAX if time_s is None else int(time_s * 1_000) - TRANSPORT_MS
    if not request.HasField("long_polling_timeout"):
        return max(0, min(left_ms, POLLING_MS_MAX))
    wanted = duration_ms(request.long_polling_timeout)
    # Rust's client polls for as long as it waits for an answer.
    if wanted < 0 or (wanted > left_ms and left_ms < ANSWER_MS_MIN):
        raise RpcRefusedError(
            RpcCode.ILLEGAL_POLLING_TIME,
            "client waits for messages for longer than for an answer",
            polling_ms=wanted,
            limit=left_ms,
        )
    return min(wanted, left_ms, POLLING_MS_MAX)


def _invisible_ms(request: Any) -> int:
    if request.auto_renew:
        return RENEWED_MS
    wanted = duration_ms(request.invisible_duration)
    if not INVISIBLE_MS_MIN <= wanted <= INVISIBLE_MS_MAX:
        raise _bad_time(wanted)
    return wanted


def _bad_time(wanted_ms: int) -> RpcRefusedError:
    return RpcRefusedError(
        RpcCode.ILLEGAL_INVISIBLE_TIME,
        "messages cannot be kept from others for so long, or so short",
        invisible_ms=wanted_ms,
        minimum=INVISIBLE_MS_MIN,
        limit=INVISIBLE_MS_MAX,
    )


def _filter(told: Any) -> str:
    expression: str = told.expression
    if not expression:
        return ALL_TAGS
    return f"{SQL_MARK}{expression}" if told.type == FilterType.SQL else expression


def _status_of(row: SettledHandle) -> Any:
    if row.outcome in (DONE, SETTLED):
        return fine()
    return status_of(
        RpcRefusedError(
            RpcCode.INVALID_RECEIPT_HANDLE,
            "message is not with this delivery any more, or the handle is none of the group's",
            outcome=row.outcome,
        )
    )


def _message(stored: ReceivedMessage, taken: SharedMessage) -> Any:
    """A message as a consumer gets it: of the topic that it was sent to."""
    properties = stored.properties
    is_retry = stored.topic.startswith(RETRY_PREFIX)
    try:
        body = stored.body
    except BodyUnreadableError:
        # As it is stored: the message would come again and again, and those beside it.
        body = bytes(stored.stored_body)
    message = given_message(
        properties.get(RETRY_TOPIC, stored.topic) if is_retry else stored.topic,
        body,
        properties,
        tag=stored.tag,
        keys=stored.keys,
        message_id=stored.unique_id or stored.offset_message_id,
        kind=_kind(properties),
        born_ms=stored.born_timestamp,
    )
    system = message.system_properties
    system.born_host = host_and_port(*stored.born_host)
    at = timestamp_of(stored.store_timestamp)
    system.store_timestamp.seconds, system.store_timestamp.nanos = at["seconds"], at["nanos"]
    system.store_host = host_and_port(*stored.store_host)
    system.receipt_handle = taken.handle
    system.queue_id, system.queue_offset = taken.queue, taken.offset
    system.delivery_attempt = taken.delivery + (stored.reconsume_times if is_retry else 0)
    left_ms = max(0, taken.until - time.time_ns() // 1_000_000)
    kept = duration_of(left_ms)
    system.invisible_duration.seconds = kept["seconds"]
    system.invisible_duration.nanos = kept["nanos"]
    return message


def _kind(properties: Any) -> MessageType:
    if MESSAGE_GROUP in properties:
        return MessageType.FIFO
    if DELIVER_AT in properties or DELAY in properties:
        return MessageType.DELAY
    if properties.get(TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION
    if priority_of(properties) is not None:
        return MessageType.PRIORITY
    return MessageType.NORMAL
