/* unwind_cfi.c - see unwind_cfi.h. The formats are those of the DWARF standard, of the Linux Standard Base (.eh_frame, .eh_frame_hdr) and the ABIs' additions.
 *
 * Way:      address -> module (the C library's lock-free _dl_find_object; where it is older than that, modules.c's table) -> .eh_frame_hdr,
 *           binary search -> FDE and its CIE -> their programs, run up to the address -> row
 * Every pointer is held against the module's bounds before it is followed: a damaged section ends in "no information".
 */
#include "unwind_cfi.h"
#include "guest.h"
#include "raw.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#define STATES_MAX 4u      /* of DW_CFA_remember_state within each other */
#define EXPRESSION_MAX 12u /* values on an expression's stack */

/* --- reading --- */

struct reader {
	const uint8_t *at, *end;
	bool bad;
};

static uint64_t read_fixed(struct reader *r, unsigned bytes) {
	uint64_t value = 0;
	if ((size_t)(r->end - r->at) < bytes) {
		r->bad = true;
		r->at = r->end;
		return 0;
	}
	memcpy(&value, r->at, bytes);
	r->at += bytes;
	return value;
}

static uint64_t read_long_uleb(struct reader *r) {
	uint64_t value = 0;
	for (unsigned shift = 0; r->at < r->end; shift += 7) {
		uint8_t byte = *r->at++;
		if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) return value;
	}
	r->bad = true;
	return 0;
}

/* Most often one byte or two. */
static inline uint64_t read_uleb(struct reader *r) {
	const uint8_t *at = r->at;
	if (TM_LIKELY(r->end - at >= 2)) {
		if (at[0] < 0x80) {
			r->at = at + 1;
			return at[0];
		}
		if (at[1] < 0x80) {
			r->at = at + 2;
			return (at[0] & 0x7fu) | (uint64_t)at[1] << 7;
		}
	}
	return read_long_uleb(r);
}

static int64_t read_sleb(struct reader *r) {
	uint64_t value = 0;
	for (unsigned shift = 0; r->at < r->end;) {
		uint8_t byte = *r->at++;
		if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
		if (byte & 0x80) continue;
		if (shift < 64 && (byte & 0x40)) value |= ~(uint64_t)0 << shift;
		return (int64_t)value;
	}
	r->bad = true;
	return 0;
}

static void skip(struct reader *r, uint64_t bytes) {
	if ((uint64_t)(r->end - r->at) < bytes) {
		r->bad = true;
		r->at = r->end;
	} else {
		r->at += bytes;
	}
}

#define PE_OMIT 0xff
#define PE_FORMAT 0x0f
#define PE_RELATION 0x70
#define PE_PCREL 0x10
#define PE_DATAREL 0x30
#define PE_INDIRECT 0x80

static uint64_t read_encoded_value(struct reader *r, uint8_t encoding) {
	switch (encoding & PE_FORMAT) {
	case 0x00:
	case 0x04:
	case 0x0c: return read_fixed(r, 8);
	case 0x01: return read_uleb(r);
	case 0x02: return read_fixed(r, 2);
	case 0x03: return read_fixed(r, 4);
	case 0x09: return (uint64_t)read_sleb(r);
	case 0x0a: return (uint64_t)(int16_t)read_fixed(r, 2);
	case 0x0b: return (uint64_t)(int32_t)read_fixed(r, 4);
	default: r->bad = true; return 0;
	}
}

/* `data` is what "relative to data" means here: the address of .eh_frame_hdr. */
static uintptr_t read_encoded(struct reader *r, uint8_t encoding, uintptr_t data) {
	uintptr_t place = (uintptr_t)r->at;
	uint64_t value = read_encoded_value(r, encoding);
	if (!value) return 0;
	if ((encoding & PE_RELATION) == PE_PCREL) value += place;
	else if ((encoding & PE_RELATION) == PE_DATAREL) value += data;
	else if (encoding & PE_RELATION) r->bad = true;
	if (encoding & PE_INDIRECT) r->bad = true;
	return (uintptr_t)value;
}

/* --- the module --- */

struct object {
	uintptr_t low, high, header; /* .eh_frame_hdr */
};

#ifdef DLFO_STRUCT_HAS_EH_DBASE
extern __typeof__(_dl_find_object) _dl_find_object __attribute__((weak));

