#!/usr/bin/env python3
"""Prints debian/changelog: what is not released yet, from the fragments of changelog.d/.

    debian_changelog.py VERSION EPOCH

VERSION is that of the package, EPOCH the time of the entry in seconds. Releases are in
CHANGELOG.md, which the package has beside this.
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
    version, epoch = sys.argv[1], int(sys.argv[2])
    print(f"ledgermq ({version}) bookworm; urgency=medium\n")
    print("\n".join(changes()))
    print(f"\n -- {maintainer()}  {email.utils.formatdate(epoch)}")


def changes() -> Iterator[str]:
    """The fragments' first sentences, grouped by kind."""
    for kind, title in KINDS.items():
        fragments = sorted((ROOT / "changelog.d").glob(f"*.{kind}.md"))
        if fragments:
            yield f"  [ {title} ]"
        for fragment in fragments:
            text = " ".join(fragment.read_text(encoding="utf-8").replace("`", "").split())
            sentence = re.split(r"(?<=[.!?]) (?=[A-Z])", text)[0]
            yield from textwrap.wrap(sentence, 78, initial_indent="  * ", subsequent_indent="    ")


def maintainer() -> str:
    """Who maintains the package, as its control file says."""
    control = (ROOT / "packaging" / "debian" / "control").read_text(encoding="utf-8")
    (name,) = re.findall(r"^Maintainer: (.*)$", control, re.M)
    return str(name)


if __name__ == "__main__":
    main()
