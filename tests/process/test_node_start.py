"""A node that is forked is what an executed one is: words, surroundings, outputs, its end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.process.node_start import SOURCES, ForkedProcess, Process, start_node
from tests.suite.patience import PATIENCE_S

SHOWS = """
import json, os, sys
print(__name__, json.dumps(sys.argv), os.getcwd(), sys.path[0])
# The C locale may have been made a better one, which the environment says then.
print([name for name in sorted(os.environ) if not name.startswith("LC_")])
print(os.environ["OWN"], sys.stdin.read() == "", file=sys.stderr)
for own in ("SigIgn:", "Umask:"):
    print(own, open("/proc/self/status").read().partition(own)[2].split()[0])
sys.exit(7)
"""


def started(tmp_path: Path, program: str, *words: str, **variables: str) -> tuple[Process, Path]:
    """The program as a script, with ``words``; and what it prints."""
    script, log = tmp_path / "program.py", tmp_path / "log"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), **variables}
    environment.pop("LEDGERMQ_EXEC_NODES", None)
    with log.open("wb") as output:
        process = start_node([str(script), *words], environment=environment, output=output.fileno())
    return process, log


@pytest.mark.slow
def test_what_is_forked_sees_what_an_executed_program_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.delenv("LEDGERMQ_EXEC_NODES", raising=False)
    start_node(["-c", ""], environment=dict(os.environ), output=2).wait(PATIENCE_S)
    before = os.umask(0o027)
    request.addfinalizer(lambda: os.umask(before))
    forked, log = started(tmp_path, SHOWS, "one", "two words", OWN="mine")
    assert isinstance(forked, ForkedProcess)
    assert forked.wait(PATIENCE_S) == 7
    seen = log.read_text()

    monkeypatch.setenv("LEDGERMQ_EXEC_NODES", "1")
    executed, log = started(tmp_path, SHOWS, "one", "two words", OWN="mine")
    assert isinstance(executed, subprocess.Popen)
    assert executed.wait(PATIENCE_S) == 7

    assert sorted(seen.split("\n")) == sorted(log.read_text().split("\n"))
    assert "two words" in seen and "Umask: 0027" in seen


@pytest.mark.slow
def test_who_is_killed_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEDGERMQ_EXEC_NODES", raising=False)
    process, _ = started(tmp_path, "import signal\nsignal.pause()\n")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)

    process.send_signal(signal.SIGKILL)

    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    assert process.poll() == process.returncode == -signal.SIGKILL
    process.kill()


@pytest.mark.slow
def test_what_an_interpreter_reads_at_its_start_needs_one_of_its_own(tmp_path: Path) -> None:
    program = "import sys\nprint(sys.flags.optimize)\n"

    process, log = started(tmp_path, program, PYTHONOPTIMIZE="1")

    assert isinstance(process, subprocess.Popen)
    assert process.wait(PATIENCE_S) == 0
    assert log.read_text() == "1\n"


ENDS = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
ready = threading.Event()
def work():
    ready.wait()
    sys.stdout.write("thread\\n")
def last():
    sys.stdout.write("at exit\\n")
atexit.register(last)
threading.Thread(target=work).start()
ThreadPoolExecutor(1).submit(ready.set)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "status"),
    [("", 0), ("sys.exit(5)", 5), ("sys.exit('why')", 1), ("raise KeyError('why')", 1)],
)
def test_a_forked_program_ends_as_an_executed_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, status: int
) -> None:
    told = []
    for executed in ("0", "1"):
        monkeypatch.setenv("LEDGERMQ_EXEC_NODES", executed)
        (tmp_path / executed).mkdir()
        script, log = tmp_path / executed / "program.py", tmp_path / executed / "log"
        script.write_text(ENDS + end)
        with log.open("wb") as output:
            process = start_node(
                [str(script)], environment=dict(os.environ), output=output.fileno()
            )
        assert process.wait(PATIENCE_S) == status
        lines = log.read_text().splitlines()
        # Where an error came by is not the same.
        told.append(sorted(line for line in lines if not line.startswith(" ")))

    assert {"thread", "at exit"} <= set(told[0])
    assert told[0] == told[1]
