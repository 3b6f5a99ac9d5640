"""Rights that each verb needs, a row for each, and who answers it.

No service can answer a verb that has no row here (``CallService.register``), and no row is left
without a service (``CallService.check_whole``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ledgermq.broker.access import Right
from ledgermq.model.errors import LedgerError
from ledgermq.model.events import Event
from ledgermq.process.client_rights import ClientRights
from ledgermq.process.refusal_lines import RefusalLines
from ledgermq.serving.calls import Arguments, Verbs

logger = logging.getLogger("ledgermq.audit")

_refused = RefusalLines()

ANY = Right.PUB | Right.SUB
"""Either is enough."""

SUBJECTS = ("user", "owner", "topic", "group", "queue", "id", "archive", "namespace", "key")
"""Arguments that say on what a call acts; no other ever comes into the log."""

SUBJECT_SIZE_MAX = 200


class Need(Enum):
    """Who may make a call at all, where users are checked; rights to what it names come besides."""

    USER = "one of the users"
    LISTED = "an admin: the port makes such calls for its clients"
    ADMIN = "an admin, on this machine unless the settings allow it elsewhere"


class Row(NamedTuple):
    """All that is decided about a verb before anybody answers it.

    Attributes:
        module: of this package; what answers the verb is there.
        topic: right to the argument ``topic``.
        is_of_group: the argument ``group`` needs a right, too.
        is_audited: each such call leaves a line in the log.
        whatever_tables: it is answered also while this node's tables are behind the log.
    """

    module: str
    need: Need = Need.USER
    topic: Right | None = None
    is_of_group: bool = False
    is_audited: bool = False
    whatever_tables: bool = False


def _of_group(module: str, topic: Right | None = None) -> Row:
    return Row(module, topic=topic, is_of_group=True)


def _change(module: str) -> Row:
    return Row(module, Need.ADMIN, is_audited=True)


ROWS: Mapping[str, Row] = {
    "topics": Row("topic_calls"),
    "topic_show": Row("topic_calls", topic=ANY),
    "route": Row("topic_calls", topic=ANY),
    "topic_create": _change("topic_calls"),
    "topic_alter": _change("topic_calls"),
    "topic_delete": _change("topic_calls"),
    "topic_for_send": Row("send_topic_calls", Need.LISTED),
    "queue": Row("queue_calls", topic=ANY, whatever_tables=True),
    "offset_by_time": Row("queue_calls", topic=ANY, whatever_tables=True),
    "earliest_time": Row("queue_calls", topic=ANY, whatever_tables=True),
    "groups": Row("group_calls"),
    "group_list": Row("group_calls"),
    "group_show": _of_group("group_calls"),
    "group_lag": _of_group("group_calls", Right.SUB),
    "group_create": _change("group_calls"),
    "group_alter": _change("group_calls"),
    "group_delete": _change("group_calls"),
    "group_prepare": Row("prepared_groups", Need.LISTED),
    "group_offset": _of_group("offset_calls", Right.SUB),
    "group_commit": _of_group("offset_calls", Right.SUB),
    "offset_reset": _change("offset_calls"),
    "offset_clone": _change("offset_calls"),
    "offsets_store": Row("offset_batches", Need.LISTED),
    "group_heartbeat": _of_group("member_calls"),
    "group_leave": _of_group("member_calls"),
    "group_members": _of_group("member_calls"),
    "queue_lock": _of_group("member_calls"),
    "queue_unlock": _of_group("member_calls"),
    "send_back": _of_group("retry_calls", Right.SUB),
    "dead_letters": _of_group("dead_letter_calls"),
    "dead_letters_replay": _change("dead_letter_calls"),
    "timers": Row("timer_calls"),
    "timer_cancel": Row("timer_calls"),
    "transactions": Row("transaction_calls"),
    "transaction_end": Row("transaction_calls"),
    "transaction_checks": Row("transaction_calls"),
    "sinks": Row("sink_calls", Need.LISTED),
    "sink_commit": Row("sink_calls"),
    "sink_wait": Row("sink_calls"),
    "sink_abort": Row("sink_calls"),
    "acl_list": Row("access_calls", Need.ADMIN),
    "acl_set": _change("access_calls"),
    "acl_remove": _change("access_calls"),
    "quota_list": Row("access_calls", Need.ADMIN),
    "quota_set": _change("access_calls"),
    "quota_remove": _change("access_calls"),
    "archive_list": Row("archive_calls"),
    "archive_commit": _change("archive_calls"),
    "archive_remove": _change("archive_calls"),
    "name_set": _change("name_calls"),
    "node_report": Row("node_calls", whatever_tables=True),
    "group_lags": Row("node_calls", Need.LISTED, whatever_tables=True),
}
"""Every verb that there is. A verb whose arguments do not say what it is about asks for the right
to what it finds, by itself: that of a message is the right to its topic, however it is named.

``timers`` and ``transactions`` leave out what is of topics that the user has no right to;
``timer_cancel`` and ``transaction_end`` need PUB to the topics where the messages belong,
``transaction_checks`` hands out no others, ``sink_commit`` needs it to all topics of the batch's
rows, ``sink_abort`` drops no others; ``send_back`` needs SUB to the topic of the message.
"""

ADMIN_VERBS = frozenset(verb for verb, row in ROWS.items() if row.need is Need.ADMIN)
"""Of calls that only admins make, on this machine unless the settings allow it elsewhere."""


def check_answers(verbs: Verbs) -> None:
    """That each of these verbs has its row, and is answered where that says."""
    for verb, answer in verbs.items():
        row = ROWS.get(verb)
        assert row is not None, f"no row in call_rights says who may: {verb}"
        assert answer.__module__ == f"{__package__}.{row.module}", (verb, answer.__module__)


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
    row = ROWS.get(verb)
    if row is None:
        # It is refused when nobody answers it; whoever may know is told so.
        rights.check_listed(verb)
        return None
    if row.need is Need.ADMIN:
        act = act_of(rights.who.name, verb, arguments)
        try:
            rights.check_admin(verb)
        except LedgerError as error:
            audit(act, error)
            raise
        return act if row.is_audited else None
    if row.need is Need.LISTED:
        rights.check_listed(verb)
        return None
    rights.check_known(verb)
    topic, group = arguments.get("topic"), arguments.get("group")
    if row.topic is not None and isinstance(topic, str):
        is_creation = verb == "route" and arguments.get("create") is True
        rights.check_topic(topic, Right.PUB if is_creation else row.topic)
    if row.is_of_group and isinstance(group, str):
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
