/* gpu_watch.c - follows every block of a device through its life; see gpu_watch.h. */
#include "gpu_watch.h"

#include <string.h>

#define NO_POINTER (1ull << 56) /* addresses from here on stand for blocks that have none (format.md, Devices) */
#define LOOKS 20000000u         /* at sites and blocks, for refusals; later ones are not explained */
#define SITES_TO_KEEP 1000000u

enum work { WORK_OTHER, WORK_KERNEL, WORK_GRAPH };

struct tm_gpu_thread { /* its latest launch */
	uint64_t correlation;
	enum work work;
	bool told;
};

int tm_gpu_watch_init(struct tm_gpu_watch *w, const struct tm_catalog *catalog, const char *beside) {
	*w = (struct tm_gpu_watch){ .catalog = catalog, .looks_left = LOOKS };
	tm_spill_init(&w->rows, beside, sizeof(struct tm_gpu_block_row));
	w->processes = calloc(catalog->processes.count + 1, sizeof *w->processes);
	w->threads = calloc(catalog->threads.count + 1, sizeof *w->threads);
	return w->processes && w->threads ? 0 : -1;
}

void tm_gpu_watch_release(struct tm_gpu_watch *w) {
	for (size_t i = 0; i < w->heaps.count; i++) {
		tm_device_blocks_release(&w->heaps.items[i]->blocks);
		free(w->heaps.items[i]);
	}
	for (size_t i = 0; w->processes && i < w->catalog->processes.count; i++) tm_array_release(&w->processes[i].heaps);
	free(w->processes);
	free(w->threads);
	tm_array_release(&w->heaps);
	tm_array_release(&w->refusals);
	tm_array_release(&w->oom_sites);
	if (w->rows.record_bytes) tm_spill_release(&w->rows); /* else it was never made */
	*w = (struct tm_gpu_watch){ 0 };
}

static bool kind_is(const struct tm_account *a, const char *word) {
	return a->kind.size == strlen(word) && memcmp(a->kind.data, word, a->kind.size) == 0;
}

/* --- heaps and blocks --- */

void tm_gpu_watch_heap(struct tm_gpu_watch *w, struct tm_account *a) {
	bool is_managed = kind_is(a, "managed");
	if (a->device < 0 && !is_managed && !kind_is(a, "pinned")) return;
	struct tm_gpu_heap *h = calloc(1, sizeof *h), **place = h ? tm_array_push(&w->heaps) : NULL;
	struct tm_gpu_heap **mine = place ? tm_array_push(&w->processes[a->ledger->process - 1].heaps) : NULL;
	if (place) *place = h;
	else free(h);
	if (!mine) {
		w->failed = true;
		return;
	}
	*mine = a->gpu = h;
	h->account = a;
	h->is_tensor = kind_is(a, "tensor");
	h->is_mapped = kind_is(a, "device-mapping");
	h->is_segments = h->is_mapped || kind_is(a, "device") || kind_is(a, "device-pool");
	h->tells_uses = is_managed || (a->device >= 0 && !kind_is(a, "address-space") && !kind_is(a, "device-graph"));
}

/* The block of the driver that the tensor begins in. */
static struct tm_device_block *segment_of(struct tm_gpu_watch *w, const struct tm_account *a, uint64_t address) {
	const struct tm_gpu_process *p = &w->processes[a->ledger->process - 1];
	for (size_t i = 0; i < p->heaps.count; i++) {
		struct tm_gpu_heap *h = p->heaps.items[i];
		struct tm_device_block *b = h->is_segments && h->account->device == a->device ? tm_device_blocks_find(&h->blocks, address)
											      : NULL;
		if (b) return b;
	}
	return NULL;
}

