# shellcheck shell=bash
# What a lab changes of the machine: control groups for the workers of a pool, swap space, whether there are huge pages. Sourced by `drags`.
#
# It is noted before it is done, and undone by the next `up` of another lab and by `down`, also where one was interrupted meanwhile:
#   run/quota, run/memory  the folder of a control group
#   run/huge_pages         the kernel's setting as it was
#   swap                   a file that is swap space

readonly HUGE_PAGES=/sys/kernel/mm/transparent_hugepage/enabled

# not_here REASON: what the lab needs is not to be had on this machine.
not_here() { fail "cannot be had here: $1" '' 4; }

need_root() { [[ $EUID == 0 ]] || fail "$1 needs root" "sudo $0 up $LAB_NAME" 5; }

# What the lab that was up has changed. Its pool ends with it: it was started for that.
undo_machine() {
  [[ -e $STATE/run/quota || -e $STATE/run/memory || -e $STATE/run/huge_pages || -e $STATE/swap ]] || return 0
  stop_service php-fpm
  remove_group quota
  remove_group memory
  remove_swap
  restore_huge_pages
}

# Ends all. The folder goes last: it has what is to be undone.
verb_end() {
  case "$*" in
    '' | --delete) ;;
    *) bad_usage "down: unknown option $*" ;;
  esac
  verb_down
  [[ -e $STATE ]] || return 0
  undo_machine
  if [[ $* == --delete ]]; then verb_down --delete; fi
}

# make_group CONTROLLER NOTE: sets GROUP to the folder of a new control group, and GROUP_VERSION.
make_group() {
  local root
  need_root 'a control group'
  # Of a pool that was started anew.
  remove_group "$2"
  GROUP_VERSION=1
  root=$(awk -v controller="$1" '$3 == "cgroup" && $4 ~ "(^|,)" controller "(,|$)" { print $2; exit }' /proc/mounts)
  if [[ -z $root ]]; then
    GROUP_VERSION=2
    root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    if [[ -z $root ]] || ! { echo "+$1" >"$root/cgroup.subtree_control"; } 2>/dev/null; then
      not_here "no control groups with the controller $1"
    fi
  fi
  GROUP=$root/slip-drags-$$
  printf '%s\n' "$GROUP" >"$STATE/run/$2"
  mkdir "$GROUP" 2>/dev/null || not_here "$GROUP cannot be made"
}

# enter_group PID...
enter_group() {
  local pid
  for pid; do echo "$pid" >"$GROUP/cgroup.procs"; done
}

# remove_group NOTE: its processes have to have ended.
remove_group() {
  local folder deadline=$((SECONDS + 5))
  [[ -f $STATE/run/$1 ]] || return 0
  folder=$(cat "$STATE/run/$1")
  while [[ -d $folder ]] && ! rmdir "$folder" 2>/dev/null; do
    ((SECONDS < deadline)) || fail "$folder cannot be removed: something runs in it"
    sleep 0.02
  done
  rm -f "$STATE/run/$1"
}

# set_quota QUOTA_MS/PERIOD_MS PID...
set_quota() {
  local quota=$((${1%/*} * 1000)) period=$((${1#*/} * 1000))
  shift
  make_group cpu quota
  if [[ $GROUP_VERSION == 1 ]]; then
    echo "$period" >"$GROUP/cpu.cfs_period_us"
    echo "$quota" >"$GROUP/cpu.cfs_quota_us"
  else
    echo "$quota $period" >"$GROUP/cpu.max"
  fi
  enter_group "$@"
}

# limit_memory MIB PID...: nothing of the group goes to the swap, if the machine has one. That would be another drag.
limit_memory() {
  local limit=${1}M
  shift
  make_group memory memory
  if [[ $GROUP_VERSION == 1 ]]; then
    echo 0 >"$GROUP/memory.swappiness"
    echo "$limit" >"$GROUP/memory.limit_in_bytes"
  else
    if [[ -e $GROUP/memory.swap.max ]]; then echo 0 >"$GROUP/memory.swap.max"; fi
    echo "$limit" >"$GROUP/memory.max"
  fi
  enter_group "$@"
}

# gather_memory PID...: a group without a limit, by which the load moves what these have to the swap.
gather_memory() {
  make_group memory memory
  # Whatever the machine prefers.
  if [[ $GROUP_VERSION == 1 ]]; then echo 100 >"$GROUP/memory.swappiness"; fi
  enter_group "$@"
}

is_swap() { awk -v file="$1" 'NR > 1 && $1 == file { found = 1 } END { exit !found }' /proc/swaps; }

# add_swap MIB: of the lowest priority, as is the default, so that it is no other program's choice where the machine has swap space of its own.
add_swap() {
  local file=$STATE/swap why
  need_root 'swap space'
  if is_swap "$file"; then return; fi
  # Written, and not only reserved: not all file systems have swap space in what was never written.
  if ! why=$({
    umask 077
    dd if=/dev/zero of="$file" bs=1M count="$1" status=none && mkswap "$file" >/dev/null && swapon "$file"
  } 2>&1); then
    rm -f "$file"
    not_here "no swap space: ${why//$'\n'/; }"
  fi
}

remove_swap() {
  local file=$STATE/swap
  if is_swap "$file"; then swapoff "$file" || fail "$file cannot be taken out of use"; fi
  rm -f "$file"
}

# set_huge_pages never|given: other programs get no new ones either meanwhile, and keep those they have.
set_huge_pages() {
  local was note=$STATE/run/huge_pages
  was=$(huge_pages)
  case $1:$was in
    *:) not_here 'the kernel has no huge pages of this kind' ;;
    given:never) not_here 'the machine gives no huge pages' ;;
    given:* | never:never) return ;;
  esac
  need_root 'the setting of huge pages'
  # A note that is cut off would be one that says nothing.
  printf '%s\n' "$was" >"$note.new"
  mv "$note.new" "$note"
  if ! { echo never >"$HUGE_PAGES"; } 2>/dev/null; then
    rm -f "$note"
    not_here 'the setting of huge pages cannot be changed'
  fi
}

# Unless somebody else has changed it since.
restore_huge_pages() {
  local note=$STATE/run/huge_pages
  [[ -f $note ]] || return 0
  if [[ $(huge_pages) == never ]]; then cat "$note" >"$HUGE_PAGES" || fail "$HUGE_PAGES cannot be set to $(cat "$note")"; fi
  rm -f "$note"
}

# What stands in brackets.
huge_pages() { sed -nE 's/.*\[(.*)\].*/\1/p' "$HUGE_PAGES" 2>/dev/null || true; }
