"""Look-up of transactions that ended long ago, by their op messages in the index.

The leader remembers the last ones to end (``rules/messages/half_table.py``). Who asks about an
earlier one, because an answer was lost long ago, is told from the log, as long as the log has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import ConfigError, TransactionEndedError
from ledgermq.model.names.transactions import OP_TOPIC, Decision
from ledgermq.rules.messages.half_table import TransactionKey, unknown
from ledgermq.rules.messages.transactions import read_op

Find = Callable[[str, str], Iterable[memoryview]]
"""The records of a topic that have a key or a unique id."""


def check_ended(find: Find, key: TransactionKey, decision: Decision) -> None:
    """Return when the transaction has ended with ``decision``, as far as the log knows.

    Raises:
        TransactionEndedError: it has ended the other way.
        TransactionUnknownError: the log, or its index, has nothing of it.
        CorruptLogError: the index or a message is not what it should be.
    """
    try:
        records = find(OP_TOPIC, key.transaction)
    except ConfigError:
        # Without an index there is only what is remembered.
        raise unknown(key) from None
    for record in records:
        op = read_op(decode_message(record))
        if not op.is_end or op.transaction != key.transaction or op.decision is None:
            continue
        if op.decision is decision:
            return
        raise TransactionEndedError(
            "transaction has ended the other way",
            transaction=key.transaction,
            decision=op.decision.value,
        )
    raise unknown(key)
