"""Administration of feature levels: what is in force, and the next level put in force."""

from __future__ import annotations

from typing import NamedTuple, cast

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.asked import asked
from ledgermq.client.core.questions import ask
from ledgermq.client.core.requests import Result, Steps
from ledgermq.model.features import MemberLevel
from ledgermq.verbs.answers import integer


class FeatureLevels(NamedTuple):
    """Feature levels, as one node knows them.

    Attributes:
        known: the highest that the node knows.
        members_know: the highest that all members have said that they know.
        needed: what the next command of the log needs where the node does not know it; else 0.
        members: what each member has told the node, by name; empty where nobody knows yet.
    """

    node: str
    version: str
    known: int
    members_know: int
    in_force: int
    needed: int
    members: list[MemberLevel]


class FeatureVerbs:
    """What an admin asks for, and orders."""

    @asked
    def features(self) -> Steps[FeatureLevels]:
        """The levels, as the node that is asked knows them.

        Raises:
            NotLeaderError: no broker answers.
            ProtocolError: its version is from before there were levels.
        """
        answer = yield from ask("features")
        return FeatureLevels(
            str(answer.get("node")),
            str(answer.get("version")),
            integer(answer, "known"),
            integer(answer, "members_know"),
            integer(answer, "in_force"),
            integer(answer, "needed"),
            cast("list[MemberLevel]", answer.get("members", [])),
        )

    @asked
    def enable(self, level: int | None) -> Steps[int]:
        """Put ``level`` in force, the highest one without; gives the level that is in force then.

        Raises:
            ConfigError: not all members know it, or a higher one is in force.
            NoPermissionError: this client is no admin there.
        """
        answer = yield from ask("feature_enable", **({} if level is None else {"level": level}))
        return integer(answer, "in_force")


class FeatureAdmin(FeatureVerbs):
    """The verbs over a broker's connection; one thread at a time may use it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def run(self, steps: Steps[Result]) -> Result:
        """See ``Broker.run``."""
        return self._broker.run(steps)
