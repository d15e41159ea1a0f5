#ifndef SLIP_REPLAY_H
#define SLIP_REPLAY_H

#include <stdbool.h>
#include <stddef.h>

/* What a boot has told Redis on one connection: who it is (AUTH), and which database it means (SELECT). A connection that takes the place
 * of that one is told the same, in one packet with the reset, or when it is made.
 *
 * It is a secret: it is in this worker's own memory, not in the image, is shown nowhere, and is wiped once nobody needs it. */

/* Commands in a row of one kind are one. An application that is authenticated by longer words is not restored with its connection. */
#define SLIP_REPLAY_COMMANDS 4
#define SLIP_REPLAY_BYTES 1024
#define SLIP_REPLAY_NAME 128

/* What Redis answers to the reset and to so many commands. */
#define SLIP_REPLAY_ANSWER 64

typedef struct {
	/* The reset, and behind it the commands as the client has written them. */
	char packet[SLIP_REPLAY_BYTES];
	size_t length;
	struct {
		size_t at;
		bool is_auth;
	} commands[SLIP_REPLAY_COMMANDS];
	int count;
	/* What Redis says of a connection on which these were said. */
	char user[SLIP_REPLAY_NAME], database[SLIP_REPLAY_NAME];
	/* The answer to the last one has not come; so many bytes of it have. */
	bool is_awaiting;
	size_t come;
	/* One was not taken, or its answer is not alone: what would have to be said is not known. */
	bool is_spoiled;
} slip_replay_t;

/* What a client has written while nothing else was outstanding. True if it is such a command, and was noted; `*said` is made for the
 * first one. */
bool slip_replay_hear(slip_replay_t **said, const char *data, size_t length);

/* What was read. */
void slip_replay_hear_answer(slip_replay_t *said, const char *data, size_t length);

/* Whether each command was taken. */
bool slip_replay_is_known(const slip_replay_t *said);

/* Wipes it, too. It is in malloc's memory, or NULL. */
void slip_replay_free(slip_replay_t *);

/* Whether one of its words has these bytes in it. */
bool slip_replay_has(const slip_replay_t *, const char *bytes, size_t length);

/* What must come after the packet, and nothing else; its length. */
size_t slip_replay_answer(const slip_replay_t *, char answer[SLIP_REPLAY_ANSWER]);

/* Says it on a new connection and reads the answers, for as long at most. False if they are not as they were: the connection is of no
 * use then. */
bool slip_replay_say(const slip_replay_t *, int fd, int patience_ms);

#endif
