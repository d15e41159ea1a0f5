# shellcheck shell=bash
# The three applications: files, configuration, data. Sourced by `apps`.
# shellcheck disable=SC2034 # some variables are used by the other parts

readonly APPLICATIONS=(wordpress mediawiki phpmyadmin)

# The name in all addresses: the same for all variants, whose ports differ.
readonly HOST=apps.example

# For the parts of the stack that we share.
OPTION_OBJECT_CACHE=none REDIS_PORT='' HTTP_PORT=80
readonly WORDPRESS_POSTS=300

# Where nginx finds an application's files.
root_of() {
  case $1 in
    wordpress) printf '%s\n' "$STATE/www" ;;
    mediawiki) printf '%s\n' /usr/share/mediawiki ;;
    phpmyadmin) printf '%s\n' "$STATE/phpmyadmin" ;;
  esac
}

# A page that shows that an application works.
page_of() {
  case $1 in
    wordpress) printf '%s\n' / ;;
    mediawiki) printf '%s\n' '/index.php?title=Main_Page' ;;
    phpmyadmin) printf '%s\n' '/index.php?route=/' ;;
  esac
}

prepare_database() {
  sql <<SQL
CREATE DATABASE IF NOT EXISTS wordpress CHARACTER SET utf8mb4;
CREATE DATABASE IF NOT EXISTS mediawiki CHARACTER SET binary;
CREATE DATABASE IF NOT EXISTS lab CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS lab@localhost IDENTIFIED BY '$DATABASE_PASSWORD';
GRANT ALL ON wordpress.* TO lab@localhost;
GRANT ALL ON mediawiki.* TO lab@localhost;
GRANT ALL ON lab.* TO lab@localhost;
CREATE TABLE IF NOT EXISTS lab.items (id INT PRIMARY KEY, name VARCHAR(80) NOT NULL, price_cents INT NOT NULL, stock INT NOT NULL);
INSERT IGNORE INTO lab.items SELECT seq, CONCAT('item ', seq), 100 + seq * 37 % 9900, seq * 7 % 100 FROM lab.seq_1_to_1000;
SQL
}

deploy_wordpress() {
  copy_wordpress
  # Always: it only adds what is missing.
  (($(seeded_posts) >= WORDPRESS_POSTS)) || run_wordpress_script "$HERE/wordpress/seed.php" "$WORDPRESS_POSTS" >&2 ||
    fail 'seeding WordPress failed' 'the lines above say why'
}

# Debian's own files, with a configuration file elsewhere: MediaWiki reads its place from a variable.
deploy_mediawiki() {
  local folder=$STATE/mediawiki
  mkdir -p "$folder"
  make_folder "$folder/cache" "$WEB_USER"
  make_folder "$folder/images" "$WEB_USER"
  if [[ $(sql -e "SHOW TABLES FROM mediawiki LIKE 'page'") != page ]]; then
    say 'installing the wiki'
    local log=$STATE/log/mediawiki-install.log
    mkdir -p "$folder/install"
    run_mediawiki_script install.php --dbtype mysql --dbserver "localhost:$STATE/mariadb/mysql.sock" --dbname mediawiki \
      --dbuser lab --dbpass "$DATABASE_PASSWORD" --server "http://$HOST" --scriptpath '' --confpath "$folder/install" \
      --pass "$ADMIN_PASSWORD" 'Lab wiki' Admin >"$log" 2>&1 || fail 'installing the wiki failed' "see $log"
  fi
  cp "$APPS/mediawiki/LocalSettings.php" "$folder/LocalSettings.php"
  if [[ ! -f $folder/.filled ]]; then
    run_mediawiki_script edit.php --conf "$folder/LocalSettings.php" --user Admin --summary first Main_Page \
      <"$APPS/mediawiki/main_page.wiki" >&2
    { cat "$APPS/mediawiki/main_page.wiki" && echo 'A second revision.'; } |
      run_mediawiki_script edit.php --conf "$folder/LocalSettings.php" --user Admin --summary second Main_Page >&2
    touch "$folder/.filled"
  fi
}

# run_mediawiki_script NAME ARGUMENT...: one of its maintenance scripts, by root, whose files they may write.
run_mediawiki_script() {
  (cd "$STATE" && env -i PATH="$SERVICE_PATH" PHP_INI_SCAN_DIR= LAB_DATABASE_SOCKET="$STATE/mariadb/mysql.sock" \
    LAB_DATABASE_PASSWORD="$DATABASE_PASSWORD" LAB_FOLDER="$STATE/mediawiki" "$PHP" -c "$STATE/conf/php.ini" -d memory_limit=512M \
    "/usr/share/mediawiki/maintenance/$1" "${@:2}")
}

# phpMyAdmin reads the places of its files from a file of its own, so it gets a copy.
deploy_phpmyadmin() {
  local version folder=$STATE/phpmyadmin
  # shellcheck disable=SC2016 # ${...} is dpkg's placeholder syntax
  version=$(dpkg-query -W -f='${Package} ${Version}\n' phpmyadmin)
  if [[ $(cat "$folder/.version" 2>/dev/null) != "$version" ]]; then
    say 'copying phpMyAdmin'
    rm -rf "$folder.new" "$folder"
    cp -rL /usr/share/phpmyadmin "$folder.new"
    sed -i -e "s|'/var/lib/phpmyadmin/tmp/'|'$STATE/phpmyadmin-tmp/'|" \
      -e "s|'/etc/phpmyadmin/config.inc.php'|'$folder/config.inc.php'|" "$folder.new/libraries/vendor_config.php"
    printf '%s\n' "$version" >"$folder.new/.version"
    mv "$folder.new" "$folder"
  fi
  make_folder "$STATE/phpmyadmin-tmp" "$WEB_USER"
  cp "$APPS/phpmyadmin/config.inc.php" "$folder/config.inc.php"
}

# What of the pages is ours, and the packages. With validate_timestamps=0 PHP-FPM must be started anew to see a change.
sources_hash() {
  {
    our_pages_hash
    tree_hash "$APPS/mediawiki" "$APPS/phpmyadmin"
    # shellcheck disable=SC2016 # ${...} is dpkg's placeholder syntax
    dpkg-query -W -f='${Package} ${Version}\n' "${PACKAGES[@]}"
  } | sha256sum
}
