/* own_thread.h - threads of the collector.
 *
 * Idea: signals are the main thread's: it says what each of them does (signals.h). They are blocked in every other one.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_OWN_THREAD_H
#define TIDEMARK_RECORDER_COLLECTOR_OWN_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* false: there is none to be had. */
bool tm_own_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
