"""Feature levels of real nodes: who begins at which, who raises it, who is not let in."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.model.exit_status import EXIT_OUTDATED
from ledgermq.model.features import LEVEL, LEVEL_OF_CHANGE, LEVELS, version_of
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.rules.state.state_commands import STATE_QUEUE_ID, StateCommand, encode_command
from ledgermq.store.store_view import StoreView
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, make_growing_group
from tests.process.other_versions import THIS, Version, next_version, version_before
from tests.process.rolling import (
    OldLoopback,
    create,
    features,
    level,
    load_on,
    raft_status,
    refusal_of,
    refused_enabling,
    replace,
    start,
    stop,
    upgrade_check,
)
from tests.unit.rules.test_change_levels import SAMPLES

pytestmark = pytest.mark.slow

NEWEST = version_of(LEVEL)


@pytest.mark.long
def test_a_new_group_begins_at_the_highest_level_and_says_what_each_member_knows(
    make_node: Callable[[], Node],
) -> None:
    group: Group = make_group(make_node, ack="majority-memory")
    leader = group.leader()
    for member in group.members:
        member.node.wait_ready()
        wait_until(lambda member=member: level(member.node) == LEVEL, "the level to be in force")
    told = features(THIS, leader.node)
    refused = THIS.command("cluster", "features", "--enable", "0", "--address", leader.address)

    assert (told["known"], told["members_know"], told["in_force"]) == (LEVEL,) * 3
    assert raft_status(leader)["levels"] == dict.fromkeys(("n0", "n1", "n2"), LEVEL)
    assert refused.returncode == 1
    assert "never go down" in refused.stderr
    assert [(one["node"], one["level"]) for one in told["members"]] == [
        ("n0", LEVEL), ("n1", LEVEL), ("n2", LEVEL)
    ]  # fmt: skip
    away, asked = group.others(leader)
    stop(away.node)
    wait_until(
        lambda: (
            f"{away.name} {LEVEL} (away)" in examined(group.leader())["levels.members"]["measured"]
        ),
        "the leader to miss it",
    )
    # The leader has no majority meanwhile: whichever leads then, this one has not heard of it.
    replace(group, asked, THIS)
    silent = f"{away.name} not heard of"
    assert silent in THIS.command("cluster", "features", "--address", asked.address).stdout
    assert silent in examined(asked)["levels.members"]["measured"]
    start(THIS, away.node)
    away.node.wait_ready()
    group.wait_equal()
    assert set(group.stop()) == {0}
    assert group.has_one_log()


def why_no_leader(node: Node) -> str:
    return THIS.command("raft", "why-no-leader", "--runtime-dir", str(node.runtime)).stdout


def topics(version: Version, node: Node) -> str:
    return version.command("topic", "list", "--address", f"ipc://{node.runtime}").stdout


@pytest.mark.long
def test_a_node_stops_in_order_at_what_it_does_not_know_and_goes_on_when_it_is_newer(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    """The log says a level more between two topics; the tables are those of before."""
    newer = next_version(tmp_path)
    node = make_node()
    node.configure()
    start(THIS, node)
    node.wait_ready()
    create(THIS, node, "first")
    stop(node)
    for folder in ("config", "ledgermq"):
        shutil.copytree(node.root / folder, tmp_path / "before" / folder)

    start(newer, node)
    node.wait_ready()
    create(newer, node, "between")
    raised = features(newer, node, "--enable")
    create(newer, node, "behind")
    stop(node)
    assert raised == {"in_force": LEVEL + 1}

    # With the tables of now it says at once why it does not start.
    start(THIS, node)
    assert node.wait_end() == EXIT_OUTDATED
    assert "feature level in force is not known to this version" in node.log.read_text()

    for path in (tmp_path / "before").rglob("*.json*"):
        shutil.copy(path, node.root / path.relative_to(tmp_path / "before"))
    start(THIS, node)
    node.wait_ready()
    wait_until(
        lambda: node.status()["counters"]["broker"]["level_needed"] == LEVEL + 1,
        "the node to be held up",
    )
    status = THIS.command("status", "--runtime-dir", str(node.runtime)).stdout
    tables = json.loads((node.root / "config" / "topics.json").read_text())["topicConfigTable"]
    needed = (
        f"held up: the log needs level {LEVEL + 1}, which version one newer than {NEWEST} knows"
    )
    assert needed in status
    # No bell rings in the raft process: it may lead for a second, and serves nothing.
    wait_until(
        lambda: "its log needs a newer version" in why_no_leader(node),
        "the node to give up its lead",
    )
    assert level(node) == LEVEL
    assert "behind" not in tables
    stop(node)

    start(newer, node)
    node.wait_ready()
    found = topics(newer, node)
    assert all(name in found for name in ("first", "between", "behind"))
    assert level(node) == LEVEL + 1
    stop(node)


def examined(member: Member) -> dict[str, dict[str, str]]:
    """What the doctor finds of levels."""
    done = THIS.command("doctor", "--config", str(member.node.config), "--only", "levels", "--json")
    findings: list[dict[str, str]] = json.loads(done.stdout)["findings"]
    return {finding["check"]: finding for finding in findings}


def names_who_holds_back(leader: Member, older: Member) -> bool:
    """Whether the commands say that ``older`` keeps the next level from being put in force."""
    reason = f"{older.name} knows level 0, and needs version {NEWEST}"
    found = THIS.command("cluster", "features", "--address", leader.address).stdout
    diagnosis = examined(leader)["levels.members"]
    return (
        f"held back   {reason}" in found
        and diagnosis["verdict"] == "WARN"
        and reason in diagnosis["change"]
        and reason in refused_enabling(leader)
    )


def poisoned(member: Member) -> int:
    return int(member.node.status()["counters"]["broker"]["poison_messages"])


def refused_cluster(leader: Member) -> str:
    """Why no cluster can begin with the group now."""
    root_key = leader.node.folder / "root.json"
    words = ("--root-key", str(root_key), "--nodes", "tcp://127.0.0.1:1")
    done = THIS.command("cluster", "init", "sales", *words, "--address", leader.address)
    assert done.returncode == 1, done.stdout
    return done.stderr


def refused_schema(leader: Member) -> str:
    """Why no schema can be registered now."""
    file = leader.node.folder / "order.avsc"
    file.write_text('"int"')
    done = THIS.command("schema", "register", "orders", str(file), "--address", leader.address)
    assert done.returncode == 1, done.stdout
    return done.stderr


def refused_share(leader: Member) -> str:
    """Why no group can become a share group now."""
    done = THIS.command("share", "receive", "sharers", TOPIC, "--address", leader.address)
    assert done.returncode == 1, done.stdout
    return done.stderr


REFUSED: dict[str, Callable[[Member], str]] = {
    "level": refused_enabling,
    "cluster": refused_cluster,
    "schema": refused_schema,
    "shared": refused_share,
}
"""What asks a leader for each kind of change that 0.1.0 does not know, and the refusal; by the key
that the kind has in ``features.LEVELS``."""

COMES_AFTER = {"cluster_document": "cluster", "unshared": "shared"}
"""What is asked for by nobody before another kind of change was let through."""

READ_COMMANDS = """
import sys
from ledgermq.model.errors import CorruptLogError
from ledgermq.rules.state.state_commands import decode_command
from ledgermq.rules.state.state_tables import FILES
print(*FILES)
for line in sys.stdin.buffer:
    try:
        print(len(decode_command(line).changes))
    except CorruptLogError:
        print("unknown")
