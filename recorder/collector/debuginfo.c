/* debuginfo.c - from an address to functions, files and lines, through DWARF 2 to 5.
 *
 *      address -> unit          ranges of all units, sorted (.debug_aranges is not used: clang leaves it out)
 *              -> function      ranges of the unit's functions, sorted, made when the unit is first asked
 *              -> inlined calls the tree of inlined calls of that function, flattened; kept for the next address
 *              -> line          the unit's line table
 *
 * A chain is read from the inside: the innermost function stands at the line of the address, each outer one at the line where it calls the
 * next inner one.
 *
 * libdw keeps every line table it has parsed until the Dwarf is closed. So we work on a second Dwarf over the same ELF file, and open it
 * anew when it has become large; the indexes here hold offsets only and stay valid.
 */
#include "recorder/collector/debuginfo.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/collector/demangle.h"
#include "recorder/collector/source_path.h"
#include "recorder/collector/spans.h"

#define MAX_DEPTH 200       /* of nested entries; damaged files nest without end */
#define MAX_ROWS (3u << 20) /* of line tables held; libdw needs about 48 bytes for each */
#define NOWHERE UINT32_MAX

enum index_state { NOT_INDEXED, INDEXED_OUTER, INDEXED_ALL };

struct unit {
	Dwarf_Off offset; /* of its entry in .debug_info */
	enum index_state state;
	unsigned lines_generation; /* its lines are parsed if this is the current generation */
	struct tm_spans functions; /* value: offset of the function's entry, in the split file where there is one */
};

struct inlined {
	Dwarf_Die die;
	uint32_t parent, after; /* index of the enclosing inlined call or NOWHERE; index behind the last one inside this one */
	size_t first_range, range_count;
	uint64_t call_file, call_line;
};

struct text { /* cached by the address of what it was made from */
	const void *key;
	char *value;
};

struct texts {
	struct text *slots; /* open addressing, a power of two */
	size_t count, capacity;
};

struct tm_debuginfo {
	Dwarf *original, *dwarf;
	struct unit *units;
	size_t unit_count, unit_capacity;
	struct tm_spans unit_ranges; /* value: index into units */
	unsigned generation;
	size_t rows;
	struct texts names, files;
	struct tm_bytes scratch, demangled;
	/* the unit and the function of the last address */
	struct unit *unit;
	Dwarf_Die unit_die, tree_die; /* tree_die: the same unit in the split file, or unit_die */
	Dwarf_Off function_offset;
	Dwarf_Die function;
	struct inlined *inlined;
	size_t inlined_count, inlined_capacity;
	struct tm_spans inlined_ranges; /* in the order of `inlined`, never sorted */
	struct tm_debuginfo_function chain[TM_DEBUGINFO_MAX_CHAIN];
};

/* ---- cached texts */

static void texts_release(struct texts *t) {
	for (size_t i = 0; i < t->capacity; i++) free(t->slots[i].value);
	free(t->slots);
	*t = (struct texts){ 0 };
}

static struct text *texts_slot(struct text *slots, size_t capacity, const void *key) {
	size_t at = (size_t)(((uintptr_t)key * 0x9E3779B97F4A7C15ull) >> 20) & (capacity - 1);
	while (slots[at].key && slots[at].key != key) at = (at + 1) & (capacity - 1);
	return &slots[at];
}

static const char *texts_find(const struct texts *t, const void *key) {
	return t->capacity ? texts_slot(t->slots, t->capacity, key)->value : NULL;
}

/* Takes over value; NULL when that or the memory for the table is missing. */
static const char *texts_add(struct texts *t, const void *key, char *value) {
	if (!value) return NULL;
	if (t->count * 2 >= t->capacity) {
		size_t capacity = t->capacity ? t->capacity * 2 : 256;
		struct text *slots = calloc(capacity, sizeof *slots);
		if (!slots) {
			free(value);
			return NULL;
		}
		for (size_t i = 0; i < t->capacity; i++)
			if (t->slots[i].key) *texts_slot(slots, capacity, t->slots[i].key) = t->slots[i];
		free(t->slots);
		t->slots = slots;
		t->capacity = capacity;
	}
	*texts_slot(t->slots, t->capacity, key) = (struct text){ key, value };
	t->count++;
	return value;
}

