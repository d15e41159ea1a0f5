# shellcheck shell=bash
# The verbs of `stack`, except install.
# shellcheck disable=SC2034 # the options are used by the other parts

verb_up() {
  read_options "$@"
  local missing name
  missing=$(missing_packages "${PACKAGES[@]}")
  [[ -z $missing ]] || fail "packages are missing: ${missing//$'\n'/ }" "$0 install"
  open_state
  lock_state
  mkdir -p "$STATE"/{run,log,conf,python}
  read_secrets
  choose_ports
  STARTED=()
  # The database takes longest to answer; everything else is prepared meanwhile.
  start_mariadb
  start_redis
  copy_wordpress
  start_php_fpm
  start_nginx
  start_gunicorn
  await redis 10 redis_ready
  await mariadb 30 mariadb_ready
  prepare_database
  await php-fpm 10 php_fpm_ready
  await nginx 10 nginx_ready
  await gunicorn 10 gunicorn_ready
  for name in "${STARTED[@]}"; do say "$name started (pid $(cat "$STATE/run/$name.pid"))"; done
  printf 'wordpress  http://127.0.0.1:%s/  (plain pages: /lab/)\n' "$HTTP_PORT"
  printf 'gunicorn   http://127.0.0.1:%s/\n' "$PYTHON_PORT"
}

# Options from the variables first, then from the command line. Everything that reaches a configuration file is checked.
read_options() {
  OPTION_POOL=${POOL:-www}
  OPTION_CHILDREN=${FPM_CHILDREN:-4}
  OPTION_PM=${FPM_PM:-static}
  OPTION_MAX_REQUESTS=${FPM_MAX_REQUESTS:-0}
  OPTION_OPCACHE=${OPCACHE:-on}
  OPTION_FPM_ARGS=${FPM_ARGS:-}
  OPTION_FPM_ENV=${FPM_ENV:-}
  OPTION_OBJECT_CACHE=${OBJECT_CACHE:-none}
  OPTION_GUNICORN_WORKERS=${GUNICORN_WORKERS:-2}
  OPTION_GUNICORN_CLASS=${GUNICORN_CLASS:-sync}
  OPTION_GUNICORN_THREADS=${GUNICORN_THREADS:-4}
  OPTION_GUNICORN_ENV=${GUNICORN_ENV:-}
  while (($#)); do
    (($# > 1)) || bad_usage "up: $1 is unknown or lacks its value"
    case $1 in
      --pool) OPTION_POOL=$2 ;;
      --children) OPTION_CHILDREN=$2 ;;
      --pm) OPTION_PM=$2 ;;
      --max-requests) OPTION_MAX_REQUESTS=$2 ;;
      --opcache) OPTION_OPCACHE=$2 ;;
      --fpm-arg) OPTION_FPM_ARGS+=" $2" ;;
      --object-cache) OPTION_OBJECT_CACHE=$2 ;;
      --gunicorn-workers) OPTION_GUNICORN_WORKERS=$2 ;;
      --gunicorn-class) OPTION_GUNICORN_CLASS=$2 ;;
      --gunicorn-threads) OPTION_GUNICORN_THREADS=$2 ;;
      *) bad_usage "up: unknown option $1" ;;
    esac
    shift 2
  done
  check_option pool "$OPTION_POOL" '[A-Za-z0-9_-]+'
  check_option children "$OPTION_CHILDREN" '[1-9][0-9]*'
  check_option pm "$OPTION_PM" 'static|dynamic'
  check_option max-requests "$OPTION_MAX_REQUESTS" '[0-9]+'
  check_option opcache "$OPTION_OPCACHE" 'on|off'
  check_option object-cache "$OPTION_OBJECT_CACHE" 'none|redis'
  check_option gunicorn-workers "$OPTION_GUNICORN_WORKERS" '[1-9][0-9]*'
  check_option gunicorn-class "$OPTION_GUNICORN_CLASS" 'sync|gthread'
  check_option gunicorn-threads "$OPTION_GUNICORN_THREADS" '[1-9][0-9]*'
}

verb_status() {
  local name running=0
  need_state
  for name in "${SERVICES[@]}"; do
    if is_running "$name"; then
      running=$((running + 1))
      printf '%-9s up    pid %-7s workers %-3s %s\n' "$name" "$IDENTITY_PID" "$(workers "$name" | wc -l)" "$(address_of "$name")"
    else
      printf '%-9s down\n' "$name"
    fi
  done
  case $running in
    "${#SERVICES[@]}") return 0 ;;
    0) return 3 ;;
    *) return 1 ;;
  esac
}

