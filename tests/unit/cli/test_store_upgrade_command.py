"""``ledgermq store upgrade`` and ``downgrade``: what they print, and what they refuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.formats.findings import Severity
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_OK, EXIT_STORAGE
from ledgermq.repair.check.check_store import CheckOptions, check_store
from tests.conftest import Golden

NAMES = ("--group", "g", "--self-id", "n0")
DIVIDED = 1_048_576


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["store", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def facts_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def faults(root: Path) -> list[str]:
    return [
        str(finding)
        for finding in check_store(root, CheckOptions()).findings
        if finding.severity is not Severity.NOTE
    ]


def content(root: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "dledger-" not in str(path)
    }


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], golden_copy: Golden
) -> None:
    root = golden_copy("gs1")
    before = content(root)
    status, out, _ = run(capsys, "upgrade", root, *NAMES, "--dry-run", "--json")

    assert status == EXIT_OK
    assert facts_of(out).items() >= {
        "divided": DIVIDED, "end": 964_020, "upgraded": False, "bytes_behind_the_last_record": 0,
    }.items()  # fmt: skip
    assert content(root) == before


def test_members_with_the_same_old_log_are_upgraded(
    capsys: pytest.CaptureFixture[str], golden_copy: Golden, tmp_path: Path
) -> None:
    root = golden_copy("gs1")
    manifests = [tmp_path / f"n{number}.manifest" for number in range(3)]
    for number, path in enumerate(manifests):
        words = ("--group", "g", "--self-id", f"n{number}", "--manifest", path)
        assert run(capsys, "upgrade", root, *words)[0] == EXIT_OK
    status, out, err = run(capsys, "upgrade", root, *NAMES, "--compare", *manifests, "--json")

    assert (status, err) == (EXIT_OK, "")
    assert facts_of(out)["upgraded"] is True
    assert (root / "dledger-n0" / "data" / f"{DIVIDED:020d}").exists()
    assert faults(root) == []


def test_a_member_with_another_old_log_is_not_upgraded(
    capsys: pytest.CaptureFixture[str], golden_copy: Golden, tmp_path: Path
) -> None:
    other, root = golden_copy("g6"), golden_copy("gs1")
    path = tmp_path / "n1.manifest"
    run(capsys, "upgrade", other, "--group", "g", "--self-id", "n1", "--manifest", path)
    before = content(root)
    status, _, err = run(capsys, "upgrade", root, *NAMES, "--compare", path)

    assert status == EXIT_CONFIG
    assert "n0 and n1 do not have the same old log" in err
    assert content(root) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--self-id", "n0"), "--group is missing"),
        (("--group", "g"), "--self-id is missing"),
        (("--group", "g/h", "--self-id", "n0"), "--group must be"),
        (("--group", "g", "--self-id", "node0"), "--self-id must be"),
        (("--undo",), "no upgrade to undo"),
        (("--finish",), "no upgrade to finish"),
        ((*NAMES, "--compare", "/no/such/file"), "no such manifest"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], golden_copy: Golden
) -> None:
    status, _, err = run(capsys, "upgrade", golden_copy("gs1"), *words)

    assert status == EXIT_CONFIG
    assert said in err


@pytest.mark.parametrize("verb", ["upgrade", "downgrade"])
def test_an_open_store_is_refused(
    verb: str, capsys: pytest.CaptureFixture[str], golden_copy: Golden
) -> None:
    root = golden_copy("gs1" if verb == "upgrade" else "gd0")
    words = NAMES if verb == "upgrade" else ()
    with stopped_store(root):
        status, _, err = run(capsys, verb, root, *words)

    assert status == EXIT_STORAGE
    assert str(os.getpid()) in err


def test_a_folder_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for words in (("upgrade", tmp_path / "no", *NAMES), ("downgrade", tmp_path / "no")):
        assert run(capsys, *words)[0] == EXIT_CONFIG
    assert not (tmp_path / "no").exists()


def test_an_upgrade_is_undone_and_done_again_and_finished(
    capsys: pytest.CaptureFixture[str], golden_copy: Golden
) -> None:
    root = golden_copy("gs1")
    for words in (NAMES, ("--undo",), NAMES, ("--finish",)):
        assert run(capsys, "upgrade", root, *words)[0] == EXIT_OK

    assert not (root / "ledgermq" / "conversion.json").exists()
    assert "no upgrade to undo" in run(capsys, "upgrade", root, "--undo")[2]


def test_a_finish_that_is_said_again_is_done_already(
    capsys: pytest.CaptureFixture[str], golden_copy: Golden
) -> None:
    """A power failure may swallow the end of a command whose last step was durable."""
    root = golden_copy("gs1")
    told = []
    for verb, names in (("upgrade", NAMES), ("downgrade", ())):
        assert run(capsys, verb, root, *names)[0] == EXIT_OK
        told += [run(capsys, verb, root, "--finish", "--json") for _ in range(2)]
        before = content(root)
        told.append(run(capsys, verb, root, "--finish", "--json"))

        assert content(root) == before

    assert {(status, facts_of(out)["done"], err) for status, out, err in told} == {
        (EXIT_OK, "finish", "")
    }


@pytest.mark.parametrize(
    ("name", "verb"), [("gs1", "upgrade"), ("gd0", "upgrade"), ("gd0", "downgrade")]
)
def test_a_store_of_another_kind_has_nothing_to_finish(
    name: str, verb: str, capsys: pytest.CaptureFixture[str], golden_copy: Golden
) -> None:
    status, _, err = run(capsys, verb, golden_copy(name), "--finish")

    assert status == EXIT_CONFIG
    assert f"no {verb} to finish" in err


@pytest.mark.parametrize("name", ["gd0", "gu0"])
def test_a_downgraded_store_is_whole(
    name: str, capsys: pytest.CaptureFixture[str], golden_copy: Golden
) -> None:
    root = golden_copy(name)
    status, out, _ = run(capsys, "downgrade", root, "--dry-run", "--json")
    plan = facts_of(out)

    assert (status, plan["downgraded"]) == (EXIT_OK, False)
    assert plan["committed_end"] == plan["end"]

    status, out, _ = run(capsys, "downgrade", root, "--json")

    assert status == EXIT_OK
    assert facts_of(out)["messages"] == plan["last_index"] + 1
    assert faults(root) == []
    assert run(capsys, "downgrade", root, "--finish")[0] == EXIT_OK
    assert not (root / "ledgermq" / "conversion").exists()
    assert faults(root) == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Where any user may go: pytest's own folders are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="lmq-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_superuser_leaves_no_file_that_the_owner_could_not_write(
    capsys: pytest.CaptureFixture[str], golden: Golden, open_folder: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only a superuser can act as another user")
    owner = 65_534
    root = open_folder / "store"
    subprocess.run(["cp", "-a", "--sparse=always", str(golden("gd0")), str(root)], check=True)
    for path in (root, *root.rglob("*")):
        os.chown(path, owner, owner)

    assert run(capsys, "downgrade", root)[0] == EXIT_OK
    assert {path.stat().st_uid for path in root.rglob("*")} == {owner}
    assert os.geteuid() == 0
