/* process_table.h - every process of the recording: who made it, what it runs, how it ended.
 *
 * Flow:     PROCESS, FORK, SPAWN, EXEC, WAIT, EXIT records, pidfds -> here -> PROCESS_START, PROCESS_END ... in the group
 * Idea:     a struct tm_process is one image: an exec ends it and begins another with the same pid. It is known from the first hint (a
 *           fork in its parent, or its own announcement), and gets its row in the trace when somebody refers to it or it is over, so
 *           that the row can carry its name and rank. Its end is written when its status is known: from the parent's wait call, or
 *           from its own exit.
 * Order:    a child may be born, exec, die and be waited for between two passes, and the rings are read one after the other. So what is
 *           told about lives (forks, execs, waits, deaths) is kept, in the order of its stamps, until the watermark has passed it.
 * Owns:     all processes, and the rows of their threads (thread_table.h), until the end.
 * Threads:  the drainer's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_PROCESS_TABLE_H
#define TIDEMARK_RECORDER_COLLECTOR_PROCESS_TABLE_H

#include "../shm.h"
#include "heap_table.h"
#include "id_map.h"
#include "launcher_variables.h"
#include "module_table.h"
#include "thread_names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_collector;

struct tm_pending_exec { /* an exec was announced; whether it happened shows later */
	bool announced;
	enum tm_exec_class class;
	uint64_t ticks;
	uint64_t seen_ns; /* CLOCK_MONOTONIC */
	char *path;       /* owned */
};

struct tm_process {
	uint32_t id;     /* in the trace; 0: no row yet */
	uint32_t number; /* in the session; 0: it has not attached */
	uint32_t pid;        /* as the process and its kin know it */
	uint32_t system_pid; /* as we do; 0: not known, and so is whether it lives */
	bool foreign;        /* its pids are of another namespace than ours */
	bool replaced;       /* by the image of an exec */
	uint32_t flags; /* enum tm_process_flag */
	struct tm_process *parent;
	struct tm_process *same_pid; /* the one that had the pid before */
	bool announcing;             /* INFO records still come */
	bool is_root;
	enum tm_exec_class root_class;
	bool sampled;                         /* the sampler knows it */
	bool parent_guessed;                  /* by who was its parent as it attached: who began it may have been gone by then */
	bool fork_seen, exec_seen;            /* its parent's FORK or SPAWN was read; and what it execs */
	bool gone;                            /* the kernel says so; what it and others recorded before may not be read yet */
	bool dead, end_written, exit_written; /* dead: and everything older has been read */
	bool unsaid;                          /* that it is not recorded: how it ended may be why */
	bool waited, exited;                  /* status known from a wait call; from its own exit or from /proc */
	int wait_status, exit_status;
	int pidfd; /* -1: none */
	int taken_status; /* what the kernel says that its parent was told; believed where nobody says more, as it may be that of the next one on its pid */
	size_t poll; /* its place in `polls`, from 1 on; 0: none */
	uint64_t start_ticks, end_ticks, dead_ns;
	char *exe, *command; /* owned; command's arguments are joined by NUL */
	size_t command_bytes;
	struct tm_launcher *launcher; /* owned; NULL: it has told nothing of one */
	struct tm_pending_exec exec;
	struct tm_pending_exec
		before; /* what the process ran before this image attached and after that which told of it: it says nothing itself */
	uint64_t attach_ticks;
	struct tm_loaded_modules modules;
	uint32_t heaps; /* enum tm_default_heap: those that have a record */
	uint32_t heap_ids[3]; /* theirs, in the order of the enum; 0: none yet */
	struct tm_own_numbers own;
	uint64_t cut_stacks, children_left_out; /* not noted yet; the latter: --follow=off */
};

enum tm_life_kind {
	TM_LIFE_DONE,
	TM_LIFE_FORK,
	TM_LIFE_SPAWN,
	TM_LIFE_EXEC,
	TM_LIFE_EXEC_FAILED,
	TM_LIFE_WAIT,
	TM_LIFE_DEATH,
	TM_LIFE_ROOT_END
}; /* DONE: it has taken effect */

