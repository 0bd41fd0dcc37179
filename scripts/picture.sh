#!/bin/sh
# The pictures in README and docs, made with a headless Chromium: the terminal's answer and the report of the demo, and
# the dashboard over three runs of a corpus (without one partition, of all, and of all as of twenty minutes later).
# There is none of Grafana: no package registry has it.
set -eu
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "picture: no Chromium found; install it (Debian: apt-get install chromium)" >&2; exit 1; }
out=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -r "$out"' EXIT

shoot() { # URL FILE WIDTH HEIGHT
  "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="$3,$4" \
    --screenshot="$PWD/docs/$2" "$1" >/dev/null 2>&1
  ls -l "docs/$2"
}

auditor=$PWD/.venv/bin/auditor
(cd "$out" && COLUMNS=104 "$auditor" demo --master inline --out demo >terminal.txt)
{
  echo '<!doctype html><meta charset="utf-8"><style>body { margin: 0; background: #1e2329 }'
  echo 'pre { margin: 16px 20px; color: #e6e6e6; font: 15px/1.4 "DejaVu Sans Mono", monospace } b { color: #7ee787 }</style>'
  echo '<pre><b>$</b> auditor demo --out demo'
  sed 's/&/\&amp;/g; s/</\&lt;/g' "$out/terminal.txt"
  echo '</pre>'
} >"$out/terminal.html"
shoot "file://$out/terminal.html" terminal.png 1000 $((32 + 21 * ($(wc -l <"$out/terminal.txt") + 1)))
shoot "file://$out/demo/report.html" report.png 1280 760

keep() { # RUN-ID OPTIONS...
  run=$1; shift
  "$auditor" audit "$out/logs" --master inline --quiet --fail-on never --out "$out/$run" --history "$out/kept" --run-id "$run" "$@"
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
"$auditor" dashboard "$out/kept" --port 0 >"$out/address" &
server=$!
until [ -s "$out/address" ]; do kill -0 "$server"; sleep 0.2; done
shoot "$(cut -d ' ' -f 1 "$out/address")" dashboard.png 1400 1200
