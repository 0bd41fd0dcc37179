"""argparse as the auditor uses it: mistakes in one line, help in groups with examples and every default."""

from __future__ import annotations

import argparse
import re
import textwrap
from typing import Any, NoReturn

from auditor.base.errors import DEFAULT_LIMITS
from auditor.base.words import did_you_mean

_NONE = (None, False, argparse.SUPPRESS)  # defaults that say nothing


class Help(argparse.RawDescriptionHelpFormatter):
    """Says every default; descriptions and examples stay as they are written."""

    def _get_help_string(self, action: argparse.Action) -> str:
        said = action.help or ""
        if not action.option_strings or "default" in said or action.default in _NONE or action.default == []:
            return said
        return f"{said} (default %(default)s)".lstrip()


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong with a call in one line with a hint, without the usage in front of it."""

    def __init__(self, *args: Any, **given: Any) -> None:
        given.setdefault("formatter_class", Help)
        super().__init__(*args, **given)

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit status 2."""
        self.exit(2, f"{self.prog}: {message}{self._meant(message)}; '{self.prog} --help' lists what it takes\n")

    def _meant(self, message: str) -> str:
        """What an option or a command that there is none of may have been meant for."""
        if found := re.fullmatch(r"unrecognized arguments: (--[^\s=]+).*", message, re.DOTALL):
            return did_you_mean(found[1], self._option_string_actions)
        if found := re.match(r"argument \S+: invalid choice: '([^']*)'", message):
            sets = (action.choices for action in self._actions if action.choices is not None)
            return did_you_mean(found[1], (str(name) for choices in sets for name in choices))
        return ""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of argparse; a command says itself which of its options there is none of, and which was meant."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            commands = getattr(found, "commands", {})
            mine = next((commands[word] for word in args or () if word in commands), self)
            mine.error(f"unrecognized arguments: {' '.join(left)}")
        return found


class TopParser(OneLineParser):
    """The parser of all commands, which its help lists in groups. ``groups``: titles, with commands' names and help."""

    groups: dict[str, dict[str, str]]

    def format_help(self) -> str:
        """Usage, the commands by group, and the options that no command is needed for."""
        width = max(40, Help(self.prog)._width)
        lines = [f"{self.format_usage()}\n{self.description}"]
        for title, commands in self.groups.items():
            lines.append(f"\n{title}:")
            for name, says in commands.items():
                lines += textwrap.wrap(says, width, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15)
        lines += ["\noptions:", "  -h, --help  this list; 'auditor COMMAND --help' lists a command's options"]
        lines += ["  --version   print the version and end", f"\n{self.epilog}"]
        return "\n".join(lines) + "\n"


def add_limits(g: argparse._ActionsContainer) -> None:
    """The options that bound what a batch may be."""
    g.add_argument(
        "--max-batch-bytes",
        type=int,
        default=DEFAULT_LIMITS.max_batch_bytes,
        metavar="BYTES",
        help="of a batch, stored and decompressed; a larger one is said and left out",
    )
    g.add_argument(
        "--max-batch-ratio",
        type=int,
        default=DEFAULT_LIMITS.max_batch_ratio,
        metavar="N",
        help="of decompressed to stored bytes; a batch beyond it is said and left out",
    )


def examples(*calls: str) -> str:
    """The end of a command's help."""
    return "\n  ".join(["examples:", *calls])