static bool find_by_loader(uintptr_t ip, struct object *o) {
	struct dl_find_object found;
	if (!_dl_find_object || _dl_find_object((void *)ip, &found) != 0 || !found.dlfo_eh_frame) return false;
	*o = (struct object){ (uintptr_t)found.dlfo_map_start, (uintptr_t)found.dlfo_map_end, (uintptr_t)found.dlfo_eh_frame };
	return true;
}
#else
static bool find_by_loader(uintptr_t ip, struct object *o) {
	(void)ip;
	(void)o;
	return false;
}
#endif

static bool holds_header(const struct object *o) {
	return o->header >= o->low && o->header + 12 <= o->high;
}

/* .eh_frame, too, by the offset that .eh_frame_hdr has it as with every linker (PE_PCREL | 0x0b). */
static bool holds_all(const struct object *o) {
	int32_t frames;
	if (!holds_header(o) || ((const uint8_t *)o->header)[1] != 0x1b) return false;
	memcpy(&frames, (const void *)(o->header + 4), sizeof frames);
	return o->header + 4 + (uintptr_t)(intptr_t)frames - o->low < o->high - o->low;
}

/* Of a program whose segments do not touch each other, as many are linked (-z max-page-size=0x200000, once ld's default), the loader tells the one segment that
 * has the code; the descriptions lie in another, or the table of them in one and they themselves in the segment that is written (as crtstuff.c once had it). */
static bool find_object(uintptr_t ip, struct object *o) {
	if (find_by_loader(ip, o) && holds_all(o)) return true;
	return tm_modules_find(ip, &o->low, &o->high, &o->header) && holds_header(o);
}

/* --- CIE and FDE --- */

/* A length, and the end that follows from it. */
static bool read_entry(struct reader *r, uintptr_t limit) {
	uint64_t length = read_fixed(r, 4);
	if (length == 0xffffffffu) length = read_fixed(r, 8);
	if (r->bad || length == 0 || length > limit - (uintptr_t)r->at) return false;
	r->end = r->at + length;
	return true;
}

static bool read_cie(const uint8_t *at, struct tm_cfi *cfi, bool *has_augmentation) {
	struct reader r = { at, (const uint8_t *)cfi->object_high, false };
	if ((uintptr_t)at < cfi->object_low || (uintptr_t)at >= cfi->object_high || !read_entry(&r, cfi->object_high)) return false;
	if (read_fixed(&r, 4) != 0) return false;
	uint64_t version = read_fixed(&r, 1);
	const char *augmentation = (const char *)r.at;
	size_t n = strnlen(augmentation, (size_t)(r.end - r.at));
	skip(&r, n + 1);
	if (r.bad || (version != 1 && version != 3) || (n && augmentation[0] != 'z')) return false;
	cfi->code_align = read_uleb(&r);
	cfi->data_align = read_sleb(&r);
	uint64_t return_column = version == 1 ? read_fixed(&r, 1) : read_uleb(&r);
	cfi->encoding = 0;
	cfi->is_signal = false;
	*has_augmentation = n != 0;
	if (n) {
		uint64_t bytes = read_uleb(&r);
		if (bytes > (uint64_t)(r.end - r.at)) return false;
		const uint8_t *program = r.at + bytes;
		for (size_t i = 1; i < n; i++) {
			if (augmentation[i] == 'R') cfi->encoding = (uint8_t)read_fixed(&r, 1);
			else if (augmentation[i] == 'L') skip(&r, 1);
			else if (augmentation[i] == 'S') cfi->is_signal = true;
			else if (augmentation[i] == 'P') {
				uint8_t encoding = (uint8_t)read_fixed(&r, 1);
				read_encoded_value(&r, encoding);
			} else if (augmentation[i] != 'B') break;
		}
		r.at = program;
	}
	cfi->initial = r.at;
	cfi->initial_end = r.end;
	return !r.bad && return_column == TM_CFI_RA;
}

static bool read_fde(const uint8_t *at, struct tm_cfi *cfi) {
	struct reader r = { at, (const uint8_t *)cfi->object_high, false };
	bool has_augmentation;
	if ((uintptr_t)at < cfi->object_low || (uintptr_t)at >= cfi->object_high || !read_entry(&r, cfi->object_high)) return false;
	const uint8_t *place = r.at;
	uint64_t back = read_fixed(&r, 4);
	if (r.bad || !back || !read_cie(place - back, cfi, &has_augmentation)) return false;
	cfi->low = read_encoded(&r, cfi->encoding, 0);
	cfi->high = cfi->low + read_encoded_value(&r, cfi->encoding & PE_FORMAT);
	if (has_augmentation) {
		uint64_t bytes = read_uleb(&r);
		skip(&r, bytes);
	}
	cfi->program = r.at;
	cfi->program_end = r.end;
	return !r.bad;
}

