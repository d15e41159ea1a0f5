# shellcheck shell=bash
# Other profilers that we are measured against, of fixed versions. To be sourced.

readonly PY_SPY_VERSION=0.4.3

# Prints the program, installed into the cache folder if it is not there yet.
py_spy() {
  local folder=${SLIP_CACHE:-$HOME/.cache/slipstream}/peers/py-spy-$PY_SPY_VERSION
  if [[ ! -x $folder/bin/py-spy ]]; then
    python3 -m pip install -q --no-compile --target "$folder" "py-spy==$PY_SPY_VERSION" >&2 || {
      printf 'error: py-spy %s cannot be installed\nhint: is there pip for python3 (python3-pip), and a network?\n' "$PY_SPY_VERSION" >&2
      return 2
    }
  fi
  printf '%s\n' "$folder/bin/py-spy"
}

# Prints the root folder of CPython 3.15, whose own profiler is `python3.15 -m profiling.sampling`: to be run by chroot.
tachyon_root() {
  fixtures/roots/roots path python
}
