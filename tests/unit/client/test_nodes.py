"""Producers and consumers of a group of nodes: who leads, and what becomes of what was under way.

The nodes are peers that speak the protocol over real ZeroMQ; each test says what they are and when
that changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import zmq

from ledgermq.client.aio import AsyncConsumer, AsyncProducer
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.nodes import broker_link
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import (
    ConfigError,
    NoPermissionError,
    NotLeaderError,
    OutcomeUnknownError,
    TimedOutError,
)
from ledgermq.model.group_epoch import promoted_term
from ledgermq.wire.session import FOLLOWER, LEADER, Standing
from tests.suite.patience import PATIENCE_S
from tests.unit.client.peer import Log, Peer, ids

MakeGroup = Callable[..., list[Peer]]


@pytest.fixture
def make_group() -> Iterator[MakeGroup]:
    """Makes peers ``n0``, ``n1`` … with one log; the one of that number leads in term 1."""
    with ExitStack() as stack:

        def make(*, size: int = 3, leader: int | None = 0, over_tcp: bool = False) -> list[Peer]:
            log = Log()
            peers = []
            for number in range(size):
                name = "" if leader is None else f"n{leader}"
                role = LEADER if number == leader else FOLLOWER
                peer = Peer(
                    node=f"n{number}",
                    log=log,
                    standing=Standing(role, 1, name),
                    over_tcp=over_tcp,
                )
                stack.callback(peer.close)
                peers.append(peer)
            return peers

        yield make


def addresses(peers: list[Peer]) -> list[str]:
    return [peer.address for peer in peers]


def hand_over(old: Peer, new: Peer, term: int) -> None:
    old.tell(FOLLOWER, term, new.node)
    new.tell(LEADER, term, new.node)


def wait_until(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("leader", [0, 1, 2])
@pytest.mark.parametrize("over_tcp", [False, True])
def test_the_leader_is_found_among_three(
    make_group: MakeGroup, leader: int, over_tcp: bool
) -> None:
    peers = make_group(leader=leader, over_tcp=over_tcp)
    with Producer(",".join(addresses(peers))) as producer:
        result = producer.send("T", b"a", queue_id=1).result()

    assert (result.queue_id, result.queue_offset) == (1, 0)
    assert [len(peer.seen) for peer in peers] == [int(number == leader) for number in range(3)]


@pytest.mark.parametrize("is_replicated", [True, False])
def test_what_the_old_leader_did_not_answer_goes_to_the_next_once_and_in_order(
    make_group: MakeGroup, is_replicated: bool
) -> None:
    old, new, _ = peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send_batch("T", [b"begin"], queue_id=0).result()
        if not is_replicated:
            # What it stores from now on dies with its term.
            old.do(lambda: setattr(old, "log", Log()))
        old.silent = True
        futures = [producer.send_batch("T", [body], queue_id=0) for body in numbers(5)]
        wait_until(lambda: len(old.seen) == 6)
        hand_over(old, new, 2)
        offsets = [future.result()[0].queue_offset for future in futures]
        later = producer.send("T", b"later", queue_id=0).result()

    assert new.stored() == [b"begin", *numbers(5), b"later"]
    assert [*offsets, later.queue_offset] == [1, 2, 3, 4, 5, 6]
    assert [seen.unique_ids for seen in new.seen[:5]] == [seen.unique_ids for seen in old.seen[1:]]
    assert [seen.is_retry for seen in new.seen] == [True] * 5 + [False]
    assert len(old.seen) == 6


def test_a_killed_leader_has_a_successor_after_a_while(make_group: MakeGroup) -> None:
    old, new, third = peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"begin", queue_id=0).result()
        old.silent = True
        futures = [producer.send_batch("T", [body], queue_id=0) for body in numbers(3)]
        wait_until(lambda: len(old.seen) == 4)
        old.stop_listening()
        futures += [producer.send_batch("T", [body], queue_id=0) for body in numbers(6)[3:]]
        new.tell("candidate", 2, "")
        assert not any(future.done() for future in futures)
        third.tell(FOLLOWER, 2, new.node)
        new.tell(LEADER, 2, new.node)
        offsets = [future.result()[0].queue_offset for future in futures]

    assert new.stored() == [b"begin", *numbers(6)]
    assert offsets == [1, 2, 3, 4, 5, 6]
    # Of the later ones some may have left before the end of the connection was seen.
    assert [seen.is_retry for seen in new.seen[:3]] == [True] * 3
    assert (len(new.seen), third.seen) == (6, [])


def test_a_new_leader_is_used_as_soon_as_it_says_so(make_group: MakeGroup) -> None:
    peers = make_group()
    # Nothing else would end the wait for an answer of the old one.
    options = ProducerOptions(timeout_s=600)
    with Producer(addresses(peers), options=options) as producer:
        producer.send("T", b"begin").result()
        for term in range(2, 12):
            old, new = peers[term % 3 - 2], peers[(term + 1) % 3 - 2]
            old.silent = True
            before = len(old.seen)
            sent = producer.send("T", b"x")
            wait_until(lambda old=old, before=before: len(old.seen) > before)
            hand_over(old, new, term)
            sent.result(PATIENCE_S)
            old.silent = False

    assert peers[0].stored() == [b"begin", *[b"x"] * 10]


def test_a_node_that_refuses_before_it_says_so_keeps_nothing_and_moves_nothing(
    make_group: MakeGroup,
) -> None:
    old, new, _ = peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send_batch("T", [b"begin"], queue_id=0).result()
        old.refusals = [NotLeaderError("another node leads")] * 1_000
        futures = [producer.send_batch("T", [body], queue_id=0) for body in numbers(4)]
        wait_until(lambda: len(old.seen) > 8)
        hand_over(old, new, 2)
        offsets = [future.result()[0].queue_offset for future in futures]

    assert new.stored() == [b"begin", *numbers(4)]
    assert offsets == [1, 2, 3, 4]


def test_an_unknown_outcome_of_the_old_leader_is_asked_of_the_next(make_group: MakeGroup) -> None:
    old, new, _ = peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"begin", queue_id=0).result()
        old.refusals = [OutcomeUnknownError("node leads no more")] * 1_000
        future = producer.send("T", b"again", queue_id=0)
        wait_until(lambda: len(old.seen) > 1)
        hand_over(old, new, 2)
        future.result()

    assert new.stored() == [b"begin", b"again"]
    assert [seen.is_retry for seen in new.seen] == [True]


def test_the_leader_of_an_older_term_is_left_although_it_still_claims_to_lead(
    make_group: MakeGroup,
) -> None:
    cut_off, new, _ = peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"begin", queue_id=0).result()
        cut_off.silent = True
        future = producer.send("T", b"again", queue_id=0)
        wait_until(lambda: len(cut_off.seen) == 2)
        new.tell(LEADER, 2, new.node)
        future.result()
        producer.send("T", b"more", queue_id=0).result()

    assert len(cut_off.seen) == 2
    assert new.stored() == [b"begin", b"again", b"more"]


def test_a_claim_is_not_believed_when_another_node_knows_a_later_leader(
    make_group: MakeGroup,
) -> None:
    cut_off, dead, follower = peers = make_group()
    dead.stop_listening()
    follower.tell(FOLLOWER, 2, dead.node)
    group = broker_link(zmq.Context.instance(), parse_addresses(addresses(peers)), client="test")

    def has_heard_both() -> bool:
        assert group.receive() is None
        group.advance(time.monotonic())
        return str(group.unreachable()).count("no answer") == 1

    wait_until(has_heard_both)
    said = group.unreachable().details["nodes"]
    leader = group.welcome
    group.close()

    assert leader is None
    assert isinstance(said, list)
    assert said[1].startswith(f"{dead.address}/consume: no answer")
    assert [said[0], said[2]] == [
        f"{cut_off.address}/consume: leader in term 1, leader n0",
        f"{follower.address}/consume: follower in term 2, leader n1",
    ]


def test_of_who_gives_no_answer_it_is_said_what_ended_the_last_attempt(
    make_group: MakeGroup,
) -> None:
    peers = make_group()
    for peer in peers:
        peer.tell(FOLLOWER, 2, "")
    group = broker_link(zmq.Context.instance(), parse_addresses(addresses(peers)), client="test")

    def said() -> str:
        assert group.receive() is None
        group.advance(time.monotonic())
        return str(group.unreachable())

    wait_until(lambda: said().count("no leader known") == 3)
    peers[1].stop_listening()
    wait_until(lambda: "no leader known" in said() and "no answer" in said())
    ended = group.unreachable().details["nodes"]
    group.close()

    assert isinstance(ended, list)
    assert ended[1] == f"{peers[1].address}/consume: no answer (connection ended)"


def test_a_group_that_was_made_anew_begins_with_low_terms(make_group: MakeGroup) -> None:
    peers = make_group()
    peers[0].tell(LEADER, 70, "n0")
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"begin", queue_id=0).result()
        for peer in peers:
            peer.stop_listening()
        future = producer.send("T", b"again", queue_id=0)
        for peer in peers:
            peer.standing = Standing(FOLLOWER, 1, "n2")
        peers[2].standing = Standing(LEADER, 1, "n2")
        link = producer._pipeline.link
        wait_until(lambda: str(link.unreachable()).count("no answer") == 3)
        for peer in peers:
            peer.restart()
        future.result()

    assert len(peers[2].seen) == 1


@pytest.mark.parametrize("is_told_late", [False, True])
def test_a_node_that_leads_again_gets_nothing_of_its_old_connection(
    make_group: MakeGroup, is_told_late: bool
) -> None:
    first, second, _ = peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"1", queue_id=0).result()
        if is_told_late:
            # It is asked once more on its old connection, and refuses, before it says why.
            first.do(lambda: setattr(first, "standing", Standing(FOLLOWER, 2, second.node)))
            wait_until(lambda: first.standing.role is FOLLOWER)
            moved = producer.send("T", b"2", queue_id=0)
            wait_until(lambda: len(first.seen) > 1)
            hand_over(first, second, 2)
            moved.result()
        else:
            hand_over(first, second, 2)
            producer.send("T", b"2", queue_id=0).result()
        old_connections = {seen.connection for seen in first.seen}
        hand_over(second, first, 3)
        third = producer.send("T", b"3", queue_id=0).result()

    stored = [seen.connection for seen in first.seen if seen.unique_ids == [third.unique_id]]
    assert first.stored() == [b"1", b"2", b"3"]
    assert len(old_connections) == len(stored) == 1
    assert old_connections.isdisjoint(stored)


@pytest.mark.parametrize("over_tcp", [False, True])
def test_a_dead_node_in_the_list_does_no_harm(make_group: MakeGroup, over_tcp: bool) -> None:
    peers = make_group(leader=1, over_tcp=over_tcp)
    peers[0].stop_listening()
    with (
        Producer(addresses(peers)) as producer,
        Consumer(addresses(peers), topic="T") as consumer,
    ):
        producer.send("T", b"a").result()
        batch = consumer.poll(PATIENCE_S)

    assert [bytes(message.body) for message in batch] == [b"a"]


def test_over_tcp_a_node_that_comes_later_can_lead(make_group: MakeGroup) -> None:
    first, late, third = peers = make_group(over_tcp=True)
    late.stop_listening()
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"a", queue_id=0).result()
        late.restart()
        first.stop_listening()
        third.tell(FOLLOWER, 2, late.node)
        late.tell(LEADER, 2, late.node)
        producer.send("T", b"b", queue_id=0).result()

    assert third.stored() == [b"a", b"b"]
    assert len(late.seen) == 1


def test_a_node_without_tcp_for_producers_is_named(make_group: MakeGroup) -> None:
    peers = make_group(over_tcp=True)
    for peer in peers:
        peer.do(lambda peer=peer: peer._welcome.update(produce=""))
    with (
        Producer(addresses(peers)) as producer,
        pytest.raises(ConfigError, match=r"listen\.produce"),
    ):
        producer.send("T", b"a")


def test_without_a_leader_nothing_is_stored_and_the_error_says_so(make_group: MakeGroup) -> None:
    peers = make_group(leader=None)
    options = ProducerOptions(timeout_s=0.2)
    with (
        Producer(addresses(peers), options=options) as producer,
        pytest.raises(NotLeaderError) as caught,
    ):
        producer.send("T", b"a")

    assert "follower in term 1, no leader known" in str(caught.value)
    assert all(peer.seen == [] for peer in peers)


@pytest.mark.slow
def test_what_may_be_stored_fails_as_unknown_when_nobody_leads_any_more(
    make_group: MakeGroup,
) -> None:
    peers = make_group()
    with Producer(addresses(peers), options=ProducerOptions(timeout_s=0.5)) as producer:
        producer.send("T", b"begin").result()
        peers[0].silent = True
        asked = producer.send_batch("T", [b"asked"])
        wait_until(lambda: len(peers[0].seen) == 2)
        peers[0].tell(FOLLOWER, 2, "")
        wait_until(lambda: producer._pipeline.link.welcome is None)
        waiting = producer.send_batch("T", [b"waiting"])

        with pytest.raises(TimedOutError, match="no leader known"):
            asked.result()
        with pytest.raises(NotLeaderError, match="stored='nothing'"):
            waiting.result()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients ask nodes again soon, and do not wait long for those that say nothing."""
    monkeypatch.setattr("ledgermq.client.core.nodes.ASK_S_MIN", 0.05)
    monkeypatch.setattr("ledgermq.client.core.link.HELLO_TIMEOUT_S", 0.5)


