"""What must be true behind a power failure, whatever the disks have forgotten."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from ledgermq.client import Admin, Consumer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.formats.findings import Severity
from ledgermq.model.errors import LedgerError, TopicUnknownError
from ledgermq.repair.check.check_store import CheckOptions, check_store
from tests.power.clients import Namer, Place, Writer
from tests.process.conftest import wait_until
from tests.process.group_nodes import TOPIC, Group, Member
from tests.suite.patience import PATIENCE_S

Answer = TypeVar("Answer")
IMAGES = os.environ.get("LEDGERMQ_POWER_IMAGES", "")
"""A folder that gets copies of stores in which something is found."""

OPTIONS = ConsumerOptions(hold_ms=0, timeout_s=PATIENCE_S)
SHOWN_MAX = 10


def steady(ask: Callable[[], Answer]) -> Answer:
    """The answer, asked again while no node leads; a topic that is not there is an answer."""
    found: list[Answer] = []

    def has_answered() -> bool:
        try:
            found.append(ask())
        except TopicUnknownError:
            raise
        except LedgerError:
            return False
        return True

    wait_until(has_answered, "an answer", PATIENCE_S)
    return found[0]


def held(
    addresses: str | Sequence[str], topic: str = TOPIC
) -> tuple[dict[Place, bytes], dict[int, int]]:
    """Bodies of what the leader's queues of a topic hold, by place, and where the queues begin."""

    def read() -> tuple[dict[Place, bytes], dict[int, int]]:
        found: dict[Place, bytes] = {}
        begins: dict[int, int] = {}
        with (
            connect_broker(addresses, name="test", timeout_s=PATIENCE_S) as broker,
            Consumer(addresses, topic=topic, start="first", options=OPTIONS) as consumer,
        ):
            for queue in consumer.offsets():
                offset, end = broker.queue(topic, queue)
                while offset < end:
                    batch = consumer.pull(queue, offset, messages_max=2_000)
                    if not len(batch):
                        assert batch.next_offset > offset, (topic, queue, offset, end)
                    for message in batch:
                        found[queue, message.queue_offset] = bytes(message.body)
                    offset = batch.next_offset
                # Retention goes on: it may begin behind what was read of it a moment ago.
                begins[queue] = broker.queue(topic, queue).begin
        return {
            place: body for place, body in found.items() if place[1] >= begins[place[0]]
        }, begins

    return steady(read)


def check_messages(
    addresses: str | Sequence[str], writers: Iterable[Writer], *, topic: str = TOPIC
) -> int:
    """Everything acknowledged is there at its offset, nothing twice, nothing that nobody sent.

    What retention has deleted is before the beginning of its queue. How many are acknowledged.
    """
    writers = list(writers)
    acknowledged: dict[Place, bytes] = {}
    for writer in writers:
        for place, body in writer.acknowledged.copy().items():
            other = acknowledged.setdefault(place, body)
            assert other == body, f"{place} was acknowledged for {other!r} and {body!r}"
    ends: dict[int, int] = {}
    for queue, offset in acknowledged:
        ends[queue] = max(ends.get(queue, 0), offset + 1)
    # What was acknowledged just now comes to its queue a moment later.
    wait_until(lambda: has_ends(addresses, topic, ends), f"the ends {ends}", PATIENCE_S)
    found, begins = held(addresses, topic)
    lost = [
        (place, body[:40], found.get(place, b"nothing")[:40])
        for place, body in acknowledged.items()
        if place[1] >= begins[place[0]] and found.get(place) != body
    ]
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged are lost: {lost[:SHOWN_MAX]}"
    bodies = list(found.values())
    assert len(bodies) == len({*bodies}), "a message is there twice"
    attempted = set().union(*(writer.attempted.copy() for writer in writers))
    assert {*bodies} <= attempted
    for queue, begin in begins.items():
        offsets = sorted(offset for one, offset in found if one == queue)
        assert offsets == list(range(offsets[0], offsets[-1] + 1)) if offsets else True, queue
        assert not offsets or offsets[0] >= begin
    return len(acknowledged)


