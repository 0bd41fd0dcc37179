"""A page read back with the standard library's parser: its elements, its texts, and what is wrong with it."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "br", "input", "img", "hr", "wbr"})


class Page(HTMLParser):
    """Elements as ``(tag, attributes)``, all text, the raw text of script and style, and nesting faults."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        self.faults += [f"never closed: {tag}" for tag in self._open]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) != len(names):
            self.faults.append(f"attribute given twice in {tag}: {names}")
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"</{tag}> where {self._open[-1:]} is open, line {self.getpos()[0]}")
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside in self.raw:
            self.raw[inside].append(data)
        else:
            self.texts.append(data)
