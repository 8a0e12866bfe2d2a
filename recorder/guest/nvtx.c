/* nvtx.c - NVTX's ranges, marks and names as scopes, marks and names of ours.
 *
 * Flow:     the NVTX loader in a library of the program -> InitializeInjectionNvtx2() -> our functions in its table -> scope.h, emit.c -> ring
 * Push:     a range that is pushed is a scope that its thread's next pop in the same domain closes; its category is "nvtx" or "nvtx:DOMAIN".
 *           Domains know nothing of each other: none closes another's.
 * Start:    a range that is started ends by its id, on any thread.
 * Payloads: their extension has functions of its own that open and close ranges: they do here, without a name, as names are part of the payload there.
 * Left out: categories, colours and payloads of events have no place in a trace; names of threads other than the calling one.
 */
#include "nvtx.h"

#include "api.h"
#include "emit.h"
#include "heaps.h"
#include "scope.h"

#include <string.h>
#include <sys/syscall.h>

TM_EXPORT int InitializeInjectionNvtx2(const void *(*get_export)(uint32_t id));
TM_EXPORT int InitializeInjectionNvtxExtension(struct tm_nvtx_extension *extension);

const char *tm_nvtx_text(int32_t type, union tm_nvtx_text text, char buffer[TM_WIDE_MAX], size_t *n) {
	const struct tm_kept_text *kept;
	*n = 0;
	if (!text.ascii) return NULL;
	switch (type) {
	case TM_NVTX_ASCII: *n = strnlen(text.ascii, TM_RING_TEXT_MAX + 1); return text.ascii;
	case TM_NVTX_WIDE: *n = tm_text_of_wide(buffer, text.wide); return buffer;
	case TM_NVTX_REGISTERED:
		kept = tm_kept_of(TM_KEPT_STRING, text.registered);
		if (kept) *n = kept->bytes;
		return kept ? kept->text : NULL;
	default: return NULL;
	}
}

uint32_t tm_nvtx_category(const void *domain) {
	struct tm_kept_text *kept = tm_kept_of(TM_KEPT_DOMAIN, domain);
	char name[TM_NAME_KEPT] = "nvtx:";
	if (!kept) return TM_SCOPE_NVTX;
	uint32_t category = __atomic_load_n(&kept->category, __ATOMIC_RELAXED);
	if (TM_LIKELY(category)) return category;
	size_t n = kept->bytes < sizeof name - 5 ? kept->bytes : sizeof name - 5;
	memcpy(name + 5, kept->text, n);
	category = tm_category_number(name, n + 5, TM_SCOPE_NVTX);
	__atomic_store_n(&kept->category, category, __ATOMIC_RELAXED);
	return category;
}

/* --- what every function comes to --- */

static void emit(enum tm_op op, const void *domain, uint64_t key, int32_t type, union tm_nvtx_text text) {
	char buffer[TM_WIDE_MAX];
	size_t n;
	const char *name = tm_nvtx_text(type, text, buffer, &n);
	uint32_t category = tm_nvtx_category(domain);
	struct tm_thread *t = tm_enter_to_tell();
	if (!t) return;
	if (op == TM_OP_MARK) tm_emit_text(t, op, name ? name : "", tm_text_cut(name ? name : "", n, TM_RING_TEXT_MAX));
	else tm_emit_scope(t, op, category, key, op == TM_OP_SCOPE_PUSH ? TM_PUSH_APART : 0, name ? name : "", n);
	tm_leave(t);
}

/* Its attributes, or none where the structure is too short to have a message. */
static void emit_attributes(enum tm_op op, const void *domain, uint64_t key, const struct tm_nvtx_attributes *a) {
	static const union tm_nvtx_text none;
	bool named = a && a->size >= sizeof *a;
	emit(op, domain, key, named ? a->message_type : 0, named ? a->message : none);
}

static void end(const void *domain, uint64_t key) {
	uint32_t category = tm_nvtx_category(domain);
	struct tm_thread *t = tm_enter_to_tell();
	if (!t) return;
	tm_emit_scope(t, TM_OP_SCOPE_END, category, key, 0, NULL, 0);
	tm_leave(t);
}

static uint64_t new_key(void) {
	struct tm_thread *t = tm_enter();
	uint64_t key;
	if (!t) return 0;
	key = tm_scope_key();
	tm_leave(t);
	return key;
}

/* The depth of pushed ranges, which the program is told, is counted for each thread, and for as many domains: the first ones to be asked for. */
#define COUNTED 16u
static __thread int16_t depths[COUNTED] __attribute__((tls_model("initial-exec")));