def lead_unseen(old: Peer, new: Peer) -> None:
    """``new`` leads in the next term, and tells it to those alone whom it knows."""
    old.stop_listening()
    new.tell(LEADER, 2, new.node)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("over_tcp", [False, True])
def test_a_leader_that_has_forgotten_the_session_is_found(
    make_group: MakeGroup, over_tcp: bool
) -> None:
    old, new, _ = peers = make_group(over_tcp=over_tcp)
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"1", queue_id=0).result()
        wait_until(lambda: new.hellos)
        new.forget_sessions()
        lead_unseen(old, new)
        producer.send("T", b"2", queue_id=0).result(PATIENCE_S)

    assert new.stored() == [b"1", b"2"]


@pytest.mark.usefixtures("impatient")
def test_a_leader_is_found_whose_old_process_keeps_the_connection_and_does_not_read(
    make_group: MakeGroup,
) -> None:
    old, new, _ = peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"1", queue_id=0).result()
        wait_until(lambda: new.hellos)
        new.leave_connections()
        lead_unseen(old, new)
        producer.send("T", b"2", queue_id=0).result(PATIENCE_S)

    assert new.stored() == [b"1", b"2"]


@pytest.mark.usefixtures("impatient")
def test_a_leader_is_found_that_had_refused_the_client_for_good(make_group: MakeGroup) -> None:
    old, new, _ = peers = make_group()
    new.greeting_refusals = [NoPermissionError("this client may not come in")]
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"1", queue_id=0).result()
        wait_until(lambda: new.refused)
        lead_unseen(old, new)
        producer.send("T", b"2", queue_id=0).result(PATIENCE_S)

    assert new.stored() == [b"1", b"2"]


