"""What a machine is made of: a Debian root that is kept between runs, and our package."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = Path("~/.cache/ledgermq-boot").expanduser()
TOOLS = ("ip", "systemd-nspawn", "mmdebstrap", "unshare", "nsenter")
SUITE = os.environ.get("LEDGERMQ_BOOT_SUITE", "bookworm")
"""What the machines are that are booted, and what the package is built for."""
PACKAGES = (
    "systemd,systemd-sysv,dbus,procps,python3,debconf,bash-completion,fish,zsh,man-db,rsync,"
    "openssh-server,openssl,wget"
)
SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
BUILD_S = 2_400.0
"""How long a package may take to be built, and fetched for, on a machine that does much else."""
RESULTS = CHECKOUT / "build" / "boot-results"
"""What is kept to be looked at behind the tests."""

NEXT_VERSION = "99.0.0"


class Previous(NamedTuple):
    """What stands for the version before on a suite.

    Attributes:
        commit: its package is built.
        version: what that is numbered as, below this one; its feature level is that of the commit.
    """

    commit: str
    version: str


PREVIOUS = {
    # The first one whose package systemd can run.
    "bookworm": Previous(os.environ.get("LEDGERMQ_BOOT_PREVIOUS", "c8b66ad"), "0.0.1"),
    # The last one before 0.2.0: packages were for Debian 12 alone until short before.
    "trixie": Previous(os.environ.get("LEDGERMQ_BOOT_PREVIOUS", "049ea7ba"), "0.2.0~0"),
}[SUITE]


def why_not() -> str:
    """Why no machine can be booted here; empty when one can."""
    if os.geteuid() != 0:
        return "booting a machine needs root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (packaging/install-tools.sh boot)"
    if not any(path.exists() for path in SOURCES):
        return "no sources of Debian's packages"
    return ""


def debian_root() -> Path:
    """A minimal Debian with what a booted machine has; not to be changed."""
    return made_root(SUITE, PACKAGES)


def made_root(
    suite: str, packages: str, apt_options: Sequence[str] = (), foreign: str = ""
) -> Path:
    """A minimal root of a suite of Debian or Ubuntu, made at the first time; not to be changed.

    Args:
        suite: its name, as ``trixie``.
        packages: what it has beside what every root has, with commas between them.
        apt_options: lines of apt's configuration, which stay in the root.
        foreign: an architecture whose programs this machine cannot run: packages are unpacked, with
            nothing that they need, and are not set up.
    """
    sources = sources_of(suite)
    wanted = " ".join([packages, sources, *apt_options, foreign]).rstrip(" ")
    variant = "extract" if foreign else "minbase"
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:16]
    root = CACHE / f"root-{digest}"
    with _alone(f"root-{suite}"):
        if root.exists():
            return root
        fresh = CACHE / f"fresh-{digest}"
        shutil.rmtree(fresh, ignore_errors=True)
        done = subprocess.run(
            ["mmdebstrap", "--quiet", f"--variant={variant}", "--mode=root",
             "--format=directory", '--aptopt=Acquire::Languages "none"',
             *(f"--aptopt={one}" for one in apt_options),
             "--dpkgopt=path-exclude=/usr/share/locale/*", f"--include={packages}",
             *([f"--architectures={foreign}", "--skip=check/qemu"] if foreign else []),
             suite, str(fresh), "-"],
            input=sources, capture_output=True, text=True, timeout=BUILD_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        fresh.rename(root)
    return root


def sources_of(suite: str) -> str:
    """Where packages of a suite are from, as ``packaging/suites.sh`` has it."""
    done = subprocess.run(
        ["bash", "-c", 'set -euo pipefail; . packaging/suites.sh; suite_sources "$1"', "-", suite],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=BUILD_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def packaged_suites() -> dict[str, str]:
    """Suffixes of versions by the suites that packages are built for."""
    rows = (CHECKOUT / "packaging" / "suites.txt").read_text().splitlines()
    split = [row.split() for row in rows if not row.startswith("#")]
    return {words[0]: words[1] for words in split}


def package(suite: str = SUITE, architecture: str = "amd64") -> Path:
    """The package of this checkout for a suite; built anew when one of its files has changed."""
    if given := os.environ.get("LEDGERMQ_BOOT_PACKAGE"):
        if Path(given).is_file():
            return Path(given)
        (built,) = Path(given).glob(f"*{packaged_suites()[suite]}_{architecture}.deb")
        return built
    digest = hashlib.sha256()
    for name in checkout_files():
        path = CHECKOUT / name
        if path.is_file() and not name.startswith(("tests/", "bench/", ".ci/")):
            digest.update(f"{name}\0".encode())
            digest.update(path.read_bytes())
    folder = CHECKOUT / "build" / "boot" / f"{suite}-{architecture}" / digest.hexdigest()[:16]
    with _alone("package"):
        if not any(folder.glob("*.deb")):
            shutil.rmtree(folder.parent, ignore_errors=True)
            folder.mkdir(parents=True)
            done = subprocess.run(
                [CHECKOUT / "packaging" / "make-deb.sh", "--suite", suite,
                 "--arch", architecture, "--output", folder],
                # What is unpacked at once need not be small.
                env={**os.environ, "LEDGERMQ_DEB_COMPRESSION": "gzip"},
                capture_output=True, text=True, timeout=BUILD_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.deb")
    return built


def checkout_files() -> list[str]:
    """Names of the files of this checkout, with those that git does not know yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return sorted(set(listed.split("\0")) - {""})


