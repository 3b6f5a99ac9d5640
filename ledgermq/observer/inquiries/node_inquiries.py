"""Inquiries about the node and its group: status, raft, feature levels; a hand-over."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from ledgermq.broker.call_rights import Act, audit
from ledgermq.client.core.table_verbs import asking
from ledgermq.model.errors import NoPermissionError, TimedOutError
from ledgermq.model.features import LEVELS
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import Json
from ledgermq.verbs.upkeep import ShowFeatures

LOOK_AGAIN_S = 0.05
TRANSFER_S = 10.0


class NodeInquiries:
    """Any node answers about itself; who shall lead, only the leader says."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def status(self) -> Json:
        """As ``ledgermq status``.

        Raises:
            LedgerError: the supervisor does not answer.
        """
        return await self._inquirer.supervisor("status")

    async def raft(self) -> Json:
        """As ``ledgermq raft status``.

        Raises:
            LedgerError: raft does not answer, or the node has no group.
        """
        return await self._inquirer.raft("status")

    async def why_no_leader(self) -> Json:
        """As ``ledgermq raft why-no-leader``."""
        return await self._inquirer.raft("why-no-leader")

    async def features(self) -> Json:
        """As ``ledgermq cluster features``, of this node."""
        levels = await self._inquirer.node(lambda session: session.run(asking(ShowFeatures())))
        return {**levels._asdict(), "levels": [level._asdict() for level in LEVELS]}

    async def transfer(self, target: str) -> Json:
        """As ``ledgermq raft transfer``: when ``target`` leads, or not in time.

        Raises:
            NoPermissionError: the caller is no operator.
            NotLeaderError: this node does not lead.
            TimedOutError: the old leader leads on, or another one does.
        """
        try:
            self._inquirer.check_operator()
        except NoPermissionError as error:
            # What gets as far as raft is noted there.
            audit(Act(f"{self._inquirer.caller.name} (http)", "transfer", target), error)
            raise
        begin = time.monotonic()
        await self._inquirer.raft("transfer", target=target)
        while True:
            status = await self._inquirer.raft("status")
            if status["leader"] == target:
                break
            if time.monotonic() - begin >= TRANSFER_S:
                raise TimedOutError(
                    "the leadership was not handed over", target=target, leader=status["leader"]
                )
            await asyncio.sleep(LOOK_AGAIN_S)
        took_ms = round((time.monotonic() - begin) * 1_000)
        return {"leader": target, "term": cast("int", status["term"]), "took_ms": took_ms}
