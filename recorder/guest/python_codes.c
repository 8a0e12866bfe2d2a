/* python_codes.c - code objects: each is written once into a thread's ring, and has a number there from then on.
 *
 * Flow:     python_stack.c, for a frame that is new in the chain -> here -> PYTHON_CODE records -> the collector, which decodes the lines
 * Idea:     a table by pointer. Code objects are freed, and another may come to lie where one was, its texts and its line table where those of the old one
 *           were: what is compiled in a loop does so each time. So an entry also remembers what the object held: the addresses of these, what stands in
 *           them, and the first line.
 * Freed:    while none is freed, an address is the same code object. So they are counted, by a function in front of their type's own that frees them: all
 *           together, and by a few bits of their addresses, since a program that starts frees one for each module that it imports. An entry is compared again
 *           only where one of its bits was freed since.
 * Numbers are the ring's own: rings are read one after the other, and so what a ring refers to must stand in it.
 */
#include "python.h"
#include "raw.h"

#include <string.h>

#define CODES_FIRST 512u
#define CODES_MAX (1u << 20)
#define NAME_MAX_BYTES 4000u
#define TEXT_KEPT_BYTES 32768u /* most code objects fit, of which a program's start shows thousands */

/* Code objects that were freed, by slot_of() their address. */
#define FREED_SLOTS 8192u
static TM_ROOMY _Atomic uint32_t freed_at[FREED_SLOTS];

/* --- texts --- */

static size_t put_utf8(char *to, uint32_t c) {
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c >= 0xdc80 && c <= 0xdcff) { /* a byte of a file name that was no UTF-8, as Python keeps it */
		to[0] = (char)(c - 0xdc00);
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3f));
		to[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | (c >> 18 & 7));
	to[1] = (char)(0x80 | (c >> 12 & 0x3f));
	to[2] = (char)(0x80 | (c >> 6 & 0x3f));
	to[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

static uint32_t character(uintptr_t data, unsigned bytes, size_t i) {
	if (bytes == 1) return ((const uint8_t *)data)[i];
	if (bytes == 2) return ((const uint16_t *)data)[i];
	return ((const uint32_t *)data)[i];
}

static unsigned text_bits(uintptr_t text) {
	return tm_python_text_bits(*(const uint32_t *)(text + tm_python.text_state));
}

static uintptr_t text_data(uintptr_t text, unsigned bits) {
	uintptr_t data = text + tm_python.text_ascii;

	if (!(bits & 0x10))
		data += tm_python.version >= 0x030c ? 16 : 24; /* a cached UTF-8 form's size and address; to 3.11 a third number */
	return data;
}

/* A str as UTF-8, without NUL characters; cut at NAME_MAX_BYTES. */
static size_t put_text(char *to, uintptr_t text) {
	unsigned bits = tm_python_plausible(text) ? text_bits(text) : 0;
	size_t length, n = 0;
	uintptr_t data;

	if (!bits) return put_utf8(to, '?');
	length = tm_python_word(text, tm_python.text_length);
	data = text_data(text, bits);
	for (size_t i = 0; i < length && n + 4 <= NAME_MAX_BYTES; i++) {
		uint32_t c = character(data, bits & 7, i);

		if (c) n += put_utf8(to + n, c);
	}
	return n;
}

/* --- the table of a thread --- */

static size_t slot_of(uintptr_t code, uint32_t capacity) {
	return (size_t)((uint64_t)code * 0x9E3779B97F4A7C15u >> 32) & (capacity - 1);
}

static struct tm_python_code *slot_for(const struct tm_python_thread *s, uintptr_t code) {
	size_t at = slot_of(code, s->code_capacity);

	while (s->codes[at].code && s->codes[at].code != code) at = (at + 1) & (s->code_capacity - 1);
	return &s->codes[at];
}

static inline uint32_t times_freed(uintptr_t code) {
	return atomic_load_explicit(&freed_at[slot_of(code, FREED_SLOTS)], memory_order_relaxed);
}

/* Twice the room; where that is not to be had, or enough, everything is forgotten and sent again when it is met. */
static bool grow(struct tm_python_thread *s) {
	struct tm_python_code *old = s->codes;
	uint32_t old_capacity = s->code_capacity, capacity = old ? old_capacity * 2 : CODES_FIRST;
	struct tm_python_code *codes = capacity <= CODES_MAX && !tm_is_sandboxed() ? tm_raw_map(capacity * sizeof *codes) : NULL;

	if (!codes) {
		if (old) memset(old, 0, old_capacity * sizeof *old);
		s->code_count = 0;
		return old != NULL;
	}
	s->codes = codes;
	s->code_capacity = capacity;
	for (uint32_t i = 0; i < old_capacity; i++)
		if (old[i].code) *slot_for(s, old[i].code) = old[i];
	if (old) tm_raw_unmap(old, old_capacity * sizeof *old);
	return true;
}

/* --- what a code object holds --- */

static size_t table_size(uintptr_t table) {
	return tm_python_plausible(table) ? tm_python_word(table, tm_python.bytes_size) : 0;
}

/* A hash of all bytes: tables are relative, so what moved in the middle leaves both ends as they were. The steps are MurmurHash64A's (Appleby). */
static inline uint64_t content_of(const uint8_t *bytes, size_t n) {
	const uint64_t factor = 0xc6a4a7935bd1e995u;
	uint64_t hash = n * factor, word = 0;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		memcpy(&word, bytes + i, 8);
		word *= factor;
		hash = (hash ^ (word ^ word >> 47) * factor) * factor;
	}
	word = 0;
	memcpy(&word, bytes + i, n - i);
	hash = (hash ^ word) * factor;
	hash = (hash ^ hash >> 47) * factor;
	return hash ^ hash >> 47;
}

