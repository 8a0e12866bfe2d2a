/* function_totals.c - what each function allocated; see function_totals.h. */
#include "function_totals.h"

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

int tm_function_totals_init(struct tm_function_totals *f, const struct tm_stack_ids *tree) {
	const struct tm_catalog *c = tree->catalog;
	*f = (struct tm_function_totals){ .tree = tree };
	f->function_of = tm_table_new(c->strings.count + 1, sizeof *f->function_of);
	f->totals = tm_table_new(c->strings.count + 1, sizeof *f->totals);
	f->first_child = tm_table_new(c->nodes.count + 1, sizeof *f->first_child);
	f->next_sibling = tm_table_new(c->nodes.count + 1, sizeof *f->next_sibling);
	f->linked = tm_table_new(c->nodes.count + 1, sizeof *f->linked);
	return f->function_of && f->totals && f->first_child && f->next_sibling && f->linked && unify(f) ? 0 : -1;
}

void tm_function_totals_release(struct tm_function_totals *f) {
	free(f->function_of);
	free(f->totals);
	free(f->first_child);
	free(f->next_sibling);
	free(f->linked);
	tm_array_release(&f->used);
	tm_array_release(&f->path);
	*f = (struct tm_function_totals){ 0 };
}

static void add(struct tm_amount *a, struct tm_amount b) {
	a->bytes += b.bytes;
	a->count += b.count;
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

/* Links the node and its ancestors, up to one that is linked. */
static void link_upward(struct tm_function_totals *f, uint32_t node) {
	while (node && !f->linked[node]) {
		uint32_t parent = f->tree->catalog->nodes.items[node - 1].parent;
		f->linked[node] = true;
		f->next_sibling[node] = f->first_child[parent];
		f->first_child[parent] = node;
		node = parent;
	}
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
		step->function = function;
		step->outermost = total->open++ == 0;
		if (site == UINT32_MAX) continue;
		step->sum = tm_site_amount(&a->sites, site, TM_SITE_ALLOCATED);
		add(&total->self, step->sum);
	}
	return true;
}

/* Steps back: what was under each row goes to its function, and to the row further out. */
static void leave(struct tm_function_totals *f, uint32_t node) {
	for (uint32_t n = f->tree->node_first[node] - f->tree->node_first[node - 1]; n-- > 0;) {
		struct tm_function_step *step = &f->path.items[--f->path.count];
		struct tm_function_total *total = &f->totals[step->function];
		total->open--;
		if (step->outermost) add(&total->total, step->sum);
		if (f->path.count) add(&step[-1].sum, step->sum);
	}
	f->linked[node] = false;
	f->first_child[node] = 0;
}

static bool walk(struct tm_function_totals *f, const struct tm_account *a) {
	uint32_t node = f->first_child[0];
	while (node) {
		if (!enter(f, a, node)) return false;
		if (f->first_child[node]) {
			node = f->first_child[node];
			continue;
		}
		for (; node && !f->next_sibling[node]; node = f->tree->catalog->nodes.items[node - 1].parent) leave(f, node);
		if (!node) break;
		leave(f, node);
		node = f->next_sibling[node];
	}
	f->first_child[0] = 0;
	return true;
}

static int compare_ids(const void *a, const void *b) {
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

bool tm_function_totals_count(struct tm_function_totals *f, const struct tm_account *a) {
	forget(f);
	for (uint32_t i = 0; i < a->sites.heads.count; i++) {
		uint32_t stack = a->sites.heads.items[i].stack;
		struct tm_amount allocated = tm_site_amount(&a->sites, i, TM_SITE_ALLOCATED);
		if (!allocated.count) continue;
		if (stack) {
			link_upward(f, tm_stack_find(f->tree, stack).node);
			continue;
		}
		struct tm_function_total *nameless = use_total(f, 0);
		if (!nameless) return false;
		add(&nameless->self, allocated);
		add(&nameless->total, allocated);
	}
	if (!walk(f, a)) return false;
	if (f->used.count) qsort(f->used.items, f->used.count, sizeof *f->used.items, compare_ids);
	return true;
}