/* Where no table was made: one entry after the other. */
static bool find_by_scan(uintptr_t frames, uintptr_t ip, struct tm_cfi *cfi) {
	while (frames >= cfi->object_low && frames + 8 <= cfi->object_high) {
		struct reader r = { (const uint8_t *)frames, (const uint8_t *)cfi->object_high, false };
		if (!read_entry(&r, cfi->object_high)) return false;
		if (read_fde((const uint8_t *)frames, cfi) && ip >= cfi->low && ip < cfi->high) return true;
		frames = (uintptr_t)r.end;
	}
	return false;
}

struct table_entry {
	int32_t low, fde; /* both relative to .eh_frame_hdr */
};

static const uint8_t *search_table(const struct table_entry *table, uint64_t count, uintptr_t header, uintptr_t ip) {
	uint64_t low = 0, high = count;
	int64_t wanted = (int64_t)(ip - header);
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (table[middle].low <= wanted) low = middle + 1;
		else high = middle;
	}
	return low ? (const uint8_t *)(header + (uintptr_t)(intptr_t)table[low - 1].fde) : NULL;
}

bool tm_cfi_find(uintptr_t ip, struct tm_cfi *found) {
	struct object o;
	if (!find_object(ip, &o)) return false;
	found->object_low = o.low;
	found->object_high = o.high;
	struct reader r = { (const uint8_t *)o.header, (const uint8_t *)o.high, false };
	uint64_t version = read_fixed(&r, 1), frames_encoding = read_fixed(&r, 1), count_encoding = read_fixed(&r, 1), table_encoding = read_fixed(&r, 1);
	if (version != 1) return false;
	uintptr_t frames = read_encoded(&r, (uint8_t)frames_encoding, o.header);
	if (count_encoding == PE_OMIT || table_encoding != (PE_DATAREL | 0x0b)) return !r.bad && find_by_scan(frames, ip, found);
	uint64_t count = read_encoded(&r, (uint8_t)count_encoding, o.header);
	if (r.bad || count > (uint64_t)(r.end - r.at) / sizeof(struct table_entry)) return false;
	const uint8_t *fde = search_table((const struct table_entry *)r.at, count, o.header, ip);
	return fde && read_fde(fde, found) && ip >= found->low && ip < found->high;
}

/* --- the compiler's start files, which have no description --- */

#if defined(__x86_64__) && defined(DLFO_STRUCT_HAS_EH_DBASE)
#define START_FILE_BYTES 256u /* of a function; the real ones have 14 to 80 */
#define RBX 3u

static bool is_next(const uint8_t *at, const uint8_t *end, const char *bytes, size_t n) {
	return at <= end && (size_t)(end - at) >= n && memcmp(at, bytes, n) == 0;
}

/* Where _init or _fini, which begins at `at`, has its first call: it takes eight bytes of stack and does nothing else before. NULL: it does not. */
static const uint8_t *find_first_call(const uint8_t *at, const uint8_t *end) {
	if (is_next(at, end, "\xf3\x0f\x1e\xfa", 4)) at += 4; /* endbr64 */
	if (!is_next(at, end, "\x48\x83\xec\x08", 4)) return NULL; /* sub $8, %rsp */
	at += 4;
	/* mov __gmon_start__(%rip), %rax; test %rax, %rax; je after; call *%rax */
	if (is_next(at, end, "\x48\x8b\x05", 3) && is_next(at + 7, end, "\x48\x85\xc0\x74\x02\xff\xd0", 7)) at += 14;
	return at;
}

static bool is_call(const uint8_t *at, const uint8_t *end) {
	return is_next(at, end, "\xe8", 1) && end - at >= 5;
}

/* Has it taken eight bytes of stack and then only called, when it comes to `after`? */
static bool has_only_called(const uint8_t *begin, const uint8_t *after) {
	const uint8_t *at = find_first_call(begin, after);
	if (!at) return false;
	if (at == after) return at[-2] == 0xff; /* by __gmon_start__ */
	while (is_call(at, after)) at += 5;
	return at == after;
}

