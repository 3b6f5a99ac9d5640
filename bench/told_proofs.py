"""What kills, power failures, bare roots and runs of all tests have shown, as the tests print it.

No benchmark: it reads logs of ``tests/acknowledged``, ``tests/power``, ``tests/bare``, of one test
that ran many times, or of all tests, and writes ``bench/results/NAME.json``. ``bench/README.md``
has the commands.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bench.machine import spread, write

_DEATHS = re.compile(r"(\d+) deaths, (\d+) findings")
_VERB = re.compile(r"  (.{36}) kills +(\d+)  acknowledged +(\d+)  unknown +(\d+)")
_KIND = re.compile(r"  (.{36}) kills of a verb +(\d+)")
_SEED = re.compile(r"seed (\d+)|LEDGERMQ_POWER_SEED=(\d+)")
_RESULT = re.compile(r"\.*RESULT ([^:]+): (.*)")
_COUNT = re.compile(r"([a-z][a-z ]*)[ =](\d+)")
_SUMMARY = re.compile(r"(\d+) (passed|failed)")
_RUN = re.compile(r"(?:(\d+) failed, )?(\d+) passed(?:, (\d+) skipped)?.* in (\d+\.\d+)s")
_LOAD = re.compile(r"\bload (\d+\.\d+)")

Figures = dict[str, object]

SUITE_MIN = 5_000
"""Tests that a run of all of them has at least."""


def of_kills(lines: Iterable[str]) -> Figures:
    """Sums of the reports of ``tests/acknowledged``; a death is one for each verb called before."""
    deaths = findings = 0
    verbs: dict[str, Counter[str]] = {}
    kinds: Counter[str] = Counter()
    for line in lines:
        if found := _DEATHS.match(line):
            deaths, findings = deaths + int(found[1]), findings + int(found[2])
        elif found := _VERB.match(line):
            names = ("deaths", "acknowledged", "unknown")
            counts = dict(zip(names, map(int, found.groups()[1:]), strict=True))
            verbs.setdefault(found[1].strip(), Counter()).update(counts)
        elif found := _KIND.match(line):
            kinds[found[1].strip()] += int(found[2])
    return {
        "deaths": deaths,
        "forgotten_or_doubled": findings,
        "deaths_of_the_rarest_verb": min((verb["deaths"] for verb in verbs.values()), default=0),
        "deaths_by_kind_of_store": dict(sorted(kinds.items())),
        "verbs": {verb: dict(counts) for verb, counts in sorted(verbs.items())},
    }


def of_power(lines: Iterable[str]) -> Figures:
    """Sums of the results of ``tests/power``, by kind; a run that did not end well has none."""
    kinds: dict[str, Counter[str]] = {}
    failed = 0
    for line in lines:
        failed += sum(int(number) for number, word in _SUMMARY.findall(line) if word == "failed")
        if found := _RESULT.match(line):
            counts = {name.strip(): int(number) for name, number in _COUNT.findall(found[2])}
            kinds.setdefault(found[1], Counter()).update({**counts, "runs": 1})
    return {
        "runs_that_failed": failed,
        "kinds": {kind: dict(counts) for kind, counts in sorted(kinds.items())},
    }


def of_repeats(lines: Iterable[str]) -> Figures:
    """How often a test passed and failed."""
    found = Counter[str]()
    for line in lines:
        found.update({word: int(number) for number, word in _SUMMARY.findall(line)})
    return {"passed": found["passed"], "failed": found["failed"]}


def of_commands(lines: Iterable[str]) -> Figures:
    """What README's two commands took in each bare root; of several runs the last one."""
    commands: dict[str, dict[str, int]] = {}
    for line in lines:
        if found := _RESULT.match(line):
            counts = _COUNT.findall(found[2])
            commands[found[1]] = {name.strip(): int(number) for name, number in counts}
    return {"commands": commands}


def of_suite(lines: Iterable[str]) -> Figures:
    """What each run of all tests found, and took; runs of a part of them are passed over."""
    runs = []
    second_tries = 0
    for line in lines:
        second_tries += line.startswith("ci:   ")
        found = _RUN.search(line)
        if found and int(found[2]) >= SUITE_MIN:
            failed, passed, skipped = (int(count or 0) for count in found.groups()[:3])
            counts = {"passed": passed, "failed": failed, "skipped": skipped}
            runs.append({**counts, "seconds": float(found[4])})
    return {"runs": runs, "second_tries": second_tries}


READERS = {
    "commands": of_commands,
    "kills": of_kills,
    "power": of_power,
    "repeats": of_repeats,
    "suite": of_suite,
}


def main() -> None:
    """Read logs, write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("of", choices=READERS)
    parser.add_argument("name", help="of the file in bench/results, without .json")
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--command", required=True, help="what was run, to be said again")
    parser.add_argument("--commits", required=True, help="what it was run on")
    parser.add_argument("--note", default="", help="what else there is to know")
    asked = parser.parse_args()
    lines = [line for log in asked.logs for line in log.read_text().splitlines()]
    seeds = [int(found[1] or found[2]) for line in lines if (found := _SEED.match(line.strip(".")))]
    loads = [float(found[1]) for line in lines if (found := _LOAD.search(line))]
    figures: Figures = {"command": asked.command, "commits": asked.commits}
    if asked.note:
        figures["note"] = asked.note
    if loads:
        figures["load_of_the_machine"] = spread(loads)
    write(asked.name, {**figures, **READERS[asked.of](lines), "seeds": seeds})


if __name__ == "__main__":
    main()
