# shellcheck shell=bash
# What labs run on: Redis and a slow server always, and one service that is watched. Sourced by `drags`.
#
# What is watched has CPU 0 for itself, and all that it is asked by or asks has CPU 1: on a small machine they would take the CPU from
# each other, which is a drag as well.

# In the order of starting; `down` goes backwards.
# shellcheck disable=SC2034 # used by service.sh
readonly SERVICES=(redis slow php-fpm python)

if (($(nproc) > 1)); then
  readonly SERVICE_CPU=(taskset -c 0) OTHER_CPU=(taskset -c 1)
else
  readonly SERVICE_CPU=() OTHER_CPU=()
fi

# Keeps the remembered ports, except those that a foreign program took while ours was down. Until all is there, no lab is up.
choose_ports() {
  REDIS_PORT='' SLOW_PORT='' PYTHON_PORT=''
  if [[ -f $STATE/addresses ]]; then read_addresses; fi
  is_running redis || REDIS_PORT=$(usable_port "$REDIS_PORT")
  is_running slow || SLOW_PORT=$(usable_port "$SLOW_PORT")
  is_running python || PYTHON_PORT=$(usable_port "$PYTHON_PORT")
  printf '%s\n' "REDIS_PORT=$REDIS_PORT" "SLOW_PORT=$SLOW_PORT" "PYTHON_PORT=$PYTHON_PORT" "RUNNING=" >"$STATE/addresses.new"
  mv "$STATE/addresses.new" "$STATE/addresses"
}

# --enable-debug-command: the load has it sleep.
start_redis() {
  make_folder "$STATE/redis" "$REDIS_USER"
  ensure redis "$REDIS_USER" '' '' "${OTHER_CPU[@]}" /usr/bin/redis-server --bind 127.0.0.1 --port "$REDIS_PORT" --dir "$STATE/redis" \
    --save '' --appendonly no --enable-debug-command local
}
redis_ready() { redis-cli -p "$REDIS_PORT" ping | grep -q PONG; }

# What pages read. Written each time: Redis keeps nothing.
fill_redis() {
  {
    seq 200 | sed 's/.*/SET key:& value-&/'
    printf '%s\n' 'HSET hash:1 field value' 'DEL list:1' 'RPUSH list:1 a b c' 'SADD set:1 a b c' 'ZADD sorted:1 1 a 2 b'
  } | redis-cli -p "$REDIS_PORT" >/dev/null
}

start_slow() {
  ensure slow "$WEB_USER" '' "$(tree_hash "$DRAGS/python/slow_server.py")" \
    "${OTHER_CPU[@]}" "$PYTHON" "$STATE/python/slow_server.py" "$SLOW_PORT"
}
slow_ready() { (: <"/dev/tcp/127.0.0.1/$SLOW_PORT"); }

# Of `php=NAME=VALUE` settings; what is not set is as one would wish it.
write_php_ini() {
  {
    printf '%s\n' zend_extension=opcache opcache.enable=1 opcache.validate_timestamps=0 opcache.file_update_protection=0 opcache.memory_consumption=64 \
      opcache.max_accelerated_files=10000 realpath_cache_size=4096K realpath_cache_ttl=600 date.timezone=UTC \
      memory_limit=256M display_errors=0 log_errors=1 expose_php=0
    php_extensions igbinary redis posix
    settings php | sed "s|STATE|$STATE|; s|WEB_USER|$WEB_USER|; s|REDIS_PORT|$REDIS_PORT|"
  } >"$STATE/conf/php.ini"
}

start_php_fpm() {
  local conf=$STATE/conf/php-fpm.conf children=1
  children=$(setting children 1)
  write_php_ini
  make_folder "$STATE/php" "$(id -un)"
  cat >"$conf" <<CONF
[global]
error_log=/proc/self/fd/2
daemonize=no
[drags]
listen=$STATE/php/fpm.sock
listen.backlog=1024
$(if [[ $EUID == 0 ]]; then
    printf '%s\n' "user=$WEB_USER" "group=$(id -gn "$WEB_USER")" "listen.owner=$WEB_USER" listen.mode=0660
  fi)
pm=static
pm.max_children=$children
pm.max_requests=0
$(if [[ $(setting nice 0) != 0 ]]; then echo "process.priority=$(setting nice 0)"; fi)
ping.path=/fpm-ping
catch_workers_output=yes
decorate_workers_output=no
clear_env=no
CONF
  # A killed master leaves its socket behind, which would look like a pool that is there.
  is_running php-fpm || rm -f "$STATE/php/fpm.sock"
  ensure php-fpm "$(id -un)" "REDIS_PORT=$REDIS_PORT SLOW_PORT=$SLOW_PORT $(settings env | tr '\n' ' ')" \
    "$(cat "$conf" "$STATE/conf/php.ini") $(tree_hash "$DRAGS/php") $(what_is_done)" \
    "${SERVICE_CPU[@]}" /usr/sbin/php-fpm8.2 --nodaemonize --fpm-config "$conf" -c "$STATE/conf/php.ini"
}
# The settings by which something is done to a pool, or to the machine, when it starts.
what_is_done() {
  local name
  for name in quota memory swap huge stale cpus; do printf '%s=%s ' "$name" "$(setting "$name" no)"; done
}
php_fpm_ready() {
  "$PHP" -n -r "exit(stream_socket_client('unix://$STATE/php/fpm.sock') ? 0 : 1);" &&
    (($(workers php-fpm | wc -l) == $(setting children 1)))
}

start_gunicorn() {
  local arguments=()
  mapfile -t arguments < <(settings arg | tr '=' '\n')
  ensure python "$WEB_USER" "REDIS_PORT=$REDIS_PORT SLOW_PORT=$SLOW_PORT $(settings env | tr '\n' ' ')" "$(tree_hash "$DRAGS/python")" \
    "${SERVICE_CPU[@]}" "$PYTHON" /usr/bin/gunicorn --bind "127.0.0.1:$PYTHON_PORT" --workers "$(setting children 1)" "${arguments[@]}" \
    --worker-tmp-dir /dev/shm --chdir "$STATE/python" "$(setting app service:app)"
}

start_uvicorn() {
  ensure python "$WEB_USER" "SLOW_PORT=$SLOW_PORT" "$(tree_hash "$DRAGS/python")" \
    "${SERVICE_CPU[@]}" "$PYTHON" /usr/bin/uvicorn --host 127.0.0.1 --port "$PYTHON_PORT" --loop asyncio --no-access-log \
    --app-dir "$STATE/python" loop:app
}
python_ready() { http_ok "$PYTHON_PORT" /; }

# A program that is not started here: whoever watches it does.
build_native() {
  local program=$STATE/native/churn
  make_folder "$STATE/native" "$(id -un)"
  if [[ ! -x $program || $DRAGS/native/churn.c -nt $program ]]; then
    gcc -O2 -g -fno-omit-frame-pointer -o "$program.new" "$DRAGS/native/churn.c" || fail 'churn.c cannot be compiled'
    mv "$program.new" "$program"
  fi
}
