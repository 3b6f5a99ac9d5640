"""Tests of ``make check-all``: its parts leave nothing out, and what passed on a tree is known."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.suite import check_all
from tests.suite.check_parts import PARTS, SOAKS, Part

ROOT = Path(__file__).parents[2]


def test_every_test_is_in_a_part() -> None:
    named = {word for part in PARTS for word in part.tests if word.startswith("tests/")}
    ignored = {
        word.removeprefix("--ignore=")
        for part in PARTS
        for word in part.tests
        if word.startswith("--ignore=")
    }
    tests = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").iterdir()
        if path.is_dir() and any(path.rglob("test_*.py"))
    } | {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("test_*.py")}

    assert {"tests/process", *tests} <= named
    assert ignored <= named
    assert all((ROOT / name).exists() for name in named)


def test_parts_have_what_the_page_says() -> None:
    """The columns of docs/testing.md name all, with their numbers."""
    rows = re.findall(
        r"^\| `(LEDGERMQ_\w+)` \|[^|]*\|([^|]*)\|([^|]*)\|",
        (ROOT / "docs/testing.md").read_text(),
        re.M,
    )
    of_page = {name: value.strip() for name, value, _ in rows}
    of_parts = {name: value for part in PARTS for name, value in part.environment.items()}
    # Those that are drawn, the same in each run, or of other commands.
    told = {
        name: value
        for name, value in of_page.items()
        if value and value != "drawn" and name in of_parts
    }

    assert told == {name: value for name, value in of_parts.items() if name in of_page}
    assert set(of_parts) <= set(of_page)
    assert {name for name, value in of_page.items() if value == "1"} <= set(of_parts)
    assert {name: value.strip() for name, _, value in rows if value.strip()} == {
        name: value for part in PARTS for name, value in part.soak.items()
    }


def test_a_night_takes_the_same_tests_for_longer() -> None:
    parts = {part.name: part for part in PARTS}

    for soak in SOAKS:
        part = parts[soak.name.removeprefix("soak-")]
        assert (soak.tests, soak.tools) == (part.tests, part.tools)
        assert set(part.soak) <= set(part.environment)
        assert soak.environment == {**part.environment, **part.soak}


def test_what_has_passed_counts_for_its_tree_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    subprocess.run([*words[:1], "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "file").write_text("1")
    subprocess.run([*words, "add", "file"], check=True)
    subprocess.run([*words, "commit", "-qm", "one"], check=True)
    marks = tmp_path / "marks"
    parts = (
        Part("good", command=("sh", "-c", f"echo good >> {marks}; echo all is well")),
        Part("bad", command=("sh", "-c", f"echo bad >> {marks}; echo it broke; exit 3")),
    )
    monkeypatch.setattr(check_all, "PARTS", parts)
    monkeypatch.setattr(check_all, "ROOT", tmp_path)
    monkeypatch.setattr(check_all, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(check_all, "LOGS", tmp_path / "logs")

    assert check_all.main([]) == 1
    assert check_all.main([]) == 1
    # What has passed is not run again, what has failed is.
    assert marks.read_text().split() == ["good", "bad", "bad"]
    printed = capsys.readouterr().out
    assert re.search(r"^good +passed .* all is well$", printed, re.M)
    assert re.search(r"^bad +FAILED .* it broke$", printed, re.M)

    (tmp_path / "file").write_text("2")
    assert check_all.main(["good"]) == 0
    assert "nothing of this counts later" in capsys.readouterr().out
    subprocess.run([*words, "commit", "-qam", "two"], check=True)
    assert check_all.main(["--list"]) == 1
    assert "passed before" in capsys.readouterr().out
    assert check_all.main(["other"]) == 2
