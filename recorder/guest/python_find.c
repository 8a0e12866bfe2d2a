/* python_find.c - which CPython is in this process, and where its structures keep what a stack needs.
 *
 * Flow:     modules.c -> tm_python_found() -> struct tm_python, read by python_stack.c and python_codes.c
 * Idea:     from 3.13 on the interpreter publishes the offsets of its structures at the start of _PyRuntime (free-threaded builds included). Before, they are
 *           the same for every build of a version, and stand in a table here. A version that is neither gets no Python stacks, and a note.
 * The code that runs Python functions is _PyEval_EvalFrameDefault. Compilers move its rare paths to a part of their own, which has no symbol in a
 * stripped library, but an entry in the unwind table: it is the function whose inside the evaluation loop jumps into.
 */
#include "../python_program.h"

#include "code_word.h"
#include "elf_symbols.h"
#include "process.h"
#include "python.h"
#include "raw.h"
#include "sandbox.h"

#include <string.h>
#include <time.h>

/* --- symbols --- */

static const char *const names[] = {
#define X(id, name) name,
	TM_PYTHON_SYMBOLS(X)
#undef X
};

/* A program that embeds the interpreter and asks what is a code object has the type in its own data (a copy relocation), and the library uses that one. */
static void look_for_copy(const struct tm_symbols *s, struct tm_python_module *out) {
	const ElfW(Sym) *symbol = tm_symbols_find(s, names[TM_PYTHON_CODE_TYPE]);

	if (symbol) out->symbols[TM_PYTHON_CODE_TYPE] = s->bias + symbol->st_value;
}

/* What the program asks of the loader, and has itself. */
static struct tm_symbols program;

/* Is the program the interpreter? One that has another name is nothing but that, too, where it has its main function called. A host begins and ends an
 * interpreter when it likes, and goes on. */
static bool is_the_program(void) {
	static const char *const mains[] = { "Py_BytesMain", "Py_RunMain", "Py_Main" };

	if (tm_is_python_program(tm_program_path())) return true;
	for (uint32_t i = 1; program.hash && i < tm_symbols_first(&program); i++) {
		const char *name = program.names + program.symbols[i].st_name;

		for (unsigned k = 0; k < sizeof mains / sizeof mains[0] && name[0] == 'P'; k++)
			if (strcmp(name, mains[k]) == 0) return true;
	}
	return false;
}

#define TYPE_NAME_OFFSET 24u /* of a type's name, in all versions */

/* The loader lists a module before it has put its addresses right: its functions must not be called then, nor what its pointers say be believed. The name of a
 * type is one of them. */
static bool is_relocated(const struct dl_phdr_info *info, const struct tm_symbols *s) {
	const ElfW(Sym) *type = tm_symbols_find(s, names[TM_PYTHON_CODE_TYPE]);

	return !type || tm_symbols_is_in(info, *(const uintptr_t *)(s->bias + type->st_value + TYPE_NAME_OFFSET));
}

bool tm_python_look_in(const struct dl_phdr_info *info, struct tm_python_module *out) {
	struct tm_symbols s;

	if (!tm_symbols_open(&s, info)) return false;
	if (!info->dlpi_name[0]) program = s;
	if (!tm_symbols_find(&s, names[TM_PYTHON_IS_FINALIZING]) && !tm_symbols_find(&s, names[TM_PYTHON_IS_FINALIZING_OLD])) {
		if (!info->dlpi_name[0]) look_for_copy(&s, out);
		return false;
	}
	out->pending = is_relocated(info, &s) ? 0 : info->dlpi_addr;
	if (out->pending) return false;
	for (unsigned i = 0; i < TM_PYTHON_SYMBOL_COUNT; i++) {
		const ElfW(Sym) *symbol = tm_symbols_find(&s, names[i]);

		if (!symbol || out->symbols[i]) continue;
		out->symbols[i] = s.bias + symbol->st_value;
		if (i == TM_PYTHON_EVAL) out->eval_bytes = symbol->st_size;
	}
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_GNU_EH_FRAME) out->unwind_table = s.bias + p->p_vaddr;
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
		if (!out->text_low) out->text_low = s.bias + p->p_vaddr;
		out->text_high = s.bias + p->p_vaddr + p->p_memsz; /* headers stand in the order of their addresses */
	}
	out->check = out->symbols[out->symbols[TM_PYTHON_IS_FINALIZING] ? TM_PYTHON_IS_FINALIZING : TM_PYTHON_IS_FINALIZING_OLD];
	out->flag = tm_code_word(info, out->check, true);
	out->current = tm_code_word(info, out->symbols[TM_PYTHON_CURRENT_THREAD], false);
	return true;
}