static int16_t *depth_of(const void *domain) {
	static _Atomic uint32_t last;
	struct tm_kept_text *kept = tm_kept_of(TM_KEPT_DOMAIN, domain);
	if (!kept) return &depths[0];
	uint32_t place = __atomic_load_n(&kept->place, __ATOMIC_RELAXED), none = 0;
	if (TM_UNLIKELY(!place)) {
		place = atomic_fetch_add(&last, 1) + 1;
		if (!__atomic_compare_exchange_n(&kept->place, &none, place, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) place = none;
	}
	return place < COUNTED ? &depths[place] : NULL;
}

static int pushed(const void *domain) {
	int16_t *depth = depth_of(domain);
	if (!depth) return TM_NVTX_NO_LEVEL;
	if (*depth < INT16_MAX) (*depth)++;
	return *depth - 1;
}

static int popped(const void *domain) {
	int16_t *depth = depth_of(domain);
	if (depth && *depth > 0) return --*depth;
	return TM_NVTX_NO_LEVEL;
}

/* --- NVTX's functions --- */

static void mark_ex(const struct tm_nvtx_attributes *a) {
	emit_attributes(TM_OP_MARK, NULL, 0, a);
}

static void mark_ascii(const char *text) {
	emit(TM_OP_MARK, NULL, 0, TM_NVTX_ASCII, (union tm_nvtx_text){ .ascii = text });
}

static void mark_wide(const wchar_t *text) {
	emit(TM_OP_MARK, NULL, 0, TM_NVTX_WIDE, (union tm_nvtx_text){ .wide = text });
}

static uint64_t domain_start(const void *domain, const struct tm_nvtx_attributes *a) {
	uint64_t key = new_key();
	if (key) emit_attributes(TM_OP_SCOPE_RANGE, domain, key, a);
	return key;
}

static uint64_t start_ex(const struct tm_nvtx_attributes *a) {
	return domain_start(NULL, a);
}

static uint64_t start_text(int32_t type, union tm_nvtx_text text) {
	uint64_t key = new_key();
	if (key) emit(TM_OP_SCOPE_RANGE, NULL, key, type, text);
	return key;
}

static uint64_t start_ascii(const char *text) {
	return start_text(TM_NVTX_ASCII, (union tm_nvtx_text){ .ascii = text });
}

static uint64_t start_wide(const wchar_t *text) {
	return start_text(TM_NVTX_WIDE, (union tm_nvtx_text){ .wide = text });
}

static void domain_end(const void *domain, uint64_t id) {
	if (id) end(domain, id);
}

static void range_end(uint64_t id) {
	domain_end(NULL, id);
}

static int domain_push(const void *domain, const struct tm_nvtx_attributes *a) {
	emit_attributes(TM_OP_SCOPE_PUSH, domain, 0, a);
	return pushed(domain);
}

static int push_ex(const struct tm_nvtx_attributes *a) {
	return domain_push(NULL, a);
}

static int push_ascii(const char *text) {
	emit(TM_OP_SCOPE_PUSH, NULL, 0, TM_NVTX_ASCII, (union tm_nvtx_text){ .ascii = text });
	return pushed(NULL);
}

static int push_wide(const wchar_t *text) {
	emit(TM_OP_SCOPE_PUSH, NULL, 0, TM_NVTX_WIDE, (union tm_nvtx_text){ .wide = text });
	return pushed(NULL);
}

static int domain_pop(const void *domain) {
	end(domain, 0);
	return popped(domain);
}

static int pop(void) {
	return domain_pop(NULL);
}

static void domain_mark(const void *domain, const struct tm_nvtx_attributes *a) {
	emit_attributes(TM_OP_MARK, domain, 0, a);
}

static void name_thread(uint32_t tid, int32_t type, union tm_nvtx_text text) {
	char buffer[TM_WIDE_MAX];
	size_t n;
	const char *name = tm_nvtx_text(type, text, buffer, &n);
	struct tm_thread *t = name ? tm_enter_to_tell() : NULL;
	if (!t) return;
	if (t->ring->tid == tid) tm_thread_is_named(t, name, n);
	tm_leave(t);
}

static void name_thread_ascii(uint32_t tid, const char *text) {
	name_thread(tid, TM_NVTX_ASCII, (union tm_nvtx_text){ .ascii = text });
}

static void name_thread_wide(uint32_t tid, const wchar_t *text) {
	name_thread(tid, TM_NVTX_WIDE, (union tm_nvtx_text){ .wide = text });
}

static const void *keep(enum tm_kept_kind kind, int32_t type, union tm_nvtx_text text) {
	char buffer[TM_WIDE_MAX];
	size_t n;
	const char *kept = tm_nvtx_text(type, text, buffer, &n);
	return kept ? tm_kept_text(kind, kept, tm_text_cut(kept, n, TM_RING_TEXT_MAX)) : NULL;
}

static const void *register_ascii(const void *domain, const char *text) {
	(void)domain;
	return keep(TM_KEPT_STRING, TM_NVTX_ASCII, (union tm_nvtx_text){ .ascii = text });
}

static const void *register_wide(const void *domain, const wchar_t *text) {
	(void)domain;
	return keep(TM_KEPT_STRING, TM_NVTX_WIDE, (union tm_nvtx_text){ .wide = text });
}

static const void *create_ascii(const char *name) {
	return keep(TM_KEPT_DOMAIN, TM_NVTX_ASCII, (union tm_nvtx_text){ .ascii = name });
}

static const void *create_wide(const wchar_t *name) {
	return keep(TM_KEPT_DOMAIN, TM_NVTX_WIDE, (union tm_nvtx_text){ .wide = name });
}

/* --- the payload extension's ways to do the same --- */

static int payload_push(const void *domain, const void *payloads, size_t count) {
	(void)payloads, (void)count;
	return domain_push(domain, NULL);
}

static int payload_pop(const void *domain, const void *payloads, size_t count) {
	(void)payloads, (void)count;
	return domain_pop(domain);
}

static uint64_t payload_start(const void *domain, const void *payloads, size_t count) {
	(void)payloads, (void)count;
	return domain_start(domain, NULL);
}

static void payload_end(const void *domain, uint64_t id, const void *payloads, size_t count) {
	(void)payloads, (void)count;
	domain_end(domain, id);
}

/* --- the tables --- */

#define ANY(function) ((void *)(function))

/* Places in NVTX's tables, and what goes there. What is not here stays as NVTX has it: nothing happens. */
static void *core_functions(unsigned id) {
	static void *const functions[] = {
		[1] = ANY(mark_ex),    [2] = ANY(mark_ascii),  [3] = ANY(mark_wide),   [4] = ANY(start_ex),   [5] = ANY(start_ascii),
		[6] = ANY(start_wide), [7] = ANY(range_end),   [8] = ANY(push_ex),     [9] = ANY(push_ascii), [10] = ANY(push_wide),
		[11] = ANY(pop),       [14] = ANY(name_thread_ascii), [15] = ANY(name_thread_wide),
	};
	return id < sizeof functions / sizeof functions[0] ? functions[id] : NULL;
}

static void *core2_functions(unsigned id) {
	static void *const functions[] = {
		[1] = ANY(domain_mark),     [2] = ANY(domain_start),   [3] = ANY(domain_end),    [4] = ANY(domain_push), [5] = ANY(domain_pop),
		[10] = ANY(register_ascii), [11] = ANY(register_wide), [12] = ANY(create_ascii), [13] = ANY(create_wide),
	};
	return id < sizeof functions / sizeof functions[0] ? functions[id] : NULL;
}

static intptr_t payload_functions(unsigned id) {
	void *const functions[] = { [3] = ANY(payload_push), [4] = ANY(payload_pop), [5] = ANY(payload_start), [6] = ANY(payload_end) };
	return id < sizeof functions / sizeof functions[0] ? (intptr_t)functions[id] : 0;
}

static void fill(const struct tm_nvtx_callbacks *callbacks, uint32_t module, void *(*function)(unsigned id)) {
	void ***table = NULL;
	unsigned size = 0;
	if (!callbacks->get_table(module, &table, &size) || !table) return;
	for (unsigned id = 1; id < size && id < 64; id++)
		if (table[id] && function(id)) *table[id] = function(id);
}

static bool is_wanted(void) {
	return tm_guest.epoch && tm_guest.shm->nvtx;
}

/* 1: we are the tool; 0: NVTX does nothing from here on. */
int InitializeInjectionNvtx2(const void *(*get_export)(uint32_t id)) {
	const struct tm_nvtx_callbacks *callbacks = get_export ? get_export(TM_NVTX_EXPORT_CALLBACKS) : NULL;
	if (!is_wanted() || !callbacks || callbacks->size < sizeof *callbacks || !callbacks->get_table) return 0;
	fill(callbacks, TM_NVTX_CORE, core_functions);
	fill(callbacks, TM_NVTX_CORE2, core2_functions);
	return 1;
}

/* The other extensions are told that we are there, else they take every domain for switched off; what they would say is left out. */
int InitializeInjectionNvtxExtension(struct tm_nvtx_extension *extension) {
	struct tm_nvtx_segment *s = extension && extension->segment_count ? extension->segments : NULL;
	if (!is_wanted() || !extension) return 0;
	if (!s || !s->slots) return 1;
	if (extension->module == TM_NVTX_EXTENSION_MEMORY) tm_nvtx_memory_fill(s->slots, s->slot_count);
	if (extension->module == TM_NVTX_EXTENSION_PAYLOAD)
		for (unsigned id = 0; id < s->slot_count && id < 64; id++)
			if (payload_functions(id)) s->slots[id] = payload_functions(id);
	return 1;
}
