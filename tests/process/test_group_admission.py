"""Real nodes: a member with another disk is kept out until the operator lets it in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Member, make_group, producer
from tests.process.node_start import run_command
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def refusals(member: Member) -> dict[str, str]:
    answer = member.command("raft", "status", "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    found: dict[str, str] = json.loads(answer.stdout)["refusals"]
    return found


def test_a_member_with_a_wiped_disk_is_kept_out_until_it_is_forgotten(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-memory")
    leader = group.leader()
    with producer(leader) as one:
        assert len(one.send_batch(TOPIC, [b"kept"] * 40).result()) == 40
    group.wait_equal()
    wiped, other = group.others(leader)
    wiped.kill()
    shutil.rmtree(wiped.node.root)
    wiped.start()
    reason = wait_until(lambda: refusals(leader).get(wiped.name), "the refusal")
    told = wait_until(
        lambda: wiped.status() is not None and refusals(wiped).get(leader.name), "the answer"
    )
    for member in (leader, other):
        answer = member.command("raft", "forget", wiped.name, "--json")
        assert json.loads(answer.stdout) == {"forgotten": True}
    wait_until(lambda: not refusals(leader) and not refusals(other), "the end of the refusals")

    assert f"{wiped.name} has another disk than {leader.name} knows it by" in reason
    assert f"{leader.name} refuses {wiped.name}: {wiped.name} has another disk" in told


def test_a_node_of_a_group_does_not_start_without_its_keys(make_node: Callable[[], Node]) -> None:
    node = make_node()
    node.configure(node={"self_id": "n0", "peers": ["n0-127.0.0.1:4711", "n1-127.0.0.1:4712"]})
    node.launch(["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)])

    assert node.wait_end() == 1
    assert node.logged("ledgermq keys init")
    assert node.logged("raft.keys_dir")
    assert not node.root.exists()


def test_the_key_of_a_member_is_changed_with_a_restart_of_each_and_nothing_is_lost(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-fsync")
    leader = group.leader()
    changed, other = group.others(leader)
    keys, fresh = leader.node.folder.parent / "0" / "group-keys", leader.node.folder / "fresh"
    made = run_command("keys", "init", str(fresh), "--nodes", changed.name)
    assert made.returncode == 0, made.stderr
    with producer(*group.members, timeout_s=PATIENCE_S) as one:
        futures = [one.send_batch(TOPIC, [b"before"] * 20)]
        for member in (other, leader):
            shutil.copy(fresh / changed.name / f"{changed.name}.public", keys / member.name)
            assert member.node.stop() == 0
            member.start()
            futures.append(one.send_batch(TOPIC, [b"meanwhile"] * 20))
            member.node.wait_ready()
        assert changed.node.stop() == 0
        for kind in ("secret", "public"):
            shutil.copy(fresh / changed.name / f"{changed.name}.{kind}", keys / changed.name)
        changed.start()
        changed.node.wait_ready()
        futures.append(one.send_batch(TOPIC, [b"behind"] * 20))
        acknowledged = sum(len(future.result()) for future in futures)
    group.wait_equal()
    group.stop()

    assert acknowledged == 80
    assert group.has_one_log()
