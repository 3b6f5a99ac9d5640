"""kill -9 of every process in turn, and of all at once, while four producers send.

Every acknowledged message is in the log once, at the place that its acknowledgement named, each
producer's in order; one without acknowledgement at most once; readers see the same.
``LEDGERMQ_KILLS`` says how often each is killed.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from ledgermq.client import Consumer
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.store.store_view import StoreView
from tests.process.conftest import SOURCES, Node, is_alive, wait_until
from tests.process.kill_journal import JournalReader, Place
from tests.process.kill_producer import QUEUES
from tests.process.node_start import SERVE, Process, start_node
from tests.process.running import topics_document
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("LEDGERMQ_KILLS", "2"))
TOPIC = "kills"
VICTIMS = ("raft", "writer", "dispatcher", "broker", "supervisor", "all")
ROLES = {"raft": Role.RAFT, "writer": Role.WRITER, "dispatcher": Role.DISPATCHER} | {
    "broker": Role.BROKER
}
TIMEOUTS_S = (30.0, 30.0, 0.2, 0.001)
"""The last producers give up soon: what becomes of their messages they often, or never, know."""

PATIENT = 2
"""So many of the first ones wait for an acknowledgement as long as it takes; on a busy machine no
answer comes to the others in time."""


class Stored(NamedTuple):
    """A message where it was read: who sent it as which one, and its place."""

    unique_id: str
    place: Place
    producer: int
    sequence: int


@dataclass
class Run:
    """A node, its producers, and how long everything took to come back."""

    node: Node
    producers: list[Process] = field(default_factory=list)
    journals: list[JournalReader] = field(default_factory=list)
    again_s: dict[str, list[float]] = field(default_factory=dict)

    def start_producers(self) -> None:
        for number, timeout_s in enumerate(TIMEOUTS_S):
            journal = self.node.folder / f"journal-{number}"
            script = Path(__file__).with_name("kill_producer.py")
            words = [f"ipc://{self.node.runtime}", TOPIC, str(number), str(journal), str(timeout_s)]
            with self.node.log.open("ab") as log:
                started = start_node(
                    [str(script), *words],
                    environment={**os.environ, "PYTHONPATH": str(SOURCES)},
                    output=log.fileno(),
                )
            self.producers.append(started)
            self.journals.append(JournalReader(journal))

    def stop_producers(self) -> list[int]:
        for producer in self.producers:
            producer.terminate()
        ended = [producer.wait(PATIENCE_S) for producer in self.producers]
        for journal in self.journals:
            journal.refresh()
        return ended

    def wait_for_answers(self, since_ns: int) -> int:
        """When a frame that was sent later was acknowledged first.

        Waits until every patient producer has such an answer, and until the others know, or have
        given up, what became of such a frame.
        """
        answers: list[int] = []
        for number, journal in enumerate(self.journals):
            is_patient = number < PATIENT
            next_one = JournalReader.next_answer if is_patient else JournalReader.next_outcome
            answer = wait_until(
                lambda one=journal, ask=next_one: self._asked(ask, one, since_ns),
                f"{'an acknowledgement' if is_patient else 'an outcome'} for producer {number}",
                PATIENCE_S,
            )
            if is_patient:
                answers.append(answer)
        return min(answers)

    def kill(self, victim: str) -> None:
        """Kill, start again what nobody else starts, and wait until all producers go on."""
        node = self.node
        assert node.process is not None
        roles = [ROLES[victim]] if victim in ROLES else list(ROLES.values())
        pids = [self._pid(role) for role in roles]
        killed = [] if victim == "supervisor" else pids
        if victim not in ROLES:
            killed = [*killed, node.process.pid]
        killed_ns = time.monotonic_ns()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        if victim not in ROLES:
            node.wait_end()
            node.launch([*SERVE, str(node.config)])
        wait_until(lambda: not any(map(is_alive, pids)), f"death of {victim}")
        # What is sent from here on, no process that was killed can answer.
        answered_ns = self.wait_for_answers(time.monotonic_ns())
        self.again_s.setdefault(victim, []).append((answered_ns - killed_ns) / 1e9)

    def _asked(
        self,
        ask: Callable[[JournalReader, int], int | None],
        journal: JournalReader,
        since_ns: int,
    ) -> int | None:
        self.node.listen()
        assert self.node.process is not None
        assert self.node.process.poll() is None, self.node.log.read_text()
        return ask(journal, since_ns)

    def _pid(self, role: Role) -> int:
        def running() -> int:
            with CursorPage.attach(self.node.runtime / "cursors") as page:
                pid = page.read_process(role).pid
            return pid if pid and is_alive(pid) else 0

        return int(wait_until(running, f"{role.title} to run"))


@pytest.fixture(
    params=[
        ("dledger", "majority-fsync"),
        ("dledger", "majority-memory"),
        ("commitlog", "majority-fsync"),
    ],
    ids="-".join,
)
def run(make_node: Callable[[], Node], request: pytest.FixtureRequest) -> Iterator[Run]:
    log, ack = request.param
    node = make_node()
    node.configure(
        store={
            "log": log,
            "mapped_file_size_commit_log": 1_048_576,
            "mapped_file_size_consume_queue": 20_000,
            "max_hash_slot_num": 5_000,
            "max_index_num": 20_000,
        },
        ack={"mode": ack},
        supervision={"restarts_max": 1_000},
        log={"level": "WARNING"},
    )
    (node.root / "config").mkdir(parents=True)
    (node.root / "config" / "topics.json").write_text(topics_document(TOPIC, queues=QUEUES))
    made = Run(node)
    yield made
    for producer in made.producers:
        producer.kill()
        producer.wait()


def stored_as(unique_id: str, place: Place, body: bytes) -> Stored:
    producer, sequence, _ = body.split(b" ", 2)
    return Stored(unique_id, place, int(producer), int(sequence))


def in_log(node: Node) -> tuple[list[Stored], list[Stored]]:
    """All messages in the order of the log, and queue by queue as the ConsumeQueues have them."""
    view = StoreView(node.root)
    whole = [
        stored_as(m.unique_id, Place(m.queue_id, m.queue_offset, m.physical_offset), bytes(m.body))
        for _, _, m in view.log.iterate()
        if m.topic == TOPIC
    ]
    queued = [
        stored_as(
            m.unique_id, Place(queue.queue_id, queue_offset, m.physical_offset), bytes(m.body)
        )
        for queue, queue_offset, m in view.messages(TOPIC)
    ]
    view.close()
    return whole, queued


def received(node: Node) -> list[Stored]:
    """All messages as a consumer gets them, queue by queue."""
    queues: list[list[Stored]] = [[] for _ in range(QUEUES)]
    with Consumer(f"ipc://{node.runtime}", topic=TOPIC, start="first") as consumer:
        ends = consumer.ends()
        while consumer.offsets() != ends:
            batch = consumer.poll(20)
            assert len(batch), (consumer.offsets(), ends)
            queues[batch.queue_id] += [
                stored_as(
                    m.unique_id,
                    Place(m.queue_id, m.queue_offset, m.physical_offset),
                    bytes(m.body),
                )
                for m in batch
            ]
    return [message for queue in queues for message in queue]


def out_of_order(messages: list[Stored]) -> list[tuple[Stored, Stored]]:
    """Messages of one producer in one queue that stand before an earlier one of it."""
    last: dict[tuple[int, int], Stored] = {}
    wrong = []
    for message in messages:
        key = (message.producer, message.place.queue_id)
        if key in last and last[key].sequence >= message.sequence:
            wrong.append((last[key], message))
        last[key] = message
    return wrong


def show(run: Run, stored: int) -> None:
    """Print what came out; seen with ``-s``, or when the test fails."""
    acknowledged = sum(len(journal.places) for journal in run.journals)
    summary = {
        "kills_each": KILLS,
        "stored": stored,
        "acknowledged": acknowledged,
        "failed_frames": [dict(journal.failures) for journal in run.journals],
        "frames_not_sent": [dict(journal.not_sent) for journal in run.journals],
        "again_after_s": {
            victim: {"median": round(statistics.median(times), 3), "max": round(max(times), 3)}
            for victim, times in run.again_s.items()
        },
    }
    print(json.dumps(summary, indent=2))


@pytest.mark.long(but=1)
def test_no_death_loses_repeats_or_moves_a_message(run: Run) -> None:
    node = run.node
    node.launch([*SERVE, str(node.config)])
    run.start_producers()
    run.wait_for_answers(time.monotonic_ns())
    for _ in range(KILLS):
        for victim in VICTIMS:
            run.kill(victim)
    producers_ended = run.stop_producers()
    node_ended = node.stop()
    whole, queued = in_log(node)
    show(run, len(whole))
    told: dict[str, Place] = {}
    for journal in run.journals:
        told |= journal.places
    found = {message.unique_id: message.place for message in whole}
    times = Counter(message.unique_id for message in whole)
    sent = [sum(frame.count for frame in journal.frames.values()) for journal in run.journals]
    by_queue = sorted(whole, key=lambda message: message.place[:2])
    numbers = [0] * QUEUES
    for message in by_queue:
        numbers[message.place.queue_id] += 1

    assert (producers_ended, node_ended) == ([0] * len(TIMEOUTS_S), 0)
    assert not (node.root / "abort").exists()
    assert [journal.failures for journal in run.journals[:PATIENT]] == [{}] * PATIENT
    assert {id_: found.get(id_) for id_ in told if found.get(id_) != told[id_]} == {}
    assert {id_: count for id_, count in times.items() if count > 1} == {}
    assert [message for message in whole if message.sequence >= sent[message.producer]] == []
    assert out_of_order(whole) == []
    assert [message.place[:2] for message in by_queue] == [
        (queue_id, number) for queue_id in range(QUEUES) for number in range(numbers[queue_id])
    ]
    assert queued == by_queue

    node.serve()
    assert received(node) == queued
    assert node.stop() == 0
