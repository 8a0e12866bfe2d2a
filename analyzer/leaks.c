/* leaks.c - which call sites look like leaks; see leaks.h. */
#include "leaks.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "../schema/units.h"
#include "leak_names.h"
#include "leak_score.h"
#include "leak_views.h"
#include "replay.h"

#define STEPS_LEAST 4u       /* so few say nothing about growth */
#define STEPS_OF_WARM_UP 10u /* one step in so many, and at least one, warms up */
/* The clock counts where the program went on without allocations for longer than a busy machine makes it wait ... */
#define SILENT_NS 10000000u
#define SILENT_RANGE_NS 50000000u /* ... and in full after so much more */
#define SILENT_WEIGHT 0.4
/* Or where it went on for so long behind the last survivor, so much longer than they had come, in at least so many pieces. */
#define SLOW_AFTER_NS 20000000u
#define SLOW_RATIO 8.0
#define SLOW_PIECES 16.0
#define UNJOINED_LEAST 8u /* survivors beyond two for each thread that runs: stacks are kept for other threads */

#define EVEN_MARKS 1024u

#define MANY_GROUPS 256u /* are judged by two threads */
#define LEVELS_AT_ONCE (1u << 20) /* of candidates, gathered at a time: 8 MiB. Each time takes a pass over all that was seen */

/* A line that time is measured along: marks, and how far the program was between them. */
struct line {
	const uint64_t *ns;
	size_t count;
	uint64_t end_ns;
};

/* A candidate in the making. */
struct group {
	uint64_t key;
	const struct tm_account *account;
	uint32_t stack, stacks;
	uint64_t stack_bytes; /* live in `stack` */
	struct tm_amount live, allocated;
	uint64_t splits; /* parts of mappings that cuts added, in the units of counts */
	uint64_t first_alloc_ns, begin_ns; /* begin_ns: of the window */
	uint64_t first_ns, last_ns;        /* oldest and youngest survivor */
	size_t survivors, first_survivor;  /* of the finder's */
	double begin;                      /* of the window, on the line */
	bool is_module, is_arena, is_file;
	bool suppressed, by_program;                   /* the program's own list says so */
	bool spawns;                                   /* allocated by pthread_create() */
	bool is_split;                                 /* its parts stand for it */
	bool made_up_for;                              /* its growth, by what went of other callers' */
	uint64_t made_up_bytes;                        /* of a whole: live in such parts */
	bool has_past;                                 /* callers of the site have nothing left, but had at a look */
	uint32_t own, all;                             /* columns + 1 of the levels: its own; of a whole, all callers' */
	size_t row;                                    /* in the leaks, if it is one */
	uint32_t whole;                                /* of a part: index + 1 of the group */
	struct tm_text caller;                         /* of a part: the function that calls the site there, ... */
	uint32_t caller_line;                          /* ... and in which line, as another line of it is another part */
	double score, growth_bytes_per_step, growth_p; /* the verdict */
	const char *reason;
};

/* A block that is live at exit. */
struct survivor {
	uint64_t alloc_ns;
	uint64_t size_bytes : 48, thread : 6, is_orphan : 1; /* thread: that allocated it, modulo 64; is_orphan: it has ended */
};

/* What the survivors of a group say of threads. */
struct thread_facts {
	uint64_t threads;   /* a bit for each thread that allocated one, modulo 64 ... */
	uint32_t parts[64]; /* of those: a bit for each part of the window that it did so in; of others nothing */
	uint64_t orphans;   /* survivors whose thread has ended */
};

/* The whole of a group that is likely to be a leak. */
struct sought {
	uint64_t key;
	const struct tm_account *account;
	uint32_t whole; /* index + 1 */
};

#define NOT_SOUGHT UINT32_MAX

struct finder {
	struct tm_leaks *leaks;
	const struct tm_ledger *l;
	const struct tm_replay *r;
	const struct tm_stack_ids *stacks;
	struct line clock, line; /* clock: the process' own allocations; line: what positions are told by */
	uint64_t *even;          /* the marks of the line, where it is time itself */
	struct tm_leak_viewer viewer;
	bool by_steps;
	uint64_t exit_ns, warm_up_steps, warm_ns; /* warm_ns: behind these; 0: there are none */
	uint64_t work_ns; /* when the program's work was done */
	double end;       /* the same, on the line */
	uint64_t threads_left, live_bytes; /* of the process */
	uint64_t *silences;
	TM_ARRAY(struct group) groups;
	size_t account_first;          /* groups of the account being looked at begin here */
	size_t done;                   /* groups that have been judged */
	double *levels;                /* at each look, of as many groups as there is room for: what they had live, bytes ... */
	double look_at[TM_LEAK_LEVELS];   /* ... and where that was, on the line */
	uint32_t **group_of;           /* by account and site: index + 1 */
	TM_ARRAY(uint32_t) sites;      /* of all blocks that are live, in the order of each_survivor(): each is looked for once */
	size_t visited;                /* so many of them */
	bool no_memory;
	struct survivor *survivors;    /* of the groups that are being judged, by group */
	TM_ARRAY(struct sought) sought; /* whose other callers are looked for, by key */
	uint32_t **past; /* by account and site without survivors: index + 1 of the sought whole, NOT_SOUGHT, 0 not yet known */
	uint32_t *slots, mask;         /* hash of groups, index + 1 */
};

/* --- time --- */

