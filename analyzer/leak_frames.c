/* leak_frames.c - what is known of frames before any event is; see leak_frames.h. */
#include "leak_frames.h"

#include "leak_names.h"

/* What is only needed until all frames are judged. */
struct judge {
	const struct tm_stack_ids *stacks;
	uint16_t *functions, *files, *modules; /* what is known of texts, by id */
	struct tm_suppressions program;        /* what the process itself brings */
};

struct tm_leak_place tm_leak_place(const struct tm_stack_ids *t, uint32_t frame, uint32_t function) {
	const struct tm_catalog *c = t->catalog;
	static const struct tm_catalog_function unknown;
	const struct tm_catalog_frame *f = &c->frames.items[frame - 1];
	const struct tm_catalog_function *named = function < f->function_count ? &c->functions.items[f->functions + function] : &unknown;
	bool has_module = f->kind != TM_FRAME_PYTHON && f->module && f->module <= c->modules.count;
	struct tm_text module = has_module ? c->modules.items[f->module - 1].path : (struct tm_text){ "", 0 };
	return (struct tm_leak_place){ f, named, { tm_leak_string(c, named->name), tm_leak_string(c, named->file), module } };
}

/* --- texts --- */

static bool is_arena(struct tm_text function) {
	return tm_leak_text_starts(function, "new_arena") || tm_leak_text_starts(function, "_PyObject_Arena") ||
	       tm_leak_text_starts(function, "_PyMem_ArenaAlloc");
}

static uint16_t judge_text(const struct judge *j, struct tm_text text) {
	const struct tm_suppression_frame alone = { .function = text };
	uint16_t flags = FRAME_SEEN;
	if (tm_suppressions_known(&alone, true)) flags |= FRAME_KNOWN_INNER;
	if (flags & FRAME_KNOWN_INNER && tm_suppressions_known(&alone, false)) flags |= FRAME_KNOWN;
	if (tm_suppressions_match(&j->program, &alone)) flags |= FRAME_PROGRAM;
	return flags;
}

static uint16_t flags_of_function(const struct judge *j, uint32_t id) {
	struct tm_text text = tm_leak_string(j->stacks->catalog, id);
	uint16_t *flags = &j->functions[id];
	if (*flags) return *flags;
	*flags = judge_text(j, text);
	if (tm_is_library_function(text)) *flags |= FRAME_LIBRARY;
	if (is_arena(text)) *flags |= FRAME_ARENA;
	if (tm_leak_text_starts(text, "pthread_create") || tm_leak_text_starts(text, "__pthread_create")) *flags |= FRAME_SPAWNS;
	return *flags;
}

static uint16_t flags_of_file(const struct judge *j, uint32_t id) {
	uint16_t *flags = &j->files[id];
	if (!*flags) *flags = judge_text(j, tm_leak_string(j->stacks->catalog, id));
	return *flags;
}

static uint16_t flags_of_module(const struct judge *j, uint32_t id, struct tm_text path) {
	uint16_t *flags = &j->modules[id];
	if (!*flags) *flags = judge_text(j, path) | (tm_is_library(path) ? FRAME_LIBRARY : 0);
	return *flags;
}

/* --- frames and nodes --- */

static uint16_t judge_frame(const struct judge *j, uint32_t frame, uint32_t function) {
	struct tm_leak_place p = tm_leak_place(j->stacks, frame, function);
	uint16_t flags = flags_of_function(j, p.named->name) | flags_of_file(j, p.named->file);
	if (p.text.module.size) flags |= flags_of_module(j, p.frame->module, p.text.module);
	if (tm_frame_is_wrapper(j->stacks, p.frame, function)) flags |= FRAME_WRAPPER;
	if (p.frame->kind == TM_FRAME_PYTHON) flags |= FRAME_PYTHON;
	if (p.frame->kind == TM_FRAME_PYTHON && tm_leak_text_starts(p.text.file, "<frozen importlib")) flags |= FRAME_IMPORTS;
	return flags;
}

static uint32_t name_of(const struct tm_catalog *c, const struct tm_catalog_frame *f) {
	return f->function_count ? c->functions.items[f->functions].name : 0;
}

/* What two frames have in common where nothing more is to be seen when one has called the other. Unnamed functions are alike, too. */
static uint64_t likeness_of(const struct tm_leak_frames *f, uint32_t frame) {
	const struct tm_catalog_frame *x = &f->stacks->catalog->frames.items[frame - 1];
	if (tm_frame_functions(x) > 1) return (uint64_t)1 << 63 | frame;
	return (uint64_t)name_of(f->stacks->catalog, x) << 16 | f->flags[f->stacks->frame_first[frame - 1]];
}

/* Of each frame, found out before there are so many nodes. */
struct summary {
	uint64_t likeness;
	uint16_t flags; /* that its functions have together */
};

