"""Errors that an application catches: all of one tree, and from where clients are imported."""

from __future__ import annotations

from ledgermq import client
from ledgermq.client import LedgerError, TransactionError
from ledgermq.model import errors


def test_each_error_is_imported_from_where_clients_are() -> None:
    every = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, LedgerError)
    }

    assert every.items() <= {name: getattr(client, name) for name in client.__all__}.items()
    assert issubclass(TransactionError, LedgerError)
    assert all(isinstance(kind.retriable, bool) for kind in every.values())
