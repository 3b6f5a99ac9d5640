"""``Producer`` in a cluster, against peers, each a group of its own that knows of the others."""

from __future__ import annotations

import os
import resource
import time
from contextlib import ExitStack

import pytest

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.clusters.group_turns import GroupTime, next_turn
from ledgermq.client.clusters.told_topics import OVER_NONE
from ledgermq.client.clusters.topic_groups import GroupQueue, TopicGroups
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import BusyError, ConfigError, NotLeaderError, TopicUnknownError
from tests.suite.patience import PATIENCE_S
from tests.unit.client.known_cluster import DEAD, MakeCluster, make_known
from tests.unit.client.peer import Peer
from tests.unit.client.test_producer import wait_until


def send_until_all(producer: Producer, peers: list[Peer]) -> None:
    """Send until each of these groups has got a message more."""
    before = [len(peer.seen) for peer in peers]

    def have_more() -> bool:
        producer.send("T", b"x").result(PATIENCE_S)
        return all(len(peer.seen) > old for peer, old in zip(peers, before, strict=True))

    wait_until(have_more)


def test_one_address_of_any_group_is_enough_for_all(make_cluster: MakeCluster) -> None:
    peers = make_cluster("abc")
    for peer in peers.values():
        with Producer(peer.address) as producer:
            send_until_all(producer, [*peers.values()])

            assert producer.groups() == ["a", "b", "c"]


def test_a_group_without_the_topic_gets_nothing(make_cluster: MakeCluster) -> None:
    peers = make_cluster("abc")
    del peers["b"].topics["T"]
    with Producer(peers["b"].address) as producer:
        send_until_all(producer, [peers["a"], peers["c"]])

    assert peers["b"].seen == []
    assert "T" not in peers["b"].topics


