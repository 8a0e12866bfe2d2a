/* unwind_rule.c - the table of rules and how an entry is made; see unwind_rule.h. */
#include "unwind_rule.h"
#include "shared_rules.h"
#include "unwind_cfi.h"

_Alignas(64) _Atomic uint64_t tm_rules[TM_RULE_SETS][2];
_Atomic uint32_t tm_rules_version;

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
	if (cfa->offset != 0 || !TM_RULE_OFFSET_FITS(cfa->inner) || row->rules[TM_CFI_RA].how != TM_CFI_AT || row->rules[TM_CFI_RA].value != -8)
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

static void keep_rule(_Atomic uint64_t (*table)[2], uintptr_t key, uint32_t rule) {
	uint64_t hash = tm_rule_hash(key), entry = hash << 16 | rule;
	_Atomic uint64_t *set = table[hash >> 48];
	atomic_store_explicit(&set[1], atomic_load_explicit(&set[0], memory_order_relaxed), memory_order_relaxed);
	atomic_store_explicit(&set[0], entry, memory_order_relaxed);
}

static uint32_t work_out(uintptr_t ip) {
	struct tm_cfi cfi;
	struct tm_cfi_row row;
	return tm_cfi_find(ip, &cfi) && tm_cfi_row_at(&cfi, ip, &row) ? rule_from(&cfi, &row, ip) : TM_RULE_NONE;
}

static uint32_t find_shared(uintptr_t ip) {
	uint64_t key = tm_modules_key(ip);
	struct tm_shared_rules *shared = key ? tm_shared_rules() : NULL;
	uint32_t rule = shared ? tm_rule_in(shared->rules, key) : 0;
	if (rule) return rule;
	rule = work_out(ip);
	if (shared && rule != TM_RULE_NONE) keep_rule(shared->rules, key, rule);
	return rule;
}

TM_COLD uint32_t tm_rule_find(uintptr_t ip, bool keep) {
	bool is_ours = ip - tm_guest.text_low < tm_guest.text_high - tm_guest.text_low;
	if (ip >> 48) return TM_RULE_NONE;
	if (!keep || is_ours || !tm_modules_look(ip)) return work_out(ip);
	uint32_t rule = find_shared(ip);
	if (rule != TM_RULE_NONE) keep_rule(tm_rules, ip, rule);
	return rule;
}

/* --- modules that go --- */

static __thread uint32_t closing_of_this_thread __attribute__((tls_model("initial-exec"))); /* a library's destructor may close another one */

void tm_rules_close_begin(void) {
	closing_of_this_thread++;
	atomic_fetch_add(&tm_rules_version, 1);
}

/* Only what was written is written: the rest of the table stays memory that was never touched. */
void tm_rules_close_end(void) {
	for (unsigned i = 0; i < TM_RULE_SETS; i++) {
		for (unsigned k = 0; k < 2; k++) {
			if (atomic_load_explicit(&tm_rules[i][k], memory_order_relaxed)) atomic_store_explicit(&tm_rules[i][k], 0, memory_order_relaxed);
		}
	}
	closing_of_this_thread--;
	atomic_fetch_add(&tm_rules_version, 0x100 - 1);
}

void tm_rules_forked(void) {
	atomic_store(&tm_rules_version, (atomic_load(&tm_rules_version) & ~0xffu) + 0x100 + closing_of_this_thread);
}