/* What stands in a str: Python's own hash of it, which names have and other texts may come to have; else its characters as content_of() has them. */
static inline uint64_t content_of_text(uintptr_t text) {
	uint64_t hash, length;
	unsigned bits;

	if (!tm_python_plausible(text)) return 0;
	length = tm_python_word(text, tm_python.text_length);
	hash = tm_python_word(text, tm_python.text_length + 8u); /* there in every version */
	if (hash != UINT64_MAX) return hash;
	bits = text_bits(text);
	return bits ? content_of((const uint8_t *)text_data(text, bits), length * (bits & 7)) ^ length << 48 : 0;
}

static inline struct tm_python_code values_of(uintptr_t code) {
	const struct tm_python *p = &tm_python;
	struct tm_python_code c = { .code = code,
				    .filename = tm_python_word(code, p->filename),
				    .name = tm_python_word(code, p->name),
				    .table = tm_python_word(code, p->table) };
	size_t size = table_size(c.table);
	const uint8_t *bytes = (const uint8_t *)c.table + p->bytes_data;

	c.numbers = *(const uint32_t *)(code + p->first_line) | (uint64_t)size << 32;
	c.content = content_of(bytes, size);
	c.texts = content_of_text(c.filename) * 3 ^ content_of_text(c.name); /* times 3: one text in both places is no nothing */
	return c;
}

static bool same_values(const struct tm_python_code *a, const struct tm_python_code *b) {
	return a->filename == b->filename && a->name == b->name && a->table == b->table && a->numbers == b->numbers &&
	       a->content == b->content && a->texts == b->texts;
}

static enum tm_python_lines lines_kind(void) {
	if (tm_python.version >= 0x030b) return TM_PYTHON_LOCATIONS;
	return tm_python.version == 0x030a ? TM_PYTHON_LINES_310 : TM_PYTHON_LNOTAB;
}

/* Of a table that is longer than what is sent. Entries have two bytes, and from 3.11 on a first byte that is none of the others. */
static size_t whole_entries(const uint8_t *table) {
	size_t size = TM_PYTHON_TABLE_MAX;

	while (lines_kind() == TM_PYTHON_LOCATIONS && size && !(table[size] & 0x80)) size--;
	return size;
}

/* At least `bytes`: the thread's own, or to be unmapped. NULL: none. */
static char *text_room(struct tm_python_thread *s, size_t bytes) {
	if (tm_is_sandboxed()) return bytes <= TEXT_KEPT_BYTES ? s->text : NULL;
	if (bytes > TEXT_KEPT_BYTES) return tm_raw_map(bytes);
	if (!s->text) s->text = tm_raw_map(TEXT_KEPT_BYTES);
	return s->text;
}

void tm_python_codes_free(struct tm_python_thread *s) {
	if (s->codes) tm_raw_unmap(s->codes, s->code_capacity * sizeof *s->codes);
	if (s->text) tm_raw_unmap(s->text, TEXT_KEPT_BYTES);
}

