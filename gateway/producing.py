"""Codes of RocketMQ's producers in one piece: sends, transactions, replies."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence

from ledgermq.gateway.client_requests import ClientRequests
from ledgermq.gateway.client_sockets import ClientSockets
from ledgermq.gateway.client_table import ClientTable
from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.port_quotas import PortQuotas
from ledgermq.gateway.produce_codes import ProduceCodes
from ledgermq.gateway.reply_codes import ReplyCodes
from ledgermq.gateway.requests import Asked, Codes
from ledgermq.gateway.send_topics import SendTopics
from ledgermq.gateway.transaction_codes import TransactionCodes
from ledgermq.gateway.writer_link import WriterLink
from ledgermq.ipc.counters import Counts
from ledgermq.process.environment import Environment
from ledgermq.remoting.command import Command
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.query_service import QueryService
from ledgermq.wire.session import Standing


class Producing:
    """Owned by the port, which tells it of its turns.

    Attributes:
        codes: who answers which request.
        sends: those of them that concern the writer alone, unless a topic is to be made.
    """

    def __init__(
        self,
        around: Environment,
        tables: BrokerTables,
        queries: QueryService,
        *,
        calls: PortCalls,
        clients: ClientTable,
        requests: ClientRequests,
        sockets: ClientSockets,
        epoll: select.epoll,
        reply: Callable[[Asked, Command], None],
        quotas: PortQuotas,
        store_host: str,
        counts: Counts,
    ) -> None:
        """What producers need.

        Args:
            epoll: gets what wakes the link to the writer.
            store_host: of this node, as ``host:port``.
            counts: the broker's counters.
        """
        self._now_ms = around.clock.monotonic_ns() // 1_000_000
        self._writer = WriterLink(around, epoll, greeted=sockets.listen)
        self._produce = ProduceCodes(
            around,
            tables,
            topics=SendTopics(tables, calls),
            writer=self._writer,
            reply=reply,
            send_bytes=sockets.send_bytes,
            quotas=quotas,
        )
        self._transactions = TransactionCodes(
            calls,
            queries,
            clients=clients,
            requests=requests,
            reply=reply,
            counts=counts,
        )
        answers = ReplyCodes(
            self._produce,
            clients,
            requests,
            reply=reply,
            clock=around.clock,
            store_host=store_host,
        )
        self.sends = frozenset(self._produce.codes)
        self.codes: Codes = {
            **self._produce.codes,
            **self._transactions.codes,
            **answers.codes,
        }

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has something to do that no descriptor tells of."""
        writer_ms = self._writer.next_deadline_ms()
        asks_ms = self._transactions.next_deadline_ms()
        return writer_ms if asks_ms is None else min(asks_ms, writer_ms or asks_ms)

    def turn(self, now_ms: int) -> None:
        """Take the writer's answers, and send it what has come."""
        self._now_ms = now_ms
        self._transactions.turn(now_ms)
        self._writer.advance(now_ms)

    def advance(self, now_ms: int) -> None:
        """What ``turn`` does for messages alone."""
        self._now_ms = now_ms
        self._writer.advance(now_ms)

    @property
    def descriptors(self) -> Sequence[int]:
        """Those in the port's ``epoll`` that tell of the writer."""
        return self._writer.descriptors

    def flush(self) -> None:
        """Send the writer what has waited for something else until now."""
        if self._writer.has_gathered:
            self._writer.advance(self._now_ms)

    def tell_standing(self, standing: Standing) -> None:
        """This node is something else in its group now, or another one leads."""
        self._produce.tell_standing(standing)
        self._transactions.tell_standing(standing)

    def close(self) -> None:
        """Tell all who wait for the writer that nobody knows."""
        self._writer.close()
