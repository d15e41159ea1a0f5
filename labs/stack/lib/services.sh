# shellcheck shell=bash
# The five services: how each is configured, started and asked whether it is ready. Sourced by `stack`.
#
# All write their log to standard error, which is $STATE/log/NAME.log.
# shellcheck disable=SC2034 # some variables are used by the other parts

# In the order of starting; `down` goes backwards.
readonly SERVICES=(redis mariadb php-fpm nginx gunicorn)

# Keeps the remembered ports, except those that a foreign program took while ours was down.
choose_ports() {
  HTTP_PORT='' PYTHON_PORT='' REDIS_PORT='' MARIADB_PORT=''
  if [[ -f $STATE/addresses ]]; then read_addresses; fi
  is_running nginx || HTTP_PORT=$(usable_port "$HTTP_PORT")
  is_running gunicorn || PYTHON_PORT=$(usable_port "$PYTHON_PORT")
  is_running redis || REDIS_PORT=$(usable_port "$REDIS_PORT")
  is_running mariadb || MARIADB_PORT=$(usable_port "$MARIADB_PORT")
  printf '%s\n' "HTTP_PORT=$HTTP_PORT" "PYTHON_PORT=$PYTHON_PORT" "REDIS_PORT=$REDIS_PORT" "MARIADB_PORT=$MARIADB_PORT" \
    "POOL=$OPTION_POOL" >"$STATE/addresses.new"
  mv "$STATE/addresses.new" "$STATE/addresses"
  POOL=$OPTION_POOL
}

start_redis() {
  make_folder "$STATE/redis" "$REDIS_USER"
  # save "": nothing is written to disk. enable-debug-command: experiments inject delays with DEBUG SLEEP.
  cat >"$STATE/conf/redis.conf" <<CONF
bind 127.0.0.1
port $REDIS_PORT
unixsocket $STATE/redis/redis.sock
unixsocketperm 777
daemonize no
dir $STATE/redis
save ""
appendonly no
enable-debug-command local
CONF
  ensure redis "$REDIS_USER" '' "$(cat "$STATE/conf/redis.conf")" /usr/bin/redis-server "$STATE/conf/redis.conf"
}
redis_ready() { redis-cli -p "$REDIS_PORT" ping | grep -q PONG && [[ -S $STATE/redis/redis.sock ]]; }

# Databases, the account the pages use, and the table behind /lab/db.php. Harmless when repeated.
prepare_database() {
  sql <<SQL
CREATE DATABASE IF NOT EXISTS wordpress CHARACTER SET utf8mb4;
CREATE DATABASE IF NOT EXISTS lab CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS lab@localhost IDENTIFIED BY '$DATABASE_PASSWORD';
CREATE USER IF NOT EXISTS lab@127.0.0.1 IDENTIFIED BY '$DATABASE_PASSWORD';
GRANT ALL ON wordpress.* TO lab@localhost, lab@127.0.0.1;
GRANT ALL ON lab.* TO lab@localhost, lab@127.0.0.1;
CREATE TABLE IF NOT EXISTS lab.items (id INT PRIMARY KEY, name VARCHAR(80) NOT NULL, price_cents INT NOT NULL, stock INT NOT NULL);
INSERT IGNORE INTO lab.items SELECT seq, CONCAT('item ', seq), 100 + seq * 37 % 9900, seq * 7 % 100 FROM lab.seq_1_to_1000;
SQL
}

# Our own php.ini, and no scanned folder (PHP_INI_SCAN_DIR is empty in spawn): what somebody switched on for this machine's
# PHP, a debugger for instance, does not change what we measure.
write_php_ini() {
  {
    printf '%s\n' "zend_extension=opcache" "opcache.enable=$([[ $OPTION_OPCACHE == on ]] && echo 1 || echo 0)" \
      opcache.memory_consumption=128 opcache.validate_timestamps=0 date.timezone=UTC memory_limit=128M \
      display_errors=0 log_errors=1 expose_php=0
    # All that WordPress uses.
    php_extensions mysqlnd mysqli pdo pdo_mysql ctype exif fileinfo gd iconv igbinary mbstring posix redis sockets tokenizer \
      xml dom simplexml xmlreader xmlwriter
  } >"$STATE/conf/php.ini"
}