TM_COLD static bool emit_code(struct tm_thread *t, const struct tm_python_code *c, uint32_t number) {
	size_t size = table_size(c->table), file_bytes, n, room;
	uint64_t words[2] = { number, (c->numbers & 0xffffffffu) | (uint64_t)lines_kind() << 32 };
	bool written;
	char *text;

	if (size > TM_PYTHON_TABLE_MAX) size = whole_entries((const uint8_t *)c->table + tm_python.bytes_data);
	room = 2 * NAME_MAX_BYTES + 16 + size;
	text = text_room(t->python, room);
	if (!text) return false;
	n = file_bytes = put_text(text, c->filename);
	n += put_text(text + n, c->name);
	text[n++] = 0;
	if (size) memcpy(text + n, (const char *)c->table + tm_python.bytes_data, size);
	written = tm_emit_control(t, TM_CTL_PYTHON_CODE, 0, (unsigned)file_bytes, words, 2, text, n + size);
	if (text != t->python->text) tm_raw_unmap(text, room);
	return written;
}

TM_HOT uint32_t tm_python_code_number(struct tm_thread *t, uintptr_t code) {
	struct tm_python_thread *s = t->python;
	uint32_t freed = times_freed(code);
	struct tm_python_code values, *slot;

	if (TM_UNLIKELY(s->code_count * 2 >= s->code_capacity) && !grow(s)) return 0;
	slot = slot_for(s, code);
	if (TM_LIKELY(slot->code && slot->freed == freed) && TM_LIKELY(tm_python.counts_codes && slot->filename == tm_python_word(code, tm_python.filename)))
		return slot->number; /* an importer may give it another file name */
	values = values_of(code);
	values.freed = freed;
	if (TM_LIKELY(slot->code && same_values(slot, &values))) {
		slot->freed = freed;
		return slot->number;
	}
	values.number = s->last_number + 1;
	if (!emit_code(t, &values, values.number)) return 0;
	s->last_number++;
	if (!slot->code) s->code_count++;
	*slot = values;
	return values.number;
}

/* A code object's entry was made or looked at when a frame that runs it was sent as new. So an entry whose bits were not freed since is that of then. */
TM_HOT bool tm_python_codes_are_same(struct tm_python_thread *s) {
	uint32_t codes_freed = atomic_load_explicit(&tm_python.codes_freed, memory_order_acquire);

	for (const struct tm_python_frame *f = s->last; f < s->end; f++) {
		const struct tm_python_code *slot = slot_for(s, f->code);

		if (!slot->code || slot->freed != times_freed(f->code)) return false;
	}
	s->codes_freed = codes_freed;
	return true;
}

/* --- those that are freed --- */

static void (*dealloc)(void *code);
static uintptr_t counted_type;

static void count_freed(size_t slot) {
	atomic_fetch_add_explicit(&freed_at[slot], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&tm_python.codes_freed, 1, memory_order_release); /* who sees that one was freed sees which */
}

static void count_dealloc(void *code) {
	count_freed(slot_of((uintptr_t)code, FREED_SLOTS));
	dealloc(code);
	count_freed(slot_of((uintptr_t)code, FREED_SLOTS)); /* from 3.12 on a watcher may have run it once more */
}

/* Of one interpreter in a process's life: which of two an object belongs to would have to be asked of it. Only in front of its own function: one of the
 * program's that stands there by now may call ours, and ours would call it again. */
void tm_python_count_codes(struct tm_python *p) {
	void (*_Atomic *slot)(void *) = (void (*_Atomic *)(void *))(p->code_type + p->type + 40u); /* its type, a size, tp_name, two more sizes; tp_dealloc */
	void (*now)(void *) = atomic_load(slot);
	bool is_ours = now == count_dealloc, is_its_own = (uintptr_t)now >= p->module.text_low && (uintptr_t)now < p->module.text_high;

	p->counts_codes = (is_ours || is_its_own) && (!counted_type || counted_type == p->code_type);
	if (is_ours) return;
	for (size_t i = 0; i < FREED_SLOTS; i++) count_freed(i); /* what went uncounted until now */
	if (!p->counts_codes) return;
	counted_type = p->code_type;
	dealloc = now;
	atomic_store(slot, count_dealloc);
}
