/* function_totals.c - what each function allocated; see function_totals.h. */
#include "function_totals.h"

#define FEW 64u         /* a heap that has a site for fewer than one node in so many */
#define NODE_AHEAD 24u  /* so many places ahead nodes are asked of memory, */
#define FRAME_AHEAD 14u /* then their frames and where their sites are told, */
#define SITE_AHEAD 7u   /* then the sites */

static uint64_t hash_text(struct tm_text t) { /* FNV-1a */
	uint64_t h = 0xcbf29ce484222325ull;
	for (size_t i = 0; i < t.size; i++) h = (h ^ (unsigned char)t.data[i]) * 0x100000001b3ull;
	return h ^ h >> 29;
}

static bool same_text(struct tm_text a, struct tm_text b) {
	return a.size == b.size && (!a.size || memcmp(a.data, b.data, a.size) == 0);
}

/* A trace may define one text as several strings. */
static bool unify(struct tm_function_totals *f) {
	const struct tm_catalog *c = f->tree->catalog;
	size_t slots = 64;
	while (slots < c->strings.count * 2) slots *= 2;
	uint32_t *table = calloc(slots, sizeof *table);
	if (!table) return false;
	for (size_t i = 0; i < c->functions.count; i++) {
		uint32_t name = c->functions.items[i].name;
		if (!name || f->function_of[name]) continue;
		size_t at = hash_text(c->strings.items[name - 1]) & (slots - 1);
		while (table[at] && !same_text(c->strings.items[table[at] - 1], c->strings.items[name - 1])) at = (at + 1) & (slots - 1);
		if (!table[at]) table[at] = name;
		f->function_of[name] = table[at];
	}
	free(table);
	return true;
}

/* A node's number is above its parent's. How many there are under each is counted upward, and tells downward where the ones beside it begin. */
static void order_nodes(struct tm_function_totals *f) {
	const struct tm_catalog_node *nodes = f->tree->catalog->nodes.items;
	uint32_t count = (uint32_t)f->tree->catalog->nodes.count, *sizes = f->place, *next = f->order;
	for (uint32_t node = count; node; node--) sizes[nodes[node - 1].parent] += ++sizes[node];
	next[0] = 0;
	for (uint32_t node = 1; node <= count; node++) {
		uint32_t *place = &next[nodes[node - 1].parent], size = sizes[node];
		f->place[node] = *place;
		next[node] = *place + 1;
		*place += size;
	}
	for (uint32_t node = 1; node <= count; node++) f->order[f->place[node]] = node;
}

int tm_function_totals_init(struct tm_function_totals *f, const struct tm_stack_ids *tree) {
	const struct tm_catalog *c = tree->catalog;
	*f = (struct tm_function_totals){ .tree = tree };
	f->function_of = tm_table_new(c->strings.count + 1, sizeof *f->function_of);
	f->totals = tm_table_new(c->strings.count + 1, sizeof *f->totals);
	f->place = tm_table_new(c->nodes.count + 1, sizeof *f->place);
	f->order = tm_table_new(c->nodes.count + 1, sizeof *f->order);
	f->linked = tm_table_new(c->nodes.count + 1, sizeof *f->linked);
	if (!f->function_of || !f->totals || !f->place || !f->order || !f->linked || !unify(f)) return -1;
	order_nodes(f);
	return 0;
}

void tm_function_totals_release(struct tm_function_totals *f) {
	free(f->function_of);
	free(f->totals);
	free(f->place);
	free(f->order);
	free(f->linked);
	tm_array_release(&f->places);
	tm_array_release(&f->used);
	tm_array_release(&f->path);
	*f = (struct tm_function_totals){ 0 };
}

/* NULL: out of memory. */
static struct tm_function_total *use_total(struct tm_function_totals *f, uint32_t function) {
	struct tm_function_total *total = &f->totals[function];
	if (total->used) return total;
	uint32_t *place = tm_array_push(&f->used);
	if (!place) return NULL;
	*place = function;
	total->used = true;
	return total;
}

static void forget(struct tm_function_totals *f) {
	for (size_t i = 0; i < f->used.count; i++) f->totals[f->used.items[i]] = (struct tm_function_total){ 0 };
	f->used.count = 0;
}

static bool is_few(const struct tm_function_totals *f, const struct tm_account *a) {
	return a->sites.heads.count < f->tree->catalog->nodes.count / FEW;
}

/* Links the node; if few are, also its ancestors, up to one that is. */
static bool link_node(struct tm_function_totals *f, uint32_t node, bool few) {
	if (!few) f->linked[node] = 1;
	for (; few && node && !f->linked[node]; node = f->tree->catalog->nodes.items[node - 1].parent) {
		uint32_t *place = tm_array_push(&f->places);
		if (!place) return false;
		*place = f->place[node];
		f->linked[node] = 1;
	}
	return true;
}

