#!/usr/bin/env python3
"""Makes a release of a clean checkout: its commit, tag, packages, list of components and sums.

    release.py VERSION --key KEY [--url URL] [--date DATE] [--output FOLDER] [--without STEP]...

KEY is what the apt repository is signed with, one that gpg has the secret of, and URL where hosts
will find it. Nothing leaves the machine: what to push and to upload is printed at the end. The tag
comes last, so there is none of a release that could not be built. That the tests have passed is for
who calls this to know (.ci/run).
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
VERSION_FILE = ROOT / "ledgermq" / "__init__.py"
CHANGES = ROOT / "CHANGELOG.md"
_VERSION_LINE = re.compile(r'^__version__ = "(.*)"$', re.M)


class ReleaseError(Exception):
    """Why there can be no such release, for who asked for it."""


class Release(NamedTuple):
    """What is to be released, where its files go, and the repository's key and place."""

    version: str
    date: str
    folder: Path
    key: str
    url: str

    @property
    def tag(self) -> str:
        return f"v{self.version}"


class Step(NamedTuple):
    """One thing that a release does, in the order of ``STEPS``."""

    name: str
    act: Callable[[Release], None]
    optional: bool = False


def run(*words: str | Path) -> None:
    """Run a command of the checkout that has to succeed; what it prints is seen."""
    try:
        done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)  # noqa: S603 - our own
    except FileNotFoundError as error:
        raise ReleaseError(f"{' '.join(map(str, words))}: not installed: {words[0]}") from error
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(map(str, words))}: exit status {done.returncode}")


