"""Codes of POP: messages that RocketMQ 5's remoting clients take singly.

The groups of these consumers are share groups (``broker/consumers/share_calls.py``): what is handed
out is in the log before it is told, and a delivery is known by a handle, which is made here of what
a client hands back (``remoting/pop_messages.py``) and of the table.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from ledgermq.broker.calls import Result
from ledgermq.broker.consumers.share_calls import IN_ORDER, PEEK
from ledgermq.broker.consumers.share_room import OWNERS_SHARE, RETRY_AFTER_MS
from ledgermq.formats.records.message import tried_again
from ledgermq.gateway.code_rights import Named, both_rights, named
from ledgermq.gateway.consuming.pull_checks import PullChecks
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.gateway.transport.refusals import CodedError, refusal
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import BusyError, FilterIllegalError, LedgerError, TopicUnknownError
from ledgermq.model.message_filter import ALL_TAGS, SQL_MARK, MessageFilter
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.rights import Right
from ledgermq.process.clock import epoch_ms
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fields import Fields, flag, int32, int64, text
from ledgermq.remoting.pop_messages import (
    PoppedMessage,
    PopReply,
    PopRequest,
    ack_names,
    ack_rows,
    decode_acks,
    decode_pop,
    decode_popped,
    revive_queue,
)
from ledgermq.remoting.pull_request import SQL92, TAG
from ledgermq.rules.consumers.share_handles import ShareHandle, read_handle
from ledgermq.verbs.shares import (
    AT_FIRST,
    AT_LAST,
    ATTEMPT,
    DONE,
    HANDLES_MAX,
    IN_RUNS,
    INVISIBLE_MS_MAX,
    INVISIBLE_MS_MIN,
    RECEIVE_WAIT_MS_MAX,
    RECEIVED_MAX,
    SETTLED,
    Action,
    ReceiveShared,
    SettleShared,
    SharedMessage,
)

POPPED_MAX = 32
"""Messages of one reply, as in RocketMQ; one that asks for more is refused."""


class _Wait(NamedTuple):
    group: str
    topic: str
    queue_id: int
    owner: str


class PopCodes(PortPart):
    """Owned by the port of the broker process.

    Invariant: ``_waits`` has the pops without a reply, by connection, and ``_counts_of`` says how
    many of them each owner has.
    """

    def __init__(self, context: BrokerContext) -> None:
        """Nobody waits."""
        self._calls = context.calls
        self._checks = PullChecks(context)
        self._clock = context.environment.clock
        self._counts = context.counts
        self._limits = context.environment.settings.limits
        self._quotas = context.quotas
        self._relay = context.consumer_relay
        self._reply = context.reply
        self._store = context.service.known.store
        self._tables = context.tables
        self._ids = itertools.count(1)
        self._waits: dict[int, dict[int, _Wait]] = {}
        self._counts_of: Counter[str] = Counter()
        of_both = both_rights("consumerGroup")
        self.codes = (
            Code(RequestCode.POP_MESSAGE, self._pop, of_both, is_for_sender=True),
            Code(RequestCode.PEEK_MESSAGE, self._peek, of_both, is_for_sender=True),
            Code(RequestCode.NOTIFICATION, self._await, of_both, is_for_sender=True),
            Code(RequestCode.POLLING_INFO, self._show_polls, of_both),
            Code(RequestCode.ACK_MESSAGE, self._ack, of_both),
            Code(RequestCode.BATCH_ACK_MESSAGE, self._ack_all, named(_names_in_acks)),
            Code(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self._change_time, of_both),
        )

    def take_settings(self, settings: Settings) -> None:
        self._limits = settings.limits

    def forget(self, connection: Connection) -> None:
        """A connection has ended: nobody waits there."""
        for wait in self._waits.pop(connection.number, {}).values():
            self._count(wait, -1)
        self._calls.forget(connection)

    def _pop(self, asked: Asked) -> None:
        self._counts[BrokerCounter.PULLS] += 1
        request = decode_pop(asked.command.fields)
        self._check_pop(request)
        self._quotas.check_read(asked, request.topic)
        arguments: dict[str, object] = {
            "group": request.group,
            "topic": request.topic,
            "max_messages": max(1, request.max_messages),
            "invisible_ms": request.invisible_ms,
            "wait_ms": _wait_ms(request.poll_ms),
            "filter": _filter(request),
            "start": AT_LAST if request.is_new_at_end else AT_FIRST,
            IN_ORDER: request.is_ordered,
            IN_RUNS: True,
        }
        if request.queue_id >= 0:
            arguments["queue"] = request.queue_id
        if request.attempt:
            arguments[ATTEMPT] = request.attempt
        verb = ReceiveShared.NAME
        self._ask(asked, verb, arguments, request.queue_id, partial(self._popped, request))

    def _check_pop(self, request: PopRequest) -> None:
        """Refuse what cannot be answered, as RocketMQ does.

        Raises:
            CodedError: a number is out of its bounds.
            LedgerError: the group may not read.
        """
        if request.max_messages > POPPED_MAX:
            raise CodedError(
                ResponseCode.INVALID_PARAMETER,
                "too many messages are asked for at once",
                count=request.max_messages,
                limit=POPPED_MAX,
            )
        _check_time(request.invisible_ms, INVISIBLE_MS_MIN)
        self._checks.check_group(request.group)
        self._check_queue(request.topic, request.queue_id, ResponseCode.INVALID_PARAMETER)

    def _popped(self, request: PopRequest, asked: Asked, outcome: Result | LedgerError) -> Command:
        now_ms = epoch_ms(self._clock)
        if isinstance(outcome, BusyError):
            told = PopReply(now_ms, request.invisible_ms)
            return asked.command.reply(
                ResponseCode.POLLING_FULL, fields=told.fields, remark=str(outcome)
            )
        if isinstance(outcome, LedgerError):
            return refusal(asked.command, outcome)
        found = _told(outcome)
        rest = self._rest(request.group, request.topic, request.queue_id)
        counts: dict[int, dict[int, int]] | None = None
        if request.is_ordered:
            came = {one.queue for one in found}
            rest = self._rest(request.group, request.topic, request.queue_id, unless_held=came)
            counts = {queue: {} for queue in came}
            for one in found:
                counts[one.queue][one.offset] = one.delivery - 1
        if not found:
            told = PopReply(now_ms, request.invisible_ms, rest=rest, counts=counts)
            return asked.command.reply(
                ResponseCode.POLLING_TIMEOUT, fields=told.fields, remark="NO_MESSAGE_IN_QUEUE"
            )
        handle = read_handle(found[0].handle)
        assert handle is not None, found[0].handle
        told = PopReply(
            found[0].until - request.invisible_ms,
            request.invisible_ms,
            handle.mark,
            rest,
            _by_queue(found),
            counts,
        )
        return self._given(asked, request.topic, found, told)

    def _given(
        self, asked: Asked, topic: str, found: list[SharedMessage], told: PopReply
    ) -> Command:
        """The reply that has messages."""
        # In the order of queues the header says how often each was tried.
        is_plain = told.counts is not None
        body = b"".join(
            one.record
            if is_plain or one.delivery == 1
            else tried_again(one.record, one.delivery - 1)
            for one in found
        )
        self._counts[BrokerCounter.MESSAGES] += len(found)
        self._counts[BrokerCounter.BYTES] += len(body)
        self._quotas.note_read(asked, topic, size=len(body), messages=len(found))
        return asked.command.reply(fields=told.fields, body=body, remark="FOUND")

    def _peek(self, asked: Asked) -> None:
        """What a pop would be given now; nobody has taken it by that."""
        fields = asked.command.fields
        group, topic, queue_id = _place(fields)
        self._checks.check_group(group)
        self._check_queue(topic, queue_id, ResponseCode.INVALID_PARAMETER)
        self._quotas.check_read(asked, topic)
        count = min(max(1, int32(fields, "maxMsgNums")), RECEIVED_MAX)

        def made(asked: Asked, outcome: Result | LedgerError) -> Command:
            if isinstance(outcome, LedgerError):
                return refusal(asked.command, outcome)
            told = PopReply(0, 0, 0, self._rest(group, topic, queue_id), None)
            if found := _told(outcome):
                return self._given(asked, topic, found, told)
            return asked.command.reply(
                ResponseCode.PULL_NOT_FOUND, fields=told.fields, remark="NO_MESSAGE_IN_QUEUE"
            )

        self._ask(asked, PEEK, _peeking(group, topic, queue_id, count), queue_id, made)

    def _await(self, asked: Asked) -> None:
        """Tell when there is something to pop."""
        fields = asked.command.fields
        group, topic, queue_id = _place(fields)
        self._checks.check_group(group)
        self._check_queue(topic, queue_id, ResponseCode.INVALID_PARAMETER)
        wait_ms = _wait_ms(int64(fields, "pollTime"))

        def made(asked: Asked, outcome: Result | LedgerError) -> Command:
            is_full = isinstance(outcome, BusyError)
            if isinstance(outcome, LedgerError) and not is_full:
                return refusal(asked.command, outcome)
            has = not isinstance(outcome, LedgerError) and bool(_told(outcome))
            told = {"hasMsg": _java(has), "pollingFull": _java(is_full)}
            return asked.command.reply(fields=told)

        peek = _peeking(group, topic, queue_id, 1, wait_ms)
        peek[IN_ORDER] = flag(fields, "order")
        self._ask(asked, PEEK, peek, queue_id, made)

    def _show_polls(self, asked: Asked) -> Command:
        """How many pops wait for one queue, or for any (-1)."""
        group, topic, queue_id = _place(asked.command.fields)
        self._checks.check_group(group)
        self._check_queue(topic, queue_id, ResponseCode.INVALID_PARAMETER)
        wanted = group, topic, queue_id
        waits = (wait for of in self._waits.values() for wait in of.values())
        count = sum(wait[:3] == wanted for wait in waits)
        return asked.command.reply(fields={"pollingNum": str(count)})

    def _ack(self, asked: Asked) -> None:
        if self._relay.hand_on(asked):
            return
        message = self._popped_message(asked)
        self._settle(asked, "accept", message, lambda _until: {}, (DONE, SETTLED))

    def _change_time(self, asked: Asked) -> None:
        if self._relay.hand_on(asked):
            return
        message = self._popped_message(asked)
        delay_ms = int64(asked.command.fields, "invisibleTime")
        _check_time(delay_ms, 0)

        def told(until: int) -> dict[str, str]:
            return {
                "popTime": str(until - delay_ms),
                "invisibleTime": str(delay_ms),
                "reviveQid": str(revive_queue(message.mark)),
            }

        self._settle(asked, "extend", message, told, (DONE,), delay_ms=delay_ms)

    def _popped_message(self, asked: Asked) -> PoppedMessage:
        """The message that a request is about.

        Raises:
            CodedError: 13 for a queue that is none, 208 where nothing was handed out so.
            TopicUnknownError: there is no such topic.
        """
        _, topic, queue_id = _place(asked.command.fields)
        if queue_id < 0:
            raise CodedError(ResponseCode.MESSAGE_ILLEGAL, "no queue", queue=queue_id)
        self._check_queue(topic, queue_id, ResponseCode.MESSAGE_ILLEGAL)
        message = decode_popped(asked.command.fields)
        if message is None:
            raise CodedError(ResponseCode.NO_MESSAGE, "extraInfo is none of a message handed out")
        return message

    def _settle(
        self,
        asked: Asked,
        action: Action,
        message: PoppedMessage,
        told: Callable[[int], dict[str, str]],
        fine: tuple[str, ...],
        *,
        delay_ms: int = 0,
    ) -> None:
        """Answer with what becomes of one message.

        Args:
            told: the fields of the reply, of the time up to which it is invisible.
            fine: outcomes that are none to complain of.
        """

        def made(result: Result) -> Command:
            (row,) = _rows(result)
            if row["outcome"] in fine:
                return asked.command.reply(fields=told(int(str(row["until"]))))
            remark = f"message is not with this delivery any more: {row['outcome']}"
            return asked.command.reply(ResponseCode.NO_MESSAGE, remark=remark)

        arguments = _settling(message.group, action, [self._handle(message)], delay_ms)
        self._calls.answer(asked, _SETTLE, arguments, made)

    def _ack_all(self, asked: Asked) -> None:
        """Acknowledge messages of any topics; refused where none of them could be."""
        if self._relay.hand_on(asked):
            return
        command = asked.command
        by_group: dict[str, list[str]] = {}
        for message in decode_acks(command.body, count_max=HANDLES_MAX):
            by_group.setdefault(message.group, []).append(self._handle(message))
        if not by_group:
            raise CodedError(ResponseCode.NO_MESSAGE, "nothing is acknowledged")
        left, good, errors = len(by_group), 0, list[LedgerError]()

        def take(outcome: Result | LedgerError) -> None:
            nonlocal left, good
            left -= 1
            if isinstance(outcome, LedgerError):
                errors.append(outcome)
            else:
                good += sum(row["outcome"] in (DONE, SETTLED) for row in _rows(outcome))
            if not left:
                self._reply(asked, answer())

        def answer() -> Command:
            if errors:
                return refusal(command, errors[0])
            if good:
                return command.reply()
            remark = "none of the messages is with its delivery any more"
            return command.reply(ResponseCode.NO_MESSAGE, remark=remark)

        for group, handles in by_group.items():
            self._calls.ask(
                _SETTLE,
                _settling(group, "accept", handles),
                asked.now_ms,
                take,
                check_topic=asked.check_topic,
                owner=asked.owner,
            )

    def _handle(self, message: PoppedMessage) -> str:
        """The handle of a delivery: how often a message was handed out the table knows."""
        group, topic, queue_id, offset, mark = message
        queue = self._tables.shares.queues(group, topic).get(queue_id)
        run = None if queue is None else queue.find(offset)
        delivery = 1 if run is None or run.mark != mark else run.delivery
        return ShareHandle(group, topic, queue_id, offset, delivery, mark).text

    def _check_queue(self, name: str, queue_id: int, code: ResponseCode) -> None:
        """Refuse a queue that a topic has not; negative: any.

        Raises:
            CodedError: with ``code``.
            TopicUnknownError: there is no such topic.
        """
        topic = self._tables.topics.get(name)
        if topic is None:
            raise TopicUnknownError("topic does not exist", topic=name)
        if queue_id >= topic.read_queues:
            raise CodedError(
                code,
                "topic has no such queue",
                topic=name,
                queue=queue_id,
                queues=topic.read_queues,
            )

    def _rest(
        self, group: str, topic: str, queue_id: int, *, unless_held: Collection[int] | None = None
    ) -> int:
        """Messages that were never handed out to a group.

        Args:
            unless_held: but for queues of which something is handed out, and that are not these.
        """
        now_ms = epoch_ms(self._clock)
        known = self._tables.topics.get(topic)
        queues = range(0 if known is None else known.read_queues) if queue_id < 0 else [queue_id]
        taken = self._tables.shares.queues(group, topic)
        committed = self._tables.offsets.offsets(group, topic)
        rest = 0
        for number in queues:
            is_of_others = unless_held is not None and number not in unless_held
            if is_of_others and number in taken and taken[number].held_until(now_ms) is not None:
                continue
            bounds = self._store.bounds(QueueName(topic, number))
            begin = taken[number].next if number in taken else committed.get(number, bounds.first)
            rest += max(0, bounds.end - begin)
        return rest

    def _ask(
        self,
        asked: Asked,
        verb: str,
        arguments: Mapping[str, object],
        queue_id: int,
        made: Callable[[Asked, Result | LedgerError], Command],
    ) -> None:
        """Ask for messages, and answer now or once there are some.

        Raises:
            BusyError: too many of one owner wait.
        """
        command, connection = asked.command, asked.connection
        # What is kept for seconds must not keep the bytes that it was read with.
        kept = asked._replace(
            command=Command(command.code, command.opaque, flag=command.flag, kind=command.kind)
        )
        wait = _Wait(str(arguments["group"]), str(arguments["topic"]), queue_id, asked.owner)
        limit = max(1, self._limits.members_max // OWNERS_SHARE)
        if self._counts_of[wait.owner] >= limit:
            error = BusyError(
                "too many receives of one user or host wait for messages of share groups",
                waiting=self._counts_of[wait.owner],
                limit=limit,
                setting="limits.members_max",
                retry_after_ms=RETRY_AFTER_MS,
            )
            self._reply(asked, made(kept, error))
            return
        number = next(self._ids)
        self._waits.setdefault(connection.number, {})[number] = wait
        self._count(wait, 1)

        def take(outcome: Result | LedgerError) -> None:
            of = self._waits[connection.number]
            self._count(of.pop(number), -1)
            if not of:
                del self._waits[connection.number]
            if not connection.is_open and not isinstance(outcome, LedgerError):
                self._calls.take_back(outcome)
                return
            try:
                reply = made(kept, outcome)
            except LedgerError as error:
                # What was taken comes back when its time is over.
                reply = refusal(command, error)
            self._reply(kept, reply)

        self._calls.ask_for(
            connection,
            verb,
            arguments,
            asked.now_ms,
            take,
            check_topic=asked.check_topic,
            owner=asked.owner,
        )

    def _count(self, wait: _Wait, more: int) -> None:
        self._counts_of[wait.owner] += more
        if not self._counts_of[wait.owner]:
            del self._counts_of[wait.owner]


_SETTLE = SettleShared.NAME


def _settling(
    group: str, action: Action, handles: list[str], delay_ms: int = 0
) -> dict[str, object]:
    return {"group": group, "action": action, "handles": handles, "delay_ms": delay_ms}


def _peeking(
    group: str, topic: str, queue_id: int, count: int, wait_ms: int = 0
) -> dict[str, object]:
    found: dict[str, object] = {"group": group, "topic": topic, "max_messages": count}
    if queue_id >= 0:
        found["queue"] = queue_id
    return {**found, "wait_ms": wait_ms}


def _place(fields: Fields) -> tuple[str, str, int]:
    return text(fields, "consumerGroup"), text(fields, "topic"), int32(fields, "queueId")


def _wait_ms(poll_ms: int) -> int:
    """Reckoned from when the request has come: clocks of clients may be wrong."""
    return min(max(0, poll_ms), RECEIVE_WAIT_MS_MAX)


def _told(result: Result) -> list[SharedMessage]:
    """The messages of a result, of one of the node's own verbs."""
    return ReceiveShared("", "").told(result)