/* What __do_global_ctors_aux does before its frame is made, and after that up to its call; in which order was the compiler's to say. */
enum phase { BEFORE_FRAME = 1, IN_FRAME = 2, AFTER_PUSH = 4 };
static const struct {
	uint8_t phases, same, all; /* how many of its bytes are always the same, and how many it has */
	const char *bytes;
} ctors_code[] = {
	{ BEFORE_FRAME, 4, 4, "\xf3\x0f\x1e\xfa" }, /* endbr64 */
	{ BEFORE_FRAME | AFTER_PUSH, 3, 7, "\x48\x8b\x05" }, /* mov last(%rip), %rax */
	{ BEFORE_FRAME | AFTER_PUSH, 4, 4, "\x48\x83\xf8\xff" }, /* cmp $-1, %rax */
	{ BEFORE_FRAME | AFTER_PUSH, 1, 2, "\x74" }, /* je to the end */
	{ AFTER_PUSH, 3, 7, "\x48\x8d\x1d" }, { AFTER_PUSH, 1, 5, "\xbb" }, { AFTER_PUSH, 3, 7, "\x48\xc7\xc3" }, /* lea or mov: where it is, to %rbx */
	{ AFTER_PUSH, 4, 4, "\x48\x83\xec\x08" }, { AFTER_PUSH, 4, 4, "\x48\x83\xeb\x08" }, /* sub $8, %rsp; sub $8, %rbx */
	{ AFTER_PUSH, 3, 3, "\x0f\x1f\x00" }, { AFTER_PUSH, 4, 4, "\x0f\x1f\x40\x00" }, { AFTER_PUSH, 5, 5, "\x0f\x1f\x44\x00\x00" }, /* nop */
	{ AFTER_PUSH, 6, 6, "\x66\x0f\x1f\x44\x00\x00" }, { AFTER_PUSH, 3, 7, "\x0f\x1f\x80" }, { AFTER_PUSH, 4, 8, "\x0f\x1f\x84\x00" },
	{ AFTER_PUSH, 2, 2, "\x66\x90" }, { AFTER_PUSH, 1, 1, "\x90" },
};

static size_t length_in_ctors(const uint8_t *at, const uint8_t *end, enum phase phase) {
	for (size_t i = 0; i < sizeof ctors_code / sizeof *ctors_code; i++) {
		if (!(ctors_code[i].phases & phase) || !is_next(at, end, ctors_code[i].bytes, ctors_code[i].same)) continue;
		return (size_t)(end - at) >= ctors_code[i].all ? ctors_code[i].all : 0;
	}
	return 0;
}

/* Is this such a function, which has called when it comes to `after`? Its frame is that of %rbp, and %rbx, which it keeps, lies below that. */
static bool has_called_constructor(const uint8_t *at, const uint8_t *after) {
	enum phase phase = BEFORE_FRAME;
	for (size_t n; at < after; at += n) {
		if (phase == AFTER_PUSH && is_next(at, after, "\xff\xd0", 2)) return at + 2 == after; /* call *%rax */
		if (phase == BEFORE_FRAME && is_next(at, after, "\x55\x48\x89\xe5", 4)) { /* push %rbp; mov %rsp, %rbp */
			phase = IN_FRAME;
			n = 4;
		} else if (phase == IN_FRAME && is_next(at, after, "\x53", 1)) { /* push %rbx */
			phase = AFTER_PUSH;
			n = 1;
		} else {
			n = length_in_ctors(at, after, phase);
		}
		if (n == 0) return false;
	}
	return false;
}

/* Which function that _init calls is it? All are looked at: gcc calls this one last, after two that register things. */
static bool is_called_by_init(const uint8_t *init, const uint8_t *after) {
	const uint8_t *end = (const uint8_t *)(((uintptr_t)init | (TM_SHM_PAGE - 1)) + 1);
	if (!tm_raw_is_readable(init)) return false;
	if (tm_raw_is_readable(end)) end += TM_SHM_PAGE;
	for (const uint8_t *call = find_first_call(init, end); call && is_call(call, end); call += 5) {
		int32_t distance;
		memcpy(&distance, call + 1, sizeof distance);
		const uint8_t *function = call + 5 + distance;
		bool is_near = (uintptr_t)after - (uintptr_t)function < START_FILE_BYTES;
		if (is_near && tm_raw_is_readable(function) && has_called_constructor(function, after)) return true;
	}
	return false;
}

