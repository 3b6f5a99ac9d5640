"""Calls about schemas of topics: read by who may use the topic, changed by admins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from ledgermq.broker.calls import Call, Result, Verbs
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import submit_call
from ledgermq.broker.verb_arguments import answered
from ledgermq.model.errors import ConfigError, NoPermissionError, ProtocolError
from ledgermq.model.names.schemas import (
    Compatibility,
    SchemaType,
    topic_of,
)
from ledgermq.rules.schemas.comparison import StepBudget
from ledgermq.rules.schemas.schema_plans import (
    Plan,
    check_subject,
    conflicts_of,
    found_version,
    plan_delete,
    plan_register,
    plan_rule,
)
from ledgermq.rules.schemas.schema_table import (
    FILE,
    SchemaSubject,
    SchemaTable,
    SchemaVersion,
    rule_of,
)
from ledgermq.rules.tables.table_changes import Change
from ledgermq.verbs import schemas as verbs
from ledgermq.verbs.needs import ANY

VERSIONS_SHOWN_MAX = 100
"""Versions of one answer that have one id."""

_TOUCHES = frozenset({FILE})
"""Ids are given one after the other: the second request waits for what the first has changed."""


class SchemaCalls:
    """Changes go through the log, and are those of all nodes when they are answered."""

    def __init__(self, tables: BrokerTables, log: StateLog) -> None:
        self._tables = tables
        self._log = log
        self.verbs: Verbs = (
            answered(verbs.ListSubjects, self._list),
            answered(verbs.ShowSchema, self._show),
            answered(verbs.SchemaOfId, self._by_id),
            answered(verbs.CheckSchema, self._check),
            answered(verbs.RegisterSchema, self._register),
            answered(verbs.SetSchemaRule, self._rule),
            answered(verbs.DeleteSchema, self._delete),
        )

    @property
    def _table(self) -> SchemaTable:
        return self._tables.schemas

    def _list(self, call: Call, asked: verbs.ListSubjects) -> Result:
        """Subjects of the topics that the client may use, at most ``limit`` behind ``after``."""
        self._log.check_newest()
        found = (
            (name, subject)
            for name, subject in self._table
            if name > (asked.after or "") and call.may(topic_of(name), ANY)
        )
        chosen = list(islice(found, asked.limit))
        rows = [_row(name, subject) for name, subject in chosen]
        return {"subjects": rows, "more": len(rows) == asked.limit}

    def _show(self, call: Call, asked: verbs.ShowSchema) -> Result:
        """A subject with one version's text: the last one's, where none is named."""
        self._log.check_newest()
        name, number = check_subject(asked.subject), asked.version
        call.check_topic(topic_of(name), ANY)
        subject = self._table.get(name)
        if subject is None:
            raise ConfigError("there is no such subject", subject=name)
        version = subject.latest if number is None else subject.versions.get(number)
        if version is None and number is not None:
            raise ConfigError("the subject has no such version", subject=name, version=number)
        return {**_row(name, subject), "found": None if version is None else _told(name, version)}

    def _by_id(self, call: Call, asked: verbs.SchemaOfId) -> Result:
        """The text that an id stands for, for who may use a topic that has it."""
        self._log.check_newest()
        identity = asked.identity
        named = self._table.with_id(identity)
        if not named:
            raise ConfigError("no schema has this id", id=identity)
        allowed = (place for place in sorted(named) if call.may(topic_of(place[0]), ANY))
        may = list(islice(allowed, VERSIONS_SHOWN_MAX))
        if not may:
            raise NoPermissionError("no right to a topic that has this schema", id=identity)
        versions = [{"subject": subject, "version": number} for subject, number in may]
        return {**_told(may[0][0], named[may[0]]), "versions": versions}

    def _check(self, _call: Call, asked: verbs.CheckSchema) -> Result:
        """What keeps a text from being the next version; nothing is changed."""
        self._log.check_newest()
        name, kind, schema, rule = _wanted(asked)
        found = conflicts_of(self._table, name, kind, schema, rule, steps=_steps())
        return {
            "subject": name,
            "compatible": not found,
            "conflicts": [one._asdict() for one in found],
            "version": found_version(self._table, name, kind, schema),
        }

    def _register(self, call: Call, asked: verbs.RegisterSchema) -> Result | None:
        name, kind, schema, rule = _wanted(asked)

        def plan() -> Plan:
            return plan_register(self._table, name, kind, schema, rule, steps=_steps())

        def answer() -> Result:
            number = found_version(self._table, name, kind, schema)
            subject = self._table.get(name)
            if number is None or subject is None:
                raise ConfigError("the version was deleted meanwhile", subject=name)
            return _numbers(name, subject.versions[number])

        return self._submit(call, plan, answer)

    def _rule(self, call: Call, asked: verbs.SetSchemaRule) -> Result | None:
        name = check_subject(asked.subject)
        rule = rule_of(asked.compatibility, name)
        told = {"subject": name, "compatibility": rule.value}
        plan = partial(plan_rule, self._table, name, rule, ahead=asked.ahead)
        return self._submit(call, plan, lambda: told)

    def _delete(self, call: Call, asked: verbs.DeleteSchema) -> Result | None:
        name, number = asked.subject, asked.version
        told = {"subject": name, "version": number}
        return self._submit(call, lambda: plan_delete(self._table, name, number), lambda: told)

    def _submit(
        self, call: Call, plan: Callable[[], Plan], answer: Callable[[], Result]
    ) -> Result | None:
        self._log.check_leads()
        made = plan()  # refuses at once what cannot be made
        revision = self._table.revision

        def changes() -> Sequence[Change]:
            # To compare schemas takes a while: once, unless there was another change meanwhile.
            return made if self._table.revision == revision else plan()

        return submit_call(self._log, call, changes, _TOUCHES, answer)


def _steps() -> StepBudget:
    """Between two pulls: by the processor's time, too, for others wait."""
    return StepBudget(spent_ns=time.thread_time_ns)


def _wanted(
    asked: verbs.CheckSchema | verbs.RegisterSchema,
) -> tuple[str, SchemaType, str, Compatibility | None]:
    name, rule = check_subject(asked.subject), asked.compatibility
    if asked.kind not in {*SchemaType}:
        raise ProtocolError("no type of a schema", argument="type", allowed=", ".join(SchemaType))
    kind = SchemaType(asked.kind)
    return name, kind, asked.schema, None if rule is None else rule_of(rule, name)


def _row(name: str, subject: SchemaSubject) -> dict[str, object]:
    return {
        "subject": name,
        "topic": topic_of(name),
        "compatibility": subject.rule.value,
        "versions": sorted(subject.versions),
    }


def _numbers(name: str, version: SchemaVersion) -> dict[str, object]:
    return {"subject": name, "version": version.number, "id": version.identity}


def _told(name: str, version: SchemaVersion) -> dict[str, object]:
    return {**_numbers(name, version), "type": version.type.value, "schema": version.text}