/* ---- walking entries */

/* Goes to the next sibling; false: none. Never backward, so that a damaged file cannot make us walk in circles. */
static bool next_sibling(Dwarf_Die *die) {
	const void *before = die->addr;
	Dwarf_Die next;
	if (dwarf_siblingof(die, &next) != 0 || next.addr <= before) return false;
	*die = next;
	return true;
}

static void add_ranges(struct tm_spans *spans, Dwarf_Die *die, uint64_t value) {
	Dwarf_Addr base, low, high;
	ptrdiff_t at = 0;
	/* What the linker threw away keeps a range that starts at 0, where no module has code. */
	while ((at = dwarf_ranges(die, at, &base, &low, &high)) > 0)
		if (low) tm_spans_add(spans, low, high, value);
}

static bool may_hold_functions(int tag, bool all) {
	return all || tag == DW_TAG_namespace || tag == DW_TAG_module;
}

static void index_functions(struct tm_spans *functions, Dwarf_Die *parent, bool all, unsigned depth) {
	Dwarf_Die die;
	if (depth > MAX_DEPTH || dwarf_child(parent, &die) != 0) return;
	do {
		int tag = dwarf_tag(&die);
		if (tag == DW_TAG_subprogram) add_ranges(functions, &die, dwarf_dieoffset(&die));
		if (may_hold_functions(tag, all)) index_functions(functions, &die, all, depth + 1);
	} while (next_sibling(&die));
}

/* ---- units */

static struct unit *add_unit(struct tm_debuginfo *d) {
	if (d->unit_count == d->unit_capacity) {
		size_t capacity = d->unit_capacity ? d->unit_capacity * 2 : 64;
		struct unit *units = reallocarray(d->units, capacity, sizeof *units);
		if (!units) return NULL;
		d->units = units;
		d->unit_capacity = capacity;
	}
	struct unit *unit = &d->units[d->unit_count++];
	*unit = (struct unit){ 0 };
	return unit;
}

static int index_units(struct tm_debuginfo *d) {
	Dwarf_CU *cu = NULL;
	Dwarf_Die die;
	uint8_t type;
	while (dwarf_get_units(d->dwarf, cu, &cu, NULL, &type, &die, NULL) == 0) {
		if (type != DW_UT_compile && type != DW_UT_skeleton) continue;
		struct unit *unit = add_unit(d);
		if (!unit) return -1;
		unit->offset = dwarf_dieoffset(&die);
		add_ranges(&d->unit_ranges, &die, d->unit_count - 1);
	}
	tm_spans_sort(&d->unit_ranges, NULL, NULL);
	return d->unit_ranges.failed ? -1 : 0;
}

static void forget_lines(struct tm_debuginfo *d) {
	d->unit = NULL;
	d->function_offset = 0;
	d->rows = 0;
	d->generation++;
	texts_release(&d->names);
	texts_release(&d->files);
}

/* A Dwarf of our own over the caller's file. */
static int reopen(struct tm_debuginfo *d) {
	if (d->dwarf) dwarf_end(d->dwarf);
	forget_lines(d);
	d->dwarf = dwarf_begin_elf(dwarf_getelf(d->original), DWARF_C_READ, NULL);
	if (!d->dwarf) return -1;
	Dwarf *alternate = dwarf_getalt(d->original);
	if (alternate) dwarf_setalt(d->dwarf, alternate);
	return 0;
}

