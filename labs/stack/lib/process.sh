# shellcheck shell=bash
# Starting, recognising and stopping our processes. Sourced by `stack`.
#
# Each service runs in the foreground of a session of its own, so we know its pid without asking it, and everything it
# forks carries that session's id. What we remember per service, in $STATE/run:
#   NAME.pid       the pid alone, for tools that want a pid file
#   NAME.identity  pid, start time, boot id, executable: a recycled pid has another start time
#   NAME.recipe    hash of command, configuration and sources it was started with

# Sets PROC_STAT to the fields of /proc/PID/stat after the command's name, which may itself contain blanks and brackets:
# PROC_STAT[0] state, [3] session, [19] start time in ticks since boot.
read_stat() {
  local line
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra PROC_STAT <<<"${line##*) }"
}

# Sets the IDENTITY_ variables of a service; fails if it was never started, or before the last boot.
read_identity() {
  local boot
  { read -r IDENTITY_PID IDENTITY_START boot IDENTITY_EXE <"$STATE/run/$1.identity"; } 2>/dev/null || return 1
  [[ $boot == "$(</proc/sys/kernel/random/boot_id)" ]]
}

# True while the service's first process lives; a zombie does not.
is_running() {
  read_identity "$1" && read_stat "$IDENTITY_PID" && [[ ${PROC_STAT[19]} == "$IDENTITY_START" && ${PROC_STAT[0]} != [ZX] ]]
}

# Prints the pids of all processes of a service, also when its first process was killed and left workers behind: those
# keep the session id, and run the same executable. If the pid is now somebody else's, nothing of ours is left.
members() {
  local name=$1 folder pid start
  read_identity "$name" || return 0
  if read_stat "$IDENTITY_PID" && [[ ${PROC_STAT[19]} != "$IDENTITY_START" ]]; then return 0; fi
  start=$IDENTITY_START
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    read_stat "$pid" || continue
    [[ ${PROC_STAT[3]} == "$IDENTITY_PID" && ${PROC_STAT[0]} != [ZX] ]] || continue
    ((PROC_STAT[19] >= start)) || continue
    # "-": up was interrupted before the service answered, so its executable was not noted yet.
    if [[ $pid != "$IDENTITY_PID" && $IDENTITY_EXE != - && $(readlink "/proc/$pid/exe") != "$IDENTITY_EXE" ]]; then continue; fi
    printf '%s\n' "$pid"
  done
}

# Prints the pids of a service without the first one: its workers.
workers() {
  members "$1" | grep -vxF "$(cat "$STATE/run/$1.pid" 2>/dev/null)" || true
}

# spawn NAME USER EXTRA_ENV COMMAND...: starts a service in the background. Its environment is ours alone, so the caller's
# locale, proxies or LD_PRELOAD do not change what is measured; EXTRA_ENV is a list of VAR=value.
spawn() {
  local name=$1 user=$2 extra pid
  read -ra extra <<<"$3"
  shift 3
  local environment=(PATH="$SERVICE_PATH" HOME="$STATE" LANG=C.UTF-8 PHP_INI_SCAN_DIR= PYTHONDONTWRITEBYTECODE=1)
  : >"$STATE/log/$name.log"
  # `env` comes last in the chain: a preloaded library is for the service, not for setsid and setpriv. `setsid` does
  # not fork here, because a background child of a script never leads its process group.
  (
    exec </dev/null >>"$STATE/log/$name.log" 2>&1 9>&-
    cd "$STATE" || exit
    # shellcheck disable=SC2093 # as_user replaces this subshell
    as_user "$user" setsid env -i "${environment[@]}" "${extra[@]}" "$@"
  ) &
  pid=$!
  disown "$pid"
  if ! read_stat "$pid"; then return; fi
  printf '%s\n' "$pid" >"$STATE/run/$name.pid"
  printf '%s %s %s -\n' "$pid" "${PROC_STAT[19]}" "$(</proc/sys/kernel/random/boot_id)" >"$STATE/run/$name.identity"
}

# Completes the identity once the service answers and therefore is the program that it will stay.
note_executable() {
  read_identity "$1" || return 0
  printf '%s %s %s %s\n' "$IDENTITY_PID" "$IDENTITY_START" "$(</proc/sys/kernel/random/boot_id)" \
    "$(readlink "/proc/$IDENTITY_PID/exe")" >"$STATE/run/$1.identity"
}

# await NAME SECONDS PROBE...: asks until PROBE succeeds. Gives up when the process has ended, and after SECONDS.
await() {
  local name=$1 limit_s=$2 deadline
  shift 2
  deadline=$((SECONDS + limit_s))
  until "$@" >/dev/null 2>&1; do
    is_running "$name" || not_ready "$name" 'ended while it was starting'
    ((SECONDS < deadline)) || not_ready "$name" "does not answer after $limit_s s"
    sleep 0.02
  done
  note_executable "$name"
}

not_ready() {
  local name=$1 what=$2 log=$STATE/log/$1.log
  printf 'error: %s %s\n' "$name" "$what" >&2
  if [[ -s $log ]]; then
    say "hint: the end of $log:"
    tail -n 12 "$log" | sed 's/^/  | /' >&2
  else
    say "hint: $log is empty; the service said nothing"
  fi
  exit 1
}

# Asks a service to end, waits, and only then kills: its own processes, looked up afresh, never a remembered number.
stop_service() {
  local name=$1 limit_s=${2:-10} deadline pids
  pids=$(members "$name")
  if [[ -z $pids ]]; then
    forget "$name"
    return 0
  fi
  if is_running "$name"; then kill -TERM "$IDENTITY_PID" 2>/dev/null || true; else kill_all TERM "$pids"; fi
  deadline=$((SECONDS + limit_s))
  while pids=$(members "$name") && [[ -n $pids ]]; do
    if ((SECONDS >= deadline)); then
      ((SECONDS < deadline + 5)) || fail "$name cannot be ended: pids ${pids//$'\n'/ }"
      say "$name did not end in $limit_s s: killing it"
      kill_all KILL "$pids"
    fi
    sleep 0.02
  done
  forget "$name"
  say "$name stopped"
}

kill_all() {
  local pid
  for pid in $2; do kill -"$1" "$pid" 2>/dev/null || true; done
}

forget() { rm -f "$STATE/run/$1".{pid,identity,recipe}; }
