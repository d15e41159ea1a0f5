# shellcheck shell=bash
# The application: our copy of it, its caches, its data. Sourced by `symfony`.

# Pages that are asked for before `up` returns: each kind once.
readonly PAGES=(
  / /about '/search?q=river' /news /news/page/1 /news/page/2 /news/author/1 /news/tag/old-bridge /news/archive/2020
  /news/feed.xml /news/post/news-1 /news/post/news-1/comment
)

# Copies the application and fills its caches, unless that was done for these very sources. Needs the database.
deploy() {
  local app=$STATE/app sources
  # Without the names of the files' folders, so that a moved repository is not taken for a change.
  sources="$(cd "$HERE/app" && tree_hash .) $(package_versions)"
  if [[ $(head -n 1 "$app/.deployed" 2>/dev/null) == "$sources" ]]; then return; fi
  say 'building the application'
  copy_tree "$HERE/app" "$app"
  make_folder "$app/var" "$WEB_USER"
  run_script classmap
  [[ $(sql -e "SHOW TABLES FROM journal LIKE 'post'") == post ]] || run_script seed >&2
  run_script warm
  # The second line differs each time: PHP-FPM, which looks at no file twice, is started anew.
  printf '%s\n' "$sources" "$(date +%s%N)" >"$app/.deployed"
}

package_versions() {
  # shellcheck disable=SC2016 # ${...} is dpkg's placeholder syntax
  dpkg-query -W -f='${Package} ${Version}\n' "${PACKAGES[@]}" | sha256sum
}

# run_script NAME: one of app/bin, as the web user, with the php.ini and the variables of the pools.
run_script() {
  (cd "$STATE/app" && as_user "$WEB_USER" env -i PATH="$SERVICE_PATH" PHP_INI_SCAN_DIR= LAB_DATABASE_SOCKET="$STATE/mariadb/mysql.sock" \
    LAB_DATABASE_PASSWORD="$DATABASE_PASSWORD" "$PHP" -c "$STATE/conf/php.ini" "bin/$1") ||
    fail "bin/$1 of the application failed" 'the lines above say why'
}

prepare_database() {
  sql <<SQL
CREATE DATABASE IF NOT EXISTS journal CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS lab@localhost IDENTIFIED BY '$DATABASE_PASSWORD';
GRANT ALL ON journal.* TO lab@localhost;
SQL
}

read_secrets() {
  if [[ ! -s $STATE/secrets ]]; then
    (umask 077 && printf '%s\n' "DATABASE_PASSWORD=$(random_word)" >"$STATE/secrets")
  fi
  # shellcheck source=/dev/null
  source "$STATE/secrets"
}

# Asks every variant for each page, twice: opcache holds all code then, and a snapshot, if there is one, has been restored.
visit_pages() {
  local name page
  for name in "${VARIANTS[@]}"; do
    for page in "${PAGES[@]}" "${PAGES[@]}"; do
      http_ok "${VARIANT_PORT[$name]}" "$page" ||
        fail "variant $name does not answer $page with status 200" "see $STATE/log/php-fpm-$name.log"
    done
  done
}
