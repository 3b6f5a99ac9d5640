"""Three real nodes: one log, whoever dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ledgermq.cli.main import main
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

MODES = ["majority-fsync", "majority-memory"]

STOPS_MAX = 5
"""So many leaders are stopped until one hand-over was not disturbed."""


@pytest.fixture(params=MODES)
def group(request: pytest.FixtureRequest, make_node: Callable[[], Node]) -> Group:
    return make_group(make_node, ack=request.param)


def go_on(pid: int) -> None:
    """Let a process go on that was stopped; its supervisor may have ended it by then."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def bodies(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number:05d}-".encode() + b"x" * 300 for number in range(count)]


@pytest.mark.long(but=1)
def test_every_member_holds_the_same_bytes(group: Group) -> None:
    leader = group.leader()
    with producer(leader) as one:
        futures = [one.send_batch(TOPIC, bodies(f"b{turn}", 50)) for turn in range(40)]
        acked = sum(len(future.result()) for future in futures)
    group.wait_equal()
    statuses = group.stop()

    assert acked == 2_000
    assert statuses == [0, 0, 0]
    assert group.has_one_log()
    sent = {body for turn in range(40) for body in bodies(f"b{turn}", 50)}
    for member in group.members:
        assert set(member.bodies()) == sent
        assert len(member.bodies()) == 2_000


@pytest.mark.long(but=1)
def test_a_dead_leader_is_followed_by_another_with_all_that_was_acknowledged(group: Group) -> None:
    first = group.leader()
    with producer(first) as one:
        before = [one.send_batch(TOPIC, bodies(f"a{turn}", 20)) for turn in range(10)]
        assert all(len(future.result()) == 20 for future in before)
    first.kill()
    second = group.leader(besides=first)
    with producer(second) as one:
        after = [one.send_batch(TOPIC, bodies(f"b{turn}", 20)) for turn in range(10)]
        assert all(len(future.result()) == 20 for future in after)
    first.start()
    group.wait_equal()
    group.stop()

    assert second is not first
    assert group.has_one_log()
    expected = {body for turn in range(10) for p in "ab" for body in bodies(f"{p}{turn}", 20)}
    assert all(set(member.bodies()) == expected for member in group.members)


@pytest.mark.long(but=1)
def test_what_no_majority_has_is_cut_when_its_leader_comes_back(group: Group) -> None:
    first = group.leader()
    with producer(first) as one:
        one.send_batch(TOPIC, bodies("kept", 20)).result()
    group.wait_equal()
    for other in group.others(first):
        other.kill()
    with producer(first, timeout_s=0.3) as one:
        lost = one.send_batch(TOPIC, bodies("lost", 700))
        written = first.cursors()["written"]["index"]
        wait_until(lambda: first.cursors()["written"]["index"] >= written, "the entries")
        error = lost.exception(PATIENCE_S)
    first.kill()
    for other in group.others(first):
        other.start()
    second = group.leader(besides=first)
    with producer(second) as one:
        one.send_batch(TOPIC, bodies("new", 30)).result()
    first.start()
    group.wait_equal()
    group.stop()

    assert error is not None
    assert first.node.logged("log cut: ")
    assert group.has_one_log()
    assert set(first.bodies()) == {*bodies("kept", 20), *bodies("new", 30)}


@pytest.mark.long(but=1)
def test_a_member_that_was_away_catches_up(group: Group) -> None:
    leader = group.leader()
    away = group.others(leader)[0]
    away.kill()
    with producer(leader) as one:
        futures = [one.send_batch(TOPIC, bodies(f"b{turn}", 100)) for turn in range(50)]
        assert all(len(future.result()) == 100 for future in futures)
    away.start()
    group.wait_equal()
    group.stop()

    assert group.has_one_log()
    assert len(away.bodies()) == 5_000


@pytest.mark.long(but=1)
def test_a_minority_acknowledges_nothing_and_says_why(group: Group) -> None:
    leader = group.leader()
    # Before a majority has agreed to something its broker does not tell what topics there are.
    with producer(leader) as one:
        one.send(TOPIC, b"all have this").result()
    for other in group.others(leader):
        other.kill()
    wait_until(lambda: not leader.leads, "the leader to step down")
    # In that time it learns its queues, too.
    with producer(leader, timeout_s=5.0) as one:
        error = one.send(TOPIC, b"nobody has this").exception(PATIENCE_S)

    def reasons_of_an_election() -> list[str]:
        why = leader.command("raft", "why-no-leader", "--json")
        assert (why.returncode, why.stderr) == (0, "")
        found: list[str] = json.loads(why.stdout)["reasons"]
        # The one that it won is told, too, until there has been another.
        return found if any("1 of 3 agreed" in reason for reason in found) else []

    reasons = wait_until(reasons_of_an_election, "an election")

    assert error is not None
    assert any("2 needed" in reason for reason in reasons), reasons
    assert sum("did not answer" in reason for reason in reasons) == 2, reasons


