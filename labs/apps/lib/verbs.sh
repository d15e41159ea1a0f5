# shellcheck shell=bash
# The verbs of `apps`, except install and down.

verb_up() {
  local missing
  [[ "${1-}" != -* ]] || bad_usage "up: unknown option $1"
  missing=$(missing_packages "${PACKAGES[@]}")
  [[ -z $missing ]] || fail "packages are missing: ${missing//$'\n'/ }" "$0 install"
  open_state
  lock_state
  if (($#)); then start_all "$@"; else start_all plain; fi
}

start_all() {
  local application name instance
  mkdir -p "$STATE"/{run,log,conf}
  read_secrets
  choose_variants "$@"
  STARTED=()
  write_php_ini
  start_mariadb
  await mariadb 30 mariadb_ready
  prepare_database
  for application in "${APPLICATIONS[@]}"; do "deploy_$application"; done
  SOURCES=$(sources_hash)
  for application in "${APPLICATIONS[@]}"; do
    for name in "${VARIANTS[@]}"; do start_php_fpm "$application" "$name"; done
  done
  start_nginx
  for instance in $(instances); do await "php-fpm-$instance" 10 php_fpm_ready "$instance"; done
  await nginx 10 nginx_ready
  for application in "${APPLICATIONS[@]}"; do
    for name in "${VARIANTS[@]}"; do
      instance=$application-$name
      http_ok "${INSTANCE_PORT[$instance]}" "$(page_of "$application")" ||
        fail "$instance does not answer $(page_of "$application") with status 200" "see $STATE/log/php-fpm-$instance.log"
    done
  done
  for name in "${STARTED[@]}"; do say "$name started (pid $(cat "$STATE/run/$name.pid"))"; done
  for instance in $(instances); do printf '%-20s http://127.0.0.1:%s/\n' "$instance" "${INSTANCE_PORT[$instance]}"; done
}

# Pids are those of the moment.
verb_env() {
  local instance prefix
  [[ -f $STATE/addresses ]] || fail "there is no $LAB in $STATE" "start one: $0 up" 3
  read_variants
  # shellcheck source=/dev/null
  source "$STATE/secrets"
  assign SLIP_APPS_DIR "$STATE"
  assign APPS_VARIANTS "${VARIANTS[*]}"
  assign APPS_HOST "$HOST"
  assign APPS_DATABASE_USER lab
  assign APPS_DATABASE_PASSWORD "$DATABASE_PASSWORD"
  for instance in $(instances); do
    prefix=${instance//-/_}
    prefix=APPS_${prefix^^}
    assign "${prefix}_URL" "http://127.0.0.1:${INSTANCE_PORT[$instance]}"
    assign "${prefix}_WORKER_PID" "$(workers "php-fpm-$instance")"
    assign "${prefix}_LOG" "$STATE/log/php-fpm-$instance.log"
  done
}
