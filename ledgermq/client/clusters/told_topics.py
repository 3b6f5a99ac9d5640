"""Rows of topics over groups, as a node of any group tells a client of those that it uses."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.client.core.known_groups import GROUPS_TOLD_MAX
from ledgermq.client.core.requests import Request, call_request, call_result
from ledgermq.model.errors import ProtocolError
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.verbs.answers import Fields, integer, rows, text

OPEN = "open"
"""The phase in which a group takes messages; in others, and those of a newer version, it does not.
"""


ROW_LOOK_S = 10.0
"""A row that is used is asked for again so often; who has it is answered by its number alone."""

ROW_ANSWER_S = 5.0

ROW_GOOD_S = 20.0
"""For so long after it was confirmed a key goes by a row: `topic spread --strict` counts on it."""


class ToldTopic(NamedTuple):
    """What the cluster's rows say of a topic.

    Attributes:
        number: of the last change of the rows that the node had.
        queues: that take messages, by the name of the group; none: the topic is over no groups.
        fails_over: a message may be sent to another group when one has not stored it in time.
    """

    number: int
    queues: dict[str, int]
    fails_over: bool


OVER_NONE = ToldTopic(0, {}, False)
"""What is known of a topic that no row is about."""


class AskedTopic:
    """The row of a topic, while it is used.

    Attributes:
        told: what was said last; None: nothing yet.
        is_old: it was said before a pause, and counts no more until nobody says anything else.
        good_until: keys go by it until then.
        look_at: when it is asked for again.
    """

    def __init__(self) -> None:
        self.told: ToldTopic | None = None
        self.is_old = False
        self.look_at = 0.0
        self.good_until = 0.0

    def ask_anew(self) -> None:
        """Ask for it at once."""
        self.is_old, self.look_at = True, 0.0

    def request(self, topic: str, *, deadline: float) -> Request:
        """The question for the row; who has it at the number of now is not sent it again."""
        arguments: dict[str, object] = {"topic": topic}
        if self.told is not None and self.told.number:
            arguments["known"] = self.told.number
        return call_request("cluster_topic_groups", arguments, deadline=deadline)

    def take(self, request: Request, *, asked_at: float) -> bool:
        """Note the answer; false: the node has no rows yet.

        Raises:
            LedgerError: there is none, or it is not one.
        """
        answer = call_result(request)
        number = integer(answer, "number")
        if not number:
            return False
        if answer.get("groups") is not None:
            told = rows(answer, "groups", _share)
            if len(told) > GROUPS_TOLD_MAX:
                raise ProtocolError(
                    "too many groups of a topic", groups=len(told), limit=GROUPS_TOLD_MAX
                )
            fails_over = answer.get("fails_over") is True and answer.get("order") is not True
            self.told = ToldTopic(number, dict(told), fails_over)
        self.is_old = False
        self.good_until = asked_at + ROW_GOOD_S
        return True


def _share(row: Fields) -> tuple[str, int]:
    queues = integer(row, "queues")
    if not 0 <= queues <= QUEUE_ID_MAX:
        raise ProtocolError("number of queues out of range", queues=queues, limit=QUEUE_ID_MAX)
    return text(row, "group"), queues if text(row, "phase") == OPEN else 0
