"""Who has given a sign of life lately."""

from __future__ import annotations

from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peer_presence import ABSENT_S, PeerPresence

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")


def test_who_gives_no_sign_of_life_is_absent_until_it_gives_one() -> None:
    presence = PeerPresence()
    presence.set_peers([N2, N1], 10.0)

    assert presence.absent(10.0 + ABSENT_S) == ()
    presence.greeted(N1, 11.0)
    assert presence.absent(10.5 + ABSENT_S) == (N2,)
    assert presence.absent(11.5 + ABSENT_S) == (N1, N2)
    presence.greeted(N2, 30.0)
    assert presence.absent(30.0) == (N1,)


def test_who_has_lost_its_connection_is_absent_at_once() -> None:
    presence = PeerPresence()
    presence.set_peers([N1], 10.0)
    presence.lost(N1)
    assert presence.absent(10.0) == (N1,)
    presence.greeted(N1, 10.1)
    assert presence.absent(10.1) == ()


def test_members_that_come_have_their_time_and_those_that_go_are_forgotten() -> None:
    presence = PeerPresence()
    presence.set_peers([N1, N2], 10.0)
    presence.lost(N1)

    presence.set_peers([N1, N3], 20.0)
    presence.greeted(N2, 20.0)
    presence.lost(N2)

    assert presence.absent(20.0) == (N1,)
    assert presence.absent(21.0 + ABSENT_S) == (N1, N3)
