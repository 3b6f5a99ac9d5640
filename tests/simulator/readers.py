"""Simulated dispatcher and broker of a node, with what its clients connect to."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from ledgermq.broker.broker_process import BrokerWorker
from ledgermq.broker.state.broker_tables import ROWS_AT_ONCE_MAX, BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.dispatcher.dispatcher import DispatchWorker
from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.formats.config_json import APPLIED_KEY, encode_document
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.settings import Settings
from ledgermq.process.environment import Environment
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.groups import GroupTable
from ledgermq.rules.tables.topics import TopicTable
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.derived_files import own_path
from tests.simulator.machine.consumer_port import CONSUMERS_SOURCE, ConsumerPort
from tests.simulator.machine.events import Events
from tests.simulator.machine.process import Process

ROLES = (Role.DISPATCHER, Role.BROKER)
OTHER_BOOT = bytes(16)

MakeProcess = Callable[[Role, CursorPage], Process]
MakeEnvironment = Callable[[Process, CursorPage], Environment]


class ReadersHost(Protocol):
    """The node that they are of; ``page`` is None while it is off."""

    settings: Settings
    store: StorePaths
    events: Events
    random: Random
    page: CursorPage | None

    def report(self, role: Role, error: Exception) -> None:
        """A process has ended by itself."""
        ...


class Readers:
    """The present lives of both; each is started and killed alone.

    Attributes:
        port: where clients of the broker connect to; another one in each of its lives.
        tables: of the present broker; None while there is none.
        rows_at_once_max: larger tables of topics are written a second later.
        is_from_outside: the files that ``format`` makes do not say where in the log they stand.
    """

    def __init__(
        self, node: ReadersHost, process: MakeProcess, environment: MakeEnvironment
    ) -> None:
        self.port: ConsumerPort | None = None
        self.tables: BrokerTables | None = None
        self.is_from_outside = False
        self.rows_at_once_max = ROWS_AT_ONCE_MAX
        self._node = node
        self._make_process = process
        self._make_environment = environment
        self._processes: dict[Role, Process] = {}
        self._dispatcher: DispatchWorker | None = None
        self._broker: BrokerWorker | None = None

    @property
    def processes(self) -> list[Process]:
        """Lives that were begun, perhaps over."""
        return list(self._processes.values())

    @property
    def log(self) -> StateLog | None:
        """How the present broker changes its tables; None while there is none."""
        return None if self._broker is None else self._broker.state_log

    def living(self, role: Role) -> Process | None:
        """The present life of a process; None while there is none."""
        process = self._processes.get(role)
        return process if process is not None and process.alive else None

    def format(self, topics: TopicTable) -> None:
        """Tables as a first leader would have them, with ``topics``: all nodes begin alike."""
        settings, store = self._node.settings, self._node.store
        topics.add_builtin(settings.node, settings.topics, 0)
        groups = GroupTable.read({})
        groups.add_builtin(0)
        documents = {
            "topics.json": topics.to_document(),
            "subscriptionGroup.json": groups.to_document(),
            "consumerOffset.json": GroupOffsets().to_document(),
        }
        place = {} if self.is_from_outside else {APPLIED_KEY: 0}
        for file, document in documents.items():
            store.topics.with_name(file).write_bytes(encode_document({**document, **place}))

    def start(self, role: Role) -> None:
        """Begin a life of a process, if there is none."""
        page = self._node.page
        if page is None or self.living(role) is not None:
            return
        process = self._make_process(role, page)
        try:
            environment = self._make_environment(process, page)
            worker = self._begin(process, environment)
        except Exception as error:
            process.alive = False
            self._node.report(role, error)
            return
        self._processes[role] = process
        process.begin(worker)

    def kill(self, role: Role) -> None:
        """Its process is gone from one moment to the next; files and page stay as they are."""
        process = self._processes.pop(role, None)
        if process is None:
            return
        process.end()
        if role is Role.DISPATCHER:
            assert self._dispatcher is not None
            self._dispatcher.close()
            self._dispatcher = None
        else:
            # Not closed: it would write what a killed process does not.
            assert self.port is not None
            self.port.close()
            self._broker = self.tables = None

    def machine_restarted(self) -> None:
        """Let what was written before a power failure be of another boot."""
        path = own_path(self._node.store.root)
        saved = dispatch_checkpoint.read(path)
        if saved is not None:
            path.write_bytes(dispatch_checkpoint.encode(saved._replace(boot_id=OTHER_BOOT)))

    def _begin(self, process: Process, environment: Environment) -> DispatchWorker | BrokerWorker:
        settings = self._node.settings
        if process.role is Role.DISPATCHER:
            self._dispatcher = DispatchWorker(environment, LogSpans.of(settings))
            return self._dispatcher
        self.tables = BrokerTables(
            self._node.store.topics.parent,
            settings,
            clock=environment.clock,
            background=environment.background(),
            rows_at_once_max=self.rows_at_once_max,
        )
        self.port = ConsumerPort(
            self._node.events, self._node.random, lambda: process.notify(CONSUMERS_SOURCE)
        )
        self._broker = BrokerWorker(environment, self.tables, self.port.serve)
        return self._broker
