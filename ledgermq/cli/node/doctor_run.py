"""Examination of ``ledgermq doctor``, which is printed, and its record, which is an archive."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from ledgermq.cli.node.doctor_command import EXIT_FAILS, describe, summary, to_json
from ledgermq.cli.node.service_unit import unit_name
from ledgermq.cli.seen_text import drawn
from ledgermq.client.core.address import parse_address
from ledgermq.doctor.examination import examine
from ledgermq.doctor.finding import PARTS, Diagnosis, Weight, worst
from ledgermq.doctor.recording.far_nodes import ADDRESSES_MAX
from ledgermq.doctor.recording.recorder import SECONDS_MAX, RecordWanted, record
from ledgermq.model.errors import ConfigError
from ledgermq.model.exit_status import EXIT_INTERRUPTED, EXIT_OK


def examine_node(arguments: argparse.Namespace) -> int:
    """Print what is wrong with a node and its host, or write it into an archive."""
    if arguments.record is not None:
        return _record(arguments)
    if arguments.output is not None or arguments.address is not None:
        raise ConfigError("--output and --address belong to --record")
    groups = _parts(arguments.only)
    shown = _shown(examine(arguments.config, groups), as_text=not arguments.json)
    verdict = worst(shown)
    if arguments.json:
        print(json.dumps(to_json(arguments.config, shown), indent=2))
    else:
        print(summary(shown))
    return EXIT_FAILS if verdict is Weight.FAIL else 0


def _record(arguments: argparse.Namespace) -> int:
    seconds: float = arguments.record
    if not 1 <= seconds <= SECONDS_MAX:
        raise ConfigError("--record is out of range", given=seconds, allowed=f"1 to {SECONDS_MAX}")
    done = record(
        RecordWanted(
            config=arguments.config,
            seconds=seconds,
            output=(arguments.output or Path()).absolute(),
            addresses=_addresses(arguments.address),
            unit=unit_name(arguments.config),
            parts=_parts(arguments.only),
        )
    )
    if arguments.json:
        print(json.dumps({"archive": str(done.archive), "interrupted": done.interrupted}, indent=2))
    else:
        print(f"{done.summary}\nThe archive is {done.archive}")
    return EXIT_INTERRUPTED if done.interrupted else EXIT_OK


def _addresses(text: str | None) -> list[str]:
    addresses = list(dict.fromkeys(text.split(","))) if text else []
    if len(addresses) > ADDRESSES_MAX:
        raise ConfigError("too many addresses", given=len(addresses), at_most=ADDRESSES_MAX)
    for address in addresses:
        parse_address(address)
    return addresses


def _parts(text: str | None) -> tuple[str, ...]:
    if text is None:
        return PARTS
    wanted = tuple(part.strip() for part in text.split(","))
    unknown = [part for part in wanted if part not in PARTS]
    if unknown:
        raise ConfigError("no such part", given=unknown, known=list(PARTS), option="--only")
    return wanted


def _shown(findings: Iterable[Diagnosis], *, as_text: bool) -> list[Diagnosis]:
    """All findings; as text each is printed at once, for some take seconds."""
    is_colored = as_text and sys.stdout.isatty()
    all_of_them = []
    for finding in findings:
        all_of_them.append(finding)
        if as_text:
            lines = "\n".join(describe(finding, is_colored=is_colored))
            print(lines, file=drawn(sys.stdout), flush=True)
    return all_of_them
