#!/usr/bin/env bash
# Installs the servers that the end-to-end tests start on ports of their own and the libraries of the real clients, and
# stops the services that their packages start: the tests use the programs, never the services.
set -euo pipefail

declare -A program_of=(
    [prometheus]=prometheus [prometheus-alertmanager]=prometheus-alertmanager
    [chromium]=chromium [chromium-driver]=chromedriver [victoria-metrics]=victoria-metrics [nodejs]=node
)

missing=()
for tool in openssl curl; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
# The server's programs are not on the path.
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
# The clients of tests/it/clients.rs: Debian's own, for its own Python and for any node.
for module in tenacity backoff urllib3; do
    /usr/bin/python3 -c "import $module" 2>/dev/null || missing+=(python3 "python3-$module")
done
[ -d /usr/share/nodejs/retry ] || missing+=(node-retry)
for package in "${!program_of[@]}"; do
    command -v "${program_of[$package]}" >/dev/null || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
# A policy that starts nothing, for the time of the installation.
policy=/usr/sbin/policy-rc.d
placed=no
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod +x "$policy"
    placed=yes
fi
clean_up() { [ "$placed" = no ] || "${as_root[@]}" rm -f "$policy"; }
trap clean_up EXIT

"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
for package in "${missing[@]}"; do
    "${as_root[@]}" systemctl disable --now "$package" >/dev/null 2>&1 || true
done
