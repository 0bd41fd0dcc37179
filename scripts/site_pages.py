"""The pages that are made from the code while ``make docs`` builds the site: a hook of mkdocs (mkdocs.yml)."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs runs a hook by its path

from auditor.base.words import GLOSSARY  # noqa: E402
from auditor.cli import GROUPS, main, parsers  # noqa: E402
from auditor.dashboards.answers import report_of  # noqa: E402
from auditor.dashboards.metrics import write_metrics  # noqa: E402
from auditor.rules.catalogue import registry  # noqa: E402
from auditor.rules.catalogue import registry as text_pages  # noqa: E402
from auditor.rules.catalogue.kinds import FAMILIES  # noqa: E402
from auditor.rules.catalogue.registry import (  # noqa: E402
    SECTIONS,
    Kind,
    Rule,
)

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


SCHEMA = ROOT / "auditor" / "outputs" / "finding.schema.json"
FINDINGS = """# Findings

Each line of `findings.jsonl` is a finding: an object with exactly these fields. In the table
[findings](tables.md#findings) each is a column.

| field | type | content |
| --- | --- | --- |
{fields}

Findings are sorted by severity (critical first), topic, partition, broker, offset, then the other fields; nulls first.
The same input gives the same bytes.

## JSON Schema

The package has it as `auditor/outputs/finding.schema.json`.

```json
{schema}
```
"""
METRICS = """# Metrics

`metrics.prom` is for node-exporter's textfile collector; every series is a gauge and names its `cluster`.
[Metrics and alerts](monitoring.md) explains them and the alerts that come with the project.

| series | meaning |
| --- | --- |
{series}
"""
GLOSSARY_PAGE = """# Glossary

Terms of Kafka in reports and in `auditor rules ID`.

| term | meaning |
| --- | --- |
{words}
"""
FETCHED = re.compile(r"""<(?:script|img|iframe|link(?! rel="canonical"))[^>]* (?:src|href)="(https?://[^"]+)""")
BLANK = {"inputs": [], "policy": [{"policy": "auto"}], "tool": {"version": "0"}, "bytes": {}, "logs": []}


def on_config(config: MkDocsConfig) -> None:
    """Gives the commands and rules their places in the navigation."""
    children = {"Commands": "commands/", "Rules": "rules/"}
    for entry in config.nav or ():
        for title, folder in children.items():
            if isinstance(entry, dict) and title in entry:
                entry[title] += sorted(p for p in pages() if p.startswith(folder) and not p.endswith("index.md"))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the pages to those of docs/."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "demo.html", content=demo_report()))


def demo_report() -> str:
    """The report of ``auditor demo``, as it is written: it stands by itself and fetches nothing."""
    with tempfile.TemporaryDirectory() as folder:
        if status := main(["demo", "--out", folder, "--master", "inline[1]", "--quiet"]):
            raise SystemExit(status)
        return (Path(folder) / "report.html").read_text(encoding="utf-8")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts what a rule says of itself where a page has ``<!-- rule: ID -->``, so that the two cannot differ."""
    return re.sub(r"<!-- rule: ([\w-]+) -->", lambda found: excerpt(registry.kinds()[found[1]]), markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Errors: mkdocs' own where a page would fetch something from another site."""
    from mkdocs.exceptions import PluginError

    if fetched := FETCHED.search(output):
        raise PluginError(f"a page fetches {fetched[1]}; pages open offline")
    return output


def pages() -> dict[str, str]:
    """Every page that is made here, by its path below docs/."""
    known = registry.load()
    commands = parsers()[1]
    made = {"commands/index.md": command_index(commands), "rules/index.md": rule_index(known)}
    made |= {f"commands/{name}.md": command_page(parser) for name, parser in commands.items()}
    made |= {f"rules/{kind.id}.md": kind_page(kind) for kind in registry.kinds().values()}
    made |= {f"rules/{rule.id}.md": rule_page(rule) for rule in known.values()}
    return made | {"findings.md": finding_page(), "metrics.md": metrics_page(), "glossary.md": glossary_page()}


def command_index(commands: dict[str, argparse.ArgumentParser]) -> str:
    """The commands by group."""
    says = summaries()
    lines = ["# Commands", "", "`auditor COMMAND --help` prints the same on a terminal."]
    for group, names in GROUPS.items():
        lines += ["", f"## {group.capitalize()}", "", "| command | description |", "| --- | --- |"]
        dashed = [name.replace("_", "-") for name in names]
        lines += [f"| [`auditor {name}`]({name}.md) | {says[name]} |" for name in dashed if name in commands]
    return "\n".join(lines) + "\n"


def summaries() -> dict[str, str]:
    """What each command does, as the list of commands says it."""
    return {name: does for group in parsers()[0].groups.values() for name, does in group.items()}


def command_page(parser: argparse.ArgumentParser) -> str:
    """A command's usage, options by group with their defaults, and examples."""
    usage = re.sub(r"\s+", " ", parser.format_usage()).removeprefix("usage: ")
    does = parser.description or summaries()[parser.prog.removeprefix("auditor ")]
    lines = [f"# {parser.prog}", "", _sentence(does) + ".", ""]
    lines += ["```text", usage.strip(), "```"]
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if actions:
            lines += ["", f"## {(group.title or 'Options').capitalize()}", ""]
            lines += ["| option | meaning |", "| --- | --- |", *(_option(parser, action) for action in actions)]
    if parser.epilog:
        calls = [line.strip() for line in parser.epilog.splitlines()[1:]]
        lines += ["", "## Examples", "", "```sh", *calls, "```"]
    return "\n".join(lines) + "\n"


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    value = action.metavar or choices
    shown = value if action.nargs != 0 else ""
    names = ", ".join(f"`{f'{name} {shown}'.strip()}`" for name in action.option_strings) or f"`{value}`"
    says = parser._get_formatter()._expand_help(action) if action.help else ""
    return "| " + " | ".join(text.replace("|", "\\|") for text in (names, says)) + " |"


def rule_index(known: Mapping[str, Rule]) -> str:
    """All rules by family."""
    lines = ["# Rules", "", "`auditor rules` lists them. `auditor rules ID` prints the same as these pages."]
    for family in FAMILIES:
        lines += ["", f"## {family.capitalize()}", "", "| rule | finds | severity |", "| --- | --- | --- |"]
        of_it = (rule for rule in known.values() if rule.family == family)
        lines += [f"| [`{rule.id}`]({rule.id}.md) | {_cell(rule.title)} | {_cell(rule.severity)} |" for rule in of_it]
    return "\n".join(lines) + "\n"


def rule_page(rule: Rule) -> str:
    """All about one rule."""
    needs = [text for flag, text in ((rule.records, "It needs `--records`."), (rule.time, "It depends on `--as-of`."),
                                     (rule.what_if, "It is only in `auditor what-if`.")) if flag]  # fmt: skip
    lines = [f"# {rule.id}", "", f"**{rule.title}.** Severity: {rule.severity}. {' '.join(needs)}".rstrip()]
    if len(rule.kinds) > 1:
        lines += ["", "| kind | finds | severity |", "| --- | --- | --- |"]
        lines += [f"| `{kind.id}` | {_cell(kind.title)} | {_cell(kind.severity)} |" for kind in rule.kinds]
    for name in SECTIONS:
        lines += ["", f"## {name}"]
        for kind, text in rule.said(name):
            if name == "Can be wrong":
                lines += ["", *([f"`{kind}`:", ""] if kind else [])]
                lines += [f"- {_sentence(cause)}" for cause in text_pages.causes(text)]
            else:
                lines += ["", f"`{kind}`: {text}" if kind else _sentence(text)]
    if causes := dict.fromkeys(name for by in rule.absorbed_by for name in by.rules):
        beside = ", ".join(f"[`{name}`]({_page_of(name)}.md)" for name in causes)
        lines += ["", "## Not reported on its own beside", "", f"{beside}, whose evidence it then is."]
    if rule.prevented_by:
        lines += ["", "## Prevented by", "", *(f"- {safeguard.setting}" for safeguard in rule.prevented_by)]
    return "\n".join(lines) + "\n"


def _page_of(name: str) -> str:
    """The rule with this id, or with a kind of this id."""
    rule = registry.rule_of(name)
    assert rule is not None
    return rule.id


def kind_page(kind: Kind) -> str:
    """Where one looks for a kind of findings by its id, which was a rule's before."""
    return f"# {kind.id}\n\n**{kind.title}.** A kind of findings of [`{kind.rule}`]({kind.rule}.md).\n"


def excerpt(kind: Kind) -> str:
    """A kind of findings as runbooks quote it."""
    lines = [f'!!! quote "[{kind.id}](rules/{kind.rule}.md): {kind.title} ({kind.severity})"', ""]
    for name in ("What to do", "Can be wrong"):
        lines += [f"    **{name}:** {_sentence(kind.sections[name])}", ""]
    return "\n".join(lines)


def finding_page() -> str:
    """The fields of a finding, and its JSON Schema."""
    text = SCHEMA.read_text(encoding="utf-8")
    lines = []
    for name, field in json.loads(text)["properties"].items():
        kinds = field.get("type", "string")
        kind = " or ".join([kinds] if isinstance(kinds, str) else kinds)
        values = f" One of {', '.join(value or 'null' for value in field['enum'])}." if "enum" in field else ""
        lines.append(f"| `{name}` | {kind} | {field['description']}{values} |")
    return FINDINGS.format(fields="\n".join(lines), schema=text.rstrip())


def metrics_page() -> str:
    """The series of ``metrics.prom``, as the file itself explains them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "metrics.prom"
        write_metrics(file, report_of((), BLANK))
        found = re.findall(r"^# HELP (\w+) (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return METRICS.format(series="\n".join(f"| `{name}` | {_cell(says)} |" for name, says in found))


def glossary_page() -> str:
    """Terms of Kafka in plain words."""
    return GLOSSARY_PAGE.format(
        words="\n".join(f"| {word} | {_cell(says)} |" for word, says in sorted(GLOSSARY.items()))
    )


def _cell(text: str) -> str:
    return re.sub(r"(?<!`)\b(__\w+)", r"`\1`", text.replace("|", "\\|"))


def _sentence(text: str) -> str:
    plain = _cell(" ".join(text.split()))
    return plain[0].upper() + plain[1:]