void tm_gpu_block_begins(struct tm_gpu_watch *w, struct tm_account *a, const struct tm_block *b) {
	struct tm_device_block old, *d;
	tm_device_blocks_take(&a->gpu->blocks, b->address, &old); /* its end was lost: pairing.c has written its row */
	d = tm_device_blocks_insert(&a->gpu->blocks, b->address, b->size_bytes);
	if (!d) {
		w->failed = true;
		return;
	}
	d->alloc_ns = b->alloc_ns;
	d->launches = w->processes[a->ledger->process - 1].launches;
	d->joins = a->gpu->is_mapped;
	struct tm_device_block *segment = a->gpu->is_tensor ? segment_of(w, a, b->address) : NULL;
	if (segment && segment->tenants < UINT32_MAX) segment->tenants++;
}

void tm_gpu_block_ends(struct tm_gpu_watch *w, struct tm_account *a, const struct tm_block *b, uint32_t thread, uint64_t free_ns,
		       uint64_t row) {
	struct tm_gpu_block_row *r = tm_spill_push(&w->rows);
	struct tm_device_block d = { .address = b->address, .alloc_ns = b->alloc_ns };
	if (!r) {
		w->failed = true;
		return;
	}
	bool is_known = tm_device_blocks_take(&a->gpu->blocks, b->address, &d);
	*r = (struct tm_gpu_block_row){ .id = row,
					.heap_id = a->id,
					.size_bytes = b->size_bytes,
					.free_ns = free_ns,
					.block = d,
					.launches_at_end = w->processes[a->ledger->process - 1].launches,
					.process = a->ledger->process,
					.thread = thread,
					.stack = b->stack,
					.tells_uses = is_known && a->gpu->tells_uses && b->address < NO_POINTER };
}

void tm_gpu_segment_begins(struct tm_account *a, uint64_t address, bool joins) {
	struct tm_device_block *d = tm_device_blocks_find(&a->gpu->blocks, address);
	if (!d) return; /* there was no memory for it */
	d->tenants = 1; /* or will have, or had before the recording */
	d->joins = joins;
}

static void keep_part(struct tm_gpu_watch *w, struct tm_account *a, const struct tm_device_block *whole, uint64_t start, uint64_t end) {
	struct tm_device_block *d = end > start ? tm_device_blocks_insert(&a->gpu->blocks, start, end - start) : NULL;
	if (d) {
		d->alloc_ns = whole->alloc_ns;
		d->tenants = whole->tenants;
		d->joins = whole->joins;
	} else if (end > start) {
		w->failed = true;
	}
}

void tm_gpu_part_ends(struct tm_gpu_watch *w, struct tm_account *a, const struct tm_block *part) {
	struct tm_device_block whole, *d = tm_device_blocks_find(&a->gpu->blocks, part->address);
	if (!d || !tm_device_blocks_take(&a->gpu->blocks, d->address, &whole)) return;
	keep_part(w, a, &whole, whole.address, part->address);
	keep_part(w, a, &whole, part->address + part->size_bytes, whole.end);
}

/* --- work --- */

static bool contains(struct tm_text t, const char *word) {
	return t.size && memmem(t.data, t.size, word, strlen(word)) != NULL;
}

static enum work work_of(const struct tm_gpu_watch *w, uint32_t string) {
	struct tm_text name = string && string <= w->catalog->strings.count ? w->catalog->strings.items[string - 1]
									    : (struct tm_text){ "", 0 };
	if (contains(name, "GraphLaunch")) return WORK_GRAPH;
	return contains(name, "Launch") && contains(name, "Kernel") ? WORK_KERNEL : WORK_OTHER;
}

static void launch(struct tm_gpu_watch *w, struct tm_gpu_process *p, const struct tm_step *s, struct tm_gpu_thread *t) {
	*t = (struct tm_gpu_thread){ .correlation = s->address, .work = work_of(w, s->stack) };
	p->launches++;
	p->kernels += t->work == WORK_KERNEL;
	p->graphs += t->work == WORK_GRAPH;
}

/* The longest time between two uses; one in which other work was launched goes before all in which none was. */
static void stand_idle(struct tm_device_block *b, uint64_t idle_ns, uint64_t launches) {
	if (!launches && b->idle_launches) return;
	if (idle_ns <= b->idle_ns && !(launches && !b->idle_launches)) return;
	b->idle_ns = idle_ns;
	b->idle_from_ns = b->last_use_ns;
	b->idle_launches = launches;
}

