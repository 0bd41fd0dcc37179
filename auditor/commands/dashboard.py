"""``auditor dashboard DIR``: the runs kept under DIR as pages, served to this machine only or written as files.

A server of the standard library on the loopback interface; nothing is written, and what is kept while it runs is on
the next page that is asked for. A page of another site cannot read it: only calls by a loopback name are answered.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from auditor import running
from auditor.base import user_input
from auditor.base.errors import AuditInputError
from auditor.base.words import plural
from auditor.commands.arguments import examples
from auditor.pipeline.options import out_of

if TYPE_CHECKING:
    from auditor.outputs.runs import History

PORT = 8765
_NAMES = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d*)?", re.IGNORECASE)
PATIENCE_S = 30  # for a request to come, and for an answer to be taken


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "dashboard",
        help="show stored runs ('audit --history DIR') in a browser, or export the pages",
        epilog=examples(
            "auditor dashboard /var/audits",
            "auditor dashboard s3://bucket/audits/history --export s3://bucket/audits/dashboard",
        ),
    )
    p.add_argument("dir", type=out_of, metavar="DIR", help="the directory or URI given to --history")
    p.add_argument("--port", type=int, default=PORT, help=f"port on the loopback interface (default {PORT}; 0: any)")
    p.add_argument(
        "--export",
        type=out_of,
        metavar="DIR|URI",
        help="write changed pages there, for a web server or bucket, and exit",
    )
    add_expected(p)
    p.set_defaults(run=run)


def add_expected(p: argparse.ArgumentParser) -> None:
    """Add ``--expect-every``: how often a cluster is audited."""
    p.add_argument(
        "--expect-every",
        type=period,
        metavar="PERIOD",
        help="flag a cluster as overdue when no run arrives within 1.5 × this period: 90min, 24h, 7d (default: "
        "from its runs)",
    )


def period(text: str) -> int:
    """Return a period such as 90min, 24h or 7d in ms."""
    match = re.fullmatch(r"([1-9]\d{0,5})\s*(min|h|d)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"invalid period {text!r}: expected for example 90min, 24h or 7d")
    return int(match[1]) * {"min": 60_000, "h": 3_600_000, "d": 86_400_000}[match[2]]


def run(args: argparse.Namespace) -> int:
    """Serve the pages until Ctrl-C, or export them; return the exit code: 3 if a run is unreadable."""
    if args.export is not None:
        return _export(args)
    with serve(args.dir, args.port, args.expect_every) as server:
        shown = user_input.shown_uri(str(args.dir))
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}/ shows the runs in {shown} (Ctrl-C to stop)\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def _export(args: argparse.Namespace) -> int:
    from auditor.connectors.stores.results import folder
    from auditor.outputs import site

    done = site.export(args.dir, args.export, args.expect_every)
    running.warn(done.unreadable)
    left = f"; {plural(done.left, 'older finding')} without a page" if done.left else ""
    front = folder(args.export).address("index.html")
    sys.stdout.write(f"{plural(done.pages, 'page')} written, {done.unchanged:,} unchanged{left}: {front}\n")
    return 3 if done.unreadable else 0


def serve(history: History, port: int, every_ms: int | None = None) -> ThreadingHTTPServer:
    """Return a server of the pages, ready for ``serve_forever``. ``every_ms``: the expected time between two runs of a
    cluster.

    Errors: :class:`AuditInputError` for a directory or port that cannot be used.
    """
    from auditor.outputs.runs import Shelf
    from auditor.outputs.site import Site

    shelf = Shelf(history)
    shelf.runs()

    def page(_: object, path: str) -> str | None:
        return shelf.without_unreadable(lambda: Site(shelf, every_ms).page(path))

    handler = type("Handler", (_Handler,), {"page": page})
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        raise AuditInputError(f"cannot listen on port {port}: {error}; choose another --port") from None


class _Handler(BaseHTTPRequestHandler):
    page: Callable[[str], str | None]
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        if not _NAMES.fullmatch(self.headers.get("Host") or ""):
            return self._send(421, "text/plain", "unknown host name: use 127.0.0.1 or localhost\n")
        try:
            page = self.page(unquote(urlsplit(self.path).path).removeprefix("/"))
        except AuditInputError as error:
            return self._send(500, "text/plain", f"{error}\n")
        if page is None:
            return self._send(404, "text/plain", "no such page or run\n")
        return self._send(200, "text/html", page)

    def _send(self, status: int, kind: str, text: str) -> None:
        from auditor.dashboards import page

        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Content-Security-Policy": f"{page.content_policy()}; frame-ancestors 'none'",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        # Requests are not logged.
        pass
