# shellcheck shell=bash
# The variants, their PHP-FPMs, and the nginx in front of them. Sourced by `symfony`.
# shellcheck disable=SC2034 # some variables are used by the other parts

# Names in the order given, and by name: front controller, settings separated by commas, port of nginx.
VARIANTS=()
declare -A VARIANT_FRONT VARIANT_SETTINGS VARIANT_PORT

# All services in the order of starting.
SERVICES=(mariadb nginx)

# Reads what the last `up` started; nothing if there was none.
read_variants() {
  local name front port settings
  VARIANTS=()
  if [[ -f $STATE/addresses ]]; then
    while IFS='|' read -r name front port settings; do
      VARIANTS+=("$name")
      VARIANT_FRONT[$name]=$front VARIANT_PORT[$name]=$port VARIANT_SETTINGS[$name]=$settings
    done <"$STATE/addresses"
  fi
  SERVICES=(mariadb "${VARIANTS[@]/#/php-fpm-}" nginx)
}

# choose_variants NAME=FRONT[,SETTING=VALUE]...: stops variants that are not wanted any more, keeps the ports of the others.
choose_variants() {
  local wanted name rest new=() old
  read_variants
  for wanted; do
    [[ $wanted =~ ^[a-z][a-z0-9-]*=(plain|boot|warm|all)\.php(,[A-Za-z0-9_.]+=[^,|[:space:]]+)*$ ]] ||
      bad_usage "up: '$wanted' is no variant"
    name=${wanted%%=*} rest=${wanted#*=}
    [[ " ${new[*]} " != *" $name "* ]] || bad_usage "up: two variants are called $name"
    new+=("$name")
    VARIANT_FRONT[$name]=${rest%%,*} VARIANT_SETTINGS[$name]=''
    if [[ $rest == *,* ]]; then VARIANT_SETTINGS[$name]=${rest#*,}; fi
    if [[ $rest =~ extension=(/[^,]*) && ! -f ${BASH_REMATCH[1]} ]]; then fail "there is no extension ${BASH_REMATCH[1]}" 'build it'; fi
    is_running nginx && [[ -n ${VARIANT_PORT[$name]-} ]] || VARIANT_PORT[$name]=$(usable_port "${VARIANT_PORT[$name]-}")
  done
  for old in "${VARIANTS[@]}"; do
    [[ " ${new[*]} " == *" $old "* ]] || stop_service "php-fpm-$old"
  done
  VARIANTS=("${new[@]}")
  for name in "${VARIANTS[@]}"; do
    printf '%s|%s|%s|%s\n' "$name" "${VARIANT_FRONT[$name]}" "${VARIANT_PORT[$name]}" "${VARIANT_SETTINGS[$name]}"
  done >"$STATE/addresses.new"
  mv "$STATE/addresses.new" "$STATE/addresses"
  SERVICES=(mariadb "${VARIANTS[@]/#/php-fpm-}" nginx)
}

# What all variants share, after php.ini-production and https://symfony.com/doc/5.4/performance.html. No preloading: Symfony's
# needs a master per application, and hardly any host offers it.
write_php_ini() {
  {
    printf '%s\n' zend_extension=opcache opcache.enable=1 opcache.validate_timestamps=0 opcache.memory_consumption=256 \
      opcache.interned_strings_buffer=16 opcache.max_accelerated_files=20000 \
      realpath_cache_size=4096K realpath_cache_ttl=600 \
      zend.assertions=-1 zend.exception_ignore_args=1 variables_order=GPCS output_buffering=4096 \
      date.timezone=UTC memory_limit=128M display_errors=0 log_errors=1 expose_php=0
    php_extensions mysqlnd pdo pdo_mysql ctype iconv intl mbstring posix tokenizer xml dom simplexml
  } >"$STATE/conf/php.ini"
}

# One worker each, so that its CPU time is that of the requests and every request after the first finds the same worker.
start_php_fpm() {
  local name=$1 conf=$STATE/conf/php-fpm-$1.conf ini=$STATE/conf/php-$1.ini socket=$STATE/php/$1.sock
  make_folder "$STATE/php" "$(id -un)"
  { cat "$STATE/conf/php.ini" && setting_lines "${VARIANT_SETTINGS[$name]}"; } >"$ini"
  cat >"$conf" <<CONF
[global]
error_log=/proc/self/fd/2
daemonize=no
[$name]
listen=$socket
$(if [[ $EUID == 0 ]]; then
    printf '%s\n' "user=$WEB_USER" "group=$(id -gn "$WEB_USER")" "listen.owner=$WEB_USER" listen.mode=0660
  fi)
pm=static
pm.max_children=1
pm.max_requests=0
ping.path=/fpm-ping
catch_workers_output=yes
decorate_workers_output=no
clear_env=no
env[LAB_DATABASE_SOCKET]=$STATE/mariadb/mysql.sock
env[LAB_DATABASE_PASSWORD]=$DATABASE_PASSWORD
$(print_environment "$name")
CONF
  # It holds the database's password, which only root's master reads.
  chmod 600 "$conf"
  # A killed master leaves its socket behind, which would look like a pool that is there.
  is_running "php-fpm-$name" || rm -f "$socket"
  ensure "php-fpm-$name" "$(id -un)" "${FPM_ENV:-}" "$(cat "$conf" "$ini" "$STATE/app/.deployed")" \
    /usr/sbin/php-fpm8.2 --nodaemonize --fpm-config "$conf" -c "$ini"
}

# The settings that are variables of the environment: env.NAME=VALUE.
print_environment() {
  local setting
  while IFS= read -r setting; do
    if [[ $setting =~ ^env\.([^=]+)=(.*)$ ]]; then printf 'env[%s]=%s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"; fi
  done < <(tr ',' '\n' <<<"${VARIANT_SETTINGS[$1]}")
}

# Only that it listens; what it answers is asked through nginx.
php_fpm_ready() { "$PHP" -n -r "exit(stream_socket_client('unix://$STATE/php/$1.sock') ? 0 : 1);"; }

start_nginx() {
  local conf=$STATE/conf/nginx.conf name
  make_folder "$STATE/nginx" "$WEB_USER"
  {
    nginx_settings
    printf 'http {\n'
    nginx_http_settings
    for name in "${VARIANTS[@]}"; do
      cat <<CONF
  server {
    listen 127.0.0.1:${VARIANT_PORT[$name]};
    root $STATE/app/public;
    location / { try_files \$uri /${VARIANT_FRONT[$name]}\$is_args\$args; }
    location = /status { allow 127.0.0.1; deny all; rewrite ^ /status.php last; }
    location = /fpm-ping { fastcgi_pass unix:$STATE/php/$name.sock; }
    location ~ \.php\$ { internal; fastcgi_pass unix:$STATE/php/$name.sock; }
  }
CONF
    done
    printf '}\n'
  } >"$conf"
  ensure nginx "$(id -un)" '' "$(cat "$conf")" /usr/sbin/nginx -e stderr -c "$conf"
}

# The pings are answered by PHP-FPM.
nginx_ready() {
  local name
  for name in "${VARIANTS[@]}"; do http_ok "${VARIANT_PORT[$name]}" /fpm-ping || return 1; done
}
