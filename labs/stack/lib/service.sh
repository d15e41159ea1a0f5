# shellcheck shell=bash
# What every service of a lab needs: a port, a start only where something changed, an answer, an end.
#
# SERVICES, from the script that sources this, are the lab's, in the order of starting.

# Ports are chosen below the range from which the kernel takes ports of outgoing connections (32768 and up): a port that is
# remembered while the stack is down cannot be taken by somebody's connection.
readonly LOWEST_PORT=20000 PORT_COUNT=10000

usable_port() {
  local port=${1:-$((LOWEST_PORT + RANDOM % PORT_COUNT))}
  while (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((LOWEST_PORT + RANDOM % PORT_COUNT)); done
  printf '%s\n' "$port"
}

# ensure NAME USER EXTRA_ENV FINGERPRINT COMMAND...: starts the service unless it runs with the same command, configuration
# and sources already. FINGERPRINT is whatever text stands for the last two.
ensure() {
  local name=$1 user=$2 environment=$3 fingerprint=$4 recipe
  shift 4
  recipe=$(printf '%s\n' "$user" "$environment" "$fingerprint" "$@" | sha256sum | cut -c1-16)
  if is_running "$name"; then
    if [[ $(cat "$STATE/run/$name.recipe" 2>/dev/null) == "$recipe" ]]; then return; fi
    say "$name: options or sources changed, starting it anew"
  fi
  stop_service "$name"
  spawn "$name" "$user" "$environment" "$@"
  printf '%s\n' "$recipe" >"$STATE/run/$name.recipe"
  STARTED+=("$name")
}

# A hash of all files below the folders, for fingerprints.
tree_hash() { find "$@" -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum; }

# Replaces a copy of a folder, so that files removed from the source disappear as well.
copy_tree() {
  rm -rf "$2"
  mkdir -p "$(dirname "$2")"
  cp -r "$1" "$2"
  find "$2" -name __pycache__ -prune -exec rm -rf {} +
  chmod -R u=rwX,go=rX "$2"
}

# One HTTP request without any tool: a bare machine has neither curl nor wget.
http_ok() (
  exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
  printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1:%s\r\n\r\n' "$2" "$1" >&3
  IFS= read -r -t 5 line <&3
  [[ $line == HTTP/1.?" 200"* ]]
)

# Stops all, in the opposite order of starting.
verb_down() {
  local delete=no name index
  case "$*" in
    '') ;;
    --delete) delete=yes ;;
    *) bad_usage "down: unknown option $*" ;;
  esac
  if [[ ! -e $STATE ]]; then
    say "there is no $LAB in $STATE"
    return
  fi
  open_state
  lock_state
  for ((index = ${#SERVICES[@]} - 1; index >= 0; index--)); do stop_service "${SERVICES[index]}"; done
  for name in "${SERVICES[@]}"; do
    [[ -z $(members "$name") ]] || fail "$name is still running: pids $(members "$name" | tr '\n' ' ')"
  done
  if [[ $delete == yes ]]; then rm -rf --one-file-system "$STATE"; fi
}
