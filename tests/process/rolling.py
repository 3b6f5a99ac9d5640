"""Rolling upgrades: members of a group that run another version, one after the other."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

from tests.process.batch_load import BatchLoad
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Loopback, Member
from tests.process.other_versions import THIS, Version
from tests.suite.patience import PATIENCE_S


class OldLoopback(Loopback):
    """All of three members run a version from before this one."""

    def __init__(self, old: Version) -> None:
        super().__init__(3)
        self._old = old

    def prefix(self, member: int) -> list[str]:
        """Words that have it run."""
        del member
        return list(self._old.prefix)


def start(version: Version, node: Node) -> None:
    """Have the node begin to run that version."""
    node.forget_told()
    node.launch(
        ["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)],
        prefix=() if version is THIS else version.prefix,
    )


def stop(node: Node) -> None:
    """Stop it in order."""
    node.signal(signal.SIGTERM)
    assert node.wait_end() == 0


def replace(group: Group, member: Member, version: Version) -> None:
    """Have a member run another version, as docs/operating/new-version.md has it."""
    stop(member.node)
    start(version, member.node)
    member.node.wait_ready()
    end = group.leader().cursors()["committed"]["index"]
    wait_until(lambda: member.cursors()["committed"]["index"] >= end, "it to catch up")


def load_on(group: Group, *, topic: str = TOPIC) -> BatchLoad:
    """A native producer that goes on whoever leads."""
    addresses = [member.address for member in group.members]
    return BatchLoad(*addresses, topic=topic, pause_s=0.005, timeout_s=PATIENCE_S, retries=1_000)


def level(node: Node) -> int:
    """The feature level in force, as the node's broker has it."""
    return int(node.status()["counters"]["broker"]["feature_level"])


def raft_status(member: Member) -> dict[str, Any]:
    """What its raft process says."""
    status: dict[str, Any] = json.loads(member.command("raft", "status", "--json").stdout)
    return status


def features(version: Version, node: Node, *words: str) -> dict[str, Any]:
    """What ``cluster features`` of a version prints of a node."""
    done = version.command(
        "cluster", "features", *words, "--address", f"ipc://{node.runtime}", "--json"
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def create(version: Version, node: Node, topic: str) -> None:
    """Make a topic with that version's command."""
    done = version.command("topic", "create", topic, "--address", f"ipc://{node.runtime}")
    assert done.returncode == 0, done.stderr


def refused_enabling(leader: Member) -> str:
    """Why the next level cannot be put in force now."""
    words = ("cluster", "features", "--enable", "--address", leader.address)
    done = THIS.command(*words)
    assert done.returncode == 1, done.stdout
    return done.stderr


def upgrade_check(member: Member, *words: str) -> subprocess.CompletedProcess[str]:
    """``ledgermq upgrade check`` at the host of ``member``."""
    return THIS.command("upgrade", "check", "--config", str(member.node.config), *words)


def refusal_of(group: Group, member: Member) -> str:
    """Why the others do not let ``member`` in, once they say so."""
    reason: str = wait_until(
        lambda: raft_status(group.leader(besides=member))["refusals"].get(member.name),
        "the member to be refused",
    )
    return reason