static void judge_frames(struct tm_leak_frames *f, const struct judge *j, struct summary *all) {
	const struct tm_catalog *c = f->stacks->catalog;
	for (uint32_t frame = 1; frame <= c->frames.count; frame++) {
		uint16_t *first = &f->flags[f->stacks->frame_first[frame - 1]];
		for (uint32_t i = 0; i < tm_frame_functions(&c->frames.items[frame - 1]); i++)
			all[frame].flags |= first[i] = judge_frame(j, frame, i);
		all[frame].likeness = likeness_of(f, frame);
		f->has_python |= (all[frame].flags & FRAME_PYTHON) != 0;
	}
}

static void judge_nodes(struct tm_leak_frames *f, const struct summary *all) {
	const struct tm_catalog *c = f->stacks->catalog;
	for (uint32_t node = 1; node <= c->nodes.count; node++) {
		const struct tm_catalog_node *n = &c->nodes.items[node - 1];
		const struct summary *own = &all[n->frame];
		bool goes_on = n->parent && own->likeness == all[c->nodes.items[n->parent - 1].frame].likeness;
		f->outward[node] = f->outward[n->parent] | own->flags;
		f->run[node] = goes_on ? f->run[n->parent] : node;
	}
}

static bool make_tables(struct tm_leak_frames *f) {
	const struct tm_catalog *c = f->stacks->catalog;
	f->flags = calloc(f->stacks->frame_first[c->frames.count] + 1, sizeof *f->flags);
	f->outward = tm_table_new(c->nodes.count + 1, sizeof *f->outward);
	f->run = tm_table_new(c->nodes.count + 1, sizeof *f->run);
	return f->flags && f->outward && f->run;
}

static void give_tables_back(struct tm_leak_frames *f) {
	free(f->flags);
	free(f->outward);
	free(f->run);
	f->flags = f->outward = NULL;
	f->run = NULL;
}

/* Of a list that has a wrong line, what stands before it counts. false: out of memory. */
static bool judge_all(struct tm_leak_frames *f) {
	const struct tm_catalog *c = f->stacks->catalog;
	struct judge j = { .stacks = f->stacks };
	struct tm_text list = f->list ? c->notes.items[f->list - 1].text : tm_text_of("");
	char error[200];
	bool done = tm_suppressions_add(&j.program, list.data, list.size, error, sizeof error) != -2;
	j.functions = calloc(c->strings.count + 1, sizeof *j.functions);
	j.files = calloc(c->strings.count + 1, sizeof *j.files);
	j.modules = calloc(c->modules.count + 1, sizeof *j.modules);
	struct summary *all = calloc(c->frames.count + 1, sizeof *all);
	done = done && j.functions && j.files && j.modules && all && make_tables(f);
	if (done) {
		judge_frames(f, &j, all);
		judge_nodes(f, all);
	} else {
		give_tables_back(f);
	}
	free(all);
	free(j.functions);
	free(j.files);
	free(j.modules);
	tm_suppressions_release(&j.program);
	return done;
}

/* --- whose list --- */

/* Number of the note with the list of a process; 0: none. A fork has its parent's executable and no note of its own. */
static size_t list_of(const struct tm_catalog *c, uint32_t process) {
	const struct tm_text kind = { "suppressions", strlen("suppressions") };
	for (uint64_t id = process; id && id <= c->processes.count; id = c->processes.items[id - 1].parent_id) {
		if (!tm_leak_text_is(c->processes.items[id - 1].exe, c->processes.items[process - 1].exe)) return 0;
		for (size_t i = 0; i < c->notes.count; i++)
			if (c->notes.items[i].process == id && tm_leak_text_is(c->notes.items[i].kind, kind)) return i + 1;
		if (c->processes.items[id - 1].parent_id >= id) return 0;
	}
	return 0;
}

static bool is_same_list(const struct tm_catalog *c, size_t a, size_t b) {
	return a == b || (a && b && tm_leak_text_is(c->notes.items[a - 1].text, c->notes.items[b - 1].text));
}

static void *judge_first(void *argument) {
	struct tm_leak_frames *f = argument;
	f->failed = !judge_all(f);
	return NULL;
}

void tm_leak_frames_start(struct tm_leak_frames *f, const struct tm_stack_ids *stacks) {
	f->stacks = stacks;
	if (stacks->catalog->processes.count) f->list = list_of(stacks->catalog, 1);
	f->runs = pthread_create(&f->thread, NULL, judge_first, f) == 0;
}

static void wait_for_thread(struct tm_leak_frames *f) {
	if (f->runs) pthread_join(f->thread, NULL);
	f->runs = false;
}

bool tm_leak_frames_take(struct tm_leak_frames *f, uint32_t process) {
	size_t list = list_of(f->stacks->catalog, process);
	wait_for_thread(f);
	if (f->failed) return false;
	if (f->flags && is_same_list(f->stacks->catalog, list, f->list)) return true;
	give_tables_back(f);
	f->list = list;
	return judge_all(f);
}

void tm_leak_frames_release(struct tm_leak_frames *f) {
	wait_for_thread(f);
	give_tables_back(f);
}
