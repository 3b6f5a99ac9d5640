"""The package of arm64, which a cross compiler has made, where its programs are emulated."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.bare import emulated
from tests.boot import root

pytestmark = [
    pytest.mark.bare,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("LEDGERMQ_BARE_LONG") != "1", reason="only with LEDGERMQ_BARE_LONG=1"
    ),
]

SUITES = ("trixie", "resolute")
"""The newest of Debian and of Ubuntu."""

PACKAGES = "bash,coreutils,dash,libc-bin,libstdc++6,python3,sed,zlib1g"

# Programs are slow there: nothing is set up, and no maintainer's script is run.
ENTER = """
set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work,userxattr" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom; do
    touch "dev/$node"
    mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/shm
mount -t tmpfs -o mode=1777 tmpfs dev/shm
exec chroot . env -i PATH=/usr/bin:/usr/sbin HOME=/root LANG=C.UTF-8 bash -c "$3" converse "$4"
"""

# The emulator has a thread of its own in each process: a supervisor would not fork there.
SERVE = """
import sys
from ledgermq.cli.main import main
from ledgermq.daemon import children
children._thread_count = lambda: 1
sys.exit(main(["serve", "--config", "node.toml"]))
"""

CONVERSE = """set -e
cd /root
ledgermq config show |
    sed 's#"/var/lib/ledgermq"#"/root/store"#; s#"/run/ledgermq"#"/root/run"#' >node.toml
/usr/lib/ledgermq/bin/python3 -I -c "$1" 2>log &
trap 'kill $! 2>/dev/null || true' EXIT
ledgermq status --config node.toml --wait-ready 600 || { cat log; exit 1; }
ledgermq status --config node.toml --json
ledgermq send --timeout 300 --address ipc:///root/run orders 'hello from arm64'
ledgermq receive --timeout 300 --address ipc:///root/run orders
kill -TERM $!
wait $!
trap - EXIT
ledgermq store check store
uname --machine
"""


@pytest.mark.parametrize("suite", SUITES)
def test_a_node_of_arm64_serves(suite: str, tmp_path: Path) -> None:
    if os.environ.get("LEDGERMQ_BARE") != "1":
        pytest.skip("runs programs of arm64: make check-bare")
    if reason := emulated.why_not():
        pytest.skip(reason)
    lower = root.made_root(suite, PACKAGES, foreign="arm64")
    for name in ("upper", "work", "root"):
        (tmp_path / name).mkdir()
    built = root.package(suite, "arm64")
    subprocess.run(["dpkg-deb", "--extract", built, tmp_path / "upper"], check=True)

    done = subprocess.run(
        [*emulated.prefix(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c",
         ENTER, "enter", lower, tmp_path, CONVERSE, SERVE],
        capture_output=True, text=True, timeout=root.BUILD_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nhello from arm64\n" in done.stdout
    assert '"kernel": "compiled"' in done.stdout
    assert done.stdout.endswith("aarch64\n")
