"""A bare Debian or Ubuntu that knows nothing of this machine but how packages are fetched here."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.boot import root

PACKAGES = "apt,ca-certificates,git,make"
"""What somebody has who has cloned the repository and types ``make``; not in Ubuntu's smallest."""

TOOLS = ("apt-config", "mmdebstrap", "setpriv", "unshare")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_FILES = (Path("/etc/pip.conf"), Path("~/.config/pip/pip.conf").expanduser())
UBUNTU_KEYS = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
TMP_MIB = 2300
"""Of /tmp, which Debian 13 has in memory: half of that of a small machine."""

USER = "stranger"
HOME = f"/home/{USER}"

# How this machine's pip finds its packages; not what it has at hand already.
_PIP_VARIABLES = (
    "PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_PROXY",
    "PIP_TRUSTED_HOST", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip

# Processes and mounts are its own and end with the command; the network is this machine's, for
# packages are fetched. $1 is the folder, $2 the root below it, $3 the size of /tmp in MiB.
_ENTER = """
set -e
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
    touch "dev/$node"
    mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o "mode=1777,size=$3m" tmpfs tmp
shift 3
exec chroot . "$@"
"""


class Suite(NamedTuple):
    """A suite of Debian or Ubuntu, by its name, and the Python that it has."""

    name: str
    title: str
    python: str


SUITES = (
    Suite("bookworm", "Debian 12", "3.11"),
    Suite("trixie", "Debian 13", "3.13"),
    Suite("noble", "Ubuntu 24.04", "3.12"),
    Suite("resolute", "Ubuntu 26.04", "3.14"),
)


def why_not(suite: Suite) -> str:
    """Why there can be no root of ``suite`` here; empty when there can."""
    if os.geteuid() != 0:
        return "a root of its own needs root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (packaging/install-tools.sh bare)"
    # Of Ubuntu mmdebstrap knows them; its keys may have to be fetched from Debian.
    known = suite.title.startswith("Ubuntu") and UBUNTU_KEYS.exists()
    return "" if known or any(path.exists() for path in root.SOURCES) else "no sources of packages"


class BareRoot:
    """One root: what was changed in it is in ``folder``, and is there for the next command.

    Args:
        folder: for what is changed.
        suite: what it is a root of.
    """

    def __init__(self, folder: Path, suite: Suite) -> None:
        self._folder = folder
        self._lower = root.made_root(suite.name, PACKAGES, _apt_options())
        self.upper = folder / "upper"
        for path in (self.upper, folder / "work", folder / "root"):
            path.mkdir(parents=True)
        self._know_registries()
        self.run(f"useradd --create-home --shell /bin/bash {USER}")
        self._copy_checkout(self.upper / HOME[1:] / "ledgermq")

    def run(
        self, command: str, *, user: str = "root", timeout_s: float = 120, log: Path | None = None
    ) -> str:
        """What a line of shell prints in the checkout; it has to succeed.

        ``log`` has what it prints while it runs, and keeps it however that ends.
        """
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child",
                 "--propagation", "private", "bash", "-c", _ENTER, "enter",
                 self._folder, self._lower, str(TMP_MIB), *_as_user(user), "bash", "-c",
                 f"cd {HOME}/ledgermq 2>/dev/null || cd\n{command}"]  # fmt: skip
        with log.open("w+") if log else tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                timeout=timeout_s, check=False,
            )  # fmt: skip
            output.seek(0)
            told = output.read()
        assert done.returncode == 0, f"{command}: exit status {done.returncode}\n{told}"
        return told

    def _know_registries(self) -> None:
        """What pip and apt need to reach the registries that this machine uses."""
        for path in (Path("/etc/resolv.conf"), Path("/etc/hosts"), CERTIFICATES):
            _copy(path, self.upper / str(path)[1:])
        for path in PIP_FILES:
            _copy(path, self.upper / "etc" / "pip.conf")
        # Its own keys are where Ubuntu has them; this machine's may be a file that is not in it.
        sources = Path("etc/apt/sources.list")
        if (self._lower / sources).exists():
            listed = (self._lower / sources).read_text()
            own = re.sub(rf"signed-by=\S*{UBUNTU_KEYS.name}", f"signed-by={UBUNTU_KEYS}", listed)
            (self.upper / sources).parent.mkdir(parents=True, exist_ok=True)
            (self.upper / sources).write_text(own)

    def _copy_checkout(self, target: Path) -> None:
        for name in root.checkout_files():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not what was deleted, and git does not know yet.
            if os.path.lexists(root.CHECKOUT / name):
                shutil.copy2(root.CHECKOUT / name, path, follow_symlinks=False)


def processor_s() -> float:
    """Seconds that processors have computed so far for what roots have run, and has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _apt_options() -> list[str]:
    """How this machine's apt fetches packages: proxies, certificates, what it believes of dates."""
    told = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, check=True)
    lines = told.stdout.decode().splitlines()
    kept = ("Acquire::http", "Acquire::Check-", "Acquire::Retries")
    return [line for line in lines if line.startswith(kept) and not line.endswith('"";')]


def _as_user(user: str) -> list[str]:
    """Words before a command that run it as ``user``, who knows of this machine only its pip."""
    given = {name: os.environ[name] for name in _PIP_VARIABLES if name in os.environ}
    home = "/root" if user == "root" else HOME
    words = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"HOME={home}", f"USER={user}",
             "LANG=C.UTF-8", *(f"{name}={value}" for name, value in given.items())]  # fmt: skip
    if user != "root":
        words += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    return words


def _copy(source: Path, target: Path) -> None:
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
