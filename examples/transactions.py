"""Book orders in a database and tell of them, both or neither, whoever dies in between.

python examples/transactions.py ipc:///run/ledgermq orders.db
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing

from ledgermq.client import Decision, TransactionalProducer, UndecidedTransaction

GROUP = "till"
TABLES = """
create table if not exists orders (name text primary key, pieces integer not null);
create table if not exists transactions (id text primary key);
"""


class Till:
    """An application with a database of its own, which notes the transactions that it has made."""

    def __init__(self, file: str) -> None:
        self._file = file
        with closing(sqlite3.connect(file)) as database:
            database.executescript(TABLES)

    def book(self, transaction: str, name: str, pieces: int) -> Decision:
        """The order and the transaction's id stand in the database, or neither."""
        with closing(sqlite3.connect(self._file)) as database, database:
            try:
                database.execute("insert into orders values (?, ?)", (name, pieces))
                database.execute("insert into transactions values (?)", (transaction,))
            except sqlite3.IntegrityError:
                # There is such an order: nothing is to be told.
                return Decision.ROLLBACK
        return Decision.COMMIT

    def ask(self, undecided: UndecidedTransaction) -> Decision:
        """How a transaction of this till ended; asked for by the broker when it was not told."""
        with closing(sqlite3.connect(self._file)) as database:
            query = "select 1 from transactions where id = ?"
            found = database.execute(query, (undecided.id,)).fetchone()
        return Decision.COMMIT if found else Decision.ROLLBACK


def main(address: str, file: str) -> None:
    """Book two orders, one of them twice, and send one lot of messages to two topics."""
    till = Till(file)
    with TransactionalProducer(address, group=GROUP, listener=till.ask) as producer:
        for name in ("apples", "pears", "apples"):
            result = producer.send(
                "orders", name.encode(), lambda id_, name=name: till.book(id_, name, 3)
            )
            print(f"{name}: {result.decision}")

        with producer.transaction() as transaction:
            transaction.send("orders", b"plums")
            transaction.send("stock", b"plums: 7 less")
        print(f"plums: {transaction.id}")


if __name__ == "__main__":
    main(*sys.argv[1:])
