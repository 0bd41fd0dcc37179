"""What people call a cluster, whose id nobody knows by heart: a name, its owner, a link, labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from auditor.base import toml_files
from auditor.base.errors import AuditInputError
from auditor.base.values import Fields, Values

MOST = 200  # characters of each text


class Named(NamedTuple):
    """A cluster as people know it; what nobody said is empty. ``link``: of its page, http or https."""

    name: str
    owner: str = ""
    link: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def row(self) -> Fields:
        """For JSON."""
        return {**self._asdict(), "labels": dict(self.labels)}


Names = tuple[tuple[str, Named], ...]  # by the cluster's id


def of_table(table: Values, at: str) -> Names:
    """The table ``[clusters]`` of a file of options: an id's name, or a table of what is known.

    Errors: :class:`AuditInputError`, naming ``at``, the file and the table.
    """
    return tuple((id, _named(says, f"{at} {toml_files.shown_key(id)}")) for id, says in table.items())


def of_file(path: Path) -> Names:
    """The table ``[clusters]`` of a file of options. Errors: :class:`AuditInputError`, naming the file."""
    table = toml_files.read(path).get("clusters")
    if not isinstance(table, dict):
        raise AuditInputError(f'{path} has no table [clusters]; write [clusters] and a line CLUSTER-ID = "name" each')
    return of_table(table, f"{path}: [clusters]")


def _named(says: object, at: str) -> Named:
    known = {"name": says} if isinstance(says, str) else says
    if not isinstance(known, dict) or not {"name"} <= known.keys() <= set(Named._fields):
        raise AuditInputError(f"{at} is a name, or a table with name and, where wanted, owner, link and labels")
    labels = known.get("labels", {})
    if not isinstance(labels, dict):
        raise AuditInputError(f'{at} labels is a table, such as {{ stage = "prod" }}')
    found = Named(**{**known, "labels": tuple(labels.items())})
    for text in (found.name, found.owner, found.link, *(part for label in found.labels for part in label)):
        if not isinstance(text, str) or len(text) > MOST or not text.isprintable():
            raise AuditInputError(f"{at}: a text is of at most {MOST} printable characters")
    if not found.name:
        raise AuditInputError(f"{at} has an empty name; leave the cluster out instead")
    if found.link and not found.link.startswith(("https://", "http://")):
        raise AuditInputError(f"{at} link begins with https:// or http://")
    return found


def shown(ids: str, names: Mapping[str, str]) -> str:
    """Ids with commas between, each as its name where there is one."""
    return ",".join(names.get(id, id) for id in ids.split(","))
