/* unwind_rule.c - the table of rules and how an entry is made; see unwind_rule.h. */
#include "unwind_rule.h"
#include "raw.h"
#include "shared_rules.h"
#include "unwind_cfi.h"

static TM_ROOMY _Alignas(TM_SHM_PAGE) _Atomic uint64_t first_table[1u << TM_RULE_SETS_BITS_LEAST][2];
_Atomic uint64_t tm_rules_table = (uintptr_t)first_table + (64 - TM_RULE_SETS_BITS_LEAST);

/* --- making one --- */

static bool cfa_of(const struct tm_cfi_row *row, uintptr_t ip, struct tm_cfi_value *cfa) {
	struct tm_cfi_frame frame = { .ip = ip };
	if (row->cfa.how == TM_CFI_IS_EXPRESSION) return tm_cfi_evaluate((const uint8_t *)(uintptr_t)row->cfa.value, &frame, false, cfa);
	if (row->cfa.value != TM_CFI_SP && row->cfa.value != TM_CFI_FP) return false;
	*cfa = (struct tm_cfi_value){ row->cfa.value == TM_CFI_SP ? TM_BASE_SP : TM_BASE_FP, 0, row->cfa_offset };
	return true;
}

#if defined(__x86_64__)

/* A rule's place as far as the address alone tells it. */
static bool place_of(const struct tm_cfi_rule *rule, const struct tm_cfi_value *cfa, uintptr_t ip, struct tm_cfi_value *place) {
	struct tm_cfi_frame frame = { .ip = ip };
	if (rule->how == TM_CFI_AT) {
		*place = *cfa;
		place->offset += rule->value;
		return true;
	}
	*place = *cfa;
	return rule->how == TM_CFI_AT_EXPRESSION && tm_cfi_evaluate((const uint8_t *)(uintptr_t)rule->value, &frame, true, place);
}

static bool lies_at(const struct tm_cfi_value *place, enum tm_cfi_base base, int64_t offset) {
	return place->base == base && place->inner == 0 && place->offset == offset;
}

static uint32_t signal_rule(const struct tm_cfi_row *row, const struct tm_cfi_value *cfa, uintptr_t ip) {
	struct tm_cfi_value pc, fp;
	if (cfa->inner != TM_SIGNAL_SP || cfa->offset != 0) return TM_RULE_ODD;
	if (!place_of(&row->rules[TM_CFI_RA], cfa, ip, &pc) || !lies_at(&pc, TM_BASE_SP, TM_SIGNAL_PC)) return TM_RULE_ODD;
	if (!place_of(&row->rules[TM_CFI_FP], cfa, ip, &fp) || !lies_at(&fp, TM_BASE_SP, TM_SIGNAL_FP)) return TM_RULE_ODD;
	return TM_RULE_SIGNAL;
}

static uint32_t aligned_rule(const struct tm_cfi_row *row, const struct tm_cfi_value *cfa, uintptr_t ip) {
	struct tm_cfi_value fp;
	if (cfa->offset != 0 || !TM_RULE_SIGNED_OFFSET_FITS(cfa->inner) || row->rules[TM_CFI_RA].how != TM_CFI_AT || row->rules[TM_CFI_RA].value != -8)
		return TM_RULE_ODD;
	if (!place_of(&row->rules[TM_CFI_FP], cfa, ip, &fp) || !lies_at(&fp, TM_BASE_FP, 0)) return TM_RULE_ODD;
	return tm_rule_make(TM_RULE_ALIGNED, 0, cfa->inner);
}

static uint32_t plain_rule(const struct tm_cfi_row *row, const struct tm_cfi_value *cfa, uintptr_t ip) {
	struct tm_cfi_rule ra = row->rules[TM_CFI_RA], fp = row->rules[TM_CFI_FP];
	unsigned fp_slot = 0;
	(void)ip;
	if (ra.how != TM_CFI_AT || ra.value != -8 || !TM_RULE_OFFSET_FITS(cfa->offset) || cfa->offset < 8) return TM_RULE_ODD;
	if (fp.how == TM_CFI_AT) {
		if (fp.value % 8 || fp.value > -16 || fp.value < -8 * 255 || cfa->offset + fp.value < 0) return TM_RULE_ODD;
		fp_slot = (unsigned)(-fp.value / 8);
	} else if (fp.how != TM_CFI_SAME || cfa->base == TM_BASE_FP) {
		return TM_RULE_ODD;
	}
	return tm_rule_make(cfa->base == TM_BASE_SP ? TM_RULE_SP : TM_RULE_FP, fp_slot, cfa->offset);
}

/* No caller: the return address, or what the frame pointer was, is said to be nowhere. */
static bool is_end(const struct tm_cfi_row *row) {
	return row->rules[TM_CFI_RA].how == TM_CFI_UNDEFINED || row->rules[TM_CFI_RA].how == TM_CFI_SAME || row->rules[TM_CFI_FP].how == TM_CFI_UNDEFINED;
}

