"""Producers and a consumer of a group, each a process with a history, and what came of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from ledgermq.client import Consumer
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.store.store_view import StoreView
from tests.process.conftest import SOURCES, wait_until
from tests.process.fault_consumer import MESSAGES_MAX, values_of
from tests.process.group_nodes import TOPIC, Group, Member
from tests.process.history import History, HistoryWriter
from tests.process.history_rules import Stored
from tests.process.node_start import Process, start_node
from tests.suite.patience import PATIENCE_S

TIMEOUTS_S = (30.0, 30.0, 30.0, 0.5)
"""The last producer gives up soon: what becomes of its messages it often does not know."""

PATIENT = 3
"""So many of the first ones wait for an acknowledgement as long as it takes; on a busy machine none
comes to the last one in time."""

TAIL_LINES = 6
"""So many last lines of its history tell of a producer that does not go on."""


class Run:
    """A group under load; ``folder`` gets the histories."""

    def __init__(self, group: Group, folder: Path) -> None:
        self.group = group
        names = [f"p{number}" for number in range(len(TIMEOUTS_S))]
        self._folder = folder
        self._producers: list[Process] = []
        self._consumers: list[Process] = []
        for name, timeout_s in zip(names, TIMEOUTS_S, strict=True):
            self._producers.append(self._start("fault_producer.py", name, str(timeout_s)))
        self._consumers.append(self._start("fault_consumer.py", "c0"))
        self._names = names
        self.history = History([self._path(name) for name in (*names, "c0", "last")])

    def wait_for_all(self) -> None:
        """Until every producer has an acknowledgement of something that it sends from now on.

        Who gives up soon need only have gone on: it knows, or has given up, what became of that.
        """
        since_ns = time.monotonic_ns()

        def waiting() -> list[str]:
            ended = [one.args for one in self._all() if one.poll() is not None]
            assert ended == []
            history = self.history.refresh()
            acked, ended = history.last_acked_start_ns(), history.last_ended_start_ns()
            patient, others = self._names[:PATIENT], self._names[PATIENT:]
            return [
                *(name for name in patient if acked.get(name, 0) <= since_ns),
                *(name for name in others if ended.get(name, 0) <= since_ns),
            ]

        deadline = time.monotonic() + PATIENCE_S
        while (left := waiting()) and time.monotonic() < deadline:
            time.sleep(0.005)

        if left:
            raise AssertionError(
                f"nothing acknowledged to {left}, or given up, for {PATIENCE_S} s\n{self._told()}"
            )

    def _told(self) -> str:
        """What members and producers say, for one who wants to know why nothing goes on."""
        members = [f"{one.name}: {json.dumps(one.status())}" for one in self.group.members]
        tails = [
            f"{name}: {self._path(name).read_text().splitlines()[-TAIL_LINES:]}"
            for name in self._names
        ]
        return "\n".join([*members, *tails])

    def stop(self) -> list[int]:
        """Let producers end what is under way; the exit statuses of all."""
        # Who has a history knows what SIGTERM means; before it would just die of it.
        for name in (*self._names, "c0"):
            wait_until(self._path(name).exists, f"a history of {name}", PATIENCE_S)
        for one in self._all():
            one.terminate()
        return [one.wait(PATIENCE_S) for one in self._all()]

    def read_all(self) -> None:
        """Read every queue to its end, as the last reader of the history."""
        history = HistoryWriter(self._path("last"), "last")
        options = ConsumerOptions(timeout_s=PATIENCE_S)
        with Consumer(self.group.addresses, topic=TOPIC, options=options) as consumer:
            for queue, end in consumer.ends().items():
                first = 0
                while first < end:
                    start_ns = time.monotonic_ns()
                    batch = consumer.pull(queue, first, messages_max=MESSAGES_MAX)
                    values = values_of(batch, first)
                    first += len(values)
                    assert values
                    history.read(
                        queue, first - len(values), values, is_end=False, start_ns=start_ns
                    )
                start_ns = time.monotonic_ns()
                assert len(consumer.pull(queue, end)) == 0
                history.read(queue, end, [], is_end=True, start_ns=start_ns)
        self.history.refresh()

    def destroy(self) -> None:
        """Leave nothing running."""
        for one in self._all():
            one.kill()
            one.wait()

    def _all(self) -> list[Process]:
        return [*self._producers, *self._consumers]

    def _path(self, name: str) -> Path:
        return self._folder / f"history-{name}.jsonl"

    def _start(self, script: str, name: str, *words: str) -> Process:
        path = Path(__file__).with_name(script)
        addresses = ",".join(self.group.addresses)
        with (self._folder / f"log-{name}").open("ab") as log:
            return start_node(
                [str(path), addresses, TOPIC, name, str(self._path(name)), *words],
                environment={**os.environ, "PYTHONPATH": str(SOURCES)},
                output=log.fileno(),
            )


def stored_in(member: Member) -> list[Stored]:
    """The topic's messages in the log of a stopped member, in its order."""
    view = StoreView(member.node.root)
    try:
        return [
            Stored(
                message.queue_id,
                message.queue_offset,
                bytes(message.body).split(b" ", 1)[0].decode(),
                message.unique_id,
            )
            for _, _, message in view.log.iterate()
            if message.topic == TOPIC
        ]
    finally:
        view.close()


def queued_in(member: Member) -> list[Stored]:
    """The same as the queues of the stopped member have them, in the order of queues."""
    view = StoreView(member.node.root)
    try:
        return [
            Stored(
                queued.queue.queue_id,
                queued.queue_offset,
                bytes(queued.message.body).split(b" ", 1)[0].decode(),
                queued.message.unique_id,
            )
            for queued in view.messages(TOPIC)
        ]
    finally:
        view.close()
