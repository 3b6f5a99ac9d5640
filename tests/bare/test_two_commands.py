"""README's two commands, typed in a Debian or Ubuntu that has nothing yet."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from tests.bare.bare_root import HOME, USER, BareRoot, Suite, processor_s
from tests.bare.conftest import SHORT
from tests.boot.root import CHECKOUT

pytestmark = [pytest.mark.bare, pytest.mark.slow]

RESULTS = CHECKOUT / "build" / "bare-results"
"""What is printed, while it is, and how long it took, to be looked at behind the tests."""

PACKAGES = "dpkg-query --show --showformat . | wc --chars"
IS_LONG = os.environ.get("LEDGERMQ_BARE_LONG") == "1"
LONG = pytest.mark.skipif(not IS_LONG, reason="only with LEDGERMQ_BARE_LONG=1")


def is_whole(suite: Suite) -> bool:
    """Whether all tests are run in it, and not only the quick ones: half an hour each."""
    return suite.name == SHORT or os.environ.get("LEDGERMQ_BARE_ALL") == "1"


def test_a_demo_runs_to_its_end_and_installs_what_it_needs(
    bare_root: BareRoot, suite: Suite
) -> None:
    before = int(bare_root.run(PACKAGES))
    began, spent_s = time.monotonic(), processor_s()
    told = bare_root.run("make demo", timeout_s=1_800, log=log_of(suite, "demo"))
    seconds, spent_s = time.monotonic() - began, processor_s() - spent_s

    after = int(bare_root.run(PACKAGES))
    size = bare_root.run("du --summarize --block-size=1M .venv").split()[0]
    python = bare_root.run(".venv/bin/python --version").strip()
    figures = f"seconds {seconds:.0f}, processor {spent_s:.0f}"
    note(suite, "make demo", f"{python}: {figures}, packages {after - before}, venv mb {size}")
    assert told.count("\nDone") == 2, told
    assert "plain Python" not in told, told
    assert python.startswith(f"Python {suite.python}."), python
    beside = "cd ..\nledgermq/.venv/bin/python -c 'import ledgermq.client; print(\"imported\")'"
    assert bare_root.run(beside) == "imported\n"


@LONG
def test_all_tests_that_can_run_pass_and_the_others_say_why_they_cannot(
    bare_root: BareRoot, suite: Suite
) -> None:
    """Behind the demo, whose packages are there, and by a user who may not install any."""
    bare_root.run(f"chown --recursive {USER}: {HOME}/ledgermq")
    command = "test" if is_whole(suite) else "test-quick"
    began = time.monotonic()
    told = bare_root.run(
        f"make {command} || touch build/failed", user=USER, timeout_s=14_400,
        log=log_of(suite, command),
    )  # fmt: skip
    check_all_passed(bare_root, suite, command, told, time.monotonic() - began)
    assert "no Java: PySpark is left out" in told
    assert re.search(r"not installed: pyarrow, pyspark", told)


@LONG
def test_sparks_tests_pass_once_java_is_there(bare_root: BareRoot, suite: Suite) -> None:
    if not is_whole(suite):
        pytest.skip("only with LEDGERMQ_BARE_ALL=1")
    bare_root.run(
        "apt-get update && apt-get install --yes --no-install-recommends default-jre-headless"
        f" && packaging/bootstrap.sh && chown --recursive {USER}: {HOME}/ledgermq",
        timeout_s=1_800,
    )
    began = time.monotonic()
    told = bare_root.run(
        "LEDGERMQ_SPARK=1 .venv/bin/python -m pytest -q -n auto"
        " -m 'not oracle' tests/spark || touch build/failed",
        user=USER,
        timeout_s=7_200,
        log=log_of(suite, "spark"),
    )
    check_all_passed(bare_root, suite, "spark", told, time.monotonic() - began)


def check_all_passed(
    bare_root: BareRoot, suite: Suite, command: str, told: str, seconds: float
) -> None:
    """What pytest has told is noted, and none of its tests has failed."""
    last = [line for line in told.splitlines() if re.search(r"\d+ passed", line)][-1]
    counts = ", ".join(f"{word} {number}" for number, word in re.findall(r"(\d+) (\w+)", last))
    python = bare_root.run(".venv/bin/python --version").strip()
    what = "tests/spark" if command == "spark" else f"make {command}"
    note(suite, what, f"{python}: seconds {seconds:.0f}, {counts}", log=command)
    assert not re.search("failed|error", last), told
    assert not bare_root.run("ls build/failed 2>/dev/null || true"), told


def log_of(suite: Suite, command: str) -> Path:
    """What is printed by a command, in a file that is there behind the tests."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    return RESULTS / f"{suite.name}-{command}.txt"


def note(suite: Suite, what: str, figures: str, *, log: str = "demo") -> None:
    """For ``bench.told_proofs``."""
    load = os.getloadavg()[2]
    with log_of(suite, log).open("a") as file:
        file.write(f"\nRESULT {what}, {suite.title}, {figures}, load {load:.1f}\n")