static bool is_in(const uint8_t *function, uintptr_t ip) {
	return function && ip - (uintptr_t)function < START_FILE_BYTES;
}

/* Most code without a description is none of this, and is to cost no system call: a library that has arrays of constructors has no __do_global_ctors_aux. */
bool tm_cfi_row_of_start_files(uintptr_t ip, struct tm_cfi *cfi, struct tm_cfi_row *row) {
	struct dl_find_object found;
	const uint8_t *init = NULL, *fini = NULL, *after = (const uint8_t *)ip + 1;
	bool has_arrays = false, is_framed;
	if (!_dl_find_object || _dl_find_object((void *)ip, &found) != 0 || tm_is_sandboxed()) return false;
	const struct link_map *map = found.dlfo_link_map;
	for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_INIT) init = (const uint8_t *)(map->l_addr + d->d_un.d_ptr);
		if (d->d_tag == DT_FINI) fini = (const uint8_t *)(map->l_addr + d->d_un.d_ptr);
		has_arrays |= d->d_tag == DT_INIT_ARRAY;
	}
	const uint8_t *function = is_in(init, ip) ? init : is_in(fini, ip) ? fini : NULL;
	is_framed = !function;
	if (is_framed && (!init || has_arrays)) return false;
	if (!tm_raw_is_readable((const void *)ip)) return false;
	if (is_framed ? !is_called_by_init(init, after) : !tm_raw_is_readable(function) || !has_only_called(function, after)) return false;
	*cfi = (struct tm_cfi){ .object_low = (uintptr_t)found.dlfo_map_start, .object_high = (uintptr_t)found.dlfo_map_end };
	*row = (struct tm_cfi_row){ .cfa = { TM_CFI_REGISTER, is_framed ? TM_CFI_FP : TM_CFI_SP }, .cfa_offset = 16 }; /* the others: TM_CFI_SAME */
	row->rules[TM_CFI_RA] = (struct tm_cfi_rule){ TM_CFI_AT, -8 };
	if (!is_framed) return true;
	row->rules[TM_CFI_FP] = (struct tm_cfi_rule){ TM_CFI_AT, -16 };
	row->rules[RBX] = (struct tm_cfi_rule){ TM_CFI_AT, -24 };
	return true;
}
#else
bool tm_cfi_row_of_start_files(uintptr_t ip, struct tm_cfi *cfi, struct tm_cfi_row *row) {
	(void)ip;
	(void)cfi;
	(void)row;
	return false;
}
#endif

/* --- the program --- */

struct machine {
	const struct tm_cfi *cfi;
	struct tm_cfi_row *row;
	const struct tm_cfi_row *initial; /* NULL while the CIE's program runs */
	struct tm_cfi_row saved[STATES_MAX];
	unsigned saved_count;
	uintptr_t location, until;
};

/* Registers that nobody needs (vector registers) are described too: their rules go nowhere. */
static void set_rule(struct machine *m, uint64_t reg, enum tm_cfi_how how, int64_t value) {
	if (reg < TM_CFI_REGISTERS) m->row->rules[reg] = (struct tm_cfi_rule){ how, value };
}

static void restore(struct machine *m, uint64_t reg) {
	if (reg < TM_CFI_REGISTERS) m->row->rules[reg] = m->initial ? m->initial->rules[reg] : (struct tm_cfi_rule){ TM_CFI_SAME, 0 };
}

static void set_cfa(struct machine *m, uint64_t reg, int64_t offset) {
	m->row->cfa = (struct tm_cfi_rule){ TM_CFI_REGISTER, (int64_t)reg };
	m->row->cfa_offset = offset;
}

static int64_t skip_expression(struct reader *r) {
	const uint8_t *at = r->at;
	uint64_t bytes = read_uleb(r);
	skip(r, bytes);
	return (int64_t)(uintptr_t)at;
}

