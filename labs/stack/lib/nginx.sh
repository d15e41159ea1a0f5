# shellcheck shell=bash
# nginx: what the configuration of each lab begins with.

nginx_settings() {
  if [[ $EUID == 0 ]]; then printf 'user %s;\n' "$WEB_USER"; fi
  cat <<CONF
worker_processes 1;
daemon off;
pid $STATE/nginx/nginx.pid;
error_log stderr warn;
events { worker_connections 1024; }
CONF
}

# The inside of `http`, without servers.
nginx_http_settings() {
  cat <<CONF
  access_log off;
  keepalive_requests 1000000;
  client_body_temp_path $STATE/nginx/body;
  fastcgi_temp_path $STATE/nginx/fastcgi;
  proxy_temp_path $STATE/nginx/proxy;
  uwsgi_temp_path $STATE/nginx/uwsgi;
  scgi_temp_path $STATE/nginx/scgi;
  types { text/html html; text/css css; application/javascript js; image/svg+xml svg; image/png png; image/jpeg jpg; }
  default_type application/octet-stream;
  fastcgi_buffers 32 32k;
  fastcgi_buffer_size 32k;
  fastcgi_param QUERY_STRING \$query_string;
  fastcgi_param REQUEST_METHOD \$request_method;
  fastcgi_param CONTENT_TYPE \$content_type;
  fastcgi_param CONTENT_LENGTH \$content_length;
  fastcgi_param SCRIPT_NAME \$fastcgi_script_name;
  fastcgi_param SCRIPT_FILENAME \$document_root\$fastcgi_script_name;
  fastcgi_param REQUEST_URI \$request_uri;
  fastcgi_param DOCUMENT_URI \$document_uri;
  fastcgi_param DOCUMENT_ROOT \$document_root;
  fastcgi_param SERVER_PROTOCOL \$server_protocol;
  fastcgi_param REQUEST_SCHEME \$scheme;
  fastcgi_param GATEWAY_INTERFACE CGI/1.1;
  fastcgi_param SERVER_SOFTWARE nginx;
  fastcgi_param REMOTE_ADDR \$remote_addr;
  fastcgi_param REMOTE_PORT \$remote_port;
  fastcgi_param SERVER_ADDR \$server_addr;
  fastcgi_param SERVER_PORT \$server_port;
  fastcgi_param SERVER_NAME 127.0.0.1;
  fastcgi_param REDIRECT_STATUS 200;
CONF
}
