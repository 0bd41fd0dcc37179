"""Options that commands share, and where they come from."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from auditor.base import user_input
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import DEFAULT_LIMITS, IN_ALL, OF_A_RULE, AuditInputError
from auditor.base.user_input import of_table, since_of
from auditor.base.words import did_you_mean, plural
from auditor.dashboards.finding_groups import LEAST, Printing, Selection
from auditor.dashboards.output_formats import FORMATS
from auditor.model.policies import AUTO, CHOICES
from auditor.pipeline.options import DEFAULT_SPLIT_BYTES, LEVELS, AuditOptions, limits_of, out_of, parse_time

if TYPE_CHECKING:
    from auditor.outputs.alerts import AlertOptions


# argparse as the auditor uses it: mistakes in one line, help in groups with examples and every default.


_NONE = (None, False, argparse.SUPPRESS)  # defaults that say nothing


class Help(argparse.RawDescriptionHelpFormatter):
    """Says every default; descriptions and examples stay as they are written."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if not action.option_strings or "default" in text or action.default in _NONE or action.default == []:
            return text
        return f"{text} (default %(default)s)".lstrip()


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
        if match := re.fullmatch(r"unrecognized arguments: (--[^\s=]+).*", message, re.DOTALL):
            return did_you_mean(match[1], self._option_string_actions)
        if match := re.match(r"argument \S+: invalid choice: '([^']*)'", message):
            sets = (action.choices for action in self._actions if action.choices is not None)
            return did_you_mean(match[1], (str(name) for choices in sets for name in choices))
        return ""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of argparse; a command says itself which of its options there is none of, and which was meant."""
        parsed, left = self.parse_known_args(args, namespace)
        if left:
            commands = getattr(parsed, "commands", {})
            parser = next((commands[word] for word in args or () if word in commands), self)
            parser.error(f"unrecognized arguments: {' '.join(left)}")
        return parsed


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


# The options that commands share: those of ``audit``, and how a run is started.


CHANNELS = ("slack", "pagerduty", "webhook")  # of auditor.outputs.alerts
NEWEST, WALL = "the newest time a broker wrote", "the clock on the wall"


def add_master(p: argparse._ActionsContainer) -> None:
    """The option that says how to run."""
    p.add_argument(
        "--master",
        metavar="URL",
        help="Spark master (default local[*]); inline or inline[N]: without Spark, in N processes",
    )


def add_remote(p: argparse.ArgumentParser) -> None:
    """The option that says where the remote part of tiered topics is."""
    p.add_argument(
        "--remote",
        action="append",
        default=[],
        metavar="DIR",
        help="remote part of tiered topics, of LocalTieredStorage or Aiven's RemoteStorageManager (repeatable); found "
        "below a PATH too",
    )


def add_scope(g: argparse._ActionsContainer, clock: str = "records' times") -> None:
    """The options that say what is read."""
    g.add_argument("--topic", action="append", default=[], metavar="GLOB", help="read only these topics (repeatable)")
    g.add_argument(
        "--only-partition",
        action="append",
        default=[],
        metavar="GLOB",
        help="read only these partitions: TOPIC-N, or N of any topic (repeatable); internal topics always are read",
    )
    g.add_argument(
        "--only-broker",
        action="append",
        default=[],
        type=int,
        metavar="ID",
        help="read only the copies of this broker (repeatable)",
    )
    g.add_argument(
        "--since",
        metavar="OFFSET|TIME",
        help="read from the newest segment with a producer snapshot at or below this offset, or from the segment that "
        f"has this time (ISO-8601, by {clock}); what is held from before is named all the same",
    )


def scope_options(args: argparse.Namespace) -> Fields:
    """What :func:`add_scope` says, as :class:`AuditOptions` has it. Errors: :class:`AuditInputError`."""
    return {
        "topics": tuple(args.topic),
        "only_partitions": tuple(args.only_partition),
        "only_brokers": tuple(args.only_broker),
        "since": None if args.since is None else since_of(args.since),
    }


def add_audit_options(
    p: argparse.ArgumentParser,
    paths: bool = True,
    formats: Sequence[str] = FORMATS,
    clock: str = NEWEST,
    plan: bool = False,
) -> None:
    """The options of ``audit``; ``live`` has the same but for PATH, ``watch`` has fewer ``formats``; ``clock`` says in
    words which time a command goes by where none is given; ``plan``: it has ``--plan``, and needs no ``--out``."""
    if paths:
        p.add_argument(
            "paths", nargs="+", metavar="PATH", help="log directory, folder above some, partition folder, file, URI"
        )
        add_remote(p)
    _what_is_audited(p.add_argument_group("what is audited"), clock)
    _what_counts(p.add_argument_group("what counts"))
    _what_is_printed(p.add_argument_group("what is printed; results and exit status are of all"), formats, paths)
    _what_is_written(p.add_argument_group("what is written"), needs_out=not plan)
    how = p.add_argument_group("how it runs")
    if plan:
        how.add_argument(
            "--work",
            metavar="DIR|URI",
            help="keep there what was read of each partition: the next audit of the same input, after whatever ended "
            "this one, reads nothing twice; on a cluster a URI or a mount that all share",
        )
        how.add_argument(
            "--resume", action="store_true", help="go on in --work, which an earlier audit must have begun"
        )
        how.add_argument(
            "--plan",
            action="store_true",
            help="only say what would be read, in how many tasks, and about how long it takes; needs no --out",
        )
    _how_it_runs(how)


def _what_is_audited(g: argparse._ArgumentGroup, clock: str) -> None:
    add_scope(g)
    g.add_argument("--rule", action="append", default=[], metavar="ID", help="only this rule (repeatable)")
    g.add_argument("--skip-rule", action="append", default=[], metavar="ID", help="all but this rule (repeatable)")
    g.add_argument("--records", action="store_true", help="decode every record too (KIP-467 checks)")
    g.add_argument(
        "--policy",
        default=AUTO,
        choices=CHOICES,
        metavar="NAME",
        help=f"which brokers' rules the log was written under: {', '.join(CHOICES)} (default %(default)s)",
    )
    g.add_argument(
        "--as-of",
        metavar="TIME",
        help=f"clock that time-outs are judged by: ISO-8601, epoch ms or now (default: {clock})",
    )
    g.add_argument(
        "--at-once",
        action="store_true",
        help="every file is of one moment, as in a snapshot of the file system: nothing is put down to copying",
    )
    g.add_argument(
        "--whole",
        action="store_true",
        help="all log.dirs of each broker are in the input: a replica without a folder is lost, not left out",
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
        help="exit 1 also where a partition is held for longer than is normal, if it is held still, which is not known",
    )
    g.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="findings that are accepted: not printed, no alert, no failure ('auditor baseline' writes it)",
    )
    g.add_argument(
        "--alert",
        action="append",
        default=[],
        choices=CHANNELS,
        metavar="CHANNEL",
        help=f"send alerts: {', '.join(CHANNELS)} (repeatable); secrets are in the environment or in files",
    )
    g.add_argument(
        "--alert-on",
        default="error",
        choices=LEVELS[:-1],
        metavar="SEVERITY",
        help="alert at this severity or above (default %(default)s)",
    )
    g.add_argument(
        "--dashboard-url",
        metavar="URL",
        default="",
        help="where 'auditor dashboard --export' puts its pages: alerts link to each finding's own",
    )


def _what_is_printed(g: argparse._ArgumentGroup, formats: Sequence[str], bootstrap: bool) -> None:
    g.add_argument(
        "--format",
        default="table",
        choices=formats,
        metavar="FORMAT",
        help=f"{', '.join(formats)} (default %(default)s); but for table, people's words go to standard error",
    )
    g.add_argument(
        "--min-severity",
        choices=LEVELS[:-1],
        metavar="SEVERITY",
        help="only findings of this severity or above (default: warning for people, in tables and markdown; else all)",
    )
    g.add_argument(
        "--partition",
        action="append",
        default=[],
        metavar="GLOB",
        help="only of these partitions: TOPIC-N, or N of any topic (repeatable)",
    )
    g.add_argument(
        "--broker", action="append", default=[], type=int, metavar="ID", help="only of this broker (repeatable)"
    )
    g.add_argument(
        "--transactional-id", action="append", default=[], metavar="GLOB", help="only of these ids (repeatable)"
    )
    g.add_argument("--group", action="append", default=[], metavar="GLOB", help="only of these groups (repeatable)")
    if bootstrap:
        g.add_argument(
            "--bootstrap-server", metavar="H:P", help="put into the commands that remedies print (default B)"
        )
    g.add_argument("--verbose", action="store_true", help="every finding and every partition, not only their causes")
    g.add_argument("--quiet", action="store_true", help="nothing but errors")


def _what_is_written(g: argparse._ArgumentGroup, needs_out: bool) -> None:
    required = "required" if needs_out else "on a terminal by default a folder here, named after the time"
    g.add_argument(
        "--out",
        type=out_of,
        required=needs_out,
        metavar="DIR",
        help=f"where results are written: a folder or URI ({required})",
    )
    g.add_argument(
        "--max-findings",
        type=int,
        default=OF_A_RULE,
        metavar="N",
        help=f"of a rule in a partition (default {OF_A_RULE}; {IN_ALL} times as many in all), those beyond are summed",
    )
    g.add_argument("--tables", action="store_true", help="the decoded and derived tables as Parquet")
    g.add_argument("--include-payload", action="store_true", help="let record keys and values into the tables")
    g.add_argument("--expectations", action="store_true", help="run the great-expectations suites over the results")
    g.add_argument(
        "--history",
        type=out_of,
        metavar="DIR",
        help="keep this run's results under DIR, a folder or URI ('auditor history')",
    )
    g.add_argument(
        "--cluster-name",
        metavar="NAME",
        help="what people call the cluster (of several: [clusters] in auditor.toml, by their ids)",
    )
    g.set_defaults(clusters=())
    g.add_argument(
        "--run-id", metavar="ID", help="what the kept run is called (default: the time); a run of that id is replaced"
    )


def _how_it_runs(g: argparse._ArgumentGroup) -> None:
    add_master(g)
    g.add_argument(
        "--split-size",
        type=int,
        default=DEFAULT_SPLIT_BYTES,
        metavar="BYTES",
        help="tables: bytes of a segment that a task reads",
    )
    add_limits(g)


def printing(args: argparse.Namespace) -> Printing:
    """What is printed, and how."""
    least, asked = args.min_severity or LEAST, args.min_severity == LEAST
    shown = Selection(
        least, tuple(args.partition), tuple(args.broker), tuple(args.transactional_id), tuple(args.group), asked
    )
    return Printing(args.format, args.quiet, args.verbose, shown)


def alerting(args: argparse.Namespace) -> AlertOptions:
    """Whom to alert, and of what."""
    from auditor.outputs.alerts import AlertOptions  # only now: it brings all that an audit is made of

    return AlertOptions(tuple(args.alert), args.alert_on, args.dashboard_url)


def audit_options(args: argparse.Namespace, paths: Sequence[str]) -> AuditOptions:
    """The options as checked data. Errors: :class:`AuditInputError`."""
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
        include_payload=args.include_payload, history=args.history, run_id=run_id, max_findings=args.max_findings,
        bootstrap=getattr(args, "bootstrap_server", None), baseline=args.baseline,
        remote=tuple(getattr(args, "remote", ())), work=getattr(args, "work", None),
        resume=getattr(args, "resume", False), at_once=args.at_once, fail_on_unsure=args.fail_on_unsure,
        whole=args.whole, cluster_name=args.cluster_name, clusters=args.clusters, **scope_options(args),
    )  # fmt: skip


# Options from a file: ``auditor.toml``, ``[tool.auditor]`` of pyproject.toml, or the one that ``--config`` names.
#
# What a file may say, and of which type, follows from the options as argparse has them: a key is an option's name
# without
# its dashes. A key at the top is for every command that has the option, one below ``[COMMAND]`` for that command alone.
#
# The working directory may be somebody else's, such as an unpacked ticket. Unless ``--config`` names the file, only
# :data:`HARMLESS` options and ``[clusters]`` are taken from it, and every other key is listed as ignored.


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


class OptionSetting(NamedTuple):
    """An option's value and the file it came from."""

    file: str
    key: str
    value: Any


