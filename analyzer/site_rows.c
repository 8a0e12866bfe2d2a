/* site_rows.c - every call stack's totals and what it had live at the snapshots, as rows; see import_rows.h.
 *
 * The tables are bulk tables: rows come in the order of their keys, which is that of processes, heaps, snapshots and stacks as they are
 * numbered. Of a heap with many stacks a thread of its own writes what leaks and what was live, beside their totals.
 */
#include "churn.h"
#include "import_rows.h"

#include <pthread.h>

struct site_writer {
	struct tm_import_rows *w;
	const struct tm_replay *r;
	struct tm_bulk_table *site_total, *snapshot_stack;
	uint32_t *sites; /* of the account being written, by stack */
	uint8_t *kept;   /* of each of these: a bit for each kept snapshot in which it has something live, as most have nothing */
	size_t site_count;
};

/* Sites lie in the order in which they came up, and are written in that of their stacks: so many ahead their heads are asked for, and then what is behind. */
#define HEAD_AHEAD 24u
#define REST_AHEAD 12u
#define FEW_SITES 1000u /* fewer are compared */
#define MANY_SITES 4096u /* are worth a thread */

static void look_ahead(const struct tm_account *a, const uint32_t *sites, size_t count, size_t at) {
	if (at + HEAD_AHEAD < count) tm_sites_prefetch_site(&a->sites, sites[at + HEAD_AHEAD]);
	if (at + REST_AHEAD < count) tm_sites_prefetch_rest(&a->sites, sites[at + REST_AHEAD]);
}

struct tm_amount tm_freed_amount(const struct tm_account *a, struct tm_amount allocated, struct tm_amount live, uint64_t splits) {
	struct tm_amount all = tm_whole_amount(a, (struct tm_amount){ allocated.bytes, allocated.count + splits }),
			 left = tm_whole_amount(a, live);
	return (struct tm_amount){ all.bytes - left.bytes, all.count - left.count };
}

static uint64_t stack_id(const struct site_writer *x, uint32_t stack) {
	return stack ? x->r->bases.stack + stack : 0;
}

static bool sort_sites(struct site_writer *x, const struct tm_account *a) {
	size_t count = a->sites.heads.count;
	free(x->sites);
	free(x->kept);
	x->sites = tm_sites_by_stack(&a->sites);
	x->kept = malloc(count + 1);
	x->site_count = 0;
	if (!x->sites || !x->kept) return false;
	for (size_t i = 0; i < count; i++) {
		look_ahead(a, x->sites, count, i);
		if (tm_site_amount(&a->sites, x->sites[i], TM_SITE_ALLOCATED).count) x->sites[x->site_count++] = x->sites[i];
	}
	return true;
}

/* As tables.sql lists them: counts before bytes for what happened, behind them for what was live. */
static void put_happened(struct tm_bulk_table *t, struct tm_amount amount) {
	tm_bulk_number(t, amount.count);
	tm_bulk_number(t, amount.bytes);
}

static void put_live(struct tm_bulk_table *t, const struct tm_account *a, struct tm_amount scaled) {
	struct tm_amount amount = tm_whole_amount(a, scaled);
	tm_bulk_number(t, amount.bytes);
	tm_bulk_number(t, amount.count);
}

static void put_churn(struct tm_bulk_table *t, const struct tm_account *a, const struct tm_site *s) {
	put_happened(t, tm_whole_amount(a, s->amounts[TM_SITE_SHORT_LIVED]));
	put_happened(t, tm_whole_amount(a, s->amounts[TM_SITE_REALLOCATED]));
	tm_bulk_number(t, s->longest_chain);
	tm_bulk_number(t, tm_scaled_count(a, s->same_size));
	tm_bulk_number_or_null(t, s->knows_slack ? tm_scaled_count(a, s->slack_bytes) : UINT64_MAX);
	tm_bulk_number_or_null(t, tm_churn_mean_life_ns(s));
}

/* What a site had live at the kept instants. */
typedef struct tm_amount site_value(const struct tm_account *a, uint32_t site);

static struct tm_amount value_now(const struct tm_account *a, uint32_t site) {
	return tm_site_amount(&a->sites, site, TM_SITE_LIVE);
}

static struct tm_amount value_at_exit(const struct tm_account *a, uint32_t site) {
	return tm_site_amount(&a->sites, site, TM_SITE_AT_EXIT);
}

enum kept { KEPT_PEAK, KEPT_PROCESS_PEAK, KEPT_EXIT, KEPT_END, KEPT_COUNT };
static site_value *const values[KEPT_COUNT] = { tm_site_at_peak, tm_site_at_process_peak, value_at_exit, value_now };