static double position(const struct line *line, uint64_t ns) {
	size_t low = 0, high = line->count; /* marks below `low` are not after ns */
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (line->ns[middle] <= ns) low = middle + 1;
		else high = middle;
	}
	if (!low) return 0;
	uint64_t from = line->ns[low - 1], to = low < line->count ? line->ns[low] : line->end_ns;
	double part = to > from ? (double)(ns - from) / (double)(to - from) : 0;
	return (double)low + (part > 1 ? 1 : part);
}

/* --- the window --- */

/* Python's own work begins outermost with a module, or with a thread; what atexit and finalizers call does not. */
static bool is_python_work(const struct tm_stack_ids *t, uint32_t stack) {
	const struct tm_catalog *c = t->catalog;
	uint32_t python = 0;
	if (!stack) return false;
	for (uint32_t node = tm_stack_find(t, stack).node; node; node = c->nodes.items[node - 1].parent)
		if (c->frames.items[c->nodes.items[node - 1].frame - 1].kind == TM_FRAME_PYTHON) python = node;
	if (!python) return false;
	struct tm_stack_row at = { python, tm_frame_functions(&c->frames.items[c->nodes.items[python - 1].frame - 1]) - 1 };
	struct tm_text outermost = tm_leak_place_at(t, &at).text.function;
	return tm_leak_text_starts(outermost, "<module>") || tm_leak_text_starts(outermost, "_run_module") ||
	       tm_leak_text_starts(outermost, "Thread._bootstrap") || tm_leak_text_starts(outermost, "_bootstrap");
}

/* An interpreter has handlers and finalizers to run between the end of a script and its own exit, which may take longer than the script. The
 * latest allocation of the script is looked for, so only stacks that are later than the best so far; the sites that were made last come first, as
 * they are mostly the latest. */
static uint64_t end_of_work(const struct finder *x) {
	uint64_t best_ns = 0;
	if (!x->leaks->frames.has_python) return x->exit_ns;
	for (size_t i = 0; i < x->l->accounts.count; i++) {
		const struct tm_account *a = x->l->accounts.items[i];
		for (uint32_t k = (uint32_t)a->sites.heads.count; k-- > 0;) {
			uint64_t last_ns = tm_site_last_ns(&a->sites, k);
			if (last_ns > best_ns && is_python_work(x->stacks, a->sites.heads.items[k].stack)) best_ns = last_ns;
		}
	}
	return best_ns && best_ns < x->exit_ns ? best_ns : x->exit_ns;
}

/* Threads of the process that still run when it leaves. */
static uint64_t threads_left(const struct finder *x) {
	uint64_t n = 0;
	for (size_t i = 0; i < x->r->catalog->threads.count; i++) {
		const struct tm_catalog_thread *t = &x->r->catalog->threads.items[i];
		n += t->process == x->l->process && t->end_ns >= x->exit_ns;
	}
	return n;
}

/* Of each mark of the clock, and of the end: the longest time from there on between two marks. */
static bool measure_silences(struct finder *x) {
	uint64_t later = x->work_ns;
	x->silences = calloc(x->clock.count + 1, sizeof *x->silences);
	for (size_t i = x->silences ? x->clock.count : 0; i-- > 0;) {
		uint64_t at = x->clock.ns[i] < x->work_ns ? x->clock.ns[i] : x->work_ns, gap = later - at;
		x->silences[i] = gap > x->silences[i + 1] ? gap : x->silences[i + 1];
		later = at;
	}
	return x->silences != NULL;
}

/* In a recording that keeps the newest events, of those before its window only what stayed is known: too few for a clock. Time tells how far the
 * program was. */
static bool measure_time(struct finder *x) {
	uint64_t start_ns = x->r->catalog->processes.items[x->l->process - 1].start_ns, all_ns = x->exit_ns - start_ns;
	x->even = malloc(EVEN_MARKS * sizeof *x->even);
	for (unsigned i = 0; x->even && i < EVEN_MARKS; i++) x->even[i] = start_ns + (uint64_t)((double)all_ns * i / EVEN_MARKS);
	x->line = (struct line){ x->even, EVEN_MARKS, x->exit_ns };
	return x->even != NULL;
}

static bool choose_line(struct finder *x) {
	const struct tm_leak_watch *w = &x->l->watch;
	uint64_t window_ns = x->r->catalog->window_start_ns, start_ns = x->r->catalog->processes.items[x->l->process - 1].start_ns;
	x->by_steps = w->steps.count >= STEPS_LEAST;
	x->warm_up_steps = x->by_steps ? (w->steps.count + STEPS_OF_WARM_UP - 1) / STEPS_OF_WARM_UP : 0;
	x->warm_ns = x->by_steps ? w->steps.items[x->warm_up_steps] : 0;
	x->clock = x->line = x->by_steps ? (struct line){ w->steps.items, w->steps.count, x->exit_ns }
					 : (struct line){ w->clock.items, w->clock.count, x->exit_ns };
	if (!x->by_steps && window_ns > start_ns && x->exit_ns > start_ns && !measure_time(x)) return false;
	x->work_ns = end_of_work(x);
	x->end = position(&x->line, x->work_ns);
	x->threads_left = threads_left(x);
	return true;
}

/* --- groups --- */

static uint32_t hash_of(uint64_t key) {
	return (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32);
}

static bool grow_slots(struct finder *x) {
	uint32_t n = x->slots ? (x->mask + 1) * 2 : 256;
	uint32_t *slots = calloc(n, sizeof *slots);
	if (!slots) return false;
	free(x->slots);
	x->slots = slots;
	x->mask = n - 1;
	for (size_t i = x->account_first; i < x->groups.count; i++) {
		uint32_t k = hash_of(x->groups.items[i].key) & x->mask;
		while (slots[k]) k = (k + 1) & x->mask;
		slots[k] = (uint32_t)i + 1;
	}
	return true;
}

