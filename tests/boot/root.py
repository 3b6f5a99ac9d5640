"""What a machine is made of: a Debian root that is kept between runs, and our package."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = Path("~/.cache/ledgermq-boot").expanduser()
TOOLS = ("systemd-nspawn", "mmdebstrap", "dh", "unshare", "nsenter")
PACKAGES = "systemd,systemd-sysv,dbus,procps,python3,debconf,bash-completion,zsh,man-db"
SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
NEXT_VERSION = "99.0.0"


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
    """A minimal Debian 12, made at the first time; not to be changed."""
    sources = next(path for path in SOURCES if path.exists())
    wanted = hashlib.sha256(f"{PACKAGES} {sources.read_text()}".encode()).hexdigest()[:16]
    root = CACHE / f"root-{wanted}"
    with _alone("root"):
        if root.exists():
            return root
        fresh = CACHE / f"fresh-{wanted}"
        shutil.rmtree(fresh, ignore_errors=True)
        with sources.open() as given:
            done = subprocess.run(
                ["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", "--format=directory",
                 '--aptopt=Acquire::Languages "none"',
                 "--dpkgopt=path-exclude=/usr/share/locale/*", f"--include={PACKAGES}",
                 "bookworm", str(fresh), "-"],
                stdin=given, capture_output=True, text=True, timeout=600, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        fresh.rename(root)
    return root


def package() -> Path:
    """The Debian package of this checkout; built anew when one of its files has changed."""
    if given := os.environ.get("LEDGERMQ_BOOT_PACKAGE"):
        return Path(given)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    digest = hashlib.sha256()
    for name in sorted(set(listed.split("\0"))):
        path = CHECKOUT / name
        if path.is_file() and not name.startswith(("tests/", "bench/", ".ci/")):
            digest.update(f"{name}\0".encode())
            digest.update(path.read_bytes())
    folder = CHECKOUT / "build" / "boot" / digest.hexdigest()[:16]
    with _alone("package"):
        if not any(folder.glob("*.deb")):
            shutil.rmtree(folder.parent, ignore_errors=True)
            folder.mkdir(parents=True)
            done = subprocess.run(
                [CHECKOUT / "packaging" / "make-deb.sh", "--output", str(folder)],
                # What is unpacked at once need not be small.
                env={**os.environ, "LEDGERMQ_DEB_COMPRESSION": "gzip"},
                capture_output=True, text=True, timeout=580, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.deb")
    return built


def next_package(built: Path, folder: Path) -> Path:
    """The package as of a later version: the same but for the number, in its code as well."""
    tree = folder / "next"
    subprocess.run(["dpkg-deb", "-R", built, tree], check=True)
    control = tree / "DEBIAN" / "control"
    version = next(
        line.partition(" ")[2]
        for line in control.read_text().splitlines()
        if line.startswith("Version: ")
    )
    for path in (control, *tree.glob("usr/lib/ledgermq/lib/*/site-packages/ledgermq/__init__.py")):
        text = path.read_text()
        assert version in text, path
        path.write_text(text.replace(version, NEXT_VERSION))
    target = folder / f"ledgermq_{NEXT_VERSION}_amd64.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", tree, target], check=True, capture_output=True)
    shutil.rmtree(tree)
    return target


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Of several test runs on this host one at a time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
