#!/bin/sh
# The pictures in the README, made with a headless Chromium: the report of the demo, and the dashboard over three runs
# of a corpus (of what stood there without one partition, of all, and of all by a clock of twenty minutes later). There is none of Grafana: no package registry has it.
set -eu
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "picture: no Chromium found; install it (Debian: apt-get install chromium)" >&2; exit 1; }
out=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -r "$out"' EXIT

shoot() { # URL FILE HEIGHT
  "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1400,"$3" \
    --screenshot="$PWD/docs/$2" "$1" >/dev/null 2>&1
  ls -l "docs/$2"
}

.venv/bin/auditor demo --quiet --out "$out/demo"
shoot "file://$out/demo/report.html" report.png 1360

keep() { # RUN-ID OPTIONS...
  run=$1; shift
  .venv/bin/auditor audit "$out/logs" --quiet --fail-on never --out "$out/$run" --history "$out/kept" --run-id "$run" "$@"
}
mkdir "$out/logs"
tar xzf tests/data/corpora/hanging-36/data.tar.gz -C "$out/logs"
mv "$out/logs" "$out/all"
cp -R "$out/all" "$out/logs"
rm -r "$out"/logs/*/bank.audit-2
keep night
rm -r "$out/logs"
mv "$out/all" "$out/logs"
keep morning
keep noon --as-of 2026-11-21T04:10:00Z
.venv/bin/auditor dashboard "$out/kept" --port 0 >"$out/address" &
server=$!
until [ -s "$out/address" ]; do kill -0 "$server"; sleep 0.2; done
shoot "$(cut -d ' ' -f 1 "$out/address")" dashboard.png 1200
