"""Checks of transactions: the broker's questions, passed on to gRPC producers.

RocketMQ 5's producers have no group: the topic stands for it. Whoever has declared the topic, and
may send to it, is asked.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ledgermq.client.broker_connection import AsyncBrokerClient
from ledgermq.client.sending.transaction_requests import (
    POLL_MS,
    HalfMessage,
    TransactionCheck,
    checks_steps,
    undecided_steps,
)
from ledgermq.formats.records.properties import TRANSACTION_CHECK_TIMES, TRANSACTION_ID
from ledgermq.gateway.rpc.clients import RpcClients
from ledgermq.gateway.rpc.definition import MessageType, make
from ledgermq.gateway.rpc.given_messages import given_message
from ledgermq.gateway.rpc.node_link import NAME
from ledgermq.gateway.rpc.sending import TransactionName
from ledgermq.ipc.counters import Counts, GrpcCounter
from ledgermq.model.errors import BodyUnreadableError, LedgerError

logger = logging.getLogger(__name__)

ASKED_MAX = 512
"""Topics of which it is asked at once; a broker lets one client wait for twice as many."""

FETCH_AGAIN_S = 1.0


class TransactionChecks:
    """Owned by the process's loop: one question for each declared topic waits at the broker."""

    def __init__(self, address: str, clients: RpcClients, counts: Counts) -> None:
        """Nothing is asked yet.

        Args:
            address: of the node itself.
        """
        self._clients = clients
        self._counts = counts
        self._broker = AsyncBrokerClient(
            address, name=f"{NAME} checks", timeout_s=POLL_MS / 1_000 + 15
        )
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Connect."""
        await self._broker.__aenter__()

    async def close(self) -> None:
        """Ask no more."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        self._broker.close()

    def look(self, *, leads: bool) -> None:
        """Ask for the topics that are declared now, if this node leads; call it now and then."""
        topics = self._clients.topics() if leads else set[str]()
        for topic in self._asking.keys() - topics:
            self._asking.pop(topic).cancel()
        for topic in sorted(topics - self._asking.keys()):
            if len(self._asking) >= ASKED_MAX:
                return
            self._asking[topic] = asyncio.create_task(self._ask(topic))

    async def _ask(self, topic: str) -> None:
        """Until it is cancelled: nobody declares the topic any more, or another node leads."""
        while True:
            try:
                for check in await self._broker.run(checks_steps(topic)):
                    await self._pass_on(check)
            except LedgerError as error:
                logger.debug("questions about transactions not fetched: %s: %s", topic, error)
                await asyncio.sleep(FETCH_AGAIN_S)

    async def _pass_on(self, check: TransactionCheck) -> None:
        """Ask about one transaction; a message that nobody can read is nobody's to be asked about,
        and keeps no other question back.
        """
        try:
            undecided = await self._broker.run(undecided_steps(check))
        except BodyUnreadableError as error:
            logger.warning(
                "nobody is asked about a transaction: id=%s: %s", check.transaction, error
            )
            return
        for half in undecided.messages:
            self._tell(check, half)

    def _tell(self, check: TransactionCheck, half: HalfMessage) -> None:
        """Ask one producer; what nobody answers is asked again."""
        message = given_message(
            half.topic,
            half.body,
            half.properties,
            tag=half.tag,
            keys=half.keys,
            message_id=half.unique_id,
            kind=MessageType.TRANSACTION,
            born_ms=half.born_timestamp,
            shown=(TRANSACTION_CHECK_TIMES, TRANSACTION_ID),
        )
        name = TransactionName(check.transaction, -1).text
        command: Any = make(
            "TelemetryCommand",
            recover_orphaned_transaction_command={"message": message, "transaction_id": name},
        )
        for client in self._clients.producers_of(half.topic):
            if client.tell(command):
                self._counts[GrpcCounter.CHECKS] += 1
                return
