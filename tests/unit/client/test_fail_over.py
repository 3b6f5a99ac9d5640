"""Topics over groups by a ``ProducerOfGroups``: whose queues keys go by, and what fails over."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from ledgermq.client import Producer
from ledgermq.client.clusters.cluster_producer import ProducerOfGroups
from ledgermq.client.clusters.fail_over import kept
from ledgermq.client.clusters.told_topics import OVER_NONE, ToldTopic
from ledgermq.client.clusters.topic_groups import GroupQueue, TopicGroups
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.message_options import BatchOptions, shared_outgoing
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.formats.records.properties import MESSAGE_GROUP
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    MessageIllegalError,
    NotLeaderError,
    OutcomeUnknownError,
    TimedOutError,
    TopicUnknownError,
)
from tests.suite.patience import PATIENCE_S
from tests.unit.client.known_cluster import DEAD, MakeCluster, make_known, make_over
from tests.unit.client.peer import Peer, ids
from tests.unit.client.test_producer import wait_until

SOON_S = 1.0
LATER_S = 5.0
"""So that something else is done before, on a busy machine, too."""
PATIENT = ProducerOptions(timeout_s=60)

Futures = list[SendFuture[SendResult]]


def of_groups(address: str, **how: Any) -> ProducerOfGroups:
    """What a producer is in a cluster, of which a node of one group is known."""
    ordinary = Producer([f"{address},"], awaits_node=False, **how)
    ordinary.contact()
    producer: ProducerOfGroups = ordinary.of_all
    return producer


def know(producer: ProducerOfGroups, topic: str = "T") -> TopicGroups:
    """Return when all is known of a topic."""
    producer._watch.topic_groups(topic)
    said = producer._watch.wait_for(
        topic, lambda told: told.is_whole, time.monotonic() + PATIENCE_S
    )
    assert said.is_whole
    return said


def answer(producer: ProducerOfGroups, names: str = "ab") -> None:
    """Return when these groups have a session with the one that looks at them.

    A machine that stands for a moment may cost it one, and what is sent while one group alone has
    a session waits for that group, as long as any message does: there is no other one.
    """
    groups = [producer._watch.group(name) for name in names]
    wait_until(lambda: all(group is not None and group.answers for group in groups))


def live(producer: ProducerOfGroups, group: str) -> str:
    """Have a group store a message, whose unique id is returned.

    On a busy machine both groups may be too slow for what fails over, which then waits for the one
    that has stored something: else perhaps for the silent one.
    """
    return producer.send("T", b"lives", group=group).result(PATIENCE_S).unique_id


def fill(producer: ProducerOfGroups, peer: Peer, body: bytes = b"x") -> Futures:
    """Send until this group has got a message."""
    before, sent = len(peer.seen), []

    def has_come() -> bool:
        answer(producer)
        sent.append(producer.send("T", body))
        return len(peer.seen) > before

    wait_until(has_come)
    return sent


def test_keys_go_by_the_row_and_wait_for_no_group_that_is_dead_at_first(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_known(peers, dead=DEAD)
    make_over(peers, "T", a=4, b=4, dead=2)
    whole = TopicGroups({"a": 4, "b": 4, "dead": 2}, ())
    keys = {f"k{number}": whole.queue_of(f"k{number}") for number in range(40)}
    lives = {key: queue for key, queue in keys.items() if queue.group != "dead"}
    lost = next(key for key in keys if key not in lives)
    with of_groups(peers["a"].address, options=ProducerOptions(timeout_s=60)) as producer:
        found = {key: producer.send("T", b"x", queue_key=key) for key in lives}

        assert {key: sent.result(PATIENCE_S).queue_id for key, sent in found.items()} == {
            key: queue.queue_id for key, queue in lives.items()
        }
        with pytest.raises(NotLeaderError):
            producer.send("T", b"x", queue_key=lost, block=False)
    for name in "ab":
        wanted = sum(queue.group == name for queue in lives.values())
        assert len(peers[name].stored()) == wanted > 0


def test_groups_that_a_row_does_not_name_get_nothing(make_cluster: MakeCluster) -> None:
    peers = make_cluster("abc")
    make_over(peers, "T", a=4, c=0)
    with of_groups(peers["b"].address) as producer:
        know(producer)
        for number in range(20):
            answer(producer, "ac")
            producer.send("T", b"x").result(PATIENCE_S)
            producer.send("T", b"x", queue_key=f"k{number}").result(PATIENCE_S)

    # What a group says of itself counts more than its row: it may have a newer one. Keys go by the
    # row alone.
    assert len(ids(peers["a"])) + len(ids(peers["c"])) == 40
    assert len(ids(peers["a"])) >= 20 and ids(peers["c"]) and not ids(peers["b"])


def test_a_topic_over_groups_is_made_by_no_client(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    make_over(peers, "new", b=4)
    with of_groups(peers["a"].address) as producer:
        # Until a group has spoken, it has what the row says.
        wait_until(lambda: not know(producer, "new").queues)
        with pytest.raises(TopicUnknownError, match="takes messages of it now"):
            producer.send("new", b"x")

    assert "new" not in peers["a"].topics and "new" not in peers["b"].topics


def test_keys_stay_where_the_row_has_them_while_groups_follow_one_after_the_other(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", a=4, b=4)
    key = next(f"k{n}" for n in range(99) if know_queue(f"k{n}").group == "b")
    peers["b"].topics["T"] = 0
    with of_groups(peers["a"].address) as producer:
        # By its own word the second one takes nothing.
        wait_until(lambda: [*know(producer).queues] == ["a"])
        producer.send("T", b"x", queue_key=key).result(PATIENCE_S)

    assert len(ids(peers["b"])) == 1 and not ids(peers["a"])


def test_a_key_of_a_topic_that_is_closed_in_all_groups_goes_nowhere_until_it_is_open(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", a=0, b=0)
    with of_groups(peers["a"].address) as producer:
        know(producer)
        with pytest.raises(TopicUnknownError, match="takes messages of it now"):
            producer.send("T", b"x", queue_key="k")
        make_over(peers, "T", a=4, b=4)
        make_known(peers, number=2)
        # Who was refused asks anew.
        producer.send("T", b"x", queue_key="k").result(PATIENCE_S)


def test_a_key_waits_for_a_row_that_nobody_has_confirmed_for_long(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", a=4, b=4)
    with of_groups(peers["a"].address) as producer:
        before = know(producer)
        monkeypatch.setattr("ledgermq.client.clusters.told_topics.ROW_GOOD_S", -1.0)
        producer._watch.look_again("T")
        wait_until(lambda: know(producer).good_until < before.good_until)
        with pytest.raises(NotLeaderError, match="no group has confirmed"):
            producer.send("T", b"x", queue_key="k", block=False)
        producer.send("T", b"any queue").result(PATIENCE_S)


def test_a_row_that_changes_is_told_to_who_uses_its_topic(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgermq.client.clusters.group_watch.LOOK_S", 0.05)
    peers = make_cluster("ab")
    make_over(peers, "T", a=4, b=4)
    with of_groups(peers["a"].address) as producer:
        assert not know(producer).fails_over
        make_over(peers, "T", fails_over=True, a=4)
        make_known(peers, number=2)

        def is_told() -> bool:
            said = know(producer)
            return said.fails_over and list(said.queues) == ["a"]

        wait_until(is_told)


def test_what_a_group_has_not_stored_in_time_goes_to_another_one_under_its_unique_id(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    called: list[SendFuture[SendResult]] = []
    with of_groups(peers["a"].address, options=PATIENT, fail_over_s=SOON_S) as producer:
        assert know(producer).fails_over
        first = live(producer, "b")
        answer(producer)
        peers["a"].silent = True
        sent = fill(producer, peers["a"])
        late, *_ = ids(peers["a"])
        body = bytearray(b"changed later")
        answer(producer)
        sent.append(producer.send("T", body, callback=called.append))
        body[:] = b"x" * len(body)
        results = [one.result(PATIENCE_S) for one in sent]

        assert late in ids(peers["b"])
        assert [result.unique_id for result in results] == [one.unique_id for one in sent]
        found = Counter(ids(peers["b"]))
        assert found.keys() == {first, *(one.unique_id for one in results)}
        # Once; once more where it was too slow, so that the other one was tried in between.
        again = {one for one, times in found.items() if times > 1}
        assert max(found.values()) <= 2
        wait_until(lambda: again <= {*ids(peers["a"])})
        wait_until(lambda: called == [sent[-1]])
        assert b"changed later" in peers["b"].stored()


def test_a_batch_goes_to_another_group_whole_and_under_its_unique_ids(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    bodies = [b"1", bytearray(b"2"), b"3"]
    with of_groups(peers["a"].address, options=PATIENT, fail_over_s=SOON_S) as producer:
        know(producer)
        live(producer, "b")
        peers["a"].silent = True
        before = len(peers["a"].seen)

        def comes() -> bool:
            sent.append(producer.send_batch("T", bodies, tag="t"))
            return len(peers["a"].seen) > before

        sent = [producer.send_batch("T", [OutgoingMessage(b"own", unique_id="own")])]
        wait_until(comes)
        results = [list(one.result(PATIENCE_S)) for one in sent]

    found = [seen.unique_ids for seen in peers["b"].seen]
    assert peers["a"].seen[-1].unique_ids in found
    assert [[row.unique_id for row in rows] for rows in results if len(rows) > 1] and all(
        [row.unique_id for row in rows] in found for rows in results
    )


def test_a_batch_that_may_go_to_another_group_keeps_its_ordered_group() -> None:
    options: BatchOptions = {"message_group": "g", "tag": "t", "properties": {"a": "b"}}
    whole = kept("T", [b"1", b"2"], options, "")

    assert [(one.tag, one.properties) for one in whole] == [
        ("t", {"a": "b", MESSAGE_GROUP: "g"})
    ] * 2
    # The options go with them once more: of the queue and the time of all.
    choice, _ = shared_outgoing("T", whole, "send_batch", **options)
    assert choice.key == "g"


@pytest.mark.parametrize("how", ["key", "group", "delay", "level", "order"])
def test_what_has_an_order_or_a_time_stays_with_its_group(
    make_cluster: MakeCluster, how: str
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    make_over(peers, "ordered", fails_over=True, order=True, a=4)
    peers["a"].topics["ordered"] = 4
    key = next(f"k{n}" for n in range(99) if know_queue(f"k{n}").group == "a")
    with of_groups(peers["a"].address, options=PATIENT, fail_over_s=SOON_S) as producer:
        know(producer)
        know(producer, "ordered")
        live(producer, "b")
        peers["a"].silent = True
        if how == "key":
            stays = [producer.send("T", b"stays", queue_key=key)]
        elif how == "group":
            stays = [producer.send("T", b"stays", group="a")]
        elif how == "order":
            stays = [producer.send("ordered", b"stays")]
        else:
            options = {"delay": 60_000} if how == "delay" else {"properties": {"DELAY": "3"}}
            before, stays = len(peers["a"].seen), []
            wait_until(
                lambda: (
                    stays.append(producer.send("T", b"stays", **options))  # type: ignore[func-returns-value, arg-type]
                    or len(peers["a"].seen) > before
                )
            )
        # What comes later and may go elsewhere is stored long before.
        for one in fill_until_moved(producer, peers):
            one.result(PATIENCE_S)

        assert not all(one.done() for one in stays)
        peers["a"].silent = False
        peers["a"].restart()
        for one in stays:
            one.result(PATIENCE_S)
    places = [ids(peers["b"]).count(one.unique_id) for one in stays]
    assert places == [0] * len(stays) or how in ("delay", "level")


def know_queue(key: str) -> GroupQueue:
    return TopicGroups({"a": 4, "b": 4}, ()).queue_of(key)


def fill_until_moved(producer: ProducerOfGroups, peers: dict[str, Peer]) -> Futures:
    """Send what may fail over until the first group has got one, which the second one has then."""
    sent: Futures = []

    def has_moved() -> bool:
        sent.append(producer.send("T", b"moves"))
        sent[-1].result(PATIENCE_S)
        return bool(set(ids(peers["a"])) & set(ids(peers["b"])))

    wait_until(has_moved)
    return sent


def test_what_no_group_can_store_fails_at_once(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    with of_groups(peers["a"].address, options=PATIENT, fail_over_s=SOON_S) as producer:
        know(producer)
        for peer in peers.values():
            peer.refusals.append(MessageIllegalError("not this one"))
        with pytest.raises(MessageIllegalError, match="not this one"):
            producer.send("T", b"x").result(PATIENCE_S)


def test_a_message_that_no_group_answers_has_an_unknown_outcome(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    options = ProducerOptions(timeout_s=3 * SOON_S)
    with of_groups(peers["a"].address, fail_over_s=SOON_S, options=options) as producer:
        know(producer)
        answer(producer)
        for peer in peers.values():
            peer.silent = True
        sent = producer.send("T", b"x")
        with pytest.raises(TimedOutError, match="under way"):
            sent.result(0.001)
        error = sent.exception(PATIENCE_S)

    assert isinstance(error, OutcomeUnknownError)
    # Once in each, and the last time in one of those that may have it, which is waited for.
    assert sorted([len(ids(peers["a"])), len(ids(peers["b"]))]) == [1, 2]
    assert {*ids(peers["a"]), *ids(peers["b"])} == {sent.unique_id}


def test_a_batch_that_begins_with_an_id_of_the_applications_keeps_that_one(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    batch = [OutgoingMessage(b"1", unique_id="the-first"), OutgoingMessage(b"2")]
    with of_groups(peers["a"].address, options=PATIENT, fail_over_s=SOON_S) as producer:
        know(producer)
        live(producer, "b")
        peers["a"].silent = True
        sent = []
        wait_until(lambda: sent.append(producer.send_batch("T", batch)) or ids(peers["a"]))  # type: ignore[func-returns-value]
        results = [[row.unique_id for row in one.result(PATIENCE_S)] for one in sent]

    assert {row[0] for row in results} == {"the-first"}
    assert len({row[1] for row in results}) == len(sent)
    assert set(ids(peers["b"])) >= {row[1] for row in results}


def test_the_only_group_that_is_left_is_waited_for_although_it_may_have_the_message(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    with of_groups(peers["a"].address, options=PATIENT, fail_over_s=LATER_S) as producer:
        know(producer)
        peers["b"].silent = True
        sent = fill(producer, peers["b"])
        (late,) = [one for one in sent if one.unique_id in ids(peers["b"])]
        peers["a"].stop_listening()
        wait_until(lambda: ids(peers["b"]).count(late.unique_id) == 2)
        peers["b"].silent = False
        peers["b"].restart()

        for one in sent:
            assert one.result(PATIENCE_S).unique_id == one.unique_id
    # Once more by the one that waits, and again when its session had ended.
    assert ids(peers["b"]).count(late.unique_id) == 3


def test_a_message_that_all_groups_were_too_slow_for_is_waited_for_where_others_are_stored(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    with of_groups(peers["a"].address, options=PATIENT, fail_over_s=SOON_S) as producer:
        know(producer)
        for name in "ab":
            producer.send("T", b"stays", group=name).result(PATIENCE_S)
        for peer in peers.values():
            peer.silent = True
        fill(producer, peers["a"])
        late = ids(peers["a"])[-1]
        wait_until(lambda: late in ids(peers["b"]))
        # It has stored the newest one of all, and had this one last.
        peers["b"].do(lambda: setattr(peers["b"], "silent", False))
        wait_until(lambda: ids(peers["b"]).count(late) == 2)

        assert ids(peers["a"]).count(late) == 1
        peers["a"].silent = False
        peers["a"].restart()


def test_who_closes_waits_for_what_fails_over_as_long_as_it_says(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    waits = of_groups(peers["a"].address, options=PATIENT, fail_over_s=SOON_S)
    know(waits)
    live(waits, "b")
    peers["a"].silent = True
    sent = fill(waits, peers["a"])
    waits.close(PATIENCE_S)

    assert [one.exception(0.0) for one in sent] == [None] * len(sent)
    goes = of_groups(peers["b"].address, fail_over_s=SOON_S)
    know(goes)
    peers["b"].silent = True
    lost = goes.send("T", b"x")
    goes.close(0.05)
    assert isinstance(lost.exception(0.0), OutcomeUnknownError)
    assert not [one for one in threading.enumerate() if "fail-over" in one.name]


def test_what_waits_to_go_elsewhere_is_bounded(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    make_over(peers, "T", fails_over=True, a=4, b=4)
    options = ProducerOptions(timeout_s=60, window_bytes=65_536, compress_above=None)
    with of_groups(peers["a"].address, options=options, fail_over_s=SOON_S) as producer:
        know(producer)
        for peer in peers.values():
            peer.silent = True

        def is_full() -> bool:
            try:
                producer.send("T", bytes(8_192), block=False)
            except (BusyError, NotLeaderError) as error:
                return "another group" in str(error)
            return False

        wait_until(is_full)
        assert producer._fail_over._waiting_bytes <= 3 * 65_536
        producer.close(0.0)


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fail_over_s out of range \(value=0"):
        of_groups(DEAD, fail_over_s=0)


def test_a_group_that_was_not_heard_is_as_the_row_says_and_others_as_they_say() -> None:
    row = ToldTopic(1, {"a": 4, "b": 2, "c": 0, "gone": 4}, True)
    said = TopicGroups.of({"a": None, "b": 3, "c": None, "d": 8}, row)
    unknown = TopicGroups.of({"a": None, "b": 3}, None)
    alone = TopicGroups.of({"a": None, "b": 3}, OVER_NONE)

    assert said == TopicGroups({"a": 4, "b": 3}, (), True, True, True, {"a": 4, "b": 2})
    assert (unknown.unheard, unknown.is_whole, unknown.is_over) == (("a",), False, False)
    assert (alone.unheard, alone.has_row, alone.is_whole) == (("a",), True, False)
