# shellcheck shell=bash
# WordPress: our copy of Debian's, its configuration, its contents. Sourced by `stack`.

# Debian spreads WordPress over /usr/share and /var/lib with links; the copy follows them, so nothing below ours depends on
# the machine's. It is made anew when the package changed (1 s, 70 MB).
copy_wordpress() {
  local version www=$STATE/www
  # shellcheck disable=SC2016 # ${...} is dpkg's placeholder syntax
  version=$(dpkg-query -W -f='${Package} ${Version}\n' wordpress wordpress-theme-twentytwentyone)
  if [[ $(cat "$www/.version" 2>/dev/null) != "$version" ]]; then
    say 'copying WordPress'
    rm -rf "$www.new" "$www"
    cp -rL /usr/share/wordpress "$www.new"
    rm -f "$www.new/wp-config.php"
    make_folder "$www.new/wp-content/uploads" "$WEB_USER"
    printf '%s\n' "$version" >"$www.new/.version"
    mv "$www.new" "$www"
  fi
  copy_tree "$HERE/pages" "$www/lab"
  copy_tree "$HERE/wordpress/mu-plugins" "$www/wp-content/mu-plugins"
  cp "$HERE/wordpress/wp-config.php" "$www/wp-config.php"
  if [[ $OPTION_OBJECT_CACHE == redis ]]; then
    cp "$HERE/wordpress/object-cache.php" "$www/wp-content/object-cache.php"
  else
    rm -f "$www/wp-content/object-cache.php"
  fi
}

# What of the pages is ours. With validate_timestamps=0 PHP-FPM must be started anew to see a change.
our_pages_hash() {
  local content=$STATE/www/wp-content paths=("$STATE/www/lab" "$STATE/www/wp-config.php" "$STATE/www/wp-content/mu-plugins")
  if [[ -e $content/object-cache.php ]]; then paths+=("$content/object-cache.php"); fi
  tree_hash "${paths[@]}"
}

read_secrets() {
  if [[ ! -s $STATE/secrets ]]; then
    (umask 077 && printf '%s\n' "DATABASE_PASSWORD=$(random_word)" "ADMIN_PASSWORD=$(random_word)" >"$STATE/secrets")
  fi
  # shellcheck source=/dev/null
  source "$STATE/secrets"
}

# run_wordpress_script SCRIPT ARGUMENT...: as the web user, with the same php.ini and variables as the pool. PHP gets the
# script from us as standard input, because the web user cannot open it where the repository lies below /root.
run_wordpress_script() {
  (cd "$STATE/www" && as_user "$WEB_USER" env -i PATH="$SERVICE_PATH" PHP_INI_SCAN_DIR= \
    LAB_DATABASE_SOCKET="$STATE/mariadb/mysql.sock" LAB_DATABASE_PASSWORD="$DATABASE_PASSWORD" \
    LAB_REDIS_PORT="$REDIS_PORT" LAB_ADMIN_PASSWORD="$ADMIN_PASSWORD" LAB_HTTP_PORT="$HTTP_PORT" \
    "$PHP" -c "$STATE/conf/php.ini" -d memory_limit=512M -- "${@:2}") <"$1"
}

# Prints how many posts the seed has written, 0 before.
seeded_posts() {
  local count
  count=$(sql -e "SELECT option_value FROM wordpress.wp_options WHERE option_name = 'lab_seeded_posts'" 2>/dev/null) || true
  printf '%s\n' "${count:-0}"
}
