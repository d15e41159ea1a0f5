#ifndef SLIP_REFUSE_H
#define SLIP_REFUSE_H

#include "php.h"

extern zend_class_entry *slip_snapshot_exception;

/* Throws SnapshotException, unless an exception is pending already, and counts `reason` in status()['refusals'].
 * `reason` must live as long as the process. */
void slip_refuse(const char *reason, const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 2, 3);

/* The same without an exception: for what depends on the request and not on the application. A later request may do, and
 * this one must not fail because of us. The message is in status()['last_refusal'], and once for each reason in the log. */
void slip_refuse_quietly(const char *reason, const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 2, 3);

#endif
