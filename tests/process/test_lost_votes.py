"""A member whose term and vote cannot be read does not vote twice, and has a way on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.store.files.properties_file import decode_current_term
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, make_group, producer

pytestmark = pytest.mark.slow


def test_what_the_message_says_starts_a_member_whose_vote_is_lost(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-fsync")
    lost, *others = group.others(group.leader())
    others.append(group.leader())
    lost.kill()
    path = lost.node.root / f"dledger-{lost.name}" / "currterm"
    path.write_bytes(b"")
    lost.start()
    status = lost.node.wait_end()
    told = lost.node.log.read_text()
    terms = [
        decode_current_term((one.node.root / f"dledger-{one.name}" / "currterm").read_bytes()).term
        for one in others
    ]
    path.write_text(f"currTerm={max(terms) + 1}\n")
    lost.start()
    lost.node.wait_ready()
    with producer(*group.members) as one:
        one.send_batch(TOPIC, [b"x"] * 3, queue_id=0).result()
    wait_until(lambda: len(lost.bodies()) == 3, "the messages at the member")

    assert status != 0
    assert "nobody knows whom this member has voted for" in told
    assert "write a currTerm into the file that is higher than in those of all other" in told
    assert str(path) in told