static void touch(const struct tm_gpu_process *p, struct tm_device_block *b, uint64_t ns) {
	if (!b->uses++) {
		b->first_use_ns = ns;
		b->first_launch = p->launches;
	} else if (ns > b->last_use_ns) {
		stand_idle(b, ns - b->last_use_ns, p->launches > b->last_launch ? p->launches - b->last_launch - 1 : 0);
	}
	b->last_use_ns = ns;
	b->last_launch = p->launches;
}

static void use(struct tm_gpu_process *p, const struct tm_step *s, struct tm_gpu_thread *t) {
	bool hit = false, is_known = false;
	if (!s->address) {
		p->some_untold = true;
		return;
	}
	for (size_t i = 0; i < p->heaps.count; i++) {
		struct tm_gpu_heap *h = p->heaps.items[i];
		struct tm_device_block *b = tm_device_blocks_find(&h->blocks, s->address);
		is_known = is_known || b;
		if (!b || !h->tells_uses) continue;
		touch(p, b, s->ns);
		hit = true;
	}
	p->uses += hit;
	p->stray_uses += !is_known;
	if (!hit || t->told || !s->size_bytes || t->correlation != s->size_bytes) return;
	t->told = true;
	p->told_launches++;
	p->told_kernels += t->work == WORK_KERNEL;
}

bool tm_gpu_process_tells_uses(const struct tm_gpu_process *p, const struct tm_ledger *l) {
	return p->uses && !p->some_untold && !p->graphs && !l->stopped && (!p->kernels || p->told_kernels);
}

/* --- refusals --- */

struct extent {
	uint64_t start, end, tenants;
	bool joins;
};
struct extents {
	TM_ARRAY(struct extent) all;
	bool failed;
};

static void gather(void *context, const struct tm_device_block *b) {
	struct extents *x = context;
	if (b->address == b->end) return;
	struct extent *last = x->all.count ? &x->all.items[x->all.count - 1] : NULL;
	if (last && last->joins && b->joins && last->end == b->address) {
		last->end = b->end;
		last->tenants += b->tenants;
		return;
	}
	struct extent *e = tm_array_push(&x->all);
	if (e) *e = (struct extent){ b->address, b->end, b->tenants, b->joins };
	else x->failed = true;
}

static int compare_extents(const void *a, const void *b) {
	const struct extent *x = a, *y = b;
	return (x->start > y->start) - (x->start < y->start);
}

static void add_free(struct tm_gpu_refusal *r, uint64_t start, uint64_t end) {
	if (end <= start) return;
	r->segment_free_bytes += end - start;
	if (end - start > r->largest_free_bytes) r->largest_free_bytes = end - start;
}

/* What lies in the segments between the tensors. Both are in order. A block without tenants is no segment. */
static void measure(struct tm_gpu_refusal *r, const struct extents *segments, const struct extents *tensors) {
	size_t k = 0;
	r->segment_bytes = r->segment_free_bytes = r->largest_free_bytes = 0;
	for (size_t i = 0; i < segments->all.count; i++) {
		uint64_t at = segments->all.items[i].start, end = segments->all.items[i].end;
		if (!segments->all.items[i].tenants) continue;
		r->segment_bytes += end - at;
		while (k < tensors->all.count && tensors->all.items[k].start < at) k++;
		for (; k < tensors->all.count && tensors->all.items[k].start < end; k++) {
			add_free(r, at, tensors->all.items[k].start);
			if (tensors->all.items[k].end > at) at = tensors->all.items[k].end;
		}
		add_free(r, at, end);
	}
}

