"""``ledgermq config`` as an operator meets it: output, errors, exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.model.config.settings import LogKind
from ledgermq.model.config.settings_file import read_settings

DLEDGER = """\
brokerClusterName=DefaultCluster
brokerName = RaftNode00
listenPort=30911
namesrvAddr=127.0.0.1:9876
storePathRootDir=/srv/rmqstore/node00
storePathCommitLog=/srv/rmqstore/node00/commitlog
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-10.0.0.1:40911;n1-10.0.0.2:40912;n2-10.0.0.3:40913
## must be unique
dLegerSelfId=n0
sendMessageThreadPoolNums=16
fileReservedTime=48
brokerIP1=10.0.0.1
flushDiskType=ASYNC_FLUSH
enableDLedgerCommitLog=true
mappedFileSizeConsumeQueue=4001
cleanFileForciblyEnable=true
"""


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_good_file_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[node]\nself_id = "n1"\n')

    status, out, err = run(capsys, "config", "check", file, "--json")

    assert (status, err) == (0, "")
    assert json.loads(out)["ok"] is True


def test_a_former_word_is_taken_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[ack]\nmode = "leader"\n')

    status, out, _ = run(capsys, "config", "show", file)

    assert status == 0
    assert 'mode = "lossy-leader"' in out
    assert caplog.messages == [f'{file}:2: ack.mode: "leader" is "lossy-leader" by now: write that']


def test_a_bad_file_is_told_line_by_line_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[log]\nlevel = "LOUD"\nlevle = 1\n')

    status, out, err = run(capsys, "config", "check", file)

    assert (status, out) == (1, "")
    assert err.splitlines() == [
        f"ledgermq: {file} cannot be used:",
        f'{file}:2: log.level: must be DEBUG, INFO, WARNING, ERROR, got "LOUD"',
        f"{file}:3: log.levle: unknown; did you mean level?",
    ]


def test_a_bad_file_is_told_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[log]\nlevel = 1\n")

    status, _, err = run(capsys, "config", "check", file, "--json")

    error = json.loads(err)["error"]
    assert (status, error["kind"], error["number"]) == (1, "SettingsError", 10)
    assert error["details"]["problems"][0]["key"] == "log.level"


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "config", "check", tmp_path / "none.toml")

    assert status == 1
    assert err == f"ledgermq: cannot read {tmp_path}/none.toml: No such file or directory\n"


def test_a_log_file_is_not_taken_for_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "00000000000000000000"
    file.write_bytes(b"\xda\xa3\x20\xa7")

    status, _, err = run(capsys, "config", "check", file)

    assert status == 1
    assert err == f"ledgermq: {file} is not UTF-8 text: byte 3\n"


def test_shown_settings_are_a_settings_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[store]\nmax_message_size = 5\n")

    status, out, _ = run(capsys, "config", "show", file)

    assert status == 0
    assert read_settings(out, name="shown") == read_settings(file.read_text(), name="file")


def test_settings_are_shown_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "config", "show", "--json")

    assert status == 0
    assert json.loads(out)["store"]["path_root_dir"] == "/var/lib/ledgermq"


def test_a_broker_conf_becomes_settings_that_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(DLEDGER)

    status, out, err = run(capsys, "config", "from-rocketmq", file)

    settings = read_settings(out, name="translated")
    assert status == 0
    assert settings.store.log is LogKind.DLEDGER
    assert settings.node.peers == ("n0-10.0.0.1:40911", "n1-10.0.0.2:40912", "n2-10.0.0.3:40913")
    assert settings.store.mapped_file_size_consume_queue == 4020
    assert [line.removeprefix(f"{file}:").split(":")[0] for line in err.splitlines()] == [
        "4",
        "12",
        "15",
        "16",
    ]
    assert f"{file}:16: enableDLedgerCommitLog = true: not a key of RocketMQ" in err


def test_a_broker_conf_becomes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(DLEDGER)

    status, out, err = run(capsys, "config", "from-rocketmq", file, "--json")

    document = json.loads(out)
    assert (status, err) == (0, "")
    assert document["settings"]["node"]["self_id"] == "n0"
    assert [entry["key"] for entry in document["untranslated"]][:2] == [
        "namesrvAddr",
        "sendMessageThreadPoolNums",
    ]
