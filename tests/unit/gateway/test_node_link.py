"""Sessions of the gRPC process with its own broker: how many users at once, and who makes way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

from ledgermq.client.core.questions import asking
from ledgermq.gateway.rpc.callers import Callers
from ledgermq.gateway.rpc.node_link import NodeLink
from ledgermq.model.config.settings import AccessSection, Settings, StoreSection
from ledgermq.model.errors import BusyError, NotLeaderError
from ledgermq.verbs.shares import ReceiveShared

USERS = "a", "b", "c"
USERS_MAX = len(USERS)
WAIT_S = 0.2


def test_one_user_more_than_may_wait_at_once_is_refused_and_one_that_has_ended_makes_way(
    tmp_path: Path,
) -> None:
    """The node is not there: whoever asks waits, and is told so in the end."""
    settings = Settings(store=StoreSection(path_root_dir=tmp_path), access=AccessSection())
    anybody = Callers(settings).caller([("x-mq-client-id", "c@1")], "10.0.0.7")

    async def in_loop() -> None:
        link = NodeLink(f"ipc://{tmp_path}", users_max=USERS_MAX)

        async def wait(user: str | None) -> None:
            caller = None if user is None else anybody._replace(user=user, is_checked=True)
            with pytest.raises(NotLeaderError):
                await link.ask(caller, asking(ReceiveShared("g", "t")), wait_s=WAIT_S)

        # The node's own questions are nobody's.
        waiting = [asyncio.create_task(wait(user)) for user in (*USERS, None)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError) as told:
            await wait("one more")
        assert told.value.details == {"limit": USERS_MAX, "setting": "grpc.users_max"}
        await asyncio.gather(*waiting)
        await wait("one more")
        await link.producer.close(0.0)

    asyncio.run(in_loop())
