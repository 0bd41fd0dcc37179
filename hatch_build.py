"""The README as a package's page shows it: an index has no files beside it, so that relative links lead nowhere there.

With ``REPOSITORY_URL`` in the environment (where raw files are, such as ``https://HOST/OWNER/NAME/raw/main``) links
and pictures become absolute. Without it, because no address is committed, pictures are left out and links become plain
words.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[([^\]]*)\]\((?!\w+://)([^)]+)\)\n*")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+://|#)([^)]+)\)")


def page(readme: str, address: str) -> str:
    """The README for an index, with links below ``address``; empty: without what would lead nowhere."""
    if address:
        base = address.rstrip("/")
        return re.sub(r"\]\((?!\w+://|#)([^)]+)\)", lambda found: f"]({base}/{found[1]})", readme)
    return _LINK.sub(lambda found: found[1], _PICTURE.sub("", readme))


class Page(MetadataHookInterface):
    """Puts the page into the package's metadata."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets the readme."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        shown = page(text, os.environ.get("REPOSITORY_URL", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