start_php_fpm() {
  make_folder "$STATE/php" "$(id -un)"
  write_php_ini
  local conf=$STATE/conf/php-fpm.conf arguments dynamic=''
  if [[ $OPTION_PM == dynamic ]]; then
    dynamic="pm.start_servers=$(((OPTION_CHILDREN + 1) / 2))
pm.min_spare_servers=1
pm.max_spare_servers=$OPTION_CHILDREN"
  fi
  cat >"$conf" <<CONF
[global]
error_log=/proc/self/fd/2
daemonize=no
[$OPTION_POOL]
listen=$STATE/php/fpm.sock
listen.backlog=1024
$(if [[ $EUID == 0 ]]; then
    printf '%s\n' "user=$WEB_USER" "group=$(id -gn "$WEB_USER")" "listen.owner=$WEB_USER" listen.mode=0660
  fi)
pm=$OPTION_PM
pm.max_children=$OPTION_CHILDREN
$dynamic
pm.max_requests=$OPTION_MAX_REQUESTS
pm.status_path=/fpm-status
ping.path=/fpm-ping
catch_workers_output=yes
decorate_workers_output=no
clear_env=no
env[LAB_DATABASE_SOCKET]=$STATE/mariadb/mysql.sock
env[LAB_DATABASE_PASSWORD]=$DATABASE_PASSWORD
env[LAB_REDIS_PORT]=$REDIS_PORT
env[LAB_REDIS_SOCKET]=$STATE/redis/redis.sock
CONF
  # It holds the database's password, which only root's master reads.
  chmod 600 "$conf"
  read -ra arguments <<<"$OPTION_FPM_ARGS"
  # A killed master leaves its socket behind, which would look like a pool that is there.
  is_running php-fpm || rm -f "$STATE/php/fpm.sock"
  ensure php-fpm "$(id -un)" "$OPTION_FPM_ENV" \
    "$(cat "$conf" "$STATE/conf/php.ini" "$STATE/www/.version") $(our_pages_hash)" \
    /usr/sbin/php-fpm8.2 --nodaemonize --fpm-config "$conf" -c "$STATE/conf/php.ini" "${arguments[@]}"
}

# Only that it listens; what it answers is asked through nginx.
php_fpm_ready() { "$PHP" -n -r "exit(stream_socket_client('unix://$STATE/php/fpm.sock') ? 0 : 1);"; }

start_nginx() {
  local conf=$STATE/conf/nginx.conf
  make_folder "$STATE/nginx" "$WEB_USER"
  cat >"$conf" <<CONF
$(nginx_settings)
http {
$(nginx_http_settings)
  server {
    listen 127.0.0.1:$HTTP_PORT;
    root $STATE/www;
    index index.php;
    location / { try_files \$uri \$uri/ /index.php?\$args; }
    location ~ ^/fpm-(ping|status)\$ { fastcgi_pass unix:$STATE/php/fpm.sock; }
    location ~ \.php\$ { try_files \$uri =404; fastcgi_pass unix:$STATE/php/fpm.sock; }
  }
}
CONF
  ensure nginx "$(id -un)" '' "$(cat "$conf")" /usr/sbin/nginx -e stderr -c "$conf"
}
# The ping is answered by PHP-FPM.
nginx_ready() { http_ok "$HTTP_PORT" /fpm-ping; }

start_gunicorn() {
  local data=$STATE/catalogue arguments=()
  copy_tree "$HERE/catalogue" "$STATE/python/catalogue"
  make_folder "$data" "$WEB_USER"
  if [[ ! -f $data/catalogue.sqlite ]]; then
    (cd "$STATE/python" && as_user "$WEB_USER" env PYTHONDONTWRITEBYTECODE=1 \
      "$PYTHON" -m catalogue.make_database "$data/catalogue.sqlite") || fail 'cannot make the database of the catalogue'
  fi
  # Threads only for gthread: given to sync, gunicorn would silently turn it into gthread.
  if [[ $OPTION_GUNICORN_CLASS == gthread ]]; then arguments=(--threads "$OPTION_GUNICORN_THREADS" --keep-alive 30); fi
  ensure gunicorn "$WEB_USER" \
    "CATALOGUE_DATABASE=$data/catalogue.sqlite CATALOGUE_REDIS_PORT=$REDIS_PORT $OPTION_GUNICORN_ENV" \
    "$(tree_hash "$STATE/python")" \
    "$PYTHON" /usr/bin/gunicorn --bind "127.0.0.1:$PYTHON_PORT" --workers "$OPTION_GUNICORN_WORKERS" \
    --worker-class "$OPTION_GUNICORN_CLASS" --chdir "$STATE/python" "${arguments[@]}" catalogue.app:application
}
gunicorn_ready() { http_ok "$PYTHON_PORT" /health; }
