# shellcheck shell=bash
# Runs one test binary of several crates and prints the counts as a result line.
#
# usage: count_tests NAME CRATE...
count_tests() {
  local name=$1 log skips
  shift
  log=$(mktemp)
  skips=$(mktemp)
  local packages=()
  for crate in "$@"; do packages+=(-p "$crate"); done
  local status=0
  SLIP_SKIPS=$skips cargo test -q --locked "${packages[@]}" --test "$name" >"$log" 2>&1 || status=$?
  local passed failed
  passed=$(awk '/^test result:/ { sum += $4 } END { print sum + 0 }' "$log")
  failed=$(awk '/^test result:/ { sum += $6 } END { print sum + 0 }' "$log")
  sort -u "$skips" >&2
  [ "$status" = 0 ] || tail -n 40 "$log" >&2
  echo "result: $passed passed, $failed failed, $(sort -u "$skips" | wc -l) skipped"
  rm -f "$log" "$skips"
  return "$status"
}