address_of() {
  case $1 in
    redis) printf '127.0.0.1:%s %s\n' "$REDIS_PORT" "$STATE/redis/redis.sock" ;;
    mariadb) printf '127.0.0.1:%s %s\n' "$MARIADB_PORT" "$STATE/mariadb/mysql.sock" ;;
    php-fpm) printf '%s pool %s\n' "$STATE/php/fpm.sock" "$POOL" ;;
    nginx) printf 'http://127.0.0.1:%s/\n' "$HTTP_PORT" ;;
    gunicorn) printf 'http://127.0.0.1:%s/\n' "$PYTHON_PORT" ;;
  esac
}

# Pids are those of the moment: PHP-FPM replaces workers after pm.max_requests.
verb_env() {
  local name prefix pid
  need_state
  # shellcheck source=/dev/null
  source "$STATE/secrets"
  assign SLIP_STACK_DIR "$STATE"
  assign STACK_WORDPRESS_URL "http://127.0.0.1:$HTTP_PORT"
  assign STACK_GUNICORN_URL "http://127.0.0.1:$PYTHON_PORT"
  assign STACK_HTTP_PORT "$HTTP_PORT"
  assign STACK_GUNICORN_PORT "$PYTHON_PORT"
  assign STACK_REDIS_PORT "$REDIS_PORT"
  assign STACK_REDIS_SOCKET "$STATE/redis/redis.sock"
  assign STACK_MARIADB_PORT "$MARIADB_PORT"
  assign STACK_MARIADB_SOCKET "$STATE/mariadb/mysql.sock"
  assign STACK_MARIADB_USER lab
  assign STACK_MARIADB_PASSWORD "$DATABASE_PASSWORD"
  assign STACK_FPM_SOCKET "$STATE/php/fpm.sock"
  assign STACK_FPM_POOL "$POOL"
  assign STACK_PHP_INI "$STATE/conf/php.ini"
  assign STACK_WWW "$STATE/www"
  for name in "${SERVICES[@]}"; do
    prefix=${name#php-}
    prefix=STACK_${prefix^^}
    pid=''
    if is_running "$name"; then pid=$IDENTITY_PID; fi
    assign "${prefix}_PID" "$pid"
    assign "${prefix}_WORKER_PIDS" "$(workers "$name" | tr '\n' ' ' | sed 's/ $//')"
    assign "${prefix}_PIDFILE" "$STATE/run/$name.pid"
    assign "${prefix}_LOG" "$STATE/log/$name.log"
  done
}

verb_seed() {
  local posts=${1:-300} have
  [[ $# -le 1 && $posts =~ ^[1-9][0-9]*$ ]] || bad_usage 'seed takes the number of posts'
  need_state
  lock_state
  if ! is_running mariadb || ! is_running redis; then fail 'the stack is not running' "$0 up"; fi
  read_secrets
  have=$(seeded_posts)
  if ((have >= posts)); then
    say "WordPress already holds $have posts"
    return
  fi
  run_wordpress_script "$HERE/wordpress/seed.php" "$posts" >&2 || fail 'seeding WordPress failed' 'the lines above say why'
  # The pages' object cache, if they use one, does not know what the seed wrote.
  redis-cli -p "$REDIS_PORT" flushall >/dev/null
}

verb_load() {
  local arguments=()
  case " $* " in *' --help '* | *' -h '*) exec "$PYTHON" "$HERE/load.py" --help ;; esac
  need_state
  if ! is_running nginx || ! is_running gunicorn; then fail 'the stack is not running' "$0 up"; fi
  arguments=(--wordpress-url "http://127.0.0.1:$HTTP_PORT" --gunicorn-url "http://127.0.0.1:$PYTHON_PORT")
  if (($(seeded_posts) > 0)); then
    arguments+=(--posts "$(published_posts)")
  fi
  exec "$PYTHON" "$HERE/load.py" "${arguments[@]}" "$@"
}

# The ids that the load visits, comma separated. Five hundred are plenty to defeat any small cache.
published_posts() {
  sql -e "SELECT ID FROM wordpress.wp_posts WHERE post_type = 'post' AND post_status = 'publish'
    ORDER BY ID LIMIT 500" | paste -sd,
}