/* Where index + 1 of the group with this key is, or has to be written. */
static uint32_t *place_of(const struct finder *x, uint64_t key) {
	uint32_t k = hash_of(key) & x->mask;
	while (x->slots[k] && x->groups.items[x->slots[k] - 1].key != key) k = (k + 1) & x->mask;
	return &x->slots[k];
}

/* Index + 1 of the group, made if it is new; 0: out of memory. */
static uint32_t group_with(struct finder *x, const struct tm_account *a, const struct tm_leak_view *view) {
	if ((!x->slots || (x->groups.count - x->account_first) * 2 > x->mask) && !grow_slots(x)) return 0;
	uint32_t *place = place_of(x, view->key);
	if (*place) return *place;
	struct group *g = tm_array_push(&x->groups);
	if (!g) return 0;
	g->key = view->key;
	g->account = a;
	g->suppressed = view->suppressed;
	g->by_program = view->by_program;
	g->spawns = view->spawns;
	g->first_alloc_ns = g->first_ns = UINT64_MAX;
	g->is_module = view->is_module;
	g->is_arena = view->is_arena;
	g->is_file = a->kind.size == 4 && memcmp(a->kind.data, "file", 4) == 0;
	return *place = (uint32_t)x->groups.count;
}

static void begin_account(struct finder *x) {
	free(x->slots);
	x->slots = NULL;
	x->account_first = x->groups.count;
}

static void join(struct group *g, const struct tm_site *s) {
	g->stacks++;
	struct tm_amount live = s->amounts[TM_SITE_LIVE];
	tm_amount_add(&g->live, live);
	tm_amount_add(&g->allocated, s->amounts[TM_SITE_ALLOCATED]);
	g->splits += s->splits;
	if (s->first_ns < g->first_alloc_ns) g->first_alloc_ns = s->first_ns;
	if (g->stacks > 1 && live.bytes <= g->stack_bytes) return;
	g->stack = s->stack;
	g->stack_bytes = live.bytes;
}

/* The site's group. 0: out of memory. */
static uint32_t group_of_site(struct finder *x, const struct tm_account *a, uint32_t site, uint64_t key) {
	uint32_t known = x->slots ? *place_of(x, key) : 0;
	if (known) return known;
	struct tm_leak_view view = tm_leak_view_of(&x->viewer, a->sites.heads.items[site].stack);
	return group_with(x, a, &view);
}

static bool group_account(struct finder *x, size_t index) {
	const struct tm_account *a = x->l->accounts.items[index];
	uint32_t *group_of = x->group_of[index] = calloc(a->sites.heads.count + 1, sizeof *group_of);
	struct tm_leak_keys *keys = group_of ? tm_leak_keys_start(&x->viewer, &a->sites) : NULL;
	bool done = keys != NULL;
	begin_account(x);
	for (uint32_t i = 0; i < a->sites.heads.count && done; i++) {
		struct tm_site room;
		if (!tm_leak_is_live(&a->sites, i)) continue;
		group_of[i] = group_of_site(x, a, i, tm_leak_key(keys, i));
		done = group_of[i] != 0;
		if (done) join(&x->groups.items[group_of[i] - 1], tm_site_look(&a->sites, i, &room));
	}
	if (keys) tm_leak_keys_end(keys);
	return done;
}

/* --- the window --- */

static void open_windows(struct finder *x) {
	for (size_t i = x->done; i < x->groups.count; i++) {
		struct group *g = &x->groups.items[i];
		g->begin_ns = g->first_alloc_ns > x->warm_ns ? g->first_alloc_ns : x->warm_ns;
		/* Steps are whole: what comes in the middle of one belongs to it. */
		g->begin = position(&x->line, g->begin_ns);
		if (x->by_steps) g->begin = floor(g->begin);
	}
}

/* --- survivors and levels --- */

static double unit(double x) {
	return x < 0 ? 0 : x > 1 ? 1 : x;
}

static double share(double at, double begin, double end) {
	return end > begin ? unit((at - begin) / (end - begin)) : 1;
}

static unsigned part_of(double at) {
	unsigned part = (unsigned)(at * TM_LEAK_PARTS);
	return part < TM_LEAK_PARTS ? part : TM_LEAK_PARTS - 1;
}

static void note_birth(struct tm_leak_births *b, double at, uint64_t size_bytes) {
	b->parts[part_of(at)]++;
	b->count++;
	b->weight += at * (double)size_bytes;
	if (at > b->last) b->last = at;
}

static uint32_t site_of_next(struct finder *x, size_t account, const struct tm_block *b) {
	if (x->visited < x->sites.count) return x->sites.items[x->visited++];
	uint32_t *place = tm_array_push(&x->sites), site = tm_sites_find(&x->l->accounts.items[account]->sites, b->stack);
	if (place) *place = site;
	else x->no_memory = true;
	x->visited++;
	return site;
}

/* The group that the block is a survivor of, if that is to be judged. */
static struct group *new_group_of(struct finder *x, size_t account, const struct tm_block *b) {
	uint32_t number = x->group_of[account][site_of_next(x, account, b)];
	return number > x->done ? &x->groups.items[number - 1] : NULL;
}

