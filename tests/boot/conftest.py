"""Machines with the package, for tests of what only a real systemd shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ledgermq
from ledgermq.model.features import LEVEL, level_of, version_of
from tests.boot import root
from tests.boot.machine import Machine
from tests.boot.repository import URL, Repository, signing_key

UNIT = "ledgermq.service"
PACKAGES = "/packages"

LONG = pytest.mark.skipif(
    os.environ.get("LEDGERMQ_BOOT_LONG") != "1", reason="only with LEDGERMQ_BOOT_LONG=1"
)


@pytest.fixture(scope="session")
def bootable() -> None:
    """Leaves the test out unless LEDGERMQ_BOOT=1: not every machine can boot another one."""
    if os.environ.get("LEDGERMQ_BOOT") != "1":
        pytest.skip("boots a machine: make check-boot")
    reason = root.why_not()
    if reason:
        pytest.fail(f"LEDGERMQ_BOOT=1, and yet: {reason}")


@pytest.fixture(scope="session")
def packages(bootable: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as ``this.deb``, and as a later version's ``next.deb``."""
    folder = tmp_path_factory.mktemp("packages")
    built = root.package()
    if level_of(ledgermq.__version__) < LEVEL:
        # Between two releases: the one to come is the first that knows what this checkout does.
        built = root.renumbered(built, version_of(LEVEL), folder)
    shutil.copy(built, folder / "this.deb")
    root.renumbered(built, root.NEXT_VERSION, folder).rename(folder / "next.deb")
    # apt reads as a user of its own.
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def repositories(packages: Path) -> None:
    """For web servers: ``now`` in ``packages`` has this version, ``later`` the next one, too."""
    with signing_key() as keys:
        for name, versions in (("now", ["this"]), ("later", ["this", "next"])):
            (packages / name).mkdir()
            made = Repository(packages / name / "ledgermq", URL, keys)
            made.add(*(packages / f"{version}.deb" for version in versions))


@pytest.fixture(scope="session")
def previous(packages: Path) -> str:
    """``previous``: name in ``packages`` of the version before, built of an older commit."""
    built = root.previous_package()
    if built is None:
        pytest.skip(f"the history of this checkout has no {root.PREVIOUS.commit}")
    root.renumbered(built, root.PREVIOUS.version, packages).rename(packages / "previous.deb")
    return "previous"


@pytest.fixture(scope="session")
def installed(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine that the package was installed on, and nothing else done; off, for layers on it."""
    folder = tmp_path_factory.mktemp("installed")
    machine = Machine(folder, [root.debian_root()], [(packages, PACKAGES)])
    machine.boot()
    try:
        # Thousands of files, each synced, on a disk that is thrown away.
        machine.run("echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io")
        told = machine.run(f"apt-get install --yes {PACKAGES}/this.deb", timeout_s=300)
        (folder / "apt").write_text(told.stdout + told.stderr)
        machine.wait_active(UNIT)
        machine.power_off()
        # A file of a lower layer is copied when someone opens it to write, and who had opened it
        # to read before goes on with the old one: a node's store has to be in its own layer.
        store = machine.upper / "var/lib/ledgermq"
        shutil.rmtree(store)
    finally:
        machine.close()
    yield machine
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serving(folder: Path, installed: Machine, packages: Path) -> Iterator[Machine]:
    """A machine with the package in ``folder``; booted, and its node serves. It is left there."""
    machine = Machine(folder, [installed.upper, root.debian_root()], [(packages, PACKAGES)])
    machine.boot()
    try:
        machine.wait_active(UNIT)
        yield machine
    finally:
        machine.close()


@pytest.fixture
def machine(installed: Machine, packages: Path, tmp_path: Path) -> Iterator[Machine]:
    """A machine of its own for each test, with the package; booted, and its node serves."""
    try:
        with serving(tmp_path, installed, packages) as machine:
            yield machine
    finally:
        for name in ("upper", "work"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
