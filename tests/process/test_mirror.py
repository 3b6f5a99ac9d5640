"""A group of real nodes, and a mirror over TLS: the same bytes, read only, promoted, fenced."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions
from ledgermq.model.errors import LedgerError, NotLeaderError
from ledgermq.model.group_epoch import epoch_of
from ledgermq.rules.tables.archives import MIRROR_PREFIX
from ledgermq.store.store_view import StoreView
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import SIZES, TOPIC, Group, Member, free_port, producer
from tests.process.mirror_site import NAME, Source, report_of
from tests.process.node_start import run_command
from tests.process.test_scrub import FAST, entries, files_of, spoil, wait_repaired
from tests.process.test_ship_files import delete_oldest

pytestmark = pytest.mark.slow


def bodies(prefix: str, count: int, size: int = 500) -> list[bytes]:
    return [f"{prefix}-{number:05d}-".encode() + b"x" * size for number in range(count)]


def send(address: str | list[str], some: list[bytes]) -> None:
    with Producer(address, options=ProducerOptions(timeout_s=120.0)) as made:
        for future in [
            made.send_batch(TOPIC, some[at : at + 50]) for at in range(0, len(some), 50)
        ]:
            future.result()


@pytest.mark.long
def test_a_mirror_has_the_bytes_offsets_and_users_of_its_source_and_serves_readers(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    source = Source(make_node, tmp_path)
    group = source.group
    leader = group.leader()
    added = run_command("mirror", "add", NAME, "--address", leader.address, "--json")
    sent = bodies("a", 600)
    send(group.addresses, sent)
    with Consumer(group.addresses, topic=TOPIC, group="billing", start="first") as consumer:
        while len(consumer.poll(20.0)) == 0:
            pass
        consumer.commit()
    mirror = source.mirror(make_node())
    source.wait_copied(mirror)
    more = bodies("b", 100)
    send(group.addresses, more)
    source.wait_copied(mirror)
    read: list[bytes] = []
    with Consumer(mirror.address, topic=TOPIC, start="first") as consumer:
        while len(read) < len(sent) + len(more):
            batch = consumer.poll(20.0)
            assert len(batch), len(read)
            read += [bytes(message.body) for message in batch]
    with (
        pytest.raises(LedgerError),
        Producer(mirror.address, options=ProducerOptions(timeout_s=3.0)) as made,
    ):
        made.send(TOPIC, b"refused").result()
    wait_until(lambda: marked(leader.node) > 0, "the mark at the source")
    told = run_command("mirror", "status", "--runtime-dir", str(mirror.node.runtime), "--json")
    listed = run_command("mirror", "list", "--address", leader.address, "--json")
    taken = source.tell_mark(marked(leader.node))
    removed = run_command("mirror", "remove", NAME, "--address", leader.address)
    refused = source.tell_mark(marked(leader.node) + 1)

    def is_level() -> bool:
        offsets = [
            json.loads((node.root / "config" / "consumerOffset.json").read_text())["offsetTable"]
            for node in (leader.node, mirror.node)
        ]
        return offsets[0] == offsets[1]

    wait_until(is_level, "the same offsets")
    group.stop()
    wait_until(lambda: mirror.cursors()["not_committed_bytes"] == 0, "the mirror to be at rest")
    assert mirror.node.stop() == 0
    theirs, ours = leader.log_bytes(), mirror.log_bytes()

    assert added.returncode == 0, added.stderr
    assert len(json.loads(added.stdout)["token"]) >= 32
    assert sorted(read) == sorted(sent + more)
    # What the group has written since it was stopped, the mirror need not have.
    assert theirs.startswith(ours) and len(ours) > 300_000
    status = json.loads(told.stdout)
    assert status["running"] and status["source"] in source.urls and not status["leads"]
    assert json.loads(listed.stdout)["mirrors"][0]["mirror"] == NAME
    # Who is not waited for any more does not come back by itself.
    assert removed.returncode == 0 and marked(leader.node) == 0
    assert [status for status, _ in taken].count(204) == 1
    assert not any(status == 204 for status, _ in refused)
    assert sum(b"mirror add" in content for _, content in refused) == 1


def marked(node: Node) -> int:
    """Position that the mirror has told."""
    path = node.root / "ledgermq" / "archives.json"
    marks: dict[str, Any] = json.loads(path.read_text())["archives"] if path.exists() else {}
    return int(marks.get(MIRROR_PREFIX + NAME, {"position": 0})["position"])


def test_a_killed_mirror_and_a_killed_member_cost_nothing_that_is_there(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    source = Source(make_node, tmp_path)
    group = source.group
    leader = group.leader()
    send(group.addresses, bodies("a", 300))
    mirror = source.mirror(make_node())
    source.wait_copied(mirror)
    for turn in range(3):
        os.kill(mirror.node.pid(["raft", "writer", "dispatcher"][turn]), signal.SIGKILL)
        send(group.addresses, bodies(f"b{turn}", 100))
        source.wait_copied(mirror)
    mirror.kill()
    group.others(leader)[0].kill()
    send([one.address for one in group.up()], bodies("c", 200))
    mirror.start()
    source.wait_copied(mirror)
    group.stop()
    assert mirror.node.stop() == 0

    assert leader.log_bytes().startswith(mirror.log_bytes())


@pytest.mark.long
def test_damage_of_a_mirrors_log_is_mended_from_its_source(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    source = Source(make_node, tmp_path, members=1)
    (member,) = source.group.members
    send(member.address, bodies("a", 300))
    mirror = source.mirror(make_node(), scrub=FAST)
    source.wait_copied(mirror)
    spoiled = entries(mirror)[100:120]
    spoil(spoiled[0], 90, spoiled[-1].offset - spoiled[0].offset)
    wait_repaired(mirror, 2)
    source.group.stop()
    assert mirror.node.stop() == 0

    assert member.log_bytes().startswith(mirror.log_bytes())


@pytest.mark.long
def test_a_mirror_that_is_killed_while_it_gets_files_has_the_bytes_of_what_is_left(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    source = Source(make_node, tmp_path, members=1)
    (member,) = source.group.members
    for turn in range(6):
        send(member.address, bodies(f"a{turn}", 400))
    source.group.stop()
    # As retention does: the log begins later.
    delete_oldest(member, keep=4)
    member.start()
    source.group.leader()
    mirror = source.mirror(make_node())
    staged = mirror.node.root / "ledgermq" / "shipped" / "data"
    wait_until(lambda: staged.is_dir() and any(staged.iterdir()), "the first file")
    mirror.kill()
    mirror.start()
    wait_until(lambda: mirror.node.logged("log replaced by"), "the files")
    send(member.address, bodies("b", 100))
    source.wait_copied(mirror)
    source.group.stop()
    assert mirror.node.stop() == 0

    theirs, ours = files_of(member), files_of(mirror)
    assert [*ours] == [*theirs] and len(ours) >= 4
    assert all(theirs[name].startswith(ours[name].rstrip(b"\0")) for name in ours)
    assert set(bodies("b", 100)) <= set(mirror.bodies())


@pytest.mark.long
def test_a_promoted_mirror_is_a_group_of_the_next_epoch_and_what_is_missing_is_listed(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    source = Source(make_node, tmp_path)
    group = source.group
    before = bodies("a", 300)
    send(group.addresses, before)
    mirror = source.mirror(make_node())
    source.wait_copied(mirror)
    wait_until(lambda: report_of(mirror) is not None, "a report")
    assert mirror.node.stop() == 0
    # Acknowledged, and never copied.
    lost = bodies("lost", 120)
    send(group.addresses, lost)
    group.wait_equal()
    old = group.leader()
    group.stop()
    node = mirror.node
    text = node.config.read_text()
    node.config.write_text(text[: text.index("[mirror]")])
    mirror.start()
    refused = mirror.node.wait_end()
    promoted = run_command("mirror", "promote", "--config", str(node.config), "--yes", "--json")
    assert promoted.returncode == 0, promoted.stderr
    missing = run_command(
        "mirror", "missing", str(old.node.root), "--promoted",
        str(node.root / "ledgermq" / "promoted"), "--json",
    )  # fmt: skip
    assert missing.returncode == 0, missing.stderr
    mirror.start()
    wait_until(lambda: mirror.leads, "the promoted mirror to lead")
    after = bodies("after", 50)
    with producer(mirror) as made:
        made.send_batch(TOPIC, after).result()
    wait_until(lambda: mirror.cursors()["not_dispatched_bytes"] == 0, "dispatch")
    raft_term = mirror.node.status()["raft"]["term"]
    assert mirror.node.stop() == 0

    assert refused == 1
    assert epoch_of(raft_term) == 1
    assert sorted(mirror.bodies()) == sorted(before + after)
    queues = json.loads(missing.stdout)["queues"]
    assert {one["topic"] for one in queues} == {TOPIC}
    assert sum(one["messages"] for one in queues) == len(lost)
    assert all(one["last"] - one["first"] + 1 == one["messages"] for one in queues)


@pytest.mark.long
def test_a_promoted_mirror_begins_alone_and_is_given_members_that_get_its_log(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    source = Source(make_node, tmp_path, members=1)
    send(source.group.members[0].address, bodies("a", 200))
    mirror = source.mirror(make_node())
    source.wait_copied(mirror)
    assert mirror.node.stop() == 0
    source.group.stop()
    peers = [f"{name}-127.0.0.1:{free_port()}" for name in ("m0", "m1")]
    added = Member(make_node(), "m1")
    configure(mirror, peers[:1])
    configure(added, peers, initial_cluster_state="existing")
    done = run_command("mirror", "promote", "--config", str(mirror.node.config), "--yes")
    assert done.returncode == 0, done.stderr
    configure(mirror, peers)
    mirror.start()
    refused = mirror.node.wait_end()
    configure(mirror, peers[:1])
    mirror.start()
    added.start()
    wait_until(lambda: mirror.leads, "the promoted mirror to lead")
    address = peers[1].partition("-")[2]
    joined = mirror.command("raft", "add", "m1", address, "--json", "--timeout", "60")
    with producer(mirror) as made:
        made.send_batch(TOPIC, bodies("b", 50)).result()
    configure(mirror, peers)
    group = Group([mirror, added])
    group.wait_equal()
    group.stop()
    mirror.start()
    added.start()
    group.leader()
    group.stop()

    assert refused == 1
    assert joined.returncode == 0, joined.stderr
    assert group.has_one_log()
    assert sorted(added.bodies()) == sorted(bodies("a", 200) + bodies("b", 50))


def configure(member: Member, peers: list[str], **about: str) -> None:
    """Settings of a member of a group that was made of a mirror."""
    member.node.configure(
        node={"self_id": member.name, "peers": peers, **about}, store=dict(SIZES),
        raft={"curve": False}, supervision={"restarts_max": 1_000},
    )  # fmt: skip


@pytest.mark.long
def test_a_client_of_both_sites_follows_the_promoted_group_and_never_goes_back(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    source = Source(make_node, tmp_path, members=1)
    (old,) = source.group.members
    send(old.address, bodies("a", 100))
    mirror = source.mirror(make_node())
    source.wait_copied(mirror)
    assert mirror.node.stop() == 0
    text = mirror.node.config.read_text()
    mirror.node.config.write_text(text[: text.index("[mirror]")])
    done = run_command("mirror", "promote", "--config", str(mirror.node.config), "--yes")
    assert done.returncode == 0, done.stderr
    mirror.start()
    wait_until(lambda: mirror.leads, "the promoted mirror to lead")
    # A client that it does not answer yet has not met it, and is right to follow the old group.
    mirror.node.wait_ready()
    options = ProducerOptions(timeout_s=15.0)
    with Producer([old.address, mirror.address], options=options) as made:
        made.send_batch(TOPIC, bodies("b", 50)).result()
        mirror.kill()
        end = old.cursors()["written"]["index"]
        with pytest.raises((NotLeaderError, LedgerError)):
            made.send(TOPIC, b"to nobody").result()

    assert old.leads
    assert old.cursors()["written"]["index"] == end


@pytest.mark.long
def test_an_old_member_rejoins_as_a_mirror_and_is_given_only_what_differs(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    source = Source(make_node, tmp_path, members=1)
    (old,) = source.group.members
    common = bodies("common", 600)
    send(old.address, common)
    mirror = source.mirror(make_node())
    source.wait_copied(mirror)
    assert mirror.node.stop() == 0
    # Acknowledged, never copied, as is what a group has committed there.
    lost = bodies("lost", 120)
    send(old.address, lost)
    with Consumer(old.address, topic=TOPIC, group="lost", start="first") as consumer:
        while len(consumer.poll(20.0)) == 0:
            pass
        consumer.commit()
    source.group.wait_equal()
    source.group.stop()
    promoted = promote_behind(source, mirror)
    after = bodies("after", 200)
    with producer(mirror) as made:
        for at in range(0, len(after), 50):
            made.send_batch(TOPIC, after[at : at + 50]).result()
    wait_until(lambda: mirror.cursors()["not_dispatched_bytes"] == 0, "dispatch")
    done = run_command(
        "mirror", "rejoin", "--config", str(old.node.config), "--promoted", str(promoted), "--yes",
        "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    source.configure_mirror(old.node, old.name)
    old.start()
    wanted = mirror.cursors()["committed"]["position"]

    def is_level() -> bool:
        status = old.status()
        if status is None:
            return False
        cursors = status["cursors"]
        return bool(cursors["committed"]["position"] - cursors["not_dispatched_bytes"] >= wanted)

    wait_until(is_level, "the old member to have all")
    report = wait_until(lambda: heard_in(old), "a report")
    assert old.node.stop() == 0
    assert mirror.node.stop() == 0

    assert sum(one["messages"] for one in told["queues"]) == len(lost)
    assert mirror.log_bytes().startswith(old.log_bytes())
    assert sorted(old.bodies()) == sorted(common + after)
    # Less than the log: what both had was not sent again.
    assert told["kept"] > 300_000 and 0 < report["received_bytes"] < told["kept"]
    groups = json.loads((old.node.root / "config" / "consumerOffset.json").read_text())
    assert not any("lost" in key for key in groups["offsetTable"])
    kept = StoreView(Path(told["set_aside"]))
    found = [bytes(one.message.body) for one in kept.log.iterate(told["begin"])]
    kept.close()
    assert set(lost) <= set(found)


def promote_behind(source: Source, mirror: Member) -> Path:
    """Promote the mirror, and have it answer mirrors where the source did; its promotion."""
    node = mirror.node
    text = node.config.read_text()
    node.config.write_text(text[: text.index("[mirror]")])
    done = run_command("mirror", "promote", "--config", str(node.config), "--yes")
    assert done.returncode == 0, done.stderr
    source.urls.clear()
    source.let_answer(mirror)
    mirror.start()
    wait_until(lambda: mirror.leads, "the promoted mirror to lead")
    return node.root / "ledgermq" / "promoted"


def heard_in(mirror: Member) -> Any:
    """What it has told last, once it has heard of its source."""
    report = report_of(mirror)
    return report if report is not None and report["received_bytes"] else None
