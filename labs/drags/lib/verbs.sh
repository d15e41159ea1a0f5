# shellcheck shell=bash
# The verbs of `drags`, except install and down.

verb_list() {
  grep -v '^#' "$DRAGS/manifest" | awk -F'|' '
    { for (i = 1; i <= NF; i++) gsub(/^ +| +$/, "", $i) }
    { printf "%-24s %-8s %-16s %s\n", $1, $2 == "-" ? "" : $2, $3 == "-" ? "" : $3, $10 }'
}

verb_up() {
  local missing name
  [[ $# == 1 ]] || bad_usage 'up takes the name of a lab'
  read_lab "$1"
  missing=$(missing_packages "${PACKAGES[@]}")
  [[ -z $missing ]] || fail "packages are missing: ${missing//$'\n'/ }" "$0 install"
  open_state
  lock_state
  mkdir -p "$STATE"/{run,log,conf}
  RUNNING=''
  if [[ -f $STATE/addresses ]]; then read_addresses; fi
  # Whoever was interrupted may not have done to the pool what its settings say.
  [[ -n $RUNNING ]] || stop_service php-fpm
  if [[ $RUNNING != "$LAB_NAME" ]] || ! is_running php-fpm; then undo_machine; fi
  choose_ports
  STARTED=()
  # One lab at a time has the machine. What the last one ran on is kept if this one runs on the same.
  [[ $LAB_SERVICE == fpm ]] || stop_service php-fpm
  [[ $LAB_SERVICE == gunicorn || $LAB_SERVICE == uvicorn ]] || stop_service python
  copy_tree "$DRAGS/python" "$STATE/python"
  start_redis
  start_slow
  case $LAB_SERVICE in
    fpm)
      make_pages
      prepare_machine
      start_php_fpm
      ;;
    gunicorn) start_gunicorn ;;
    uvicorn) start_uvicorn ;;
    native) build_native ;;
  esac
  await redis 10 redis_ready
  await slow 10 slow_ready
  fill_redis
  case $LAB_SERVICE in
    fpm)
      await php-fpm 10 php_fpm_ready
      settle_php_fpm
      ;;
    gunicorn | uvicorn) await python 20 python_ready ;;
  esac
  printf '%s\n' "RUNNING=$LAB_NAME" >>"$STATE/addresses"
  for name in "${STARTED[@]}"; do say "$name started (pid $(cat "$STATE/run/$name.pid"))"; done
}

# What has to be there before a pool starts.
prepare_machine() {
  local huge swap
  huge=$(setting huge no)
  swap=$(setting swap no)
  if [[ $huge != no ]]; then set_huge_pages "$huge"; fi
  if [[ $swap != no ]]; then add_swap "$swap"; fi
}

# What is done to a pool that runs.
settle_php_fpm() {
  local quota memory pid
  [[ " ${STARTED[*]} " == *' php-fpm '* ]] || return 0
  quota=$(setting quota no)
  memory=$(setting memory no)
  # shellcheck disable=SC2046 # one word per pid
  if [[ $quota != no ]]; then set_quota "$quota" $(workers php-fpm); fi
  # shellcheck disable=SC2046
  if [[ $memory != no ]]; then limit_memory "$memory" $(workers php-fpm); fi
  if [[ $(setting swap no) != no ]]; then move_out_once; fi
  # As many as a small machine has: on a large one nobody would have to wait.
  if [[ $(setting cpus one) == two ]]; then
    for pid in $(workers php-fpm); do taskset -pc 0,1 "$pid" >/dev/null; done
  fi
  # Another function than the one that the master has loaded, and newer by more than a second, which is what times are compared by.
  if [[ $(setting stale no) == yes ]]; then
    sed -i 's/hello/good morning/' "$STATE/www/preloaded.php"
    touch -d '+2 seconds' "$STATE/www/preloaded.php"
  fi
}

