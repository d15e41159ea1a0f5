#ifndef SLIP_FRESH_H
#define SLIP_FRESH_H

/* What Redis itself says of a connection: whether anything was said on it that one which is made now would not know. */
enum slip_fresh {
	SLIP_FRESH,
	/* A name, a database, a user or something else was given on it, or the server does not tell. */
	SLIP_NOT_FRESH,
	/* The answer is not there in time, or not whole: nobody can tell it any more from the answer to what a client asks next. */
	SLIP_FRESH_BROKEN
};

/* Asks on the connection, on which no answer may be outstanding and no transaction open, and reads the answer. It may be another user's,
 * and in another database, than a new one: with NULL it is not. */
enum slip_fresh slip_fresh_ask(int fd, int patience_ms, const char *user, const char *database);

#endif