static bool extended(struct machine *m, struct reader *r, uint8_t op) {
	uint64_t reg;
	switch (op) {
	case 0x00: return true; /* nop */
	case 0x01: m->location = read_encoded(r, m->cfi->encoding, 0); return true;
	case 0x03: m->location += read_fixed(r, 2) * m->cfi->code_align; return true;
	case 0x04: m->location += read_fixed(r, 4) * m->cfi->code_align; return true;
	case 0x05: reg = read_uleb(r); set_rule(m, reg, TM_CFI_AT, (int64_t)read_uleb(r) * m->cfi->data_align); return true;
	case 0x06: restore(m, read_uleb(r)); return true;
	case 0x07: set_rule(m, read_uleb(r), TM_CFI_UNDEFINED, 0); return true;
	case 0x08: set_rule(m, read_uleb(r), TM_CFI_SAME, 0); return true;
	case 0x09: reg = read_uleb(r); set_rule(m, reg, TM_CFI_REGISTER, (int64_t)read_uleb(r)); return true;
	case 0x0a: /* remember_state */
		if (m->saved_count == STATES_MAX) return false;
		m->saved[m->saved_count++] = *m->row;
		return true;
	case 0x0b: /* restore_state */
		if (m->saved_count == 0) return false;
		*m->row = m->saved[--m->saved_count];
		return true;
	case 0x0c: reg = read_uleb(r); set_cfa(m, reg, (int64_t)read_uleb(r)); return true;
	case 0x0d: m->row->cfa = (struct tm_cfi_rule){ TM_CFI_REGISTER, (int64_t)read_uleb(r) }; return true;
	case 0x0f: m->row->cfa = (struct tm_cfi_rule){ TM_CFI_IS_EXPRESSION, skip_expression(r) }; return true;
	case 0x10: reg = read_uleb(r); set_rule(m, reg, TM_CFI_AT_EXPRESSION, skip_expression(r)); return true;
	case 0x11: reg = read_uleb(r); set_rule(m, reg, TM_CFI_AT, read_sleb(r) * m->cfi->data_align); return true;
	case 0x12: reg = read_uleb(r); set_cfa(m, reg, read_sleb(r) * m->cfi->data_align); return true;
	case 0x13: m->row->cfa_offset = read_sleb(r) * m->cfi->data_align; return true;
	case 0x14: reg = read_uleb(r); set_rule(m, reg, TM_CFI_IS, (int64_t)read_uleb(r) * m->cfi->data_align); return true;
	case 0x15: reg = read_uleb(r); set_rule(m, reg, TM_CFI_IS, read_sleb(r) * m->cfi->data_align); return true;
	case 0x16: reg = read_uleb(r); set_rule(m, reg, TM_CFI_IS_EXPRESSION, skip_expression(r)); return true;
	case 0x2d: return true; /* aarch64: whether return addresses are signed; we always strip the signature */
	case 0x2e: read_uleb(r); return true; /* GNU_args_size */
	case 0x2f: reg = read_uleb(r); set_rule(m, reg, TM_CFI_AT, -(int64_t)read_uleb(r) * m->cfi->data_align); return true;
	default: return false;
	}
}

/* A large function's program has thousands of instructions, nearly all of the kinds that are here. It ends where one moves beyond the address: what follows is
 * not about it. */
static bool run(struct machine *m, const uint8_t *from, const uint8_t *to) {
	struct reader r = { from, to, false };
	const struct tm_cfi *cfi = m->cfi;
	struct tm_cfi_row *row = m->row;
	uintptr_t location = m->location, until = m->until;
	while (r.at < to) {
		uint8_t op = *r.at++, low = op & 0x3f;
		if (op == 0x0e) {
			row->cfa_offset = (int64_t)read_uleb(&r);
		} else if (op >> 6 == 1) {
			if ((location += low * cfi->code_align) > until) break;
		} else if (op == 0x02) {
			if ((location += read_fixed(&r, 1) * cfi->code_align) > until) break;
		} else if (op >> 6 == 2) {
			set_rule(m, low, TM_CFI_AT, (int64_t)read_uleb(&r) * cfi->data_align);
		} else if (op >> 6 == 3) {
			restore(m, low);
		} else {
			m->location = location;
			if (!extended(m, &r, op)) return false;
			location = m->location;
			if (location > until) break;
		}
	}
	m->location = location;
	return !r.bad;
}

bool tm_cfi_row_at(const struct tm_cfi *cfi, uintptr_t ip, struct tm_cfi_row *row) {
	struct machine m = { .cfi = cfi, .row = row, .location = cfi->low, .until = ip };
	*row = (struct tm_cfi_row){ .cfa = { TM_CFI_UNDEFINED, 0 } };
	if (!run(&m, cfi->initial, cfi->initial_end)) return false;
	struct tm_cfi_row initial = *row;
	m.initial = &initial;
	return run(&m, cfi->program, cfi->program_end) && row->cfa.how != TM_CFI_UNDEFINED;
}

