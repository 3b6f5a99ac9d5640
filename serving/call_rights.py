"""What each call needs: rights to topics and groups, or an admin; and the line about admin acts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.broker.access import Right
from ledgermq.model.errors import LedgerError
from ledgermq.model.events import Event
from ledgermq.process.client_rights import ClientRights

logger = logging.getLogger("ledgermq.audit")

Arguments = Mapping[str, object]

ANY = Right.PUB | Right.SUB
"""Either is enough."""

SUBJECTS = ("user", "owner", "topic", "group", "queue", "id", "archive", "namespace", "key")
"""Arguments that say on what a call acts; no other ever comes into the log."""

SUBJECT_SIZE_MAX = 200


class Needs(NamedTuple):
    """What a call needs: the right to its argument ``topic``, that to its argument ``group``."""

    topic: Right | None = None
    is_of_group: bool = False


NEEDS: Mapping[str, Needs] = {
    "topics": Needs(),
    "groups": Needs(),
    "node_report": Needs(),
    "archive_list": Needs(),
    "route": Needs(topic=ANY),
    "queue": Needs(topic=ANY),
    "offset_by_time": Needs(topic=ANY),
    "earliest_time": Needs(topic=ANY),
    "topic_show": Needs(topic=ANY),
    "group_list": Needs(),
    "group_show": Needs(is_of_group=True),
    "group_lag": Needs(topic=Right.SUB, is_of_group=True),
    "group_offset": Needs(topic=Right.SUB, is_of_group=True),
    "group_heartbeat": Needs(is_of_group=True),
    "group_leave": Needs(is_of_group=True),
    "group_members": Needs(is_of_group=True),
    "queue_lock": Needs(is_of_group=True),
    "queue_unlock": Needs(is_of_group=True),
    "send_back": Needs(topic=Right.SUB, is_of_group=True),
    "dead_letters": Needs(is_of_group=True),
    "timers": Needs(),
    "timer_cancel": Needs(),
    "transactions": Needs(),
    "transaction_end": Needs(),
    "transaction_checks": Needs(),
    "sink_commit": Needs(),
    "sink_wait": Needs(),
    "sink_abort": Needs(),
    "group_commit": Needs(topic=Right.SUB, is_of_group=True),
}
"""Of calls that users make; where users are checked, all others are for admins.

``timers`` and ``transactions`` leave out what is of topics that the user has no right to, and
``timer_cancel`` needs PUB to the topic where the message belongs, ``sink_commit`` to all topics of
the batch's rows: they find that out by themselves.
"""

ADMIN_VERBS = frozenset(
    {
        "topic_create",
        "topic_alter",
        "topic_delete",
        "group_create",
        "group_alter",
        "group_delete",
        "offset_reset",
        "offset_clone",
        "dead_letters_replay",
        "acl_list",
        "acl_set",
        "acl_remove",
        "quota_list",
        "quota_set",
        "quota_remove",
        "archive_commit",
        "archive_remove",
        "name_set",
    }
)
"""Of calls that only admins make, on this machine unless the settings allow it elsewhere."""

AUDITED_VERBS = ADMIN_VERBS - {"acl_list", "quota_list"}
"""Of those, the ones that change something: each leaves a line in the log."""


class Act(NamedTuple):
    """An admin's call that has no outcome yet."""

    who: str
    verb: str
    subject: str


def check_call(rights: ClientRights, verb: str, arguments: Arguments) -> Act | None:
    """Refuse a call that the client may not make; what is to be told of it once it has an outcome.

    Raises:
        NoPermissionError: names client, right, and topic or group.
    """
    if verb in ADMIN_VERBS:
        act = act_of(rights.who.name, verb, arguments)
        try:
            rights.check_admin(verb)
        except LedgerError as error:
            audit(act, error)
            raise
        return act if verb in AUDITED_VERBS else None
    needs = NEEDS.get(verb)
    if needs is None:
        rights.check_listed(verb)
        return None
    rights.check_known(verb)
    topic, group = arguments.get("topic"), arguments.get("group")
    if needs.topic is not None and isinstance(topic, str):
        is_creation = verb == "route" and arguments.get("create") is True
        rights.check_topic(topic, Right.PUB if is_creation else needs.topic)
    if needs.is_of_group and isinstance(group, str):
        rights.check_group(group)
    return None


def act_of(who: str, verb: str, arguments: Arguments) -> Act:
    """An admin's call that is about to be made."""
    return Act(who, verb, _subject(arguments))


def audit(act: Act, outcome: LedgerError | None) -> None:
    """One line about an admin's act: who, what, on what, and what came of it."""
    fields = {
        "who": act.who,
        "act": act.verb,
        "on": act.subject,
        "outcome": "done" if outcome is None else "refused",
    }
    if outcome is not None:
        fields["reason"] = str(outcome)
    logger.info("admin act", extra={"event": Event.ADMIN_ACT, **fields})


def _subject(arguments: Arguments) -> str:
    found = (f"{name}:{arguments[name]}" for name in SUBJECTS if name in arguments)
    return " ".join(found)[:SUBJECT_SIZE_MAX]
