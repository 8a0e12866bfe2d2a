/* thread_name.h - what the calling thread is called.
 *
 * Flow:     hook.c, process_hooks.c -> here
 * Threads:  any. No lock, no allocation, errno untouched. Not where no system call may be made.
 */
#ifndef TIDEMARK_GUEST_THREAD_NAME_H
#define TIDEMARK_GUEST_THREAD_NAME_H

#include <stddef.h>

#define TM_THREAD_NAME_BYTES 16u

/* The thread ends, perhaps one of many. Returns the name's length; 0: not to be had. */
size_t tm_thread_name_at_end(char name[TM_THREAD_NAME_BYTES]);

/* The same where the process ends, and with it the need for names: does nothing that pays only with many threads. */
size_t tm_thread_name_at_exit(char name[TM_THREAD_NAME_BYTES]);

#endif