/* --- expressions --- */

#define OP_DEREF 0x06
#define OP_DEREF_SIZE 0x94

struct evaluation {
	const struct tm_cfi_frame *frame;
	struct tm_cfi_value stack[EXPRESSION_MAX];
	unsigned count;
};

static bool push(struct evaluation *e, struct tm_cfi_value value) {
	if (e->count == EXPRESSION_MAX) return false;
	e->stack[e->count++] = value;
	return true;
}

static bool push_constant(struct evaluation *e, int64_t value) {
	return push(e, (struct tm_cfi_value){ TM_BASE_CONST, 0, value });
}

static bool push_register(struct evaluation *e, uint64_t reg, int64_t offset) {
	const struct tm_cfi_frame *f = e->frame;
#if defined(__x86_64__)
	if (reg == TM_CFI_RA) return push_constant(e, (int64_t)f->ip + offset); /* rip, as libgcc and libunwind understand it */
#endif
	if (reg >= TM_CFI_REGISTERS) return false;
	if (f->read) return (f->known >> reg & 1) && push_constant(e, (int64_t)f->registers[reg] + offset);
	if (reg == TM_CFI_SP) return push(e, (struct tm_cfi_value){ TM_BASE_SP, 0, offset });
	if (reg == TM_CFI_FP) return push(e, (struct tm_cfi_value){ TM_BASE_FP, 0, offset });
	return false;
}

static bool dereference(struct evaluation *e, unsigned bytes) {
	uintptr_t read;
	if (e->count == 0 || bytes == 0 || bytes > 8) return false;
	struct tm_cfi_value *top = &e->stack[e->count - 1];
	if (e->frame->read) {
		if (!e->frame->read(e->frame->context, (uintptr_t)top->offset, bytes, &read)) return false;
		top->offset = (int64_t)read;
		return true;
	}
	if (bytes != 8 || (top->base != TM_BASE_SP && top->base != TM_BASE_FP)) return false;
	*top = (struct tm_cfi_value){ top->base == TM_BASE_SP ? TM_BASE_MEMORY_SP : TM_BASE_MEMORY_FP, top->offset, 0 };
	return true;
}

static bool compute(uint8_t op, int64_t a, int64_t b, int64_t *result) {
	uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
	switch (op) {
	case 0x1a: *result = a & b; return true;
	case 0x1b:
		if (b == 0 || (b == -1 && a == INT64_MIN)) return false;
		*result = a / b;
		return true;
	case 0x1c: *result = (int64_t)(ua - ub); return true;
	case 0x1d:
		if (ub == 0) return false;
		*result = (int64_t)(ua % ub);
		return true;
	case 0x1e: *result = (int64_t)(ua * ub); return true;
	case 0x21: *result = a | b; return true;
	case 0x22: *result = (int64_t)(ua + ub); return true;
	case 0x24: *result = ub < 64 ? (int64_t)(ua << ub) : 0; return true;
	case 0x25: *result = ub < 64 ? (int64_t)(ua >> ub) : 0; return true;
	case 0x26: *result = a >> (ub < 63 ? ub : 63); return true;
	case 0x27: *result = a ^ b; return true;
	case 0x29: *result = a == b; return true;
	case 0x2a: *result = a >= b; return true;
	case 0x2b: *result = a > b; return true;
	case 0x2c: *result = a <= b; return true;
	case 0x2d: *result = a < b; return true;
	case 0x2e: *result = a != b; return true;
	default: return false;
	}
}

/* Two values become one. What is not constant can be moved by a constant, nothing else. */
static bool combine(struct evaluation *e, uint8_t op) {
	if (e->count < 2) return false;
	struct tm_cfi_value b = e->stack[--e->count], *a = &e->stack[e->count - 1];
	if (op == 0x22 && a->base == TM_BASE_CONST) {
		struct tm_cfi_value swapped = *a;
		*a = b;
		b = swapped;
	}
	if (b.base != TM_BASE_CONST || (a->base != TM_BASE_CONST && op != 0x22 && op != 0x1c)) return false;
	return compute(op, a->offset, b.offset, &a->offset);
}

