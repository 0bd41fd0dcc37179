"""What every page has in common: templates that escape by default, one style, one script, and a strict policy.

Style and script stand in the page and are the only ones that its content security policy lets run, by their hashes.
The script sorts, filters and copies; it writes no markup.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import inspect
import sys
from importlib.resources import files

from jinja2 import Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
from markupsafe import Markup

from auditor.base.compiled import folder_for
from auditor.base.words import duration, plural
from auditor.dashboards import answers, happened, timeline, verdict, wording


def render(template: str, **content: object) -> str:
    """A whole page as text, to be written as UTF-8. A name that ``template`` asks for and ``content`` lacks raises."""
    style, script = _asset("report.css"), _asset("report.js")
    return (
        _environment()
        .get_template(template)
        .render(**content, style=style, script=script, policy=_content_policy(style, script))
    )


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("auditor.dashboards"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_kept_templates(),
    )
    names = (
        "number",
        "size",
        "instant",
        "value",
        "log_name",
        "offsets",
        "who",
        "pieces",
        "unsaid",
        "new_in",
        "clip",
        "short_fingerprint",
    )
    environment.filters |= {name: getattr(wording, name) for name in names} | {"plural": plural, "duration": duration}
    environment.filters |= {
        "held_for": verdict.held_for,
        "aged": verdict.aged,
        "begun": verdict.begun,
        "when": happened.when,
        "baseline_said": verdict.baseline,
        "advised": answers.advised,
    }
    environment.globals["in_words"] = timeline.in_words
    return environment


def _kept_templates() -> FileSystemBytecodeCache | None:
    """Compiled templates, kept by their source and by what else they are compiled from: a third of a page's time."""
    folder = folder_for(__name__, __file__)
    if folder is None:
        return None
    told = importlib.metadata.version("jinja2") + inspect.getsource(sys.modules[__name__])
    return FileSystemBytecodeCache(str(folder), f"page-{hashlib.sha256(told.encode()).hexdigest()[:16]}-%s.cache")


def _finalize(content: object) -> object:
    """What every expression of a template passes through before it is escaped: hidden characters become visible."""
    if content is None:
        return "–"
    return wording.visible(content) if isinstance(content, str) and not isinstance(content, Markup) else content


@functools.cache
def _asset(name: str) -> Markup:
    """A style sheet or script of the package, trusted: it is part of this program and holds no data."""
    return Markup(files("auditor.dashboards").joinpath("static", name).read_text(encoding="utf-8"))


def _content_policy(style: str, script: str) -> str:
    """Nothing may be loaded, and only the page's own style and script may run."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