def count_lost(addresses: str | Sequence[str], writers: Iterable[Writer]) -> tuple[int, int]:
    """How many messages were acknowledged, and how many of these are not at their place."""
    acknowledged = {
        place: body for writer in writers for place, body in writer.acknowledged.items()
    }
    found, begins = held(addresses)
    lost = sum(
        found.get(place) != body
        for place, body in acknowledged.items()
        if place[1] >= begins.get(place[0], 0)
    )
    return len(acknowledged), lost


def check_names(addresses: str | Sequence[str], namer: Namer) -> None:
    """Topics and groups are as they were acknowledged; looked at while their client rests."""

    def ask() -> tuple[dict[str, int], dict[str, object]]:
        with Admin(addresses, timeout_s=PATIENCE_S) as admin:
            topics = {row.topic: row.read_queues for row in admin.topics()}
            groups = {row.group: row.fields.get("retryMaxTimes") for row in admin.groups()}
        return topics, groups

    # What is acknowledged from now on may be there or not.
    queues, retries = dict(namer.queues), dict(namer.retries)
    doubtful = set(namer.doubtful)
    topics, groups = steady(ask)
    doubtful |= namer.doubtful
    wrong = {
        topic: (count, topics.get(topic, 0))
        for topic, count in queues.items()
        if topic not in doubtful and topics.get(topic, 0) != count
    }
    assert not wrong, f"topics, as acknowledged and as they are: {wrong}"
    missing = {group: count for group, count in retries.items() if groups.get(group) != count}
    assert not missing, f"groups that are not as acknowledged: {missing}"


def check_ends(addresses: str | Sequence[str], topic: str, ends: dict[int, int]) -> None:
    """No queue ends before what was acknowledged in it, whatever retention has deleted."""
    assert has_ends(addresses, topic, ends), (topic, ends)


def has_ends(addresses: str | Sequence[str], topic: str, ends: dict[int, int]) -> bool:
    """Whether the leader's queues end there, or behind it."""

    def ask() -> bool:
        with connect_broker(addresses, name="test", timeout_s=PATIENCE_S) as broker:
            return all(broker.queue(topic, queue).end >= end for queue, end in ends.items())

    return steady(ask)


def check_content(root: Path) -> None:
    """``store check`` finds nothing but notes, of a running node or a stopped one."""
    found = check_store(root, CheckOptions()).findings
    faults = [one.as_text() for one in found if one.severity is not Severity.NOTE]
    if faults and IMAGES:
        shutil.copytree(root, Path(IMAGES, root.parents[2].name + root.parents[1].name))
    assert not faults, f"{root}: {faults[:SHOWN_MAX]}"


def digests(member: Member) -> dict[str, str]:
    """Of the queue files of a stopped member, but for zeros at their ends."""
    made: dict[str, str] = {}
    folder = member.node.root / "consumequeue"
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes().rstrip(b"\0") if path.is_file() else b""
        if content:
            made[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()[:16]
    return made


def stop_and_compare(group: Group, *, is_retained: bool = True) -> None:
    """Stop all in order: one log, the same queues byte by byte, and their stores whole.

    ``is_retained``: nobody deletes old files; else members may have begun at different ones.
    """
    group.wait_equal()
    statuses = group.stop()
    assert statuses == [0] * len(group.members), [one.node.log.read_text() for one in group.members]
    # A plain node is alone, and its log another one.
    assert len(group.members) == 1 or group.has_one_log(is_retained=is_retained)
    first, *others = (digests(member) for member in group.members)
    assert first
    for other in others if is_retained else ():
        names = first.keys() | other.keys()
        differing = sorted(name for name in names if first.get(name) != other.get(name))
        assert differing == [], differing[:SHOWN_MAX]
    for member in group.members:
        check_content(member.node.root)
