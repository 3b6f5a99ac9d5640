"""What a store knows of itself and of its peers survives, and is never half believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.members.peer_identity import KnownPeers, cluster_id, take_identity
from ledgermq.model.config.settings import NodeSection
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import NodeId

NODE = NodeSection(self_id="n0")
N1, N2 = NodeId("n1"), NodeId("n2")


def test_an_identity_is_drawn_once(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    identity = take_identity(path, NODE)

    assert len(identity) == 16
    assert take_identity(path, NODE) == identity
    assert take_identity(tmp_path / "another", NODE) != identity


def test_each_flipped_byte_of_an_identity_is_found(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    take_identity(path, NODE)
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CorruptLogError, match="identity"):
            take_identity(path, NODE)
    for damaged in (b"", content[:-1], content + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(CorruptLogError, match="identity"):
            take_identity(path, NODE)


@pytest.mark.parametrize(
    ("changed", "setting"),
    [
        (replace(NODE, self_id="n1"), r"node\.self_id"),
        (replace(NODE, group="other"), r"node\.group"),
        (replace(NODE, broker_cluster_name="other"), r"node\.broker_cluster_name"),
    ],
)
def test_a_store_of_others_is_refused(tmp_path: Path, changed: NodeSection, setting: str) -> None:
    take_identity(tmp_path / "identity", NODE)
    with pytest.raises(ConfigError, match=setting):
        take_identity(tmp_path / "identity", changed)


def test_a_cluster_id_is_that_of_its_two_names_for_ever() -> None:
    assert cluster_id(NODE).hex() == "5222b84786d8545ebf1d18c16341123e"
    assert cluster_id(replace(NODE, self_id="n1", broker_name="x")) == cluster_id(NODE)
    assert cluster_id(replace(NODE, broker_cluster_name="a", group="bc")) != cluster_id(
        replace(NODE, broker_cluster_name="ab", group="c")
    )


def test_peers_are_remembered_until_they_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    peers = KnownPeers(path)
    peers.remember(N2, b"2" * 16)
    peers.remember(N1, b"1" * 16)
    again = KnownPeers(path)

    assert (again.get(N1), again.get(N2), again.get(NodeId("n3"))) == (b"1" * 16, b"2" * 16, None)
    assert (again.owner(b"2" * 16), again.owner(b"3" * 16)) == (N2, None)
    assert (again.forget(N1), again.forget(N1)) == (True, False)
    assert KnownPeers(path).get(N1) is None
    assert [line.split()[0] for line in path.read_text().splitlines()] == ["n2"]


def test_a_line_may_be_removed_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    peers = KnownPeers(path)
    peers.remember(N1, b"1" * 16)
    peers.remember(N2, b"2" * 16)
    path.write_text(path.read_text().splitlines()[1] + "\n")

    assert (KnownPeers(path).get(N1), KnownPeers(path).get(N2)) == (None, b"2" * 16)


def test_each_flipped_byte_of_a_line_is_found(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    KnownPeers(path).remember(N1, b"1" * 16)
    content = path.read_bytes()
    # The last one ends the line.
    for at in range(len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CorruptLogError, match=r"peers.*line=1"):
            KnownPeers(path)
    path.write_bytes(content + content)
    with pytest.raises(CorruptLogError, match="line=2"):
        KnownPeers(path)