static void count_survivor(struct finder *x, size_t account, const struct tm_block *b) {
	struct group *g = new_group_of(x, account, b);
	if (g) g->survivors++;
}

static void keep_survivor(struct finder *x, size_t account, const struct tm_block *b) {
	struct group *g = new_group_of(x, account, b);
	if (!g) return;
	uint32_t thread = x->r->origins.items[b->origin].thread;
	x->survivors[g->first_survivor + g->survivors++] = (struct survivor){
		b->alloc_ns, b->size_bytes, thread & 63, x->r->catalog->threads.items[thread - 1].end_ns < x->exit_ns
	};
	if (b->alloc_ns < g->first_ns) g->first_ns = b->alloc_ns;
	if (b->alloc_ns > g->last_ns) g->last_ns = b->alloc_ns;
}

struct range_visit {
	struct finder *x;
	void (*f)(struct finder *x, size_t account, const struct tm_block *b);
	size_t account; /* of the last one */
};

static void visit_range(void *context, const struct tm_range *range) {
	struct range_visit *v = context;
	struct tm_account *const *accounts = v->x->l->accounts.items;
	if (accounts[v->account] != range->account)
		for (v->account = 0; accounts[v->account] != range->account;) v->account++;
	v->f(v->x, v->account, &range->block);
}

/* Calls back with every block that is live and its account's index. */
static void each_survivor(struct finder *x, void (*f)(struct finder *x, size_t account, const struct tm_block *b)) {
	x->visited = 0;
	for (size_t i = 0; i < x->l->accounts.count; i++) {
		const struct tm_blocks *blocks = &x->l->accounts.items[i]->pairing.blocks;
		for (size_t k = 0; k < blocks->all.count; k++)
			if (blocks->all.items[k].used) f(x, i, &blocks->all.items[k]);
	}
	tm_ranges_each(&x->l->ranges, visit_range, &(struct range_visit){ x, f, 0 });
}

/* Those of the groups that are new, group by group. */
static bool gather_survivors(struct finder *x) {
	size_t count = 0;
	each_survivor(x, count_survivor);
	for (size_t i = x->done; i < x->groups.count; i++) {
		struct group *g = &x->groups.items[i];
		g->first_survivor = count;
		count += g->survivors;
		g->survivors = 0;
	}
	free(x->survivors);
	x->survivors = tm_table_new(count + 1, sizeof *x->survivors);
	if (x->survivors) each_survivor(x, keep_survivor);
	return x->survivors && !x->no_memory;
}

static void note_survivor(const struct finder *x, const struct group *g, const struct survivor *s, struct tm_leak_facts *f,
			  struct thread_facts *t) {
	if (!(t->threads >> s->thread & 1)) t->parts[s->thread] = 0;
	t->threads |= (uint64_t)1 << s->thread;
	t->orphans += s->is_orphan;
	if (s->alloc_ns < g->begin_ns) return;
	double at = share(position(&x->line, s->alloc_ns), g->begin, x->end);
	t->parts[s->thread] |= (uint32_t)1 << part_of(at);
	f->sizes += (double)s->size_bytes;
	f->squares += (double)s->size_bytes * (double)s->size_bytes;
	note_birth(&f->events, at, s->size_bytes);
	note_birth(&f->time, share((double)s->alloc_ns, (double)g->begin_ns, (double)x->work_ns), s->size_bytes);
}

_Static_assert(TM_LEAK_LOOKS <= TM_LEAK_LEVELS, "there is a level for each look");

static void place_looks(struct finder *x) {
	for (size_t i = 0; i < x->l->watch.looks.count; i++) x->look_at[i] = position(&x->line, x->l->watch.looks.items[i].ns);
}

/* Of the groups from `first` on, as many as there is room for. Look by look, as they were seen: then what is written lies together. */
static void gather_levels(struct finder *x, size_t first, size_t count) {
	size_t looks = x->l->watch.looks.count;
	memset(x->levels, 0, count * looks * sizeof *x->levels);
	for (size_t i = 0; i < looks; i++) {
		const struct tm_leak_look *look = &x->l->watch.looks.items[i];
		const struct tm_account *a = NULL;
		const uint32_t *group_of = NULL;
		double *levels = x->levels + i * count;
		for (size_t k = 0; k < look->count; k++) {
			struct tm_leak_level level = x->l->watch.levels.items[look->first + k];
			if (level.site == TM_LEAK_ACCOUNT) {
				a = x->l->accounts.items[level.level];
				group_of = x->group_of[level.level];
				continue;
			}
			size_t group = (group_of ? (size_t)group_of[level.site] : 0) - 1 - first; /* an index + 1 stands there */
			if (group < count) levels[group] += (double)tm_scaled_bytes(a, tm_site_level_bytes(level.level));
		}
	}
}

/* A group's levels, and those of all callers of its site or NULL; by look, `stride` apart. */
struct columns {
	const double *own, *all;
	size_t stride;
};

/* What a group had live at the looks that lie in its window, and at those that tell of growth. */
static void note_levels(const struct finder *x, const struct group *g, const struct columns *c, struct tm_leak_levels *levels,
			struct tm_leak_levels *by_step, double *site, size_t *steps_before) {
	levels->count = by_step->count = *steps_before = 0;
	for (size_t i = 0; i < x->l->watch.looks.count; i++) {
		uint64_t ns = x->l->watch.looks.items[i].ns;
		if (ns < x->r->catalog->window_start_ns) continue;
		if (x->by_steps && ns >= x->warm_ns) {
			by_step->at[by_step->count] = x->look_at[i];
			by_step->bytes[by_step->count++] = c->own[i * c->stride];
			*steps_before += ns < g->begin_ns;
		}
		if (ns < g->begin_ns) continue;
		levels->at[levels->count] = share(x->look_at[i], g->begin, x->end);
		if (c->all) site[levels->count] = c->all[i * c->stride];
		levels->bytes[levels->count++] = c->own[i * c->stride];
	}
}

