"""Backups of a node whose power fails, and restores that are cut: what is said to be done holds."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.store.store_view import StoreView
from tests.power.clients import Place, Writer
from tests.power.conftest import MakeMachine
from tests.power.groups import machines, under_load, wait_for_work
from tests.power.machines import (
    Powers,
    machine_of,
)
from tests.power.promises import check_content, check_messages
from tests.process.conftest import wait_until
from tests.process.group_nodes import COMMAND, TOPIC
from tests.process.node_start import SOURCES
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.power]

CHANGES_MAX = 200
"""So many calls that change a file a command makes, about; those of the node beside it count."""


@contextmanager
def saying(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A ``ledgermq`` command that runs; it is dead at the end, whatever it hangs in by then."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, words)],
        env={"PYTHONPATH": str(SOURCES)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()


def held_by(root: Path) -> dict[Place, bytes]:
    """The topic's messages in a stopped store, by their places."""
    view = StoreView(root)
    try:
        return {
            (queued.queue.queue_id, queued.queue_offset): bytes(queued.message.body)
            for queued in view.messages(TOPIC)
        }
    finally:
        view.close()


class Archive:
    """Backups of one node, on its own disk, and what had been acknowledged before each."""

    def __init__(self, make_machine: MakeMachine, powers: Powers, log: str) -> None:
        self.group = machines(make_machine, members=1, log=log)
        (member,) = self.group.members
        self.machine = machine_of(member)
        self.folder = self.machine.disk.folder / "backups"
        self.made: dict[Path, dict[Place, bytes]] = {}
        self._powers = powers

    def said(self, *words: object) -> str | None:
        """What the command printed; None when the power has failed before it had ended well."""
        disk = self.machine.disk
        with saying(*words, "--json") as process:
            wait_until(lambda: process.poll() is not None or disk.is_cut, "the end", PATIENCE_S)
            if disk.is_cut:
                # Killed before the disk is let go: it is not to see an error.
                return None
            told, _ = process.communicate()
            assert process.returncode == 0, (words, told)
            return told

    def create(self, acknowledged: dict[Place, bytes]) -> None:
        """Back up; the power fails in it, or right behind it."""
        self._arm()
        root, runtime = self.machine.root, self.machine.runtime
        told = self.said("backup", "create", root, self.folder, "--runtime-dir", runtime)
        if told is not None:
            self.made[Path(json.loads(told)["backup"])] = acknowledged
        self._powers.fail(self.group)
        self._powers.restore(self.group.members)
        self.group.leader()

    def _arm(self) -> None:
        """Have the power fail within the next command, or, each second time, right behind it."""
        if self._powers.chance.random() < 0.5:
            self.machine.disk.arm(self._powers.chance.randint(1, CHANGES_MAX))

    def restore(self, backup: Path) -> None:
        """Restore it into a folder, with power failures in it and behind it: all is there."""
        target = self.machine.disk.folder / "restored"
        shutil.rmtree(target, ignore_errors=True)
        self._arm()
        told = self.said("backup", "restore", backup, target)
        self._powers.fail(self.group)
        self._powers.restore(self.group.members)
        self.group.leader()
        if told is None:
            shutil.rmtree(target, ignore_errors=True)
            assert self.said("backup", "restore", backup, target) is not None
        found = held_by(target)
        missing = [place for place, body in self.made[backup].items() if found.get(place) != body]
        assert missing == [], f"{len(missing)} are missing, such as {missing[:5]}"
        check_content(target)


@pytest.mark.parametrize("log", ["commitlog", "dledger"])
def test_a_backup_that_was_said_to_be_made_has_what_was_acknowledged_before(
    log: str, make_machine: MakeMachine, cuts: int, seed: int
) -> None:
    powers = Powers(seed)
    archive = Archive(make_machine, powers, log)
    writers = [Writer(archive.group.addresses, seed + k, f"w{k}") for k in range(2)]
    restored = 0
    with under_load(writers, archive.group):
        while powers.failures < cuts or not restored:
            wait_for_work(writers, 3)
            acknowledged = {k: v for one in writers for k, v in one.acknowledged.copy().items()}
            archive.create(acknowledged)
            for backup in archive.made:
                assert archive.said("backup", "verify", backup) is not None
            if archive.made:
                archive.restore(powers.chance.choice(list(archive.made)))
                restored += 1
            check_messages(archive.group.addresses, writers)
    acknowledged_count = check_messages(archive.group.addresses, writers)
    print(
        f"RESULT backups, {log}: power failures {powers.failures}, of all {powers.of_all}, backups"
        f" {len(archive.made)}, restores {restored}, acknowledged {acknowledged_count}, lost 0"
    )
