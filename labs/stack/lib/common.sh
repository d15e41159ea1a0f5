# shellcheck shell=bash
# Messages, the lab's folder, its lock. Sourced by the script of each lab, which sets before
#   LAB             its name, for the folder
#   STATE_VARIABLE  the variable by which a user chooses another folder
# shellcheck disable=SC2034 # the constants are used by the other parts

say() { printf '%s\n' "$*" >&2; }

# fail MESSAGE [HINT [EXIT_CODE]]
fail() {
  printf 'error: %s\n' "$1" >&2
  [[ -z ${2-} ]] || printf 'hint: %s\n' "$2" >&2
  exit "${3-1}"
}

# With a message: a mistake in the arguments. Without: no verb was given.
bad_usage() {
  [[ -z ${1-} ]] || fail "$1" "$0 without arguments lists verbs and options" 2
  usage >&2
  exit 2
}

# The lab's folder. Not below $HOME: the services run as www-data, mysql and redis, and a home folder (0700 for root)
# would hide their files from them. Not /tmp: some systems empty it while services run.
STATE=${!STATE_VARIABLE:-/var/tmp/slipstream-$LAB-$EUID}
STATE=$(readlink -m "$STATE")
readonly STATE
[[ $STATE != *[[:space:]]* ]] || fail "the path of the lab's folder contains white space: $STATE" "set $STATE_VARIABLE"

# Debian's interpreters by full path: another python3 or php earlier in PATH lacks Debian's modules.
readonly PYTHON=/usr/bin/python3 PHP=/usr/bin/php8.2
readonly SERVICE_PATH=/usr/sbin:/usr/bin:/sbin:/bin

# Root gives each service the account Debian gives it; anybody else runs all of them under the own account.
if [[ $EUID == 0 ]]; then
  WEB_USER=www-data REDIS_USER=redis DATABASE_USER=mysql
else
  WEB_USER=$(id -un)
  REDIS_USER=$WEB_USER DATABASE_USER=$WEB_USER
fi
readonly WEB_USER REDIS_USER DATABASE_USER

# as_user USER COMMAND...: never forks, so the pid of the caller's child is the pid of COMMAND.
as_user() {
  local user=$1
  shift
  if [[ $EUID == 0 ]]; then
    exec setpriv --reuid="$user" --regid="$(id -gn "$user")" --init-groups -- "$@"
  fi
  exec "$@"
}

# make_folder PATH OWNER: only root can give a folder away; for others everything is theirs already.
make_folder() {
  mkdir -p "$1"
  if [[ $EUID == 0 ]]; then chown "$2" "$1"; fi
}

# Creates the folder, or refuses one that somebody else prepared: /var/tmp is writable for all, and we are about to run
# services from configuration found there.
open_state() {
  local made=no
  if [[ ! -e $STATE && ! -L $STATE ]]; then
    mkdir -p "$STATE"
    made=yes
  fi
  [[ -d $STATE && ! -L $STATE && $(stat -c %u "$STATE") == "$EUID" ]] ||
    fail "$STATE is not a folder of $(id -un)" "set $STATE_VARIABLE to another one"
  chmod 755 "$STATE"
  if [[ $EUID == 0 ]] && ! (as_user "$WEB_USER" test -x "$STATE/.") 2>/dev/null; then
    if [[ $made == yes ]]; then rmdir "$STATE"; fi
    fail "user $WEB_USER cannot enter $STATE" "set $STATE_VARIABLE to a folder that all users can reach"
  fi
}

# One verb at a time changes a lab. The descriptor is closed in the services (spawn), or they would hold the lock.
lock_state() {
  exec 9>"$STATE/lock"
  flock --wait 120 9 || fail "another $LAB command has been busy in $STATE for two minutes"
}

read_addresses() {
  # shellcheck source=/dev/null
  source "$STATE/addresses"
}

need_state() {
  [[ -f $STATE/addresses ]] || fail "there is no $LAB in $STATE" "start one: $0 up" 3
  read_addresses
}

# Random letters and digits, for passwords that guard the lab from other users of this machine.
random_word() { head -c 24 /dev/urandom | base64 | tr -dc 'A-Za-z0-9' | head -c 20; }

check_option() {
  [[ $2 =~ ^($3)$ ]] || bad_usage "up: --$1 cannot be '$2'"
}

assign() { printf '%s=%q\n' "$1" "$2"; }
