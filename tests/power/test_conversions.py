"""The power fails within upgrades, downgrades, undoing and finishing; the command is said again."""

from __future__ import annotations

import pytest

from tests.power.clients import Writer
from tests.power.conftest import MakeMachine
from tests.power.groups import amend, machines, under_load, wait_for_work
from tests.power.machines import (
    Powers,
    machine_of,
    wait_ready,
)
from tests.power.promises import check_content, check_messages
from tests.process.conftest import wait_until
from tests.process.group_nodes import Group
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.power]

FAILURES_MAX = 3
"""Of one command; then it may go through."""

CHANGES_FIRST = 120
UPGRADE = ("upgrade", "--group", "broker-a", "--self-id", "n0")


class Converted:
    """A node of its own whose store becomes one kind and the other."""

    def __init__(self, make_machine: MakeMachine, powers: Powers, seed: int) -> None:
        self.group: Group = machines(make_machine, members=1, log="commitlog")
        (self.member,) = self.group.members
        self.writers: list[Writer] = []
        self._powers = powers
        self._seed = seed
        self._disk = machine_of(self.member).disk
        self._changes: dict[tuple[str, ...], int] = {}

    def work(self, log: str) -> None:
        """Serve as this kind: all of before is there, and what comes is acknowledged; then stop."""
        amend(self.member, {"store": {"log": log}})
        self.member.start()
        wait_ready(self.member)
        self.group.leader()
        check_messages(self.group.addresses, self.writers)
        self.take()

    def take(self) -> None:
        """Messages; then stop in order."""
        name = f"w{len(self.writers)}"
        self.writers.append(Writer(self.group.addresses, self._seed + len(self.writers), name))
        with under_load(self.writers[-1:], self.group):
            wait_for_work(self.writers[-1:], 10)
        check_messages(self.group.addresses, self.writers)
        assert self.group.stop() == [0]
        check_content(self.member.node.root)

    def convert(self, verb: str, *words: str) -> None:
        """Say the command until it ends well, with power failures before changes that are drawn.

        Then, now and then, a last one: what it said is durable, and it can be said again.
        """
        key, chance = (verb, *words), self._powers.chance
        failures = 0
        while True:
            most = self._changes.get(key, CHANGES_FIRST)
            fails = failures < FAILURES_MAX and chance.random() < 0.9
            # One more than it makes: the power then fails behind the last one.
            change = chance.randint(1, most + 1) if fails else 0
            before = self._disk.changes
            self._disk.arm(change)
            status = self._run(verb, *words)
            self._disk.arm(0)
            if status is not None:
                assert status == 0, self.member.node.log.read_text()[-2_000:]
                self._changes[key] = max(self._disk.changes - before, 1)
                if not fails:
                    return
            failures += 1
            self._powers.fail(self.group)
            if status is not None and words[:1] != ("--finish",):
                # It had said that it was done: there is nothing to be said again.
                return

    def _run(self, verb: str, *words: str) -> int | None:
        """The exit status of ``store VERB``; None when the power has failed before."""
        node = self.member.node
        node.launch(["-m", "ledgermq.cli.main", "store", verb, str(node.root), *words])
        process = node.process
        assert process is not None
        wait_until(lambda: process.poll() is not None or self._disk.is_cut, verb, PATIENCE_S)
        return None if self._disk.is_cut else process.wait()


def test_a_store_that_changes_its_kind_keeps_what_was_acknowledged(
    make_machine: MakeMachine, cuts: int, seed: int
) -> None:
    powers = Powers(seed)
    store = Converted(make_machine, powers, seed)
    store.take()
    while powers.failures < cuts:
        if powers.chance.random() < 0.4:
            store.convert(*UPGRADE)
            store.convert("upgrade", "--undo")
            store.work("commitlog")
        store.convert(*UPGRADE)
        store.work("dledger")
        store.convert("upgrade", "--finish")
        if powers.chance.random() < 0.4:
            store.convert("downgrade")
            store.convert("downgrade", "--undo")
            store.work("dledger")
        store.convert("downgrade")
        store.work("commitlog")
        store.convert("downgrade", "--finish")
    acknowledged = sum(len(writer.acknowledged) for writer in store.writers)
    print(
        f"RESULT conversions: power failures {powers.failures}, of all {powers.of_all},"
        f" acknowledged {acknowledged}, lost 0"
    )