static bool enter_unit(struct tm_debuginfo *d, Dwarf_Addr address) {
	const struct tm_span *span = tm_spans_find(&d->unit_ranges, address);
	if (!span) return false;
	if (d->rows > MAX_ROWS && d->unit != &d->units[span->value] && reopen(d)) return false;
	if (d->unit == &d->units[span->value]) return true;
	struct unit *unit = &d->units[span->value];
	if (!dwarf_offdie(d->dwarf, unit->offset, &d->unit_die)) return false;
	if (dwarf_cu_info(d->unit_die.cu, NULL, NULL, NULL, &d->tree_die, NULL, NULL, NULL) || !d->tree_die.cu) d->tree_die = d->unit_die;
	d->unit = unit;
	d->function_offset = 0;
	return true;
}

/* ---- functions */

/* Functions stand at the outer level of a unit or in namespaces. Some languages nest them elsewhere: then the whole unit is searched, once. */
static const struct tm_span *find_function(struct tm_debuginfo *d, Dwarf_Addr address) {
	struct unit *unit = d->unit;
	for (enum index_state want = INDEXED_OUTER; want <= INDEXED_ALL; want++) {
		if (unit->state < want) {
			tm_spans_release(&unit->functions);
			index_functions(&unit->functions, &d->tree_die, want == INDEXED_ALL, 0);
			tm_spans_sort(&unit->functions, NULL, NULL);
			unit->state = want;
		}
		const struct tm_span *span = tm_spans_find(&unit->functions, address);
		if (span) return span;
	}
	return NULL;
}

static uint64_t number_of(Dwarf_Die *die, unsigned attribute) {
	Dwarf_Attribute found;
	Dwarf_Word value;
	if (!dwarf_attr(die, attribute, &found) || dwarf_formudata(&found, &value)) return 0;
	return value;
}

static struct inlined *add_inlined(struct tm_debuginfo *d, Dwarf_Die *die, uint32_t parent) {
	if (d->inlined_count == d->inlined_capacity) {
		size_t capacity = d->inlined_capacity ? d->inlined_capacity * 2 : 64;
		struct inlined *items = capacity < NOWHERE ? reallocarray(d->inlined, capacity, sizeof *items) : NULL;
		if (!items) return NULL;
		d->inlined = items;
		d->inlined_capacity = capacity;
	}
	struct inlined *call = &d->inlined[d->inlined_count++];
	*call = (struct inlined){ .die = *die, .parent = parent, .first_range = d->inlined_ranges.count };
	add_ranges(&d->inlined_ranges, die, 0);
	call->range_count = d->inlined_ranges.count - call->first_range;
	call->call_file = number_of(die, DW_AT_call_file);
	call->call_line = number_of(die, DW_AT_call_line);
	return call;
}

static bool is_block(int tag) {
	return tag == DW_TAG_lexical_block || tag == DW_TAG_try_block || tag == DW_TAG_catch_block || tag == DW_TAG_with_stmt;
}

/* Inlined calls in the order of the file, so that those inside a call follow it. */
static void list_inlined(struct tm_debuginfo *d, Dwarf_Die *parent_die, uint32_t parent, unsigned depth) {
	Dwarf_Die die;
	if (depth > MAX_DEPTH || dwarf_child(parent_die, &die) != 0) return;
	do {
		int tag = dwarf_tag(&die);
		if (is_block(tag)) list_inlined(d, &die, parent, depth + 1);
		if (tag != DW_TAG_inlined_subroutine) continue;
		uint32_t self = (uint32_t)d->inlined_count;
		if (!add_inlined(d, &die, parent)) return;
		list_inlined(d, &die, self, depth + 1);
		d->inlined[self].after = (uint32_t)d->inlined_count;
	} while (next_sibling(&die));
}

static bool enter_function(struct tm_debuginfo *d, Dwarf_Addr address) {
	const struct tm_span *span = find_function(d, address);
	if (!span) return false;
	if (d->function_offset == span->value) return true;
	d->function_offset = 0;
	d->inlined_count = d->inlined_ranges.count = 0;
	if (!dwarf_offdie(dwarf_cu_getdwarf(d->tree_die.cu), span->value, &d->function)) return false;
	d->function_offset = span->value;
	list_inlined(d, &d->function, NOWHERE, 0);
	return true;
}