/* --- offsets --- */

static const struct row {
	uint32_t first, last; /* versions */
	enum tm_python_frames kind;
	bool cframe;
	struct tm_python_offsets offsets;
	uint16_t filename, name, first_line, table, bytecode, ascii;
} rows[] = {
	{ 0x0308, 0x0309, TM_PYTHON_OBJECTS, false, { 24, 0, 24, 32, 104, 0, 0 }, 104, 112, 40, 120, 0, 48 },
	{ 0x030a, 0x030a, TM_PYTHON_OBJECTS, false, { 24, 0, 24, 32, 96, 0, 0 }, 104, 112, 40, 120, 0, 48 },
	{ 0x030b, 0x030b, TM_PYTHON_INNER_311, true, { TM_PYTHON_OFFSETS_311 }, 112, 128, 72, 136, 184, 48 },
	{ 0x030c, 0x030c, TM_PYTHON_INNER, true, { 56, 0, 8, 0, 56, 70, 0 }, 112, 128, 68, 136, 192, 40 },
};

static bool from_table(struct tm_python *p) {
	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const struct row *r = &rows[i];

		if (p->version < r->first || p->version > r->last) continue;
		p->kind = r->kind;
		p->cframe = r->cframe;
		p->offsets = r->offsets;
		p->filename = r->filename;
		p->name = r->name;
		p->first_line = r->first_line;
		p->table = r->table;
		p->bytecode = r->bytecode;
		p->type = 8;
		p->bytes_size = p->text_length = 16;
		p->bytes_data = p->text_state = 32;
		p->text_ascii = r->ascii;
		return true;
	}
	return false;
}

/* Positions in the published table, in words; those of 3.14 and 3.15 have grown in their middle. */
struct published {
	uint8_t top, previous, code, instr, owner, copy_index, filename, qualname, table, first_line, bytecode, copies, type, bytes_size, bytes_data,
		text_state, text_length, text_ascii;
};
#define INTERPRETERS_HEAD 5u /* the same in all of them */
static const struct published published_313 = { 23, 29, 30, 31, 33, 0, 35, 37, 38, 39, 43, 0, 45, 65, 66, 68, 69, 70 };
static const struct published published_314 = { 26, 32, 33, 34, 36, 38, 40, 42, 43, 44, 48, 49, 51, 75, 76, 78, 79, 80 };
static const struct published published_315 = { 26, 40, 41, 42, 44, 46, 48, 50, 51, 52, 56, 57, 59, 87, 88, 90, 91, 92 };

