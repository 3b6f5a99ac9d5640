"""Small runs of pytest with workers and the suite's plugin: each ends, and says what there was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.suite import compiled, skipped, space
from tests.suite.durations import Durations, write
from tests.suite.order import DIVIDED_FROM_S, UNKNOWN_SLOW_S, Units
from tests.suite.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    # Half of what a small run costs is to import Hypothesis.
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}

DIES_IN_A_TEST = """
import os, signal, pytest

@pytest.mark.parametrize("number", range(40))
def test_one(number):
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
"""

DIES_BETWEEN_TESTS = """
import os, signal, pytest

@pytest.fixture(scope="session", autouse=True)
def dies_at_the_end():
    yield
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.parametrize("number", range(4))
def test_one(number):
    pass
"""

STANDS_STILL = """
import pytest, threading

@pytest.mark.parametrize("number", range(4))
def test_one(number):
    nobody_sets_it = threading.Event()
    nobody_sets_it.wait(0 if number != 1 else None)
"""

KEEPS_ITS_INTERPRETER = """
import ctypes

def test_stands_in_c():
    ctypes.PyDLL(None).pause()
"""

WORKS_ON = """
import pytest, subprocess, sys

@pytest.mark.parametrize("number", range(4))
def test_one(number):
    if number == 1:
        subprocess.run([sys.executable, "-c", "while True: pass", __file__])
"""

TWO_AT_ONCE = """
import os, signal, pytest

@pytest.mark.parametrize("number", range(40))
def test_one(number):
    if number % 10 == 7:
        os.kill(os.getpid(), signal.SIGKILL)
"""

FAILS_AND_WAITS = """
import os

def test_fails():
    assert False

def test_waits():
    with open(os.environ["READ_FROM"], "rb") as pipe:
        pipe.read()
"""

STARTS_WHAT_WORKS = """
import subprocess, sys, time

def test_other():
    pass

def test_starts():
    working = "import time\\nwhile time.process_time() < 0.5: pass\\nprint(flush=True)"
    # It has no parent any more when it works, and nobody waits for it.
    starts = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {working!r}])"
    with subprocess.Popen([sys.executable, "-c", starts], stdout=subprocess.PIPE) as one:
        assert one.stdout.readline() == b"\\n"
        one.stdout.close()
"""

LEAVES_OUT = """
import pytest

@pytest.mark.parametrize("number", range(5))
def test_one(number):
    pytest.skip("needs /dev/fuse")

@pytest.mark.skip(reason="needs root")
def test_other():
    pass

def test_runs():
    pass