static bool inlined_covers(const struct tm_debuginfo *d, const struct inlined *call, Dwarf_Addr address) {
	const struct tm_span *range = d->inlined_ranges.items + call->first_range;
	for (size_t i = 0; i < call->range_count; i++)
		if (range[i].low <= address && address < range[i].high) return true;
	return false;
}

/* The innermost inlined call at the address, or NOWHERE. */
static uint32_t innermost(const struct tm_debuginfo *d, Dwarf_Addr address) {
	uint32_t found = NOWHERE;
	for (uint32_t i = 0; i < d->inlined_count;) {
		const struct inlined *call = &d->inlined[i];
		bool inside = call->parent == found && inlined_covers(d, call, address);
		if (inside) found = i;
		i = inside ? i + 1 : call->after;
	}
	return found;
}

/* ---- names and files */

/* The entry that declares the function: the one that stands inside its class or namespace. */
static Dwarf_Die declaration_of(Dwarf_Die die) {
	for (int steps = 0; steps < 16; steps++) {
		Dwarf_Attribute found;
		Dwarf_Die next;
		if (!dwarf_attr(&die, DW_AT_abstract_origin, &found) && !dwarf_attr(&die, DW_AT_specification, &found)) break;
		if (!dwarf_formref_die(&found, &next)) break;
		die = next;
	}
	return die;
}

/* Turns *die, which encloses the target or is it, into its child that does. Entries stand in the order of their addresses. */
static bool descend(Dwarf_Die *die, const Dwarf_Die *target) {
	Dwarf_Die child, last;
	if (dwarf_child(die, &child) != 0 || child.addr > target->addr) return false;
	do last = child;
	while (next_sibling(&child) && child.addr <= target->addr);
	*die = last;
	return true;
}

/* One scope around the function that is called `inner`. A class without a name that has a call operator is a lambda's. */
static void put_scope(struct tm_bytes *out, Dwarf_Die *die, const char *inner) {
	int tag = dwarf_tag(die);
	const char *name = dwarf_diename(die);
	if (is_block(tag) || tag == DW_TAG_inlined_subroutine) return;
	if (!name) name = tag == DW_TAG_namespace ? "(anonymous namespace)" : strcmp(inner, "operator()") ? "{unnamed}" : "{lambda}";
	tm_put_raw(out, name, strlen(name));
	tm_put_raw(out, "::", 2);
}

static bool has_scopes(Dwarf_Die *unit) {
	switch (dwarf_srclang(unit)) {
	case DW_LANG_C:
	case DW_LANG_C89:
	case DW_LANG_C99:
	case DW_LANG_C11:
	case DW_LANG_Mips_Assembler: return false;
	default: return true;
	}
}

/* A name without linkage name: a static function, a lambda, something in an anonymous namespace. */
static char *scoped_name(struct tm_debuginfo *d, Dwarf_Die *die, const char *plain) {
	Dwarf_Die target = declaration_of(*die), at, unit;
	tm_bytes_clear(&d->scratch);
	if (dwarf_diecu(&target, &unit, NULL, NULL) && has_scopes(&unit)) {
		at = unit;
		for (int depth = 0; depth < MAX_DEPTH && descend(&at, &target) && at.addr != target.addr; depth++)
			put_scope(&d->scratch, &at, plain);
	}
	tm_put_raw(&d->scratch, plain, strlen(plain) + 1);
	if (d->scratch.failed) return NULL;
	return strndup((char *)d->scratch.data, TM_DEMANGLE_MAX_BYTES);
}

static const char *linkage_name(Dwarf_Die *die) {
	Dwarf_Attribute found;
	if (!dwarf_attr_integrate(die, DW_AT_linkage_name, &found) && !dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &found))
		return NULL;
	return dwarf_formstring(&found);
}

