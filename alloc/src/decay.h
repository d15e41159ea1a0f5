/* Gives memory back that was not needed for a while. Its clock is read where threads do something slow anyway. */
#ifndef SLIPMALLOC_DECAY_H
#define SLIPMALLOC_DECAY_H

/* A turn of decay if one is due. Takes locks. How many turns there were. */
unsigned decay_turn(void);

#endif
