"""The many lives of one store: in each a node is killed at a point that a seed has chosen.

After every life a copy of what is left is recovered and dispatched by the product's own parts, and
judged: nothing that was acknowledged is lost, moved or doubled; every byte of the log is what was
written; queues and index are those that a rebuild from the log makes.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.formats.findings import Severity
from ledgermq.formats.index_file import IndexLayout
from ledgermq.model.config.settings import LogKind, Settings
from ledgermq.model.ids import Position
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.store_view import StoreView
from ledgermq.writer.log.log_opening import open_log
from tests.process.conftest import Node, is_alive, wait_until
from tests.process.kill_journal import JournalReader, Place
from tests.process.node_start import SOURCES, Process, start_node
from tests.process.running import topics_document

TOPIC = "lives"
QUEUES = 4
LOG_FILE_SIZE = 65_536
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "mapped_file_size_consume_queue": 4_000,
    "max_hash_slot_num": 100,
    "max_index_num": 700,
}
INDEX_FILE_SIZE = 32 * 400
"""DLedger's index files have the size of those that are there; RocketMQ takes its own alone."""

VICTIMS = (
    *[("writer", ""), ("dispatcher", ""), ("raft", ""), ("supervisor", ""), ("broker", "")],
    *[("writer", "data"), ("writer", "commitlog"), ("writer", "index"), ("writer", "ledgermq")],
    *[("dispatcher", "consumequeue"), ("dispatcher", "index"), ("dispatcher", "ledgermq")],
)
"""Whose calls count, and in which folder. A folder that the log has not got: nobody dies of it."""

DELETING = {
    "dledger": [("writer", "data"), ("writer", "data"), ("writer", "index")],
    "commitlog": [("writer", "commitlog")],
}
"""The same while old files are deleted, by the calls ``REMOVALS``."""

DELETING_BESIDE = [("dispatcher", "consumequeue"), ("dispatcher", "index")]

REMOVALS = ("unlink", "fsync")
"""A file of the log goes with its name, and then its folder is synced."""

REMOVALS_MAX = 8
RETENTION = {"bytes_max": "600KiB"}
MOMENTS = ("before", "within", "after")
CALLS_MAX = 150
ANSWERS_A_LIFE_MAX = 1_000
"""A node that did not die of its plan is killed from outside after so many acknowledgements."""

LIFE_S_MAX = 120.0

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Plan:
    """Who dies in a life, and when."""

    role: str
    folder: str
    call: int
    moment: str
    scope: str
    names: tuple[str, ...] = ()

    @classmethod
    def draw_removal(cls, chance: random.Random, log: str) -> Plan:
        """While old files are deleted; now and then at any other call."""
        if chance.random() < 0.2:
            return cls.draw(chance)
        role, folder = chance.choice(DELETING[log] + DELETING_BESIDE)
        names = (chance.choice(REMOVALS),)
        scope = chance.choice(("node", "process"))
        call = chance.randint(1, REMOVALS_MAX)
        return cls(role, folder, call, chance.choice(("before", "after")), scope, names)

    @classmethod
    def draw(cls, chance: random.Random) -> Plan:
        """Early calls, those of a start, as often as late ones."""
        call = int(math.exp(chance.uniform(0, math.log(CALLS_MAX))))
        scope = "node" if chance.random() < 0.7 else "process"
        role, folder = chance.choice(VICTIMS)
        return cls(role, folder, call, chance.choice(MOMENTS), scope)

    def as_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


class Lives:
    """A store, the producer that sends through all its lives, and the seed's plans.

    With ``deletes`` old files are deleted all the while: a life that nothing has ended goes on
    until the log begins later than it did.
    """

    def __init__(
        self,
        node: Node,
        log: str,
        seed: int,
        *,
        index_file_size: int = INDEX_FILE_SIZE,
        deletes: bool = False,
    ) -> None:
        self.node = node
        self.log = log
        self.deletes = deletes
        self.chance = random.Random(f"{log}-{seed}")
        self.plans = node.folder / "plan"
        self.died: list[str] = []
        node.configure(
            store={"log": log, "checkpoint_interval_ms": 100, "flush_interval_ms": 20, **SIZES},
            supervision={"restarts_max": 1_000},
            log={"level": "WARNING"},
            retention=RETENTION if deletes else {},
        )
        (node.root / "config").mkdir(parents=True)
        table = topics_document(TOPIC, queues=QUEUES)
        (node.root / "config" / "topics.json").write_text(table)
        if log == "dledger":
            index = node.root / "dledger-n7" / "index"
            index.mkdir(parents=True)
            (index / f"{0:020d}").touch()
            os.truncate(index / f"{0:020d}", index_file_size)
        self.settings: Settings = load_settings(node.config)
        self.journal = JournalReader(node.folder / "journal")
        self.producer: Process | None = None

    def start_producer(self) -> None:
        """It goes on through all lives."""
        script = Path(__file__).with_name("kill_producer.py")
        words = [f"ipc://{self.node.runtime}", TOPIC, "0", str(self.journal.path), "600"]
        with self.node.log.open("ab") as log:
            self.producer = start_node(
                [str(script), *words],
                environment={**os.environ, "PYTHONPATH": str(SOURCES)},
                output=log.fileno(),
            )

    def live(self) -> str:
        """One life, from a start to a death; what it died of."""
        chance = self.chance
        plan = Plan.draw_removal(chance, self.log) if self.deletes else Plan.draw(chance)
        self.plans.write_text(plan.as_json())
        script = Path(__file__).with_name("kill_point.py")
        self.node.launch([str(script), str(self.node.config), str(self.plans)])
        process = self.node.process
        assert process is not None
        enough = len(self.journal.places) + self.chance.randrange(ANSWERS_A_LIFE_MAX)
        beyond = self.log_begin() if self.deletes else -1
        family = {process.pid: psutil.Process(process.pid)}
        wait_until(
            lambda: self._has_lived(enough, beyond, family), f"an end of a life: {plan}", LIFE_S_MAX
        )
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        status = process.wait()
        wait_until(lambda: not any(map(is_alive, family)), "death of the node")
        assert status == -signal.SIGKILL, (status, self.node.log.read_text()[-3_000:])
        cause = self._cause()
        self.plans.unlink(missing_ok=True)
        self.died.append(cause)
        return cause

    def close(self) -> None:
        """End the producer."""
        if self.producer is not None:
            self.producer.kill()
            self.producer.wait()

    def log_begin(self) -> int:
        """Position of the log's oldest file, 0 before there is one."""
        folder = self.node.root / ("commitlog" if self.log == "commitlog" else "dledger-n7/data")
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return min(map(int, filter(str.isdecimal, names)), default=0)

    def _has_lived(self, enough: int, beyond: int, family: dict[int, psutil.Process]) -> bool:
        """Whether the node is dead, or was long enough at work after its planned death."""
        process = self.node.process
        assert process is not None
        self.node.listen()
        if process.poll() is not None:
            return True
        try:
            family.update({child.pid: child for child in psutil.Process(process.pid).children()})
        except psutil.NoSuchProcess:
            return False
        self.journal.refresh()
        return len(self.journal.places) > enough and self.log_begin() > beyond

    def _cause(self) -> str:
        path = Path(f"{self.plans}.died")
        text = path.read_text().strip() if path.exists() else ""
        path.unlink(missing_ok=True)
        return text or "node killed from outside"


