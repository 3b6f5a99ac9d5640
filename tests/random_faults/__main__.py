"""The command of a run of random faults; see docs/testing.md.

python -m tests.random_faults --seed 7 --members 3 --minutes 5
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from tests.random_faults import judgement, own_machine
from tests.random_faults.records import Records
from tests.random_faults.run import Result, as_text, runs
from tests.suite.space import short_folder

FAILED = 1
LEFT_OUT = 77
"""The exit status with which programs of tests say that they cannot run here."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of all chances; drawn if left out")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=5.0, help="of faults; the calm is beside")
    parser.add_argument("--keep", type=Path, help="folder that keeps records and logs in any case")
    parser.add_argument("--judge", type=Path, help="judge again what a run has kept there")
    arguments = parser.parse_args()
    if arguments.judge:
        return _judge_again(arguments.judge)
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(10**6)
        sys.argv += ["--seed", str(arguments.seed)]
    if not own_machine.is_inside():
        return _outside(sys.argv[1:])
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="rf-", dir=short_folder()))
    folder.mkdir(parents=True, exist_ok=True)
    told = f"seed {arguments.seed}, {arguments.members} members, {arguments.minutes} minutes"
    print(f"random faults: {told}; {folder}", flush=True)
    with runs(arguments.members, arguments.seed, folder) as run:
        try:
            run.undergo(60 * arguments.minutes)
        except (Exception, KeyboardInterrupt):
            run.result.wrong["run"] = traceback.format_exc().splitlines()[-30:]
    text = as_text(run.result)
    (folder / "summary.txt").write_text(f"{told}\n{text}\n")
    print(text, flush=True)
    if run.result.wrong:
        print(f"records and logs are in {folder}")
        return FAILED
    if not arguments.keep:
        shutil.rmtree(folder)
    return 0


def _judge_again(folder: Path) -> int:
    """Hold the rules against the records of a run that is over."""
    records = Records(folder).refresh()
    result = Result(judgement.broken_rules(records, judgement.kept(folder)))
    print(as_text(result))
    return FAILED if result.wrong else 0


def _outside(words: list[str]) -> int:
    """Make a machine for the run, and have it run there."""
    if reason := own_machine.why_not():
        print(f"left out: {reason}")
        return LEFT_OUT
    return subprocess.run(own_machine.command("tests.random_faults", words), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
