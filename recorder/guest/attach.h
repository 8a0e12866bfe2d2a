/* attach.h - joining a session and claiming rings (attach.c); used by hook.c, and by who maps much.
 *
 * Fails:    every call returns false and leaves the program as it was.
 */
#ifndef TIDEMARK_GUEST_ATTACH_H
#define TIDEMARK_GUEST_ATTACH_H

#include "guest.h"

/* Maps the session and takes a process number. Once a process; a fork's child keeps the mapping and takes a new number. */
bool tm_attach(const char *session_path);
uint32_t tm_new_process_number(void);
bool tm_data_is_limited(void);    /* RLIMIT_DATA: what is private and can be written */
bool tm_has_room(uint64_t bytes); /* of address space, where that is limited: what we map must leave the program most of it */
bool tm_session_opens(
	void);          /* for what this process runs; it may be another user now, or have another root, than when it was opened here */
bool tm_is_to_start(void); /* hook.c: nothing has begun in this process yet, not even to find out whether it is recorded */
void tm_go_quiet(void); /* nothing is recorded in this process from now on */

bool tm_ring_claim(struct tm_thread *t);  /* a ring for a thread that has none; false: none is free, or could be had */
bool tm_ring_is_coming(void);             /* none is free, and one will be, once the collector has read what its thread has left */
void tm_ring_let_go(struct tm_thread *t); /* it is another process's; what is still written goes nowhere */
void tm_ring_close(struct tm_thread *t);  /* its thread has ended; the collector frees it once it is read */

#endif