static void find_segments(struct tm_gpu_watch *w, const struct tm_gpu_process *p, int64_t device, struct tm_gpu_refusal *r) {
	struct extents segments = { 0 }, tensors = { 0 };
	bool any = false;
	for (size_t i = 0; i < p->heaps.count; i++) {
		const struct tm_gpu_heap *h = p->heaps.items[i];
		if (h->account->device != device) continue;
		if (h->is_segments) tm_device_blocks_each(&h->blocks, gather, &segments);
		if (h->is_tensor) tm_device_blocks_each(&h->blocks, gather, &tensors);
	}
	if (segments.failed || tensors.failed) w->failed = true;
	if (segments.all.count) qsort(segments.all.items, segments.all.count, sizeof *segments.all.items, compare_extents);
	if (tensors.all.count) qsort(tensors.all.items, tensors.all.count, sizeof *tensors.all.items, compare_extents);
	for (size_t i = 0; i < segments.all.count; i++) any = any || segments.all.items[i].tenants;
	if (any) measure(r, &segments, &tensors);
	tm_array_release(&segments.all);
	tm_array_release(&tensors.all);
}

static void keep_sites(struct tm_gpu_watch *w, struct tm_gpu_refusal *r, const struct tm_account *a) {
	for (uint32_t i = 0; i < a->sites.heads.count; i++) {
		struct tm_amount live = tm_site_amount(&a->sites, i, TM_SITE_LIVE);
		if (!live.count) continue;
		struct tm_oom_site *kept = tm_array_push(&w->oom_sites);
		if (!kept) {
			w->failed = true;
			return;
		}
		*kept = (struct tm_oom_site){ a, a->sites.heads.items[i].stack, live };
		r->site_count++;
	}
}

/* The heaps that share the memory that was asked for: of the same device, or else the heap itself. */
static bool is_of(const struct tm_account *a, uint64_t id, int64_t device) {
	return device >= 0 ? a->gpu && !kind_is(a, "address-space") && a->device == device : a->id == id;
}

static void refuse(struct tm_gpu_watch *w, struct tm_ledger *l, const struct tm_account *asked) {
	struct tm_gpu_refusal *r = tm_array_push(&w->refusals);
	uint64_t looks = 0;
	if (!r) {
		w->failed = true;
		return;
	}
	*r = (struct tm_gpu_refusal){ w->oom_sites.count, 0, TM_NEVER, TM_NEVER, TM_NEVER, false };
	if (!asked) return;
	tm_ledger_settle(l);
	for (size_t i = 0; i < l->accounts.count; i++) {
		const struct tm_account *a = l->accounts.items[i];
		if (is_of(a, asked->id, asked->device)) looks += a->sites.heads.count + (a->gpu ? a->gpu->blocks.all.count : 0);
	}
	r->explained = looks <= w->looks_left && w->oom_sites.count < SITES_TO_KEEP;
	if (!r->explained) return;
	w->looks_left -= looks;
	for (size_t i = 0; i < l->accounts.count; i++)
		if (is_of(l->accounts.items[i], asked->id, asked->device)) keep_sites(w, r, l->accounts.items[i]);
	if (asked->device >= 0) find_segments(w, &w->processes[l->process - 1], asked->device, r);
}

/* The heap that refused, by its id in the trace. */
static const struct tm_account *heap_that_refused(const struct tm_gpu_watch *w, const struct tm_ledger *l, uint64_t id) {
	const struct tm_catalog_oom *o = tm_catalog_oom_of(w->catalog, id);
	const struct tm_catalog_heap *h = o && o->heap && o->heap <= w->catalog->heaps.count ? &w->catalog->heaps.items[o->heap - 1] : NULL;
	for (size_t i = 0; h && i < l->accounts.count; i++) {
		const struct tm_account *a = l->accounts.items[i];
		if (a->name.size == h->name.size && memcmp(a->name.data, h->name.data, h->name.size) == 0) return a;
	}
	return NULL;
}

void tm_gpu_watch_step(struct tm_gpu_watch *w, struct tm_ledger *l, const struct tm_step *s, uint32_t thread) {
	struct tm_gpu_process *p = &w->processes[l->process - 1];
	if (s->op == TM_OP_LAUNCH) launch(w, p, s, &w->threads[thread - 1]);
	else if (s->op == TM_OP_USE) use(p, s, &w->threads[thread - 1]);
	else if (s->op == TM_OP_OOM) refuse(w, l, heap_that_refused(w, l, s->address));
}
