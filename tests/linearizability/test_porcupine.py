"""Porcupine takes the histories that a log allows, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.linearizability.checker import IS_REQUIRED, Checker, build

pytestmark = [pytest.mark.porcupine, pytest.mark.slow]

Line = Mapping[str, object]
Judge = Callable[..., str]

OK, ILLEGAL, UNKNOWN, NO_HISTORY = range(4)


@pytest.fixture(scope="session")
def porcupine(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    made = build(tmp_path_factory.mktemp("porcupine"))
    if isinstance(made, Checker):
        return made
    if IS_REQUIRED:
        pytest.fail(made)
    pytest.skip(made)


def append(number: int, values: str, start: int, *, queue: int = 0) -> Line:
    return {
        "kind": "append", "process": "p0", "number": number, "queue": queue,
        "values": list(values), "start": start,
    }  # fmt: skip


def acked(number: int, offsets: Sequence[int], end: int) -> Line:
    return {
        "kind": "acked", "process": "p0", "number": number, "offsets": list(offsets), "end": end
    }  # fmt: skip


def told(kind: str, number: int, end: int) -> Line:
    return {"kind": kind, "process": "p0", "number": number, "error": "", "end": end}


def read(
    first: int, values: str, start: int, end: int, *, queue: int = 0, is_end: bool = False
) -> Line:
    return {
        "kind": "read", "process": "c0", "queue": queue, "first": first, "values": list(values),
        "is_end": is_end, "start": start, "end": end,
    }  # fmt: skip


def whole(values: str, *, queue: int = 0) -> Line:
    return read(0, values, 900, 901, queue=queue, is_end=True)


ALLOWED: dict[str, list[Line]] = {
    "one after the other": [
        append(0, "a", 1), acked(0, [0], 2), append(1, "b", 3), acked(1, [1], 4), whole("ab"),
    ],
    "together, in the other order": [
        append(0, "a", 1), append(1, "b", 2), acked(0, [1], 9), acked(1, [0], 10), whole("ba"),
    ],
    "a batch with another one in between": [
        append(0, "abc", 1), append(1, "x", 2), acked(0, [0, 1, 3], 5), acked(1, [2], 6),
        whole("abxc"),
    ],
    "unknown, and it is there": [
        append(0, "a", 1), told("unknown", 0, 2), append(1, "b", 3), acked(1, [0], 4),
        read(0, "b", 5, 6), whole("ba"),
    ],
    "unknown, and it is not there": [
        append(0, "ab", 1), told("unknown", 0, 2), append(1, "c", 3), acked(1, [0], 4), whole("c"),
    ],
    "never told, and half of it is there": [
        append(0, "ab", 1), append(1, "c", 3), acked(1, [1], 4), whole("ac"),
    ],
    "unknown, and nobody has looked there": [
        append(0, "a", 1), told("unknown", 0, 2), append(1, "c", 3), acked(1, [1], 4),
    ],
    "refused, and it is not there": [append(0, "a", 1), told("refused", 0, 2), whole("")],
    "read before it was acknowledged": [append(0, "a", 1), read(0, "a", 2, 3), acked(0, [0], 9)],
    "queues have offsets of their own": [
        append(0, "a", 1), acked(0, [0], 2), append(1, "b", 3, queue=1), acked(1, [0], 4),
        whole("a"), whole("b", queue=1),
    ],
}  # fmt: skip

FORBIDDEN: dict[str, list[Line]] = {
    "an acknowledgement that is lost": [append(0, "a", 1), acked(0, [0], 2), whole("")],
    "an acknowledgement that was overwritten": [
        append(0, "a", 1), acked(0, [0], 2), append(1, "b", 1), told("unknown", 1, 5), whole("b"),
    ],
    "an offset that two share": [
        append(0, "a", 1), append(1, "b", 1), acked(0, [0], 5), acked(1, [0], 6),
    ],
    "an offset that nobody has": [
        append(0, "a", 1), acked(0, [0], 2), append(1, "b", 3), acked(1, [2], 4),
    ],
    "a stale read": [append(0, "a", 1), acked(0, [0], 2), read(0, "", 3, 4, is_end=True)],
    "a read that another one has passed": [
        append(0, "a", 1), read(0, "a", 2, 3), read(0, "", 4, 5, is_end=True), acked(0, [0], 9),
    ],
    "two readers that see other things": [
        append(0, "a", 1), append(1, "b", 1), told("unknown", 0, 2), told("unknown", 1, 2),
        read(0, "a", 3, 4), read(0, "b", 5, 6),
    ],
    "the order of time turned round": [
        append(0, "a", 1), acked(0, [1], 2), append(1, "b", 3), acked(1, [0], 4), whole("ba"),
    ],
    "a value that is there twice": [append(0, "a", 1), told("unknown", 0, 2), whole("aa")],
    "a value that was refused": [append(0, "a", 1), told("refused", 0, 2), whole("a")],
    "a value that was read before it was sent": [
        read(0, "a", 1, 2), append(0, "a", 3), acked(0, [0], 4),
    ],
}  # fmt: skip


@pytest.fixture
def judge(porcupine: Checker, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    def judged(lines: Sequence[Line], timeout: str = "60s") -> tuple[int, str]:
        path = tmp_path / "history.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        answer = porcupine.judge([path], timeout=timeout, drawing=tmp_path / "drawing.html")
        return answer.returncode, answer.stdout + answer.stderr

    return judged


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_log_allows_is_taken(judge: Callable[..., tuple[int, str]], name: str) -> None:
    status, said = judge(ALLOWED[name])

    assert (status, said.count("Illegal"), said.count("Unknown")) == (OK, 0, 0), said
    assert "Ok" in said


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_log_forbids_is_found_and_drawn(
    judge: Callable[..., tuple[int, str]], name: str, tmp_path: Path
) -> None:
    status, said = judge(FORBIDDEN[name])

    assert status == ILLEGAL, said
    assert "queue 0: Illegal" in said
    assert (tmp_path / "drawing.html").stat().st_size > 0


def test_one_bad_queue_among_good_ones_is_named(judge: Callable[..., tuple[int, str]]) -> None:
    lines = [
        append(0, "a", 1), acked(0, [0], 2), append(1, "b", 3, queue=1), acked(1, [4], 4),
    ]  # fmt: skip
    status, said = judge([*lines, whole("a"), whole("b", queue=1)])

    assert status == ILLEGAL
    assert said.splitlines() == [
        "queue 0: Ok, 3 operations",
        "queue 1: Illegal, 3 operations",
    ]


def test_a_verdict_that_takes_too_long_is_no_good_one(
    judge: Callable[..., tuple[int, str]],
) -> None:
    status, said = judge(ALLOWED["one after the other"], timeout="1ns")

    assert (status, said) == (UNKNOWN, "queue 0: Unknown, 5 operations\n")


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="nothing"),
        pytest.param([acked(0, [0], 2)], id="an outcome of nothing"),
        pytest.param([append(0, "ab", 1), acked(0, [0], 2)], id="too few offsets"),
        pytest.param([append(0, "a", 1), told("guessed", 0, 2)], id="no such outcome"),
    ],
)
def test_what_is_no_history_is_no_good_one(
    judge: Callable[..., tuple[int, str]], lines: list[Line]
) -> None:
    assert judge(lines)[0] == NO_HISTORY


def test_thousands_of_appends_by_many_at_once_are_judged_in_time(
    judge: Callable[..., tuple[int, str]],
) -> None:
    lines: list[Line] = []
    values = []
    for number in range(5_000):
        # Twenty are under way at any time, and every seventh is never told of.
        values.append(f"v{number}")
        one = dict(append(number, "", 10 * number))
        lines += [{**one, "values": values[-1:]}]
        if number % 7:
            lines.append(acked(number, [number], 10 * number + 200))
    last = dict(read(0, "", 10**6, 10**6 + 1, is_end=True))
    status, said = judge([*lines, {**last, "values": values}])

    assert (status, said) == (OK, "queue 0: Ok, 10001 operations\n")