static bool from_runtime(struct tm_python *p, uintptr_t runtime) {
	const uint64_t *words = (const uint64_t *)runtime;
	const struct published *at = p->version == 0x030d ? &published_313 : p->version == 0x030e ? &published_314 : &published_315;

	if (p->version < 0x030d || p->version > 0x030f) return false;
	if (!runtime || memcmp(words, "xdebugpy", 8) != 0 || words[1] >> 16 != p->version) return false;
	for (unsigned i = 3; i <= at->text_ascii; i++)
		if (words[i] > (1u << 24)) return false;
	p->kind = TM_PYTHON_INNER;
	p->cframe = false;
	p->offsets.top = (uint16_t)words[at->top];
	p->offsets.previous = (uint16_t)words[at->previous];
	p->offsets.code = (uint16_t)words[at->code];
	p->offsets.instr = (uint16_t)words[at->instr];
	p->offsets.owner = (uint16_t)words[at->owner];
	p->filename = (uint16_t)words[at->filename];
	p->name = (uint16_t)words[at->qualname];
	p->table = (uint16_t)words[at->table];
	p->first_line = (uint16_t)words[at->first_line];
	p->bytecode = (uint16_t)words[at->bytecode];
	p->type = (uint16_t)words[at->type];
	p->bytes_size = (uint16_t)words[at->bytes_size];
	p->bytes_data = (uint16_t)words[at->bytes_data];
	p->text_state = (uint16_t)words[at->text_state];
	p->text_length = (uint16_t)words[at->text_length];
	p->text_ascii = (uint16_t)words[at->text_ascii];
	p->interpreters = p->version >= 0x030f ? (const uintptr_t *)(runtime + words[INTERPRETERS_HEAD]) : NULL;
	p->copy_index = words[2] && at->copies ? (uint16_t)words[at->copy_index] : 0;
	p->copies = words[2] && at->copies ? (uint16_t)words[at->copies] : 0;
	return true;
}

/* Py_Version is a number from 3.11 on; before, there is the text "3.10.13 (main, ...". */
static uint32_t version_of(const struct tm_python_module *m) {
	const char *text;
	unsigned major = 0, minor = 0;

	if (m->symbols[TM_PYTHON_VERSION]) return (uint32_t)(*(const unsigned long *)m->symbols[TM_PYTHON_VERSION] >> 16);
	if (!m->symbols[TM_PYTHON_GET_VERSION]) return 0;
	text = ((const char *(*)(void))m->symbols[TM_PYTHON_GET_VERSION])();
	for (; *text >= '0' && *text <= '9'; text++) major = major * 10 + (unsigned)(*text - '0');
	if (*text == '.') text++;
	for (; *text >= '0' && *text <= '9'; text++) minor = minor * 10 + (unsigned)(*text - '0');
	return major << 8 | minor;
}

/* --- the rare part of the evaluation loop --- */

#define TABLE_KINDS 0x3b031b01u /* version 1; pointers relative to their place, count a u32, entries relative to the table: what linkers write */
#define CANDIDATES 64u

struct unwind_row {
	int32_t start, entry; /* of the function, of its entry in .eh_frame; relative to the table's header */
};

struct unwind_table {
	uintptr_t header;
	const struct unwind_row *rows;
	uint32_t count;
};

static bool open_unwind_table(struct unwind_table *u, uintptr_t header) {
	uint32_t kinds;

	if (!header) return false;
	memcpy(&kinds, (const void *)header, sizeof kinds);
	u->header = header;
	u->count = ((const uint32_t *)header)[2];
	u->rows = (const struct unwind_row *)(header + 12);
	return kinds == TABLE_KINDS && u->count > 0;
}

/* The function around an address, as the unwind table has it. */
static bool function_around(const struct unwind_table *u, uintptr_t address, struct tm_python_range *out) {
	int64_t offset = (int64_t)(address - u->header);
	uint32_t low = 0, high = u->count;
	const int32_t *entry;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (u->rows[middle].start <= offset) low = middle + 1;
		else high = middle;
	}
	if (low == 0) return false;
	entry = (const int32_t *)(u->header + (uintptr_t)(intptr_t)u->rows[low - 1].entry); /* length, CIE, start, size */
	out->low = u->header + (uintptr_t)(intptr_t)u->rows[low - 1].start;
	out->high = out->low + (uint32_t)entry[3];
	return address < out->high;
}

/* Where the instruction at `at` jumps to, if it is a conditional jump over 32 bits: functions are called and jumped to, but never on condition
 * into their middle. Bytes that only look like one point anywhere, and hardly twice into the same function. */