bool tm_rule_is_trampoline(uintptr_t ip, bool (*read)(void *, uintptr_t, unsigned, uintptr_t *), void *context) {
	uintptr_t first, second;
	/* mov $15, %rax; syscall */
	return read(context, ip, 8, &first) && first == 0x0f0000000fc0c748u && read(context, ip + 8, 1, &second) && second == 0x05;
}

#elif defined(__aarch64__)

static uint32_t signal_rule(const struct tm_cfi_row *row, const struct tm_cfi_value *cfa, uintptr_t ip) {
	(void)row;
	(void)cfa;
	(void)ip;
	return TM_RULE_ODD;
}

static uint32_t aligned_rule(const struct tm_cfi_row *row, const struct tm_cfi_value *cfa, uintptr_t ip) {
	return signal_rule(row, cfa, ip);
}

static uint32_t plain_rule(const struct tm_cfi_row *row, const struct tm_cfi_value *cfa, uintptr_t ip) {
	struct tm_cfi_rule ra = row->rules[TM_CFI_RA], fp = row->rules[TM_CFI_FP];
	(void)ip;
	if (ra.how != TM_CFI_AT || !TM_RULE_OFFSET_FITS(cfa->offset)) return TM_RULE_ODD;
	bool pair = fp.how == TM_CFI_AT;
	if (!pair && (fp.how != TM_CFI_SAME || cfa->base == TM_BASE_FP)) return TM_RULE_ODD;
	int64_t place = cfa->offset + (pair ? fp.value : ra.value);
	if (place % 8 || place < 0 || place > 8 * 0x7f || place + 8 * pair >= cfa->offset || (pair && ra.value != fp.value + 8)) return TM_RULE_ODD;
	return tm_rule_make(cfa->base == TM_BASE_SP ? TM_RULE_SP : TM_RULE_FP, (unsigned)pair | (unsigned)(place / 8) << 1, cfa->offset);
}

static bool is_end(const struct tm_cfi_row *row) {
	return row->rules[TM_CFI_RA].how == TM_CFI_UNDEFINED;
}

bool tm_rule_is_trampoline(uintptr_t ip, bool (*read)(void *, uintptr_t, unsigned, uintptr_t *), void *context) {
	uintptr_t code;
	/* mov x8, #139; svc #0 */
	return ip % 4 == 0 && read(context, ip, 4, &code) && code == 0xd2801168u && read(context, ip + 4, 4, &code) && code == 0xd4000001u;
}

#endif

static uint32_t rule_from(const struct tm_cfi *cfi, const struct tm_cfi_row *row, uintptr_t ip) {
	struct tm_cfi_value cfa;
	if (is_end(row)) return TM_RULE_END;
	if (row->rules[TM_CFI_SP].how != TM_CFI_SAME && !cfi->is_signal) return TM_RULE_ODD;
	if (!cfa_of(row, ip, &cfa)) return TM_RULE_ODD;
	if (cfi->is_signal) return cfa.base == TM_BASE_MEMORY_SP ? signal_rule(row, &cfa, ip) : TM_RULE_ODD;
	if (cfa.base == TM_BASE_MEMORY_FP) return aligned_rule(row, &cfa, ip);
	if (cfa.base == TM_BASE_SP || cfa.base == TM_BASE_FP) return plain_rule(row, &cfa, ip);
	return TM_RULE_ODD;
}

/* --- tables --- */

#define TABLE_BYTES(bits) ((size_t)16 << (bits))
#define FILLS(bits) (3u << ((bits)-2)) /* three quarters as many as it has pairs: 6 % had to give way by then */
#define VERSION 48u                    /* place of the version in the table's word */

static _Atomic uint32_t kept, fills = FILLS(TM_RULE_SETS_BITS_LEAST);
static _Atomic bool growing;

void tm_rule_put(uint64_t table, uintptr_t key, uint32_t rule) {
	uint64_t hash = tm_rule_hash(key), entry = tm_rule_tag(hash) | rule;
	_Atomic uint64_t *set = tm_rule_set(table, hash);
	uint64_t first = atomic_load_explicit(&set[0], memory_order_relaxed);
	if (first == entry) return;
	atomic_store_explicit(&set[1], first, memory_order_relaxed);
	atomic_store_explicit(&set[0], entry, memory_order_relaxed);
}

/* The product of an entry's address, as tm_rule_hash() has it, from the entry and its place. */
static uint64_t hash_of(uint64_t entry, uint64_t set, unsigned bits) {
	uint64_t tag_bits = 48 - bits, tag = (entry >> TM_RULE_BITS) & (((uint64_t)1 << tag_bits) - 1);
	return (set << tag_bits | tag) << 16;
}

static uint32_t copy_table(uint64_t from, unsigned bits, uint64_t to) {
	const _Atomic uint64_t *entries = tm_rule_set(from, 0);
	uint32_t count = 0;
	for (uint64_t i = (uint64_t)2 << bits; i-- > 0;) { /* the newer one of a pair last */
		uint64_t entry = atomic_load_explicit(&entries[i], memory_order_relaxed);
		if (!entry) continue;
		_Atomic uint64_t *set = tm_rule_set(to, hash_of(entry, i / 2, bits));
		atomic_store_explicit(&set[1], atomic_load_explicit(&set[0], memory_order_relaxed), memory_order_relaxed);
		atomic_store_explicit(&set[0], entry, memory_order_relaxed);
		count++;
	}
	return count;
}

