"""Purging the package removes what is its nodes', and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging" / "debian" / "ledgermq.postrm"
DEBCONF = "RET=ANSWER\ndb_input() { :; }\ndb_go() { :; }\ndb_get() { :; }\ndb_purge() { :; }\n"


def purged(host: Path, *, answer: str, mounted: tuple[str, ...] = ()) -> set[str]:
    """What is left below /var/lib and /etc of a host that had a node, two instances and more.

    Args:
        mounted: folders of /var/lib that are file systems of their own, with a file each.
    """
    for name in ("ledgermq", "ledgermq-n0", "ledgermq-n1", "ledgermq-backups", "other"):
        (host / "var/lib" / name).mkdir(parents=True, exist_ok=True)
    (host / "etc/ledgermq").mkdir(parents=True)
    for name in ("n0", "n1"):
        (host / f"etc/ledgermq/{name}.toml").write_text("")
    debconf = host / "usr/share/debconf/confmodule"
    debconf.parent.mkdir(parents=True)
    debconf.write_text(DEBCONF.replace("ANSWER", answer))
    text = SCRIPT.read_text().replace("#DEBHELPER#", "")
    for folder in ("/var/lib/", "/etc/ledgermq", "/usr/share/debconf"):
        text = text.replace(folder, f"{host}{folder}")
    mounts = "".join(
        f"mount -t tmpfs none {host}/var/lib/{name}\ntouch {host}/var/lib/{name}/file\n"
        for name in mounted
    )
    ends = "".join(f'test -z "$(ls -A {host}/var/lib/{name})"\n' for name in mounted)
    alone = ["unshare", "--mount"] if mounted else []
    subprocess.run(
        [*alone, "sh", "-s", "purge"], input=f"{mounts}{text}{ends}", text=True, check=True
    )
    return {path.name for folder in ("var/lib", "etc") for path in (host / folder).iterdir()}


def test_a_purge_leaves_folders_that_only_have_a_name_like_ours(tmp_path: Path) -> None:
    assert purged(tmp_path, answer="true") == {"ledgermq-backups", "other"}


def test_a_purge_that_is_to_keep_messages_keeps_all(tmp_path: Path) -> None:
    everything = {"ledgermq", "ledgermq-n0", "ledgermq-n1", "ledgermq-backups", "other"}

    assert purged(tmp_path, answer="false") == everything


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems, which needs root")
def test_a_purge_empties_a_store_that_is_a_file_system_of_its_own_and_goes_on(
    tmp_path: Path,
) -> None:
    left = purged(tmp_path, answer="true", mounted=("ledgermq-n0", "ledgermq"))

    assert left == {"ledgermq", "ledgermq-n0", "ledgermq-backups", "other"}


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("chattr"), reason="makes a file that cannot be deleted"
)
def test_a_purge_that_leaves_messages_says_so(tmp_path: Path) -> None:
    kept = tmp_path / "var/lib/ledgermq/commitlog"
    kept.mkdir(parents=True)
    (kept / "0").touch()
    made = subprocess.run(["chattr", "+i", str(kept / "0")], check=False, capture_output=True)
    if made.returncode:
        pytest.skip("the file system has no such files")
    try:
        with pytest.raises(subprocess.CalledProcessError):
            purged(tmp_path, answer="true")
    finally:
        subprocess.run(["chattr", "-i", str(kept / "0")], check=True)
