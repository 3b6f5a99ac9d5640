"""How members share queues: RocketMQ's results, and what sticks."""

from __future__ import annotations

import random

import pytest

from ledgermq.client.groups.allocation import (
    OF_ALL_GROUPS,
    GroupView,
    TopicQueue,
    averagely,
    check_strategy,
    share_of,
)
from ledgermq.model.errors import ConfigError


@pytest.mark.parametrize(
    ("queues", "members", "expected"),
    [
        # AllocateMessageQueueAveragelyTest of RocketMQ 4.9.4: one, two and more consumers.
        (6, 1, [[0, 1, 2, 3, 4, 5]]),
        (4, 2, [[0, 1], [2, 3]]),
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (4, 3, [[0, 1], [2], [3]]),
        (2, 4, [[0], [1], [], []]),
        (8, 8, [[n] for n in range(8)]),
        (0, 2, [[], []]),
    ],
)
def test_the_average_strategy_gives_what_rocketmq_gives(
    queues: int, members: int, expected: list[list[int]]
) -> None:
    names = [f"c{number}" for number in range(members)]

    assert [averagely(range(queues), reversed(names), name) for name in names] == expected


def test_members_are_sorted_as_java_sorts() -> None:
    # By UTF-16: what needs a surrogate pair stands before the last characters of the plane.
    high, low = "\uff00", "\U00010000"

    assert averagely(range(2), [high, low], low) == [0]
    assert averagely(range(2), [high, low], high) == [1]


def view(owners: dict[TopicQueue, str], **members: list[str]) -> GroupView:
    topics = {topic for names in members.values() for topic in names}
    return GroupView(members, owners, dict.fromkeys(topics, 6))


@pytest.mark.parametrize("strategy", ["average", "sticky"])
@pytest.mark.parametrize("seed", range(30))
def test_each_queue_has_one_member_that_wants_it(seed: int, strategy: str) -> None:
    chance = random.Random(seed)
    topics = ["t", "u", "v"][: chance.randint(1, 3)]
    members = {
        f"c{number}": chance.sample(topics, chance.randint(1, len(topics)))
        for number in range(chance.randint(1, 7))
    }
    queues = {topic: chance.randint(0, 9) for topic in topics}
    every = [TopicQueue(topic, one) for topic in topics for one in range(queues[topic])]
    owners = {queue: chance.choice([*members, "gone"]) for queue in every if chance.random() < 0.5}
    group = GroupView(members, owners, queues)
    wanted = {topic for names in members.values() for topic in names}

    shares = {name: share_of(name, group, strategy) for name in (*members, "gone")}  # type: ignore[arg-type]

    given = sorted(queue for share in shares.values() for queue in share)
    readable = {queue.topic for queue in owners if owners[queue] == "gone"} | wanted
    assert given == sorted(queue for queue in every if queue.topic in readable), seed
    for name, topics_of in members.items():
        assert {queue.topic for queue in shares[name]} <= set(topics_of), seed


def test_sticky_moves_only_what_makes_shares_even() -> None:
    queues = [TopicQueue("t", queue_id) for queue_id in range(6)]
    owners = dict.fromkeys(queues[:3], "b") | dict.fromkeys(queues[3:], "c")
    joined = view(owners, a=["t"], b=["t"], c=["t"])
    shares = {name: share_of(name, joined, "sticky") for name in "abc"}

    assert {name: len(share) for name, share in shares.items()} == {"a": 2, "b": 2, "c": 2}
    assert shares["b"] < set(queues[:3])
    assert shares["c"] < set(queues[3:])

    settled = {queue: name for name, share in shares.items() for queue in share}
    again = view(settled, a=["t"], b=["t"], c=["t"])

    assert {name: share_of(name, again, "sticky") for name in "abc"} == shares


@pytest.mark.parametrize("strategy", ["average", "sticky"])
def test_what_a_new_leader_tells_first_moves_nothing(strategy: str) -> None:
    queues = [TopicQueue("t", queue_id) for queue_id in range(6)]
    names = ["a", "b", "c"]
    whole = view({}, a=["t"], b=["t"], c=["t"])
    shares = {name: share_of(name, whole, strategy) for name in names}  # type: ignore[arg-type]
    owners = {queue: name for name, share in shares.items() for queue in share}
    assert owners.keys() == set(queues)

    for name in names:
        first = GroupView({name: ["t"]}, owners, {"t": 6})
        assert share_of(name, first, strategy) == shares[name]  # type: ignore[arg-type]


def test_a_strategy_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="circle"):
        check_strategy("circle")


@pytest.mark.parametrize("strategy", ["average", "sticky"])
@pytest.mark.parametrize("members", range(1, 8))
@pytest.mark.parametrize("queues", range(1, 10))
def test_loads_are_even_over_groups_whose_names_count_up(
    queues: int, members: int, strategy: str
) -> None:
    names = [f"c{number}{OF_ALL_GROUPS}" for number in range(members)]
    whole = GroupView({name: ["t"] for name in names}, {}, {"t": queues})
    loads = dict.fromkeys(names, 0)
    for broker_group in ("orders-a", "orders-b", "orders-c", "orders-d", "orders-e"):
        shares = {name: share_of(name, whole, strategy, broker_group) for name in names}  # type: ignore[arg-type]
        given = sorted(queue.queue_id for share in shares.values() for queue in share)
        assert given == [*range(queues)]
        for name, share in shares.items():
            loads[name] += len(share)

        assert max(loads.values()) - min(loads.values()) <= 1, loads


@pytest.mark.parametrize("strategy", ["average", "sticky"])
def test_who_knows_of_no_turns_shares_with_members_of_all_groups(strategy: str) -> None:
    names = ["b", *(f"{name}{OF_ALL_GROUPS}" for name in "ac")]
    whole = GroupView({name: ["t", "u"] for name in names}, {}, {"t": 4, "u": 5})
    for broker_group in ("orders-a", "orders-b", "orders-c"):
        mine = share_of("b", whole, strategy)  # type: ignore[arg-type]
        others = [share_of(name, whole, strategy, broker_group) for name in names[1:]]  # type: ignore[arg-type]

        assert len(mine) + sum(map(len, others)) == len(mine.union(*others)) == 9
