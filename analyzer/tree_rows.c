/* tree_rows.c - the frames and the stack tree as rows; see import_rows.h and stack_ids.h for what becomes a row.
 *
 * Of a trace that has all its events, what becomes a row follows from the tree alone. So the tree is written while they are played: by a thread that gives
 * way to those that play them, since that takes longer, and not all of it can be shared out. Where events are missing, most of a large tree may be nobody's
 * stack, as in a recording that kept its last minutes only: then it is written behind them.
 */
#include "import_rows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Below whoever plays events, above nothing at all: it holds the file's turn for a page at a time, for which others would wait. */
#define NICE 10
#define LOOK_EVERY 1024u /* rows' nodes */

/* What is known of a node's innermost row once it is written; its children begin from there. */
struct node_state {
	uint32_t depth;
	uint32_t site : 31, is_python : 1; /* row of a frame, 0 none; a Python frame's stays for what it calls */
};

enum row_kind { ROW_PLAIN, ROW_WRAPPER, ROW_PYTHON };

struct tree_writer {
	const struct tm_import_rows *w;
	const struct tm_catalog *c;
	const struct tm_stack_ids *t;
	bool has_all_events;
	uint64_t *used;           /* a bit for each node that has rows */
	struct node_state *nodes; /* by node id; touched as they are written */
	uint8_t *frame_used;      /* by frame id: it has rows */
	uint8_t *kinds;           /* by row of a frame: enum row_kind */
	bool is_ready;            /* these say what they mean */
	uint32_t node, frame;     /* written last */
	_Atomic bool stops;       /* somebody else goes on */
};

static bool is_used(const struct tree_writer *x, size_t node) {
	return x->used[node / 64] >> node % 64 & 1;
}

/* Does nothing of the node's frame count where it is the innermost one? */
static bool is_left_out(const struct tree_writer *x, size_t node) {
	return x->t->left_out[x->c->nodes.items[node - 1].frame - 1] >= x->t->node_first[node] - x->t->node_first[node - 1];
}

static void use(struct tree_writer *x, size_t node) {
	x->used[node / 64] |= (uint64_t)1 << node % 64;
}

/* To a recorder each node is a stack of some event, or lies outside of one: it is needed unless a stack that ends there ends further out. */
static void use_all(struct tree_writer *x) {
	for (size_t node = x->c->nodes.count; node > 0; node--)
		if (!is_left_out(x, node)) use(x, node);
}

static void use_stack(struct tree_writer *x, uint32_t stack) {
	if (stack) use(x, tm_stack_find(x->t, stack).node);
}

/* Those of the call sites, and of what a device did. */
static void use_needed(struct tree_writer *x) {
	const struct tm_replay *r = x->w->replay;
	for (size_t i = 0; i < x->c->processes.count; i++) {
		const struct tm_ledger *l = &r->ledgers[i];
		for (size_t k = 0; k < l->accounts.count; k++)
			for (size_t s = 0; s < l->accounts.items[k]->sites.heads.count; s++) use_stack(x, l->accounts.items[k]->sites.heads.items[s].stack);
	}
	for (uint64_t i = 0; i < r->gpu.events.count; i++) use_stack(x, tm_stack_of(x->t, tm_gpu_rows_node(&r->gpu, i)));
}

/* What is used needs what is further out. */
static void use_ancestors(struct tree_writer *x) {
	for (size_t node = x->c->nodes.count; node > 0; node--) {
		if (!is_used(x, node)) continue;
		use(x, x->c->nodes.items[node - 1].parent);
		x->frame_used[x->c->nodes.items[node - 1].frame] = 1;
	}
}

static struct tm_text string_of(const struct tm_catalog *c, uint32_t id) {
	return id ? c->strings.items[id - 1] : (struct tm_text){ "", 0 };
}

static const char *kind_text(const struct tm_catalog_frame *f, uint32_t function) {
	if (function + 1 < tm_frame_functions(f)) return "inline";
	switch (f->kind) {
	case TM_FRAME_PYTHON: return "python";
	case TM_FRAME_KERNEL: return "kernel";
	case TM_FRAME_NATIVE: return f->module ? "native" : "unknown";
	default: return "unknown";
	}
}