def told(*words: str) -> str:
    """What git answers."""
    done = subprocess.run(  # noqa: S603 - git, without a shell
        ["git", *words],  # noqa: S607 - the one of the path
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ReleaseError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def current_version() -> str:
    """The version that the checkout has."""
    (version,) = _VERSION_LINE.findall(VERSION_FILE.read_text(encoding="utf-8"))
    return str(version)


def numbers(version: str) -> tuple[int, ...]:
    """A version as what it is compared by."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"a version is three numbers, as 0.2.0: {version}")
    return tuple(int(number) for number in version.split("."))


def look(release: Release) -> None:
    """Refuse what is no release: a tree with changes, a version that was there."""
    if changed := told("status", "--porcelain"):
        raise ReleaseError(f"the tree has changes that are in no commit:\n{changed}")
    if told("tag", "--list", release.tag):
        raise ReleaseError(f"{release.tag} is tagged already")
    if numbers(release.version) <= numbers(current_version()):
        raise ReleaseError(f"{release.version} is not above {current_version()}")
    if release.folder.exists() and any(release.folder.iterdir()):
        raise ReleaseError(f"{release.folder} is not empty")


def key(release: Release) -> None:
    """Refuse at once what would fail behind an hour of building."""
    if not release.key:
        raise ReleaseError("a repository is signed: --key KEY, or --without repository")
    run("gpg", "--batch", "--quiet", "--list-secret-keys", release.key)


def check(_release: Release) -> None:
    run("make", "check")


def audit(_release: Release) -> None:
    run("packaging/audit.sh")


def collect(release: Release) -> None:
    """Make the fragments a section of the change log, and set the version."""
    run(
        sys.executable, "-m", "towncrier", "build", "--yes",
        "--version", release.version, "--date", release.date,
    )  # fmt: skip
    # All else has it from there: wheels, packages, the command line, what nodes tell.
    text = VERSION_FILE.read_text(encoding="utf-8")
    VERSION_FILE.write_text(
        _VERSION_LINE.sub(f'__version__ = "{release.version}"', text), encoding="utf-8"
    )


def commit(release: Release) -> None:
    run("git", "commit", "--quiet", "--all", "--message", f"Release {release.version}")


def wheels(release: Release) -> None:
    run("packaging/make-wheels.sh", "--output", release.folder)


def deb(release: Release) -> None:
    """Build the package of every suite and architecture."""
    run("packaging/make-deb.sh", "--suite", "all", "--arch", "all", "--output", release.folder)


def repository(release: Release) -> None:
    """Put the packages into the repository beside the folder, which has those of before."""
    run(
        "packaging/make-apt-repo.sh", "--key", release.key, "--url", release.url,
        "--output", release.folder.parent / "apt", *sorted(release.folder.glob("*.deb")),
    )  # fmt: skip


def sbom(release: Release) -> None:
    run("packaging/make-sbom.sh", release.folder)


def sums(release: Release) -> None:
    """Write SHA256SUMS, which ``sha256sum --check`` reads."""
    target = release.folder / "SHA256SUMS"
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(release.folder)}\n"
        for path in sorted(release.folder.rglob("*"))
        if path.is_file() and path != target
    ]
    release.folder.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(lines), encoding="utf-8")
    print("".join(lines), end="")


def tag(release: Release) -> None:
    """Set an annotated tag, signed where git's settings say so, that tells what changed."""
    message = f"LedgerMQ {release.version}\n\n{section_of(release.version)}"
    # Headings begin with what git takes for a comment.
    run("git", "tag", "--annotate", "--cleanup=whitespace", "--message", message, release.tag)


def section_of(version: str) -> str:
    """What the change log says of a version, without the heading."""
    parts = re.split(r"^## (\S+) .*$", CHANGES.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[version].strip()


STEPS = (
    Step("look", look),
    Step("key", key, optional=True),
    Step("check", check, optional=True),
    Step("audit", audit, optional=True),
    Step("collect", collect),
    Step("commit", commit),
    Step("wheels", wheels, optional=True),
    Step("deb", deb, optional=True),
    Step("repository", repository, optional=True),
    Step("sbom", sbom, optional=True),
    # What puts more into the folder stands above this line.
    Step("sums", sums),
    Step("tag", tag),
)


def main(words: Sequence[str] | None = None) -> int:
    """Take the steps one after the other; 1 where one of them refuses."""
    arguments = _parser().parse_args(words)
    folder = (arguments.output or ROOT / "dist" / f"ledgermq-{arguments.version}").resolve()
    release = Release(arguments.version, arguments.date, folder, arguments.key or "", arguments.url)
    without = set(arguments.without)
    # What needs what is left out is left out as well.
    without |= {"repository"} if "deb" in without else set()
    without |= {"key"} if "repository" in without else set()
    steps = [step for step in STEPS if step.name not in without]
    before = told("rev-parse", "HEAD")
    for step in steps:
        began = time.monotonic()
        print(f"release: {step.name}", flush=True)
        try:
            step.act(release)
        except ReleaseError as refused:
            print(f"release: {step.name}: {refused}", file=sys.stderr)
            if step.name not in ("look", "key"):
                print(
                    f"release: back to where it began: git reset --hard {before}", file=sys.stderr
                )
            return 1
        print(f"release: {step.name} took {time.monotonic() - began:.0f} s", flush=True)
    branch = told("rev-parse", "--abbrev-ref", "HEAD")
    print(f"release: {release.version} is in {folder}, tagged {release.tag}")
    print(f"release: look at it, then: git push --atomic origin {branch} {release.tag}")
    if "wheels" not in arguments.without:
        print(f"release: and: twine upload {folder}/*.whl {folder}/*.tar.gz")
    if "repository" not in without:
        print(f"release: and what {folder.parent / 'apt'} has to {release.url}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("version", metavar="VERSION")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    parser.add_argument("--date", default=today, help="default: today's (UTC)")
    parser.add_argument("--output", type=Path, help="default: dist/ledgermq-VERSION")
    parser.add_argument("--key", help="of gpg, for the apt repository")
    parser.add_argument(
        "--url", default="https://packages.example/ledgermq", help="of the apt repository"
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="STEP",
        choices=[step.name for step in STEPS if step.optional], help="leave this one out",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
