"""Simulated node of a witness without bodies: its one process, on a simulated disk and clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.settings import Settings
from ledgermq.model.ids import NodeId
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.raft.roles.witness import KEEPS_NOTHING, WitnessState
from ledgermq.raft_node.witness.witness_process import WitnessFile, WitnessWorker
from ledgermq.store.files.store_paths import StorePaths
from tests.simulator.machine.disk import Disk
from tests.simulator.machine.events import Events, NodeClock
from tests.simulator.machine.network import PEERS_SOURCE, Network, PeersEnd
from tests.simulator.machine.process import Process, SimulatedInbox


@dataclass(slots=True)
class SimWitnessSurroundings:
    """The ``WorkerEnds`` of one life of the process."""

    settings: Settings
    paths: RuntimePaths
    page: CursorPage
    inbox: SimulatedInbox
    clock: NodeClock


class WitnessNode:
    """Machine, disk and process.

    Attributes:
        page: of its present start; None while it is off.
        kept: what it had made durable when it was looked at last.
        turned: called after each turn, and with each start.
        failed: called when its process ends by itself.
    """

    def __init__(
        self,
        settings: Settings,
        peers: list[NodeId],
        *,
        disk: Disk,
        clock: NodeClock,
        network: Network,
        events: Events,
        random: Random,
    ) -> None:
        self.name = NodeId(settings.node.self_id)
        self.disk = disk
        self.clock = clock
        self.page: CursorPage | None = None
        self.process: Process | None = None
        self.kept: WitnessState = KEEPS_NOTHING
        self.turned: Callable[[WitnessNode], None] = lambda node: None
        self.failed: Callable[[WitnessNode, Exception], None] = _raise
        self.step_ns = 0
        self.store = StorePaths.of(settings)
        self._settings = settings
        self._paths = RuntimePaths(settings.listen.runtime_dir)
        self._peers = peers
        self._network = network
        self._events = events
        self._random = random
        self._worker: WitnessWorker | None = None
        for folder in (self.store.own, self._paths.directory):
            folder.mkdir(parents=True)
        disk.format()

    @property
    def is_on(self) -> bool:
        """Whether it runs."""
        return self.page is not None

    @property
    def present(self) -> WitnessState:
        """What it has made durable; the last that is known while it is off."""
        return self.kept if self._worker is None else self._worker.kept

    def start(self) -> None:
        """Power on."""
        assert self.page is None, self.name
        self.page = page = CursorPage.create(self._paths.cursors)
        page.enter_process(Role.RAFT)
        self.process = process = Process(Role.RAFT, page, self.clock, self._events, self._random)
        process.step_ns = self.step_ns
        process.turned = lambda: self.turned(self)
        process.failed = lambda error: self.failed(self, error)
        peers = PeersEnd(
            self.name, self._peers, self._network, lambda: process.notify(PEERS_SOURCE)
        )
        surroundings = SimWitnessSurroundings(
            self._settings, self._paths, page, process.inbox, self.clock
        )
        self._worker = WitnessWorker(surroundings, WitnessFile(self.store.witness), peers)
        self.turned(self)
        process.begin(self._worker)

    def kill(self, *, power: bool) -> None:
        """It is gone from one moment to the next; with ``power`` also what was not synced."""
        if self.page is None or self._worker is None or self.process is None:
            return
        self.process.end()
        self._worker.close()
        self._worker = None
        self.page.close()
        self.page = None
        if power:
            self.disk.power_failure()

    def pause(self, until: int) -> None:
        """Stop the process until then, as SIGSTOP does."""
        if self.process is not None and self.process.alive:
            self.process.paused_until = until

    def wake(self) -> None:
        """It goes on."""
        if self.process is not None and self.process.alive:
            self.process.paused_until = 0
            self.process.wake()

    def set_step(self, step_ns: int) -> None:
        """Longest that its process is kept from the processor."""
        self.step_ns = step_ns
        if self.process is not None:
            self.process.step_ns = step_ns


def _raise(node: WitnessNode, error: Exception) -> None:
    raise error