/* Where in its module the frame is; the bare address where there is none, NULL for Python and where another tool told no address. */
static uint64_t module_offset(const struct tm_catalog *c, const struct tm_catalog_frame *f) {
	if (f->kind == TM_FRAME_PYTHON || !f->address) return UINT64_MAX;
	return f->module && f->module <= c->modules.count ? f->address - c->modules.items[f->module - 1].bias : f->address;
}

static void put_text_or_null(const struct tree_writer *x, struct tm_bulk_table *table, uint32_t string) {
	struct tm_text text = string_of(x->c, string);
	if (text.size) tm_store_put_text(table, text);
	else tm_bulk_null(table);
}

static void write_frame(const struct tree_writer *x, struct tm_bulk_table *table, uint32_t frame) {
	const struct tm_catalog_frame *f = &x->c->frames.items[frame - 1];
	const struct tm_bases *bases = &x->w->replay->bases;
	static const struct tm_catalog_function unknown;
	for (uint32_t i = 0; i < tm_frame_functions(f); i++) {
		const struct tm_catalog_function *named = i < f->function_count ? &x->c->functions.items[f->functions + i] : &unknown;
		tm_bulk_null(table); /* id */
		tm_store_put_text(table, tm_text_of(kind_text(f, i)));
		put_text_or_null(x, table, named->name);
		put_text_or_null(x, table, named->file);
		tm_bulk_number_or_null(table, named->line ? (uint64_t)named->line : UINT64_MAX);
		tm_bulk_number_or_null(table, f->module ? bases->module + f->module : UINT64_MAX);
		tm_bulk_number_or_null(table, module_offset(x->c, f));
		tm_bulk_number(table, tm_frame_is_wrapper(x->t, f, i));
		tm_bulk_row(table, bases->frame + x->t->frame_first[frame - 1] + i);
	}
}

static uint8_t kind_of_row(const struct tree_writer *x, const struct tm_catalog_frame *f, uint32_t function) {
	if (f->kind == TM_FRAME_PYTHON) return ROW_PYTHON;
	return tm_frame_is_wrapper(x->t, f, function) ? ROW_WRAPPER : ROW_PLAIN;
}

static void note_kinds(struct tree_writer *x) {
	for (size_t i = 0; i < x->c->frames.count; i++)
		for (uint32_t row = x->t->frame_first[i]; row < x->t->frame_first[i + 1]; row++)
			x->kinds[row] = kind_of_row(x, &x->c->frames.items[i], row - x->t->frame_first[i]);
}

/* Its rows go from the outermost function of its frame inward. */
static void write_node(struct tree_writer *x, struct tm_bulk_table *table, uint32_t node) {
	const struct tm_catalog_node *n = &x->c->nodes.items[node - 1];
	const struct tm_bases *bases = &x->w->replay->bases;
	struct node_state state = x->nodes[n->parent];
	uint64_t stack = bases->stack + x->t->node_first[node - 1];
	uint64_t parent = n->parent ? bases->stack + x->t->node_first[n->parent] - 1 : 0; /* the parent's innermost row */
	for (uint32_t frame = x->t->frame_first[n->frame]; frame-- > x->t->frame_first[n->frame - 1]; parent = stack++) {
		bool is_python = x->kinds[frame] == ROW_PYTHON;
		if (is_python || (!state.is_python && x->kinds[frame] == ROW_PLAIN)) state.site = frame & INT32_MAX;
		state.is_python |= is_python;
		tm_bulk_null(table); /* id */
		tm_bulk_number(table, parent);
		tm_bulk_number(table, bases->frame + frame);
		tm_bulk_number(table, ++state.depth);
		tm_bulk_number(table, bases->frame + (state.site ? state.site : frame));
		tm_bulk_row(table, stack);
	}
	x->nodes[node] = state;
}

static bool is_to_stop(const struct tree_writer *x, uint32_t written) {
	return written % LOOK_EVERY == 0 && atomic_load_explicit(&x->stops, memory_order_relaxed);
}