/* A dlclose meanwhile gives the word another version: what was copied may be of the library that went, and is thrown away. */
static void grow(void) {
	uint64_t old = tm_rules(), bits = 64 - (old & 63), larger = bits + 2;
	long memory = -1;
	if (bits < TM_RULE_SETS_BITS_MOST)
		memory = tm_syscall(SYS_mmap, 0, (long)TABLE_BYTES(larger), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory < 0) {
		atomic_store(&fills, UINT32_MAX);
		return;
	}
	uint64_t table = tm_rules_word((void *)memory, (unsigned)larger) | (old >> VERSION << VERSION);
	uint32_t count = copy_table(old, (unsigned)bits, table);
	if (atomic_compare_exchange_strong(&tm_rules_table, &old, table)) {
		atomic_store(&kept, count);
		atomic_store(&fills, FILLS(larger));
	} else {
		tm_raw_unmap((void *)memory, TABLE_BYTES(larger));
	}
}

void tm_rule_keep(uintptr_t ip, uint32_t rule) {
	if (tm_rule_in(tm_rules(), ip) == rule) return;
	uint32_t count = atomic_load_explicit(&kept, memory_order_relaxed);
	atomic_store_explicit(&kept, count + 1, memory_order_relaxed);
	if (TM_UNLIKELY(count == 0 || count >= atomic_load_explicit(&fills, memory_order_relaxed)) && !tm_is_sandboxed()) {
		/* Whoever keeps one keeps a hundred: all pages at once cost less than a fault for each. */
		if (count == 0) tm_raw_populate(first_table, sizeof first_table);
		else if (!atomic_exchange(&growing, true)) {
			grow();
			atomic_store(&growing, false);
		}
	}
	tm_rule_put(tm_rules(), ip, rule);
}

/* --- finding one --- */

static uint32_t work_out(uintptr_t ip) {
	struct tm_cfi cfi;
	struct tm_cfi_row row;
	if (tm_cfi_find(ip, &cfi)) return tm_cfi_row_at(&cfi, ip, &row) ? rule_from(&cfi, &row, ip) : TM_RULE_NONE;
	return tm_cfi_row_of_start_files(ip, &cfi, &row) ? rule_from(&cfi, &row, ip) : TM_RULE_NONE;
}

TM_COLD uint32_t tm_rule_find(uintptr_t ip, bool keep) {
	bool is_ours = ip - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
	if (ip >> 48) return TM_RULE_NONE;
	if (!keep || is_ours || !tm_modules_look(ip)) return work_out(ip);
	uint64_t key = tm_modules_key(ip);
	uint32_t rule = tm_rule_in(tm_rules(), ip); /* it may be in a larger table meanwhile */
	if (!rule && key) rule = tm_shared_find(key, ip);
	if (!rule) {
		if (key) tm_shared_fetch(key);
		rule = work_out(ip);
		if (rule == TM_RULE_NONE) return rule;
		if (key) tm_shared_add(key, rule);
	}
	tm_rule_keep(ip, rule);
	return rule;
}

void tm_rule_keep_guessed(uintptr_t ip) {
	bool is_ours = ip - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
	if (!is_ours && tm_modules_look(ip)) tm_rule_keep(ip, TM_RULE_GUESSED);
}

/* --- modules that go --- */

static __thread uint32_t closing_of_this_thread __attribute__((tls_model("initial-exec"))); /* a library's destructor may close another one */

void tm_rules_close_begin(void) {
	closing_of_this_thread++;
	atomic_fetch_add(&tm_versions.rules, 1);
}

/* Only what was written is written: the rest of the table stays memory that was never touched. */
static void clear_table(uint64_t table) {
	_Atomic uint64_t *entries = tm_rule_set(table, 0);
	for (uint64_t i = (uint64_t)2 << (64 - (table & 63)); i-- > 0;) {
		if (atomic_load_explicit(&entries[i], memory_order_relaxed)) atomic_store_explicit(&entries[i], 0, memory_order_relaxed);
	}
}

static uint64_t next_version(void) {
	return atomic_fetch_add(&tm_rules_table, (uint64_t)1 << VERSION) + ((uint64_t)1 << VERSION);
}

/* Nobody has a copy from before, or makes use of one that was begun meanwhile. */
void tm_rules_close_end(void) {
	uint64_t table = next_version();
	do clear_table(table);
	while (!atomic_compare_exchange_strong(&tm_rules_table, &table, table + ((uint64_t)1 << VERSION)));
	tm_shared_forget();
	closing_of_this_thread--;
	atomic_fetch_add(&tm_versions.rules, 0x100 - 1);
}

void tm_rules_forked(void) {
	atomic_store(&tm_versions.rules, (atomic_load(&tm_versions.rules) & ~0xffu) + 0x100 + closing_of_this_thread);
	atomic_store(&growing, false);
	tm_shared_forked();
}
