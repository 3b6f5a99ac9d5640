"""Settings that cannot be used, and such that are unwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.doctor.finding import Weight
from ledgermq.doctor.settings_checks import read_checked, settings_checks
from ledgermq.model.config.settings import AckMode
from tests.unit.doctor.subjects import PEERS, by_check, member_in, subject_in, verdicts


def test_a_file_with_mistakes_fails_with_all_of_them(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[log]\nlevel = "LOUD"\n[raft]\nheartbeat_ms = 1\n')
    settings, finding = read_checked(file)

    assert settings is None
    assert finding.verdict is Weight.FAIL
    assert "log.level" in finding.measured
    assert "raft.heartbeat_ms" in finding.measured


def test_a_file_that_is_not_there_fails(tmp_path: Path) -> None:
    settings, finding = read_checked(tmp_path / "missing.toml")

    assert settings is None
    assert "missing.toml" in finding.measured


def test_defaults_and_a_group_of_three_are_well(tmp_path: Path) -> None:
    alone = by_check(settings_checks, subject_in(tmp_path))
    member = by_check(settings_checks, member_in(tmp_path))

    assert set(verdicts(alone).values()) == set(verdicts(member).values()) == {Weight.OK}
    assert member["settings.members"].measured == "3 voters"


@pytest.mark.parametrize(
    ("check", "sections"),
    [
        ("settings.members", {"node": {"peers": PEERS[:2]}}),
        ("settings.broker-ip", {"listen": {"produce": "tcp://10.0.0.1:10921"}}),
        ("settings.broker-ip", {"listen": {"remoting": "*:10911"}}),
        ("settings.acknowledgement", {"ack": {"mode": AckMode.LOSSY_LEADER}}),
    ],
)
def test_what_is_unwise_is_told(
    tmp_path: Path, check: str, sections: dict[str, dict[str, object]]
) -> None:
    finding = by_check(settings_checks, member_in(tmp_path, **sections))[check]

    assert finding.verdict is Weight.WARN
    assert finding.change