/* --- the verdict --- */

/* The longest time without an allocation, after `ns` and while the program worked; of a thinned clock the marks are strides apart. */
static uint64_t silence_after(const struct finder *x, uint64_t ns) {
	size_t next = (size_t)position(&x->clock, ns);
	if (ns >= x->work_ns) return 0;
	uint64_t until = next < x->clock.count && x->clock.ns[next] < x->work_ns ? x->clock.ns[next] : x->work_ns;
	return until - ns > x->silences[next] ? until - ns : x->silences[next];
}

/* The clock counts where it was silent for long behind the last survivor, and where it went on for much longer than survivors had come, in many pieces: had the
 * machine been busy with something else, one would be long. */
static double weight_of_time(const struct finder *x, const struct group *g) {
	double silence = (double)silence_after(x, g->last_ns), after = x->work_ns > g->last_ns ? (double)(x->work_ns - g->last_ns) : 0;
	double before = g->last_ns > g->begin_ns ? (double)(g->last_ns - g->begin_ns) : 0;
	if (after >= SLOW_AFTER_NS && after >= SLOW_RATIO * before && silence <= after / SLOW_PIECES) return SILENT_WEIGHT;
	return SILENT_WEIGHT * unit((silence - SILENT_NS) / SILENT_RANGE_NS);
}

static void complete_facts(const struct finder *x, const struct group *g, const struct thread_facts *t, uint64_t most_bytes,
			   struct tm_leak_facts *f) {
	f->live_bytes = tm_scaled_bytes(g->account, g->live.bytes);
	f->live_count = tm_scaled_count(g->account, g->live.count);
	f->allocations = tm_scaled_count(g->account, g->allocated.count);
	f->allocated_bytes = tm_scaled_bytes(g->account, g->allocated.bytes);
	f->splits = tm_scaled_count(g->account, g->splits);
	if (f->allocations + f->splits < f->live_count) f->allocations = f->live_count - f->splits;
	f->warm_up_steps = x->warm_up_steps;
	f->is_estimated = g->account->sampled;
	f->is_module = g->is_module;
	f->is_arena = g->is_arena;
	f->is_file = g->is_file;
	f->one_a_thread = g->survivors > 1 && (uint64_t)__builtin_popcountll(t->threads) == g->survivors;
	f->shares_threads = !t->orphans && __builtin_popcountll(t->threads) > 1;
	for (uint64_t left = t->threads; left; left &= left - 1) {
		unsigned parts = (unsigned)__builtin_popcount(t->parts[__builtin_ctzll(left)]);
		if (parts > f->thread_parts) f->thread_parts = parts;
	}
	f->is_instant = x->exit_ns <= x->r->catalog->processes.items[x->l->process - 1].start_ns + 1;
	f->is_unjoined = g->spawns && g->survivors > 2 * x->threads_left + UNJOINED_LEAST;
	if (!x->by_steps) f->time_weight = weight_of_time(x, g);
	double ticks = (position(&x->clock, g->last_ns) - position(&x->clock, g->begin_ns)) * (double)x->l->watch.tick_stride;
	f->density = x->by_steps || ticks < 1 ? 1 : (double)g->survivors / ticks;
	f->begin = x->by_steps || x->end <= 0 ? 0 : unit(g->begin / x->end);
	uint64_t start_ns = x->r->catalog->processes.items[x->l->process - 1].start_ns;
	f->window_ns = x->work_ns > g->begin_ns ? x->work_ns - g->begin_ns : 0;
	f->window_share = x->work_ns > start_ns ? unit((double)f->window_ns / (double)(x->work_ns - start_ns)) : 0;
	f->process_bytes = x->live_bytes;
	f->size_share = most_bytes > 1 ? log2(1 + (double)f->live_bytes) / log2(1 + (double)most_bytes) : 1;
}

static uint64_t most_bytes(const struct finder *x) {
	uint64_t most = 1;
	for (size_t i = 0; i < x->groups.count; i++) {
		uint64_t bytes = tm_scaled_bytes(x->groups.items[i].account, x->groups.items[i].live.bytes);
		if (bytes > most) most = bytes;
	}
	return most;
}

/* Of a part the sentence says which one it is, and of a likely leak in the C++ library who of the program called that. */
static void tell_caller(const struct finder *x, const struct group *g, struct tm_leak_verdict *v) {
	size_t n = strlen(v->reason), room = sizeof v->reason - n;
	struct tm_text own = { "", 0 };
	char line[24] = "";
	if (g->caller_line) snprintf(line, sizeof line, " at line %u", g->caller_line);
	if (!g->whole && v->score >= TM_LEAK_SCORE_LIKELY) own = tm_leak_view_of(&x->viewer, g->stack).own;
	if (g->caller.size)
		snprintf(v->reason + n, room, "; of those made for %.*s%s, not for others", tm_name_length(g->caller), g->caller.data,
			 line);
	else if (own.size) snprintf(v->reason + n, room, "; called by %.*s", tm_name_length(own), own.data);
}