"""


def run(
    tmp_path: Path, content: str, *options: str, workers: Sequence[str] = ("-n", "3")
) -> subprocess.CompletedProcess[str]:
    """Three workers run four files of that ``content``."""
    return subprocess.run(
        [*words(tmp_path, content, workers), *options],
        cwd=tmp_path / "inner", env=ENVIRONMENT, text=True,
        capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def words(tmp_path: Path, content: str, workers: Sequence[str] = ("-n", "3")) -> list[str]:
    """What runs them, in the folder ``inner``."""
    with_xdist = ("-p", "xdist.plugin", *workers) if workers else ()
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    for number in range(4):
        (folder / f"test_file{number}.py").write_text(content if number == 0 else LEAVES_OUT)
    return [
        sys.executable, "-m", "pytest", "-q", *with_xdist, "-p", "tests.suite.plugin",
        "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "temporary"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_test_in_which_its_worker_dies_fails_alone(tmp_path: Path, workers: str) -> None:
    ended = run(tmp_path, DIES_IN_A_TEST, workers=("-n", workers))

    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    assert "DIED IN  test_file0.py::test_one[7]" in ended.stdout
    assert "crashed while running 'test_file0.py::test_one[7]'" in ended.stdout
    assert "1 failed, 42 passed, 18 skipped" in ended.stdout
    assert "worker gw" in ended.stdout and "did not run" not in ended.stdout


@pytest.mark.slow
def test_workers_that_die_one_after_the_other_cost_their_own_tests(tmp_path: Path) -> None:
    ended = run(tmp_path, TWO_AT_ONCE)

    assert "4 failed, 39 passed, 18 skipped" in ended.stdout, ended.stdout + ended.stderr
    assert ended.stdout.count("DIED IN") == 4


@pytest.mark.slow
def test_a_run_that_loses_too_many_workers_ends_with_an_error(tmp_path: Path) -> None:
    ended = run(tmp_path, TWO_AT_ONCE, "--max-worker-restart=1")

    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    assert " tests did not run" in ended.stdout


@pytest.mark.slow
def test_a_run_whose_worker_dies_between_tests_ends_with_an_error(tmp_path: Path) -> None:
    ended = run(tmp_path, DIES_BETWEEN_TESTS)

    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    assert " died" in ended.stdout


@pytest.mark.slow
def test_a_test_that_stands_still_fails_with_its_stack_and_the_others_go_on(tmp_path: Path) -> None:
    ended = run(tmp_path, STANDS_STILL, "--limit-wall-s=1")

    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    assert "crashed while running 'test_file0.py::test_one[1]'" in ended.stdout
    assert "s of the clock, 1 allowed" in ended.stdout
    assert "in test_one" in ended.stdout
    assert "1 failed, 6 passed, 18 skipped" in ended.stdout


@pytest.mark.slow
def test_processor_time_of_what_a_test_has_started_is_its_own(tmp_path: Path) -> None:
    ended = run(tmp_path, WORKS_ON, "--limit-processor-s=1", "--limit-wall-s=600")

    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    assert "test_file0.py::test_one[1] took" in ended.stdout
    assert "s of processor time, 1 allowed" in ended.stdout
    assert "-c while True: pass" in ended.stdout
    assert "in test_one" in ended.stdout
    assert "1 failed, 6 passed, 18 skipped" in ended.stdout
    # Nothing of it works on when its worker has ended.
    working = str(tmp_path / "inner" / "test_file0.py")
    assert not [one for one in psutil.process_iter() if working in _words(one)]


@pytest.mark.slow
def test_a_test_that_stands_in_c_and_keeps_the_interpreter_has_its_stack_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGERMQ_LIMIT_BEHIND_S", "1")
    ended = run(tmp_path, KEEPS_ITS_INTERPRETER, "--limit-wall-s=1")

    assert "crashed while running 'test_file0.py::test_stands_in_c'" in ended.stdout
    assert "in test_stands_in_c" in ended.stdout
    assert "1 failed, 3 passed, 18 skipped" in ended.stdout, ended.stdout + ended.stderr


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.slow
def test_a_pipe_has_the_name_of_a_failed_test_while_others_run(tmp_path: Path) -> None:
    waits = tmp_path / "waits"
    os.mkfifo(waits)
    with subprocess.Popen(
        words(tmp_path, FAILS_AND_WAITS),
        cwd=tmp_path / "inner",
        env={**ENVIRONMENT, "READ_FROM": str(waits)},
        stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        # The other test ends when this has been read, and not before.
        read = next(line for line in running.stdout if line.startswith("FAILED"))
        waits.open("wb").close()
        rest = running.stdout.read()

    assert read == "FAILED  test_file0.py::test_fails\n"
    assert "1 failed, 4 passed" in rest


@pytest.mark.slow
def test_what_is_left_out_is_said_with_its_reason(tmp_path: Path) -> None:
    ended = run(tmp_path, LEAVES_OUT)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "20  needs /dev/fuse\n" in ended.stdout
    assert "4  needs root\n" in ended.stdout
    assert "test_file3.py (5)" in ended.stdout
    assert "4 passed, 24 skipped" in ended.stdout


@pytest.mark.slow
def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    ended = run(tmp_path, LEAVES_OUT, "nowhere.py")

    assert ended.returncode == pytest.ExitCode.USAGE_ERROR, ended.stdout + ended.stderr
    assert "file or directory not found: nowhere.py" in ended.stdout + ended.stderr
    assert "INTERNALERROR" not in ended.stdout + ended.stderr


@pytest.mark.slow
def test_tests_run_without_workers_and_without_what_makes_them(tmp_path: Path) -> None:
    ended = run(tmp_path, LEAVES_OUT, workers=())

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed, 24 skipped" in ended.stdout


def test_a_reason_is_told_once_with_the_files_that_gave_it() -> None:
    class Report:
        def __init__(self, nodeid: str, reason: str) -> None:
            self.nodeid = nodeid
            self.longrepr = ("file", 1, f"Skipped: {reason}")

    reports = [Report(f"tests/test_{number}.py::test_a", "no Java") for number in range(8)]
    found = skipped.by_reason([*reports, Report("tests/test_0.py::test_b", "no Go")])

    assert list(skipped.lines(found)) == [
        "    8  no Java",
        "       " + ", ".join(f"tests/test_{n}.py (1)" for n in range(6)) + ", 2 more files",
        "    1  no Go",
        "       tests/test_0.py (1)",
    ]


def test_durations_are_kept_by_function_and_short_ones_together(tmp_path: Path) -> None:
    kept = tmp_path / "durations.json"
    write({"a.py::test_x[1]": 0.4, "a.py::test_x[2]": 0.4, "a.py::test_y": 0.3}, (), kept)

    durations = Durations.kept(kept)

    assert durations.of_function("a.py::test_x[2]") == 0.8
    assert durations.of_file("a.py") == pytest.approx(1.1)
    assert durations.of_file("new.py") == 0


def test_long_files_are_divided_unless_their_tests_share_a_fixture(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("")
    (tmp_path / "sharing.py").write_text('@pytest.fixture(scope="module")')
    (tmp_path / "kit.py").write_text('import os\n\nNODE = {"groups": {}}\n')
    (tmp_path / "cached.py").write_text("import os\n\n@cache\ndef trees() -> None: ...\n")
    (tmp_path / "short.py").write_text("")
    long = {"test_long": 30.0}
    seconds = {"alone.py": long, "sharing.py": long, "kit.py": long, "short.py": {"test_a": 0.6}}
    seconds["cached.py"] = long
    spark = tmp_path / "tests" / "spark"
    spark.mkdir(parents=True)
    (spark / "test_sink.py").write_text("def test_long(spark: SparkSession) -> None: ...")
    (spark / "test_cluster.py").write_text("")
    cluster = "tests/spark/test_cluster.py"
    of_spark = {"tests/spark/test_sink.py": long, cluster: long}
    units = Units(Durations({**seconds, **of_spark}), tmp_path)

    assert units.unit("alone.py::test_long[1]") == "alone.py::test_long[1]"
    assert units.unit("sharing.py::test_long[1]") == "sharing.py"
    assert units.unit("kit.py::test_long[1]") == "kit.py"
    assert units.unit("cached.py::test_long[1]") == "cached.py"
    assert units.unit("short.py::test_a") == "short.py"
    assert units.unit("tests/spark/test_sink.py::test_long") == "tests/spark/"
    assert units.unit(f"{cluster}::test_long") == f"{cluster}::test_long"
    assert units.seconds("sharing.py") == units.seconds("tests/spark/") == 30.0


def test_a_file_that_was_never_measured_is_taken_for_what_it_says_of_itself(tmp_path: Path) -> None:
    tests = "\n\n".join(f"def test_{number}() -> None: ..." for number in range(6))
    (tmp_path / "new_slow.py").write_text(f"pytestmark = pytest.mark.slow\n\n{tests}\n")
    (tmp_path / "new.py").write_text(f"import os\n\n{tests}\n")
    units = Units(Durations({}), tmp_path)

    assert units.seconds("new_slow.py") == 6 * UNKNOWN_SLOW_S > DIVIDED_FROM_S
    assert units.unit("new_slow.py::test_1") == "new_slow.py::test_1"
    assert units.seconds("new_slow.py::test_1") == UNKNOWN_SLOW_S
    assert units.seconds("new.py") == units.seconds("gone.py") == 0
    assert units.unit("new.py::test_1") == "new.py"


@pytest.mark.slow
def test_the_whole_suite_does_not_begin_in_a_folder_of_too_few_bytes(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=900m tmpfs "$0" && exec "$@"'
    own = ["unshare", "--mount", "sh", "-c", mount, str(tmp_path)]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounts of its own need root")
    ended = subprocess.run(
        [*own, sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, text=True,
        capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip

    assert ended.returncode == pytest.ExitCode.USAGE_ERROR, ended.stdout + ended.stderr
    assert f"{tmp_path} has 900 MiB free, and the tests want 1,536 MiB" in ended.stderr
    assert "passed" not in ended.stdout


def test_a_folder_without_room_is_named_with_what_is_free_and_wanted() -> None:
    said = space.complaint(Path("/tmp"), 300 << 20, 2_000 << 20)

    assert said is not None
    assert all(part in said for part in ("/tmp ", "300 MiB", "2,000 MiB", "TMPDIR=")), said
    assert space.complaint(Path("/tmp"), 2_000 << 20, 2_000 << 20) is None


def test_a_test_file_is_stale_until_it_has_been_collected_and_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(compiled, "STALE_MIN", 1)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    files = [tmp_path / f"test_file{number}.py" for number in range(4)]
    for file in files:
        file.write_text("def test_one():\n    assert True\n")

    assert compiled.stale(tmp_path) == files
    compiled.compile_all(files, tmp_path)
    assert compiled.stale(tmp_path) == []
    later = files[2].stat().st_mtime + 10
    os.utime(files[2], (later, later))
    assert compiled.stale(tmp_path) == [files[2]]


@pytest.mark.slow
def test_the_processor_time_of_each_test_is_told_with_all_that_it_has_started(
    tmp_path: Path,
) -> None:
    file = tmp_path / "times.json"
    ended = run(tmp_path, STARTS_WHAT_WORKS, "--processor-times", str(file))
    if "control groups are for root" in ended.stderr:
        pytest.skip("control groups cannot be made here")

    used = json.loads(file.read_text())
    assert ended.returncode == 0, ended.stdout
    assert next(iter(used)) == "test_file0.py::test_starts"
    assert used["test_file0.py::test_starts"] >= 0.5 > used["test_file0.py::test_other"]
