"""One run: a group, clients of all kinds, faults, a calm, a judgement."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledgermq.client import Admin, Producer, ProducerOptions
from ledgermq.client.core.questions import queue
from ledgermq.model.errors import GroupUnknownError, LedgerError
from tests.process.conftest import wait_until
from tests.process.node_start import SOURCES, Process, start_node
from tests.random_faults import judgement
from tests.random_faults.bed import Bed, beds, node_of
from tests.random_faults.clients.place import (
    LATER,
    ONCE,
    QUEUES,
    REGISTER,
    TOPICS,
    WINDOW_MS,
    WORKERS,
)
from tests.random_faults.clients.readers import TAILED
from tests.random_faults.clients.register import HELD
from tests.random_faults.network import FaultyNetwork
from tests.random_faults.records import Records
from tests.random_faults.rules.services import TO_COME, unread_by_group
from tests.random_faults.storm import Storm

SENDERS = (
    "bulk0", "keys0", "keys1", "batches0", "batches1", "work0", "once0", "once1", "later0", "port0",
    "transactions0", "register0", "lookup0", "topics0", "topics1", "windows0",
)  # fmt: skip
READERS = ("member0", "member1", *(f"tail{number}" for number in range(len(TAILED))))
CLIENT_HOSTS = 3
IDLE_TOPICS = 120
"""Topics that nobody uses: with more than a hundred the broker writes its table less often."""

CALM_S = 300.0
"""Of one wait in the calm, in which nothing is wrong any more; on a machine that does much else."""

SHOWN_MAX = 30
TEXT_MAX = 600
"""What is told of a rule that is broken: so many cases, and so much of each."""

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Result:
    """What a run has to tell.

    Attributes:
        wrong: what breaks each rule that is broken, by its name.
        summary: counts and pauses.
    """

    wrong: dict[str, list[str]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)


class Clients:
    """The programs, each at one of the clients' hosts."""

    def __init__(self, bed: Bed, folder: Path, seed: int) -> None:
        self._bed = bed
        self._folder = folder
        self._seed = seed
        self._running: dict[str, Process] = {}
        self.records = Records(folder)

    def start(self, names: Sequence[str]) -> None:
        """Start these."""
        hosts = self._bed.network.clients
        for name in names:
            host = hosts[len(self._running) % len(hosts)]
            with (self._folder / f"{name}.log").open("ab") as log:
                self._running[name] = start_node(
                    ["-m", "tests.random_faults.clients.program", name, str(self._folder),
                     str(self._seed), self._bed.addresses, self._bed.ports],
                    environment={**os.environ, "PYTHONPATH": f"{SOURCES}:{ROOT}"},
                    output=log.fileno(),
                    prefix=self._bed.network.prefix(host),
                )  # fmt: skip

    def check(self) -> None:
        """None has ended.

        Raises:
            AssertionError: one has.
        """
        for name, one in self._running.items():
            assert one.poll() is None, f"{name} has ended: {self.log_of(name)}"

    def wait_for_all(self) -> None:
        """Until each has been acknowledged something that it asked for from now on."""
        since_ns = time.monotonic_ns()

        def waiting() -> list[str]:
            self.check()
            known = {
                one.client
                for one in self.records.refresh().all()
                if one.is_ok and one.start_ns > since_ns and one.verb != "decide"
            }
            return [name for name in self._running if name not in known]

        _wait(lambda: not waiting(), lambda: f"nothing acknowledged to {waiting()}")

    def stop(self, names: Sequence[str]) -> dict[str, str]:
        """SIGTERM; what those say that did not end well."""
        for name in names:
            self._running[name].send_signal(signal.SIGTERM)
        wrong = {}
        for name in names:
            status = self._running.pop(name).wait(CALM_S)
            if status:
                wrong[name] = f"status {status}: {self.log_of(name)}"
        return wrong

    def log_of(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()[-2_000:]

    def end(self) -> None:
        """Leave none running."""
        for one in self._running.values():
            one.kill()
            one.wait()


class Run:
    """The group, the clients, and what was done to them; ``folder`` gets all that is written."""

    def __init__(self, bed: Bed, folder: Path, seed: int) -> None:
        self.bed = bed
        self.folder = folder
        self.clients = Clients(bed, folder, seed)
        self.storm = Storm(bed, seed, folder / "faults.log")
        self.result = Result()

    def undergo(self, seconds: float) -> None:
        """All of it."""
        self._prepare()
        self.clients.start((*READERS, *SENDERS))
        self.clients.wait_for_all()
        begin_ns = time.monotonic_ns()
        self.storm.rage(seconds, self.clients.check)
        end_ns = time.monotonic_ns()
        self._calm()
        self._judge()
        records = self.clients.records
        self.result.summary |= {
            "faults": dict(sorted(self.storm.counts.items())),
            "nodes that ended by themselves": self.bed.ended,
            "packets": [self.bed.network.carried, self.bed.network.lost],
            "outcomes": judgement.outcomes(records),
            "longest pauses (s)": {
                kind: round(pause, 1)
                for kind, pause in judgement.longest_pauses(records, begin_ns, end_ns).items()
            },
        }

    def keep_logs(self) -> None:
        """Copy the nodes' logs beside the clients'."""
        for member in self.bed.members:
            shutil.copy(member.node.log, self.folder / f"node-{member.name}.log")

    def _prepare(self) -> None:
        for member in self.bed.members:
            member.node.wait_ready()
        with Admin(self.bed.group.addresses, timeout_s=CALM_S) as admin:
            for topic in TOPICS:
                window_ms = WINDOW_MS if topic == ONCE else None
                admin.create_topic(topic, queues=QUEUES, deduplication_window_ms=window_ms)
            for number in range(IDLE_TOPICS):
                admin.create_topic(f"idle-{number}", queues=1)
        options = ProducerOptions(timeout_s=CALM_S)
        with Producer(self.bed.group.addresses, options=options) as producer:
            for number in range(QUEUES):
                for _ in range(HELD // 1_000):
                    producer.send_batch(REGISTER, [b"x"] * 1_000, queue_id=number).result()

    def _calm(self) -> None:
        """All is well again: clients come to an end, and whatever is to come has come."""
        self.storm.note("calm")
        self._wait_well()
        self.clients.wait_for_all()
        self._note_ends(self.clients.stop(SENDERS))
        self.storm.note("senders have ended")
        with Admin(self.bed.group.addresses, timeout_s=CALM_S) as admin:
            _wait(lambda: not self._late(), lambda: f"has not come: {self._late()}")
            _wait(lambda: not self._unread(admin), lambda: f"not read: {self._unread(admin)}")
        self._note_ends(self.clients.stop(READERS))
        self.clients.records.refresh()
        self.storm.note("readers have ended")

    def _wait_well(self) -> None:
        def ailing() -> list[str]:
            self.bed.keep_up()
            self.clients.check()
            return [one.name for one in self.bed.members if not _is_ready(one.status())]

        _wait(lambda: not ailing(), lambda: f"not ready: {ailing()}")

    def _note_ends(self, wrong: dict[str, str]) -> None:
        for name, told in wrong.items():
            self.result.wrong.setdefault("client", []).append(f"{name}: {told}")

    def _late(self) -> list[str]:
        """What was sent for later, and nobody was given yet."""
        come = {
            value
            for one in self.clients.records.refresh().all("read")
            if one.is_ok and one.told["topic"] == LATER
            for value in one.told["values"]
        }
        return [
            one.asked["values"][0]
            for one in self.clients.records.all("later")
            if one.is_ok and one.asked["kind"] in TO_COME and one.asked["values"][0] not in come
        ]

    def _unread(self, admin: Admin) -> list[str]:
        """Queues that a reader of the whole topic, or the group, has not read to their end."""
        reached: dict[tuple[str, int], int] = {}
        for one in self.clients.records.refresh().all("read"):
            if one.is_ok and one.told["offsets"]:
                reached[one.asked["topic"], one.told["queue"]] = one.told["offsets"][-1] + 1
        found = [
            f"{topic}:{number}"
            for topic in TAILED
            for number, end in enumerate(self._ends(admin, topic))
            if reached.get((topic, number), 0) < end
        ]
        try:
            found += [f"{row.topic}:{row.queue}" for row in admin.lag(WORKERS) if row.lag]
        except GroupUnknownError:
            found.append(WORKERS)
        waiting = unread_by_group(self.clients.records, ())
        return [*found, *(text[:80] for text in waiting)]

    def _ends(self, admin: Admin, topic: str) -> list[int]:
        return [admin.run(queue(topic, number)).end for number in range(QUEUES)]

    def _judge(self) -> None:
        group, wrong = self.bed.group, self.result.wrong
        group.wait_equal()
        for member in group.members:
            node_of(member).is_wanted = False
        statuses = group.stop()
        if any(statuses):
            wrong["stop in order"] = [f"exit statuses {statuses}"]
        stored = judgement.stored_in(group.members[0])
        judgement.keep(self.folder, stored)
        wrong |= judgement.broken_rules(self.clients.records, stored)
        if different := list(judgement.differing(group, stored)):
            wrong["members"] = different
        logs = [*(one.node.log for one in group.members), *self.folder.glob("*.log")]
        if traced := list(judgement.tracebacks(logs)):
            wrong["tracebacks"] = traced
        self.result.summary["stored"] = len(stored)


@contextmanager
def runs(members: int, seed: int, folder: Path) -> Iterator[Run]:
    """A run whose group has been started; nothing of it is left behind the block."""
    network = FaultyNetwork(members, CLIENT_HOSTS, seed=seed)
    try:
        with beds(network, folder) as bed:
            run = Run(bed, folder, seed)
            try:
                yield run
            finally:
                run.clients.end()
                run.keep_logs()
    finally:
        network.close()


def _is_ready(status: dict[str, Any] | None) -> bool:
    return status is not None and status["state"] == "ready"


def _wait(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """Until a condition holds; who waits in vain is told what is lacking."""

    def holds() -> bool:
        try:
            return condition()
        except LedgerError:
            # Nobody leads at this moment.
            return False

    try:
        wait_until(holds, "what was waited for", CALM_S)
    except AssertionError as error:
        raise AssertionError(f"after {CALM_S} s: {what()}") from error


def as_text(result: Result) -> str:
    """The summary, and what is wrong, for people."""
    lines = []
    for name, value in result.summary.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key}: {json.dumps(one)}" for key, one in value.items()]
        else:
            lines.append(f"{name}: {json.dumps(value)}")
    for name, broken in result.wrong.items():
        lines.append(f"WRONG {name}: {len(broken)}")
        lines += [f"  {one[:TEXT_MAX]}" for one in broken[:SHOWN_MAX]]
    lines.append("nothing is wrong" if not result.wrong else f"WRONG: {', '.join(result.wrong)}")
    return "\n".join(lines)
