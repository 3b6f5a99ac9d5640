"""What takes a booted machine longer: processes that stand still, a full disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boot import root
from tests.boot.conftest import LONG, PACKAGES, UNIT
from tests.boot.machine import Machine
from tests.boot.messages import TOPIC, expected, processes, received, send
from tests.process.full_disk import SmallDisk, why_not

pytestmark = [pytest.mark.slow, pytest.mark.boot, LONG]

CONFIG = "/etc/ledgermq/ledgermq.toml"
STORE = "/var/lib/ledgermq"


@pytest.mark.parametrize("role", ["supervisor", "raft", "writer", "dispatcher", "broker"])
def test_a_process_that_stands_still_is_brought_back_and_nothing_is_lost(
    machine: Machine, role: str
) -> None:
    send(machine, 1, 50)
    pid = processes(machine)[role]
    machine.run(f"kill -STOP {pid}")
    machine.wait_until(
        lambda: machine.run(f"ps -o stat= -p {pid}", check=False).stdout.strip()[:1] != "T",
        f"an end of {role}",
    )
    machine.wait_active(UNIT)
    send(machine, 51, 50)

    assert processes(machine)[role] != pid
    assert received(machine) == expected(100)


@pytest.fixture
def small_disk(bootable: None, tmp_path: Path) -> Iterator[SmallDisk]:
    """An ext4 of its own: on a tmpfs whoever reads a hole of a mapped file takes space for it."""
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path / "small"
    folder.mkdir()
    disk = SmallDisk(folder)
    disk.make()
    yield disk
    disk.unmount()


@pytest.fixture
def crowded(
    installed: Machine, packages: Path, small_disk: SmallDisk, tmp_path: Path
) -> Iterator[Machine]:
    """A machine whose store is on the small disk."""
    roots = [installed.upper, root.debian_root()]
    seen = (small_disk.mount, "/srv/small")
    machine = Machine(tmp_path / "crowded", roots, [(packages, PACKAGES)], disk=seen)
    machine.boot()
    try:
        machine.wait_active(UNIT)
        machine.run(f"systemctl stop {UNIT} && mount --bind /srv/small {STORE}")
        machine.run(f"chown ledgermq: {STORE} && chmod 0750 {STORE}")
        yield machine
    finally:
        machine.close()


def test_a_full_disk_refuses_messages_and_takes_them_again_when_there_is_room(
    crowded: Machine, small_disk: SmallDisk
) -> None:
    machine = crowded
    machine.run(
        f"cat >{CONFIG} <<'END'\n"
        "[store]\nmapped_file_size_commit_log = 4194304\nmapped_file_size_consume_queue = 20000\n"
        "max_hash_slot_num = 500\nmax_index_num = 400\n"
        '[retention]\nfile_reserved_time = 876000\nrefuse_above = "100%"\n'
        "reserve_bytes = 2097152\nEND"
    )
    machine.run(f"systemctl start {UNIT}")
    send(machine, 1, 50)
    pids = processes(machine)
    small_disk.fill()

    def is_refused() -> bool:
        # What was acknowledged before the disk was full to the last byte is another topic's.
        command = "ledgermq send filler --size 100000 --count 50 --timeout 20"
        return machine.run(command, check=False).returncode != 0

    machine.wait_until(is_refused, "messages to be refused")
    assert machine.unit(UNIT, "ActiveState") == "active", machine.journal(UNIT, 300)
    assert received(machine) == expected(50)

    small_disk.give_back()
    machine.wait_until(
        lambda: machine.run("ledgermq send filler x --timeout 20", check=False).returncode == 0,
        "messages to be taken again",
    )
    send(machine, 51, 50)

    assert received(machine) == expected(100)
    assert TOPIC in machine.output("ledgermq topic list")
    # Nobody died of it: neither the node nor one of its processes.
    assert processes(machine) == pids, machine.journal(UNIT, 300)
