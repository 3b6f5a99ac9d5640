"""What takes a booted machine longer: processes that stand still, a full disk."""

from __future__ import annotations

import pytest
from tests.boot.conftest import LONG, UNIT
from tests.boot.machine import Machine
from tests.boot.messages import TOPIC, expected, processes, received, send
from tests.boot.root import keep

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


def test_a_full_disk_refuses_messages_and_takes_them_again_when_there_is_room(
    machine: Machine,
) -> None:
    machine.run(f"systemctl stop {UNIT} && mount -t tmpfs -o size=96M tmpfs {STORE}")
    machine.run(f"chown ledgermq: {STORE} && chmod 0750 {STORE}")
    machine.run(
        f"cat >{CONFIG} <<'END'\n"
        "[store]\nmapped_file_size_commit_log = 4194304\nmapped_file_size_consume_queue = 20000\n"
        "max_hash_slot_num = 500\nmax_index_num = 400\n"
        '[retention]\nfile_reserved_time = 876000\nrefuse_above = "100%"\n'
        "reserve_bytes = 2097152\nEND"
    )
    machine.run(f"systemctl start {UNIT}")
    send(machine, 1, 50)
    pid = machine.unit(UNIT, "MainPID")
    machine.run(f"dd if=/dev/zero of={STORE}/ballast bs=64k 2>/dev/null", check=False)

    def is_refused() -> bool:
        # What was acknowledged before the disk was full to the last byte is another topic's.
        command = "ledgermq send filler --size 100000 --count 50 --timeout 20"
        return machine.run(command, check=False).returncode != 0

    machine.wait_until(is_refused, "messages to be refused")
    assert machine.unit(UNIT, "ActiveState") == "active", machine.journal(UNIT, 300)
    assert received(machine) == expected(50)

    machine.run(f"rm {STORE}/ballast")
    machine.wait_until(
        lambda: machine.run("ledgermq send filler x --timeout 20", check=False).returncode == 0,
        "messages to be taken again",
    )
    send(machine, 51, 50)

    assert received(machine) == expected(100)
    journal = machine.journal(UNIT, 300)
    keep("full-disk", journal)

    assert machine.unit(UNIT, "MainPID") == pid, journal
    assert "PROCESS_DIED" not in machine.output(f"journalctl -u {UNIT} -o verbose"), journal
    assert TOPIC in machine.output("ledgermq topic list")
