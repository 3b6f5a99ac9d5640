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

from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder

from ledgermq.dispatcher import dispatcher
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import StopFlag
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
from ledgermq.writer import writer

MODULES = {Role.RAFT: raft_process, Role.WRITER: writer, Role.DISPATCHER: dispatcher}


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
    """raft, writer and dispatcher on directories of their own."""

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

    def start(self, *roles: Role, **changes: object) -> None:
        settings = replace(self.settings, **changes) if changes else self.settings
        for role in roles or MODULES:
            pid = os.fork()
            if pid == 0:
                _child(role, settings)
            self.pids[role] = pid

    def wait_ready(self) -> None:
        wait_for(
            lambda: (
                self.page.has_committed()
                and self.page.read_grant().granted
                and self.page.read_committed() == self.page.read_written()
            ),
            "the node to be ready",
        )

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

    def close(self) -> None:
        for role in list(self.pids):
            self.kill(role)
        self.page.close()
        shutil.rmtree(self.base)


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
