"""Codes of pulls by RocketMQ's consumers, answered by the broker's pull service.

A pull that finds nothing is held by ``PullService`` like one of our own clients': no thread, no
timer. What a reply's code and offsets mean is RocketMQ's ``PullMessageProcessor``; records go out
as they lie in the log, with nothing between them.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import NamedTuple

from ledgermq.broker.callers import Client
from ledgermq.broker.pulls.pull_answers import Answer, Payload
from ledgermq.formats.kernels.kernel import join_records
from ledgermq.gateway.code_rights import both_rights
from ledgermq.gateway.consuming.pull_checks import PullChecks
from ledgermq.gateway.context import PortContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code, Taken, Where
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.model.errors import (
    LedgerError,
)
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.pull_request import decode_pull, pull_reply_fields
from ledgermq.store.record_parts import RecordParts
from ledgermq.wire.pull_frame import (
    HOLD_MS_MAX,
    Pull,
    PullStatus,
)

ASKED_MAX = 1_024
"""Most messages of one reply: what RocketMQ's consumers may ask for at most."""

BYTES_MAX = 1024 * 1024
"""Most bytes of one reply, unless its only message is larger. RocketMQ's 256 KiB are four messages
of 64 KiB."""

EXPIRY_STEP_MS = 250
"""Long polls end together in steps of this: their answers, and the pulls that follow them, share
turns of the loop. RocketMQ's end up to 5 s late."""

STEPPED_MIN_MS = 4 * EXPIRY_STEP_MS
"""Shorter ones end when their time does."""

_IDS = 2**32

_CODES = {
    PullStatus.FOUND: ResponseCode.SUCCESS,
    PullStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    PullStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    PullStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    PullStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}
"""All but those of an empty queue, where it depends on the offset."""


class _Held(NamedTuple):
    asked: Asked
    offset: int


class PullCodes(PortPart):
    """Owned by the port.

    Invariant: ``_held`` has what ``PullService`` holds for connections that are open, by the number
    that the port has given it.
    """

    def __init__(self, context: PortContext) -> None:
        self._quotas = context.quotas
        self._pulls = context.pulls
        self._pulls.know_hosts(_host_of)
        self._checks = PullChecks(context)
        self._commits = context.commits
        self._counts = context.counts
        self._reply = context.reply
        self._ids = itertools.count(1)
        self._held: dict[int, _Held] = {}
        self._held_of: dict[int, set[int]] = {}
        pulled = partial(
            Code,
            answer=self._pull,
            needs=both_rights("consumerGroup"),
            at=Where.PORT,
            taken=Taken.IF_NOBODY_WAITS,
            is_for_sender=True,
        )
        self.codes = (pulled(RequestCode.PULL_MESSAGE), pulled(RequestCode.LITE_PULL_MESSAGE))

    @property
    def held(self) -> int:
        """Pulls without a reply."""
        return len(self._held)

    def take_answer(self, answer: Answer) -> None:
        """Answer a pull that was held."""
        held = self._held.pop(answer.request_id, None)
        if held is None:
            return
        asked = held.asked
        number = asked.connection.number
        of = self._held_of[number]
        of.discard(answer.request_id)
        if not of:
            del self._held_of[number]
        try:
            if answer.topic:
                # It may have lost the right while it was held.
                asked.check(answer.topic, Right.SUB)
            reply = self._answered(asked, answer, held.offset)
        except LedgerError as error:
            reply = refusal(asked.command, error)
        self._reply(asked, reply)

    def forget(self, connection: Connection) -> None:
        """A connection has ended: nobody waits there."""
        numbers = self._held_of.pop(connection.number, None)
        if numbers is None:
            return
        for number in numbers:
            del self._held[number]
        self._pulls.cancel(connection)

    def _pull(self, asked: Asked) -> Command | None:
        self._counts[BrokerCounter.PULLS] += 1
        connection, command = asked.connection, asked.command
        request = decode_pull(command)
        self._checks.check(request)
        wanted = self._checks.wanted(connection, request)
        self._quotas.check_read(asked, request.topic)
        if request.commit_offset is not None and request.commit_offset >= 0:
            self._commits.note(
                request.group,
                request.topic,
                request.queue_id,
                request.commit_offset,
                owner=asked.owner,
            )
        number = next(self._ids) % _IDS
        pull = Pull(
            number,
            request.topic,
            request.queue_id,
            request.queue_offset,
            min(max(request.max_messages, 1), ASKED_MAX),
            BYTES_MAX,
            _hold_ms(request.suspend_ms, asked.now_ms),
            wanted.tag_hashes,
            expression=wanted.sql,
        )
        answer = self._pulls.pull(connection, pull, asked.now_ms)
        if answer is not None:
            return self._answered(asked, answer, request.queue_offset)
        # What is kept for seconds must not keep the bytes that it was read with.
        kept = asked._replace(
            command=Command(command.code, command.opaque, flag=command.flag, kind=command.kind)
        )
        self._held[number] = _Held(kept, request.queue_offset)
        self._held_of.setdefault(connection.number, set()).add(number)
        return None

    def _answered(self, asked: Asked, answer: Answer, offset: int) -> Command:
        """The reply to a pull of messages from ``offset`` on."""
        command = asked.command
        if answer.error is not None:
            return refusal(command, answer.error)
        code = _CODES.get(answer.status)
        if code is None:
            # As in RocketMQ a consumer that is where the queue is going to begin just waits.
            stays = answer.next_offset == offset
            code = ResponseCode.PULL_NOT_FOUND if stays else ResponseCode.PULL_OFFSET_MOVED
        body: Payload = b""
        if answer.parts is not None:
            body = _records(answer.parts)
            self._counts[BrokerCounter.MESSAGES] += answer.messages
            self._counts[BrokerCounter.BYTES] += len(body)
            self._quotas.note_read(asked, answer.topic, size=len(body), messages=answer.messages)
        return command.reply(
            code,
            fields=pull_reply_fields(
                next_offset=answer.next_offset,
                min_offset=answer.begin,
                max_offset=answer.end,
                broker_id=0,
            ),
            body=body,
            remark=answer.status.name,
        )


def _records(parts: RecordParts) -> Payload:
    """The records, one directly behind the other: entries' headers lie between them in the log."""
    if parts.size == len(parts.payload):
        return parts.payload
    return memoryview(join_records(memoryview(parts.payload), parts.starts.data, parts.sizes.data))


def _host_of(client: Client) -> str:
    """Address of the host of a client of the port; empty for others."""
    return client.peer[0] if isinstance(client, Connection) else ""


def _hold_ms(suspend_ms: int, now_ms: int) -> int:
    hold_ms = min(max(suspend_ms, 0), HOLD_MS_MAX - EXPIRY_STEP_MS)
    return hold_ms if hold_ms < STEPPED_MIN_MS else hold_ms + -(now_ms + hold_ms) % EXPIRY_STEP_MS
