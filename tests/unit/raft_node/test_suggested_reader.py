"""Which follower readers of old messages are sent to: one that has what they have seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId, RaftRole
from ledgermq.raft.roles.node_state import WriterState
from ledgermq.raft.roles.progress import ProgressMode
from ledgermq.raft.status import CoreStatus, PeerStatus
from ledgermq.raft_node.slow_looks import SuggestedReader

N0, N1, N2, N3 = (NodeId(f"n{number}") for number in range(4))


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    with CursorPage.create(tmp_path / "page") as made:
        yield made


def peer(
    node: NodeId, match: int, *, mode: ProgressMode = ProgressMode.REPLICATE, silent_for: int = 0
) -> PeerStatus:
    return PeerStatus(
        node, mode, Index(match), Index(match + 1), 0, 0, silent_for=silent_for, fit=True
    )


def status(commit: int, *peers: PeerStatus) -> CoreStatus:
    members = Membership(frozenset({N0, N1, N2}), frozenset({N3}), frozenset({N2}))
    return CoreStatus(
        node=N0, role=RaftRole.LEADER, term=Term(3), vote=N0, leader=N0,
        last=EntryId(Term(3), Index(commit)), held=Index(commit), commit=Index(commit),
        writer=WriterState.GRANTED, sick=False, outdated=False, lost=None, membership=members,
        membership_index=Index(0), transfer=None, peers=peers, leans=False,
        copies=None,
    )  # fmt: skip


def test_one_that_holds_what_was_committed_is_suggested_and_stays(page: CursorPage) -> None:
    reader = SuggestedReader(page, silent_max=400)
    said = [page.read_reader()]
    for state in (
        status(100, peer(N1, 90), peer(N3, 95)),
        # Behind what was committed at the last look: not any more.
        status(200, peer(N1, 99), peer(N3, 150)),
        status(300, peer(N1, 290), peer(N3, 250)),
        status(400, peer(N1, 400), peer(N3, 200)),
    ):
        reader.look(state)
        said.append(page.read_reader())
    reader.forget()

    assert said == ["", N1, N3, N3, N1]
    assert page.read_reader() == ""


@pytest.mark.parametrize(
    "unable",
    [
        peer(N1, 100, mode=ProgressMode.PROBE),
        peer(N1, 100, mode=ProgressMode.FILES),
        peer(N1, 100, silent_for=401),
        # A witness keeps no messages.
        peer(N2, 100),
        peer(NodeId("n9"), 100),
    ],
)
def test_one_that_cannot_serve_is_not_suggested(page: CursorPage, unable: PeerStatus) -> None:
    reader = SuggestedReader(page, silent_max=400)
    reader.look(status(50, unable))

    assert page.read_reader() == ""