/* What was freed before the window is in no such recording. */
static void tell_window(const struct finder *x, const struct group *g, struct tm_leak_verdict *v) {
	char time[TM_UNIT_TEXT_MAX];
	size_t n = strlen(v->reason);
	uint64_t window_ns = x->r->catalog->window_start_ns;
	if (g->first_alloc_ns >= window_ns) return;
	snprintf(v->reason + n, sizeof v->reason - n, "; what was freed before %s is not known", tm_format_time(window_ns + x->r->clock_offset_ns, time));
}

static bool judge(const struct finder *x, struct group *g, const struct columns *c, uint64_t most, struct tm_text_store *reasons) {
	struct tm_leak_levels levels, by_step;
	double site[TM_LEAK_LEVELS];
	struct tm_leak_facts facts = { .levels = &levels, .by_step = &by_step, .site = c->all ? site : NULL };
	struct thread_facts threads;
	struct tm_leak_verdict verdict;
	threads.threads = threads.orphans = 0;
	note_levels(x, g, c, &levels, &by_step, site, &facts.steps_before);
	for (size_t i = 0; i < g->survivors; i++) note_survivor(x, g, &x->survivors[g->first_survivor + i], &facts, &threads);
	complete_facts(x, g, &threads, most, &facts);
	tm_leak_judge(&facts, &verdict);
	if (facts.is_unjoined && !g->by_program) g->suppressed = false;
	tell_caller(x, g, &verdict);
	tell_window(x, g, &verdict);
	g->score = verdict.score;
	g->growth_bytes_per_step = verdict.growth_bytes_per_step;
	g->growth_p = verdict.growth_p;
	g->made_up_for = verdict.made_up_for;
	g->reason = tm_text_store_put(reasons, verdict.reason, strlen(verdict.reason) + 1);
	return g->reason != NULL;
}

/* Some of the groups that are new: so many from `first` on. */
struct some {
	struct finder *x;
	size_t first, count;
	uint64_t most;
	unsigned turn; /* every other one is judged, from this one on */
	bool done;
};

static void *gather_survivors_of(void *context) {
	struct some *s = context;
	s->done = gather_survivors(s->x);
	return NULL;
}

static void *gather_levels_of(void *context) {
	struct some *s = context;
	if (s->count) gather_levels(s->x, s->first, s->count);
	return NULL;
}

static void *judge_every_other(void *context) {
	struct some *s = context;
	s->done = true;
	for (size_t i = s->turn; i < s->count && s->done; i += 2)
		s->done = judge(s->x, &s->x->groups.items[s->first + i], &(struct columns){ s->x->levels + i, NULL, s->count }, s->most,
				&s->x->leaks->reasons[s->turn]);
	return NULL;
}

/* Both, at the same time where it is worth a thread and there is one to be had. They write nothing that the other one looks at. */
static void do_both(void *(*one)(void *), struct some *of_one, void *(*other)(void *), struct some *of_other) {
	pthread_t thread;
	bool has_thread = of_one->count >= MANY_GROUPS && pthread_create(&thread, NULL, other, of_other) == 0;
	one(of_one);
	if (has_thread) pthread_join(thread, NULL);
	else other(of_other);
}

/* The next ones, as many as there is room for the levels of. */
static void choose_some(struct some *s) {
	size_t looks = s->x->l->watch.looks.count, room = LEVELS_AT_ONCE / (looks | !looks), left = s->x->groups.count - s->x->done;
	s->first = s->x->done;
	s->count = left < room ? left : room;
}

static uint32_t whole_of(const struct finder *x, uint32_t number) {
	return x->groups.items[number - 1].whole ? x->groups.items[number - 1].whole : number;
}

static int compare_sought(const void *a, const void *b) {
	const struct sought *p = a, *q = b;
	if (p->key != q->key) return p->key < q->key ? -1 : 1;
	return (p->account > q->account) - (p->account < q->account);
}

/* Index + 1 of the sought whole that a site without survivors belongs to; 0: none. */
static uint32_t whole_of_past(struct finder *x, size_t account, uint32_t site) {
	const struct tm_account *a = x->l->accounts.items[account];
	uint32_t *known = &x->past[account][site];
	if (!*known) {
		struct sought of = { tm_leak_view_of(&x->viewer, a->sites.heads.items[site].stack).key, a, 0 };
		const struct sought *found = bsearch(&of, x->sought.items, x->sought.count, sizeof of, compare_sought);
		*known = found ? found->whole : NOT_SOUGHT;
	}
	return *known == NOT_SOUGHT ? 0 : *known;
}

/* The levels of the groups that have columns, and of all callers of their sites. */
static void gather_callers(struct finder *x, size_t columns) {
	memset(x->levels, 0, columns * x->l->watch.looks.count * sizeof *x->levels);
	for (size_t i = 0; i < x->l->watch.looks.count; i++) {
		const struct tm_leak_look *look = &x->l->watch.looks.items[i];
		size_t account = 0;
		double *levels = x->levels + i * columns;
		for (size_t k = 0; k < look->count; k++) {
			struct tm_leak_level level = x->l->watch.levels.items[look->first + k];
			if (level.site == TM_LEAK_ACCOUNT) {
				account = level.level;
				continue;
			}
			uint32_t number = x->group_of[account][level.site],
				 whole = number ? whole_of(x, number) : whole_of_past(x, account, level.site);
			struct group *w = whole ? &x->groups.items[whole - 1] : NULL, *g = number ? &x->groups.items[number - 1] : NULL;
			if (!w || !w->all) continue;
			double bytes = (double)tm_scaled_bytes(w->account, tm_site_level_bytes(level.level));
			levels[w->all - 1] += bytes;
			if (g && g->own) levels[g->own - 1] += bytes;
			w->has_past = w->has_past || !g;
		}
	}
}

