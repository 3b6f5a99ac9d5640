"""A witness with a log leads where nobody else can, with real processes and clients (0059)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.client import Consumer
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_growing_group, producer
from tests.process.other_versions import version_before
from tests.process.test_group_members import join, raft_status, send

pytestmark = pytest.mark.slow

BATCH = 200


@pytest.mark.parametrize(
    "is_older",
    [pytest.param(False, id="ours"), pytest.param(True, marks=pytest.mark.long, id="older")],
)
def test_a_witness_hands_what_was_committed_with_it_to_the_member_that_lacks_it(
    make_node: Callable[[], Node], is_older: bool
) -> None:
    """Also where the others are of the first version, which knows nothing of this."""
    prefix = version_before().prefix if is_older else ()
    group = make_growing_group(make_node, first=2, members=3, prefix=prefix)
    witness = group.members[2]
    join(group, witness, "--witness")
    send(group, "all", BATCH)
    group.wait_equal()
    lost, late = leader_and_other(group, witness)
    with producer(*group.members) as one:
        late.kill()
        # Committed by the leader and the witness alone.
        bodies = [b"two-%d" % number for number in range(BATCH)]
        assert len(one.send_batch(TOPIC, bodies).result()) == BATCH
        lost.kill()
        late.start()
        # Nobody tells it who leads: its messages are stored when somebody does.
        bodies = [b"after-%d" % number for number in range(BATCH)]
        assert len(one.send_batch(TOPIC, bodies).result()) == BATCH
    # Whatever the witness took meanwhile, it leads no more.
    wait_until(lambda: late.leads and not witness.leads, f"{late.name} to lead")
    found = read_all(late, 3 * BATCH)
    lost.start()
    group.wait_equal()
    statuses = [raft_status(member) for member in group.members]
    group.stop()

    assert witness.node.logged("role=leader")
    assert sorted(found) == sorted(
        b"%s-%d" % (word, number) for word in (b"all", b"two", b"after") for number in range(BATCH)
    )
    assert {tuple(status["witnesses"]) for status in statuses} == {(witness.name,)}
    assert group.has_one_log()


def leader_and_other(group: Group, witness: Member) -> tuple[Member, Member]:
    """Of the two members that may lead, who does, and the other one."""
    leader = group.leader()
    assert leader is not witness
    return leader, next(one for one in group.others(leader) if one is not witness)


def read_all(member: Member, count: int) -> list[bytes]:
    """So many messages of the topic, as a client is given them."""
    found: list[bytes] = []
    with Consumer(member.address, topic=TOPIC) as one:

        def are_all() -> bool:
            found.extend(bytes(message.body) for message in one.poll())
            return len(found) >= count

        wait_until(are_all, f"{count} messages")
    return found