static void name_function(struct tm_debuginfo *d, Dwarf_Die *die, struct tm_debuginfo_function *out) {
	const char *linkage = linkage_name(die), *plain = linkage ? NULL : dwarf_diename(die);
	const void *key = linkage ? linkage : die->addr;
	out->linked = linkage != NULL;
	out->name = texts_find(&d->names, key);
	if (out->name || (!linkage && !plain)) return;
	const char *demangled = linkage ? tm_demangle(&d->demangled, linkage) : NULL;
	out->name = texts_add(&d->names, key, linkage ? demangled ? strdup(demangled) : NULL : scoped_name(d, die, plain));
}

/* libdw calls a file of which there is no number so. */
static const char no_file[] = "???";

static const char *full_path(struct tm_debuginfo *d, const char *source) {
	if (!source || !*source || !strcmp(source, no_file)) return NULL;
	const char *known = texts_find(&d->files, source);
	if (known) return known;
	Dwarf_Attribute found;
	const char *directory = dwarf_attr(&d->unit_die, DW_AT_comp_dir, &found) ? dwarf_formstring(&found) : NULL;
	return texts_add(&d->files, source, tm_source_path(directory, source));
}

static const char *call_path(struct tm_debuginfo *d, uint64_t file) {
	Dwarf_Files *files;
	size_t count;
	if (dwarf_getsrcfiles(&d->tree_die, &files, &count) || file >= count) return NULL;
	return full_path(d, dwarf_filesrc(files, file, NULL, NULL));
}

static void count_rows(struct tm_debuginfo *d) {
	Dwarf_Lines *lines;
	size_t count;
	if (d->unit->lines_generation == d->generation) return;
	d->unit->lines_generation = d->generation;
	if (!dwarf_getsrclines(&d->unit_die, &lines, &count)) d->rows += count;
}

/* Code that stands for no line (line 0 of the table) keeps its file. */
static void find_line(struct tm_debuginfo *d, Dwarf_Addr address, struct tm_debuginfo_function *out) {
	int line;
	count_rows(d);
	Dwarf_Line *row = dwarf_getsrc_die(&d->unit_die, address);
	if (!row) return;
	out->file = full_path(d, dwarf_linesrc(row, NULL, NULL));
	out->line = out->file && !dwarf_lineno(row, &line) && line > 0 ? (uint64_t)line : 0;
}

/* ---- the interface */

struct tm_debuginfo *tm_debuginfo_open(Dwarf *dwarf) {
	struct tm_debuginfo *d = calloc(1, sizeof *d);
	if (!d) return NULL;
	d->original = dwarf;
	if (!reopen(d) && !index_units(d)) return d;
	tm_debuginfo_close(d);
	return NULL;
}

void tm_debuginfo_close(struct tm_debuginfo *d) {
	if (!d) return;
	for (size_t i = 0; i < d->unit_count; i++) tm_spans_release(&d->units[i].functions);
	free(d->units);
	free(d->inlined);
	tm_spans_release(&d->unit_ranges);
	tm_spans_release(&d->inlined_ranges);
	texts_release(&d->names);
	texts_release(&d->files);
	tm_bytes_release(&d->scratch);
	tm_bytes_release(&d->demangled);
	if (d->dwarf) dwarf_end(d->dwarf);
	free(d);
}

size_t tm_debuginfo_find(struct tm_debuginfo *d, Dwarf_Addr address, const struct tm_debuginfo_function **out) {
	*out = d->chain;
	if (!d->dwarf || !enter_unit(d, address)) return 0;
	struct tm_debuginfo_function *at = d->chain;
	*at = (struct tm_debuginfo_function){ 0 };
	find_line(d, address, at);
	if (!enter_function(d, address)) return at->line != 0;
	for (uint32_t i = innermost(d, address); i != NOWHERE; i = d->inlined[i].parent) {
		name_function(d, &d->inlined[i].die, at);
		if (at + 1 < d->chain + TM_DEBUGINFO_MAX_CHAIN) at++; /* else the next outer one takes its place */
		*at = (struct tm_debuginfo_function){ .file = call_path(d, d->inlined[i].call_file), .line = d->inlined[i].call_line };
	}
	name_function(d, &d->function, at);
	return (size_t)(at - d->chain) + 1;
}