static void link_ancestors(struct tm_function_totals *f) {
	const struct tm_catalog_node *nodes = f->tree->catalog->nodes.items;
	for (size_t node = f->tree->catalog->nodes.count; node; node--) f->linked[nodes[node - 1].parent] |= f->linked[node];
	f->linked[0] = 0;
}

/* Steps onto the rows of a node, outermost first. */
static bool enter(struct tm_function_totals *f, const struct tm_account *a, uint32_t node) {
	const struct tm_catalog *c = f->tree->catalog;
	const struct tm_catalog_frame *frame = &c->frames.items[c->nodes.items[node - 1].frame - 1];
	uint32_t row = f->tree->node_first[node - 1];
	for (uint32_t i = tm_frame_functions(frame); i-- > 0; row++) {
		uint32_t function = f->function_of[tm_frame_function_name(c, frame, i)], site = tm_sites_find(&a->sites, row);
		struct tm_function_total *total = use_total(f, function);
		struct tm_function_step *step = total ? tm_array_push(&f->path) : NULL;
		if (!step) return false;
		step->node = node;
		step->function = function;
		step->outermost = total->open++ == 0;
		if (site == UINT32_MAX) continue;
		step->sum = tm_site_amount(&a->sites, site, TM_SITE_ALLOCATED);
		tm_amount_add(&total->self, step->sum);
	}
	return true;
}

/* Steps back: what was under each row goes to its function, and to the row further out. */
static void leave(struct tm_function_totals *f, uint32_t node) {
	for (uint32_t n = f->tree->node_first[node] - f->tree->node_first[node - 1]; n-- > 0;) {
		struct tm_function_step *step = &f->path.items[--f->path.count];
		struct tm_function_total *total = &f->totals[step->function];
		total->open--;
		if (step->outermost) tm_amount_add(&total->total, step->sum);
		if (f->path.count) tm_amount_add(&step[-1].sum, step->sum);
	}
	f->linked[node] = 0;
}

static void look_ahead(const struct tm_function_totals *f, const struct tm_sites *sites, uint32_t far, uint32_t middle, uint32_t near) {
	const struct tm_stack_ids *t = f->tree;
	const struct tm_catalog_node *nodes = t->catalog->nodes.items;
	__builtin_prefetch(&nodes[far - 1]);
	__builtin_prefetch(&t->node_first[far]);
	if (f->linked[middle]) {
		__builtin_prefetch(&t->catalog->frames.items[nodes[middle - 1].frame - 1]);
		tm_sites_prefetch_slot(sites, t->node_first[middle] - 1);
	}
	uint32_t site = f->linked[near] ? tm_sites_find(sites, t->node_first[near] - 1) : UINT32_MAX;
	if (site != UINT32_MAX) tm_sites_prefetch_site(sites, site);
}

/* Through all nodes, or only the few that are linked. */
static bool walk(struct tm_function_totals *f, const struct tm_account *a, bool few) {
	size_t count = few ? f->places.count : f->tree->catalog->nodes.count;
	for (size_t i = 0; i < count; i++) {
		uint32_t node = f->order[few ? f->places.items[i] : i];
		if (!few && i + NODE_AHEAD < count)
			look_ahead(f, &a->sites, f->order[i + NODE_AHEAD], f->order[i + FRAME_AHEAD], f->order[i + SITE_AHEAD]);
		if (!f->linked[node]) continue;
		uint32_t parent = f->tree->catalog->nodes.items[node - 1].parent;
		while (f->path.count && f->path.items[f->path.count - 1].node != parent) leave(f, f->path.items[f->path.count - 1].node);
		if (!enter(f, a, node)) return false;
	}
	while (f->path.count) leave(f, f->path.items[f->path.count - 1].node);
	return true;
}

static int compare_ids(const void *a, const void *b) {
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

bool tm_function_totals_count(struct tm_function_totals *f, const struct tm_account *a) {
	bool few = is_few(f, a);
	forget(f);
	f->places.count = 0;
	for (uint32_t i = 0; i < a->sites.heads.count; i++) {
		uint32_t stack = a->sites.heads.items[i].stack;
		struct tm_amount allocated = tm_site_amount(&a->sites, i, TM_SITE_ALLOCATED);
		if (!allocated.count) continue;
		if (stack) {
			if (!link_node(f, tm_stack_find(f->tree, stack).node, few)) return false;
			continue;
		}
		struct tm_function_total *nameless = use_total(f, 0);
		if (!nameless) return false;
		tm_amount_add(&nameless->self, allocated);
		tm_amount_add(&nameless->total, allocated);
	}
	if (!few) link_ancestors(f);
	if (f->places.count) qsort(f->places.items, f->places.count, sizeof *f->places.items, compare_ids);
	if (!walk(f, a, few)) return false;
	if (f->used.count) qsort(f->used.items, f->used.count, sizeof *f->used.items, compare_ids);
	return true;
}
