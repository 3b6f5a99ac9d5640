"""``packaging/suites.txt``: what a package is called where, and what it is made of."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.bare.bare_root import SUITES

ROOT = Path(__file__).parents[2]


class Row(NamedTuple):
    """A line of the table."""

    name: str
    suffix: str
    python: str
    architectures: str
    title: str


ROWS = [
    Row(*line.split(maxsplit=4))
    for line in (ROOT / "packaging" / "suites.txt").read_text().splitlines()
    if not line.startswith("#")
]
OF_NO_SUITE = Row("", "", "", "", "")


@pytest.mark.skipif(not shutil.which("dpkg"), reason="compares versions with dpkg")
def test_an_upgrade_of_a_host_is_an_upgrade_of_its_package() -> None:
    # From suite to suite of one release, above what had no revision, and below a package that has
    # no suite, as one of Debian itself would be.
    versions = ["0.1.0", *(f"0.2.0-1{row.suffix}" for row in [*ROWS, OF_NO_SUITE])]

    for lower, higher in pairwise(versions):
        subprocess.run(["dpkg", "--compare-versions", lower, "lt", higher], check=True)


def test_a_package_is_for_the_python_that_its_suite_has() -> None:
    known = {suite.name: (suite.title, suite.python) for suite in SUITES}

    assert {row.name: (row.title, row.python) for row in ROWS}.items() <= known.items()


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_pip_is_asked_for_the_wheels_of_a_suite_and_an_architecture(row: Row) -> None:
    for architecture in row.architectures.split(","):
        words = subprocess.run(
            ["bash", "-c", f". packaging/suites.sh && pip_target {row.name} {architecture}"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout.split()  # fmt: skip
        machine = {"amd64": "x86_64", "arm64": "aarch64"}[architecture]

        assert words[words.index("--python-version") + 1] == row.python
        assert f"manylinux_2_28_{machine}" in words


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--suite", "noble", "--arch", "arm64"], "LEFT OUT: noble arm64"),
        (["--arch", "riscv64"], "not one of amd64 arm64: riscv64"),
        (["--suite", "sid"], "not one of packaging/suites.txt: sid"),
    ],
)
def test_what_no_package_is_built_for_is_named(words: list[str], reason: str) -> None:
    done = subprocess.run(
        [ROOT / "packaging" / "make-deb.sh", *words], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert reason in done.stderr
