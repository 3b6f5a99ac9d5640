"""Calls about users and quotas: what is told of those that are the cluster's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ledgermq.broker.administration.access_calls import AccessCalls
from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.rules.access.access import UserTable
from ledgermq.rules.tables.quotas import Quota, QuotaTable
from tests.unit.broker.answers import answers


def test_quotas_are_told_with_whose_they_are() -> None:
    quotas = QuotaTable()
    quotas.put("topic:own", Quota(produce_bytes=1))
    quotas.put("topic:both", Quota(produce_bytes=2))
    quotas.follow_cluster({"topic:both": {"produceBytes": 3}, "user:shared": {}})

    tables: Any = SimpleNamespace(quotas=quotas, users=UserTable())
    log: Any = SimpleNamespace(check=lambda: None)
    notice: Any = None
    ask = answers(AccessCalls(tables, log, notice).verbs)["quota_list"]
    told = ask(Call(Caller(b"c", 1), {}, 0, user="", is_admin=True))

    assert told == {
        "quotas": [
            {"owner": "topic:both", "produceBytes": 3, "cluster": True},
            {"owner": "topic:own", "produceBytes": 1},
            {"owner": "user:shared", "cluster": True},
        ]
    }
