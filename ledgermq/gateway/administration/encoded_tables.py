"""Cache of encoded tables: what has not changed since the last answer is not made anew.

Whoever can ask may ask again and again, over many connections: an answer of some thousand rows
takes tens of milliseconds to make, in which nobody else is served.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from ledgermq.broker.sliced_answers import Build
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.tables.documents import ROWS_PER_STEP
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.rules.tables.topics import Topic

KEPT_MAX = 32 * 1024 * 1024
"""Characters of rows that are kept of one table; those of a larger one are made anew each time."""

_OWN_PREFIX = "ledgermq"
"""Beginning of the names of fields in the table that RocketMQ does not know."""

Row = TypeVar("Row")

# One for all rows: ``json.dumps`` makes another each time.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class _Rows(Generic[Row]):
    """The texts of a table's rows, as they were asked for last.

    Invariant: ``_texts`` has the row itself beside its text: a row is replaced, and never changed.
    """

    def __init__(self, encode: Callable[[Row], str]) -> None:
        self._encode = encode
        self._texts: dict[str, tuple[Row, str]] = {}
        self._version: Hashable = None
        self._body = b""

    def body(
        self, version: Hashable, rows: Callable[[], Iterable[tuple[str, Row]]], shape: str
    ) -> Build:
        """``shape`` with all rows for its ``%s``, or that of the last call for the same version."""
        if self._version == version:
            return self._body
        fresh: dict[str, tuple[Row, str]] = {}
        size = 0
        # As they are now, whatever changes meanwhile.
        for number, (key, row) in enumerate(list(rows()), 1):
            found = self._texts.get(key)
            if found is None or found[0] is not row:
                found = row, f"{_text(key)}:{self._encode(row)}"
                # For whoever asks for the same meanwhile.
                self._texts[key] = found
            fresh[key] = found
            size += len(found[1])
            if number % ROWS_PER_STEP == 0:
                yield
        self._texts = fresh if size <= KEPT_MAX else {}
        texts = (text for _, text in fresh.values())
        self._version, self._body = version, (shape % ",".join(texts)).encode(errors="replace")
        return self._body


class EncodedTables:
    """Owned by the port; looks at the tables whenever it is asked."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._topics = _Rows(_topic)
        self._groups = _Rows(_group)
        self._offsets = _Rows(_offsets)

    def topics(self) -> Build:
        """All topics with the version of the table (``TopicConfigSerializeWrapper``)."""
        state = self._state
        table = state.topics
        head = _text({"dataVersion": table.data_version})[:-1]
        return self._topics.body(
            (state.snapshots, table.version),
            lambda: ((one.name, one) for one in table if one.name != SYSTEM_TOPIC),
            f'{head},"topicConfigTable":{{%s}}}}',
        )

    def groups(self) -> Build:
        """All groups with the version of the table (``SubscriptionGroupWrapper``)."""
        state = self._state
        table = state.groups
        head = _text({"dataVersion": table.data_version})[:-1]
        return self._groups.body(
            (state.snapshots, table.version),
            lambda: ((one.name, one) for one in table),
            f'{head},"subscriptionGroupTable":{{%s}}}}',
        )

    def offsets(self) -> Build:
        """How far all groups are (``ConsumerOffsetSerializeWrapper``).

        A slave of RocketMQ 5 keeps nothing of a table without a version.
        """
        table = self._state.offsets
        version = {"counter": table.revision, "stateVersion": 0, "timestamp": 0}
        head = _text({"dataVersion": version})[:-1]
        return self._offsets.body(
            table.revision,
            lambda: ((owner.key, offsets) for owner, offsets in table),
            f'{head},"offsetTable":{{%s}}}}',
        )


def shown_fields(topic: Topic) -> dict[str, object]:
    """What RocketMQ's clients are shown of a topic."""
    fields = topic.to_fields()
    return {key: fields[key] for key in fields if not key.startswith(_OWN_PREFIX)}


def _topic(topic: Topic) -> str:
    return _text(shown_fields(topic))


def _group(group: SubscriptionGroup) -> str:
    return _text(group.to_fields())


def _offsets(offsets: Mapping[int, int]) -> str:
    return _text({str(queue): offset for queue, offset in sorted(offsets.items())})


def _text(value: object) -> str:
    return _encode(value)