static uint8_t kept_of(const struct tm_amount live[KEPT_COUNT]) {
	unsigned bits = 0;
	for (unsigned i = 0; i < KEPT_COUNT; i++) bits |= (unsigned)(live[i].bytes || live[i].count) << i;
	return (uint8_t)bits;
}

static void values_of(const struct tm_account *a, uint32_t site, struct tm_amount live[KEPT_COUNT]) {
	for (unsigned k = 0; k < KEPT_COUNT; k++) live[k] = values[k](a, site);
}

static void note_kept(struct site_writer *x, const struct tm_account *a) {
	for (size_t i = 0; i < x->site_count; i++) {
		struct tm_amount live[KEPT_COUNT];
		look_ahead(a, x->sites, x->site_count, i);
		values_of(a, x->sites[i], live);
		x->kept[i] = kept_of(live);
	}
}

static void write_site_totals(struct site_writer *x, const struct tm_account *a) {
	struct tm_bulk_table *t = x->site_total;
	for (size_t i = 0; i < x->site_count; i++) {
		look_ahead(a, x->sites, x->site_count, i);
		struct tm_site room;
		const struct tm_site *s = tm_site_look(&a->sites, x->sites[i], &room);
		const struct tm_amount *amounts = s->amounts;
		struct tm_amount live[KEPT_COUNT];
		values_of(a, x->sites[i], live);
		tm_bulk_number(t, x->r->bases.process + a->ledger->process);
		tm_bulk_number(t, a->id);
		tm_bulk_number(t, stack_id(x, s->stack));
		put_happened(t, tm_whole_amount(a, amounts[TM_SITE_ALLOCATED]));
		put_happened(t, tm_freed_amount(a, amounts[TM_SITE_ALLOCATED], amounts[TM_SITE_LIVE], s->splits));
		put_happened(t, tm_whole_amount(a, amounts[TM_SITE_TEMPORARY]));
		for (unsigned k = 0; k < KEPT_COUNT; k++) put_live(t, a, live[k]);
		put_churn(t, a, s);
		tm_bulk_row(t, 0);
	}
}

/* --- snapshots --- */

static struct tm_snapshot_row *add_snapshot(struct site_writer *x) {
	struct tm_snapshot_row *row = tm_array_push(&x->w->snapshots);
	if (!row) tm_store_fail(x->w->store, "out of memory");
	return row;
}

/* A stack of the newest snapshot; one with nothing live has no row. */
static void write_snapshot_stack(struct site_writer *x, const struct tm_account *a, uint32_t stack, struct tm_amount live) {
	if (!live.bytes && !live.count) return;
	struct tm_bulk_table *t = x->snapshot_stack;
	tm_bulk_number(t, x->r->bases.snapshot + x->w->snapshots.count);
	tm_bulk_number(t, stack_id(x, stack));
	put_live(t, a, live);
	tm_bulk_row(t, 0);
}

/* which KEPT_COUNT: nothing was live. */
static void write_kept_snapshot(struct site_writer *x, const struct tm_account *a, const char *label, uint64_t ns, enum kept which) {
	struct tm_snapshot_row *row = add_snapshot(x);
	if (!row) return;
	*row = (struct tm_snapshot_row){ .account = a, .label = label, .ns = ns, .detailed = true };
	for (size_t i = 0; which < KEPT_COUNT && i < x->site_count; i++) {
		if (!(x->kept[i] >> which & 1)) continue;
		struct tm_amount live = values[which](a, x->sites[i]);
		row->live.bytes += live.bytes;
		row->live.count += live.count;
		write_snapshot_stack(x, a, a->sites.heads.items[x->sites[i]].stack, live);
	}
}

static void write_kept_snapshots(struct site_writer *x, const struct tm_account *a) {
	uint32_t process = a->ledger->process;
	write_kept_snapshot(x, a, "start", x->r->catalog->processes.items[process - 1].start_ns, KEPT_COUNT);
	write_kept_snapshot(x, a, "peak", a->level.peak_ns, KEPT_PEAK);
	if (a->is_root) write_kept_snapshot(x, a, "process-peak", a->ledger->level.peak_ns, KEPT_PROCESS_PEAK);
	if (a->ledger->exited) write_kept_snapshot(x, a, "exit", tm_process_exit_ns(x->r, process), KEPT_EXIT);
	write_kept_snapshot(x, a, "end", tm_process_end_ns(x->r, process), KEPT_END);
}

