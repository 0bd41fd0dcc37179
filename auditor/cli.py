"""The console script ``auditor`` (contract section 2)."""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from auditor.base.errors import AuditFailure, AuditInputError
from auditor.commands import arguments
from auditor.commands.arguments import OneLineParser, TopParser, examples

# Commands, each a module of auditor.commands, by the groups that the help lists them in.
GROUPS = {
    "audit": ("demo", "audit", "live", "watch", "what_if"),
    "look closer": ("explain", "recheck", "lag", "space", "cleaner", "rules", "sql", "decode", "copy"),
    "over time": ("history", "dashboard", "baseline", "expectations"),
    "your shell": ("completion",),
}
MODULES = dict.fromkeys(("lag", "space", "cleaner"), "one_table")  # of commands that share one
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
# How many objects more before Python looks for some that only refer to each other. By default it looks at every 700: of
# many partitions, nearly all of whose objects stay, a tenth of the driver's time for nothing.
OBJECTS = (20_000, 50, 20)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. A usage error ends in one line and 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    gc.set_threshold(*OBJECTS)
    try:
        args = parsed(words)
        return _guarded(args)
    except AuditInputError as error:
        print(f"auditor: {error}", file=sys.stderr)
        return 2
    except AuditFailure as error:
        print(f"auditor: {error}", file=sys.stderr)
        return 4
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("auditor: stopped", file=sys.stderr)
        return 128 + signal.SIGINT


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words of a call, with defaults from option files.

    Prints which options came from a file, and which keys of a file in the working directory were ignored.
    """
    top, commands = parsers(words[0] if words else None)

    @functools.cache
    def parser_of(name: str) -> argparse.ArgumentParser | None:
        return commands.get(name) or parsers(name)[1].get(name)

    names = [name.replace("_", "-") for name in COMMANDS]
    args, settings, ignored = arguments.parse(top, words, names, parser_of, Path())
    sys.stderr.writelines(f"auditor: {line}\n" for line in ignored)
    if settings and not getattr(args, "quiet", False):
        files = {item.file: ", ".join(s.key for s in settings if s.file == item.file) for item in settings}
        sys.stderr.writelines(f"auditor: {file} sets {keys}\n" for file, keys in files.items())
    return args


def _guarded(args: argparse.Namespace) -> int:
    """Run the command. Unexpected exceptions become an :class:`AuditFailure`, except for a closed pipe."""
    try:
        return int(args.run(args))
    except (AuditInputError, AuditFailure, BrokenPipeError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        from auditor.running import failures

        with failures():
            raise
    raise AssertionError("not reached")


class _Version(argparse.Action):
    """Prints the version on request: looking it up takes time that no other call needs."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """End the program with exit code 0."""
        from auditor.base import VERSION

        print(f"auditor {VERSION}")
        parser.exit()
        raise AssertionError("not reached")


def parsers(command: str | None = None) -> tuple[TopParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of all commands, or only of ``command``, and the parsers of commands by name.

    The parser of one command must not wait for the imports of the others.
    """
    top = TopParser(
        prog="auditor",
        description="Audits Kafka log directories: who blocks whom, since when, and what to do about it.",
        epilog=examples(
            "auditor demo", "auditor audit /var/kafka-logs --out /tmp/audit", "auditor explain 1f2e3d --out /tmp/audit"
        ),
    )
    top.add_argument("--version", action=_Version, help="print the version and end")
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=OneLineParser)
    asked = (command or "").replace("-", "_")
    names = (asked,) if asked in COMMANDS and asked != "completion" else COMMANDS
    for module in dict.fromkeys(MODULES.get(name, name) for name in names):
        importlib.import_module(f"auditor.commands.{module}").add_parser(commands)
    for parser in commands.choices.values():
        arguments.add_option(parser)
    says = {parser.dest: parser.help or "" for parser in commands._choices_actions}  # no public way to ask
    top.groups = {
        title: {dashed: says[dashed] for name in names if (dashed := name.replace("_", "-")) in says}
        for title, names in GROUPS.items()
    }
    top.set_defaults(top=top, commands=commands.choices)  # for the command that completes all of them
    return top, dict(commands.choices)


if __name__ == "__main__":
    sys.exit(main())
