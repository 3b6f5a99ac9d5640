"""``ledgermq keys`` as an operator meets it: output, errors, exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_folder_for_each_member_is_made_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "keys", "init", tmp_path / "k", "--nodes", "n0,n1")

    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"{tmp_path}/k/n0: copy to raft.keys_dir of n0",
        f"{tmp_path}/k/n1: copy to raft.keys_dir of n1",
    ]
    assert (tmp_path / "k" / "n1" / "n1.secret").exists()


def test_no_secret_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "keys", "init", tmp_path, "--nodes", "n0, n1", "--json")
    secret = (tmp_path / "n0" / "n0.secret").read_text().strip()

    assert status == 0
    assert json.loads(out) == {"folders": {"n0": f"{tmp_path}/n0", "n1": f"{tmp_path}/n1"}}
    assert secret not in out


def test_existing_keys_are_refused_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "keys", "init", tmp_path, "--nodes", "n0,n1")
    status, out, err = run(capsys, "keys", "init", tmp_path, "--nodes", "n1,n2", "--json")

    assert (status, out) == (1, "")
    assert json.loads(err)["error"]["details"]["folder"] == f"{tmp_path}/n1"


@pytest.mark.parametrize("nodes", ["", "n0,", "n0,n0", "node", "n0,../x", "n123456789"])
def test_names_that_no_member_can_have_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: str
) -> None:
    status, _, err = run(capsys, "keys", "init", tmp_path / "k", "--nodes", nodes)

    assert status == 1
    assert "--nodes" in err
    assert not (tmp_path / "k").exists()


def test_a_folder_that_cannot_be_made_is_a_matter_of_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    status, _, err = run(capsys, "keys", "init", tmp_path / "file" / "k", "--nodes", "n0")

    assert status == 2
    assert "keys not written" in err
