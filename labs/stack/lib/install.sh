# shellcheck shell=bash
# Verb install: Debian's packages, and others that the caller wants, without letting them start services.
#
# PACKAGES, from the script that sources this, are those of the lab.

# Where invoke-rc.d looks for permission before it starts a service.
readonly POLICY=/usr/sbin/policy-rc.d
readonly POLICY_MARK='# written by the Slipstream lab for the length of one installation'

verb_install() {
  local packages=("${PACKAGES[@]}" "$@") missing=() wants
  [[ "${1-}" != -* ]] || bad_usage "install: unknown option $1"
  wants=$(missing_packages "${packages[@]}")
  if [[ -z $wants ]]; then
    say "all packages of the lab are installed"
    return
  fi
  mapfile -t missing <<<"$wants"
  [[ $EUID == 0 ]] || fail 'installing packages needs root' "sudo $0 install${*:+ $*}" 5
  if ! plan_install "${missing[@]}" >/dev/null 2>&1; then
    say 'reading the package lists of the distribution server (apt-get update)'
    update_lists
    plan_install "${missing[@]}" >/dev/null || fail 'apt cannot install the packages of the lab' 'the lines above say why'
  fi
  print_plan "${missing[@]}"
  say 'installing (about half a minute)'
  SECONDS=0
  hold_services
  if ! apt_install "${missing[@]}"; then
    # Lists that are older than the server's last change name files that are gone.
    say 'trying again with fresh package lists'
    update_lists
    apt_install "${missing[@]}" || fail 'apt-get install failed' 'the lines above say why'
  fi
  release_services
  if [[ -d /run/systemd/system ]]; then
    say 'note: the packages enable their own services for the next boot; the lab does not need them:'
    say '      systemctl disable nginx php8.2-fpm redis-server mariadb'
  fi
  wants=$(missing_packages "${packages[@]}")
  [[ -z $wants ]] || fail "not installed after all: ${wants//$'\n'/ }"
  say "installed in $SECONDS s"
}

missing_packages() {
  # dpkg-query fails for packages it has never heard of, but lists the others all the same.
  # shellcheck disable=SC2016 # ${...} is dpkg's placeholder syntax
  { dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true; } |
    awk -v wanted="$*" '
      $1 == "installed" { have[$2] = 1 }
      END { n = split(wanted, name, " "); for (i = 1; i <= n; i++) if (!have[name[i]]++) print name[i] }'
}

plan_install() { apt-get install --simulate --no-install-recommends "$@"; }

update_lists() {
  apt-get update -qq >&2 || fail 'apt-get update failed' 'is the distribution server reachable?'
}

# Every package, new or upgraded, and the size of all, before anything is touched. (Not by --assume-no: apt-get installs
# without asking where nothing but the named packages is needed. --print-uris never installs.)
print_plan() {
  say 'apt-get will now install or upgrade:'
  plan_install "$@" | sed -nE 's/^Inst ([^ ]+) .*/\1/p' | paste -sd ' ' | fold -s -w 116 | sed 's/^/  /' >&2
  apt-get install --print-uris --no-install-recommends "$@" |
    grep -E '^(Need to get|After this operation|[0-9]+ upgraded)' | sed 's/^/  /' >&2
}

# dpkg tells about every step; that is of interest only when one fails.
apt_install() {
  local log
  log=$(mktemp)
  if DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 in_policy_namespace \
    apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1; then
    rm -f "$log"
    return 0
  fi
  tail -n 15 "$log" | sed 's/^/  | /' >&2
  say "the whole output is in $log"
  return 1
}

# Keeps services from being started, in one of three ways:
# - the machine's policy already forbids it (containers): nothing to do;
# - there is no policy: ours exists for the length of the installation, and is removed by a trap;
# - there is another policy: it stays untouched, ours covers it in a mount namespace that only apt-get sees.
COVER_POLICY=no
hold_services() {
  if [[ -e $POLICY ]] && ! grep -qxF "$POLICY_MARK" "$POLICY"; then
    local answer=0
    "$POLICY" redis-server start >/dev/null 2>&1 || answer=$?
    [[ $answer != 101 ]] || return 0
    unshare --mount --propagation private true 2>/dev/null ||
      fail "$POLICY lets packages start their services, and this machine does not let us cover it for a while" \
        'move it away for the installation, or install the packages by hand'
    COVER_POLICY=yes
    return
  fi
  trap release_services EXIT
  trap 'exit 130' INT TERM HUP
  write_policy "$POLICY"
}

write_policy() {
  printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" >"$1"
  chmod 755 "$1"
}

# Also removes one that a killed installation left behind; never anybody else's.
release_services() {
  if [[ -e $POLICY ]] && grep -qxF "$POLICY_MARK" "$POLICY"; then rm -f "$POLICY"; fi
}

in_policy_namespace() {
  if [[ $COVER_POLICY == no ]]; then
    "$@"
    return
  fi
  local ours status=0
  ours=$(mktemp)
  write_policy "$ours"
  # shellcheck disable=SC2016 # expanded by the inner shell
  unshare --mount --propagation private sh -c 'mount --bind "$0" "$1" && shift && exec "$@"' "$ours" "$POLICY" "$@" || status=$?
  rm -f "$ours"
  return "$status"
}
