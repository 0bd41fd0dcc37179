#!/bin/sh
# The picture of the report in the README, made from the demo with a headless Chromium.
set -eu
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "picture: no Chromium found; install it (Debian: apt-get install chromium)" >&2; exit 1; }
out=$(mktemp -d)
.venv/bin/auditor demo --quiet --out "$out"
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1330 \
  --screenshot="$PWD/docs/report.png" "file://$out/report.html" >/dev/null 2>&1
rm -r "$out"
ls -l docs/report.png
