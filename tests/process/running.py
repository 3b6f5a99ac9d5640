"""Starts processes of a node for tests: forked, as the supervisor does, without a supervisor."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import zmq

from ledgermq.dispatcher import dispatcher
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.doorbell import Bell, Inbox
from ledgermq.ipc.loop import StopFlag
from ledgermq.ipc.orders import TopicsChanged, TopicsLoaded, encode, parse
from ledgermq.model.config.settings import (
    AckMode,
    AckSection,
    LimitsSection,
    ListenSection,
    LogKind,
    RetentionSection,
    Settings,
    StoreSection,
)
from ledgermq.raft_node import raft_process
from ledgermq.writer import writer_process
from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder

MODULES = {Role.RAFT: raft_process, Role.WRITER: writer_process, Role.DISPATCHER: dispatcher}

TELL_S = 0.002


def topics_document(*names: str, queues: int = 4) -> str:
    table = {
        name: {
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
        }
        for name in names
    }
    return json.dumps({"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table})


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        time.sleep(0.002)


class PartialNode:
    """raft, writer and dispatcher on directories of their own.

    What a broker would say to the writer, a process of the test's own says: that the topics in the
    file are all that there are.
    """

    def __init__(
        self,
        *,
        ack: AckMode = AckMode.MAJORITY_MEMORY,
        log: LogKind = LogKind.DLEDGER,
        limits: LimitsSection | None = None,
        file_size: int = 1_048_576,
        root: Path | None = None,
    ) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="lmq-", dir=short_folder()))
        self.root = root or self.base / "store"
        self.runtime = self.base / "run"
        self.runtime.mkdir()
        self.settings = Settings(
            store=StoreSection(
                path_root_dir=self.root,
                log=log,
                mapped_file_size_commit_log=file_size,
                checkpoint_interval_ms=200,
                flush_interval_ms=100,
            ),
            listen=ListenSection(runtime_dir=self.runtime),
            ack=AckSection(mode=ack),
            limits=limits or LimitsSection(),
            retention=RetentionSection(file_reserved_time=876_000, refuse_above="100%"),
        )
        config = self.root / "config"
        config.mkdir(parents=True, exist_ok=True)
        if not (config / "topics.json").exists():
            (config / "topics.json").write_text(topics_document("orders", "other"))
        self.page = CursorPage.create(self.runtime / "cursors")
        self.pids: dict[Role, int] = {}
        self._teller = os.fork()
        if self._teller == 0:
            _tell_topics(self.runtime)

    def start(self, *roles: Role, **changes: object) -> None:
        settings = replace(self.settings, **changes) if changes else self.settings
        for role in roles or MODULES:
            pid = os.fork()
            if pid == 0:
                _child(role, settings)
            self.pids[role] = pid

    def hold_commits(self) -> None:
        """Stop raft, and have the writer wait for it: it commits by itself else."""
        stat = Path("/proc", str(self.pids[Role.RAFT]), "stat")
        os.kill(self.pids[Role.RAFT], signal.SIGSTOP)
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "raft to stop")
        self.page.publish_run(None)

    def go_on_committing(self) -> None:
        """Have raft run again."""
        os.kill(self.pids[Role.RAFT], signal.SIGCONT)

    def wait_ready(self) -> None:
        wait_for(
            lambda: (
                self.page.has_committed()
                and self.page.read_grant().granted
                and self.page.read_committed() == self.page.read_written()
                and (not self._teller or self._is_told())
            ),
            "the node to be ready",
        )

    def _is_told(self) -> bool:
        told = self.page.read_counters(Role.BROKER)[BrokerCounter.TABLES_TERM]
        return told == self.page.read_grant().term

    def kill(self, role: Role, number: int = signal.SIGKILL) -> int:
        pid = self.pids.pop(role)
        os.kill(pid, number)
        return os.waitpid(pid, 0)[1]

    def stop(self) -> dict[Role, int]:
        """Stop in order; exit status by role."""
        order = (Role.WRITER, Role.RAFT, Role.DISPATCHER)
        return {
            role: os.waitstatus_to_exitcode(self.kill(role, signal.SIGTERM))
            for role in order
            if role in self.pids
        }

    def stop_telling(self) -> None:
        """From now on a writer that begins to lead, or is started, hears of no topics."""
        if self._teller:
            os.kill(self._teller, signal.SIGKILL)
            os.waitpid(self._teller, 0)
            self._teller = 0

    def close(self) -> None:
        for role in list(self.pids):
            self.kill(role)
        self.stop_telling()
        self.page.close()
        shutil.rmtree(self.base)


def topics_are_those_of_all(page: CursorPage) -> TopicsChanged | None:
    """What a broker tells that has read all of the log; None while nobody leads."""
    grant, writer_start = page.read_grant(), page.read_process(Role.WRITER).generation
    if not grant.granted:
        return None
    return TopicsChanged(1, term=grant.term, writer_start=writer_start)


def _tell_topics(runtime: Path) -> None:
    page = CursorPage.attach(runtime / "cursors")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    bell, inbox = Bell(context, runtime, page, Role.WRITER), Inbox(context, runtime, Role.BROKER)
    counts, known = page.counters(Role.BROKER), TopicsLoaded(0, 0, 0)
    while True:
        order = topics_are_those_of_all(page)
        if order is not None and (order.term, order.writer_start) != known[1:]:
            bell.send(encode(order))
        for message in inbox.drain(inbox.sources):
            answer = parse(message)
            if isinstance(answer, TopicsLoaded):
                known, counts[BrokerCounter.TABLES_TERM] = answer, answer.term
        time.sleep(TELL_S)


def _child(role: Role, settings: Settings) -> None:
    status = 3
    try:
        logging.basicConfig(level=logging.WARNING, stream=sys.stderr, force=True)
        stop = StopFlag()
        stop.install()
        status = MODULES[role].run(settings, stop)
    except BaseException:
        logging.exception("child failed")
    finally:
        os._exit(status)