def test_a_key_has_one_queue_among_those_of_all_groups(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    peers["a"].topics["T"], peers["b"].topics["T"] = 3, 5
    keys = [f"k{number}" for number in range(40)]
    used: set[tuple[str, int]] = set()
    for peer in peers.values():
        with Producer(peer.address) as producer:
            for key in keys:
                producer.send("T", key.encode(), queue_key=key)
                producer.send_batch("T", [key.encode()], message_group=key)
            producer.flush(PATIENCE_S)

    for key in keys:
        places = [
            (name, queue)
            for name, peer in peers.items()
            for (_, queue), rows in peer.queues.items()
            for row in rows
            if bytes(decode_message(memoryview(row.record)).body) == key.encode()
        ]
        assert len(places) == 4 and len(set(places)) == 1, (key, places)
        used |= set(places)
    assert len(used) == 8


def test_a_group_that_stands_still_costs_the_others_nothing(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    still = peers["b"]
    with Producer(peers["a"].address, options=ProducerOptions(timeout_s=60)) as producer:
        send_until_all(producer, [*peers.values()])
        still.silent = True
        group = producer.of_all._used["b", False].time

        def has_stood_for_long() -> bool:
            if not group.waits_s(time.monotonic()):
                producer.send("T", b"y")
            return group.waits_s(time.monotonic()) > 1.0

        wait_until(has_stood_for_long)
        before = producer.of("b")._pipeline.unanswered_bytes
        for _ in range(40):
            producer.send("T", b"z").result(PATIENCE_S)

        assert producer.of("b")._pipeline.unanswered_bytes == before > 0
        still.silent = False
        still.restart()
        producer.flush(PATIENCE_S)
        send_until_all(producer, [*peers.values()])


def test_a_dead_group_is_left_out_and_found_again(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    with Producer(peers["a"].address) as producer:
        send_until_all(producer, [*peers.values()])
        peers["b"].stop_listening()
        wait_until(lambda: [g.answers for g in producer.of_all._watch.groups()] == [True, False])
        for _ in range(100):
            producer.send("T", b"z").result(PATIENCE_S)
        peers["b"].restart()

        send_until_all(producer, [*peers.values()])


def test_a_client_of_a_process_with_many_files_sends_as_any_other(
    make_cluster: MakeCluster,
) -> None:
    """Its descriptors are above 1,023, which ``select`` does not know."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1_100):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        peers = make_cluster("ab")
        with Producer(peers["a"].address) as producer:
            send_until_all(producer, [*peers.values()])
            # Nobody waits for this one: the thread in the background takes its answer.
            future = producer.send("T", b"x")
            wait_until(future.done)

        assert future.result().queue_id >= 0


def test_who_waits_for_room_waits_for_any_group(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    options = ProducerOptions(timeout_s=60, window_bytes=65_536)
    with Producer(peers["a"].address, options=options) as producer:
        send_until_all(producer, [*peers.values()])
        for peer in peers.values():
            peer.silent = True
        with pytest.raises(BusyError):
            while True:
                producer.send("T", bytes(8_192), block=False)
        peers["a"].silent = False
        peers["a"].restart()
        before = len(peers["a"].seen)
        for _ in range(20):
            producer.send("T", bytes(8_192))
        producer.of("a").flush(PATIENCE_S)

        assert len(peers["a"].seen) > before
        assert producer.of("b")._pipeline.unanswered_bytes > 0
        peers["b"].silent = False
        peers["b"].restart()


def test_a_topic_that_was_not_used_for_long_is_asked_for_before_a_key_goes_by_it(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = make_cluster("ab")
    with Producer(peers["a"].address) as producer:
        send_until_all(producer, [*peers.values()])
        producer.send("T", b"x", queue_key="k").result(PATIENCE_S)
        peers["a"].topics["T"], peers["b"].topics["T"] = 1, 0
        producer.of_all._watch._topics["T"] -= 1_000
        before = len(peers["a"].seen)
        producer.send("T", b"x", queue_key="k")
        producer.flush(PATIENCE_S)

        assert [one.queue_id for one in peers["a"].seen[before:]] == [0]


def test_a_group_of_another_cluster_is_left_out(
    make_cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    peers, other = make_cluster("ab"), make_cluster("c")["c"]
    other.cluster["cluster"] = "another"
    with Producer([f"{peers['b'].address},", other.address]) as producer:
        producer.contact()
        wait_until(lambda: "is left out" in caplog.text)
        for _ in range(20):
            producer.send("T", b"x").result(PATIENCE_S)

    # Who answers first has the others, whose cluster ever it is.
    sent_to = len(peers["a"].seen) + len(peers["b"].seen), len(other.seen)
    assert sorted(sent_to) == [0, 20]


def test_a_group_that_has_moved_is_found_where_the_rows_say_that_it_is(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgermq.client.clusters.group_watch.LOOK_S", 0.05)
    monkeypatch.setattr("ledgermq.client.clusters.group_watch.MOVED_S", 0.05)
    peers, new = make_cluster("ab"), make_cluster("b")["b"]
    with Producer(peers["a"].address) as producer:
        send_until_all(producer, [*peers.values()])
        make_known({"a": peers["a"], "b": new}, number=2)
        peers["b"].stop_listening()

        def is_found() -> bool:
            group = producer.of_all._watch.group("b")
            return group is not None and group.address == new.address and group.answers

        # What was sent before that is under way to where the group was.
        wait_until(is_found)
        send_until_all(producer, [peers["a"], new])


def test_a_group_that_is_dead_at_first_delays_keys_alone(make_cluster: MakeCluster) -> None:
    peers = make_cluster("a")
    make_known(peers, dead=DEAD)
    with Producer(peers["a"].address) as producer:
        producer.send("T", b"x").result(PATIENCE_S)
        producer.of_all.options = ProducerOptions(timeout_s=0.05)
        with pytest.raises(NotLeaderError, match="queues are not known") as told:
            producer.send("T", b"x", queue_key="k")

    assert told.value.details["groups"] == ["dead"]
    assert len(peers["a"].seen) == 1


def test_one_group_that_answers_is_enough_to_begin_with(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    with Producer([DEAD, peers["b"].address]) as producer:
        send_until_all(producer, [*peers.values()])


def test_a_queue_needs_its_group_where_several_have_the_topic(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    with Producer(peers["a"].address) as producer:
        with pytest.raises(ConfigError, match="name it"):
            producer.send("T", b"x", queue_id=1)
        with pytest.raises(ConfigError, match="no such group"):
            producer.send("T", b"x", queue_id=1, group="c")
        producer.send("T", b"x", queue_id=1, group="b").result(PATIENCE_S)

    assert [(one.topic, one.queue_id) for one in peers["b"].seen] == [("T", 1)]
    assert peers["a"].seen == []


def test_a_topic_that_nobody_has_is_made_where_the_client_was_sent(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    with Producer(peers["b"].address) as producer:
        producer.send("new", b"x").result(PATIENCE_S)
        with pytest.raises(TopicUnknownError):
            producer.send("forbidden", b"x")

    assert peers["b"].stored("new") == [b"x"]
    assert "new" not in peers["a"].topics


def test_a_group_of_no_cluster_is_used_as_a_producer_uses_it(peer: Peer) -> None:
    with Producer([f"{peer.address},"]) as producer, Producer(peer.address) as plain:
        found = [producer.send("T", b"x", queue_key=f"k{n}").result() for n in range(9)]
        wanted = [plain.send("T", b"x", queue_key=f"k{n}").result() for n in range(9)]

        assert producer.of_all._watch.alone == "b"
        assert [one.queue_id for one in found] == [one.queue_id for one in wanted]


def test_a_group_that_joins_is_used_when_the_others_tell_of_it(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgermq.client.clusters.group_watch.LOOK_S", 0.05)
    peers = make_cluster("ab")
    new = peers.pop("b")
    make_known(peers)
    with Producer(peers["a"].address) as producer:
        producer.send("T", b"x").result(PATIENCE_S)
        assert producer.groups() == ["a"]
        make_known({**peers, "b": new}, number=2)

        send_until_all(producer, [peers["a"], new])
        make_known(peers, number=3)
        wait_until(lambda: producer.groups() == ["a"])


def test_turns_are_as_many_as_a_groups_time_allows() -> None:
    fast, slow = GroupTime(), GroupTime()
    fast.average_s, slow.average_s = 0.002, 0.006
    turns = [next_turn([fast, slow], 1.0) for _ in range(400)]

    assert turns.count(1) == 100
    assert max(len(run) for run in "".join(map(str, turns)).split("1")) <= 4


def test_a_watched_send_counts_with_its_age_and_then_keeps_its_group_out() -> None:
    fast, still = GroupTime(), GroupTime()
    assert still.begins(1.0)
    assert not still.begins(1.0)
    young = [next_turn([fast, still], 1.008) for _ in range(50)]
    old = [next_turn([fast, still], 1.2) for _ in range(50)]
    still.ends(1.3, is_stored=False)

    assert (young.count(1), old.count(1)) == (10, 0)
    assert still.average_s == fast.average_s
    assert not still.begins(1.31)
    assert still.begins(1.4)


def test_the_slowest_group_still_gets_a_few() -> None:
    fast, slow = GroupTime(), GroupTime()
    slow.average_s = 60.0

    assert [next_turn([fast, slow], 1.0) for _ in range(650)].count(1) == 10


def test_queues_of_a_key_are_counted_by_the_names_of_groups() -> None:
    said = TopicGroups.of({"b": 2, "a": 1, "closed": 0}, OVER_NONE)
    found = {said.queue_of(chr(code)) for code in range(97, 103)}

    assert said.unheard == ()
    assert found == {GroupQueue("a", 0), GroupQueue("b", 0), GroupQueue("b", 1)}
