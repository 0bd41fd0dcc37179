"""The dashboard as static files, for any web server or bucket: what changed since the last time is written.

Nothing here faces a network, and nothing is taken away: a finding that is gone keeps its page, which says so.
``pages.json``, written last, says of each page what it was made of. Two writers at a time each write whole pages of
what they saw; the next one has them all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.base.version import VERSION
from auditor.connectors.stores.results import Folder, folder, why
from auditor.connectors.stores.retries import REFUSED, side_by_side
from auditor.dashboards import addresses
from auditor.outputs.runs import History, Run
from auditor.outputs.shelf import Shelf
from auditor.outputs.site import Site
from auditor.rules.seen.view import SEVERITIES

LIST, KIND = "pages.json", "text/html; charset=utf-8"
MOST_FINDINGS = 2000  # of a cluster that get a page at a time, those of the last run first, the gravest first
AT_ONCE = 32  # pages in memory


class Page(NamedTuple):
    """A page that is to be there: its address, what it is made of, and how it is made."""

    path: str
    stamp: str
    made: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Written:
    """What an export did: pages that were written, that were as they had to be, and findings that got none."""

    pages: int
    unchanged: int
    left: int


def export(history: History, to: History, every_ms: int | None = None) -> Written:
    """Writes the pages over a history into a folder of this machine or of a store.

    Errors: :class:`AuditInputError` where either cannot be read or written.
    """
    out = folder(to)
    try:
        before = _stamps(out)
        there: set[str] = set(before)
        site = Site(Shelf(history), every_ms, there.__contains__)
        wanted = list(_pages(site))
        left = sum(max(0, len(site.seen(id).places) - MOST_FINDINGS) for id in site.by_cluster)
        there |= {page.path for page in wanted}
        due = [page for page in wanted if before.get(page.path) != page.stamp]
        for at in range(0, len(due), AT_ONCE):
            texts = {page.path: page.made().encode("utf-8", "replace") for page in due[at : at + AT_ONCE]}
            side_by_side(partial(_put, out, texts), list(texts))
        stamps = before | {page.path: page.stamp for page in wanted}
        out.put(LIST, (json.dumps({"pages": stamps}, indent=0, sort_keys=True) + "\n").encode(), "application/json")
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"cannot write to {out.shown}: {why(error)}; choose another --export") from error
    return Written(len(due), len(wanted) - len(due), left)


def _put(out: Folder, texts: Mapping[str, bytes], path: str) -> None:
    out.put(path, texts[path], KIND)


def _stamps(out: Folder) -> dict[str, str]:
    """What the pages that are there were made of; none where a list is not there or not ours."""
    try:
        found = json.loads(out.get(LIST) or b"{}")["pages"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {str(path): str(stamp) for path, stamp in found.items()} if isinstance(found, dict) else {}


def _pages(site: Site) -> Iterator[Page]:
    """The pages that are to be there: front and clusters, the report of each cluster's last run, and findings, whose
    story is that of the runs that looked at all, where these have them."""
    yield Page(addresses.FRONT, datetime.now(UTC).isoformat(), site.front)  # who is overdue is asked anew
    told: set[str] = set()
    for id, mine in site.by_cluster.items():
        last = mine[-1]
        yield Page(addresses.cluster(id), _stamp(*map(_of, mine)), partial(site.of_cluster, mine, -1, "../"))
        yield Page(addresses.report(last.run_id), _stamp(_of(last)), partial(site.report, last))
        places = site.seen(id).places
        names = sorted(places.keys() - told, key=lambda name: (_rank(places[name]), name))[:MOST_FINDINGS]
        told.update(places)
        for name in names:
            until = site.until(id, name)
            runs = [f"{_of(mine[at])} {places[name].get(at)}" for at in range(min(places[name]), until + 1)]
            yield Page(addresses.finding(name), _stamp(*runs), partial(site.story, id, name))


def _rank(places: dict[int, str]) -> tuple[int, int]:
    last = max(places)
    return -last, SEVERITIES.index(places[last])


def _of(run: Run) -> str:
    return f"{run.run_id} {run.published_at}"


def _stamp(*of: str) -> str:
    return hashlib.sha256("\n".join([VERSION, *of]).encode("utf-8", "replace")).hexdigest()[:32]
