# shellcheck shell=bash
# PHP: lines of php.ini.

# php_extensions NAME...: loads those that are installed. To be given in an order that satisfies their dependencies.
php_extensions() {
  local folder extension
  folder=$("$PHP" -n -r 'echo PHP_EXTENSION_DIR;')
  for extension; do
    if [[ -f $folder/$extension.so ]]; then printf 'extension=%s\n' "$extension"; fi
  done
}

# setting_lines NAME=VALUE[,NAME=VALUE]...: as lines of php.ini. An extension given by its path is copied and its copy loaded:
# PHP-FPM's processes crash when the linker overwrites a file that they have mapped. The copy's name holds its content, so that one
# that was built anew means new settings, and with them a new master.
setting_lines() {
  local setting file copy
  [[ -n $1 ]] || return 0
  while IFS= read -r setting; do
    # Of the environment, not of php.ini.
    if [[ $setting == env.* ]]; then continue; fi
    if [[ $setting == *extension=/* ]]; then
      file=${setting#*=}
      copy=$STATE/php/$(sha256sum <"$file" | cut -c1-16).so
      [[ -f $copy ]] || { cp "$file" "$copy.new" && mv "$copy.new" "$copy"; }
      setting=${setting%%=*}=$copy
    fi
    printf '%s\n' "$setting"
  done < <(tr ',' '\n' <<<"$1")
}
