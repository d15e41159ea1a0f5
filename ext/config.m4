PHP_ARG_ENABLE([slipstream],
  [whether to enable Slipstream],
  [AS_HELP_STRING([--enable-slipstream], [Enable Slipstream: snapshots of a PHP worker's booted state])],
  [yes])

if test "$PHP_SLIPSTREAM" != "no"; then
  if test "$PHP_THREAD_SAFETY" = "yes"; then
    AC_MSG_ERROR([Slipstream needs a PHP without thread safety (NTS): an image is the state of one process])
  fi
  AC_CHECK_HEADERS([linux/userfaultfd.h], [], [AC_MSG_ERROR([Slipstream needs the Linux kernel headers (linux/userfaultfd.h)])])
  SLIPSTREAM_SOURCES="slipstream.c \
    src/asleep.c src/callbacks.c src/framing.c src/fresh.c src/heap.c src/image.c src/keep.c src/key.c src/layout.c src/memcached.c src/native.c src/objects.c src/opcache.c \
    src/parked.c src/path.c src/proc.c src/replay.c src/replies.c src/request.c src/resources.c src/rollback.c src/secrets.c src/state.c src/status.c src/streams.c \
    src/tables.c src/tls.c"
  PHP_NEW_EXTENSION([slipstream], [$SLIPSTREAM_SOURCES], [$ext_shared], ,
    [-DZEND_ENABLE_STATIC_TSRMLS_CACHE=1 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -fvisibility=hidden])
  PHP_ADD_BUILD_DIR([$ext_builddir/src])
  PHP_ADD_INCLUDE([$ext_srcdir])
fi
