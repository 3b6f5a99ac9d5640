"""Who is let into a group, and that both sides are told who is not, and why."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from ledgermq.model.config.settings import (
    AckMode,
    LogKind,
)
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.features import LEVEL
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.peer_keys import init_keys
from ledgermq.wire.peer_preamble import Preamble, encode_preamble
from tests.process.conftest import wait_until
from tests.process.peer_members import (
    N0,
    N1,
    N2,
    Members,
    deliver,
    preamble_of,
    raw_peer,
    refused,
    wait_answer,
    wait_unrefused,
)


@pytest.fixture
def clear_members(tmp_path: Path) -> Iterator[Members]:
    """Members without CURVE."""
    with Members(tmp_path) as made:
        yield made


@pytest.fixture
def guarded_members(tmp_path: Path) -> Iterator[Members]:
    """Members with keys."""
    init_keys(tmp_path / "keys", [N0, N1, N2])
    with Members(tmp_path, keys=tmp_path / "keys") as made:
        yield made


@pytest.fixture(params=["clear_members", "guarded_members"])
def members(request: pytest.FixtureRequest) -> Members:
    found: Members = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cluster": "other"}, "n1 is of another group than n0: node.broker_cluster_name or"),
        (
            {"file_size": 524_288},
            "store.mapped_file_size_commit_log is 524288 on n1, but 262144 on n0",
        ),
        ({"max_message_size": 9}, "store.max_message_size is 9 on n1, but 4096 on n0"),
        (
            {"ack": AckMode.LOSSY_LEADER},
            "ack.mode is lossy-leader on n1, but majority-fsync on n0",
        ),
        ({"log": LogKind.COMMITLOG}, "store.log is commitlog on n1, but dledger on n0"),
    ],
)
def test_other_settings_are_refused_and_named_on_both_sides(
    members: Members, changes: dict[str, object], expected: str
) -> None:
    first, second = members.start(N0), members.start(N1, **changes)

    def is_greeted() -> bool:
        first.pump()
        second.pump()
        return second.group.refused_here_count > 0

    # What it refuses itself does not hide what it is told.
    wait_until(is_greeted, "the greeting of the other one")
    here, there = refused(second, first)

    assert expected in here
    assert f"n0 refuses n1: {expected}" in there


def test_a_node_that_is_no_member_is_refused_and_told(tmp_path: Path) -> None:
    with Members(tmp_path, size=2) as of_two, Members(tmp_path, size=3) as of_three:
        of_three.peers = (*of_two.peers, of_three.peers[2])
        first, stranger = of_two.start(N0), of_three.start(N2)
        here, there = refused(stranger, first)

    assert here == "n2 is no member of the group of n0 (n0, n1)"
    assert there == f"n0 refuses n2: {here}"


def test_a_peer_with_the_address_of_another_one_is_refused_and_told(clear_members: Members) -> None:
    first = clear_members.start(N0)
    wrong = f"n2-127.0.0.1:{clear_members.ports[0]}"
    second = clear_members.start(N1, peers=(*clear_members.peers[:2], wrong))

    def told() -> str | None:
        second.group.send(N2, [b"for n2"])
        second.pump()
        first.pump()
        return second.group.refusals.get(N2)

    there = wait_until(told, "the refusal")

    assert there == "n2 refuses n1: n1 means n2, but reached n0: node.peers has a wrong address"


def test_two_nodes_of_one_name_are_told_apart(clear_members: Members) -> None:
    first = clear_members.start(N0)
    with raw_peer(clear_members.endpoint(N0)) as dealer:
        dealer.send_multipart([encode_preamble(preamble_of(clear_members, source=N0)), b"x"])
        reason = wait_answer(dealer, first)

    assert reason == "two nodes call themselves n0: node.self_id must differ"


def test_another_version_is_refused_and_named(clear_members: Members) -> None:
    first = clear_members.start(N0)
    with raw_peer(clear_members.endpoint(N0)) as dealer:
        future = encode_preamble(preamble_of(clear_members), version=9) + b"what version 9 adds"
        dealer.send_multipart([future, b"x"])
        reason = wait_answer(dealer, first)

    assert reason.startswith("n1 speaks version 9 of the protocol between members, n0 speaks")
    assert first.group.refusals == {N1: reason}


def test_who_is_too_old_for_the_level_in_force_is_refused_also_where_it_was_let_in(
    clear_members: Members,
) -> None:
    target = clear_members.start(N0)
    older = preamble_of(clear_members)._replace(level=LEVEL - 1)
    with raw_peer(clear_members.endpoint(N0)) as dealer:

        def known() -> int | None:
            dealer.send(encode_preamble(older))
            target.pump()
            return target.group.levels.get(N1)

        wait_until(lambda: known() == LEVEL - 1, "the older member to be let in")
        target.group.need_level(LEVEL)
        dealer.send(encode_preamble(older))
        reason = wait_answer(dealer, target)
        here = target.group.refusals[N1]

    expected = f"n1 knows feature level {LEVEL - 1}, but level {LEVEL} is in force in the group"
    assert expected in here
    assert expected in reason


def test_what_a_member_says_when_it_is_refused_is_what_it_knows_now(
    clear_members: Members,
) -> None:
    target = clear_members.start(N0)
    target.group.need_level(LEVEL)
    newer = preamble_of(clear_members)
    with raw_peer(clear_members.endpoint(N0)) as dealer:

        def known(preamble: Preamble) -> int | None:
            dealer.send(encode_preamble(preamble))
            target.pump()
            return target.group.levels.get(N1)

        wait_until(lambda: known(newer) == LEVEL, "the member to be let in")
        older = newer._replace(level=LEVEL - 1)
        wait_until(lambda: known(older) == LEVEL - 1, "what it knows with the version of before")


def test_a_node_that_is_too_old_is_no_new_member_before_it_has_a_newer_version(
    clear_members: Members,
) -> None:
    target = clear_members.start(N0)
    target.group.need_level(LEVEL)
    n3 = NodeId("n3")
    newer = preamble_of(clear_members, source=n3)
    target.group.check_new(n3)

    def is_refused(dealer: zmq.Socket[bytes], preamble: Preamble) -> str:
        dealer.send(encode_preamble(preamble))
        target.pump()
        try:
            target.group.check_new(n3)
        except ConfigError as error:
            return str(error)
        return ""

    with raw_peer(clear_members.endpoint(N0)) as dealer:
        other_group = newer._replace(cluster=b"of another group", level=LEVEL - 1)
        dealer.send(encode_preamble(other_group))
        wait_answer(dealer, target)
        target.group.check_new(n3)
        older = newer._replace(level=LEVEL - 1)
        said: str = wait_until(lambda: is_refused(dealer, older), "the node to be too old")
        wait_until(lambda: not is_refused(dealer, newer), "the newer version to be heard of")

    assert f"n3 knows feature level {LEVEL - 1}, but level {LEVEL} is in force" in said


@pytest.mark.long(but=1)
def test_a_wiped_disk_is_refused_until_it_is_forgotten(members: Members) -> None:
    first, second = members.start(N0), members.start(N1)
    deliver(second, first, b"before")
    second.close()
    wiped = members.start(N1, root="fresh")
    first.received.clear()
    here, there = refused(wiped, first)

    # A connection that ended with the old member may be told before it.
    here = here[here.index("n1 has another disk") :]
    assert here.startswith("n1 has another disk than n0 knows it by (identity ")
    assert "`ledgermq raft forget n1` on n0" in here
    assert f"n0 refuses n1: {here}" in there
    assert (first.group.forget(N1), first.group.forget(N1)) == (True, False)
    deliver(wiped, first, b"let in")
    wait_unrefused(first, wiped)
    wiped.close()
    old = members.start(N1)
    first.received.clear()
    assert "n1 has another disk" in refused(old, first)[0]


def test_what_was_trusted_is_still_known_after_a_restart(clear_members: Members) -> None:
    first, second = clear_members.start(N0), clear_members.start(N1)
    deliver(second, first, b"before")
    first.close()
    second.close()
    again, wiped = clear_members.start(N0), clear_members.start(N1, root="fresh")

    assert refused(wiped, again)[0].startswith("n1 has another disk")


def test_a_copied_disk_is_refused(clear_members: Members) -> None:
    first, second = clear_members.start(N0), clear_members.start(N1)
    deliver(second, first, b"before")
    identity = (clear_members.folder / "n1" / "ledgermq" / "identity").read_bytes()[24:40]
    own = (clear_members.folder / "n0" / "ledgermq" / "identity").read_bytes()[24:40]
    reasons = []
    for copied in (identity, own):
        with raw_peer(clear_members.endpoint(N0)) as dealer:
            preamble = preamble_of(clear_members, source=N2)._replace(identity=copied)
            dealer.send_multipart([encode_preamble(preamble), b"x"])
            reasons.append(wait_answer(dealer, first))

    assert reasons == [
        "n2 runs on a copy of the disk of n1",
        "n2 runs on a copy of the disk of n0",
    ]


def test_the_store_of_another_member_or_group_is_not_started(clear_members: Members) -> None:
    clear_members.start(N0).close()
    with pytest.raises(ConfigError, match=r"another member.*node\.self_id"):
        clear_members.start(N1, root="n0")
    with pytest.raises(ConfigError, match=r"another group.*node\.broker_cluster_name"):
        clear_members.start(N0, cluster="renamed")


@pytest.mark.parametrize("name", ["identity", "peers"])
def test_a_damaged_file_stops_the_node_and_is_named(clear_members: Members, name: str) -> None:
    first, second = clear_members.start(N0), clear_members.start(N1)
    deliver(second, first, b"remembered")
    first.close()
    path = clear_members.folder / "n0" / "ledgermq" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    with pytest.raises(CorruptLogError, match=str(path)):
        clear_members.start(N0)


def test_a_refused_peer_is_logged_once_and_let_in_when_it_is_mended(
    clear_members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = clear_members.start(N0), clear_members.start(N1, max_message_size=9)
    refused(second, first)
    before = first.group.refused_here_count

    def refused_again() -> bool:
        second.group.send(N0, [b"again"])
        second.pump()
        first.pump()
        return first.group.refused_here_count > before + 5

    wait_until(refused_again, "more refusals")
    second.close()
    mended = clear_members.start(N1)
    deliver(mended, first, b"mended")
    lines = [record.getMessage() for record in caplog.records]

    assert len([line for line in lines if line.startswith("peer refused: peer=n1")]) == 1
    assert len([line for line in lines if line.startswith("refused by a peer: peer=n0")]) == 1
    assert lines.count("peer is let in now: peer=n1") == 1
    wait_unrefused(first, mended)


def test_an_unknown_key_is_refused_on_both_sides_until_keys_are_exchanged(
    guarded_members: Members, tmp_path: Path
) -> None:
    init_keys(tmp_path / "other", [N0, N1, N2])
    # It knows the others by their right keys, but has another one itself.
    for node in (N0, N2):
        right = (tmp_path / "keys" / "n1" / f"{node}.public").read_bytes()
        (tmp_path / "other" / "n1" / f"{node}.public").write_bytes(right)
    first = guarded_members.start(N0)
    second = guarded_members.start(N1, keys="../other/n1")

    def both() -> tuple[str, str] | None:
        second.pump()
        first.pump()
        here, there = first.group.refusals.get(NodeId("127.0.0.1")), second.group.refusals.get(N0)
        return (here, there) if here and there else None

    here, there = wait_until(both, "the refusal")
    sent = second.group.send(N0, [b"x"])

    assert here.startswith("unknown key ") and "raft.keys_dir" in here
    assert there.startswith("n0 does not know the key of n1")
    assert (sent, first.received) == (False, [])

    # ZeroMQ itself would never try again after such an answer.
    first.close()
    key = (tmp_path / "other" / "n1" / "n1.public").read_bytes()
    (tmp_path / "keys" / "n0" / "n1.public").write_bytes(key)
    deliver(second, guarded_members.start(N0), b"with the new key")


def test_a_peer_with_another_key_than_it_is_known_by_is_not_talked_to(
    guarded_members: Members, tmp_path: Path
) -> None:
    init_keys(tmp_path / "other", [N0, N1, N2])
    first = guarded_members.start(N0)
    impostor = guarded_members.start(N1, keys="../other/n1")

    def told() -> bool:
        for member in (first, impostor):
            member.pump()
        return N1 in first.group.refusals and NodeId("unknown") in impostor.group.refusals

    wait_until(told, "the failure of the handshake")

    assert "its key is not the one" in first.group.refusals[N1]
    assert impostor.group.refusals[NodeId("unknown")].startswith("handshake failed: ")
    assert not first.group.send(N1, [b"secret"])


def test_a_member_without_curve_is_refused_and_both_are_told(guarded_members: Members) -> None:
    first = guarded_members.start(N0)
    with Members(guarded_members.folder) as in_the_clear:
        in_the_clear.ports, in_the_clear.peers = guarded_members.ports, guarded_members.peers
        second = in_the_clear.start(N1)

        def told() -> bool:
            for member in (first, second):
                member.pump()
            return NodeId("unknown") in first.group.refusals and N0 in second.group.refusals

        wait_until(told, "the failure of the handshake")

    assert "raft.curve" in first.group.refusals[NodeId("unknown")]
    assert "raft.curve differs" in second.group.refusals[N0]


def test_a_member_cannot_speak_for_another_one(guarded_members: Members) -> None:
    first = guarded_members.start(N0)
    with raw_peer(guarded_members.endpoint(N0), keys=guarded_members.keys, node=N2) as dealer:
        dealer.send_multipart([encode_preamble(preamble_of(guarded_members)), b"a vote of n1"])
        reason = wait_answer(dealer, first)

    assert reason == "a node with the key of n2 calls itself n1: raft.keys_dir is another's"
    assert first.received == []


def test_a_connection_that_takes_over_a_routing_id_does_not_take_over_the_name(
    guarded_members: Members,
) -> None:
    first = guarded_members.start(N0)
    endpoint, preamble = guarded_members.endpoint(N0), encode_preamble(preamble_of(guarded_members))
    with raw_peer(endpoint, keys=guarded_members.keys, node=N1, routing_id=b"same") as honest:
        honest.send_multipart([preamble, b"from n1"])
        wait_until(lambda: (N1, [b"from n1"]) in first.pump(), "the member's own message")
    with raw_peer(endpoint, keys=guarded_members.keys, node=N2, routing_id=b"same") as thief:

        def is_refused() -> bool:
            thief.send_multipart([preamble, b"from n2"])
            first.pump()
            return "a node with the key of n2" in first.group.refusals.get(N1, "")

        wait_until(is_refused, "the refusal")

    assert first.received == [(N1, [b"from n1"])]


def test_a_group_without_keys_is_not_started(tmp_path: Path) -> None:
    keyless = Members(tmp_path, keys=tmp_path / "keys")
    with pytest.raises(ConfigError, match=r"ledgermq keys init.*raft\.keys_dir"):
        keyless.start(N0)

    assert not (tmp_path / "n0").exists()


def test_a_store_that_cannot_be_written_is_told(clear_members: Members) -> None:
    own = clear_members.folder / "n0" / "ledgermq"
    own.mkdir(parents=True)
    (own / "identity").mkdir()

    with pytest.raises(StorageError, match="identity"):
        clear_members.start(N0)
