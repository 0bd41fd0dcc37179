"""Options from a file: ``auditor.toml``, ``[tool.auditor]`` of pyproject.toml, or the one that ``--config`` names.

What a file may say, and of which type, follows from the options as argparse has them: a key is an option's name without
its dashes. A key at the top is for every command that has the option, one below ``[COMMAND]`` for that command alone.

The working directory may be somebody else's, such as an unpacked ticket. Unless ``--config`` names the file, only
:data:`HARMLESS` options and ``[clusters]`` are taken from it, and every other key is listed as ignored.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from auditor.base import user_input
from auditor.base.at_rest import Values
from auditor.base.errors import AuditInputError
from auditor.base.user_input import of_table
from auditor.base.words import plural

CLUSTERS = "clusters"  # the table of what people call them
FILE, PROJECT, OPTION = "auditor.toml", "pyproject.toml", "--config"
MOST_IGNORED = 20  # keys of a file that are listed one by one
HARMLESS = frozenset({"format", "quiet", "verbose", "cluster-name"})  # options of a file that nobody named
_NOT_FOR_FILES = frozenset({"help", "version", "config"})
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}  # of an option's type: what TOML gives for it, and its name; every other type is made from text


class Source(NamedTuple):
    """A file and what it says: options, and tables of options under the names of commands."""

    file: str
    says: Values


class Setting(NamedTuple):
    """An option's value and the file it came from."""

    file: str
    key: str
    value: Any


class Parsed(NamedTuple):
    """The arguments of a call, the settings of files that took effect, and a message for each key that was ignored."""

    args: argparse.Namespace
    settings: Sequence[Setting] = ()
    ignored: Sequence[str] = ()


ParserOf = Callable[[str], argparse.ArgumentParser | None]  # of a command's name; None where there is no such command


def add_option(parser: argparse.ArgumentParser) -> None:
    """Gives a command the option ``--config``."""
    parser.add_argument(
        OPTION,
        type=Path,
        metavar="FILE",
        help=f"options from this file; without it, {FILE} and {PROJECT} of the working directory set only "
        f"{', '.join(sorted(HARMLESS))} and [clusters]",
    )


def parse(
    top: argparse.ArgumentParser, words: Sequence[str], commands: Sequence[str], parser_of: ParserOf, folder: Path
) -> Parsed:
    """What a call says, and for what it does not say the files; and the settings of files that count.

    ``top`` parses ``words``; ``commands``: all names; ``folder``: the working directory. The command line goes before
    the files, auditor.toml before pyproject.toml, a command's own table before what is said for all.
    Errors: :class:`AuditInputError` with file and key.
    """
    mine = parser_of(words[0]) if words and words[0] in commands else None
    if mine is None:
        return Parsed(top.parse_args(words))
    finder = type(top)(prog=mine.prog, add_help=False)
    add_option(finder)
    given = finder.parse_known_args(words[1:])[0].config
    files = sources(given, folder)
    files, ignored = harmless(files) if given is None else (files, [])
    found = settings(files, words[0], commands, parser_of)
    known = options(mine)
    named = found.pop(CLUSTERS, None)
    for key in found:
        known[key].default, known[key].required = argparse.SUPPRESS, False
    args = top.parse_args(words)
    if named is not None and hasattr(args, CLUSTERS):
        setattr(args, CLUSTERS, named.value)
    counting = [each for key, each in found.items() if not hasattr(args, known[key].dest)]
    for each in counting:
        setattr(args, known[each.key].dest, each.value)
    return Parsed(args, counting, ignored)


def sources(given: Path | None, folder: Path) -> list[Source]:
    """The options files that exist, in the order of precedence. Of a ``pyproject.toml``, named or not, its
    table ``[tool.auditor]``."""
    if given is not None:
        return [_project(given, str(given))] if given.name == PROJECT else [Source(str(given), user_input.read(given))]
    found = []
    if (own := folder / FILE).is_file():
        found.append(Source(FILE, user_input.read(own)))
    if (project := folder / PROJECT).is_file():
        found.append(_project(project, PROJECT))
    return found


def _project(path: Path, name: str) -> Source:
    tool = user_input.read(path).get("tool")
    says = tool.get("auditor", {}) if isinstance(tool, dict) else {}
    if not isinstance(says, dict):
        raise AuditInputError(f"{path}: tool.auditor is no table; write [tool.auditor]")
    return Source(f"{name} [tool.auditor]", says)


