"""Callers of gRPC: signatures as RocketMQ's clients write them."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

from ledgermq.gateway.rpc.callers import RELAYED, Callers
from ledgermq.gateway.rpc.definition import RpcCode
from ledgermq.gateway.rpc.statuses import RpcRefusedError
from ledgermq.model.config.settings import AccessSection, Settings, StoreSection
from ledgermq.model.rights import Right

TIME = "20261130T072100Z"


def signed(key: str, secret: str = "FirstSecret42") -> dict[str, str]:
    digest = hmac.new(secret.encode(), TIME.encode(), hashlib.sha1).hexdigest()
    told = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": TIME, "authorization": told}


def callers(root: Path, *, enabled: bool = True) -> Callers:
    settings = Settings(
        store=StoreSection(path_root_dir=root), access=AccessSection(enabled=enabled)
    )
    return Callers(settings)


def metadata(**told: str) -> list[tuple[str, str | bytes]]:
    return [("x-mq-client-id", "c@1"), *told.items()]


def test_without_users_everybody_is_let_in_whatever_is_signed(tmp_path: Path) -> None:
    open_ = callers(tmp_path, enabled=False)

    # As Python's and Go's clients sign that were given no key.
    for key in ("", "//Rocketmq", "stranger"):
        caller = open_.caller(metadata(**signed(key)), "10.0.0.7")
        assert (caller.user, caller.client_id, caller.owner) == ("", "c@1", "10.0.0.7")
        caller.check_topic("orders", Right.PUB)


def test_who_does_not_name_itself_is_refused(tmp_path: Path) -> None:
    for name in ("", "c" * 256):
        with pytest.raises(RpcRefusedError) as refused:
            callers(tmp_path).caller([("x-mq-client-id", name)], "10.0.0.7")
        assert refused.value.code is RpcCode.CLIENT_ID_REQUIRED


@pytest.mark.parametrize(
    "told",
    [{}, signed(""), signed("//Rocketmq"), signed("stranger"), {"authorization": "Basic eA=="}],
)
def test_where_users_are_looked_at_nobody_else_is_let_in(
    tmp_path: Path, told: dict[str, str]
) -> None:
    with pytest.raises(RpcRefusedError) as refused:
        callers(tmp_path).caller(metadata(**told), "10.0.0.8")

    assert refused.value.code is RpcCode.UNAUTHORIZED


def test_who_calls_its_own_call_handed_on_has_its_own_share_and_no_right_by_it(
    tmp_path: Path,
) -> None:
    open_ = callers(tmp_path, enabled=False)
    plain, told = (open_.caller(metadata(**more), "10.0.0.7") for more in ({}, {RELAYED: "1"}))

    assert (told.is_relayed, told.owner) == (True, plain.owner)
    assert (plain.rights.peer.address, told.rights.peer.address) == ("10.0.0.7", "")
