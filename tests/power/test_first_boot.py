"""A node that has made its store itself keeps the first thing that it has acknowledged."""

from __future__ import annotations

import time

import pytest

from tests.power.forgetful_disk import STRICT
from tests.power.groups import machines
from tests.power.machines import Machine, Powers
from tests.power.promises import check_content, held
from tests.process.conftest import nodes_made
from tests.process.group_nodes import producer

pytestmark = [pytest.mark.slow, pytest.mark.power]

TOPIC = "first"


@pytest.mark.parametrize("kind", ["plain node", "group of one", "group of three"])
def test_the_first_acknowledgement_of_a_new_store_holds(kind: str, cuts: int, seed: int) -> None:
    powers = Powers(seed, policy=STRICT)
    for _ in range(cuts):
        with nodes_made(Machine) as make_machine:
            group = machines(
                make_machine,
                members=3 if kind == "group of three" else 1,
                log="commitlog" if kind == "plain node" else "dledger",
                has_root=False,
            )
            with producer(*group.members, timeout_s=60) as one:
                told = one.send(TOPIC, b"first message").result()
                # Mostly at once: nothing that comes later is to have made it durable.
                time.sleep(powers.chance.choice((0, 0, 0.05, 0.3)))
                powers.fail(group)
            powers.restore(group.members)
            group.leader()
            found, _ = held(group.addresses, TOPIC)

            assert found == {(told.queue_id, told.queue_offset): b"first message"}
            for member in group.members:
                check_content(member.node.root)
    print(
        f"RESULT first boot, {kind}: power failures {powers.failures}, of all {powers.of_all},"
        f" acknowledged {powers.failures}, lost 0"
    )
