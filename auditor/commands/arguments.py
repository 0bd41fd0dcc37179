"""Options that commands share, and where they come from."""

from __future__ import annotations

import argparse
import io
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TextIO, cast

from auditor.base import user_input
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import DEFAULT_LIMITS, IN_ALL, OF_A_RULE, AuditInputError
from auditor.base.user_input import of_table, since_of
from auditor.base.words import HISTORY_FORMATS, did_you_mean, plural
from auditor.dashboards.finding_groups import LEAST, Printing, Selection
from auditor.dashboards.output_formats import FORMATS
from auditor.model.policies import AUTO, CHOICES
from auditor.pipeline.options import DEFAULT_SPLIT_BYTES, LEVELS, AuditOptions, limits_of, out_of, parse_time

if TYPE_CHECKING:
    from auditor.outputs.alerts import AlertOptions


# Parsers: usage errors on one line; help in groups, with examples and every default.


_NONE = (None, False, argparse.SUPPRESS)  # defaults that say nothing


class Help(argparse.RawDescriptionHelpFormatter):
    """Show every default; keep descriptions and examples as written."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if not action.option_strings or "default" in text or action.default in _NONE or action.default == []:
            return text
        return f"{text} (default %(default)s)".lstrip()


class OneLineParser(argparse.ArgumentParser):
    """Report a usage error on one line with a hint, without the usage text."""

    def __init__(self, *args: Any, **given: Any) -> None:
        given.setdefault("formatter_class", Help)
        super().__init__(*args, **given)

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with code 2."""
        self.exit(2, f"{self.prog}: {message}{self._meant(message)}; run '{self.prog} --help' for usage\n")

    def _meant(self, message: str) -> str:
        if match := re.fullmatch(r"unrecognized arguments: (--[^\s=]+).*", message, re.DOTALL):
            return did_you_mean(match[1], self._option_string_actions)
        if match := re.match(r"argument \S+: invalid choice: '([^']*)'", message):
            sets = (action.choices for action in self._actions if action.choices is not None)
            return did_you_mean(match[1], (str(name) for choices in sets for name in choices))
        return ""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; an unknown option is reported by the parser of its command, with a suggestion."""
        parsed, left = self.parse_known_args(args, namespace)
        if left:
            commands = getattr(parsed, "commands", {})
            parser = next((commands[word] for word in args or () if word in commands), self)
            parser.error(f"unrecognized arguments: {' '.join(left)}")
        return parsed


class TopParser(OneLineParser):
    """The parser of all commands, listed in groups by ``--help``. ``groups``: by title, commands and their help."""

    groups: dict[str, dict[str, str]]

    def format_commands(self) -> str:
        """Format the commands by group, a line each."""
        width = max(40, Help(self.prog)._width)
        lines = []
        for title, commands in self.groups.items():
            lines.append(f"\n{title}:")
            for name, says in commands.items():
                lines += textwrap.wrap(says, width, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15)
        return "\n".join(lines) + "\n"

    def format_help(self) -> str:
        """Format usage, the commands by group, and the general options."""
        lines = [f"{self.format_usage()}\n{self.description}", self.format_commands(), "options:"]
        lines += ["  -h, --help  show this help ('auditor COMMAND --help': options of a command)"]
        lines += ["  --version   print the version and exit", f"\n{self.epilog}"]
        return "\n".join(lines) + "\n"


def utf8_stdout() -> TextIO:
    """Return stdout with UTF-8 encoding: names in the input may hold any character."""
    cast(io.TextIOWrapper, sys.stdout).reconfigure(encoding="utf-8", errors="replace")
    return sys.stdout


def add_repeatable(g: argparse._ActionsContainer, option: str, metavar: str, help: str, **more: Any) -> None:
    """Add an option that may be given several times. Its value is a list."""
    g.add_argument(option, action="append", default=[], metavar=metavar, help=help, **more)


def add_limits(g: argparse._ActionsContainer) -> None:
    """Add the options that limit the size of a batch."""
    g.add_argument(
        "--max-batch-bytes",
        type=int,
        default=DEFAULT_LIMITS.max_batch_bytes,
        metavar="BYTES",
        help="maximum batch size (stored and decompressed); larger batches are reported and skipped",
    )
    g.add_argument(
        "--max-batch-ratio",
        type=int,
        default=DEFAULT_LIMITS.max_batch_ratio,
        metavar="N",
        help="maximum ratio of decompressed to stored bytes; batches above it are reported and skipped",
    )


def examples(*calls: str) -> str:
    """Format the examples at the end of a command's help."""
    return "\n  ".join(["examples:", *calls])


