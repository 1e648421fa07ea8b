#!/usr/bin/env bash
# Runs what CI runs, in this order: format, lints, documentation, tests, documentation tests, benches once.
# Installs the Debian packages the end-to-end tests talk to, when they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*" >&2; }

step "Debian packages"
tests/packages.sh

step "format"
cargo fmt --check

step "lints"
cargo clippy --locked --all-targets --quiet -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --quiet

step "tests"
cargo test --locked --lib --bins --tests

step "documentation tests"
cargo test --locked --doc

step "benches, once each, as the tests are built"
cargo bench --locked --profile dev --bench squall -- --test
