"""A host with the signed repository: installed, killed, upgraded under load, back, purged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.boot import root
from tests.boot.conftest import LONG, PACKAGES, UNIT
from tests.boot.machine import Machine
from tests.boot.messages import TOPIC, expected, received, send, status
from tests.boot.repository import know, serve
from tests.boot.root import NEXT_VERSION

pytestmark = [pytest.mark.slow, pytest.mark.boot, LONG]

SENT_BEFORE = 10
LOAD = f"""
number={SENT_BEFORE}
while [ ! -e /root/enough ]; do
    number=$((number + 1))
    echo $number
    sleep 0.01
done | tee /root/sent | ledgermq send {TOPIC} - --timeout 120 >/dev/null
"""
INSTALL = "apt-get install --yes --allow-downgrades"


@pytest.fixture
def bare_machine(packages: Path, repositories: None, tmp_path: Path) -> Iterator[Machine]:
    """A booted machine without the package, that knows the repository."""
    machine = Machine(tmp_path, [root.debian_root()], [(packages, PACKAGES)])
    machine.boot()
    try:
        machine.run("echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io")
        serve(machine, f"{PACKAGES}/now")
        know(machine)
        yield machine
    finally:
        machine.close()


@contextmanager
def load(machine: Machine) -> Iterator[None]:
    """Somebody sends numbers during the block, of which each is acknowledged at its end."""
    machine.run("cat >/root/load", typed=LOAD)
    machine.run("systemd-run --quiet --unit=load bash -o pipefail /root/load")
    yield
    machine.run("touch /root/enough")
    machine.wait_until(lambda: machine.unit("load", "ActiveState") != "active", "load to end")
    assert machine.unit("load", "ActiveState") == "inactive", machine.journal("load")


def wait_for_more(machine: Machine) -> None:
    """Until something is stored that is not yet."""
    before = received(machine).total()
    machine.wait_until(lambda: received(machine).total() > before, "another message")


def test_a_host_installs_kills_upgrades_under_load_goes_back_and_purges(
    bare_machine: Machine,
) -> None:
    machine = bare_machine
    machine.run("apt-get update")
    machine.run(f"{INSTALL} ledgermq", timeout_s=300)
    machine.wait_active(UNIT)
    version = machine.output("dpkg-query --show --showformat '${Version}' ledgermq")
    this = status(machine)["versions"]["ledgermq"]

    assert version.endswith(root.packaged_suites()[root.SUITE])
    send(machine, 1, SENT_BEFORE)
    pid = machine.unit(UNIT, "MainPID")
    machine.run(f"systemctl kill --signal=KILL {UNIT}")
    machine.wait_until(lambda: machine.unit(UNIT, "MainPID") not in ("0", pid), "another start")
    machine.wait_active(UNIT)
    assert received(machine) == expected(SENT_BEFORE)

    with load(machine):
        wait_for_more(machine)
        serve(machine, f"{PACKAGES}/later")
        machine.run(f"apt-get update && {INSTALL} --only-upgrade ledgermq", timeout_s=300)
        machine.run(f"systemctl restart {UNIT}")
        upgraded = status(machine)["versions"]["ledgermq"]
        wait_for_more(machine)
        machine.run(f"{INSTALL} ledgermq={version}", timeout_s=300)
        machine.run(f"systemctl restart {UNIT}")
        downgraded = status(machine)["versions"]["ledgermq"]
        wait_for_more(machine)
    count = int(machine.output("tail -n 1 /root/sent"))

    assert (upgraded, downgraded) == (NEXT_VERSION, this)
    # What was sent once more, when an answer was lost with the node that gave it, is stored once.
    assert received(machine) == expected(count)

    machine.run("echo 'ledgermq ledgermq/purge-data boolean true' | debconf-set-selections")
    machine.run("apt-get purge --yes ledgermq")
    left = machine.run("ls -d /var/lib/ledgermq* /etc/ledgermq /usr/lib/ledgermq", check=False)

    assert left.stdout == ""
    assert machine.run("pgrep -u ledgermq", check=False).stdout == ""
    assert machine.output("systemctl --failed --no-legend") == ""