class Parsed(NamedTuple):
    """The arguments of a call, the settings of files that took effect, and a message for each key that was ignored."""

    args: argparse.Namespace
    settings: Sequence[OptionSetting] = ()
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
    """The options files that exist, in the order of precedence. Of a ``pyproject.toml``, named or not, its
    table ``[tool.auditor]``."""
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
        raise AuditInputError(f"{path}: tool.auditor is no table; write [tool.auditor]")
    return Source(f"{name} [tool.auditor]", says)


def harmless(files: Sequence[Source]) -> tuple[list[Source], list[str]]:
    """The part of files in the working directory that takes effect, and a message for each key that does not."""
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
        ignored += [f"{file}: {key} ignored; use {OPTION} {name}" for key in unused[:MOST_IGNORED]]
        if more := len(unused[MOST_IGNORED:]):
            ignored.append(f"{file}: {plural(more, 'more key')} ignored; use {OPTION} {name}")
    return effective, ignored


def config_settings(
    files: Sequence[Source], command: str, commands: Sequence[str], parser_of: ParserOf
) -> dict[str, OptionSetting]:
    """What files say for a command, by key, all of it checked. Errors: :class:`AuditInputError`."""
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
                raise AuditInputError(f"{file}: no command has an option named {key!r}; 'auditor COMMAND --help'")
        for name, table in tables.items():
            if name == CLUSTERS:
                settings[name] = OptionSetting(file, name, of_table(table, f"{file}: [{name}]"))
                continue
            if name not in commands:
                raise AuditInputError(f"{file}: [{name}] is no command; one of {', '.join(commands)}")
            own = options(parser_of(name))
            for key, value in table.items():
                if key not in own:
                    raise AuditInputError(f"{file}: [{name}] has no option {key!r}; 'auditor {name} --help' lists them")
                setting = OptionSetting(file, key, checked(own[key], value, f"{file}: [{name}] {key}"))
                settings |= {key: setting} if name == command else {}
    return settings


