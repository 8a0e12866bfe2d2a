/* process_watch.h - whether a process lives, as the kernel says.
 *
 * Flow:     the kernel -> here -> process_table.c
 * Threads:  any.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_PROCESS_WATCH_H
#define TIDEMARK_RECORDER_COLLECTOR_PROCESS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* A descriptor that can be read from once the process is dead; -1: the kernel has none (before Linux 5.3), the process is gone, or there are so many that
 * files would have none left. */
int tm_pidfd_open(uint32_t pid);
/* Gone from /proc, or a zombie there without other threads: where main() has left by pthread_exit() its thread is one, and the others run. *status is set to
 * its wait status where /proc tells, else to -1. */
bool tm_proc_says_dead(uint32_t pid, int *status);
/* The wait status of one whose parent has taken it, from Linux 6.15 on; -1: the kernel does not tell. */
int tm_status_of_taken(int pidfd);

#endif
