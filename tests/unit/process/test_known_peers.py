"""Whether there are other members: by their list when a process began, or by who leads since."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.members.log_trouble import KnownMembers
from ledgermq.model.config.settings import LogKind, NodeSection, Settings, StoreSection

PEERS = ("n0-127.0.0.1:1", "n1-127.0.0.1:2")


def settings(root: Path, peers: tuple[str, ...], log: LogKind) -> Settings:
    return Settings(
        store=StoreSection(path_root_dir=root, log=log),
        node=NodeSection(self_id="n0", peers=peers),
    )


@pytest.mark.parametrize(
    ("peers", "log", "leader", "there"),
    [
        (PEERS, LogKind.DLEDGER, "", True),
        (PEERS, LogKind.DLEDGER, "n0", True),
        ((), LogKind.DLEDGER, "", False),
        ((), LogKind.DLEDGER, "n0", False),
        (PEERS[:1], LogKind.DLEDGER, "n0", False),
        (PEERS[:1], LogKind.DLEDGER, "n1", True),
        ((), LogKind.COMMITLOG, "n0", False),
    ],
)
def test_who_leads_tells_of_members_that_have_come_since_the_start(
    tmp_path: Path, peers: tuple[str, ...], log: LogKind, leader: str, there: bool
) -> None:
    known = KnownMembers(settings(tmp_path, peers, log))

    assert known.are_there(leader) is there