# Options that commands share.


CHANNELS = ("slack", "pagerduty", "webhook")  # of auditor.outputs.alerts
NEWEST, WALL = "the newest broker timestamp in the input", "the system clock"


def add_master(p: argparse._ActionsContainer) -> None:
    """Add ``--master``: the way to run."""
    p.add_argument(
        "--master",
        metavar="URL",
        help="Spark master (default local[*]), or inline[N]: without Spark, in N processes",
    )


def add_remote(p: argparse.ArgumentParser) -> None:
    """Add ``--remote``: where the remote part of tiered topics is stored."""
    add_repeatable(
        p,
        "--remote",
        "DIR",
        "remote storage of tiered topics: LocalTieredStorage or Aiven's RemoteStorageManager (repeatable); also "
        "detected below a PATH",
    )


def add_work(g: argparse._ActionsContainer) -> None:
    """Add ``--work``."""
    g.add_argument(
        "--work",
        metavar="DIR|URI",
        help="cache of what was read per partition. The next audit of the same input reads only what is new, also "
        "after an interruption. On a Spark cluster: a URI or a mount that all hosts share",
    )


def add_scope(g: argparse._ActionsContainer, clock: str = "record timestamps") -> None:
    """Add the options that limit what is scanned. ``clock``: in words, the times that ``--since`` is compared with."""
    add_repeatable(g, "--topic", "GLOB", "scan only these topics (repeatable)")
    partitions = (
        "scan only these partitions: TOPIC-N, or N of any topic (repeatable); internal topics are always scanned"
    )
    add_repeatable(g, "--only-partition", "GLOB", partitions)
    add_repeatable(g, "--only-broker", "ID", "scan only the replicas of this broker (repeatable)", type=int)
    g.add_argument(
        "--since",
        metavar="OFFSET|TIME",
        help="scan from the newest segment with a producer snapshot at or below this offset, or from the segment of "
        f"this time (ISO-8601, {clock}). Transactions already open before it are still reported",
    )


def add_point_in_time(g: argparse._ActionsContainer) -> None:
    """Add ``--point-in-time``, alias ``--at-once``."""
    snapshot = "the input is a point-in-time snapshot (LVM, ZFS, EBS): do not excuse differences by copy time"
    g.add_argument("--point-in-time", "--at-once", dest="at_once", action="store_true", help=snapshot)


def scope_options(args: argparse.Namespace) -> Fields:
    """Return the options of :func:`add_scope` as fields of :class:`AuditOptions`. Errors: :class:`AuditInputError`."""
    return {
        "topics": tuple(args.topic),
        "only_partitions": tuple(args.only_partition),
        "only_brokers": tuple(args.only_broker),
        "since": None if args.since is None else since_of(args.since),
    }


def path_options(args: argparse.Namespace) -> Fields:
    """Return the options that commands with PATHs share as fields of :class:`AuditOptions`: the scope, ``--remote``,
    ``--master`` and ``--as-of``. Errors: :class:`AuditInputError`."""
    as_of = None if args.as_of is None else parse_time(args.as_of)
    return scope_options(args) | {"remote": tuple(args.remote), "master": args.master, "as_of": as_of}


