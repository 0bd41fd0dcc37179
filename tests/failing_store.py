"""A small S3 server over a folder that delays, fails and logs requests: ListObjectsV2, HEAD, ranged GET, PUT, COPY,
DELETE of one and of many.

Buckets are folders. What it does badly is told to it by key and count, or at random (:class:`Fault`). It speaks the
protocol as Amazon's reference says, and nothing of a client is checked. As a program it serves a folder in a process of
its own: ``python -m tests.failing_store FOLDER LATENCY_MS MB_PER_S``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO, NamedTuple
from xml.sax.saxutils import escape, unescape

KEY, SECRET = "AKIAOFTHETEST", "hunter2OfTheTest/+"
PAGE = 1000  # objects of a list
PIECE = 256 << 10

# By name: status, code. The rest are not answers that say what is wrong.
REFUSALS = {
    "ExpiredToken": (403, "ExpiredToken"),
    "AccessDenied": (403, "AccessDenied"),
    "InvalidAccessKeyId": (403, "InvalidAccessKeyId"),
    "SignatureDoesNotMatch": (403, "SignatureDoesNotMatch"),
    "SlowDown": (503, "SlowDown"),
    "InternalError": (500, "InternalError"),
}
PAGE_IN_PLACE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Please sign in</body></html>"
ENDLESS_LIST = (
    "<ListBucketResult><KeyCount>1</KeyCount><IsTruncated>true</IsTruncated><NextContinuationToken>t{0}</NextContinuationToken>"
    "<Contents><Key>broker-1/t-0/{0:020}.log</Key><Size>3</Size><LastModified>2026-11-24T00:00:00.000Z</LastModified>"
    "</Contents></ListBucketResult>"
)
TIMES_OUT, BREAKS_OFF, TOO_SHORT = "times out", "breaks off", "too short"  # the last says that it is whole
SHRUNK, HTML, ENDLESS = "shrunk", "HTML", "endless"  # half of an object; a page in place of anything; of a listing
UNANSWERED = "unanswered"  # of a PUT or DELETE: it is carried out


class Request(NamedTuple):
    """A request as it was answered. ``method``: LIST, HEAD, GET, PUT or DELETE; ``what``: what was done badly, "" for
    nothing."""

    method: str
    key: str
    start: int
    size: int
    what: str


@dataclass
class Fault:
    """What is done badly to requests whose key has ``key`` in it, of a ``method`` or of all, ``count`` times.

    ``count`` -1: always; ``share``: at random, to so many of them.
    """

    what: str
    key: str = ""
    method: str = ""
    count: int = -1
    share: float = 1.0


@dataclass
class Manner:
    """How a server behaves, which may be changed.

    ``latency_s``: before the first byte; ``bytes_per_s``: of a connection.
    """

    latency_s: float = 0.0
    bytes_per_s: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    patience_s: float = 4.0  # how long what times out holds its connection: pyarrow's client waits 3 s
    chance: random.Random = field(default_factory=lambda: random.Random(34))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def badly(self, method: str, key: str) -> str:
        """What to do badly now."""
        with self.lock:
            for fault in self.faults:
                if fault.count == 0 or fault.method not in ("", method) or fault.key not in key:
                    continue
                if fault.share < 1.0 and self.chance.random() >= fault.share:
                    continue
                fault.count -= fault.count > 0
                return fault.what
        return ""


class FailingStore(ThreadingHTTPServer):
    """Serves ``buckets``, folders by name. ``log``: the requests so far; ``most``: that were under way at once."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, buckets: dict[str, Path], manner: Manner) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.buckets, self.manner = buckets, manner
        self.requests: list[Request] = []
        self.under_way = self.most = 0

    @property
    def log(self) -> list[Request]:
        """The requests, once none is under way: they are noted behind their answers, which clients have before."""
        until = time.monotonic() + 2
        while self.under_way and time.monotonic() < until:
            time.sleep(0.001)
        return self.requests

    def environment(self) -> dict[str, str]:
        """The variables by which the standard credential chain finds it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: FailingStore

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def handle_expect_100(self) -> bool:
        """Says at once that the body may come, for which a client waits a second."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def do_HEAD(self) -> None:
        self._counted("HEAD")

    def do_GET(self) -> None:
        self._counted("GET")

    def do_PUT(self) -> None:
        self._counted("PUT")

    def do_DELETE(self) -> None:
        self._counted("DELETE")

    def do_POST(self) -> None:
        self._counted("POST")

    def _counted(self, method: str) -> None:
        server = self.server
        with server.manner.lock:
            server.under_way += 1
            server.most = max(server.most, server.under_way)
        try:
            self._served(method)
        finally:
            with server.manner.lock:
                server.under_way -= 1

    def _served(self, method: str) -> None:
        url = urllib.parse.urlsplit(self.path)
        bucket, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        if method == "GET" and not key:
            method, key = "LIST", query.get("prefix", "")
        manner = self.server.manner
        body = self._body() if method in ("PUT", "POST") else b""
        what = manner.badly(method, key)
        time.sleep(manner.latency_s)
        start, size = 0, 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if what == TIMES_OUT:
                time.sleep(manner.patience_s)
                self.close_connection = True
            elif what in REFUSALS:
                self._refused(*REFUSALS[what])
            elif bucket not in self.server.buckets:
                self._refused(404, "NoSuchBucket")
            elif what == HTML:
                self._head(200, len(PAGE_IN_PLACE), Content_Type="text/html")
                self.wfile.write(PAGE_IN_PLACE if self.command != "HEAD" else b"")
            elif what == ENDLESS:
                self._xml(ENDLESS_LIST.format(len(self.server.requests)))
            elif method == "LIST":
                self._list(bucket, query)
            elif method == "POST":
                self._delete_many(self.server.buckets[bucket], body, what)
            elif method == "PUT" and "x-amz-copy-source" in self.headers:
                self._copy(self.server.buckets[bucket], key, what)
            elif method in ("PUT", "DELETE"):
                start, size = self._changed(self.server.buckets[bucket], key, body, what)
            else:
                start, size = self._object(self.server.buckets[bucket], key, what)
        self.server.requests.append(Request(method, key, start, size, what))

    def _body(self) -> bytes:
        """What a PUT brings, which clients may send in chunks, and in chunks of Amazon's within these."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = _joined(self.rfile)
        return _joined(io.BytesIO(body)) if self.headers.get("Content-Encoding") == "aws-chunked" else body

    def _changed(self, folder: Path, key: str, body: bytes, what: str) -> tuple[int, int]:
        """Writes or removes an object; the bytes that were taken, from where on."""
        path = folder / key
        self.close_connection |= what in (BREAKS_OFF, TOO_SHORT, UNANSWERED)
        if what in (BREAKS_OFF, TOO_SHORT):
            return 0, 0
        if self.command == "DELETE":
            _remove(path)
        elif key.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        if what != UNANSWERED:
            self._head(200, 0, ETag='"e"')
        return 0, len(body)

    def _delete_many(self, folder: Path, body: bytes, what: str) -> None:
        """Removes the objects that a list names."""
        self.close_connection |= what in (BREAKS_OFF, TOO_SHORT, UNANSWERED)
        if what in (BREAKS_OFF, TOO_SHORT):
            return
        for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            _remove(folder / unescape(key, {"&quot;": '"'}))
        if what != UNANSWERED:
            self._xml("<DeleteResult></DeleteResult>")

    def _copy(self, folder: Path, key: str, what: str) -> None:
        """Gives an object's content to another one."""
        bucket, _, name = urllib.parse.unquote(self.headers["x-amz-copy-source"]).lstrip("/").partition("/")
        source = self.server.buckets[bucket] / name
        if not source.is_file():
            self._refused(404, "NoSuchKey")
            return
        self.close_connection |= what in (BREAKS_OFF, TOO_SHORT, UNANSWERED)
        if what in (BREAKS_OFF, TOO_SHORT):
            return
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(source.read_bytes())
        if what != UNANSWERED:
            self._xml("<CopyObjectResult><ETag>e</ETag></CopyObjectResult>")

    def _xml(self, text: str) -> None:
        body = f"<?xml version='1.0'?>{text}".encode()
        self._head(200, len(body), Content_Type="application/xml")
        self.wfile.write(body)

    def _head(self, status: int, size: int, **more: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _refused(self, status: int, code: str) -> None:
        body = (
            f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}, it is a test</Message></Error>".encode()
        )
        self._head(status, len(body), Content_Type="application/xml")
        if self.command != "HEAD":
            self.wfile.write(body)

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after, most = query.get("continuation-token", ""), min(PAGE, int(query.get("max-keys", PAGE)))
        found: dict[str, int] = {}  # folders have -1
        for name, size in _objects(self.server.buckets[bucket], prefix.rpartition("/")[0]):
            if name.startswith(prefix):
                below = name[len(prefix) :]
                folder = delimiter and below.partition(delimiter)[1]
                found[prefix + below.partition(delimiter)[0] + delimiter if folder else name] = -1 if folder else size
        names = sorted(name for name in found if name > after)
        page = names[:most]
        parts = [f"<KeyCount>{len(page)}</KeyCount><IsTruncated>{str(len(names) > most).lower()}</IsTruncated>"]
        if len(names) > most:
            parts.append(f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>")
        for name in page:
            if found[name] < 0:
                parts.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            else:
                written = time.gmtime((self.server.buckets[bucket] / name).stat().st_mtime)
                parts.append(
                    f"<Contents><Key>{escape(name)}</Key><Size>{found[name]}</Size>"
                    f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', written)}</LastModified></Contents>"
                )
        self._xml(f"<ListBucketResult>{''.join(parts)}</ListBucketResult>")

    def _object(self, folder: Path, key: str, what: str) -> tuple[int, int]:
        """Answers for one object; the bytes that were given, from where on."""
        path = folder / key
        if not key and self.command == "HEAD":
            self._head(200, 0)
            return 0, 0
        if not path.is_file() or ".." in key:
            self._refused(404, "NoSuchKey")
            return 0, 0
        whole = path.stat().st_size // (2 if what == SHRUNK else 1)
        start, end = 0, whole
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(asked[1]), min(whole, int(asked[2]) + 1 if asked[2] else whole)
            if start >= whole:
                self._refused(416, "InvalidRange")
                return 0, 0
        size = end - start
        given = size // 3 if what in (BREAKS_OFF, TOO_SHORT) else size
        status = 206 if asked else 200
        said = given if what == TOO_SHORT and self.command == "GET" else size
        self._head(
            status, said, Last_Modified="Tue, 24 Nov 2026 00:00:00 GMT",
            Content_Range=f"bytes {start}-{end - 1}/{whole}",
        )  # fmt: skip
        if self.command == "HEAD":
            return 0, 0
        self._give(path, start, given)
        self.close_connection |= given < size
        return start, given

    def _give(self, path: Path, start: int, size: int) -> None:
        """The bytes, no faster than a connection may be."""
        self.wfile.flush()
        rate, began, at = self.server.manner.bytes_per_s, time.monotonic(), start
        with path.open("rb") as file:
            while at < start + size:
                sent = os.sendfile(self.connection.fileno(), file.fileno(), at, min(PIECE, start + size - at))
                at += sent
                if rate and (early := began + (at - start) / rate - time.monotonic()) > 0:
                    time.sleep(early)


def _remove(path: Path) -> None:
    """Takes an object away, or what stands for an empty folder."""
    with contextlib.suppress(OSError):
        (Path.rmdir if path.is_dir() else Path.unlink)(path)


def _joined(chunks: BinaryIO) -> bytes:
    """What chunks hold, each behind its size in hexadecimal; what follows the last one is read too."""
    body = b""
    while size := int(chunks.readline().partition(b";")[0], 16):
        body += chunks.read(size)
        chunks.readline()
    while chunks.readline().strip():
        pass
    return body


def _objects(folder: Path, below: str) -> Iterator[tuple[str, int]]:
    for path in (folder / below).rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.stat().st_size


@contextlib.contextmanager
def failing(**buckets: Path) -> Iterator[FailingStore]:
    """A server in threads of this process, which behaves until its manner is changed."""
    with FailingStore(buckets, Manner()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def main(folder: str, latency_ms: str, mb_per_s: str) -> None:
    """Serves until standard input ends, and then says how many requests there were of each method."""
    with FailingStore({"copies": Path(folder)}, Manner(float(latency_ms) / 1e3, float(mb_per_s) * 1e6)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(f"{server.environment()['AWS_ENDPOINT_URL']}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.shutdown()
        sys.stdout.write(json.dumps(Counter(request.method for request in server.log)))


if __name__ == "__main__":
    main(*sys.argv[1:])
