"""A real member whose disk changed what was durable: it says so, and fetches what it lost."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from ledgermq.store.recovery.log_damage import damage_path, read_damage
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Member, make_group, producer

pytestmark = pytest.mark.slow


def flip(member: Member, position: int) -> None:
    """Turn a bit of the stopped member's log."""
    path = member.node.root / f"dledger-{member.name}" / "data" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(position)
        (octet,) = file.read(1)
        file.seek(position)
        file.write(bytes([octet ^ 1]))


@pytest.mark.long
def test_a_member_with_a_turned_bit_follows_until_it_has_fetched_what_it_lost(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-fsync")
    leader = group.leader()
    with producer(leader) as one:
        assert len(one.send_batch(TOPIC, [b"a" * 300] * 200).result()) == 200
    group.wait_equal()
    damaged, sound = group.others(leader)
    for member in (damaged, sound, leader):
        member.node.signal(signal.SIGTERM)
        member.node.wait_end()
    flip(damaged, 20_000)
    mark = damage_path(damaged.node.root)

    # The other one is off: nobody may lead on the vote of one that has lost something, and that
    # one itself may not either.
    damaged.start()
    wait_until(mark.exists, "the damage to be noted")
    noted = read_damage(mark)
    wait_until(lambda: reasons(damaged) or None, "raft to tell why nobody leads")
    told = reasons(damaged)
    shown = json.loads(damaged.command("status", "--json").stdout)["damage"]
    sound.start()
    leader.start()
    wait_until(lambda: not mark.exists(), "what was lost to be fetched")
    group.wait_equal()
    group.stop()

    assert noted is not None and noted.position <= 20_000 < noted.last_position
    assert any("lost entries to damage" in reason for reason in told)
    assert "damaged at position" in shown
    assert damaged.node.logged("log damaged")
    assert group.has_one_log()


def reasons(member: Member) -> list[str]:
    answer = member.command("raft", "why-no-leader", "--json")
    found = json.loads(answer.stdout) if answer.returncode == 0 else {"reasons": []}
    return [str(reason) for reason in found["reasons"] if "damage" in str(reason)]
