"""Codes by which brokers register at this node, as they do at RocketMQ's name servers."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial

from ledgermq.gateway.code_rights import BROKER
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.names.registered_brokers import RegisteredBrokers
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import AnswerRequest, Asked, Code, Freshness
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.model.errors import LedgerError, ProtocolError
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.registration import (
    WHOLE_KEY,
    RegisteredBroker,
    check_body,
    decode_registration,
    decode_version,
    encode_version,
    registered_broker,
)
from ledgermq.remoting.routes import LEADER_ID
from ledgermq.sessions.refusal_lines import RefusalLines

logger = logging.getLogger(__name__)

BODY_DIGEST_SIZE = 16
"""Bytes."""


class RegistrationCodes(PortPart):
    """Takes what brokers tell; the members of the node's own group tell nothing new."""

    def __init__(
        self,
        context: BrokerContext,
        brokers: RegisteredBrokers,
        orders: Callable[[], Mapping[str, str]],
    ) -> None:
        """Nobody has registered.

        Args:
            orders: where the queues of which topics are for ever, by topic.
        """
        self._addresses = context.addresses
        self._check_started = context.service.check_started
        self._counts = context.counts
        self._brokers = brokers
        self._orders = orders
        self._lines = RefusalLines()
        row = partial(Code, needs=BROKER, tables=Freshness.NONE)
        self.codes = (
            row(RequestCode.REGISTER_BROKER, self._telling(self._register)),
            row(RequestCode.UNREGISTER_BROKER, self._telling(self._unregister)),
            row(RequestCode.QUERY_DATA_VERSION, self._telling(self._compare)),
            row(RequestCode.BROKER_HEARTBEAT, self._telling(self._hear)),
        )

    def next_deadline_ms(self) -> int | None:
        return self._brokers.next_deadline_ms()

    def turn(self, now_ms: int) -> None:
        """Drop who is silent."""
        due_ms = self._brokers.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._brokers.expire(now_ms)
            self._count()

    def forget(self, connection: Connection) -> None:
        """A connection has ended: with it its broker is gone."""
        self._brokers.forget(connection.number)
        self._count()

    def _telling(self, answer: AnswerRequest) -> AnswerRequest:
        """``answer``, with a line in the log about a refusal: brokers ask again all the time."""

        def told(asked: Asked) -> Command | None:
            try:
                return answer(asked)
            except LedgerError as error:
                host = asked.connection.peer[0]
                if self._lines.is_news(host, error.message, asked.now_ms / 1_000):
                    logger.warning("broker is refused: peer=%s reason=%s", host, error)
                raise

        return told

    def _register(self, asked: Asked) -> Command:
        command = asked.command
        broker = registered_broker(command.fields)
        if not self._is_own(broker):
            check_body(command.fields, command.body)
            digest = _digest(command)
            number, now_ms = asked.connection.number, asked.now_ms
            if self._brokers.repeats(broker, digest):
                self._brokers.hear(broker.address, connection=number, now_ms=now_ms)
            else:
                told = decode_registration(command.fields, command.body)
                self._brokers.register(
                    broker, told, connection=number, now_ms=now_ms, digest=digest
                )
                self._count()
        fields = {} if broker.id == LEADER_ID else self._master_of(broker.name)
        return command.reply(fields=fields, body=self._order_table())

    def _unregister(self, asked: Asked) -> Command:
        broker = registered_broker(asked.command.fields)
        if not self._is_own(broker):
            self._brokers.unregister(broker)
            self._count()
        return asked.command.reply()

    def _compare(self, asked: Asked) -> Command:
        """Whether a broker's topics are others than those that it has told, or it is not known."""
        broker = registered_broker(asked.command.fields)
        if self._is_own(broker):
            return asked.command.reply(fields={"changed": "false"}, body=asked.command.body)
        asked_for = decode_version(asked.command.body)
        known = self._brokers.version_of(broker.address)
        if known == asked_for:
            self._hear_over(asked, broker)
        changed = "false" if known == asked_for else "true"
        body = b"" if known is None else encode_version(known)
        return asked.command.reply(fields={"changed": changed}, body=body)

    def _hear(self, asked: Asked) -> Command:
        self._hear_over(asked, registered_broker(asked.command.fields))
        return asked.command.reply()

    def _hear_over(self, asked: Asked, broker: RegisteredBroker) -> None:
        self._brokers.hear(broker.address, connection=asked.connection.number, now_ms=asked.now_ms)

    def _is_own(self, broker: RegisteredBroker) -> bool:
        """Whether it is a member of this node's group, whose tables say all about it.

        Raises:
            ProtocolError: it is none, and has the group's name.
        """
        if broker.name != self._addresses.broker:
            return False
        if not self._addresses.has(broker.address):
            raise ProtocolError(
                "broker name is that of this node's group, and the address is no member's: give the"
                " other broker a name of its own (node.broker_name, RocketMQ's brokerName), or the"
                " member its address (remoting.addresses)",
                name=broker.name,
                address=broker.address,
                cluster=self._addresses.cluster,
            )
        return True

    def _master_of(self, name: str) -> dict[str, str]:
        """What slaves of RocketMQ's are told: where they get offsets and groups, and the log."""
        master = self._brokers.master_of(name)
        return {} if master is None else {"masterAddr": master[0], "haServerAddr": master[1]}

    def _order_table(self) -> bytes:
        """What RocketMQ's brokers are told of ordered topics; nothing while it may be old."""
        try:
            self._check_started()
        except LedgerError:
            return b""
        orders = self._orders()
        return encode_body({"table": dict(orders)}) if orders else b""

    def _count(self) -> None:
        self._counts[BrokerCounter.REGISTERED_BROKERS] = len(self._brokers)


def _digest(command: Command) -> bytes:
    """Digest of all that a broker tells besides who it is."""
    digest = hashlib.blake2b(command.body, digest_size=BODY_DIGEST_SIZE)
    for name in ("compressed", "haServerAddr", WHOLE_KEY):
        digest.update(f"\n{command.fields.get(name)}".encode(errors="replace"))
    return digest.digest()
