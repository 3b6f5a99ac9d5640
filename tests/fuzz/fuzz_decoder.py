"""Fuzz one decoder with coverage, by atheris: ``python -m tests.fuzz.fuzz_decoder NAME SECONDS``.

What reaches code that nothing before has reached is added to its corpus; what breaks it is, too,
as ``crash-…``, and the program ends with a status other than 0.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["ledgermq"]):
    from ledgermq.model.errors import LedgerError
    from tests.fuzz.decoders import CORPUS, DECODERS

SIZE_MAX = 8_192


def main() -> None:
    """Fuzz until the time is over; does not return."""
    name, seconds = sys.argv[1], sys.argv[2]
    decoder = DECODERS[name]
    folder = CORPUS / name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(decoder.seeds):
        file = folder / f"seed-{number}"
        if len(seed) <= SIZE_MAX and not file.exists():
            file.write_bytes(seed)

    def decode(data: bytes) -> None:
        try:
            decoder.decode(data)
        except LedgerError:
            return

    options = [
        f"-max_total_time={seconds}",
        f"-max_len={SIZE_MAX}",
        "-verbosity=0",
        "-reduce_inputs=1",
    ]
    words = [sys.argv[0], *options, f"-artifact_prefix={folder}/", str(folder)]
    atheris.Setup(words, decode)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
