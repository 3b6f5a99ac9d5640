"""``ledgermq doctor`` as an operator meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.cli.node.doctor_command import describe
from ledgermq.doctor.finding import Diagnosis, Weight


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["doctor", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def config_in(folder: Path, more: str = "") -> Path:
    file = folder / "node.toml"
    file.write_text(
        f'[store]\npath_root_dir = "{folder}/store"\n[listen]\nruntime_dir = "{folder}/run"\n{more}'
    )
    return file


def test_settings_that_cannot_be_used_fail_with_status_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config_in(tmp_path, '[log]\nlevel = "LOUD"\n')
    status, out, err = run(capsys, "--config", file)

    assert (status, err) == (4, "")
    assert out.startswith("FAIL  settings.file")
    assert out.endswith("\n0 OK, 0 WARN, 1 FAIL\n")


def test_json_has_each_finding_and_the_worst_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config_in(tmp_path)
    status, out, err = run(capsys, "--config", file, "--only", "keys,store", "--json")
    told = json.loads(out)

    assert (status, err) == (0, "")
    assert (told["file"], told["verdict"]) == (str(file), "OK")
    assert [finding["check"] for finding in told["findings"]] == [
        "settings.file", "node.state", "keys.members", "keys.users", "keys.clients",
        "store.files",
    ]  # fmt: skip
    assert {*told["findings"][0]} == {"check", "verdict", "measured", "limit", "change"}


def test_a_part_that_there_is_not_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "--config", config_in(tmp_path), "--only", "disk,weather")

    assert (status, out) == (1, "")
    assert "weather" in err


def test_what_is_well_is_a_line_and_what_is_not_says_limit_and_remedy() -> None:
    well = Diagnosis("disk.space", Weight.OK, "9 GiB free", "75%")
    full = Diagnosis("disk.space", Weight.FAIL, "nothing free", "75%", "make room")
    colored = next(describe(full, is_colored=True))

    assert list(describe(well, is_colored=False)) == ["OK    disk.space                9 GiB free"]
    assert list(describe(full, is_colored=False)) == [
        "FAIL  disk.space                nothing free",
        "        limit:  75%",
        "        do:     make room",
    ]
    assert colored == "\x1b[31mFAIL  \x1b[0mdisk.space                nothing free"


MANY = ",".join(f"tcp://127.0.0.1:{port}" for port in range(1, 18))


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--record", "0"], "--record is out of range"),
        (["--record", "601"], "--record is out of range"),
        (["--output", "/tmp"], "belong to --record"),
        (["--address", "tcp://127.0.0.1:1"], "belong to --record"),
        (["--record", "1", "--address", "127.0.0.1:1"], "address is neither"),
        (
            ["--record", "1", "--address", ",".join(f"tcp://h:{n}" for n in range(1, 18))],
            "too many",
        ),
        (["--record", "1", "--only", "hosts"], "no such part"),
    ],
)
def test_what_cannot_be_recorded_is_refused_by_name(
    words: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *words]) == 1

    assert wrong in capsys.readouterr().err
