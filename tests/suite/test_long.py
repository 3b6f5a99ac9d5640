"""What takes long is marked so, and of what is marked so much is run as there is time for."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite.durations import KEPT, Durations, write
from tests.suite.long import LONG_S
from tests.suite.parsed import parsed
from tests.suite.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]

LONG_ONES = """
import pytest

@pytest.mark.long(but=2)
@pytest.mark.parametrize("number", range(5))
def test_cases(number):
    pass

@pytest.mark.long
def test_ten():
    pass

@pytest.mark.long
def test_thirty():
    pass

@pytest.mark.long
def test_never_measured():
    pass

def test_short():
    pass
"""


def run(tmp_path: Path, *words: str, long: str = "0") -> str:
    """What a run of these says of each test."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  long: takes long\n")
    (tmp_path / "test_file.py").write_text(LONG_ONES)
    kept = {"test_file.py": {"test_cases": 8.0, "test_ten": 10.0, "test_thirty": 30.0}}
    (tmp_path / "durations.json").write_text(json.dumps(kept))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "tests.suite.plugin", "-p", "no:cacheprovider",
         "--kept-durations", "durations.json", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "LEDGERMQ_LONG": long},
        text=True, capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_each_test_that_takes_long_is_marked_so() -> None:
    unmarked = []
    for file, functions in json.loads(KEPT.read_text()).items():
        known = {name: s for name, s in functions.items() if name and s >= LONG_S}
        if not known or not (ROOT / file).exists():
            continue
        text = (ROOT / file).read_text()
        for node in parsed(text).body:
            if isinstance(node, ast.Assign) and "mark.long" in ast.unparse(node):
                break
            if isinstance(node, ast.FunctionDef) and node.name in known:
                marks = " ".join(map(ast.unparse, node.decorator_list))
                if "mark.long" not in marks:
                    unmarked.append(f"{file}::{node.name} takes {known[node.name]} s")

    assert not unmarked, "\n".join([*unmarked, "shorten it, or mark it: docs/testing.md"])


@pytest.mark.slow
def test_long_tests_are_left_out_but_for_first_cases_and_what_is_named(tmp_path: Path) -> None:
    assert "3 passed, 6 skipped" in run(tmp_path)
    assert "9 passed" in run(tmp_path, long="1")
    assert "1 passed" in run(tmp_path, "test_file.py::test_ten")


@pytest.mark.slow
def test_of_long_tests_the_shortest_are_run_that_are_over_in_time(tmp_path: Path) -> None:
    said = run(tmp_path, "-m", "long", "--long-budget-s", "20", long="1")

    assert "4 passed, 2 skipped, 3 deselected" in said
    assert "test_ten PASSED" in said and "test_cases[4] PASSED" in said
    said = run(tmp_path, "-m", "long", "--long-budget-s", "60", long="1")
    assert "test_thirty PASSED" in said and "test_never_measured SKIPPED" in said


def test_what_a_test_took_stays_when_it_is_left_out_and_goes_with_it(tmp_path: Path) -> None:
    kept = tmp_path / "durations.json"
    write({"a.py::test_x": 7.0, "a.py::test_y": 3.0, "a.py::test_z": 2.0}, (), kept)
    write({"a.py::test_x": 0.0, "a.py::test_y": 4.0}, ["a.py::test_x"], kept)

    durations = Durations.kept(kept)
    assert durations.known("a.py::test_x") == 7.0
    assert durations.known("a.py::test_y") == 4.0
    assert durations.known("a.py::test_z") is None