def options(parser: argparse.ArgumentParser | None) -> dict[str, argparse.Action]:
    """A command's options by their names without dashes. argparse has no public list of them."""
    return {
        action.option_strings[-1].lstrip("-"): action
        for action in (parser._actions if parser is not None else ())
        if action.option_strings and action.dest not in _NOT_FOR_FILES
    }


def checked(action: argparse.Action, value: object, place: str) -> Any:
    """A value from TOML as the command line would have given it. Errors: :class:`AuditInputError`, naming ``at``."""
    if action.nargs == 0:
        return _of_type(value, (bool,), "true or false", place)
    many = action.nargs if isinstance(action.nargs, int) else None
    if many is None and not isinstance(action, argparse._AppendAction):
        return _single(action, value, place)
    says = "a list" if many is None else f"a list of {many}"
    values = _of_type(value, (list,), says, place)
    if many is not None and len(values) != many:
        raise AuditInputError(f"{place} is {says}, not of {len(values)}")
    return [_single(action, item, place) for item in values]


def _single(action: argparse.Action, value: Any, place: str) -> Any:
    types, says = _KINDS.get(action.type, ((str,), "a text in quotes"))
    _of_type(value, types, says, place)
    try:
        made = action.type(value) if callable(action.type) else value
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise AuditInputError(f"{place}: {error}") from None
    if action.choices is not None and made not in action.choices:
        raise AuditInputError(f"{place} is {value!r}; one of {', '.join(map(str, action.choices))}")
    return made


def _of_type(value: object, types: tuple[type, ...], says: str, place: str) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise AuditInputError(f"{place} is {says}, not {value!r}")
    return value
