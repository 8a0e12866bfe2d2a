/* unwind_full.c - see unwind_full.h. One step is one row of .eh_frame, applied to every register. */
#include "unwind_full.h"
#include "raw.h"
#include "unwind_rule.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

/* --- memory --- */

TM_COLD bool tm_memory_ask(struct tm_memory *m, uintptr_t address) {
	uintptr_t page = address & ~(uintptr_t)(TM_MEMORY_PAGE - 1);
	m->left = true;
	if (page && page == m->page) return true;
	if (!page || address >> 48 || tm_is_sandboxed() || !tm_raw_is_readable((const void *)page)) return false;
	m->page = page;
	return true;
}

bool tm_memory_read(void *memory, uintptr_t address, unsigned bytes, uintptr_t *value) {
	*value = 0;
	if (!bytes || !tm_memory_holds(memory, address & ~(uintptr_t)7) || !tm_memory_holds(memory, (address + bytes - 1) & ~(uintptr_t)7)) return false;
	memcpy(value, (const void *)address, bytes);
	return true;
}

/* --- no description --- */

#define LONGEST_CALL 7u /* bytes of one through a pointer in memory, on x86-64 */

/* Does a call lie in front of the return address? */
static bool follows_call(struct tm_memory *m, uintptr_t pc) {
	uintptr_t code;
#if defined(__x86_64__)
	unsigned bytes = LONGEST_CALL;
	if (pc < TM_MEMORY_PAGE) return false;
	if (!tm_memory_read(m, pc - bytes, bytes, &code)) {
		bytes = pc % TM_MEMORY_PAGE; /* of a mapping's first function: it begins here */
		if (bytes >= LONGEST_CALL || !tm_memory_read(m, pc - bytes, bytes, &code)) return false;
	}
	const uint8_t *end = (const uint8_t *)&code + bytes;
	if (bytes >= 5 && end[-5] == 0xe8) return true;
	for (unsigned n = 2; n <= bytes; n++) {
		if (*(end - n) == 0xff && (*(end - n + 1) >> 3 & 7) == 2) return true;
	}
	return false;
#else
	if (pc < TM_MEMORY_PAGE || pc % 4 || !tm_memory_read(m, pc - 4, 4, &code)) return false;
	return code >> 26 == 0x25 || (code & 0xfffffc1fu) == 0xd63f0000u ||
	       (code & 0xfefff800u) == 0xd63f0800u; /* the last: of a signed address */
#endif
}

#define GUESS_BYTES 0x4000u /* a caller's frame does not lie further out */

#if defined(__x86_64__)
#define CODE_BITS 64
#else
#define CODE_BITS 48 /* above: a signature of the address */
#endif
#define STRIPPED(pc) ((pc) & (~(uintptr_t)0 >> (64 - CODE_BITS)))

#if defined(__x86_64__)
static bool find_callers_sp(uintptr_t fp, struct tm_guess *caller) {
	caller->sp = fp + 16;
	return true;
}
#else
static bool find_callers_sp(uintptr_t fp, struct tm_guess *caller) {
	struct tm_cfi cfi;
	struct tm_cfi_row row;
	caller->sp = fp + 16;
	if (!tm_cfi_find(caller->pc - 1, &cfi) || !tm_cfi_row_at(&cfi, caller->pc - 1, &row) || row.cfa.how != TM_CFI_REGISTER) return true;
	if (row.cfa.value != TM_CFI_SP) return true;
	struct tm_cfi_rule pair = row.rules[TM_CFI_FP], ra = row.rules[TM_CFI_RA];
	if (pair.how != TM_CFI_AT || ra.how != TM_CFI_AT || ra.value != pair.value + 8) return false;
	caller->sp = caller->fp - (uintptr_t)(row.cfa_offset + pair.value);
	return caller->sp > fp && caller->sp <= caller->fp;
}
#endif

bool tm_guess_caller(struct tm_memory *m, uint64_t rules, uintptr_t sp, uintptr_t fp, struct tm_guess *caller) {
	if (fp < sp || fp - sp > GUESS_BYTES || !tm_memory_holds(m, fp + 8) || !tm_memory_holds(m, fp)) return false;
	caller->fp = ((const uintptr_t *)fp)[0];
	caller->pc = STRIPPED(((const uintptr_t *)fp)[1]);
	bool is_met = rules && tm_rule_in(rules, caller->pc - 1) == TM_RULE_GUESSED;
	return (is_met || follows_call(m, caller->pc)) && find_callers_sp(fp, caller);
}

