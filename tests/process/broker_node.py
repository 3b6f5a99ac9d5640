"""A node of which only the broker runs, on the store of a real Java broker."""

from __future__ import annotations

import hashlib
import os
import pickle
import select
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.properties import decode_properties
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import CursorPage, Dispatched, LogCursor, Role
from ledgermq.ipc.doorbell import Bell
from ledgermq.model.config.settings import (
    LimitsSection,
    ListenSection,
    LogKind,
    NodeSection,
    ReadsSection,
    Settings,
    StoreSection,
    TopicsSection,
)
from ledgermq.model.ids import Index, Position, Term
from ledgermq.process.table_files import UnsettledTables
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.wire.pull_frame import PullStatus
from tests.process.node_start import SOURCES, Process, start_node
from tests.process.raw_consumer import RawConsumer
from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder

CODE = (
    "import pickle, sys; from ledgermq.broker import broker_process; "
    "from ledgermq.ipc.loop import StopFlag; stop = StopFlag(); stop.install(); "
    "sys.exit(broker_process.run(pickle.loads(sys.stdin.buffer.read()), stop))"
)
ANYTHING = 2**62


@dataclass
class BrokerNode:
    """A node of which only the broker runs; the test is its supervisor, writer and dispatcher."""

    settings: Settings
    page: CursorPage
    context: zmq.Context[Any]
    log_end: int
    child: Process | None = None
    clients: list[RawConsumer] = field(default_factory=list)
    bell: Bell | None = None

    @property
    def runtime(self) -> Path:
        return self.settings.listen.runtime_dir

    @property
    def config(self) -> Path:
        return self.settings.store.path_root_dir / "config"

    def start(self) -> None:
        with tempfile.TemporaryFile() as settings:
            settings.write(pickle.dumps(self.settings))
            settings.seek(0)
            self.child = start_node(
                ["-c", CODE],
                environment={**os.environ, "PYTHONPATH": str(SOURCES)},
                output=2,
                given=settings.fileno(),
            )

    def client(self, **how: Any) -> RawConsumer:
        client = RawConsumer(self.runtime, **how)
        self.clients.append(client)
        return client

    def dispatch(self, position: int, *, generation: int = 0, written: int | None = None) -> None:
        """Publish as the dispatcher does, and ring."""
        end = LogCursor(Position(position if written is None else written), Index(0), Term(1))
        self.page.publish_written(end, 0)
        self.page.publish_committed(end._replace(position=Position(position)))
        self.page.publish_dispatched(
            Dispatched(Position(position), 0, 0, time.monotonic_ns(), generation)
        )
        if self.bell is None:
            self.bell = Bell(self.context, self.runtime, self.page, Role.BROKER)
        self.bell.ring()

    def count(self, counter: BrokerCounter) -> int:
        return int(self.page.counters(Role.BROKER)[counter])

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline
            select.select([], [], [], 0.002)

    def signal(self, number: int) -> int:
        assert self.child is not None
        self.child.send_signal(number)
        status = self.child.wait(PATIENCE_S)
        self.child = None
        return status

    def close(self) -> None:
        for client in self.clients:
            client.close()
        if self.child is not None:
            self.child.kill()
            self.child.wait()
        self.context.destroy(linger=0)
        self.page.close()
        shutil.rmtree(self.runtime)


NodeMaker = Callable[..., BrokerNode]


@contextmanager
def broker_nodes(golden_copy: Callable[[str], Path]) -> Iterator[NodeMaker]:
    """``make("gd0")``: that broker's store, all of it dispatched, and our broker started on it."""
    made: list[BrokerNode] = []

    def make(
        name: str = "gd0",
        *,
        dispatched: int | None = None,
        start: bool = True,
        topics: TopicsSection | None = None,
        limits: LimitsSection | None = None,
        consume: str | None = None,
        produce: str | None = None,
        store: Mapping[str, Any] | None = None,
        reads: ReadsSection | None = None,
    ) -> BrokerNode:
        root = golden_copy(name)
        runtime = Path(tempfile.mkdtemp(prefix="brk", dir=short_folder()))
        settings = Settings(
            node=NodeSection(broker_cluster_name="C1", broker_name=name[:2]),
            store=StoreSection(
                path_root_dir=root,
                log=LogKind.DLEDGER if name[1] == "d" else LogKind.COMMITLOG,
                **(store or {}),
            ),
            listen=ListenSection(runtime_dir=runtime, consume=consume, produce=produce),
            topics=topics or TopicsSection(),
            limits=limits or LimitsSection(),
            reads=reads or ReadsSection(),
        )
        unsettled = UnsettledTables.find(root / "config")
        if unsettled is not None:
            # The writer's work; there are no commands of ours.
            unsettled.settle(0, lambda _queue: None)
        page = CursorPage.create(runtime / "cursors")
        one = BrokerNode(settings, page, zmq.Context(), log_end(root))
        made.append(one)
        if dispatched is None or dispatched > 0:
            one.dispatch(one.log_end if dispatched is None else dispatched)
        if start:
            one.start()
        return one

    yield make
    for one in made:
        one.close()


def readers(root: Path) -> dict[tuple[str, int], QueueReader]:
    return {
        (path.parent.name, int(path.name)): QueueReader(path, file_size=None)
        for path in sorted((root / "consumequeue").glob("*/*"))
    }


def log_end(root: Path) -> int:
    """Position behind the last message that has a unit."""
    ends = [0]
    for reader in readers(root).values():
        first, end = reader.bounds(ANYTHING)
        units = reader.units(first, end - first)
        ends += (units["position"].astype(int) + units["size"]).tolist()
    return max(ends)


def units_of(root: Path, topic: str, queue_id: int = 0) -> Any:
    reader = QueueReader(root / "consumequeue" / topic / str(queue_id), file_size=None)
    first, end = reader.bounds(ANYTHING)
    return reader.units(first, end - first)


def root_of(node: BrokerNode) -> Path:
    return node.settings.store.path_root_dir


def pull_all(client: RawConsumer, topic: str, queue_id: int, **wishes: Any) -> list[bytes]:
    """Every message of a queue, from its first one."""
    bounds = client.call("queue", topic=topic, queue=queue_id)
    offset, records = bounds["min"], []
    while offset < bounds["max"]:
        answer = client.pull(topic, queue_id, offset, **wishes)
        assert answer.status in (PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE)
        assert answer.pulled.next_offset > offset
        records += answer.records
        offset = answer.pulled.next_offset
    return records


def told(record: bytes) -> dict[str, Any]:
    """What the golden JSON tells of a message, read from its bytes."""
    message = decode_message(memoryview(record))
    return {
        "topic": message.topic,
        "queue": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": len(record),
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "bodyMd5": hashlib.md5(bytes(message.body)).hexdigest(),
        "UNIQ_KEY": dict(decode_properties(message.properties)).get("UNIQ_KEY"),
    }