static uintptr_t conditional_target(const uint8_t *at) {
	int32_t distance;

	if (at[0] != 0x0f || (at[1] & 0xf0) != 0x80) return 0;
	memcpy(&distance, at + 2, sizeof distance);
	return (uintptr_t)at + 6 + (uintptr_t)(intptr_t)distance;
}

static bool find_rare_part(const struct tm_python_module *m, const struct tm_python_range *eval, struct tm_python_range *out) {
	struct candidate {
		struct tm_python_range range;
		unsigned jumps;
	} candidates[CANDIDATES], *best = NULL;
	unsigned count = 0;
	struct unwind_table u;

#if !defined(__x86_64__)
	return false;
#endif
	if (!open_unwind_table(&u, m->unwind_table)) return false;
	for (uintptr_t at = eval->low; at + 6 <= eval->high; at++) {
		uintptr_t target = conditional_target((const uint8_t *)at);
		struct tm_python_range f;
		unsigned i = 0;

		if (target < m->text_low || target >= m->text_high || (target >= eval->low && target < eval->high)) continue;
		if (!function_around(&u, target, &f) || target == f.low || f.low == eval->low) continue;
		while (i < count && candidates[i].range.low != f.low) i++;
		if (i == CANDIDATES) continue;
		if (i == count) candidates[count++] = (struct candidate){ f, 0 };
		candidates[i].jumps++;
		if (!best || candidates[i].jumps > best->jumps) best = &candidates[i];
	}
	if (!best || best->jumps < 2) return false;
	*out = best->range;
	return true;
}

TM_REALIGN void *const _Atomic *tm_python_own_current(const struct tm_python *p) {
	return p->current_thread ? (void *const _Atomic *)tm_code_thread_word((uintptr_t)p->current_thread) : NULL;
}

/* --- coming and going --- */

static void find_runs(struct tm_python *p) {
	const struct tm_python_module *m = &p->module;

	p->run_count = 0;
	p->generation++;
	if (!m->symbols[TM_PYTHON_EVAL] || !m->eval_bytes) return;
	p->runs[0] = (struct tm_python_range){ m->symbols[TM_PYTHON_EVAL], m->symbols[TM_PYTHON_EVAL] + m->eval_bytes };
	p->run_count = 1;
	if (find_rare_part(m, &p->runs[0], &p->runs[1])) p->run_count = 2;
}

static void note_unknown(struct tm_thread *t, uint32_t version) {
	char text[] = "no Python stacks: tidemark does not know the structures of Python 3.00";
	char *digits = text + sizeof text - 3;
	uint32_t minor = version & 0xff;

	if (!version) return;
	if (minor >= 10) *digits++ = (char)('0' + minor / 10 % 10);
	*digits++ = (char)('0' + minor % 10);
	*digits = 0;
	tm_emit_note(t, "python", text);
}

/* --- a barrier for all threads --- */

enum { BARRIER = 8, REGISTER = 16 }; /* MEMBARRIER_CMD_PRIVATE_EXPEDITED, and what has to come before it */

static struct tm_ring *ring_at(uint32_t i) {
	return (struct tm_ring *)((uint8_t *)tm_guest.shm + tm_guest.shm->ring_headers_offset) + i;
}

/* Another thread's of this process, the first one from *i on; NULL: there is none. */
static struct tm_ring *next_of_others(const struct tm_thread *t, uint32_t *i) {
	uint32_t used = atomic_load(&tm_guest.shm->rings_used), count = used < tm_guest.shm->ring_count ? used : tm_guest.shm->ring_count;
	while (*i < count) {
		struct tm_ring *r = ring_at((*i)++);
		if (r != t->ring && r->process == tm_guest.process && atomic_load(&r->state) == TM_RING_ACTIVE) return r;
	}
	return NULL;
}

bool tm_python_is_alone(const struct tm_thread *t) {
	uint32_t first = 0;
	return !next_of_others(t, &first) && atomic_load(&tm_guest.shm->unringed_events) == 0;
}