static bool change_top(struct evaluation *e, uint8_t op) {
	if (e->count == 0) return false;
	struct tm_cfi_value *top = &e->stack[e->count - 1];
	if (top->base != TM_BASE_CONST) return false;
	if (op == 0x19) top->offset = top->offset < 0 ? (int64_t)-(uint64_t)top->offset : top->offset;
	else if (op == 0x1f) top->offset = (int64_t)-(uint64_t)top->offset;
	else top->offset = ~top->offset;
	return true;
}

static bool pick(struct evaluation *e, uint64_t depth) {
	return depth < e->count && push(e, e->stack[e->count - 1 - depth]);
}

static bool swap_top(struct evaluation *e) {
	if (e->count < 2) return false;
	struct tm_cfi_value top = e->stack[e->count - 1];
	e->stack[e->count - 1] = e->stack[e->count - 2];
	e->stack[e->count - 2] = top;
	return true;
}

static bool branch(struct evaluation *e, struct reader *r, bool always, const uint8_t *begin) {
	int64_t by = (int16_t)read_fixed(r, 2);
	if (!always) {
		if (e->count == 0 || e->stack[--e->count].base != TM_BASE_CONST) return false;
		if (e->stack[e->count].offset == 0) return true;
	}
	if (by < begin - r->at || by > r->end - r->at) return false;
	r->at += by;
	return true;
}

static bool operate(struct evaluation *e, struct reader *r, uint8_t op, const uint8_t *begin) {
	if (op >= 0x30 && op <= 0x4f) return push_constant(e, op - 0x30);
	if (op >= 0x50 && op <= 0x6f) return push_register(e, op - 0x50u, 0);
	if (op >= 0x70 && op <= 0x8f) return push_register(e, op - 0x70u, read_sleb(r));
	switch (op) {
	case 0x03: return push_constant(e, (int64_t)read_fixed(r, 8));
	case OP_DEREF: return dereference(e, 8);
	case 0x08: return push_constant(e, (int64_t)read_fixed(r, 1));
	case 0x09: return push_constant(e, (int8_t)read_fixed(r, 1));
	case 0x0a: return push_constant(e, (int64_t)read_fixed(r, 2));
	case 0x0b: return push_constant(e, (int16_t)read_fixed(r, 2));
	case 0x0c: return push_constant(e, (int64_t)read_fixed(r, 4));
	case 0x0d: return push_constant(e, (int32_t)read_fixed(r, 4));
	case 0x0e:
	case 0x0f: return push_constant(e, (int64_t)read_fixed(r, 8));
	case 0x10: return push_constant(e, (int64_t)read_uleb(r));
	case 0x11: return push_constant(e, read_sleb(r));
	case 0x12: return pick(e, 0);
	case 0x13: return e->count > 0 && e->count-- > 0;
	case 0x14: return pick(e, 1);
	case 0x15: return pick(e, read_fixed(r, 1));
	case 0x16: return swap_top(e);
	case 0x19:
	case 0x1f:
	case 0x20: return change_top(e, op);
	case 0x23: return push_constant(e, (int64_t)read_uleb(r)) && combine(e, 0x22);
	case 0x28: return branch(e, r, false, begin);
	case 0x2f: return branch(e, r, true, begin);
	case 0x92: {
		uint64_t reg = read_uleb(r);
		return push_register(e, reg, read_sleb(r));
	}
	case OP_DEREF_SIZE: return dereference(e, (unsigned)read_fixed(r, 1));
	case 0x96: return true; /* nop */
	default: return combine(e, op);
	}
}

#define OPERATIONS_MAX 1000u /* a loop that does not end */

bool tm_cfi_evaluate(const uint8_t *at, const struct tm_cfi_frame *frame, bool given, struct tm_cfi_value *value) {
	struct evaluation e = { .frame = frame };
	struct reader r = { at, at + 16, false };
	uint64_t bytes = read_uleb(&r); /* it was read within bounds when the row was made */
	const uint8_t *begin = r.at;
	r.end = r.at + bytes;
	if (given) push(&e, *value);
	for (unsigned n = 0; r.at < r.end; n++) {
		uint8_t op = *r.at++;
		if (n == OPERATIONS_MAX || !operate(&e, &r, op, begin) || r.bad) return false;
	}
	if (r.bad || e.count == 0) return false;
	*value = e.stack[e.count - 1];
	return true;
}
