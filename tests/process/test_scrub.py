"""Real nodes whose disks change bytes of the log: found, repaired, never given out."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ledgermq.client import Consumer
from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.model.limits import SYSTEM_TOPIC
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

FILE_SIZE = 262_144
BATCHES = 12

FAST = {"every_s": 1, "rate_bytes_per_s": 64 * 1024 * 1024}
OFF: Mapping[str, object] = {"rate_bytes_per_s": 0}


class Place(NamedTuple):
    """One entry in a member's files."""

    path: Path
    offset: int
    size: int
    index: int


def fill(members: list[Member], prefix: str, *, batches: int = BATCHES) -> list[bytes]:
    """Send batches of fifty, about 55 KiB each; what was sent."""
    with producer(*members) as one:
        sent = [
            [f"{prefix}-{turn:02d}-{number:02d}-".encode() + b"x" * 900 for number in range(50)]
            for turn in range(batches)
        ]
        futures = [one.send_batch(TOPIC, batch) for batch in sent]
        assert all(len(future.result()) == 50 for future in futures)
    return [body for batch in sent for body in batch]


def entries(member: Member) -> list[Place]:
    """The messages of the member's log, no entry of the group's own among them, in their order."""
    folder = member.node.root / f"dledger-{member.name}"
    (index_file,) = sorted((folder / "index").iterdir())
    with index_file.open("rb") as file:
        raw = file.read((int(member.cursors()["committed"]["index"]) + 1) * ENTRY_ITEM.itemsize)
    items = np.frombuffer(raw, ENTRY_ITEM)
    places = [
        Place(
            folder / "data" / f"{position - position % FILE_SIZE:020d}",
            position % FILE_SIZE,
            size,
            index,
        )
        for position, size, index in zip(
            items["position"].tolist(), items["size"].tolist(), items["index"].tolist(), strict=True
        )
    ]
    return [place for place in places if SYSTEM_TOPIC.encode() not in content(place)]


def content(place: Place) -> bytes:
    """The bytes of an entry, as they are now."""
    with place.path.open("rb") as file:
        file.seek(place.offset)
        return file.read(place.size)


def item_of(member: Member, index: int) -> Place:
    """The index item of an entry."""
    (path,) = sorted((member.node.root / f"dledger-{member.name}" / "index").iterdir())
    return Place(path, index * ENTRY_ITEM.itemsize, ENTRY_ITEM.itemsize, index)


def spoil(place: Place, at: int, size: int = 1) -> None:
    """Turn all bits of ``size`` bytes, ``at`` bytes into the entry."""
    fd = os.open(place.path, os.O_RDWR)
    try:
        found = os.pread(fd, size, place.offset + at)
        os.pwrite(fd, bytes(byte ^ 0xFF for byte in found), place.offset + at)
    finally:
        os.close(fd)


def counters(member: Member) -> dict[str, int]:
    status = member.node.status()
    found: dict[str, int] = status["counters"]["raft"]
    return found


def wait_repaired(member: Member, entries_min: int) -> None:
    def is_repaired() -> bool:
        found = counters(member)
        return found["repaired_entries"] >= entries_min and found["damaged_entries"] == 0

    wait_until(is_repaired, "the repair", PATIENCE_S)


def read_all(address: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with Consumer(address, topic=TOPIC) as consumer:

        def has_all() -> bool:
            found.extend(bytes(message.body) for message in consumer.poll(0.2))
            return len(found) >= count

        wait_until(has_all, "the messages", PATIENCE_S)
    return found


def filled(
    make_node: Callable[[], Node], scrub: Mapping[str, object], *, members: int = 3
) -> tuple[Group, list[bytes]]:
    group = make_group(make_node, members=members, ack="majority-fsync", scrub=scrub)
    group.leader()
    sent = fill(group.members, "first")
    group.wait_equal()
    return group, sent


def files_of(member: Member) -> dict[str, bytes]:
    folder = member.node.root / f"dledger-{member.name}"
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in sorted(folder.glob("data/*"))
    }


@pytest.mark.long
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_damage_of_all_kinds_is_repaired_byte_for_byte(
    make_node: Callable[[], Node], role: str
) -> None:
    group, sent = filled(make_node, FAST)
    leader = group.leader()
    member = leader if role == "leader" else group.others(leader)[0]
    before = files_of(member)
    places = entries(member)
    spoil(places[0], 100)  # sealed: the body of the log's first message
    spoil(places[10], 36)  # its CRC in the chain
    spoil(places[40], 4)  # its size
    spoil(places[41], 8)  # the next one's index
    spoil(places[42], 0, 48)  # a whole header
    for number in range(60, 70):
        spoil(places[number], 200, 400)
    last = max(place.path for place in places)
    spoil(next(place for place in places if place.path == last), 24)  # the first of a file
    spoil(places[-1], 500)  # in the open file
    spoil(item_of(member, places[100].index), 5, 8)
    wait_repaired(member, 18)
    more = fill(group.members, "second", batches=2)
    group.wait_equal()
    after = files_of(member)
    found = read_all(member.address, len(sent) + len(more)) if role == "leader" else []
    assert group.stop() == [0, 0, 0]

    assert set(before) <= set(after)
    sealed = sorted(before)[:-1]
    assert [after[name] == before[name] for name in sealed] == [True] * len(sealed)
    assert group.has_one_log()
    assert sorted(member.bodies()) == sorted(sent + more)
    if role == "leader":
        assert sorted(found) == sorted(sent + more)
    assert member.node.logged("log is repaired: ")