def add_audit_options(
    p: argparse.ArgumentParser,
    paths: bool = True,
    formats: Sequence[str] = FORMATS,
    clock: str = NEWEST,
    plan: bool = False,
) -> None:
    """Add the options of ``audit``. ``paths``: with PATH arguments (``live`` has none). ``formats``: values of
    ``--format``. ``clock``: in words, the default evaluation time. ``plan``: with ``--plan``, which needs no ``--out``.
    """
    if paths:
        p.add_argument(
            "paths",
            nargs="+",
            metavar="PATH",
            help="log directory, a directory above several, partition directory, file or URI",
        )
        add_remote(p)
    _what_is_audited(p.add_argument_group("input and rules"), clock)
    _what_counts(p.add_argument_group("exit code and alerts"))
    _what_is_printed(p.add_argument_group("output (results and exit code cover all findings)"), formats, paths)
    _what_is_written(p.add_argument_group("results"), needs_out=not plan)
    how = p.add_argument_group("execution")
    if plan:
        add_work(how)
        how.add_argument("--resume", action="store_true", help="resume from --work; fail if it is empty")
        how.add_argument(
            "--plan",
            action="store_true",
            help="only print what would be scanned, in how many tasks, and an estimate of the time; needs no --out",
        )
    _how_it_runs(how)


def _what_is_audited(g: argparse._ArgumentGroup, clock: str) -> None:
    add_scope(g)
    add_repeatable(g, "--rule", "ID", "run only this rule (repeatable)")
    add_repeatable(g, "--skip-rule", "ID", "skip this rule (repeatable)")
    g.add_argument("--records", action="store_true", help="also decode every record (KIP-467 checks)")
    g.add_argument(
        "--policy",
        default=AUTO,
        choices=CHOICES,
        metavar="NAME",
        help=f"broker behaviour to assume: {', '.join(CHOICES)} (default %(default)s, detected from the input)",
    )
    g.add_argument(
        "--as-of",
        metavar="TIME",
        help=f"evaluation time for timeouts: ISO-8601, epoch ms, or now (default: {clock})",
    )
    add_point_in_time(g)
    g.add_argument(
        "--whole",
        action="store_true",
        help="the input has all log.dirs of each broker: a replica without a directory is lost, not missing",
    )


def _what_counts(g: argparse._ArgumentGroup) -> None:
    g.add_argument(
        "--fail-on",
        default="error",
        choices=LEVELS,
        metavar="SEVERITY",
        help=f"exit 1 at findings of this severity or above: {', '.join(LEVELS)} (default %(default)s)",
    )
    g.add_argument(
        "--fail-on-unsure",
        action="store_true",
        help="also exit 1 if a partition may be blocked past its timeout but the input cannot confirm it",
    )
    g.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="suppressed findings: not printed, no alert, no effect on the exit code (see 'auditor baseline')",
    )
    alerts = f"send alerts: {', '.join(CHANNELS)} (repeatable); secrets come from the environment or from files"
    add_repeatable(g, "--alert", "CHANNEL", alerts, choices=CHANNELS)
    g.add_argument(
        "--alert-on",
        default="error",
        choices=LEVELS[:-1],
        metavar="SEVERITY",
        help="alert on findings of this severity or above (default %(default)s)",
    )
    g.add_argument(
        "--dashboard-url",
        metavar="URL",
        help="URL of the pages of 'auditor dashboard --export': alerts link to the page of each finding",
    )


def _what_is_printed(g: argparse._ArgumentGroup, formats: Sequence[str], bootstrap: bool) -> None:
    g.add_argument(
        "--format",
        default="table",
        choices=formats,
        metavar="FORMAT",
        help=f"{', '.join(formats)} (default %(default)s); human-readable output goes to stderr (except with table)",
    )
    g.add_argument(
        "--min-severity",
        choices=LEVELS[:-1],
        metavar="SEVERITY",
        help="only findings of this severity or above (default: warning in tables and markdown, else all)",
    )
    add_repeatable(g, "--partition", "GLOB", "only these partitions: TOPIC-N, or N of any topic (repeatable)")
    add_repeatable(g, "--broker", "ID", "only this broker (repeatable)", type=int)
    add_repeatable(g, "--transactional-id", "GLOB", "only these transactional ids (repeatable)")
    add_repeatable(g, "--group", "GLOB", "only these groups (repeatable)")
    if bootstrap:
        g.add_argument(
            "--bootstrap-server", metavar="H:P", help="bootstrap server to use in suggested commands (default B)"
        )
    g.add_argument("-v", "--verbose", action="store_true", help="list every finding and partition, not only causes")
    g.add_argument("-q", "--quiet", action="store_true", help="print only errors")


