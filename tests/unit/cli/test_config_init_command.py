"""``ledgermq config init``: what is made for each host, what is said, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.model.config.settings import AckMode, ClusterState, Settings, TlsMode
from ledgermq.model.config.settings_change import cluster_fingerprint
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.sessions.keys import first_access
from ledgermq.sessions.keys.first_access import read_first_users
from ledgermq.sessions.keys.peer_keys import load_keys

THREE = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
with_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["config", "init", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def settings_in(made: Path) -> dict[str, Settings]:
    return {path.parent.name: load_settings(path) for path in sorted(made.glob("*/ledgermq.toml"))}


@with_openssl
@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 5])
def test_each_host_has_settings_that_are_accepted_with_the_keys_that_they_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    made = tmp_path / "made"
    hosts = [f"10.0.0.{number + 1}" for number in range(count)]
    status, out, err = run(
        capsys, *hosts, "--output", made, "--user", "shop topic:orders=PUB", "--data", "/srv/mq"
    )
    found = settings_in(made)
    users = read_first_users(made)

    assert (status, err) == (0, "")
    assert len(out.splitlines()) <= 15
    assert list(found) == [f"n{number}" for number in range(count)]
    assert len({cluster_fingerprint(one) for one in found.values()}) == 1
    assert users["admin"]["admin"] is True and users["shop"]["topicPerms"] == ["orders=PUB"]
    assert not any(str(user["secretKey"]) in out for user in users.values())
    for (name, settings), host in zip(found.items(), hosts, strict=True):
        assert settings.node.self_id == name and settings.node.broker_ip == host
        assert len(settings.node.peers) == (count if count > 1 else 0)
        assert settings.listen.remoting == f"{host}:10911"
        assert settings.listen.consume == f"tcp://{host}:10922"
        assert settings.remoting.tls_mode is TlsMode.ENFORCING and settings.access.enabled
        assert (settings.remoting.members_ca_file is not None) == (count > 1)
        if count > 1:
            known = (made / name / "members.pem").read_bytes()
            assert known == (made / "certificates.pem").read_bytes()
            assert f"{settings.remoting.members_ca_file}" in out
        assert str(settings.store.path_root_dir) == "/srv/mq"
        assert f"{made}/{name}/*" in out and "ReadWritePaths=/srv/mq" in out


@pytest.mark.parametrize("count", [2, 4])
def test_a_witness_beside_two_hosts_or_four_has_no_clients_and_joins_a_group_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    made, last = tmp_path / "made", f"n{count}"
    hosts = [f"10.0.0.{number + 1}" for number in range(count)]
    status, out, err = run(
        capsys, *hosts, "--witness", "10.0.0.9", "--output", made, "--no-rocketmq", "--port", 21_000
    )
    *full, witness = settings_in(made).values()
    known = load_keys(replaced_keys(witness, made / last / "keys"))

    assert (status, err) == (0, "")
    assert f"raft add {last} 10.0.0.9:21000 --witness --without-bodies" in out
    assert f"# not on {last}" in out
    for one in full:
        assert len(one.node.peers) == count and not one.node.witness
    assert witness.node.witness
    assert witness.node.initial_cluster_state is ClusterState.EXISTING
    assert len(witness.node.peers) == count + 1
    assert (witness.listen.produce, witness.listen.consume) == (None, None)
    assert not witness.access.enabled and not witness.listen.trusted_network
    assert known is not None and len(known.public) == count + 1
    there = {path.name for path in (made / last).rglob("*") if path.is_file()}
    assert there - {f"n{number}.public" for number in range(5)} == {
        "ledgermq.toml",
        f"{last}.secret",
    }


def replaced_keys(settings: Settings, folder: Path) -> Settings:
    return replace(settings, raft=replace(settings.raft, keys_dir=folder))


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_who_may_read_what_does_not_depend_on_the_umask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], umask: int
) -> None:
    made = tmp_path / "made"
    before = os.umask(umask)
    try:
        status, _, _ = run(capsys, *THREE, "--output", made, "--no-rocketmq")
    finally:
        os.umask(before)

    assert status == 0
    for path in made.rglob("*"):
        is_open = path.suffix == ".public" or path.name == "ledgermq.toml"
        wanted = 0o700 if path.is_dir() else 0o644 if is_open else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_members_know_one_another_by_the_keys_of_their_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    for number in range(3):
        # Each host has its folder where its settings say.
        run(capsys, *THREE, "--output", made, "--no-rocketmq", "--place", made / f"n{number}")
        keys = load_keys(settings_in(made)[f"n{number}"])
        shutil.rmtree(made)

        assert keys is not None and sorted(keys.public) == ["n0", "n1", "n2"]


def test_ports_name_and_durability_are_those_that_were_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    run(
        capsys, *THREE, "--output", made, "--no-users", "--port", 21_000, "--rocketmq-port", 9876,
        "--name", "orders-a", "--durability", "majority-memory",
    )  # fmt: skip
    second = settings_in(made)["n1"]

    assert second.node.peers[2] == "n2-10.0.0.3:21000"
    assert (second.listen.produce, second.listen.consume) == (
        "tcp://10.0.0.2:21001", "tcp://10.0.0.2:21002",
    )  # fmt: skip
    assert (second.listen.remoting, second.node.listen_port) == ("10.0.0.2:9876", 9876)
    assert second.node.group == second.node.broker_name == "orders-a"
    assert second.ack.mode is AckMode.MAJORITY_MEMORY


def test_admins_may_act_from_anywhere_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, options in enumerate([(), ("--admin-over-clients",)]):
        made = tmp_path / str(number)
        run(capsys, *THREE, "--output", made, "--no-rocketmq", *options)
        access = {one.access.admin_over_clients for one in settings_in(made).values()}

        assert access == {bool(options)}


def test_without_users_the_ports_are_open_and_it_says_so_in_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    status, out, _ = run(capsys, "10.0.0.1", "--output", made, "--no-users")
    (settings,) = settings_in(made).values()

    assert status == 0
    assert settings.listen.trusted_network and not settings.access.enabled
    assert settings.remoting.tls_certificate_file is None
    assert sorted(path.name for path in made.rglob("*")) == ["ledgermq.toml", "n0"]
    assert "access apply" not in out and "chown" not in out


def test_without_rocketmqs_clients_there_is_no_port_for_them_and_no_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _, _ = run(capsys, *THREE, "--output", made, "--no-rocketmq")

    assert status == 0
    assert {one.listen.remoting for one in settings_in(made).values()} == {None}
    assert list(made.rglob("*.pem")) == []


def test_hosts_may_have_names_and_what_these_stand_for_is_told_where_it_matters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"one.example": "10.0.0.1", "two.example": "127.0.1.1"}

    def resolved(name: str, *_rest: object, **_more: object) -> list[object]:
        if name not in found:
            raise OSError(name)
        return [(2, 1, 6, "", (found[name], 0))]

    monkeypatch.setattr(first_access.socket, "getaddrinfo", resolved)
    made = tmp_path / "made"
    names = ("One.example", "two.example", "three.example")
    status, out, err = run(capsys, *names, "--output", made, "--no-users", "--json")
    first, second, _ = settings_in(made).values()

    assert status == 0
    assert first.node.peers[0] == "n0-one.example:10920"
    assert (first.node.broker_ip, first.listen.consume) == ("10.0.0.1", "tcp://*:10922")
    # The name of the machine itself, which other hosts do not have there.
    assert second.node.broker_ip == Settings().node.broker_ip
    assert [line for line in err.splitlines() if "node.broker_ip" in line] == err.splitlines()
    assert len(json.loads(out)["warnings"]) == len(err.splitlines()) == 2


def test_two_names_of_one_host_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    same = [(2, 1, 6, "", ("10.0.0.1", 0))]
    monkeypatch.setattr(first_access.socket, "getaddrinfo", lambda *_rest, **_more: same)
    status, _, err = run(capsys, "a", "b", "10.0.0.3", "--output", tmp_path / "made", "--no-users")

    assert status == 0
    assert "b is a by its address here, 10.0.0.1" in err


def test_addresses_of_ipv6_stand_in_brackets_before_ports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    hosts = ("2001:db8::1", "[2001:db8::2]", "2001:DB8:0::3")
    status, out, _ = run(capsys, *hosts, "--output", made, "--no-users")
    third = settings_in(made)["n2"]

    assert status == 0
    assert third.node.peers == (
        "n0-[2001:db8::1]:10920",
        "n1-[2001:db8::2]:10920",
        "n2-[2001:db8::3]:10920",
    )
    assert third.node.broker_ip == "2001:db8::3"
    assert third.listen.produce == "tcp://[2001:db8::3]:10921"
    assert "[2001:db8::2]:/etc/ledgermq/" in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("a", "b"), "an odd number of hosts, and here one of 1, 3, 5"),
        (("a", "b", "c", "d"), "odd number of hosts"),
        (("a", "b"), "a third vote for two sites is --witness"),
        (
            ("a", "b", "c", "--witness", "d"),
            "beside a witness without messages a group has one of 2",
        ),
        (("a", "b", "--witness", "A"), "a host stands twice"),
        (("10.0.0.1", "10.0.0.2", "--witness", "127.0.0.1"), "other hosts do not reach"),
        (("a", "b", "A"), "a host stands twice"),
        (("10.0.0.1", "10.0.0.2", "10.0.0.1"), "a host stands twice"),
        (("2001:db8::1", "[2001:db8:0::1]", "2001:db8::2"), "a host stands twice"),
        (("a:10920",), "--port"),
        (("10.0.0",), "not the name or the address of a host"),
        (("10.0.0.256",), "not the name or the address of a host"),
        (("a;b",), "not the name or the address of a host"),
        (("0.0.0.0",), "not the address of one host"),
        (("127.0.0.1", "10.0.0.2", "10.0.0.3"), "other hosts do not reach"),
        (("a", "--port", "80"), "ports are 1024 to 65535"),
        (("a", "--port", "65534"), "ports are 1024 to 65535"),
        (("a", "--rocketmq-port", "70000"), "ports are 1024 to 65535"),
        (("a", "--rocketmq-port", "10922"), "--rocketmq-port"),
        (("a", "--rocketmq-port", "10911", "--no-rocketmq"), "not allowed with"),
        (("a", "--name", "a b"), "--name"),
        (("a", "--data", "srv"), "an absolute path"),
        (("a", "--durability", "never"), "majority-fsync"),
        (("a", "--no-users", "--admin-over-clients"), "everybody who reaches the ports"),
        (("a", "--user", "admin"), "a user stands twice"),
        (("a", "--user", "shop orders=PUB"), "not a right"),
        (("a", "--admin", "../admin"), "not a name of a user"),
    ],
)
def test_what_cannot_be_a_group_makes_nothing_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    status, _, err = run(capsys, *words, "--output", tmp_path / "made")

    assert status == 1
    assert reason in err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    made.mkdir()
    status, _, err = run(capsys, "10.0.0.1", "--output", made, "--no-users")

    assert status == 1
    assert "not overwritten" in err
    assert list(made.iterdir()) == []
