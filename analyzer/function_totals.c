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
	*f = (struct tm_function_totals){ .tree = tree, .count = tree->catalog->strings.count + 1 };
	f->function_of = calloc(f->count, sizeof *f->function_of);
	f->totals = calloc(f->count, sizeof *f->totals);
	return f->function_of && f->totals && unify(f) ? 0 : -1;
}

void tm_function_totals_release(struct tm_function_totals *f) {
	free(f->function_of);
	free(f->totals);
	*f = (struct tm_function_totals){ 0 };
}

static void add(struct tm_amount *a, struct tm_amount b) {
	a->bytes += b.bytes;
	a->count += b.count;
}

static struct tm_function_total *total_at(struct tm_function_totals *f, struct tm_stack_row at) {
	const struct tm_catalog *c = f->tree->catalog;
	const struct tm_catalog_frame *frame = &c->frames.items[c->nodes.items[at.node - 1].frame - 1];
	return &f->totals[f->function_of[tm_frame_function_name(c, frame, at.function)]];
}

static void count_site(struct tm_function_totals *f, const struct tm_site *s) {
	struct tm_stack_row at = { 0, 0 };
	if (s->stack) at = tm_stack_find(f->tree, s->stack);
	struct tm_function_total *total = s->stack ? total_at(f, at) : &f->totals[0];
	add(&total->self, s->allocated);
	f->sites_seen++;
	do {
		total = s->stack ? total_at(f, at) : total;
		if (total->seen == f->sites_seen) continue;
		total->seen = f->sites_seen;
		add(&total->total, s->allocated);
	} while (s->stack && tm_stack_outward(f->tree, &at));
}

void tm_function_totals_count(struct tm_function_totals *f, const struct tm_account *a) {
	memset(f->totals, 0, f->count * sizeof *f->totals);
	f->sites_seen = 0;
	for (size_t i = 0; i < a->sites.count; i++) count_site(f, &a->sites.items[i]);
}
