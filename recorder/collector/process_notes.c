/* process_notes.c - what the trace says in words of a process: see process_notes.h. */
#include "process_notes.h"

#include "collector.h"
#include "executable.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* Both once a process, when it ends. What is read of it only later, as after an exec of another thread, is told when the recording ends. */
void tm_process_note_cut_stacks(struct tm_collector *c, struct tm_process *p) {
	char text[256];
	if (!p->cut_stacks || !p->id) return;
	snprintf(text, sizeof text, "%llu %s without outermost frames: deeper than %u (--max-depth), or nothing could unwind that far",
		 (unsigned long long)p->cut_stacks, p->cut_stacks == 1 ? "stack is" : "stacks are", c->options.max_depth);
	tm_group_add_note(c->group, p->id, p->end_ticks, "cut-stacks", text);
	p->cut_stacks = 0;
}

void tm_process_note_left_out(struct tm_collector *c, struct tm_process *p) {
	char text[256];
	if (!p->children_left_out || !p->id) return;
	snprintf(text, sizeof text, "%llu %s not recorded (--follow=off)", (unsigned long long)p->children_left_out,
		 p->children_left_out == 1 ? "child process was" : "child processes were");
	tm_group_add_note(c->group, p->id, p->end_ticks, "not-followed", text);
	p->children_left_out = 0;
}

static bool stepped_aside(const struct tm_collector *c, uint32_t pid) {
	for (uint32_t i = 0; i < TM_STEPPED_ASIDE; i++)
		if (atomic_load(&c->session.shm->stepped_aside[i]) == pid) return true;
	return false;
}

static bool is_recorder(const struct tm_process *p) {
	const char *name = p && p->exe ? strrchr(p->exe, '/') : NULL;
	return name && !strcmp(name, "/tidemark-record");
}

/* How it ended may be why nothing was loaded. status: as of wait(2); TM_STATUS_UNKNOWN: not known, or it still runs. */
void tm_process_note_unrecorded(struct tm_collector *c, struct tm_process *p, enum tm_exec_class class, int status) {
	char text[1024], end[64] = "";
	if (c->stopped) return;
	const char *why = tm_exec_class_reason(class);
	if (class == TM_EXEC_NATIVE && stepped_aside(c, p->pid))
		why = "a limit of its address space (ulimit -v) leaves the recorder too little";
	else if (class == TM_EXEC_NATIVE && is_recorder(p->parent)) why = "the tidemark-record that started it records it";
	else if (class == TM_EXEC_NATIVE && status != TM_STATUS_UNKNOWN && WIFSIGNALED(status))
		snprintf(end, sizeof end, " before signal %d ended it", WTERMSIG(status));
	else if (class == TM_EXEC_NATIVE && status != TM_STATUS_UNKNOWN && WEXITSTATUS(status))
		snprintf(end, sizeof end, " before it ended with exit code %d", WEXITSTATUS(status));
	/* What could not begin beside our library is started without it, and hands that on. */
	const char *below = tm_exec_bears_no_preload(class) ? "; nor is what it starts" : "";
	if (p->is_root && class == TM_EXEC_STATIC) below = "; nor is what it leaves running when it ends"; /* nobody tells us of that */
	snprintf(text, sizeof text, "'%s' is not recorded: %s%s%s", p->exe ? p->exe : "?", why, end, below);
	tm_process_need_row(c, p);
	tm_group_add_note(c->group, p->id, p->start_ticks, "not-recordable", text);
	c->unrecorded++;
}