def previous_package() -> Path | None:
    """The package of an older commit of this repository; None where the history is not there.

    Built once, and kept as long as ``build`` is.
    """
    known = subprocess.run(
        ["git", "rev-parse", "--quiet", "--verify", f"{PREVIOUS.commit}^{{commit}}"],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if known.returncode != 0:
        return None
    commit = known.stdout.strip()
    folder = CHECKOUT / "build" / "boot-previous" / f"{SUITE}-{commit[:16]}"
    with _alone("package"):
        if not any(folder.glob("*.deb")):
            folder.mkdir(parents=True, exist_ok=True)
            # Not below the checkout, whose files git would take for those of the older commit.
            with tempfile.TemporaryDirectory(prefix="lmq-previous-") as scratch:
                _build_commit(commit, Path(scratch), folder)
    (built,) = folder.glob("*.deb")
    return built


def _build_commit(commit: str, tree: Path, folder: Path) -> None:
    archive = subprocess.run(
        ["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    done = subprocess.run(
        # Older ones know no other suite than Debian 12.
        [tree / "packaging" / "make-deb.sh", "--output", str(folder),
         *(["--suite", SUITE] if SUITE != "bookworm" else [])],
        env={**os.environ, "LEDGERMQ_DEB_COMPRESSION": "gzip"},
        capture_output=True, text=True, timeout=BUILD_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def renumbered(built: Path, version_wanted: str, folder: Path) -> Path:
    """A package as of another version: the same but for the number, in its code as well."""
    tree = folder / "renumbered"
    subprocess.run(["dpkg-deb", "-R", built, tree], check=True)
    control = tree / "DEBIAN" / "control"
    fields = control.read_text()
    (version,) = re.findall(r"^Version: ([^\s-]+)", fields, re.M)
    # The revision and the suite behind it stay.
    control.write_text(fields.replace(f"Version: {version}", f"Version: {version_wanted}"))
    for path in tree.glob("usr/lib/ledgermq/lib/*/site-packages/ledgermq/__init__.py"):
        text = path.read_text()
        assert version in text, path
        path.write_text(text.replace(version, version_wanted))
    target = folder / built.name.replace(version, version_wanted)
    subprocess.run(["dpkg-deb", "-Znone", "-b", tree, target], check=True, capture_output=True)
    shutil.rmtree(tree)
    return target


def keep(name: str, text: str) -> None:
    """Keep what a machine or a tool of systemd said."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / name).write_text(text + "\n")


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Of several test runs on this host one at a time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