def _what_is_written(g: argparse._ArgumentGroup, needs_out: bool) -> None:
    required = "required" if needs_out else "on a terminal the default is a timestamped directory here"
    g.add_argument(
        "-o",
        "--out",
        type=out_of,
        required=needs_out,
        metavar="DIR",
        help=f"output directory or URI ({required})",
    )
    g.add_argument(
        "--max-findings",
        type=int,
        default=OF_A_RULE,
        metavar="N",
        help=f"findings listed per rule and partition, others counted (default {OF_A_RULE:,}; per run {IN_ALL} times)",
    )
    g.add_argument("--tables", action="store_true", help="write the decoded and derived tables as Parquet")
    g.add_argument("--include-payload", action="store_true", help="include record keys and values in the tables")
    g.add_argument("--expectations", action="store_true", help="run the great-expectations suites over the results")
    g.add_argument(
        "--history",
        type=out_of,
        metavar="DIR",
        help="also store this run under DIR, a directory or URI (see 'auditor history')",
    )
    g.add_argument(
        "--history-format", default="parquet", choices=HISTORY_FORMATS, help="delta: Delta tables below DIR/delta, too"
    )
    g.add_argument(
        "--cluster-name",
        metavar="NAME",
        help="display name of the cluster (several clusters: [clusters] in auditor.toml, by id)",
    )
    g.set_defaults(clusters=())
    g.add_argument(
        "--run-id", metavar="ID", help="id of the stored run (default: the time); replaces a run with the same id"
    )


def _how_it_runs(g: argparse._ArgumentGroup) -> None:
    add_master(g)
    g.add_argument(
        "--split-size",
        type=int,
        default=DEFAULT_SPLIT_BYTES,
        metavar="BYTES",
        help="for tables: bytes of a segment per task",
    )
    add_limits(g)


def printing(args: argparse.Namespace) -> Printing:
    """Return the options that control what is printed."""
    least, asked = args.min_severity or LEAST, args.min_severity == LEAST
    shown = Selection(
        least, tuple(args.partition), tuple(args.broker), tuple(args.transactional_id), tuple(args.group), asked
    )
    return Printing(args.format, args.quiet, args.verbose, shown)


def alerting(args: argparse.Namespace) -> AlertOptions:
    """Return the alert channels, their least severity, and the dashboard's address."""
    from auditor.outputs.alerts import AlertOptions  # late: it imports all of an audit

    return AlertOptions(tuple(args.alert), args.alert_on, args.dashboard_url or "")


def audit_options(args: argparse.Namespace, paths: Sequence[str]) -> AuditOptions:
    """Return the options of an audit, checked. Errors: :class:`AuditInputError`."""
    limits = limits_of(args.max_batch_bytes, args.max_batch_ratio)
    run_id = args.run_id
    if args.history is not None:
        from auditor.outputs import runs

        run_id = run_id or runs.new_run_id()
        runs.name_of(run_id)
    return AuditOptions(
        tuple(paths), args.out, args.policy, args.records, args.fail_on, tuple(args.rule), tuple(args.skip_rule),
        as_of=parse_time(args.as_of) if args.as_of is not None else None, master=args.master,
        split_size=args.split_size, limits=limits, tables=args.tables, expectations=args.expectations,
        include_payload=args.include_payload, history=args.history, history_format=args.history_format, run_id=run_id,
        max_findings=args.max_findings, bootstrap=getattr(args, "bootstrap_server", None), baseline=args.baseline,
        remote=tuple(getattr(args, "remote", ())), work=getattr(args, "work", None),
        resume=getattr(args, "resume", False), at_once=args.at_once, fail_on_unsure=args.fail_on_unsure,
        whole=args.whole, cluster_name=args.cluster_name, clusters=args.clusters, **scope_options(args),
    )  # fmt: skip