@pytest.mark.long(but=1)
def test_the_leadership_is_handed_over_on_demand(group: Group) -> None:
    group.wait_equal()
    # Looked for last: on a busy machine the lead may have moved meanwhile.
    leader = group.leader()
    target = group.others(leader)[0]
    done = leader.command("raft", "transfer", target.name, "--json", "--timeout", str(PATIENCE_S))
    status = json.loads(target.command("raft", "status", "--json").stdout)
    again = leader.command("raft", "transfer", target.name, "--json")
    nobody = target.command("raft", "transfer", "n9")
    forgotten = leader.command("raft", "forget", target.name, "--json")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["leader"] == target.name
    assert (status["role"], status["leader"], status["voters"]) == (
        "leader",
        target.name,
        ["n0", "n1", "n2"],
    )
    refusal = json.loads(again.stderr)["error"]
    assert (again.returncode, refusal["kind"]) == (1, "NotLeaderError")
    assert "does not lead" in refusal["message"]
    assert nobody.returncode == 1 and "no such member" in nobody.stderr
    assert json.loads(forgotten.stdout) == {"forgotten": True}
    assert leader.node.logged(f"act=transfer on={target.name} outcome=done")
    assert target.node.logged("act=transfer on=n9 outcome=refused")


@pytest.mark.long(but=1)
def test_a_topic_that_a_leader_made_is_known_to_its_successor(group: Group) -> None:
    leader = group.leader()
    with producer(*group.members) as one:
        first = one.send_batch("made-later", bodies("a", 40)).result()
        group.wait_equal()
        leader.kill()
        second = one.send_batch("made-later", bodies("b", 40)).result()
    successor = group.leader(besides=leader)

    assert (len(first), len(second)) == (40, 40)
    assert '"made-later"' in (successor.node.root / "config" / "topics.json").read_text()


def stop_leader(group: Group, wanted: set[bytes], prefix: str) -> Member | None:
    """Stop the leader while messages are sent, and look that the one it asked succeeds it at once.

    Args:
        wanted: what was sent is added to it.

    Returns:
        Who was stopped; None if it cannot be judged, for another election came between.
    """
    group.wait_equal()
    # Looked for last: on a busy machine the lead may have moved meanwhile.
    leader = group.leader()
    begins = {one.name: len(one.node.log.read_text()) for one in group.members}
    status = json.loads(leader.command("raft", "status", "--json").stdout)
    with producer(*group.members) as one:
        sent = bodies(f"{prefix}-before", 10)
        assert len(one.send_batch(TOPIC, sent).result()) == 10
        leader.node.signal(signal.SIGTERM)
        for body in bodies(f"{prefix}-after", 200):
            one.send(TOPIC, body).result()
            sent.append(body)
    assert leader.node.wait_end() == 0
    wanted.update(sent)
    told = {one.name: one.node.log.read_text()[begins[one.name] :] for one in group.members}
    asked = [text for text in told.values() if f"campaigns because {leader.name} hands" in text]
    # No timeout was waited for: one that was asked to campaign led in the next term.
    led = [f"term={status['term'] + 1} role=leader" in text for text in asked]
    if "leadership is handed over: to=n" in told[leader.name] and led == [True]:
        return leader
    # Who campaigns without being asked is a pre-candidate first.
    is_disturbed = (
        status["role"] != "leader"
        or "leadership not handed over: " in told[leader.name]
        or any("role=pre-candidate" in text for text in told.values())
    )
    assert is_disturbed, told
    leader.start()
    return None


@pytest.mark.long(but=1)
def test_a_leader_that_is_stopped_hands_over_first(group: Group) -> None:
    wanted: set[bytes] = set()
    # On a busy machine heartbeats are late: then others campaign, too.
    turns = (stop_leader(group, wanted, f"turn{turn}") for turn in range(STOPS_MAX))
    stopped = next((leader for leader in turns if leader is not None), None)
    assert stopped is not None, "each hand-over was disturbed by another election"
    group.wait_equal()
    group.stop()

    for member in group.others(stopped):
        assert set(member.bodies()) == wanted


