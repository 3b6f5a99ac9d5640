"""What a command says at a node that does not lead: who does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from ledgermq.cli.main import main
from ledgermq.model.errors import NotLeaderError
from ledgermq.wire.session import Standing, encode_role
from tests.unit.client.peer import Peer


class Follower(Peer):
    """Refuses all that is asked, and may have another leader meanwhile."""

    def __init__(self, *, then: Standing | None = None) -> None:
        self._then = then
        super().__init__(standing=Standing("follower", 3, "n1"))

    def _call(self, verb: str, arguments: dict[str, object]) -> dict[str, object]:
        if self._then is not None:
            self.standing, self._then = self._then, None
            for identity, socket in self._sessions.items():
                socket.send_multipart([identity, *encode_role(self.standing)])
        raise NotLeaderError("node does not lead now: nothing was changed")


@pytest.fixture(params=["n1", "n2"])
def follower(request: pytest.FixtureRequest) -> Iterator[tuple[Follower, str]]:
    """A node, and who leads in the end."""
    leader = request.param
    then = None if leader == "n1" else Standing("follower", 4, leader)
    with closing(Follower(then=then)) as peer:
        yield peer, leader


def test_a_refused_command_says_who_leads_and_asks_nothing_more_for_that(
    follower: tuple[Follower, str], capsys: pytest.CaptureFixture[str]
) -> None:
    peer, leader = follower
    status = main(["acl", "remove", "shop", "--timeout", "0.5", "--address", peer.address])
    told = capsys.readouterr().err

    assert status == 1
    assert f"leader='{leader}', do='type it on the host of {leader}, which leads" in told
    assert peer.hellos == 1


def test_a_message_that_no_leader_takes_says_who_leads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # It tells of its topics, and its writer takes nothing.
    with closing(Peer(standing=Standing("follower", 3, "n1"))) as peer:
        status = main(["send", "T", "x", "--timeout", "0.5", "--address", peer.address])
    told = capsys.readouterr().err

    assert status == 1
    assert "another node leads" in told
    assert "do='type it on the host of n1, which leads" in told


def test_of_a_group_in_which_no_node_leads_nothing_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with closing(Follower(then=Standing("candidate", 4, ""))) as peer:
        words = ["acl", "remove", "shop", "--timeout", "0.5", "--address", peer.address]
        status = main(words)

    assert status == 1
    assert "do=" not in capsys.readouterr().err