# Options from a file: ``auditor.toml``, ``[tool.auditor]`` of pyproject.toml, or the file of ``--config``.
#
# Keys and types follow from argparse: a key is an option's name without dashes. A key at the top sets the option for
# every command that has it, a key in ``[COMMAND]`` for that command alone.
#
# The working directory may be somebody else's, such as an unpacked ticket. Unless ``--config`` names the file, only
# :data:`HARMLESS` options and ``[clusters]`` take effect, and every other key is reported as ignored.


CLUSTERS = "clusters"  # the table of cluster names
FILE, PROJECT, OPTION = "auditor.toml", "pyproject.toml", "--config"
MOST_IGNORED = 20  # keys of a file that are listed one by one
HARMLESS = frozenset({"format", "quiet", "verbose", "cluster-name"})  # allowed without --config
# A file may be old or somebody else's: what lets ``finish`` change a cluster is typed.
_NOT_FOR_FILES = frozenset({"help", "version", "config", "write", "confirm", "application_stopped"})
# By an option's type: the types of TOML that it takes, and their name. Every other type is parsed from a string.
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {int: ((int,), "a whole number"), float: ((int, float), "a number")}


class Source(NamedTuple):
    """An options file and its content: options, and tables of options by command."""

    file: str
    says: Values


class OptionSetting(NamedTuple):
    """The value of an option and the file that sets it."""

    file: str
    key: str
    value: Any


class Parsed(NamedTuple):
    """The arguments of a call, the file settings that took effect, and one message per ignored key."""

    args: argparse.Namespace
    settings: Sequence[OptionSetting] = ()
    ignored: Sequence[str] = ()


