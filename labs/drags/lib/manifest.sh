# shellcheck shell=bash
# The table of labs. Sourced by `drags`.
# shellcheck disable=SC2034 # what is read is used by the other parts

# read_lab NAME: sets the LAB_ variables to its row.
read_lab() {
  local name
  while IFS='|' read -r name LAB_RULE LAB_CAUSE LAB_SILENT LAB_SIZE LAB_SERVICE LAB_SETTINGS LAB_PAGE LAB_LOAD LAB_WHAT; do
    name=$(trim "$name")
    [[ $name == "$1" ]] || continue
    LAB_NAME=$name
    LAB_SERVICE=$(trim "$LAB_SERVICE") LAB_SETTINGS=$(trim "$LAB_SETTINGS") LAB_PAGE=$(trim "$LAB_PAGE")
    LAB_LOAD=$(trim "$LAB_LOAD") LAB_WHAT=$(trim "$LAB_WHAT")
    return
  done < <(grep -v '^#' "$DRAGS/manifest")
  bad_usage "there is no lab '$1'"
}

trim() {
  local text=$1
  text=${text#"${text%%[![:space:]]*}"}
  printf '%s' "${text%"${text##*[![:space:]]}"}"
}

# setting NAME DEFAULT: the value of NAME=VALUE among the lab's settings.
setting() {
  local word
  for word in $LAB_SETTINGS; do
    if [[ $word == "$1="* ]]; then
      printf '%s' "${word#*=}"
      return
    fi
  done
  printf '%s' "$2"
}

# The values of all settings NAME=VALUE, one per line.
settings() {
  local word
  for word in $LAB_SETTINGS; do
    if [[ $word == "$1="* ]]; then printf '%s\n' "${word#*=}"; fi
  done
}
