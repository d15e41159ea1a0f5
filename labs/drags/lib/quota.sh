# shellcheck shell=bash
# A control group with a CPU quota, for the workers of a pool. Sourced by `drags`. Its path is in $STATE/run/quota.

# set_quota QUOTA_MS/PERIOD_MS PID...
set_quota() {
  local quota=$((${1%/*} * 1000)) period=$((${1#*/} * 1000)) root folder pid
  shift
  [[ $EUID == 0 ]] || fail 'a control group needs root' "sudo $0 up $LAB_NAME" 5
  root=$(awk '$3 == "cgroup" && $4 ~ /(^|,)cpu(,|$)/ { print $2; exit }' /proc/mounts)
  if [[ -n $root ]]; then
    folder=$root/slip-drags-$$
    mkdir "$folder"
    printf '%s\n' "$folder" >"$STATE/run/quota"
    echo "$period" >"$folder/cpu.cfs_period_us"
    echo "$quota" >"$folder/cpu.cfs_quota_us"
  else
    root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    if [[ -z $root ]] || ! echo +cpu >"$root/cgroup.subtree_control"; then
      fail 'this machine has no control groups with a CPU quota' '' 4
    fi
    folder=$root/slip-drags-$$
    mkdir "$folder"
    printf '%s\n' "$folder" >"$STATE/run/quota"
    echo "$quota $period" >"$folder/cpu.max"
  fi
  for pid; do echo "$pid" >"$folder/cgroup.procs"; done
}

# Its processes have to have ended.
remove_quota() {
  local folder deadline=$((SECONDS + 5))
  [[ -f $STATE/run/quota ]] || return 0
  folder=$(cat "$STATE/run/quota")
  while [[ -d $folder ]] && ! rmdir "$folder" 2>/dev/null; do
    ((SECONDS < deadline)) || fail "$folder cannot be removed: something runs in it"
    sleep 0.02
  done
  rm -f "$STATE/run/quota"
}
