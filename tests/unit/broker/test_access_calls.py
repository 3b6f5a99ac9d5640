"""Calls about users and quotas: those that are the cluster's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.broker.administration.access_calls import AccessCalls
from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.model.config.settings import Settings, StoreSection
from ledgermq.model.errors import ConfigError
from ledgermq.rules.access.access import UserTable
from ledgermq.rules.access.sealed_secret import is_sealed
from ledgermq.rules.cluster.cluster_table import USER_KIND
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.tables.quotas import Quota, QuotaTable
from ledgermq.sessions.keys.peer_keys import CLUSTER_USERS_FILE
from ledgermq.sessions.keys.user_secrets import UserSecrets, make_user_key
from tests.unit.broker.answers import answers
from tests.unit.rules.cluster_changes import HOME_BEGINS, applied


def test_a_user_of_the_cluster_has_a_sealed_secret_in_its_row_or_none(tmp_path: Path) -> None:
    settings = Settings(store=StoreSection(path_root_dir=tmp_path))
    state = applied(BrokerState({}), *HOME_BEGINS)
    tables: Any = SimpleNamespace(
        users=state.users, quotas=state.quotas, cluster=state.cluster, secrets=UserSecrets(settings)
    )

    def submit(request: Any, _now_ms: int) -> None:
        applied(state, *request.plan())

    log: Any = SimpleNamespace(check_leads=lambda: None, submit=submit)
    notice: Any = None
    change = answers(AccessCalls(tables, log, notice).verbs)["acl_set"]
    fields = {"secretKey": "12345678", "topicPerms": ["t=PUB"]}
    wanted = {"user": "shop", "mode": "add", "fields": fields, "cluster": True}
    call = Call(Caller(b"c", 1), wanted, 0, user="", is_admin=True)
    with pytest.raises(ConfigError, match=CLUSTER_USERS_FILE):
        change(call)
    make_user_key(tmp_path / "ledgermq" / "keys" / CLUSTER_USERS_FILE)
    change(call)
    row = dict(state.cluster.table.rows.of_kind(USER_KIND))["shop"]
    at = state.cluster.table.at
    change(call)
    change(
        call._replace(arguments={**wanted, "mode": "alter", "fields": {"groupPerms": ["g=SUB"]}})
    )
    altered = state.users.get("shop")

    assert is_sealed(str(row["secretKey"])) and "12345678" not in str(state.documents())
    assert state.cluster.table.at.number == at.number + 1, "asked again it changes nothing"
    assert altered is not None and altered.secret == row["secretKey"]
    assert tables.secrets.opened("shop", altered.secret) == "12345678"


def test_quotas_are_told_with_whose_they_are() -> None:
    quotas = QuotaTable()
    quotas.put("topic:own", Quota(produce_bytes=1))
    quotas.put("topic:both", Quota(produce_bytes=2))
    quotas.follow_cluster({"topic:both": {"produceBytes": 3}, "user:shared": {}})

    tables: Any = SimpleNamespace(quotas=quotas, users=UserTable())
    log: Any = SimpleNamespace(check_newest=lambda: None, check=lambda: None)
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
