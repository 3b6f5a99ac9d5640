"""A directory is opened by the kind of node that it belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.config.settings import ClusterState, NodeSection, Settings, StoreSection
from ledgermq.model.errors import ConfigError
from ledgermq.process.store_kind import check_kind
from ledgermq.store.files.store_paths import StorePaths


def settings(root: Path, *, witness: bool) -> Settings:
    return Settings(
        node=NodeSection(
            self_id="n2",
            peers=("n0-127.0.0.1:1", "n2-127.0.0.1:2"),
            initial_cluster_state=ClusterState.EXISTING,
            witness=witness,
        ),
        store=StoreSection(path_root_dir=root),
    )


def check(root: Path, *, witness: bool) -> None:
    known = settings(root, witness=witness)
    check_kind(StorePaths.of(known), known)


@pytest.mark.parametrize("witness", [False, True])
def test_an_empty_directory_may_become_either(tmp_path: Path, witness: bool) -> None:
    check(tmp_path, witness=witness)


def test_a_witness_without_bodies_refuses_a_directory_with_a_log(tmp_path: Path) -> None:
    data = StorePaths.of(settings(tmp_path, witness=True)).data
    data.mkdir(parents=True)
    check(tmp_path, witness=False)

    with pytest.raises(ConfigError, match="holds a log") as refused:
        check(tmp_path, witness=True)

    assert refused.value.details["found"] == ["dledger-n2"]


def test_a_witness_without_bodies_refuses_the_directory_of_a_voter_that_had_no_message_yet(
    tmp_path: Path,
) -> None:
    path = StorePaths.of(settings(tmp_path, witness=True)).term
    path.parent.mkdir(parents=True)
    path.touch()

    with pytest.raises(ConfigError, match="a log or a vote") as refused:
        check(tmp_path, witness=True)

    assert refused.value.details["found"] == ["term"]


def test_a_witness_whose_disk_is_known_does_not_begin_without_what_it_has_promised(
    tmp_path: Path,
) -> None:
    paths = StorePaths.of(settings(tmp_path, witness=True))
    paths.own.mkdir(parents=True)
    paths.witness.touch()
    paths.identity.touch()
    check(tmp_path, witness=True)

    paths.witness.unlink()

    with pytest.raises(ConfigError, match="has promised is gone"):
        check(tmp_path, witness=True)


def test_a_node_with_messages_refuses_the_directory_of_a_witness(tmp_path: Path) -> None:
    path = StorePaths.of(settings(tmp_path, witness=True)).witness
    path.parent.mkdir(parents=True)
    path.touch()
    check(tmp_path, witness=True)

    with pytest.raises(ConfigError, match=r"is a witness's") as refused:
        check(tmp_path, witness=False)

    assert refused.value.details["setting"] == "node.witness"