ParserOf = Callable[[str], argparse.ArgumentParser | None]  # of a command's name; None where there is no such command


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--config`` to a command."""
    parser.add_argument(
        OPTION,
        type=Path,
        metavar="FILE",
        help=f"read options from this file; without it, {FILE} and {PROJECT} in the working directory set only "
        f"{', '.join(sorted(HARMLESS))} and [clusters]",
    )


def parse(
    top: argparse.ArgumentParser, words: Sequence[str], commands: Sequence[str], parser_of: ParserOf, folder: Path
) -> Parsed:
    """Parse a call; options that it lacks come from the options files.

    ``top`` parses ``words``; ``commands``: all command names; ``folder``: the working directory. Precedence: command
    line, auditor.toml, pyproject.toml; in a file, the table of the command before the top level. Errors:
    :class:`AuditInputError` with file and key.
    """
    parser = parser_of(words[0]) if words and words[0] in commands else None
    if parser is None:
        return Parsed(top.parse_args(words))
    finder = type(top)(prog=parser.prog, add_help=False)
    add_option(finder)
    given = finder.parse_known_args(words[1:])[0].config
    files = sources(given, folder)
    files, ignored = harmless(files) if given is None else (files, [])
    settings = config_settings(files, words[0], commands, parser_of)
    actions = options(parser)
    named = settings.pop(CLUSTERS, None)
    for key in settings:
        actions[key].default, actions[key].required = argparse.SUPPRESS, False
    args = top.parse_args(words)
    if named is not None and hasattr(args, CLUSTERS):
        setattr(args, CLUSTERS, named.value)
    counting = [setting for key, setting in settings.items() if not hasattr(args, actions[key].dest)]
    for setting in counting:
        setattr(args, actions[setting.key].dest, setting.value)
    return Parsed(args, counting, ignored)


def sources(given: Path | None, folder: Path) -> list[Source]:
    """Return the existing options files in order of precedence. Of a ``pyproject.toml`` only the table
    ``[tool.auditor]`` counts."""
    if given is not None:
        return [_project(given, str(given))] if given.name == PROJECT else [Source(str(given), user_input.read(given))]
    files = []
    if (own := folder / FILE).is_file():
        files.append(Source(FILE, user_input.read(own)))
    if (project := folder / PROJECT).is_file():
        files.append(_project(project, PROJECT))
    return files


def _project(path: Path, name: str) -> Source:
    tool = user_input.read(path).get("tool")
    says = tool.get("auditor", {}) if isinstance(tool, dict) else {}
    if not isinstance(says, dict):
        raise AuditInputError(f"{path}: tool.auditor is not a table; write [tool.auditor]")
    return Source(f"{name} [tool.auditor]", says)


def harmless(files: Sequence[Source]) -> tuple[list[Source], list[str]]:
    """Return the part of unnamed options files that takes effect, and one message per ignored key."""
    effective: list[Source] = []
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
        effective.append(Source(file, takes))
        ignored += [f"{file}: {key} ignored (to use it: {OPTION} {name})" for key in unused[:MOST_IGNORED]]
        if more := len(unused[MOST_IGNORED:]):
            ignored.append(f"{file}: {plural(more, 'more key')} ignored (to use them: {OPTION} {name})")
    return effective, ignored


def config_settings(
    files: Sequence[Source], command: str, commands: Sequence[str], parser_of: ParserOf
) -> dict[str, OptionSetting]:
    """Return the settings of files for a command by key, all checked. Errors: :class:`AuditInputError`."""
    actions = options(parser_of(command))
    settings: dict[str, OptionSetting] = {}
    for file, says in reversed(files):
        tables = {key: value for key, value in says.items() if isinstance(value, dict)}
        for key, value in says.items():
            if key in tables:
                continue
            if key in actions:
                settings[key] = OptionSetting(file, key, checked(actions[key], value, f"{file}: {key}"))
            elif not any(key in options(parser_of(name)) for name in commands):
                raise AuditInputError(f"{file}: unknown option {key!r}; run 'auditor COMMAND --help' for the options")
        for name, table in tables.items():
            if name == CLUSTERS:
                settings[name] = OptionSetting(file, name, of_table(table, f"{file}: [{name}]"))
                continue
            if name not in commands:
                raise AuditInputError(f"{file}: unknown command [{name}]: expected one of {', '.join(commands)}")
            own = options(parser_of(name))
            for key, value in table.items():
                if key not in own:
                    raise AuditInputError(
                        f"{file}: unknown option {key!r} in [{name}]; run 'auditor {name} --help' for the options"
                    )
                setting = OptionSetting(file, key, checked(own[key], value, f"{file}: [{name}] {key}"))
                settings |= {key: setting} if name == command else {}
    return settings


def options(parser: argparse.ArgumentParser | None) -> dict[str, argparse.Action]:
    """Return a command's options by name, without dashes. argparse has no public list of them."""
    return {
        name.removeprefix("--"): action
        for action in (parser._actions if parser is not None else ())
        for name in action.option_strings
        if name.startswith("--") and action.dest not in _NOT_FOR_FILES
    }


def checked(action: argparse.Action, value: object, place: str) -> Any:
    """Convert a value from TOML as the command line would. Errors: :class:`AuditInputError`, naming ``place``."""
    if action.nargs == 0:
        return _of_type(value, (bool,), "true or false", place)
    many = action.nargs if isinstance(action.nargs, int) else None
    if many is None and not isinstance(action, argparse._AppendAction):
        return _single(action, value, place)
    says = "a list" if many is None else f"a list of {many}"
    values = _of_type(value, (list,), says, place)
    if many is not None and len(values) != many:
        raise AuditInputError(f"{place} has {len(values)} values: expected {says}")
    return [_single(action, item, place) for item in values]


def _single(action: argparse.Action, value: Any, place: str) -> Any:
    types, says = _KINDS.get(action.type, ((str,), "a string in quotes"))
    _of_type(value, types, says, place)
    try:
        made = action.type(value) if callable(action.type) else value
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise AuditInputError(f"{place}: {error}") from None
    if action.choices is not None and made not in action.choices:
        raise AuditInputError(f"{place} is {value!r}: expected one of {', '.join(map(str, action.choices))}")
    return made


def _of_type(value: object, types: tuple[type, ...], says: str, place: str) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise AuditInputError(f"{place} is {value!r}: expected {says}")
    return value
