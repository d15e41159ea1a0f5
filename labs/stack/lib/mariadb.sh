# shellcheck shell=bash
# MariaDB: its configuration, its data folder, statements by its administrator. Without MARIADB_PORT it has a socket only.

start_mariadb() {
  make_folder "$STATE/mariadb" "$DATABASE_USER"
  # A small redo log and no flush per commit: the data is generated, and seeding should take seconds.
  cat >"$STATE/conf/mariadb.cnf" <<CONF
[mariadbd]
datadir=$STATE/mariadb/data
tmpdir=$STATE/mariadb
socket=$STATE/mariadb/mysql.sock
pid-file=$STATE/mariadb/mariadbd.pid
$(if [[ -n ${MARIADB_PORT-} ]]; then printf '%s\n' "port=$MARIADB_PORT" bind-address=127.0.0.1; else echo skip-networking; fi)
skip-name-resolve
innodb_buffer_pool_size=128M
innodb_log_file_size=16M
innodb_flush_log_at_trx_commit=0
performance_schema=OFF
CONF
  if [[ ! -d $STATE/mariadb/data ]]; then create_database_folder; fi
  ensure mariadb "$DATABASE_USER" '' "$(cat "$STATE/conf/mariadb.cnf")" \
    /usr/sbin/mariadbd --defaults-file="$STATE/conf/mariadb.cnf"
}

# The administrator is the account that runs this script, recognised by the socket, without a password: other users of
# the machine cannot log in. --force: also where the host name does not resolve. Made elsewhere and moved, so that an
# interrupted attempt is not taken for a database.
create_database_folder() {
  local log=$STATE/log/mariadb-install-db.log
  rm -rf "$STATE/mariadb/data.new"
  (as_user "$DATABASE_USER" mariadb-install-db --no-defaults --datadir="$STATE/mariadb/data.new" \
    --auth-root-authentication-method=socket --auth-root-socket-user="$(id -un)" \
    --skip-test-db --skip-name-resolve --force --innodb-log-file-size=16M) >"$log" 2>&1 ||
    fail "mariadb-install-db failed: $(tail -n 3 "$log" | tr '\n' ' ')" "the whole output is in $log"
  mv "$STATE/mariadb/data.new" "$STATE/mariadb/data"
}

sql() { mariadb --no-defaults --socket="$STATE/mariadb/mysql.sock" --user="$(id -un)" --batch --skip-column-names "$@"; }
mariadb_ready() { sql -e 'SELECT 1'; }