# The workers' memory goes to the swap, opcache's too, and what a request needs is read back. It is the load that moves it out again, or does not.
move_out_once() {
  # shellcheck disable=SC2046 # one word per pid
  gather_memory $(workers php-fpm)
  (ask 0 requests=3 moves_out=1) >/dev/null
  (ask 0 requests=3) >/dev/null
}

# Pages, with the classes that some load. Files that are there already are left alone: new ones of the same content are a change for whoever
# looks at their time.
make_pages() {
  local version preloaded=$STATE/www/preloaded.php
  version=$(tree_hash "$DRAGS/php")
  if [[ $(cat "$STATE/www/.version" 2>/dev/null) != "$version" ]]; then
    copy_tree "$DRAGS/php" "$STATE/www"
    "$PHP" -n "$STATE/www/make_classes.php" "$STATE/www"
    chmod -R u=rwX,go=rX "$STATE/www"
    printf '%s\n' "$version" >"$STATE/www/.version"
  fi
  if ! cmp -s "$DRAGS/php/preloaded.php" "$preloaded" || [[ ! $preloaded -ot $DRAGS/php/preloaded.php ]]; then
    # What `stale=yes` has done to it is undone.
    cp "$DRAGS/php/preloaded.php" "$preloaded"
    touch -d 2020-01-01 "$preloaded"
  fi
  if [[ $(setting file no) != no ]]; then make_file "$(setting file no)"; fi
}

# make_file MIB: a large file that pages read. What of it is in memory belongs to the control group of who has read it first; now nothing is.
make_file() {
  local file=$STATE/www/file
  if (($(stat -c %s "$file" 2>/dev/null || echo 0) != $1 << 20)); then
    dd if=/dev/zero of="$file" bs=1M count="$1" status=none
    chmod 644 "$file"
  fi
  dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none
}

verb_load() {
  [[ $# == 1 || $# == 2 ]] || bad_usage 'load takes the name of a lab, and perhaps for how many seconds'
  read_lab "$1"
  need_state
  [[ ${RUNNING-} == "$LAB_NAME" ]] || fail "$LAB_NAME is not up" "$0 up $LAB_NAME" 3
  # shellcheck disable=SC2086 # one word per option
  ask "${2:-0}" ${LAB_LOAD#-}
}

# ask SECONDS WORD...: becomes the load of the lab that is up.
ask() {
  local seconds=$1 address group=()
  shift
  if [[ -f $STATE/run/memory ]]; then group=(--group "$(cat "$STATE/run/memory")"); fi
  case $LAB_SERVICE in
    fpm) address=fpm:$STATE/php/fpm.sock:$STATE/www/$LAB_PAGE ;;
    native) address=file:$STATE/native/drag.json ;;
    *) address=http:$PYTHON_PORT:$LAB_PAGE ;;
  esac
  exec "${OTHER_CPU[@]}" "$PYTHON" "$DRAGS/load.py" --redis "$REDIS_PORT" --seconds "$seconds" "${group[@]}" "$address" "$@"
}

# Pids are those of the moment.
verb_env() {
  local pid='' target
  need_state
  [[ -n $RUNNING ]] || fail 'no lab is up' "$0 up LAB" 3
  read_lab "$RUNNING"
  case $LAB_SERVICE in
    fpm)
      is_running php-fpm && pid=$IDENTITY_PID
      target="--fpm drags --fpm-master $pid"
      [[ $(setting ask no) != yes ]] || target+=' --ask'
      ;;
    native) target="-- $STATE/native/churn $LAB_PAGE $STATE/native/drag.json" ;;
    *)
      is_running python && pid=$IDENTITY_PID
      target="--pid $pid --children"
      ;;
  esac
  assign SLIP_DRAGS_DIR "$STATE"
  assign DRAGS_LAB "$LAB_NAME"
  # What `slip` is told to watch; words without blanks.
  assign DRAGS_TARGET "$target"
  assign DRAGS_PID "$pid"
  assign DRAGS_REDIS_PORT "$REDIS_PORT"
  assign DRAGS_SLOW_PORT "$SLOW_PORT"
}