/* Done at once where there is one thread, as when an interpreter starts. Where there are more the kernel waits until all processors have done something
 * else, 10 ms and more: then it can wait until the interpreter leaves. */
static void register_barrier_early(const struct tm_thread *t) {
	if (!tm_is_sandboxed() && tm_python_is_alone(t) && tm_sandbox_is_free(true)) tm_syscall(SYS_membarrier, REGISTER, 0, 0, 0, 0, 0);
}

/* Walks look for TM_PYTHON_LEAVING after they have said that they walk; the barrier makes one of the two see the other. Behind a
 * filter from before the program, which may kill for it, a short sleep stands for it: what they say is out of their processors by then. */
static void barrier_for_all_threads(void) {
	struct timespec time = { 0, 1000000 };
	uint32_t word = 0;

	if (tm_is_sandboxed()) return;
	if (!tm_sandbox_is_free(true)) {
		tm_syscall(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 0, (long)&time, 0, 0);
		return;
	}
	if (tm_syscall(SYS_membarrier, BARRIER, 0, 0, 0, 0, 0) == 0) return;
	tm_syscall(SYS_membarrier, REGISTER, 0, 0, 0, 0, 0);
	tm_syscall(SYS_membarrier, BARRIER, 0, 0, 0, 0, 0);
}

void tm_python_found(struct tm_thread *t, const struct tm_python_module *module) {
	struct tm_python *p = &tm_python;

	if (memcmp(&p->module, module, sizeof *module) == 0) {
		if (atomic_load(&p->state) & TM_PYTHON_READY) tm_python_count_codes(p); /* it may be another at the same place */
		return;
	}
	if (atomic_fetch_and(&p->state, ~TM_PYTHON_READY) & TM_PYTHON_READY) atomic_fetch_or(&p->state, TM_PYTHON_ASKS);
	p->module = *module;
	p->is_program = is_the_program();
	p->current = (void *const _Atomic *)module->current;
	p->current_thread =
		(void *(*)(void))module->symbols[module->symbols[TM_PYTHON_CURRENT_THREAD] ? TM_PYTHON_CURRENT_THREAD : TM_PYTHON_CURRENT_THREAD_313];
	tm_python_heap_found(t);
	if (!tm_guest.shm->python || !module->symbols[TM_PYTHON_THIS_THREAD] || !module->symbols[TM_PYTHON_CODE_TYPE]) return;
	p->version = version_of(module);
	if (!from_table(p) && !from_runtime(p, module->symbols[TM_PYTHON_RUNTIME])) {
		note_unknown(t, p->version);
		return;
	}
	p->code_type = module->symbols[TM_PYTHON_CODE_TYPE];
	p->this_thread = (void *(*)(void))module->symbols[TM_PYTHON_THIS_THREAD];
	p->head = (void *(*)(void))module->symbols[TM_PYTHON_HEAD];
	p->main = (void *(*)(void))module->symbols[TM_PYTHON_MAIN];
	p->is_finalizing = (int (*)(void))module->check;
	find_runs(p);
	tm_python_set_same(p);
	tm_python_count_codes(p);
	register_barrier_early(t);
	atomic_fetch_or(&p->state, TM_PYTHON_READY);
}

void tm_python_leaves(const struct tm_thread *t) {
	struct tm_ring *r;

	/* Every event comes here from now on, and a locked instruction waits for all stores in front of it. */
	if (atomic_load_explicit(&tm_python.state, memory_order_acquire) & TM_PYTHON_LEAVING) return;
	if (atomic_fetch_or(&tm_python.state, TM_PYTHON_LEAVING) & TM_PYTHON_LEAVING) return;
	barrier_for_all_threads();
	for (uint32_t i = 0; (r = next_of_others(t, &i)) != NULL;)
		for (unsigned n = 0; atomic_load(&r->walking) && n < 1000000; n++)
			if (n % 1000 == 999 && !tm_is_sandboxed()) tm_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}
