# shellcheck shell=bash
# The verbs of `symfony`, except install and down.

readonly DEFAULT_VARIANTS=(plain=plain.php boot=boot.php warm=warm.php all=all.php)

verb_up() {
  local missing
  [[ "${1-}" != -* ]] || bad_usage "up: unknown option $1"
  missing=$(missing_packages "${PACKAGES[@]}")
  [[ -z $missing ]] || fail "packages are missing: ${missing//$'\n'/ }" "$0 install"
  open_state
  lock_state
  if (($#)); then start_all "$@"; else start_all "${DEFAULT_VARIANTS[@]}"; fi
}

verb_warm() {
  local name wanted=()
  need_lab
  lock_state
  for name in "${VARIANTS[@]}"; do
    wanted+=("$name=${VARIANT_FRONT[$name]}${VARIANT_SETTINGS[$name]:+,${VARIANT_SETTINGS[$name]}}")
  done
  rm -f "$STATE/app/.deployed"
  start_all "${wanted[@]}"
}

verb_check() {
  need_lab
  is_running mariadb || fail 'the lab is not running' "$0 up"
  read_secrets
  # What pages log about missing ones is expected here.
  run_script check 2>/dev/null
}

start_all() {
  local name
  mkdir -p "$STATE"/{run,log,conf}
  read_secrets
  choose_variants "$@"
  STARTED=()
  write_php_ini
  start_mariadb
  await mariadb 30 mariadb_ready
  prepare_database
  deploy
  for name in "${VARIANTS[@]}"; do start_php_fpm "$name"; done
  start_nginx
  for name in "${VARIANTS[@]}"; do await "php-fpm-$name" 10 php_fpm_ready "$name"; done
  await nginx 10 nginx_ready
  if ((${#STARTED[@]})); then visit_pages; fi
  for name in "${STARTED[@]}"; do say "$name started (pid $(cat "$STATE/run/$name.pid"))"; done
  for name in "${VARIANTS[@]}"; do
    printf '%-12s http://127.0.0.1:%s/  %s %s\n' "$name" "${VARIANT_PORT[$name]}" "${VARIANT_FRONT[$name]}" "${VARIANT_SETTINGS[$name]}"
  done
}

# Pids are those of the moment.
verb_env() {
  local name prefix
  need_lab
  assign SLIP_SYMFONY_DIR "$STATE"
  assign SYMFONY_VARIANTS "${VARIANTS[*]}"
  for name in "${VARIANTS[@]}"; do
    prefix=${name//-/_}
    prefix=SYMFONY_${prefix^^}
    assign "${prefix}_URL" "http://127.0.0.1:${VARIANT_PORT[$name]}"
    assign "${prefix}_FRONT" "${VARIANT_FRONT[$name]}"
    assign "${prefix}_SETTINGS" "${VARIANT_SETTINGS[$name]}"
    assign "${prefix}_WORKER_PID" "$(workers "php-fpm-$name")"
    assign "${prefix}_LOG" "$STATE/log/php-fpm-$name.log"
  done
}

need_lab() {
  [[ -f $STATE/addresses ]] || fail "there is no $LAB in $STATE" "start one: $0 up" 3
  read_variants
}