@pytest.mark.usefixtures("impatient")
def test_a_node_that_refuses_a_session_that_stood_is_asked_again(make_group: MakeGroup) -> None:
    old, new, _ = peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"1", queue_id=0).result()
        wait_until(lambda: new.hellos)
        new.forget_sessions()
        new.greeting_refusals = [NoPermissionError("not now"), NotLeaderError("not yet")]
        lead_unseen(old, new)
        producer.send("T", b"2", queue_id=0).result(PATIENCE_S)

    assert new.greeting_refusals == []
    assert new.stored() == [b"1", b"2"]


@pytest.mark.usefixtures("impatient")
def test_a_group_that_was_made_anew_one_node_after_the_other_begins_with_low_terms(
    make_group: MakeGroup,
) -> None:
    first, second, third = peers = make_group()
    for peer in peers:
        peer.tell(LEADER if peer is first else FOLLOWER, 70, "n0")
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"begin", queue_id=0).result()
        link = producer._pipeline.link
        first.stop_listening()
        second.standing = Standing(FOLLOWER, 1, "")
        second.restart()
        future = producer.send("T", b"again", queue_id=0)
        wait_until(lambda: "follower in term 1, no leader" in str(link.unreachable()))
        third.standing = Standing(FOLLOWER, 1, "n1")
        third.restart()
        second.tell(LEADER, 1, "n1")
        future.result(PATIENCE_S)

    assert second.stored() == [b"begin", b"again"]


