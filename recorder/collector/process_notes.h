/* process_notes.h - what the trace says in words of a process, when its end or what it is becomes known.
 *
 * Flow:     process_table.c -> here -> notes in the group
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_PROCESS_NOTES_H
#define TIDEMARK_RECORDER_COLLECTOR_PROCESS_NOTES_H

#include "../shm.h"

struct tm_collector;
struct tm_process;

#define TM_STATUS_UNKNOWN (-1)

/* Why nothing of it is in the trace. status: as of wait(2); TM_STATUS_UNKNOWN: not known, or it still runs. */
void tm_process_note_unrecorded(struct tm_collector *c, struct tm_process *p, enum tm_exec_class class, int status);
/* Both once a process, when it ends. */
void tm_process_note_cut_stacks(struct tm_collector *c, struct tm_process *p);
void tm_process_note_left_out(struct tm_collector *c, struct tm_process *p);

#endif
