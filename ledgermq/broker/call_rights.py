"""Admission of a call by its verb's row, and a line in the log for each act of an admin."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.broker.calls import AnsweredVerb, Arguments
from ledgermq.model.errors import LedgerError
from ledgermq.model.events import Event
from ledgermq.sessions.client_rights import ClientRights
from ledgermq.sessions.refusal_lines import RefusalLines
from ledgermq.verbs.needs import VerbNeed

logger = logging.getLogger("ledgermq.audit")

_refused = RefusalLines()

SUBJECTS = (
    "user", "owner", "topic", "group", "queue", "id", "archive", "namespace", "key", "cluster",
    "subject",
)  # fmt: skip
"""Arguments that say on what a call acts; no other ever comes into the log."""

SUBJECT_SIZE_MAX = 200


class Act(NamedTuple):
    """An admin's call that has no outcome yet."""

    who: str
    verb: str
    subject: str


def check_call(
    rights: ClientRights, verbs: Mapping[str, AnsweredVerb], name: str, arguments: Arguments
) -> Act | None:
    """Refuse a call that the client may not make; what is to be told of it once it has an outcome.

    Raises:
        NoPermissionError: names client, right, and topic or group.
    """
    verb = verbs.get(name)
    if verb is None:
        # It is refused because nobody answers it; whoever may know is told so.
        rights.check_listed(name)
        return None
    needs = verb.needs
    if rights.only_looks and needs.is_look:
        return None
    if needs.need is VerbNeed.ADMIN:
        act = act_of(rights.who.name, name, arguments)
        try:
            rights.check_admin(name)
        except LedgerError as error:
            audit(act, error)
            raise
        return act if needs.is_audited else None
    if needs.need is VerbNeed.ADMIN_ANYWHERE:
        rights.check_listed(name)
        return None
    rights.check_known(name)
    topic, group = arguments.get("topic"), arguments.get("group")
    if needs.topic is not None and isinstance(topic, str):
        creates = needs.topic_to_create is not None and arguments.get("create") is True
        right = needs.topic_to_create if creates else needs.topic
        rights.check_topic(topic, right or needs.topic)
    if needs.is_of_group and isinstance(group, str):
        rights.check_group(group)
    return None


def act_of(who: str, verb: str, arguments: Arguments) -> Act:
    """An admin's call that is about to be made."""
    return Act(who, verb, _subject(arguments))


def audit(act: Act, outcome: LedgerError | None) -> None:
    """One line about an admin's act: who, what, on what, and what came of it.

    All that is done has one. Of what is refused there are a few for whoever asks, and the number of
    those that have none: otherwise who may nothing could have the lines of others rotated away.
    """
    if outcome is not None:
        what = f"{act.verb} {act.subject}"
        if not _refused.is_news(act.who, what, time.monotonic()):
            return
    fields = {
        "who": act.who,
        "act": act.verb,
        "on": act.subject,
        "outcome": "done" if outcome is None else "refused",
    }
    if outcome is not None:
        fields["reason"] = str(outcome)
        if _refused.untold:
            fields["untold"] = str(_refused.untold)
    logger.info("admin act", extra={"event": Event.ADMIN_ACT, **fields})


def _subject(arguments: Arguments) -> str:
    found = (f"{name}:{arguments[name]}" for name in SUBJECTS if name in arguments)
    return " ".join(found)[:SUBJECT_SIZE_MAX]