static int compare_snapshot_sites(const void *a, const void *b) {
	uint32_t x = ((const struct tm_snapshot_site *)a)->stack, y = ((const struct tm_snapshot_site *)b)->stack;
	return (x > y) - (x < y);
}

#define DIGIT_BITS 11u

static size_t digit_of(const struct tm_snapshot_site *s, unsigned shift) {
	return (uint64_t)s->stack >> shift & ((1u << DIGIT_BITS) - 1);
}

/* By one digit of the stack, those that have the same one in the order that they had. */
static void sort_by_digit(const struct tm_snapshot_site *from, size_t n, unsigned shift, struct tm_snapshot_site *to) {
	size_t begin[(1u << DIGIT_BITS) + 1] = { 0 };
	for (size_t i = 0; i < n; i++) begin[digit_of(&from[i], shift) + 1]++;
	for (size_t digit = 0; digit < 1u << DIGIT_BITS; digit++) begin[digit + 1] += begin[digit];
	for (size_t i = 0; i < n; i++) to[begin[digit_of(&from[i], shift)]++] = from[i];
}

/* There may be a hundred thousand of them at each mark: digit by digit takes a fifth of what comparisons take. */
static void sort_snapshot(struct tm_snapshot_site *sites, size_t n) {
	struct tm_snapshot_site *other = n >= FEW_SITES ? malloc(n * sizeof *other) : NULL;
	uint32_t most = 0;
	if (!other && n) qsort(sites, n, sizeof *sites, compare_snapshot_sites);
	for (size_t i = 0; other && i < n; i++) most = sites[i].stack > most ? sites[i].stack : most;
	for (unsigned shift = 0; other && shift < 32 && most >> shift; shift += 2 * DIGIT_BITS) {
		sort_by_digit(sites, n, shift, other);
		sort_by_digit(other, n, shift + DIGIT_BITS, sites);
	}
	free(other);
}

static void write_mark_snapshot(struct site_writer *x, const struct tm_mark_snapshot *s) {
	struct tm_snapshot_site *sites = s->count ? &x->r->snapshot_sites.items[s->first] : NULL;
	struct tm_snapshot_row *row = add_snapshot(x);
	if (!row) return;
	*row = (struct tm_snapshot_row){
		.account = s->account, .mark = s->mark, .ns = x->r->marks.items[s->mark].ns, .live = s->live, .detailed = s->detailed
	};
	sort_snapshot(sites, s->count);
	for (size_t i = 0; i < s->count; i++) write_snapshot_stack(x, s->account, sites[i].stack, sites[i].live);
}

/* --- the whole --- */

struct one_account {
	struct site_writer *x;
	const struct tm_account *a;
};

static void *write_live_rows(void *one) {
	const struct one_account *o = one;
	tm_write_leak_rows(o->x->w, o->a, o->x->sites, o->x->site_count);
	note_kept(o->x, o->a);
	write_kept_snapshots(o->x, o->a);
	return NULL;
}

static void write_account(struct site_writer *x, const struct tm_account *a) {
	if (!a->allocated.count) return; /* a heap that was never used */
	if (!sort_sites(x, a)) {
		tm_store_fail(x->w->store, "out of memory");
		return;
	}
	struct one_account one = { x, a };
	pthread_t beside;
	bool has_thread = x->site_count >= MANY_SITES && pthread_create(&beside, NULL, write_live_rows, &one) == 0;
	write_site_totals(x, a);
	if (has_thread) pthread_join(beside, NULL);
	else write_live_rows(&one);
}

void tm_write_site_rows(struct tm_import_rows *w) {
	struct site_writer x = { .w = w,
				 .r = w->replay,
				 .site_total = &w->store->tables[TM_TABLE_SITE],
				 .snapshot_stack = &w->store->tables[TM_TABLE_SNAPSHOT_STACK] };
	for (size_t i = 0; i < x.r->catalog->processes.count; i++) {
		const struct tm_ledger *l = &x.r->ledgers[i];
		for (size_t k = 0; k < l->accounts.count && !w->store->failed; k++) write_account(&x, l->accounts.items[k]);
	}
	for (size_t i = 0; i < x.r->mark_snapshots.count && !w->store->failed; i++) write_mark_snapshot(&x, &x.r->mark_snapshots.items[i]);
	free(x.sites);
	free(x.kept);
}

void tm_import_rows_release(struct tm_import_rows *w) {
	tm_functions_end(w);
	tm_tree_finish(w);
	tm_array_release(&w->snapshots);
}
