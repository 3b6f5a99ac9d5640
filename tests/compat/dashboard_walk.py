"""A visitor's way through the pages of RocketMQ's dashboard, call by call.

The calls are those of the pages' own scripts, with the words that the dashboard's controllers take.
All that a page does within the dashboard alone (its settings, its notes) is asked for as well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from tests.compat.dashboards import OLD, Answer, Dashboard
from tests.compat.remoting_group import BROKER_NAME

READER, PRODUCER = "walk-reader", "walk-producer"
"""Groups of ``Walked.java``."""

DEAD_TOPIC = f"%DLQ%{READER}"
RETRY_TOPIC = f"%RETRY%{READER}"
QUEUES = 4
RIGHT = "right"
CHARTS_S = 130.0
"""It collects what its curves show once a minute."""

RATES = ("putTps", "getTransferedTps")
COUNTS = tuple(
    f"msg{what}Total{when}"
    for what in ("Put", "Get")
    for when in ("TodayNow", "TodayMorning", "YesterdayMorning")
)
"""What the page of the cluster shows of each broker."""

HOUR_MS = 3_600_000
PAUSE_S = 0.5


class Life(NamedTuple):
    """What ``Walked.java`` has done.

    Attributes:
        sent: unique id and offset id of each message, the last one of which died.
        producer: client id, as that of the consumer.
    """

    name_servers: str
    sent: Sequence[tuple[str, str]]
    producer: str
    consumer: str


class Call(NamedTuple):
    """One call of a page.

    Attributes:
        settles_s: how long it may take besides a walk's patience.
    """

    page: str
    name: str
    ask: Callable[[], Answer]
    is_right: Callable[[Any], object]
    settles_s: float = 0.0


class Row(NamedTuple):
    """What came of a call, at last."""

    call: Call
    outcome: str
    tries: int
    seconds: float


def _path(name: str) -> str:
    """What a call's name begins with; words behind it tell calls of one path apart."""
    return name.partition(" ")[0]


def judged(call: Call) -> str:
    """``RIGHT``, or what is wrong with the answer."""
    answer = call.ask()
    if answer.refusal:
        return f"refused: {answer.refusal}"
    try:
        is_right = bool(call.is_right(answer.data))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        is_right = False
    return RIGHT if is_right else f"wrong: {str(answer.data)[:1_500]}"


def walked(
    calls: Sequence[Call], expected: Callable[[str], str], patience_s: float
) -> Iterator[Row]:
    """Make one call after the other, each until its outcome matches, or patience is at an end."""
    for call in calls:
        wanted = expected(call.name)
        began = time.monotonic()
        tries = 0
        while True:
            outcome = judged(call)
            tries += 1
            waited = time.monotonic() - began
            if re.match(wanted, outcome) or waited > patience_s + call.settles_s:
                yield Row(call, outcome, tries, waited)
                break
            time.sleep(PAUSE_S)


class Visitor:
    """Who goes through the pages of one dashboard.

    Args:
        name: of what it makes.
        members: how many brokers are up.
    """

    def __init__(self, board: Dashboard, life: Life, name: str, members: int) -> None:
        self._board = board
        self._life = life
        self._members = members
        self._is_old = board.version == OLD
        self._topic, self._group = f"made-{name}", f"group-{name}"
        self._begin = int(time.time() * 1_000) - HOUR_MS
        self._task = ""

    def _get(self, page: str, name: str, is_right: Callable[[Any], object], **more: object) -> Call:
        return Call(page, name, partial(self._board.get, _path(name), more), is_right)

    def _post(
        self,
        page: str,
        name: str,
        is_right: Callable[[Any], object],
        body: object = None,
        **more: object,
    ) -> Call:
        return Call(page, name, partial(self._board.post, _path(name), more, body), is_right)

    def _dead(self) -> tuple[Answer, dict[str, Any]]:
        """The dead letter as the page of its topic shows it, or why not."""
        listed = self._board.get("message/queryMessageByTopic.query", {
            "topic": DEAD_TOPIC, "begin": self._begin, "end": self._begin + 2 * HOUR_MS,
        })  # fmt: skip
        if listed.refusal or len(listed.data) != 1:
            return Answer(listed.refusal or f"dead letters: {listed.data}", None), {}
        return listed, listed.data[0]

    @staticmethod
    def _is_config(told: Any, topic: str, queues: int) -> bool:
        (one,) = told
        return bool(
            (one["topicName"], one["readQueueNums"], one["writeQueueNums"], one["perm"])
            == (topic, queues, queues, 6)
            and one["brokerNameList"] == [BROKER_NAME]
        )

    @staticmethod
    def _is_group(told: Any, group: str, tries: int) -> bool:
        (one,) = told
        config = one["subscriptionGroupConfig"]
        return bool((config["groupName"], config["retryMaxTimes"]) == (group, tries))