/* Gives the groups from *next on that are likely to be leaks their columns, as many as there is room for; returns how many columns. */
static size_t seek_callers(struct finder *x, size_t *next) {
	size_t looks = x->l->watch.looks.count, room = LEVELS_AT_ONCE / (looks | !looks), columns = 0;
	for (x->sought.count = 0; *next < x->groups.count && columns + 2 <= room; ++*next) {
		struct group *g = &x->groups.items[*next], *w = &x->groups.items[whole_of(x, (uint32_t)*next + 1) - 1];
		if (!(g->score >= TM_LEAK_SCORE_LIKELY)) continue;
		if (!w->all) {
			w->all = (uint32_t)++columns;
			struct sought *s = tm_array_push(&x->sought);
			if (!s) return x->no_memory = true, 0;
			*s = (struct sought){ w->key, w->account, (uint32_t)(w - x->groups.items) + 1 };
		}
		g->own = (uint32_t)++columns;
	}
	if (x->sought.count) qsort(x->sought.items, x->sought.count, sizeof *x->sought.items, compare_sought);
	return columns;
}

/* What grows for one caller of a site may take the place of what others had: of groups from `first` on that are likely to be leaks that is looked up, and
 * these are judged anew. */
static bool judge_with_others(struct finder *x, size_t first, uint64_t most) {
	bool done = true;
	for (size_t next = first, columns; done && (first = next, columns = seek_callers(x, &next)) > 0;) {
		for (size_t i = 0; i < x->l->accounts.count; i++)
			if (!(x->past[i] = calloc(x->l->accounts.items[i]->sites.heads.count + 1, sizeof **x->past))) done = false;
		if (done) gather_callers(x, columns);
		for (size_t i = first; i < next; i++) {
			struct group *g = &x->groups.items[i], *w = &x->groups.items[whole_of(x, (uint32_t)i + 1) - 1];
			if (!g->own) continue;
			const struct columns c = { x->levels + g->own - 1, x->levels + w->all - 1, columns };
			if (done && (w->has_past || w->stacks > g->stacks)) done = judge(x, g, &c, most, &x->leaks->reasons[0]);
			g->own = 0;
		}
		for (size_t i = 0; i < x->sought.count; i++) x->groups.items[x->sought.items[i].whole - 1].all = 0;
		for (size_t i = 0; i < x->l->accounts.count; i++) free(x->past[i]);
	}
	return done && !x->no_memory;
}

/* Gathers what is known of the groups that are new, and judges them. */
static bool judge_new(struct finder *x) {
	struct some some = { .x = x, .most = most_bytes(x) }, others;
	size_t first = x->done;
	open_windows(x);
	place_looks(x);
	choose_some(&some);
	do_both(gather_survivors_of, &some, gather_levels_of, &some);
	while (some.done && some.count) {
		others = some;
		others.turn = 1;
		do_both(judge_every_other, &some, judge_every_other, &others);
		some.done &= others.done;
		x->done += some.count;
		choose_some(&some);
		gather_levels_of(&some);
	}
	return some.done && judge_with_others(x, first, some.most);
}

/* --- parts --- */

/* A function that makes things for others may look sound as a whole, because most of them are, or because the first of them were many; or like a leak,
 * because the level of a cache that it makes entries of goes up and down. */
static bool may_hide(const struct group *g) {
	return g->stacks > 1 && tm_scaled_count(g->account, g->live.count) > 1 && !isnan(g->score) && !g->suppressed && !g->is_module &&
	       !g->is_arena && !g->is_file;
}

/* Makes parts of groups, each for one caller of the site. */
static bool split_account(struct finder *x, size_t index) {
	const struct tm_account *a = x->l->accounts.items[index];
	begin_account(x);
	for (uint32_t i = 0; i < a->sites.heads.count; i++) {
		struct tm_site room;
		uint32_t whole = x->group_of[index][i];
		if (!whole || !may_hide(&x->groups.items[whole - 1])) continue;
		struct tm_leak_view view = tm_leak_view_of(&x->viewer, a->sites.heads.items[i].stack);
		view.key = view.caller_key;
		uint32_t number = x->group_of[index][i] = group_with(x, a, &view);
		if (!number) return false;
		struct group *part = &x->groups.items[number - 1];
		part->whole = whole;
		part->caller = view.caller;
		part->caller_line = view.caller_line;
		join(part, tm_site_look(&a->sites, i, &room));
	}
	return true;
}

/* Likely to be a leak, though most of it is made up for by others, and no part is likely. */
static bool settle(struct finder *x, struct group *whole) {
	struct tm_leak_verdict v = { .score = whole->score };
	snprintf(v.reason, sizeof v.reason, "%s", whole->reason);
	tm_leak_settle(&v, false);
	whole->score = v.score;
	whole->reason = tm_text_store_put(&x->leaks->reasons[0], v.reason, strlen(v.reason) + 1);
	return whole->reason != NULL;
}