def _rows(result: Result) -> list[Mapping[str, object]]:
    rows = result["handles"]
    assert isinstance(rows, list), rows
    return rows


def _by_queue(found: list[SharedMessage]) -> dict[int, list[int]]:
    offsets: dict[int, list[int]] = {}
    for one in found:
        offsets.setdefault(one.queue, []).append(one.offset)
    return offsets


def _java(value: bool) -> str:
    return "true" if value else "false"


def _filter(request: PopRequest) -> str:
    """The expression as our own receives have it.

    Raises:
        FilterIllegalError: it is none, or of another kind.
    """
    expression, kind = request.expression, request.expression_type
    if not expression:
        return ALL_TAGS
    if kind == SQL92:
        return f"{SQL_MARK}{expression}"
    if kind != TAG:
        raise FilterIllegalError(
            "no such kind of filter", kind=kind[:64], allowed=f"{TAG}, {SQL92}"
        )
    return " || ".join(sorted(MessageFilter.as_rocketmq(expression).tags)) or ALL_TAGS


def _check_time(invisible_ms: int, minimum: int) -> None:
    if not minimum <= invisible_ms <= INVISIBLE_MS_MAX:
        raise CodedError(
            ResponseCode.INVALID_PARAMETER,
            "messages cannot be kept from others for so long, or so short",
            invisible_ms=invisible_ms,
            minimum=minimum,
            limit=INVISIBLE_MS_MAX,
        )


def _names_in_acks(command: Command) -> Named:
    for row in ack_rows(command.body):
        group, topic = ack_names(row)
        yield topic, Right.SUB
        yield group, None