def test_a_consumer_that_reads_over_damage_gets_each_message_once_and_in_order(
    make_node: Callable[[], Node],
) -> None:
    group, sent = filled(make_node, OFF)
    leader = group.leader()
    places = entries(leader)
    for number in (3, 4, 77, 300, len(places) - 1):
        spoil(places[number], 300)
    found = read_all(leader.address, len(sent))
    wait_repaired(leader, 5)
    assert group.stop() == [0, 0, 0]

    assert sorted(found) == sorted(sent)
    assert found == [body for body in found if body.endswith(b"x" * 900)]
    assert group.has_one_log()


def test_damage_of_the_same_entry_on_two_members_is_repaired_from_the_third(
    make_node: Callable[[], Node],
) -> None:
    group, sent = filled(make_node, FAST)
    leader = group.leader()
    spoilt = [leader, group.others(leader)[0]]
    for member in spoilt:
        for place in entries(member)[20:23]:
            spoil(place, 60)
    for member in spoilt:
        wait_repaired(member, 3)
    assert group.stop() == [0, 0, 0]

    assert group.has_one_log()
    assert [sorted(member.bodies()) for member in group.members] == [sorted(sent)] * 3


def refusal_of(member: Member, count: int) -> tuple[list[bytes], list[str]]:
    """What can be read from the member, and what is said of the rest."""
    status = json.loads(member.command("status", "--json").stdout)
    with Consumer(member.address, topic=TOPIC) as consumer:
        found: list[bytes] = []

        def has_most() -> bool:
            found.extend(bytes(message.body) for message in consumer.poll(0.2))
            return len(found) >= count

        wait_until(has_most, "what can be read", PATIENCE_S)
    return found, [one["unrepairable"] for one in status["damages"]]


def begin_reading(member: Member) -> None:
    """Have a member that was started with ``OFF`` read its log from now on."""
    config = member.node.config
    fast = "\n".join(f"{name} = {value}" for name, value in FAST.items())
    config.write_text(config.read_text().replace("rate_bytes_per_s = 0", fast))
    member.node.signal(signal.SIGHUP)


def wait_unrepairable(member: Member) -> None:
    wait_until(lambda: member.node.logged("log stays damaged: "), "the report", PATIENCE_S)


def test_what_is_damaged_everywhere_is_reported_and_not_given_out(
    make_node: Callable[[], Node],
) -> None:
    group, sent = filled(make_node, OFF)
    leader = group.leader()
    for member in group.members:
        spoil(entries(member)[0], 200)
    for member in group.members:
        begin_reading(member)
    for member in group.members:
        wait_unrepairable(member)
    with_damage = sent[0]
    of_other_queues = len(sent) * 3 // 4
    found, reasons = refusal_of(leader, of_other_queues)
    more = fill(group.members, "second", batches=2)
    group.wait_equal()
    text = leader.command("status").stdout
    counted = counters(leader)
    assert group.stop() == [0, 0, 0]

    assert with_damage not in found
    assert set(found) <= set(sent)
    assert len(found) == len(set(found))
    assert reasons == ["no member has given it: n0, n1, n2".replace(f"{leader.name}, ", "")
                       .replace(f", {leader.name}", "")]  # fmt: skip
    assert counted["damaged_entries"] == 1
    assert counted["repaired_entries"] == 0
    assert "damage      1 place" in text
    assert len(more) == 100
    assert leader.node.logged("request not answered: message is damaged")


def test_a_node_of_its_own_reports_damage_and_does_not_give_it_out(
    make_node: Callable[[], Node],
) -> None:
    group, sent = filled(make_node, FAST, members=1)
    (member,) = group.members
    spoil(entries(member)[0], 200)
    wait_unrepairable(member)
    found, reasons = refusal_of(member, len(sent) * 3 // 4)
    assert group.stop() == [0]

    assert sent[0] not in found
    assert reasons == ["there is no other member"]


def test_a_leader_sends_no_damaged_entry_to_a_follower_that_comes_late(
    make_node: Callable[[], Node],
) -> None:
    group, sent = filled(make_node, OFF)
    leader = group.leader()
    late = group.others(leader)[0]
    late.kill()
    full = [member for member in group.members if member is not late]
    missed = fill(full, "missed")
    group.wait_equal()
    places = entries(leader)
    for number in (len(sent) + 30, len(sent) + 31, len(sent) + 200):
        spoil(places[number], 400)
    late.start()
    group.wait_equal()
    wait_repaired(leader, 3)
    assert group.stop() == [0, 0, 0]

    assert leader.node.logged("entry not sent: ")
    assert group.has_one_log()
    assert sorted(late.bodies()) == sorted(sent + missed)


def test_a_rate_that_is_set_while_the_node_runs_begins_the_reading(
    make_node: Callable[[], Node],
) -> None:
    group, _ = filled(make_node, OFF)
    member = group.others(group.leader())[0]
    spoil(entries(member)[5], 100)
    begin_reading(member)
    wait_repaired(member, 1)
    assert group.stop() == [0, 0, 0]

    assert counters_of_log(member) == []
    assert group.has_one_log()


def test_what_raft_has_counted_its_next_life_counts_on(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node, scrub=FAST)
    told: list[int] = []

    def scrubbed() -> int:
        told.append(node.status()["counters"]["raft"]["scrubbed_bytes"])
        return told[-1]

    before = wait_until(scrubbed, "the log to be read")
    os.kill(node.pid("raft"), signal.SIGKILL)
    wait_until(lambda: node.child("raft")["restarts"], "a restart")
    wait_until(lambda: scrubbed() >= 2 * before, "the log to be read again")

    assert told == sorted(told)


def counters_of_log(member: Member) -> list[str]:
    """Lines that say the node gave something up."""
    return [line for line in member.node.log.read_text().splitlines() if "process failed" in line]