def test_nobody_is_asked_again_while_a_leader_is_known(
    make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"a").result()
        # One for messages, one for topics.
        wait_until(lambda: [peer.hellos for peer in peers] == [2, 2, 2])
        monkeypatch.setattr("ledgermq.client.core.nodes.ASK_S_MIN", 0.05)
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            producer.send("T", b"a").result()
        hellos = [peer.hellos for peer in peers]

    assert hellos == [2, 2, 2]


def test_a_producer_that_rested_finds_the_new_leader(make_group: MakeGroup) -> None:
    old, new, _ = peers = make_group()
    with Producer(addresses(peers)) as producer:
        producer.send("T", b"begin", queue_id=0).result()
        old.stop_listening()
        new.tell(LEADER, 2, new.node)
        result = producer.send("T", b"again", queue_id=0).result(PATIENCE_S)

    assert result.queue_offset == 1


def test_a_single_node_may_tell_what_it_is(make_group: MakeGroup) -> None:
    (peer,) = make_group(size=1)
    with Producer(peer.address) as producer, Consumer(peer.address, topic="T") as consumer:
        producer.send("T", b"a", queue_id=0).result()
        assert len(consumer.poll(PATIENCE_S)) == 1
        peer.tell(FOLLOWER, 2, "")
        peer.tell(LEADER, 2, "n0")
        producer.send("T", b"b", queue_id=0).result()

        assert len(consumer.poll(PATIENCE_S)) == 1
    assert len({seen.connection for seen in peer.seen}) == 1


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_consumer_goes_on_at_the_next_leader(make_group: MakeGroup, is_killed: bool) -> None:
    old, new, _ = peers = make_group()
    options = ConsumerOptions(hold_ms=30_000)
    with (
        Producer(addresses(peers)) as producer,
        Consumer(addresses(peers), topic="T", group="g", options=options) as consumer,
    ):
        producer.send("T", b"1", queue_id=0).result()
        assert bytes(consumer.poll(PATIENCE_S)[0].body) == b"1"
        if is_killed:
            old.stop_listening()
            new.tell(LEADER, 2, new.node)
        else:
            hand_over(old, new, 2)
        producer.send("T", b"2", queue_id=0).result()
        batch = consumer.poll(PATIENCE_S)
        consumer.commit()

    assert [bytes(message.body) for message in batch] == [b"2"]
    assert new.commits["g", "T"]["0"] == 2