def judge(lives: Lives, scratch: Path) -> int:
    """Judge a copy of what the lives have left so far; how many messages there are.

    Raises:
        AssertionError: something is not as it must be.
    """
    lives.journal.refresh()
    told: dict[str, Place] = dict(lives.journal.places)
    left, fresh = scratch / "left", scratch / "fresh"
    for target in (left, fresh):
        shutil.rmtree(target, ignore_errors=True)
    copy(lives.node.root, left)
    settings = replace(lives.settings, store=replace(lives.settings.store, path_root_dir=left))
    end = recovered_end(settings)
    dispatch(settings, end)
    copy(left, fresh)
    for name in ("consumequeue", "index"):
        shutil.rmtree(fresh / name, ignore_errors=True)
    (fresh / "ledgermq" / "dispatch-checkpoint").unlink(missing_ok=True)
    dispatch(replace(settings, store=replace(settings.store, path_root_dir=fresh)), end)

    layout = IndexLayout(slots=SIZES["max_hash_slot_num"], items=SIZES["max_index_num"])
    checked = check_store(left, CheckOptions(index_layout=layout))
    bad = [
        finding.as_text() for finding in checked.findings if finding.severity is not Severity.NOTE
    ]
    assert not bad, bad
    assert checked.end == end or not end
    with closing(StoreView(left)) as view:
        first = view.log.first
        whole = [
            (m.unique_id, Place(m.queue_id, m.queue_offset, m.physical_offset))
            for _, _, m in view.log.iterate()
            if m.topic == TOPIC
        ]
    judge_messages({id_: at for id_, at in told.items() if at.physical_offset >= first}, whole)
    if not lives.deletes:
        # Queues of a log that lost its beginning know more of it than the log itself.
        assert [queue[0] for queue in numbers_of(whole).values() if queue[0]] == []
        for name in ("consumequeue", "index"):
            assert contents(left / name) == contents(fresh / name), name
    assert not (left / "ledgermq" / "set-aside").exists()
    return len(whole)


def judge_messages(told: dict[str, Place], whole: list[tuple[str, Place]]) -> None:
    """All that was told is there, nothing twice, and queues have no gap."""
    found = dict(whole)
    times = Counter(unique_id for unique_id, _ in whole)
    assert {id_: found.get(id_) for id_, place in told.items() if found.get(id_) != place} == {}
    assert [id_ for id_, count in times.items() if count > 1] == []
    for queue_id, queue in numbers_of(whole).items():
        assert queue == list(range(queue[0], queue[0] + len(queue))), queue_id


def numbers_of(whole: list[tuple[str, Place]]) -> dict[int, list[int]]:
    """Queue offsets by queue, in the order of the log."""
    numbers: dict[int, list[int]] = {}
    for _, place in whole:
        numbers.setdefault(place.queue_id, []).append(place.queue_offset)
    return numbers


def copy(source: Path, target: Path) -> None:
    """Copy a store; what is a hole stays one."""
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


def recovered_end(settings: Settings) -> Position:
    """The log's end, once the product's recovery was there."""
    log = open_log(settings, is_in_use=False, sign_of_life=lambda: None)
    log.writer.close()
    return log.recovered.end.position


def dispatch(settings: Settings, end: Position) -> None:
    """Dispatch what is not dispatched yet."""
    spans = LogSpans.of(settings)
    builder = DispatchBuilder.open(
        settings.store, log_start=spans.start(), log_end=end, published=None
    )
    while builder.position < end:
        span = spans.span(builder.position)
        assert span is not None, builder.position
        builder.build(
            span.view, span.start, Position(min(end, span.end)), header_size=span.header_size
        )
    assert builder.queues.gaps == 0
    builder.flush()
    builder.close()
    spans.close()


def contents(folder: Path) -> list[Any]:
    """What the files below ``folder`` hold; index files are named by the time they were made."""
    by_name = folder.name != "index"
    return [
        (str(path.relative_to(folder)) if by_name else "", path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


def kinds_of_log() -> list[str]:
    """Names of the logs that have lives of their own."""
    return [LogKind.DLEDGER.value, LogKind.COMMITLOG.value]
