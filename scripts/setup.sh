#!/bin/sh
# Makes .venv: the locked dependencies, and this project in place. Needs Python 3.11 to 3.14 and Java, which Spark needs.
# "setup.sh run" leaves out what only Spark, tests, expectations, live and SQL need, and needs no Java; without a word, it is all.
set -eu
cd "$(dirname "$0")/.."
if [ ! -d auditor/rules ]; then
    echo "error: this copy has lost its symbolic links (a zip download?): 'pipx install .' installs it all the same; for development use git clone" >&2
    exit 1
fi
if [ "${1:-all}" != run ]; then . scripts/java.sh; fi

usable() { # whether this Python has the version, and what makes an environment
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

python=
for candidate in python3.13 python3.12 python3.11 python3.14 python3; do
    if usable "$candidate"; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
    echo "error: no Python 3.11 to 3.14 with venv and ensurepip on PATH" >&2
    case "$(uname -s)" in
        Darwin) echo 'hint: brew install python@3.13' >&2 ;;
        *) echo 'hint: Debian or Ubuntu: apt-get install -y python3 python3-venv; Fedora: dnf install -y python3.13; Arch: pacman -S python' >&2 ;;
    esac
    exit 1
fi

if [ "${1:-all}" = run ]; then lock=requirements-run.lock size="0.5 GB"; else lock=requirements.lock size="1.6 GB"; fi
if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    rm -rf .venv
    "$python" -m venv .venv
fi
echo "setup: installing into .venv with $(.venv/bin/python --version); the first time this fetches what takes $size there"
# What is imported is compiled to bytecode then; doing it to every file of every package takes half of pip's time.
pip_install() { .venv/bin/python -m pip install --disable-pip-version-check --no-input --no-compile --progress-bar off "$@"; }
# Of pip's words those that say what is fetched, as it is fetched; where it fails, its last ones.
install() {
    log=.venv/.setup.log
    rm -f .venv/.installed  # of a run that was killed
    { pip_install "$@" 2>&1 && touch .venv/.installed; } | tee "$log" | while read -r word file size_of; do
        if [ "$word" = Downloading ]; then size_of=${size_of#"("}; echo "setup: fetching $file, ${size_of%")"}"; fi
    done
    if [ -e .venv/.installed ]; then rm -f .venv/.installed "$log"; return; fi
    tail -n 20 "$log" >&2
    exit 1
}
# The first and smallest, asked for once: without a network pip would try each package five times, for forty seconds.
if ! said=$(pip_install --retries 0 --timeout 15 --quiet --require-hashes -r requirements-build.lock 2>&1); then
    case $said in
        *"from versions: none"*|*ConnectionError*|*ConnectTimeoutError*|*ProxyError*)  # pip asked, and nobody answered
            echo "error: no network or proxy: pip cannot reach its index (HTTPS_PROXY, PIP_INDEX_URL); without a network, see 'make bundle'" >&2
            exit 1 ;;
    esac
    # What builds packages comes first and is pinned too, so that nothing unpinned is ever fetched.
    install --require-hashes -r requirements-build.lock
fi
install --require-hashes --no-build-isolation -r "$lock"
pip_install --quiet --no-build-isolation --no-deps --no-index -e .
echo "setup: compiling what reads logs to machine code, and with Spark keeping its classes; this takes a minute once"
.venv/bin/python -m auditor.spark.warm "${1:-all}"
touch .venv/.run
if [ "$lock" = requirements.lock ]; then touch .venv/.ready; fi
echo "setup: ready"