/* From where it was left, as far as nobody stops it. */
static void write_rows(struct tree_writer *x) {
	while (x->node < x->c->nodes.count && !is_to_stop(x, x->node))
		if (is_used(x, ++x->node)) write_node(x, &x->w->store->tables[TM_TABLE_STACK], x->node);
	if (x->node < x->c->nodes.count) return;
	while (x->frame < x->c->frames.count && !is_to_stop(x, x->frame))
		if (x->frame_used[++x->frame]) write_frame(x, &x->w->store->tables[TM_TABLE_FRAME], x->frame);
}

static bool is_written(const struct tree_writer *x) {
	return x->node == x->c->nodes.count && x->frame == x->c->frames.count;
}

struct tm_tree_work {
	struct tree_writer x;
	pthread_t thread;
	bool runs;
};

static void release(struct tree_writer *x) {
	free(x->used);
	free(x->nodes);
	free(x->frame_used);
	free(x->kinds);
	x->used = NULL;
	x->nodes = NULL;
	x->frame_used = x->kinds = NULL;
}

static void write_tree(struct tree_writer *x) {
	if (!x->is_ready) {
		if (x->has_all_events) use_all(x);
		else use_needed(x);
		use_ancestors(x);
		note_kinds(x);
		x->is_ready = true;
	}
	write_rows(x);
	if (is_written(x)) release(x);
}

static void *run(void *argument) {
	write_tree(argument);
	return NULL;
}

static void *run_nicely(void *argument) {
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), getpriority(PRIO_PROCESS, 0) + NICE);
	write_tree(argument);
	return NULL;
}

static bool has_all_events(const struct tm_import_rows *w) {
	return w->replay->catalog->closed && !w->replay->catalog->losses.count && !w->foreign;
}

static bool begin(struct tm_tree_work *work, struct tm_import_rows *w) {
	const struct tm_catalog *c = w->replay->catalog;
	const struct tm_stack_ids *t = w->replay->stacks;
	struct tree_writer *x = &work->x;
	*x = (struct tree_writer){ .w = w, .c = c, .t = t, .has_all_events = has_all_events(w) };
	x->used = calloc(c->nodes.count / 64 + 1, sizeof *x->used);
	x->nodes = calloc(c->nodes.count + 1, sizeof *x->nodes); /* its pages come in the thread that writes them, not here, for which others would wait */
	if (x->nodes) tm_prefer_huge_pages(x->nodes, c->nodes.count * sizeof *x->nodes);
	x->frame_used = calloc(c->frames.count + 1, 1);
	x->kinds = calloc(t->frame_first[c->frames.count] + 1, 1);
	return x->used && x->nodes && x->frame_used && x->kinds;
}

static void start(struct tm_tree_work *work, void *(*how)(void *)) {
	work->runs = pthread_create(&work->thread, NULL, how, &work->x) == 0;
	if (!work->runs) write_tree(&work->x);
}

static void wait_for(struct tm_tree_work *work) {
	if (work->runs) pthread_join(work->thread, NULL);
	work->runs = false;
}

/* What a nice thread has begun another one finishes: it could not become less nice, and then it is waited for. */
static void go_on(struct tm_tree_work *work) {
	atomic_store(&work->x.stops, true);
	wait_for(work);
	atomic_store(&work->x.stops, false);
	if (!is_written(&work->x)) start(work, run);
}

void tm_tree_start(struct tm_import_rows *w, bool played) {
	if (w->tree) go_on(w->tree);
	if (w->tree || (!played && !has_all_events(w))) return;
	w->tree = calloc(1, sizeof *w->tree);
	if (w->tree && begin(w->tree, w)) {
		start(w->tree, played ? run : run_nicely);
		return;
	}
	tm_tree_finish(w);
	tm_store_fail(w->store, "out of memory");
}

void tm_tree_finish(struct tm_import_rows *w) {
	if (!w->tree) return;
	wait_for(w->tree);
	release(&w->tree->x);
	free(w->tree);
	w->tree = NULL;
}
