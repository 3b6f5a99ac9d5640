"""Keys that are missing, open to others, or somebody else's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ledgermq.doctor.finding import Weight
from ledgermq.doctor.settings_checks import key_checks
from ledgermq.members.roster import Roster, RosterEntry, RosterFile
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.membership import Membership
from ledgermq.rules.access.sealed_secret import KEY_SIZE, seal
from ledgermq.sessions.keys.client_keys import make_node_key
from ledgermq.sessions.keys.peer_keys import CLUSTER_USERS_FILE
from ledgermq.sessions.keys.user_secrets import write_user_keys
from tests.unit.doctor.subjects import by_check, member_in, subject_in, verdicts


def test_whole_keys_are_well(tmp_path: Path) -> None:
    findings = by_check(key_checks, member_in(tmp_path))

    assert set(verdicts(findings).values()) == {Weight.OK}
    assert "keys.roster" in findings


def test_a_group_of_one_needs_none(tmp_path: Path) -> None:
    findings = by_check(key_checks, subject_in(tmp_path))

    assert findings["keys.members"].verdict is Weight.OK


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_can_read_fails(tmp_path: Path, mode: int) -> None:
    subject = member_in(tmp_path)
    (tmp_path / "keys" / "n0" / "n0.secret").chmod(mode)
    finding = by_check(key_checks, subject)["keys.members"]

    assert finding.verdict is Weight.FAIL
    assert f"{mode:04o}" in finding.measured
    assert "chmod 600" in finding.change


def test_a_member_without_a_key_fails_and_is_named(tmp_path: Path) -> None:
    subject = member_in(tmp_path)
    (tmp_path / "keys" / "n0" / "n2.public").unlink()
    finding = by_check(key_checks, subject)["keys.members"]

    assert finding.verdict is Weight.FAIL
    assert "n2.public" in finding.measured


def test_a_folder_that_others_can_write_fails(tmp_path: Path) -> None:
    subject = member_in(tmp_path)
    (tmp_path / "keys" / "n0").chmod(0o777)

    assert by_check(key_checks, subject)["keys.folder"].verdict is Weight.FAIL


def test_a_secret_of_another_account_fails(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    subject = member_in(tmp_path)
    (tmp_path / "store").mkdir()
    os.chown(tmp_path / "store", 65_534, 65_534)
    finding = by_check(key_checks, subject)["keys.owner"]

    assert finding.verdict is Weight.FAIL
    assert "chown nobody" in finding.change


def test_a_member_of_the_log_without_a_key_here_fails(tmp_path: Path) -> None:
    subject = member_in(tmp_path)
    names = [NodeId(name) for name in ("n0", "n1", "n2", "n3")]
    membership = Membership(frozenset(names), frozenset(), frozenset())
    addresses = {name: f"127.0.0.1:{24_000 + at}" for at, name in enumerate(names)}
    subject.paths.own.mkdir(parents=True)
    RosterFile(subject.paths.members).put(
        RosterEntry(Index(5), Term(1), Roster(membership, addresses))
    )
    finding = by_check(key_checks, subject)["keys.roster"]

    assert finding.verdict is Weight.FAIL
    assert finding.measured.startswith("n3: no key")


def test_clients_in_the_clear_are_told_unless_nobody_else_can_come(tmp_path: Path) -> None:
    far = by_check(key_checks, subject_in(tmp_path, listen={"produce": "tcp://10.0.0.1:10921"}))
    near = by_check(key_checks, subject_in(tmp_path, listen={"produce": "tcp://127.0.0.1:10921"}))

    assert far["keys.clients"].verdict is Weight.WARN
    assert near["keys.clients"].verdict is Weight.OK


def test_the_key_towards_clients_is_looked_at(tmp_path: Path) -> None:
    secret = tmp_path / "node.secret"
    make_node_key(secret)
    listen = {"produce": "tcp://10.0.0.1:10921", "curve_secret_file": secret}
    whole = by_check(key_checks, subject_in(tmp_path, listen=listen))["keys.clients"]
    secret.chmod(0o644)
    open_ = by_check(key_checks, subject_in(tmp_path, listen=listen))["keys.clients"]

    assert (whole.verdict, open_.verdict) == (Weight.OK, Weight.FAIL)


def test_a_member_without_the_key_of_the_clusters_users_fails_and_is_told_which_file(
    tmp_path: Path,
) -> None:
    subject = member_in(tmp_path)
    folder = tmp_path / "store" / "ledgermq"
    folder.mkdir(parents=True)
    sealed = seal(b"k" * KEY_SIZE, "shop", "12345678")
    table = {"users": {}, "clusterUsers": {"shop": {"secretKey": sealed}}}
    (folder / "access.json").write_text(json.dumps(table))
    without = by_check(key_checks, subject)["keys.users"]
    write_user_keys(tmp_path / "keys" / "n0" / CLUSTER_USERS_FILE, (b"k" * KEY_SIZE,))
    given = by_check(key_checks, subject)["keys.users"]

    assert without.verdict is Weight.FAIL
    assert "shop" in without.measured and CLUSTER_USERS_FILE in without.change
    assert given.verdict is Weight.OK