static enum tm_step step_by_guess(struct tm_cursor *c) {
	struct tm_guess caller;
	if (!(c->known >> TM_CFI_FP & 1) || !tm_guess_caller(&c->memory, 0, c->registers[TM_CFI_SP], c->registers[TM_CFI_FP], &caller)) return TM_STEP_LOST;
	c->pc = caller.pc;
	c->registers[TM_CFI_FP] = caller.fp;
	c->registers[TM_CFI_SP] = caller.sp;
	c->known = 1ull << TM_CFI_FP | 1ull << TM_CFI_SP;
	c->in_call = c->guessed = true;
	return TM_STEP_DONE;
}

/* --- a signal's frame, read as the kernel writes it --- */

#if defined(__x86_64__)
/* r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp */
static const uint8_t saved_order[16] = { 8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7 };
#define SAVED_AT(i) (40u + 8u * (i))
#define SAVED_COUNT 16u
#else
#define SAVED_AT(i) ((i) == 31 ? TM_SIGNAL_SP : TM_SIGNAL_REGISTERS + 8u * (i))
#define SAVED_COUNT 32u
#endif

static enum tm_step step_over_signal(struct tm_cursor *c) {
	uintptr_t sp = c->registers[TM_CFI_SP], pc;
	for (unsigned i = 0; i < SAVED_COUNT; i++) {
#if defined(__x86_64__)
		unsigned reg = saved_order[i];
#else
		unsigned reg = i;
#endif
		if (!tm_memory_read(&c->memory, sp + SAVED_AT(i), 8, &c->registers[reg])) return TM_STEP_LOST;
		c->known |= 1ull << reg;
	}
	if (!tm_memory_read(&c->memory, sp + TM_SIGNAL_PC, 8, &pc)) return TM_STEP_LOST;
	c->pc = pc;
	c->in_call = false;
	return pc ? TM_STEP_DONE : TM_STEP_END;
}

#define START_BYTES 64u

/* Also of one that is run by hand, which the kernel does not call a loader (AT_BASE). */
static bool is_in_loader_start(uintptr_t pc) {
	uintptr_t base = _r_debug.r_ldbase;
	return base && pc - base - ((const ElfW(Ehdr) *)base)->e_entry < START_BYTES;
}

/* A program's own _start, which older start files do not describe: it calls once, and halts. */
static bool is_in_program_start(uintptr_t pc) {
#if defined(__x86_64__)
	int kept = errno;
	uintptr_t entry = getauxval(AT_ENTRY);
	errno = kept;
	return pc - entry < START_BYTES && !tm_is_sandboxed() && tm_raw_is_readable((const void *)pc) && *(const uint8_t *)pc == 0xf4; /* hlt */
#else
	(void)pc;
	return false;
#endif
}

bool tm_is_made_up_caller(uintptr_t pc) {
	struct tm_cfi cfi;
	return (tm_cfi_find(pc, &cfi) && cfi.low == pc) || is_in_loader_start(pc) || is_in_program_start(pc);
}

/* --- a described frame --- */

static bool find_cfa(const struct tm_cfi_row *row, const struct tm_cfi_frame *frame, uintptr_t *cfa) {
	struct tm_cfi_value value;
	if (row->cfa.how == TM_CFI_IS_EXPRESSION) {
		if (!tm_cfi_evaluate((const uint8_t *)(uintptr_t)row->cfa.value, frame, false, &value)) return false;
		*cfa = (uintptr_t)value.offset;
		return true;
	}
	uint64_t reg = (uint64_t)row->cfa.value;
	if (reg >= TM_CFI_REGISTERS || !(frame->known >> reg & 1)) return false;
	*cfa = frame->registers[reg] + (uintptr_t)row->cfa_offset;
	return true;
}

