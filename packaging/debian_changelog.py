#!/usr/bin/env python3
"""Prints debian/changelog: what is not released yet, or the last release where that is all.

    debian_changelog.py VERSION SUITE EPOCH

VERSION is that of the package, with the suffix of SUITE, EPOCH the time of the entry in seconds.
What is not released is in the fragments of changelog.d/, releases are in CHANGELOG.md, which the
package has beside this.
"""

from __future__ import annotations

import email.utils
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}


def main() -> None:
    """Print the entry that the command line asks for."""
    version, suite, epoch = sys.argv[1], sys.argv[2], int(sys.argv[3])
    print(f"ledgermq ({version}) {suite}; urgency=medium\n")
    print("\n".join(changes()))
    print(f"\n -- {maintainer()}  {email.utils.formatdate(epoch)}")


def changes() -> Iterator[str]:
    """The first sentence of each change, grouped by kind."""
    told = not_released() or last_release()
    for title in KINDS.values():
        if told.get(title):
            yield f"  [ {title} ]"
        for change in told.get(title, ()):
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`|\*\*", "", change))
            sentence = re.split(r"(?<=[.!?]) (?=[A-Z])", " ".join(text.split()))[0]
            yield from textwrap.wrap(sentence, 78, initial_indent="  * ", subsequent_indent="    ")


def not_released() -> dict[str, list[str]]:
    """Texts of fragments by the title of their kind."""
    found = {
        title: [
            path.read_text(encoding="utf-8")
            for path in sorted((ROOT / "changelog.d").glob(f"*.{kind}.md"))
        ]
        for kind, title in KINDS.items()
    }
    return {title: texts for title, texts in found.items() if texts}


def last_release() -> dict[str, list[str]]:
    """The same of the newest section of CHANGELOG.md."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = "".join(re.split(r"^## .*$", text, flags=re.M)[1:2])
    _, *parts = re.split(r"^### (.*)$", newest, flags=re.M)
    return {
        title: re.split(r"^- ", body, flags=re.M)[1:]
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def maintainer() -> str:
    """Who maintains the package, as its control file says."""
    control = (ROOT / "packaging" / "debian" / "control").read_text(encoding="utf-8")
    (name,) = re.findall(r"^Maintainer: (.*)$", control, re.M)
    return str(name)


if __name__ == "__main__":
    main()