/* A group is split if one of its parts is likely to be a leak, and the group is not or most of it is known to be none. */
static bool find_hidden(struct finder *x) {
	size_t wholes = x->done;
	for (size_t i = 0; i < x->l->accounts.count; i++)
		if (!split_account(x, i)) return false;
	if (!judge_new(x)) return false;
	for (size_t i = wholes; i < x->groups.count; i++) {
		const struct group *part = &x->groups.items[i];
		struct group *whole = &x->groups.items[part->whole - 1];
		whole->is_split |= part->score >= TM_LEAK_SCORE_LIKELY;
		if (part->made_up_for) whole->made_up_bytes += part->live.bytes;
	}
	for (size_t i = 0; i < wholes; i++) {
		struct group *g = &x->groups.items[i];
		if (!(g->score >= TM_LEAK_SCORE_LIKELY)) continue;
		if (g->made_up_bytes <= g->live.bytes / 2) g->is_split = false;
		else if (!g->is_split && !settle(x, g)) return false;
	}
	return true;
}

/* --- rows --- */

static bool keep(struct tm_leaks *leaks, const struct group *g) {
	struct tm_leak *row = tm_array_push(&leaks->rows);
	if (!row) return false;
	*row = (struct tm_leak){ .account = g->account,
				 .stack = g->stack,
				 .stacks = g->stacks,
				 .live = g->live,
				 .allocations = g->allocated.count,
				 .first_ns = g->first_ns == UINT64_MAX ? g->first_alloc_ns : g->first_ns,
				 .last_ns = g->last_ns ? g->last_ns : g->first_alloc_ns,
				 .score = g->score,
				 .growth = g->growth_bytes_per_step,
				 .growth_p = g->growth_p,
				 .reason = g->reason,
				 .suppressed = g->suppressed };
	return true;
}

/* Makes of the groups of an account's sites their rows, which the account keeps. */
static void keep_sites(const struct finder *x, size_t account) {
	struct tm_account *a = x->l->accounts.items[account];
	uint32_t *row_of = x->group_of[account];
	for (uint32_t i = 0; i < a->sites.heads.count; i++) {
		if (!row_of[i]) continue;
		const struct group *g = &x->groups.items[row_of[i] - 1];
		if (g->whole && !x->groups.items[g->whole - 1].is_split) g = &x->groups.items[g->whole - 1];
		row_of[i] = (uint32_t)g->row + 1;
	}
	a->leak_rows = (struct tm_leak_rows){ row_of, (uint32_t)a->sites.heads.count };
	x->group_of[account] = NULL;
}

static bool keep_all(struct finder *x, struct tm_leaks *leaks) {
	for (size_t i = 0; i < x->groups.count; i++) {
		struct group *g = &x->groups.items[i];
		bool is_row = g->whole ? x->groups.items[g->whole - 1].is_split : !g->is_split;
		g->row = leaks->rows.count;
		if (is_row && !keep(leaks, g)) return false;
	}
	for (size_t i = 0; i < x->l->accounts.count; i++) keep_sites(x, i);
	return true;
}

static bool group_all(struct finder *x) {
	for (size_t i = 0; i < x->l->accounts.count; i++) {
		struct tm_text kind = x->l->accounts.items[i]->kind;
		x->live_bytes += tm_scaled_bytes(x->l->accounts.items[i], x->l->accounts.items[i]->level.live.bytes);
		if (kind.size == 6 && memcmp(kind.data, "python", 6) == 0) x->viewer.has_python_heap = true;
	}
	for (size_t i = 0; i < x->l->accounts.count; i++)
		if (!group_account(x, i)) return false;
	return true;
}

void tm_leaks_end(struct tm_leaks *leaks) {
	tm_leak_frames_release(&leaks->frames);
	free(leaks->hashes);
	leaks->hashes = NULL;
}

static bool take_frames(struct tm_leaks *leaks, uint32_t process) {
	if (!leaks->hashes) leaks->hashes = calloc(leaks->frames.stacks->catalog->strings.count + 1, sizeof *leaks->hashes);
	return leaks->hashes && tm_leak_frames_take(&leaks->frames, process);
}

static uint64_t earlier(uint64_t a, uint64_t b) {
	return a < b ? a : b;
}

bool tm_leaks_find(struct tm_leaks *leaks, const struct tm_ledger *l, const struct tm_replay *r, uint64_t exit_ns) {
	struct finder x = { .leaks = leaks, .l = l, .r = r, .stacks = r->stacks, .viewer.frames = &leaks->frames };
	x.exit_ns = earlier(exit_ns, tm_replay_stopped_ns(r));
	x.group_of = calloc(l->accounts.count + 1, sizeof *x.group_of);
	bool done = take_frames(leaks, l->process) && x.group_of && choose_line(&x);
	done = done && measure_silences(&x) && (x.viewer.hashes = leaks->hashes) &&
	       (x.levels = malloc(LEVELS_AT_ONCE * sizeof *x.levels)) && (x.past = calloc(l->accounts.count + 1, sizeof *x.past)) &&
	       group_all(&x);
	done = done && judge_new(&x) && find_hidden(&x) && keep_all(&x, leaks);
	free(x.levels);
	tm_array_release(&x.sought);
	free(x.past);
	for (size_t i = 0; x.group_of && i < l->accounts.count; i++) free(x.group_of[i]);
	free(x.group_of);
	tm_array_release(&x.sites);
	free(x.survivors);
	free(x.silences);
	free(x.even);
	free(x.slots);
	tm_array_release(&x.groups);
	return done;
}

void tm_leaks_release(struct tm_leaks *leaks) {
	for (size_t i = 0; i < 2; i++) tm_text_store_release(&leaks->reasons[i]);
	tm_array_release(&leaks->rows);
	tm_leaks_end(leaks);
}