def test_in_asyncio_producers_and_consumers_follow_the_leader(make_group: MakeGroup) -> None:
    old, new, _ = peers = make_group(over_tcp=True)

    async def main() -> list[bytes]:
        async with (
            AsyncProducer(addresses(peers)) as producer,
            AsyncConsumer(addresses(peers), topic="T", queues=[0]) as consumer,
        ):
            await producer.send("T", b"begin", queue_id=0)
            old.silent = True
            submitted = [
                await producer.submit_batch("T", [body], queue_id=0) for body in numbers(5)
            ]
            while len(old.seen) < 6:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(hand_over, old, new, 2)
            results = await asyncio.gather(*submitted)
            assert [result[0].queue_offset for result in results] == [1, 2, 3, 4, 5]
            found: list[bytes] = []
            while len(found) < 6:
                found += [bytes(message.body) for message in await consumer.poll()]
            return found

    found = asyncio.run(asyncio.wait_for(main(), PATIENCE_S))

    assert found == [b"begin", *numbers(5)]
    assert len(new.seen) == 5


@pytest.mark.long
@pytest.mark.slow
def test_who_has_met_a_promoted_group_never_goes_back_to_the_old_one(
    make_group: MakeGroup,
) -> None:
    old, promoted = peers = make_group(size=2)
    term = promoted_term(1, 5) + 1
    with Producer(addresses(peers), options=ProducerOptions(timeout_s=8.0)) as producer:
        producer.send("T", b"before", queue_id=0).result()
        promoted.tell(LEADER, term, promoted.node)
        wait_until(lambda: _stored_at(producer, promoted))
        promoted.stop_listening()
        # Longer than a client waits before it asks all nodes anew, and forgets terms.
        with pytest.raises((NotLeaderError, OutcomeUnknownError)):
            producer.send("T", b"after", queue_id=0, unique_id="after").result()

    # Others that were sent to it before it was left may come to it after that.
    assert "after" not in ids(old)


@pytest.mark.slow
def test_of_two_promoted_groups_all_follow_the_one_of_the_greater_term(
    make_group: MakeGroup,
) -> None:
    lesser, greater = peers = make_group(size=2)
    lesser.tell(LEADER, promoted_term(1, 5) + 1, lesser.node)
    with Producer(addresses(peers), options=ProducerOptions(timeout_s=8.0)) as producer:
        wait_until(lambda: _stored_at(producer, lesser))
        greater.tell(LEADER, promoted_term(1, 9) + 1, greater.node)
        wait_until(lambda: _stored_at(producer, greater))
        after = [producer.send("T", b"after", queue_id=0).result() for _ in range(5)]

    assert not {one.unique_id for one in after} & {*ids(lesser)}
    assert {one.unique_id for one in after} <= {*ids(greater)}


def _stored_at(producer: Producer, peer: Peer) -> bool:
    producer.send("T", b"x", queue_id=0).result()
    return bool(peer.seen)