struct tm_life_event {
	enum tm_life_kind kind;
	uint64_t ticks, seen_ns;
	struct tm_process *process; /* that told it; for a death the one that died */
	uint32_t pid;               /* of the child */
	enum tm_exec_class class;
	int status;  /* as of wait(2); -1 unknown */
	bool traces; /* the process that told of a wait traces others */
	char *path;  /* owned */
};

struct tm_process_table {
	struct tm_process **all;
	size_t count, capacity;
	struct tm_process **open; /* those whose end is not written yet */
	size_t open_count, open_capacity;
	struct tm_id_map by_pid, by_number, threads; /* threads: process id << 32 | number within the process */
	struct tm_id_map threads_by_tid;             /* process id << 32 | tid; the newest of that */
	struct tm_thread_names held_names;           /* of thread_table.c */
	struct tm_id_map left_out;                   /* parent by pid of children that are counted only, until they are waited for */
	uint32_t last_id, last_thread, last_heap;
	struct tm_life_event *life; /* sorted by ticks */
	size_t life_count, life_capacity;
	uint64_t checked_ns;
	bool foreign_seen; /* some process was */
	struct pollfd *polls;
	size_t poll_capacity;
	uint64_t look_ns; /* when those without a pidfd are looked up again */
};

void tm_processes_release(struct tm_process_table *t);

/* The command, known before it attaches; `class` says whether it can be recorded. */
struct tm_process *tm_process_add_root(struct tm_collector *c, uint32_t pid, const char *exe, char **command, enum tm_exec_class class);
/* The process of a ring; NULL while it has not announced itself. */
struct tm_process *tm_process_of_ring(struct tm_collector *c, uint32_t number, uint32_t pid);
/* A process announces itself: pid, parent's pid, number of the parent in the session (0: exec'd or first). */
struct tm_process *tm_process_attached(struct tm_collector *c, uint32_t number, uint32_t pid, uint32_t ppid, uint32_t parent_number,
				       uint64_t ticks);
/* What it says of itself: its pid in its /proc and the number of its pid namespace, 0: not known. Where the namespace is not ours, its own
 * pid means nothing to us, and perhaps another process. One whose pid we cannot find is never taken for dead before its parent's wait, or the
 * end of the recording, says so: its rings are in use. */
void tm_process_is_seen_as(struct tm_collector *c, struct tm_process *p, uint32_t pid_in_proc, uint32_t pid_namespace);
/* What it tells of its launcher. */
struct tm_launcher *tm_process_launcher(struct tm_process *p);
/* Its row is needed now. */
void tm_process_need_row(struct tm_collector *c, struct tm_process *p);

/* Something happened to the life of a process; takes effect in its turn. `path` is copied, of n bytes. */
void tm_process_life(struct tm_collector *c, struct tm_life_event event, const char *path, size_t n);
void tm_process_exit_begins(struct tm_collector *c, struct tm_process *p, uint64_t ticks);
/* The command's own end, as we learned it. */
void tm_process_root_ended(struct tm_collector *c, uint32_t pid, int status);

/* Finds out who has died, lets events of lives take effect that are due, writes ends. `all`: look now, not only every few milliseconds.
 */
void tm_processes_check(struct tm_collector *c, bool all);
/* True while events of lives wait for their turn. */
bool tm_processes_unsettled(const struct tm_collector *c);
/* All of them take effect now: for when nobody runs who could tell of something that happened before. */
void tm_processes_settle(struct tm_collector *c);
/* Recording ends: notes who still runs, writes every row and end that is missing. */
void tm_processes_finish(struct tm_collector *c);
/* True if a process of the recording has this pid, as we know it, and runs as far as has been noticed. */
bool tm_processes_have(const struct tm_collector *c, uint32_t system_pid);
/* True while a process of the recording other than the command runs. */
bool tm_processes_any_alive(const struct tm_collector *c);

#endif
