"""The console script ``auditor`` (contract section 2)."""

from __future__ import annotations

import argparse
import errno
import functools
import gc
import importlib
import io
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
    "inspect": ("explain", "recheck", "impact", "compare", "rehearse", "lag", "space", "cleaner", "rules", "sql",
                "decode", "copy"),
    "change a cluster": ("finish",),
    "runs over time": ("history", "dashboard", "baseline", "expectations"),
    "shell": ("completion",),
}  # fmt: skip
MODULES = dict.fromkeys(("impact", "lag", "space", "cleaner"), "one_table")  # of commands that share one
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
# Commands whose results are files: what they print besides may fail.
WRITING = ("demo", "audit", "live", "watch", "what-if", "copy", "baseline", "expectations", "dashboard")
# How many objects more before Python looks for some that only refer to each other. By default it looks at every 700: of
# many partitions, nearly all of whose objects stay, a tenth of the driver's time for nothing.
OBJECTS = (20_000, 50, 20)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. A usage error ends in one line and 2, no command in the list of them."""
    words = list(sys.argv[1:] if argv is None else argv)
    gc.set_threshold(*OBJECTS)
    out = _open_streams()
    try:
        if not words:
            print(f"auditor: missing command\n{parsers()[0].format_commands()}", file=sys.stderr, end="")
            print("\nrun 'auditor COMMAND --help' for usage", file=sys.stderr)
            return 2
        args = parsed(words)
        if out is not None:
            out.is_all = words[0] not in WRITING
        code = _guarded(args)
        sys.stdout.flush()
        return code
    except AuditInputError as error:
        print(f"auditor: {error}", file=sys.stderr)
        return 2
    except AuditFailure as error:
        print(f"auditor: {error}", file=sys.stderr)
        return 4
    except BrokenPipeError:
        _discard(sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("auditor: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


class _Output(io.TextIOWrapper):
    """A standard stream whose failure changes no exit code, unless it ``is_all`` that the command makes."""

    is_all = False

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._fail(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        _discard(self.fileno())
        closed, problem = isinstance(error, BrokenPipeError), f"cannot write to stdout: {error.strerror}"
        if closed and self.is_all:
            raise error
        if self.is_all:
            raise AuditFailure(f"{problem}; the printed output is incomplete") from None
        if self is sys.stdout and not closed:
            print(f"auditor: {problem}; the result files are complete", file=sys.stderr)


def _discard(descriptor: int) -> None:
    """Let what is still to be written to a descriptor go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _open_streams() -> _Output | None:
    """Open what is closed of the standard streams, so that no file takes their numbers, and let none that cannot be
    written end a command. Returns standard output; None where somebody put another stream in its place.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)  # the lowest number that is free
    outs = []
    for name, descriptor in (("stderr", 2), ("stdout", 1)):
        before = getattr(sys, name)
        if before is getattr(sys, f"__{name}__"):
            stream = open(descriptor, "wb", closefd=False)  # noqa: SIM115 - for as long as the process lives
            interactive, encoding = stream.isatty(), getattr(before, "encoding", "utf-8")
            errors = "backslashreplace" if descriptor == 2 else getattr(before, "errors", "strict")
            outs.append(_Output(stream, encoding, errors, line_buffering=interactive or descriptor == 2))
            setattr(sys, name, outs[-1])
    return outs[-1] if outs and outs[-1] is sys.stdout else None


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
        if paths := getattr(args, "paths", ()):
            from auditor.base.user_input import existing  # late: it imports numpy

            for path in paths:
                existing(path)
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
        description="Audits Kafka log directories: which transactions block consumers, since when, and what to do.",
        epilog=examples(
            "auditor demo", "auditor audit /var/kafka-logs --out /tmp/audit", "auditor explain 1f2e3d --out /tmp/audit"
        ),
    )
    top.add_argument("--version", action=_Version, help="print the version and exit")
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
