"""Inquirers: who asks, and the ways to what answers: the broker, the supervisor, and raft."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

from ledgermq.members.roster import MIRROR_SOURCE
from ledgermq.model.config.settings import HttpSection
from ledgermq.model.errors import NoPermissionError, NotLeaderError
from ledgermq.observer.callers import HttpCaller
from ledgermq.observer.health_source import ANSWER_S, HealthSource
from ledgermq.observer.inquiries.broker_sessions import BrokerSessions, Inquire
from ledgermq.observer.inquiries.cluster_survey import ClusterSurvey
from ledgermq.observer.inquiries.looks import Looks
from ledgermq.observer.metrics.mirror_looks import MirrorLooks
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.wire.session import ACCOUNT

Answer = TypeVar("Answer")


def members_of(http: HttpSection) -> dict[str, str]:
    """URLs of members by their names, without a slash at the end."""
    pairs = (entry.partition("=") for entry in http.members)
    return {name: url.rstrip("/") for name, _, url in pairs}


class Sources:
    """What all inquirers of one observer share.

    Attributes:
        members: where other members of the group are asked over HTTP: URLs by their names.
        looks: places of those who look at messages.
        mirrors: looks at mirrors; None: of a program that is no observer.
        cluster: looks at the groups of the cluster; None: the same.
    """

    def __init__(
        self,
        paths: RuntimePaths,
        health: HealthSource,
        thread: Executor,
        members: Mapping[str, str],
        mirrors: MirrorLooks | None = None,
        *,
        cluster: ClusterSurvey | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            thread: for questions to the control sockets.
        """
        self.paths = paths
        self.health = health
        self.thread = thread
        self.members = members
        self.mirrors = mirrors
        self.cluster = cluster
        self.sessions = BrokerSessions(f"ipc://{paths.directory}")
        self.looks = Looks()

    def close(self) -> None:
        """End the sessions."""
        self.sessions.close()
        self.looks.close()
        if self.cluster is not None:
            self.cluster.close()


class Inquirer:
    """One caller, as each subject's inquiries ask for it."""

    def __init__(self, sources: Sources, caller: HttpCaller) -> None:
        self.sources = sources
        self.caller = caller

    async def leader(self, inquire: Inquire[Answer]) -> Answer:
        """What the broker of this node answers, which has to be the leader.

        Raises:
            NotLeaderError: it is not; ``leader`` of the details is who is, with ``url`` where the
                settings name it. Without ``leader`` nobody is known to lead.
            LedgerError: the broker refused, or did not answer.
        """
        health = await self.sources.health.health()
        if not health["leads"]:
            await self._check_is_no_mirror()
            raise self._elsewhere(health["leader"], health["why_not_leading"])
        return await self.node(inquire)

    async def look(self, inquire: Inquire[Answer]) -> Answer:
        """What the leader answers a caller that looks at messages, when it is its turn.

        Raises:
            NoPermissionError: the caller only sees names and numbers.
            BusyError: its turn did not come.
            LedgerError: as of ``leader``.
        """
        self.check_sees_messages()
        async with self.sources.looks.place(self.caller):
            return await self.leader(inquire)

    async def node(self, inquire: Inquire[Answer]) -> Answer:
        """What the broker of this node answers, whoever leads.

        Raises:
            LedgerError: it refused, or did not answer.
        """
        return await self.sources.sessions.ask(self.caller, inquire)

    async def supervisor(self, verb: str) -> dict[str, object]:
        """What the supervisor answers.

        Raises:
            LedgerError: it refused, or did not answer.
        """
        return await self._control(self.sources.paths.control, verb)

    async def raft(self, verb: str, **fields: object) -> dict[str, object]:
        """What raft answers; the node's notes of it have the caller's name.

        Raises:
            LedgerError: it refused, or did not answer.
        """
        told = {**fields, "speaks_for": f"{self.caller.name} (http)"}
        return await self._control(self.sources.paths.raft_control, verb, **told)

    def check_sees_messages(self) -> None:
        """Refuse who only looks, also where there is no message for the broker to refuse.

        Raises:
            NoPermissionError: the caller only looks.
        """
        if self.caller.only_looks:
            raise NoPermissionError(
                "who may only look sees no message, and changes nothing", user=self.caller.name
            )

    def check_operator(self) -> None:
        """Refuse who may not do what the node's operators alone may at its control sockets.

        Raises:
            NoPermissionError: the caller has no admin's token, nor root's or the node's account.
        """
        caller = self.caller
        is_operators = caller.kind == ACCOUNT and caller.uid in (0, os.geteuid())
        if not (caller.is_admin or is_operators):
            raise NoPermissionError(
                "only an admin's token, root and the node's own account may do that",
                user=caller.name,
            )

    async def _control(self, path: Path, verb: str, **fields: object) -> dict[str, object]:
        def ask() -> dict[str, object]:
            return control.ask(path, verb, timeout_s=ANSWER_S, **fields)

        return await asyncio.get_running_loop().run_in_executor(self.sources.thread, ask)

    async def _check_is_no_mirror(self) -> None:
        """Say where the source is; nothing of a node that is no mirror.

        Raises:
            NotLeaderError: this node is a mirror.
        """
        looks = self.sources.mirrors
        if looks is None or not looks.is_mirror:
            return
        own = await looks.own()
        url = {} if own is None or not own["source"] else {"url": own["source"]}
        raise NotLeaderError(
            "this node is a mirror: only its source answers that", leader=MIRROR_SOURCE, **url
        )

    def _elsewhere(self, leader: str, why: str) -> NotLeaderError:
        details = {"leader": leader} if leader else {}
        url = self.sources.members.get(leader, "")
        if url:
            details["url"] = url
        reason = why or "nobody is known to lead"
        return NotLeaderError(f"only the leader answers that: {reason}", **details)
