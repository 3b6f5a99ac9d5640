"""Real nodes that delete what is old: on all members, under readers, killed meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from ledgermq.client import Consumer
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

NO_WAITING = {"keep_for_members": "0B"}


def send(group: Group, prefix: str, *, batches: int) -> list[bytes]:
    """Batches of fifty messages, about 55 KiB each; what was sent."""
    sent = [
        [f"{prefix}-{turn:04d}-{number:02d}-".encode() + b"x" * 1_000 for number in range(50)]
        for turn in range(batches)
    ]
    with producer(*group.members) as one:
        for batch in sent:
            one.send_batch(TOPIC, batch).result()
    return [body for batch in sent for body in batch]


def begin_of(member: Member) -> int:
    """Position of the oldest file."""
    folder = member.node.root / f"dledger-{member.name}" / "data"
    return min(int(path.name) for path in folder.iterdir())


def set_retention(member: Member, **changes: str | list[str]) -> None:
    """Change the settings file; a node that runs reads it again."""
    lines = "".join(f"{key} = {value!r}\n".replace("'", '"') for key, value in changes.items())
    text = member.node.config.read_text().replace("[retention]\n", f"[retention]\n{lines}")
    member.node.config.write_text(text)
    process = member.node.process
    if process is not None and process.poll() is None:
        member.reload()


def wait_deleted(member: Member, *, beyond: int = 0) -> None:
    wait_until(lambda: begin_of(member) > beyond, "files to go", timeout_s=PATIENCE_S)


def queue_files(member: Member) -> list[str]:
    folder = member.node.root / "consumequeue" / TOPIC
    return sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))


@pytest.mark.long
def test_all_members_delete_and_who_comes_later_is_sent_what_is_left(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-fsync")
    late = group.others(group.leader())[0]
    old = send(group, "old", batches=20)
    group.wait_equal()
    late.kill()
    others = [member for member in group.members if member is not late]
    send(group, "more", batches=100)
    end = begin_of(late) + 20 * 50_000
    for member in group.members:
        set_retention(member, **NO_WAITING, bytes_max="11MiB")
    for member in others:
        wait_deleted(member, beyond=end)
        wait_until(
            lambda member=member: "0/00000000000000000000" not in queue_files(member), "queues"
        )
    late.start()
    wait_until(lambda: late.node.logged("log replaced by"), "files", timeout_s=PATIENCE_S)
    new = send(group, "new", batches=5)
    group.wait_equal()

    assert group.stop() == [0, 0, 0]
    for member in group.members:
        bodies = member.bodies()
        assert set(new) <= set(bodies)
        assert not set(old) & set(bodies)


@pytest.mark.long
def test_a_named_group_is_waited_for_and_others_go_on_behind_what_is_gone(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, members=1, ack="majority-fsync")
    (member,) = group.members
    member.node.wait_ready()
    set_retention(member, keep_groups=["audit"], bytes_max="11MiB")
    sent = send(group, "a", batches=60)
    reason = "group audit, which has committed no offset yet, needs the log from 0 on"
    wait_until(lambda: member.node.logged(reason), "the reason", timeout_s=PATIENCE_S)
    assert begin_of(member) == 0
    with (
        Consumer(group.addresses, topic=TOPIC, group="idle", start="first") as idle,
        Consumer(group.addresses, topic=TOPIC, group="audit", start="first") as audit,
    ):
        seen = {bytes(one.body) for one in idle.poll(timeout=5.0)}
        read: set[bytes] = set()

        def has_read_all() -> bool:
            read.update(bytes(one.body) for one in audit.poll(timeout=1.0))
            return len(read) == len(sent)

        wait_until(has_read_all, "all to be read", timeout_s=PATIENCE_S)
        audit.commit()
        wait_deleted(member)
        last = send(group, "b", batches=2)

        def has_gone_on() -> bool:
            seen.update(bytes(one.body) for one in idle.poll(timeout=1.0))
            return set(last) <= seen

        wait_until(has_gone_on, "the idle group to go on", timeout_s=PATIENCE_S)
    assert read == set(sent)
    assert member.node.stop() == 0


@pytest.mark.long
def test_a_node_that_is_killed_while_it_deletes_goes_on(make_node: Callable[[], Node]) -> None:
    group = make_group(make_node, members=1, ack="majority-fsync")
    (member,) = group.members
    member.node.wait_ready()
    for turn in range(3):
        before = begin_of(member)
        sent = send(group, f"k{turn}", batches=40)
        if turn == 0:
            set_retention(member, **NO_WAITING, bytes_max="11MiB")
        wait_deleted(member, beyond=before)
        member.node.signal(signal.SIGKILL)
        member.node.wait_end()
        member.start()
        member.node.wait_ready()
        send(group, f"l{turn}", batches=1)
    wait_until(
        lambda: not member.cursors()["not_dispatched_bytes"], "dispatch", timeout_s=PATIENCE_S
    )

    assert member.node.stop() == 0
    assert begin_of(member) > 0
    assert set(sent[-50:]) <= set(member.bodies())
