/* Memory that is resident before the program asks for it: a fault costs as much as 200 pairs of malloc() and free(). */
#ifndef SLIPMALLOC_PREWARM_H
#define SLIPMALLOC_PREWARM_H

/* SIZE:COUNT, separated by commas. What is wrong in it, or more than there is memory for, is left out. */
void prewarm(const char *list);

#endif