/* What the register was in the caller; *is_known false: nobody can tell. False: the rule leads nowhere. */
static bool apply(const struct tm_cfi_rule *rule, const struct tm_cfi_frame *frame, uintptr_t cfa, unsigned reg, uintptr_t *value, bool *is_known) {
	struct tm_cfi_value result = { TM_BASE_CONST, 0, (int64_t)cfa };
	uint64_t from = (uint64_t)rule->value;
	*is_known = true;
	switch (rule->how) {
	case TM_CFI_SAME:
		*is_known = frame->known >> reg & 1;
		*value = frame->registers[reg];
		return true;
	case TM_CFI_AT: return frame->read(frame->context, cfa + (uintptr_t)rule->value, 8, value);
	case TM_CFI_IS: *value = cfa + (uintptr_t)rule->value; return true;
	case TM_CFI_AT_EXPRESSION:
	case TM_CFI_IS_EXPRESSION:
		if (!tm_cfi_evaluate((const uint8_t *)(uintptr_t)rule->value, frame, true, &result)) return false;
		*value = (uintptr_t)result.offset;
		return rule->how == TM_CFI_IS_EXPRESSION || frame->read(frame->context, *value, 8, value);
	case TM_CFI_REGISTER:
		*is_known = from < TM_CFI_REGISTERS && (frame->known >> from & 1);
		if (*is_known) *value = frame->registers[from];
		return true;
	default: *is_known = false; return true;
	}
}

static bool has_caller(const struct tm_cfi_row *row) {
#if defined(__x86_64__)
	if (row->rules[TM_CFI_FP].how == TM_CFI_UNDEFINED || row->rules[TM_CFI_RA].how == TM_CFI_SAME) return false;
#endif
	return row->rules[TM_CFI_RA].how != TM_CFI_UNDEFINED;
}

static enum tm_step step_by_row(struct tm_cursor *c, const struct tm_cfi *cfi, const struct tm_cfi_row *row, uintptr_t ip) {
	struct tm_cfi_frame frame = { c->registers, c->known, ip, tm_memory_read, &c->memory };
	uintptr_t cfa, values[TM_CFI_REGISTERS] = { 0 }, old_sp = c->registers[TM_CFI_SP], old_pc = c->pc;
	uint64_t known = 0;
	if (!has_caller(row)) return TM_STEP_END;
	if (!find_cfa(row, &frame, &cfa)) return TM_STEP_LOST;
	for (unsigned i = 0; i < TM_CFI_REGISTERS; i++) {
		bool is_known;
		if (!apply(&row->rules[i], &frame, cfa, i, &values[i], &is_known)) {
			if (i == TM_CFI_RA || i == TM_CFI_SP) return TM_STEP_LOST;
			is_known = false;
		}
		if (is_known) known |= 1ull << i;
	}
	if (!(known >> TM_CFI_RA & 1)) return TM_STEP_END;
	if (row->rules[TM_CFI_SP].how == TM_CFI_SAME) {
		values[TM_CFI_SP] = cfa;
		known |= 1ull << TM_CFI_SP;
	}
	memcpy(c->registers, values, sizeof values);
	c->known = known;
	c->pc = STRIPPED(values[TM_CFI_RA]);
	c->in_call = !cfi->is_signal;
	if (!c->pc) return TM_STEP_END;
	return c->pc == old_pc && values[TM_CFI_SP] == old_sp ? TM_STEP_LOST : TM_STEP_DONE;
}

enum tm_step tm_cursor_step(struct tm_cursor *c) {
	struct tm_cfi cfi;
	struct tm_cfi_row row;
	uintptr_t ip = c->in_call ? c->pc - 1 : c->pc;
	c->guessed = false;
	if (!tm_cfi_find(ip, &cfi) || !tm_cfi_row_at(&cfi, ip, &row)) {
		if (tm_is_made_up_caller(c->pc)) return TM_STEP_END;
		if (tm_rule_is_trampoline(c->pc, tm_memory_read, &c->memory)) return step_over_signal(c);
		if (!c->in_call || !tm_cfi_row_of_start_files(ip, &cfi, &row)) return step_by_guess(c);
	}
#if defined(__aarch64__)
	if (cfi.is_signal && tm_rule_is_trampoline(c->pc, tm_memory_read, &c->memory)) return step_over_signal(c);
#endif
	return step_by_row(c, &cfi, &row, ip);
}
