#!/usr/bin/env bash
# Runs the stories of tests/it/storm.rs against the other servers people have: VictoriaMetrics, and the newer
# Prometheus and Alertmanager of Debian's later suites. Each is unpacked aside, and nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

tests/packages.sh
folder=target/servers
mkdir -p "$folder"/apt/{lists/partial,cache/archives/partial} "$folder"/debs
folder=$(cd "$folder" && pwd)

# A package list of its own: the machine's stays as it is.
: >"$folder/apt/sources.list"
for suite in trixie sid; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
        >>"$folder/apt/sources.list"
done
aside=(-o "Dir::Etc::sourcelist=$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache" -o APT::Sandbox::User=root)
apt-get "${aside[@]}" update -qq

# Unpacks package $1 of suite $2 and says where.
unpack() {
    local into="$folder/$2/$1"
    if [ ! -d "$into" ]; then
        (cd "$folder/debs" && rm -f "$1"_*.deb && apt-get "${aside[@]}" download -qq "$1/$2" >&2)
        mkdir -p "$folder/$2"
        dpkg -x "$folder/debs/$1"_*.deb "$into"
    fi
    echo "$into/usr/bin/$1"
}

# Lets the stories run, with what the arguments put into the environment.
stories() {
    echo "== $*" >&2
    env "$@" cargo test --locked --test it -- storm::storms storm::a_kill storm::a_prometheus
}

cargo test --locked --test it --no-run
for suite in trixie sid; do
    prometheus=$(unpack prometheus "$suite")
    alertmanager=$(unpack prometheus-alertmanager "$suite")
    "$prometheus" --version >&2
    stories "SQUALL_TEST_PROMETHEUS=$prometheus" "SQUALL_TEST_ALERTMANAGER=$alertmanager"
    victoria=$(unpack victoria-metrics "$suite")
    "$victoria" --version >&2
    stories "SQUALL_TEST_VICTORIAMETRICS=$victoria"
    SQUALL_TEST_VICTORIAMETRICS="$victoria" cargo test --locked --test it -- backtest::a_backtest_finds
done
