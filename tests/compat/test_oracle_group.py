"""RocketMQ opens what each member of our group left, and serves all that was acknowledged.

Three of our nodes take messages of four producers while the leader is killed twice; once all hold
the same they stop. Then the Java broker opens each of the three stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.store.store_view import StoreView
from tests.compat.dump_checks import (
    FILE_SIZES,
    INDEX_SIZES,
    Json,
    Way,
    by_place,
    check_answers,
)
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.compat.varied_load import PRODUCERS, VariedLoad, varied_load
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Group, Member, make_group
from tests.suite.patience import PATIENCE_S

MESSAGES_EACH = 10_000
KILL_AT = (MESSAGES_EACH * PRODUCERS // 8, MESSAGES_EACH * PRODUCERS // 2)
"""Messages that are committed and dispatched when the leader is killed."""

SIZES = {
    "mapped_file_size_commit_log": FILE_SIZES["mappedFileSizeCommitLog"],
    "mapped_file_size_consume_queue": FILE_SIZES["mappedFileSizeConsumeQueue"],
    "max_hash_slot_num": INDEX_SIZES["maxHashSlotNum"],
    "max_index_num": INDEX_SIZES["maxIndexNum"],
}


@pytest.fixture
def group(make_node: Callable[[], Node]) -> Iterator[Group]:
    oracle_program()
    # The producers expect to be told of a majority's memory.
    yield make_group(make_node, ack="majority-memory", sizes=SIZES)


@pytest.mark.oracle
@pytest.mark.slow
def test_rocketmq_serves_all_that_a_group_acknowledged_from_each_of_its_stores(
    group: Group, tmp_path: Path
) -> None:
    group.leader()
    with varied_load(",".join(group.addresses), tmp_path, each=MESSAGES_EACH) as load:
        killed = [kill_leader(group, load, at) for at in KILL_AT]
        sent = load.told([member.node.log for member in group.members])
    group.wait_equal()

    assert group.stop() == [0, 0, 0]
    assert killed[0] is not killed[1]
    assert [one.name for one in group.members if one.node.logged("ERROR")] == []
    assert group.has_one_log()
    for member in group.members:
        check_store(member, sent, tmp_path / f"java-{member.name}")


def kill_leader(group: Group, load: VariedLoad, at: int) -> Member:
    """Kill the leader once ``at`` messages are dispatched, and start it again; who it was."""

    def leads_with_enough() -> Member | None:
        found = group.leader()
        return found if found.cursors()["dispatched_messages"] >= at else None

    leader: Member = wait_until(leads_with_enough, f"message {at:,}", PATIENCE_S)

    assert load.runs
    leader.kill()
    group.leader(besides=leader)
    leader.start()
    # So that the next one dies among three.
    leader.node.wait_ready()
    return leader


def check_store(member: Member, sent: list[Json], folder: Path) -> None:
    """The Java broker's answers of one member's store are what the producers were told."""
    with rocketmq_serving(
        member.node.root,
        folder,
        plain=False,
        settings=INDEX_SIZES | FILE_SIZES,
        self_id=member.name,
    ) as broker:
        dump = broker.dump(folder / "dump.json")
    nothing: Json = {"messages": [], "keyQueries": []}
    way = Way(nothing, [], sent, member.node.root, dump, broker.store, member.name)
    told = by_place(dump["messages"])
    with closing(StoreView(way.ours)) as ours:
        check_answers(way, told, ours)