"""


def commands(member: Member) -> list[bytes]:
    """Bodies of the commands that its log has, snapshots left out."""
    view = StoreView(member.node.root)
    try:
        found = (queued.message for queued in view.messages(SYSTEM_TOPIC, STATE_QUEUE_ID))
        return [bytes(one.body) for one in found if one.body[:1] == b"{"]
    finally:
        view.close()


def needs(member: Member) -> list[int]:
    """The levels that commands of its log need, but for 0."""
    told = (json.loads(body).get("needs", 0) for body in commands(member))
    return [one for one in told if one]


def test_0_1_0_itself_reads_what_is_of_level_0_and_nothing_else() -> None:
    old = version_before()
    bodies = [encode_command(StateCommand("c", 1, (one,))) for one in SAMPLES.values()]
    done = subprocess.run(
        [str(old.python), "-c", READ_COMMANDS],
        env=old.environment, input=b"\n".join(bodies), capture_output=True,
        check=True,
    )  # fmt: skip
    tables, *found = done.stdout.decode().splitlines()
    expected = ["unknown" if LEVEL_OF_CHANGE[key] else "1" for key in SAMPLES]

    assert tuple(tables.split()) == LEVELS[0].tables
    assert dict(zip(SAMPLES, found, strict=True)) == dict(zip(SAMPLES, expected, strict=True))


def refuses_what_is_new(leader: Member, older: Member) -> None:
    """With ``older`` in its group, the leader refuses whatever that would not understand."""
    newer = {key for key, level in LEVEL_OF_CHANGE.items() if level}
    assert REFUSED.keys() == newer - COMES_AFTER.keys()
    assert {*COMES_AFTER.values()} <= REFUSED.keys()
    for refused in REFUSED.values():
        assert "feature level" in refused(leader)
    assert names_who_holds_back(leader, older)
    assert [needs(member) for member in (leader, older)] == [[], []]


def put_in_force(group: Group, leader: Member) -> None:
    """The highest level, as who leads tells to do until it is done."""
    hint = f"all members know {LEVEL}: ledgermq cluster features --enable"
    wait_until(lambda: hint in leader.command("status").stdout, "the next step to be told")
    assert features(THIS, leader.node, "--enable") == {"in_force": LEVEL}
    for member in group.members:
        wait_until(lambda member=member: level(member.node) == LEVEL, "the level to be in force")
    wait_until(lambda: hint not in leader.command("status").stdout, "the step to be done")


@pytest.mark.long
def test_a_group_of_the_version_before_is_replaced_one_by_one_there_and_back(
    make_node: Callable[[], Node],
) -> None:
    """Under load. No old member ever meets what it does not know: before the level is in force
    there is nothing of it in the log, and afterwards no old member is let in.
    """
    old = version_before()
    group = make_group(make_node, ack="majority-fsync", network=OldLoopback(old))
    for member in group.members:
        member.node.wait_ready()
    with load_on(group) as load:
        load.wait_more()
        last = group.leader()
        followers = group.others(last)
        # This version's command asks a node that was not restarted yet.
        assert last.command("raft", "status").returncode == 0
        for member in followers:
            replace(group, member, THIS)
            load.wait_more()
        replace(group, last, old)
        newer = group.leader(besides=last)
        assert newer in followers
        refuses_what_is_new(newer, last)
        assert raft_status(newer)["levels"][last.name] == 0
        # There and back before the level is in force.
        replace(group, followers[0], old)
        load.wait_more()
        replace(group, followers[0], THIS)
        replace(group, last, THIS)
        load.wait_more()
        leader = group.leader()
        wait_until(
            lambda: features(THIS, group.leader().node)["members_know"] == LEVEL, "all to say so"
        )
        assert [level(member.node) for member in group.members] == [0, 0, 0]
        assert not any(
            (one.node.root / "ledgermq" / "features.json").exists() for one in group.members
        )

        leader = group.leader()
        assert upgrade_check(leader, "--to", "0.1.0").returncode == 0
        assert upgrade_check(leader).stdout.count("may be next") == 3
        put_in_force(group, leader)
        # A downgrade now is refused, by the command and by the others.
        refused = upgrade_check(leader, "--to", "0.1.0")
        assert refused.returncode == 1
        assert f"it knows feature level 0, and level {LEVEL} is in force" in refused.stderr
        gone = next(one for one in group.members if not one.leads)
        stop(gone.node)
        start(old, gone.node)
        reason = refusal_of(group, gone)
        assert f"knows feature level 0, but level {LEVEL} is in force" in reason
        assert f"needs version {NEWEST} or newer" in reason
        load.wait_more()
        stop(gone.node)
        start(THIS, gone.node)
        gone.node.wait_ready()
        load.wait_more()
    group.wait_equal()
    assert [level(member.node) for member in group.members] == [LEVEL] * 3
    assert [(poisoned(one), needs(one)) for one in group.members] == [(0, [LEVEL])] * 3
    assert set(group.stop()) == {0}
    assert group.has_one_log()
    assert sorted(load.acknowledged) == sorted(group.members[0].bodies())


@pytest.mark.long
def test_a_member_that_meets_a_newer_command_replicates_on_and_leads_no_more(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    """The others raise a level that it has never said it knows, and let it in all the same: by
    their bug it meets what no member ever may.
    """
    reckless = next_version(tmp_path, asks_nobody=True)
    group = make_group(make_node, ack="majority-fsync")
    for member in group.members:
        member.node.wait_ready()
    older, *others = group.members
    for member in others:
        replace(group, member, reckless)
    wait_until(lambda: transferred(group, others[0]), "one of the others to lead")
    assert features(reckless, others[0].node, "--enable") == {"in_force": LEVEL + 1}
    wait_until(
        lambda: older.node.status()["counters"]["broker"]["level_needed"] == LEVEL + 1,
        "it to be held up",
    )
    create(reckless, others[0].node, "behind")
    with load_on(group) as load:
        load.wait_more()
    group.wait_equal()

    def could_lead() -> dict[str, bool]:
        peers = raft_status(group.leader())["peers"]
        return {peer["node"]: peer["could_lead"] for peer in peers}

    wait_until(lambda: could_lead().get(older.name) is False, "it to say that it should not lead")
    assert raft_status(older)["is_outdated"]
    refused = group.leader().command("raft", "transfer", older.name)
    assert "cannot lead now" in refused.stderr
    assert examined(older)["levels.log"]["verdict"] == "FAIL"
    assert "behind" not in (older.node.root / "config" / "topics.json").read_text()
    assert level(older.node) == LEVEL
    assert "this node needs a newer version" in older.node.log.read_text()

    replace(group, older, reckless)
    group.wait_equal()
    wait_until(lambda: level(older.node) == LEVEL + 1, "it to go on")
    assert "behind" in topics(reckless, older.node)
    assert set(group.stop()) == {0}
    assert group.has_one_log()
    assert sorted(load.acknowledged) == sorted(older.bodies())


def is_heard_of(leader: Member, joining: Member) -> bool:
    """Whether the leader knows that a node which is no member yet is too old for the group."""
    path = RuntimePaths(leader.node.runtime).raft_control
    try:
        control.ask(path, "hear", node=joining.name)
    except ProtocolError as error:
        return "knows feature level 0" in str(error)
    return False


def test_a_node_that_is_too_old_is_named_also_when_it_comes_behind_its_adding(
    make_node: Callable[[], Node],
) -> None:
    old = version_before()
    group = make_growing_group(make_node, first=1, members=2)
    leader, joining = group.members
    leader.node.wait_ready()
    wait_until(lambda: level(leader.node) == LEVEL, "the level to be in force")
    with ThreadPoolExecutor(1) as beside:
        adding = beside.submit(leader.command, "raft", "add", joining.name, joining.peer_address)
        wait_until(lambda: raft_status(leader)["learners"], "it to be a learner")
        start(old, joining.node)
        done = adding.result()

    assert done.returncode == 1
    assert f"n1 knows feature level 0, but level {LEVEL} is in force in the group" in done.stderr
    assert leader.leads
    assert leader.command("raft", "remove", joining.name).returncode == 0
    stop(joining.node)
    assert set(group.stop()) == {0}


def test_a_node_that_is_too_old_is_not_added_to_a_group(
    make_node: Callable[[], Node],
) -> None:
    old = version_before()
    group = make_growing_group(make_node, first=3, members=4)
    joining = group.members[3]
    for member in group.members[:3]:
        member.node.wait_ready()
        wait_until(lambda member=member: level(member.node) == LEVEL, "the level to be in force")
    start(old, joining.node)

    def add() -> subprocess.CompletedProcess[str]:
        """Asked of whoever leads now, for as long as another one does by then."""
        words = ("raft", "add", joining.name, joining.peer_address)
        answer: subprocess.CompletedProcess[str] = wait_until(
            lambda: "lead" not in (done := group.leader().command(*words)).stderr and done,
            "the leader to answer",
        )
        return answer

    wait_until(lambda: is_heard_of(group.leader(), joining), "the node to be heard of")
    refused = add()
    members = raft_status(group.leader())

    assert refused.returncode == 1
    assert f"n3 knows feature level 0, but level {LEVEL} is in force in the group" in refused.stderr
    assert f"needs version {NEWEST} or newer" in refused.stderr
    assert (members["voters"], members["learners"]) == (["n0", "n1", "n2"], [])

    stop(joining.node)
    start(THIS, joining.node)
    # What it has said before counts until it is heard of again.
    added: subprocess.CompletedProcess[str] = wait_until(
        lambda: not (done := add()).returncode and done, "its newer version to be heard of"
    )
    assert "n0, n1, n2, n3" in added.stdout
    joining.node.wait_ready()
    assert set(group.stop()) == {0}


def transferred(group: Group, heir: Member) -> bool:
    """Whether ``heir`` leads; asks for it as long as it does not."""
    leader = group.leader()
    if leader is not heir:
        leader.command("raft", "transfer", heir.name)
    return heir.leads
