"""Codes of transactions by RocketMQ's producers: ends, and checks of those without one.

``END_TRANSACTION`` names the half message by its place. What it means is a transaction here: the
half message's unique id, which stays the same when it is stored anew to be asked for. Our own
producers fetch the questions with a call that waits; the port waits so for every group that a
connected client produces for, and hands on what it gets as ``CHECK_TRANSACTION_STATE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ledgermq.broker.calls import Result
from ledgermq.broker.reading.poison_messages import PoisonMessages
from ledgermq.formats.records.delayed_message import moved_to, real_queue
from ledgermq.formats.records.message import decode_message, properties_in
from ledgermq.formats.records.message_id import OffsetId, encode_offset_id
from ledgermq.gateway.code_rights import USER
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.errors import LedgerError, ProtocolError
from ledgermq.model.names.transactions import HALF_TOPIC, Decision
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fields import int32, int64, text
from ledgermq.rules.messages.transactions import read_half
from ledgermq.wire.session import Standing

WAIT_MS = 60_000
"""How long one call for questions waits."""

RETRY_MS = 5_000
"""Pause after a call was refused; a round of questions comes once a minute."""

DECISIONS = {8: Decision.COMMIT, 12: Decision.ROLLBACK}
"""``MessageSysFlag``: the transaction's bits; another number says that it is not known."""


class TransactionCodes(PortPart):
    """Owned by the port.

    Invariant: for each group in ``_asking`` one call waits for questions.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._poison = PoisonMessages(context.counts)
        self._calls = context.calls
        self._queries = context.queries
        self._clients = context.clients
        self._requests = context.requests
        self._leads = False
        self._asking: set[str] = set()
        self._turns: dict[str, int] = {}
        self._seen = -1
        self._retry_ms: int | None = None
        self.codes = (Code(RequestCode.END_TRANSACTION, self._end, USER),)

    def tell_standing(self, standing: Standing) -> None:
        """Only a leader asks; one that begins to lead asks for all groups."""
        self._leads = standing.leads
        self._seen = -1

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` calls again after a refusal."""
        return self._retry_ms

    def turn(self, now_ms: int) -> None:
        """Call for the questions to groups that have come since."""
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms, self._seen = None, -1
        if not self._leads or self._seen == self._clients.producer_changes:
            return
        self._seen = self._clients.producer_changes
        for group in self._clients.producer_groups:
            if group not in self._asking:
                self._call(group, now_ms)

    def _call(self, group: str, now_ms: int) -> None:
        self._asking.add(group)
        arguments = {"group": group, "wait_ms": WAIT_MS}
        self._calls.ask("transaction_checks", arguments, now_ms, partial(self._take, group, now_ms))

    def _take(self, group: str, now_ms: int, outcome: Result | LedgerError) -> None:
        self._asking.discard(group)
        if isinstance(outcome, LedgerError):
            # Another node leads, or this one does not know its half messages yet.
            self._retry_ms = self._retry_ms or now_ms + RETRY_MS
            return
        checks = outcome["checks"]
        assert isinstance(checks, list), checks
        for check in checks:
            for position in check["positions"]:
                ask = partial(self._question, group, position)
                self._poison.guarded(f"{HALF_TOPIC} position {position}", ask, None)
        # The group's next questions are called for in the next turn, if it is still there.
        self._seen = -1

    def _question(self, group: str, position: int) -> None:
        """Ask one producer of the group, in turns; what nobody answers is asked again.

        The question has the message in it: who may not send to its topic is not asked.
        """
        record = self._queries.record_at(position)
        real = None if record is None else real_queue(properties_in(record))
        if record is None or real is None:
            return
        clients = self._clients.clients_of(group)
        producers = [one.connection for one in clients if one.may_send(real.topic)]
        if not producers:
            return
        message = decode_message(record)
        unique_id = message.unique_id
        fields = {
            "tranStateTableOffset": str(message.queue_offset),
            "commitLogOffset": str(position),
            "msgId": unique_id,
            "transactionId": unique_id,
            "offsetMsgId": encode_offset_id(OffsetId(message.store_host, position)),
        }
        body = moved_to(record, real.topic.encode(), real.queue_id)
        turn = self._turns[group] = self._turns.get(group, -1) + 1
        connection = producers[turn % len(producers)]
        self._requests.tell(connection, RequestCode.CHECK_TRANSACTION_STATE, fields, body)

    def _end(self, asked: Asked) -> Command | None:
        command = asked.command
        if not self._leads:
            remark = "node does not lead: ask the one that does"
            return command.reply(ResponseCode.SLAVE_NOT_AVAILABLE, remark=remark)
        decision = DECISIONS.get(int32(command.fields, "commitOrRollback"))
        if decision is None:
            # As in RocketMQ nobody gets an answer: the producer is asked later.
            return None
        group, offset = (
            text(command.fields, "producerGroup"),
            int64(command.fields, "tranStateTableOffset"),
        )
        arguments: Mapping[str, object] = {
            "group": group,
            "transaction": self._transaction(command, group, offset),
            "decision": decision.value,
            "messages": 1,
            "offset": offset,
        }

        self._calls.answer(asked, "transaction_end", arguments)
        return None

    def _transaction(self, command: Command, group: str, offset: int) -> str:
        """The id of the transaction whose half message a request names.

        Raises:
            ProtocolError: another message is there.
        """
        position = int64(command.fields, "commitLogOffset")
        record = self._queries.record_at(position)
        if record is None:
            # Just stored, and in no queue yet: clients name the message, too.
            named = command.fields.get("msgId") or command.fields.get("transactionId")
            if not named:
                raise ProtocolError("no half message is there", commit_log_offset=position)
            return named
        message = decode_message(record)
        half = read_half(message)
        found = (message.topic, half.group, half.offset)
        if found != (HALF_TOPIC, group, offset) or not half.transaction:
            raise ProtocolError(
                "half message is another one",
                commit_log_offset=position,
                found=found,
                expected=(HALF_TOPIC, group, offset),
            )
        return half.transaction
