"""``ledgermq upgrade check``: which member may be next, and which version may have the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.cli.node.upgrade_command import outlooks
from ledgermq.model.errors import NotLeaderError


def peer(name: str, **other: object) -> dict[str, object]:
    well = {"mode": "replicate", "silent_ms": 40, "behind": 0, "could_lead": True}
    return {"node": name, **well, **other}


def status(*peers: dict[str, object], **other: object) -> dict[str, Any]:
    names = ["n0", *(str(one["node"]) for one in peers)]
    return {
        "node": "n0", "role": "leader", "leader": "n0", "voters": names, "witnesses": [],
        "refusals": {}, "peers": list(peers), **other,
    }  # fmt: skip


def reasons(found: dict[str, Any]) -> dict[str, str]:
    return {one.member: one.reason for one in outlooks(found)}


def test_any_one_of_three_may_be_next_where_all_are_well() -> None:
    assert reasons(status(peer("n1"), peer("n2"))) == {"n1": "", "n2": "", "n0": ""}


@pytest.mark.parametrize(
    "trouble",
    [{"silent_ms": 9_000}, {"mode": "files", "behind": 5_000}, {"mode": "probe"}],
    ids=["silent", "far behind", "not fed"],
)
def test_where_one_of_three_is_away_only_that_one_may_be_restarted(trouble: dict[str, Any]) -> None:
    found = reasons(status(peer("n1"), peer("n2", **trouble)))

    assert found["n2"] == ""
    assert found["n1"].startswith("without it there is no majority (n2: ")
    assert found["n0"].startswith("without it there is no majority (n2: ")


def test_a_member_that_is_refused_does_not_count() -> None:
    found = status(peer("n1"), peer("n2"), refusals={"n2": "n2 needs version 0.2.0 or newer"})

    assert "n2 needs version 0.2.0 or newer" in reasons(found)["n1"]


def test_a_leader_stays_while_nobody_else_could_lead() -> None:
    alone = status(peer("n1", could_lead=False), peer("n2"), witnesses=["n2"])

    assert reasons(alone) == {"n1": "", "n2": "", "n0": "no other member could lead now"}


def test_a_learner_may_always_be_next_and_stands_in_for_nobody() -> None:
    found = status(peer("n1"), peer("n2"), voters=["n0", "n1"])

    assert reasons(found)["n2"] == ""
    assert "two voters need one another" in reasons(found)["n1"]


def test_a_witness_without_bodies_stands_in_for_one_member_with_messages() -> None:
    found = status(peer("n1"), peer("n2"), witnesses=["n2"], bodiless=["n2"])

    assert reasons(found) == {"n1": "", "n2": "", "n0": ""}


def test_witnesses_without_bodies_make_no_majority_with_too_few_messages() -> None:
    """Of seven: five would be there without n1, but two of four that hold messages."""
    others = [peer(name) for name in ("n1", "n3", "n4", "n5", "n6")]
    witnesses = ["n4", "n5", "n6"]
    found = reasons(
        status(peer("n2", silent_ms=9_000), *others, witnesses=witnesses, bodiless=witnesses)
    )

    for member in ("n0", "n1", "n3"):
        assert found.pop(member).startswith("without it too few would hold messages")
    assert set(found.values()) == {""}


@pytest.mark.parametrize(("version", "status_"), [("0.2.0", 1), ("0.3.0", 0)])
def test_a_version_from_before_witnesses_without_bodies_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, status_: int
) -> None:
    config = tmp_path / "ledgermq.toml"
    config.write_text(
        '[node]\nself_id = "n2"\ninitial_cluster_state = "existing"\nwitness = true\n'
        'peers = ["n0-127.0.0.1:1", "n2-127.0.0.1:2"]\n'
        f'[store]\nlog = "dledger"\npath_root_dir = "{tmp_path / "store"}"\n'
    )

    assert main(["upgrade", "check", "--config", str(config), "--to", version]) == status_
    said = capsys.readouterr()
    assert ("witness without bodies" in said.err) == (status_ == 1)
    assert ("ask a member with messages" in said.out) == (status_ == 0)


def test_only_the_leader_can_say_it() -> None:
    with pytest.raises(NotLeaderError, match="n1"):
        outlooks(status(role="follower", leader="n1"))


@pytest.mark.parametrize(
    ("version", "content", "status_"),
    [
        ("0.1.0", None, 0),
        ("0.1.0-1~bookworm", '{"level": 1, "ledgermqApplied": 7}', 1),
        ("0.2.0-1", '{"level": 1, "ledgermqApplied": 7}', 0),
        ("0.2.0", '{"level": 99, "ledgermqApplied": 7}', 1),
        ("latest", None, 1),
    ],
)
def test_a_version_may_have_a_store_whose_level_it_knows(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    version: str,
    content: str | None,
    status_: int,
) -> None:
    (tmp_path / "store" / "ledgermq").mkdir(parents=True)
    if content:
        (tmp_path / "store" / "ledgermq" / "features.json").write_text(content)
    config = tmp_path / "node.toml"
    config.write_text(f'[store]\npath_root_dir = "{tmp_path}/store"\n')

    assert main(["upgrade", "check", "--to", version, "--config", str(config)]) == status_
    said = capsys.readouterr()
    if status_ and content:
        assert "cannot have this store" in said.err
        assert "in force, which needs" in said.err
