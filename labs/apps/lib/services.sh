# shellcheck shell=bash
# The variants, their PHP-FPMs, and the nginx in front of them. Sourced by `apps`.

# Names in the order given, and by name their settings, separated by commas. By application and variant: port of nginx.
VARIANTS=()
declare -A VARIANT_SETTINGS INSTANCE_PORT

# All services in the order of starting.
SERVICES=(mariadb nginx)

# APPLICATION-VARIANT for all.
instances() {
  local application name
  for application in "${APPLICATIONS[@]}"; do
    for name in "${VARIANTS[@]}"; do printf '%s\n' "$application-$name"; done
  done
}

name_services() {
  local list
  mapfile -t list < <(instances)
  SERVICES=(mariadb "${list[@]/#/php-fpm-}" nginx)
}

# Reads what the last `up` started; nothing if there was none.
read_variants() {
  local kind name value
  VARIANTS=()
  if [[ -f $STATE/addresses ]]; then
    while IFS='|' read -r kind name value; do
      case $kind in
        variant)
          VARIANTS+=("$name")
          VARIANT_SETTINGS[$name]=$value
          ;;
        port) INSTANCE_PORT[$name]=$value ;;
      esac
    done <"$STATE/addresses"
  fi
  name_services
}

# choose_variants NAME[,SETTING=VALUE]...: stops variants that are not wanted any more, keeps the ports of the others.
choose_variants() {
  local wanted name new=() old application instance
  read_variants
  for wanted; do
    [[ $wanted =~ ^[a-z][a-z0-9]*(,[A-Za-z0-9_.]+=[^,|[:space:]]+)*$ ]] || bad_usage "up: '$wanted' is no variant"
    name=${wanted%%,*}
    [[ " ${new[*]} " != *" $name "* ]] || bad_usage "up: two variants are called $name"
    new+=("$name")
    VARIANT_SETTINGS[$name]=''
    if [[ $wanted == *,* ]]; then VARIANT_SETTINGS[$name]=${wanted#*,}; fi
    if [[ $wanted =~ extension=(/[^,]*) && ! -f ${BASH_REMATCH[1]} ]]; then
      fail "there is no extension ${BASH_REMATCH[1]}" 'build it'
    fi
  done
  for old in "${VARIANTS[@]}"; do
    [[ " ${new[*]} " == *" $old "* ]] ||
      for application in "${APPLICATIONS[@]}"; do stop_service "php-fpm-$application-$old"; done
  done
  VARIANTS=("${new[@]}")
  for instance in $(instances); do
    is_running nginx && [[ -n ${INSTANCE_PORT[$instance]-} ]] ||
      INSTANCE_PORT[$instance]=$(usable_port "${INSTANCE_PORT[$instance]-}")
  done
  {
    for name in "${VARIANTS[@]}"; do printf 'variant|%s|%s\n' "$name" "${VARIANT_SETTINGS[$name]}"; done
    for instance in $(instances); do printf 'port|%s|%s\n' "$instance" "${INSTANCE_PORT[$instance]}"; done
  } >"$STATE/addresses.new"
  mv "$STATE/addresses.new" "$STATE/addresses"
  name_services
}

write_php_ini() {
  {
    printf '%s\n' zend_extension=opcache opcache.enable=1 opcache.validate_timestamps=0 opcache.memory_consumption=192 \
      opcache.interned_strings_buffer=16 opcache.max_accelerated_files=20000 realpath_cache_size=4096K realpath_cache_ttl=600 \
      date.timezone=UTC memory_limit=256M display_errors=0 log_errors=1 expose_php=0 session.gc_probability=0
    php_extensions mysqlnd mysqli pdo pdo_mysql ctype exif fileinfo gd iconv intl mbstring posix sockets tokenizer \
      xml dom simplexml xmlreader xmlwriter
  } >"$STATE/conf/php.ini"
}

# One worker each, so that its CPU time is that of the requests.
start_php_fpm() {
  local application=$1 name=$2 instance=$1-$2
  local conf=$STATE/conf/php-fpm-$instance.conf ini=$STATE/conf/php-$instance.ini socket=$STATE/php/$instance.sock
  make_folder "$STATE/php" "$(id -un)"
  make_folder "$STATE/php/sessions-$instance" "$WEB_USER"
  {
    cat "$STATE/conf/php.ini"
    printf 'session.save_path=%s\n' "$STATE/php/sessions-$instance"
    setting_lines "${VARIANT_SETTINGS[$name]}"
  } >"$ini"
  cat >"$conf" <<CONF
[global]
error_log=/proc/self/fd/2
daemonize=no
[$instance]
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
env[LAB_FOLDER]=$STATE/mediawiki
env[MW_CONFIG_FILE]=$STATE/mediawiki/LocalSettings.php
CONF
  # It holds the database's password, which only root's master reads.
  chmod 600 "$conf"
  # A killed master leaves its socket behind, which would look like a pool that is there.
  is_running "php-fpm-$instance" || rm -f "$socket"
  ensure "php-fpm-$instance" "$(id -un)" '' "$(cat "$conf" "$ini") $SOURCES" \
    /usr/sbin/php-fpm8.2 --nodaemonize --fpm-config "$conf" -c "$ini"
}

# Only that it listens; what it answers is asked through nginx.
php_fpm_ready() { "$PHP" -n -r "exit(stream_socket_client('unix://$STATE/php/$1.sock') ? 0 : 1);"; }

start_nginx() {
  local conf=$STATE/conf/nginx.conf application name instance
  make_folder "$STATE/nginx" "$WEB_USER"
  {
    nginx_settings
    printf 'http {\n'
    nginx_http_settings
    for application in "${APPLICATIONS[@]}"; do
      for name in "${VARIANTS[@]}"; do
        instance=$application-$name
        cat <<CONF
  server {
    listen 127.0.0.1:${INSTANCE_PORT[$instance]};
    root $(root_of "$application");
    index index.php;
    location / { try_files \$uri \$uri/ /index.php?\$args; }
    location = /fpm-ping { fastcgi_pass unix:$STATE/php/$instance.sock; }
    location ~ \.php\$ { try_files \$uri =404; fastcgi_pass unix:$STATE/php/$instance.sock; }
  }
CONF
      done
    done
    printf '}\n'
  } >"$conf"
  ensure nginx "$(id -un)" '' "$(cat "$conf")" /usr/sbin/nginx -e stderr -c "$conf"
}

# The pings are answered by PHP-FPM.
nginx_ready() {
  local instance
  for instance in $(instances); do http_ok "${INSTANCE_PORT[$instance]}" /fpm-ping || return 1; done
}