def harmless(files: Sequence[Source]) -> tuple[list[Source], list[str]]:
    """The part of files in the working directory that takes effect, and a message for each key that does not."""
    kept: list[Source] = []
    ignored: list[str] = []
    for file, says in files:
        takes: dict[str, Any] = {}
        name = file.partition(" ")[0]
        unused: list[str] = []
        for key, value in says.items():
            if key == CLUSTERS or (key in HARMLESS and not isinstance(value, dict)):
                takes[key] = value
            elif isinstance(value, dict):
                if own := {inner: value[inner] for inner in value if inner in HARMLESS}:
                    takes[key] = own
                table = user_input.shown_key(key)
                unused += [f"[{table}] {user_input.shown_key(inner)}" for inner in value if inner not in HARMLESS]
            else:
                unused.append(user_input.shown_key(key))
        kept.append(Source(file, takes))
        ignored += [f"{file}: {key} ignored; use {OPTION} {name}" for key in unused[:MOST_IGNORED]]
        if more := len(unused[MOST_IGNORED:]):
            ignored.append(f"{file}: {plural(more, 'more key')} ignored; use {OPTION} {name}")
    return kept, ignored


def settings(files: Sequence[Source], command: str, commands: Sequence[str], parser_of: ParserOf) -> dict[str, Setting]:
    """What files say for a command, by key, all of it checked. Errors: :class:`AuditInputError`."""
    known = options(parser_of(command))
    found: dict[str, Setting] = {}
    for file, says in reversed(files):
        tables = {key: value for key, value in says.items() if isinstance(value, dict)}
        for key, value in says.items():
            if key in tables:
                continue
            if key in known:
                found[key] = Setting(file, key, checked(known[key], value, f"{file}: {key}"))
            elif not any(key in options(parser_of(name)) for name in commands):
                raise AuditInputError(f"{file}: no command has an option named {key!r}; 'auditor COMMAND --help'")
        for name, table in tables.items():
            if name == CLUSTERS:
                found[name] = Setting(file, name, of_table(table, f"{file}: [{name}]"))
                continue
            if name not in commands:
                raise AuditInputError(f"{file}: [{name}] is no command; one of {', '.join(commands)}")
            own = options(parser_of(name))
            for key, value in table.items():
                if key not in own:
                    raise AuditInputError(f"{file}: [{name}] has no option {key!r}; 'auditor {name} --help' lists them")
                setting = Setting(file, key, checked(own[key], value, f"{file}: [{name}] {key}"))
                found |= {key: setting} if name == command else {}
    return found


def options(parser: argparse.ArgumentParser | None) -> dict[str, argparse.Action]:
    """A command's options by their names without dashes. argparse has no public list of them."""
    return {
        action.option_strings[-1].lstrip("-"): action
        for action in (parser._actions if parser is not None else ())
        if action.option_strings and action.dest not in _NOT_FOR_FILES
    }


def checked(action: argparse.Action, value: object, at: str) -> Any:
    """A value from TOML as the command line would have given it. Errors: :class:`AuditInputError`, naming ``at``."""
    if action.nargs == 0:
        return _of_type(value, (bool,), "true or false", at)
    many = action.nargs if isinstance(action.nargs, int) else None
    if many is None and not isinstance(action, argparse._AppendAction):
        return _single(action, value, at)
    says = "a list" if many is None else f"a list of {many}"
    values = _of_type(value, (list,), says, at)
    if many is not None and len(values) != many:
        raise AuditInputError(f"{at} is {says}, not of {len(values)}")
    return [_single(action, each, at) for each in values]


def _single(action: argparse.Action, value: Any, at: str) -> Any:
    types, says = _KINDS.get(action.type, ((str,), "a text in quotes"))
    _of_type(value, types, says, at)
    try:
        made = action.type(value) if callable(action.type) else value
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise AuditInputError(f"{at}: {error}") from None
    if action.choices is not None and made not in action.choices:
        raise AuditInputError(f"{at} is {value!r}; one of {', '.join(map(str, action.choices))}")
    return made


def _of_type(value: object, types: tuple[type, ...], says: str, at: str) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise AuditInputError(f"{at} is {says}, not {value!r}")
    return value
