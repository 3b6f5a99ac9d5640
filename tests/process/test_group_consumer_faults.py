"""Members of a group are killed, and leaders: nothing is missed, and no queue has two owners."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.groups.allocation import TopicQueue
from ledgermq.client.groups.group_member import GroupOptions
from ledgermq.model.errors import GroupUnknownError
from tests.process import group_reader_process
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.group_nodes import TOPIC, Member, make_group
from tests.process.group_reader_process import BATCH_MAX
from tests.process.group_readers import Journal, Reader
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

MEMBER_KILLS = int(os.environ.get("LEDGERMQ_MEMBER_KILLS", "1"))
GROUPS = {"heartbeat_ms": 500, "member_expiry_ms": 4_000, "lock_expiry_ms": 5_000}


class Line(NamedTuple):
    """A line of a member's file."""

    at: int
    name: str
    queue: int
    offset: int
    body: str


class Killable:
    """A member that is a process."""

    def __init__(self, address: str, folder: Path, *, group: str, name: str, order: str) -> None:
        self.path = folder / f"{name}.journal"
        self._process = subprocess.Popen(
            [
                sys.executable, group_reader_process.__file__,
                address, group, name, str(self.path), order,
            ],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )  # fmt: skip

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def lines_of(folder: Path) -> list[Line]:
    """What all members have noted, by time; a line that its death has cut is left out."""
    found = []
    for path in folder.glob("*.journal"):
        for text in path.read_text("ascii").splitlines(keepends=True):
            at, name, queue, offset, body = text.split(" ", 4)
            if body.endswith("\n"):
                found.append(Line(int(at), name, int(queue), int(offset), body.rstrip("\n")))
    return sorted(found)


def send(addresses: str | Sequence[str], first: int, count: int) -> list[str]:
    """So many messages, to the four queues in turn."""
    bodies = [f"message {number}" for number in range(first, first + count)]
    with Producer(addresses) as producer:
        futures = [
            producer.send_batch("orders", [b.encode() for b in bodies[q::4]], queue_id=q)
            for q in range(4)
        ]
        for future in futures:
            future.result(PATIENCE_S)
    return bodies


NODE = {"groups": GROUPS}


@contextmanager
def killed_at_end(members: dict[str, Killable]) -> Iterator[None]:
    try:
        yield
    finally:
        for member in members.values():
            member.kill()


@pytest.mark.long
@pytest.mark.parametrize("order", ["ordered", "any"])
def test_what_killed_members_had_comes_to_the_others_in_the_order_of_each_queue(
    node: Node, tmp_path: Path, order: str
) -> None:
    address, group = f"ipc://{node.runtime}", f"killed-{order}"
    members: dict[str, Killable] = {}
    sent: list[str] = []

    def join(name: str) -> None:
        members[name] = Killable(address, tmp_path, group=group, name=name, order=order)

    def more() -> None:
        base = 0 if order == "ordered" else 1_000_000
        sent.extend(send(address, base + len(sent), 200))

    with killed_at_end(members), Admin(address) as admin:

        def owners() -> set[str | None]:
            try:
                return {queue.client for queue in admin.members(group).queues}
            except GroupUnknownError:
                # Nobody has joined yet.
                return set()

        for name in ("a", "b", "c"):
            join(name)
        wait_until(lambda: owners() == {"a", "b", "c"}, "all to own queues", PATIENCE_S)
        for number in range(MEMBER_KILLS):
            more()
            victim = sorted(members)[0]
            members.pop(victim).kill()
            more()
            wait_until(lambda v=victim: v not in owners(), "the dead to own nothing", PATIENCE_S)
            join(f"d{number}")
            wait_until(lambda: owners() == set(members), "the new one to own some", PATIENCE_S)
        more()
        wait_until(
            lambda: {line.body for line in lines_of(tmp_path)} >= set(sent), "all", PATIENCE_S
        )

    changes = repeated = 0
    for queue in range(4):
        lines = [line for line in lines_of(tmp_path) if line.queue == queue]
        for before, line in itertools.pairwise(lines):
            # No gap, and back by no more than what was in flight.
            assert before.offset - BATCH_MAX < line.offset <= before.offset + 1, (before, line)
            changes += line.name != before.name
        repeated += len(lines) - len({line.offset for line in lines})
    # Two owners at a time would take turns with every batch.
    assert 0 < changes <= 6 + 8 * MEMBER_KILLS
    assert repeated <= BATCH_MAX * changes


def test_a_change_of_leaders_moves_no_queue_and_repeats_no_message(
    make_node: Callable[[], Node],
) -> None:
    def prepare(member: Member) -> None:
        path = member.node.config
        rows = "\n".join(f"{key} = {value}" for key, value in GROUPS.items())
        # The kit has its own in the place of the first.
        path.write_text(re.sub(r"(?<=\[groups\]\n)heartbeat_ms = .*", rows, path.read_text()))

    group = make_group(make_node, ack="majority-memory", prepare=prepare)
    group.leader()
    addresses, journal = group.addresses, Journal()
    sent = send(addresses, 0, 200)
    options = GroupOptions(ordered=True)
    readers = [
        Reader(addresses, journal, group="g", name=name, topics=TOPIC, options=options)
        for name in ("a", "b", "c")
    ]
    try:
        wait_until(
            lambda: sorted(len(one.assignment) for one in readers) == [1, 1, 2],
            "shares",
            PATIENCE_S,
        )
        before = [(one.assignment, len(one.told.notices)) for one in readers]
        leader = group.leader()
        leader.kill()
        sent += send(addresses, len(sent), 200)
        wait_until(
            lambda: journal.bodies.keys() >= {body.encode() for body in sent}, "all", PATIENCE_S
        )
        # The next leader has heard of all of them again.
        with Admin(addresses) as admin:
            wait_until(lambda: len(admin.members("g").members) == 3, "members", PATIENCE_S)
            owners = {
                TopicQueue(queue.topic, queue.queue_id): queue.client
                for queue in admin.members("g").queues
            }
        after = [(one.assignment, len(one.told.notices)) for one in readers]
    finally:
        for one in readers:
            one.stop()

    assert after == before
    assert owners == {
        queue: one.name
        for one, (queues, _) in zip(readers, before, strict=True)
        for queue in queues
    }
    for seen in journal.by_queue().values():
        assert [one.offset for one in seen] == list(range(len(seen)))
