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
