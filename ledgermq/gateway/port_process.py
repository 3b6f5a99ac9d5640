"""Port process: serves connections of RocketMQ's clients beside others of its kind.

It writes no file. It reads what the broker does: queues and log as far as they are dispatched, and
the tables from the broker's files and the log; and it asks the broker for all else
(``broker_link``). What its clients store goes to the writer's socket.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ledgermq.broker.pulls.holds import Holds
from ledgermq.broker.pulls.pull_service import PullService
from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.reading.damage_reports import DamageReports
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.reading.store_upkeep import StoreUpkeep
from ledgermq.broker.state.state_reader import StateReader
from ledgermq.gateway.port_requests import PortRequests
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import LOOK_AGAIN_MS, Pollable, StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.process.node import Surroundings
from ledgermq.process.worker_main import run_worker
from ledgermq.sessions.leadership.standing import ReaderStanding
from ledgermq.sessions.request_faults import RequestFaults
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.wire.session import Standing

logger = logging.getLogger(__name__)


class PortWorker:
    """What one turn of a port process does."""

    def __init__(self, environment: Surroundings, tables: AppliedTables) -> None:
        settings = environment.settings
        self._inbox = environment.inbox
        self._raft = environment.bell(Role.RAFT)
        self._counts = environment.page.counters(environment.role)
        faults = RequestFaults(self._counts)
        self._store = ReadableStore(
            environment.page,
            settings,
            DamageReports(self._raft, environment.clock),
            first_offset=tables.first_offset,
        )
        self._reader = StateReader(
            self._store,
            tables,
            lambda _at, _label, _applied: None,
            counts=self._counts,
            clock=environment.clock,
        )
        self._pulls = PullService(
            self._store,
            Holds(
                limit=settings.limits.held_pulls_max, share=settings.limits.held_pulls_per_client
            ),
            KnownTopics(self._store, tables).check_queue,
            filters_properties=settings.reads.enable_property_filter,
            counts=self._counts,
            contain=lambda error: faults.refusal(error, "pull"),
            clock=environment.clock,
        )
        self._standing = ReaderStanding(environment.page, settings.store.log)
        self.requests = PortRequests(environment, tables, self._pulls, self._counts)
        self._pulls.send = self.requests.send_answers
        self._upkeep = StoreUpkeep(self._store)
        self._untold: Standing | None = None

    def sources(self) -> list[Pollable]:
        """The inbox, and all sockets behind one descriptor."""
        return [*self._inbox.sources, self.requests.fileno()]

    def sleep_ms(self, now_ns: int) -> int:
        """Milliseconds until the first deadline; 0 while queues with holds wait to be looked at."""
        if self._pulls.is_behind or self._standing.has_news or self._reader.is_behind:
            return 0
        deadlines = (self._pulls.next_deadline_ms(), self.requests.next_deadline_ms())
        # One millisecond more: the clock's rest below a millisecond is not to be polled away.
        waits = [
            max(0, deadline - now_ns // 1_000_000) + 1
            for deadline in deadlines
            if deadline is not None
        ]
        return min([*waits, LOOK_AGAIN_MS])

    def hears_bells(self, now_ns: int) -> bool:
        """True while somebody waits for messages, or for this node to lead.

        Raft rouses it when another node leads.
        """
        del now_ns
        return self._pulls.held > 0 or self._standing.awaits_dispatch

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """News of the log, requests, growth of queues, deadlines; then what has to be written."""
        now_ms = now_ns // 1_000_000
        # Bells; nobody sends it orders.
        self._inbox.drain(ready)
        # First: what it goes by is applied below.
        standing = self._standing.look() or self._untold
        if self._store.look():
            self._pulls.notice_growth(now_ms)
        self._reader.apply()
        begins = standing is not None and standing.leads
        self._untold = standing if begins and self._reader.is_behind else None
        if standing is not None and self._untold is None:
            self.requests.tell_standing(standing)
        if self.requests.take(now_ms):
            self._upkeep.note_use(now_ms)
        self._pulls.turn(now_ms)
        self.requests.flush()
        self._upkeep.let_go(now_ms)
        self._upkeep.tidy(now_ms)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access and limits count from now on."""
        self.requests.take_settings(settings)
        self._pulls.take_settings(settings)

    def finish(self) -> None:
        """Answer all who wait for messages."""
        self._store.look()
        self._pulls.end_all()
        self.requests.flush()

    def close(self) -> None:
        """End all connections."""
        self.requests.close()
        self._counts.release()
        self._raft.close()


def run(role: Role, settings: Settings, stop: StopFlag) -> int:
    """Run the port process ``role`` until it is told to stop; the exit status.

    Raises:
        ConfigError, CorruptLogError: a table cannot be read, or an address not listened at.
        StorageError: the disk refused.
    """
    config = StorePaths.of(settings).topics.parent
    return run_worker(
        role,
        settings,
        stop,
        lambda environment: PortWorker(environment, AppliedTables(config, settings)),
    )
