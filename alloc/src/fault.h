/* Says which block a program touched where it must not, when the debug build makes that a fault. */
#ifndef SLIPMALLOC_FAULT_H
#define SLIPMALLOC_FAULT_H

/* Installs a handler of SIGSEGV. Faults elsewhere go to the one that was there before. */
void fault_begin(void);

#endif
