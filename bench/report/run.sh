#!/bin/sh
# Size of an hour's recording (eight workers, 99 Hz, 300 functions, 20,000 stacks, 20 requests a second and worker),
# CPU of a flush, time to load and summarise, time and size of each format.
#
#   bench/report/run.sh [WORKERS] [SECONDS]
set -eu
cd "$(dirname "$0")"
file=$(mktemp -d)/hour.slip
trap 'rm -rf "$(dirname "$file")"' EXIT
cargo build --release --quiet
"${CARGO_TARGET_DIR:-target}"/release/bench-report "$file" "$@"
