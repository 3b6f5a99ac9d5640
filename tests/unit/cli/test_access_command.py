"""``ledgermq access``: what is made, who can read it, and what is refused."""

from __future__ import annotations

import json
import shutil
import stat
import tomllib
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.client.core.keys import load_client_keys
from ledgermq.model.config.settings_file import read_settings

NODES = "n0=10.0.0.1,n1=10.0.0.2,n2=10.0.0.3"


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_folder_for_each_node_and_the_clients_is_made_and_it_is_said_what_goes_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    billing = "billing topic:orders=SUB group:billing=SUB"
    status, out, err = run(
        capsys, "access", "init", made, "--nodes", NODES, "--admin", "boss", "--user", billing
    )
    users = json.loads((made / "users.json").read_text())
    keys = {(made / node / "keys" / "users.key").read_bytes() for node in ("n0", "n1", "n2")}
    curve = {(made / node / "clients.key").read_bytes() for node in ("n0", "n1", "n2")}
    client = load_client_keys(str(made / "clients" / "billing.keys"))
    settings = tomllib.loads((made / "n1" / "access.toml").read_text())
    secrets = [file.read_text().strip() for file in (made / "clients").glob("*.secret")]

    assert (status, err) == (0, "")
    assert len(keys) == len(curve) == 1
    assert users["boss"]["admin"] is True
    assert users["billing"]["topicPerms"] == ["orders=SUB"]
    assert users["billing"]["publicKeys"] == [client.public.decode()]
    assert settings["access"] == {"enabled": True}
    assert settings["listen"]["consume"] == "tcp://10.0.0.2:10922"
    assert settings["raft"] == {"keys_dir": "/etc/ledgermq/keys"}
    assert "ledgermq access apply" in out and "10.0.0.3" in out
    assert len(secrets) == len(set(secrets)) == 2
    assert not any(secret in out + json.dumps(users) for secret in secrets)
    for path in made.rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o644 if path.suffix == ".public" else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_settings_with_certificates_are_such_as_a_node_starts_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    status, _, _ = run(
        capsys, "access", "init", made, "--nodes", "n0=127.0.0.1", "--admin", "boss",
        "--certificates", "--place", made / "n0",
    )  # fmt: skip
    bundle = (made / "certificates.pem").read_bytes()
    settings = read_settings((made / "n0" / "access.toml").read_text(), name="access.toml")

    assert status == 0
    assert bundle == (made / "n0" / "tls.pem").read_bytes()
    assert settings.remoting.tls_mode.value == "enforcing"
    assert stat.S_IMODE((made / "n0" / "tls.key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--nodes", "n0", "--admin", "boss"), "not a node and its address"),
        (("--nodes", "n0=a;b", "--admin", "boss"), "not the name or the address of a host"),
        (("--nodes", "n0=fe80::1%eth0", "--admin", "boss"), "not the address of one host"),
        (("--nodes", "n0=a,n0=b", "--admin", "boss"), "a node stands twice"),
        (("--nodes", "n0=a", "--admin", "../boss"), "not a name of a user"),
        (("--nodes", "n0=a", "--admin", "boss", "--user", "boss"), "a user stands twice"),
        (("--nodes", "n0=a", "--admin", "boss", "--user", "b orders=PUB"), "not a right"),
        (("--nodes", "n0=a", "--admin", "boss", "--user", "b topic:orders=ALL"), "not a right"),
    ],
)
def test_what_is_not_understood_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    status, _, err = run(capsys, "access", "init", tmp_path / "made", *words)

    assert status == 1
    assert reason in err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "made").mkdir()
    status, _, err = run(
        capsys, "access", "init", tmp_path / "made", "--nodes", "n0=a", "--admin", "boss"
    )

    assert status == 1
    assert "not overwritten" in err
    assert list((tmp_path / "made").iterdir()) == []


def test_a_folder_that_it_has_not_made_is_not_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "access", "apply", tmp_path)

    assert status == 1
    assert "not a folder that" in err