@pytest.mark.long(but=1)
@pytest.mark.parametrize("role", ["raft", "writer"])
def test_a_process_of_the_leader_that_dies_costs_nothing_that_was_acknowledged(
    group: Group, role: str
) -> None:
    with producer(*group.members) as one:
        before = one.send_batch(TOPIC, bodies("before", 30)).result()
    # Looked for last: who led before the messages may have lost the lead meanwhile.
    leader = group.leader()
    pid = leader.node.pid(role)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: leader.node.child(role)["pid"] not in (0, pid), "the process to be back")
    # A raft process that was just started has not yet withdrawn what the dead one had granted: who
    # is asked for a leader now may be told of the old one.
    with producer(*group.members) as one:
        after = one.send_batch(TOPIC, bodies("after", 30)).result()
    group.wait_equal()
    group.stop()

    assert (len(before), len(after)) == (30, 30)
    assert group.has_one_log()
    assert set(leader.bodies()) == {*bodies("before", 30), *bodies("after", 30)}


@pytest.mark.long(but=1)
def test_a_member_with_a_new_disk_is_filled_again_once_it_is_trusted(group: Group) -> None:
    leader = group.leader()
    with producer(leader) as one:
        assert len(one.send_batch(TOPIC, bodies("before", 500)).result()) == 500
    group.wait_equal()
    wiped, other = group.others(leader)
    assert wiped.node.stop() == 0
    shutil.rmtree(wiped.node.root / f"dledger-{wiped.name}")
    (wiped.node.root / "ledgermq" / "identity").unlink()
    (wiped.node.root / "ledgermq" / "log-checkpoint").unlink()
    (wiped.node.root / "ledgermq" / "term").unlink()
    shutil.rmtree(wiped.node.root / "consumequeue")
    shutil.rmtree(wiped.node.root / "index")
    (wiped.node.root / "ledgermq" / "dispatch-checkpoint").unlink()
    wiped.start()
    wait_until(lambda: leader.node.logged("peer refused: peer=" + wiped.name), "the refusal")
    for member in (leader, other):
        assert member.command("raft", "forget", wiped.name).returncode == 0
    group.wait_equal()
    group.stop()

    assert group.has_one_log()
    assert set(wiped.bodies()) == set(bodies("before", 500))


def test_a_leader_whose_writer_hangs_hands_over_and_follows_when_it_wakes(
    make_node: Callable[[], Node],
) -> None:
    # Who stands still is not killed, however long an election takes.
    group = make_group(
        make_node,
        ack="majority-fsync",
        raft={"disk_sick_after_ms": 500},
        supervision={"beat_timeout_ms": 600_000},
    )
    first = group.leader()
    with producer(*group.members) as one:
        assert len(one.send_batch(TOPIC, bodies("before", 20)).result()) == 20
        writer = first.node.pid("writer")
        os.kill(writer, signal.SIGSTOP)
        second = group.leader(besides=first)
        assert len(one.send_batch(TOPIC, bodies("after", 20)).result()) == 20
        sick = json.loads(first.command("raft", "status", "--json").stdout)["disk_is_sick"]
        os.kill(writer, signal.SIGCONT)
    group.wait_equal()
    wait_until(
        lambda: not json.loads(first.command("raft", "status", "--json").stdout)["disk_is_sick"],
        "the disk to be well again",
    )
    group.stop()

    assert second is not first
    assert sick
    assert group.has_one_log()
    assert all(len(member.bodies()) == 40 for member in group.members)


@pytest.mark.long(but=1)
def test_a_hand_over_that_took_too_long_is_asked_for_again(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    group.wait_equal()
    # Looked for last: on a busy machine the lead may have moved meanwhile.
    leader = group.leader()
    target = group.others(leader)[0]
    where = ("--runtime-dir", str(leader.node.runtime))
    transfer = ["raft", "transfer", target.name, "--json", "--timeout", str(PATIENCE_S), *where]
    # In this process, and imported: whom the leader has not heard for half a second it refuses, and
    # a process that begins may take as long.
    assert main(["raft", "status", *where]) == 0
    capsys.readouterr()
    pid = target.node.pid("raft")

    def is_abandoned() -> bool:
        return leader.node.logged("it took too long")

    def is_taken() -> bool:
        """Whether it was begun: one that is asked too late is refused, and changes nothing."""
        os.kill(pid, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(1) as thread:
                asked = thread.submit(main, transfer)
                wait_until(lambda: is_abandoned() or asked.done(), "raft to abandon it")
                go_on(pid)
                status = asked.result()
        finally:
            go_on(pid)
        printed = capsys.readouterr()
        outcomes.append((status, printed.out, printed.err))
        if is_abandoned():
            return True
        assert "target does not answer" in printed.err
        group.wait_equal()
        return False

    outcomes: list[tuple[int, str, str]] = []
    wait_until(is_taken, "a hand-over that is begun")
    status, out, err = outcomes[-1]
    assert (status, err) == (0, "")
    assert json.loads(out)["leader"] == target.name
