/* foreign_pickle.c - reads pickles of data, and of nothing else; see foreign_pickle.h.
 *
 * A pickle is a program for a small machine: a stack of values, marks on it, and a memo of values by number.
 */
#include "foreign_pickle.h"

#include "../schema/kinds.h"

#include <stdio.h>

#define MEMORY_LEAST (64ull << 20)

enum opcode {
	OP_MARK = '(',
	OP_STOP = '.',
	OP_POP = '0',
	OP_POP_MARK = '1',
	OP_DUP = '2',
	OP_BININT = 'J',
	OP_BININT1 = 'K',
	OP_BININT2 = 'M',
	OP_NONE = 'N',
	OP_BINFLOAT = 'G',
	OP_BINSTRING = 'T',
	OP_SHORT_BINSTRING = 'U',
	OP_BINUNICODE = 'X',
	OP_BINBYTES = 'B',
	OP_SHORT_BINBYTES = 'C',
	OP_EMPTY_LIST = ']',
	OP_LIST = 'l',
	OP_APPEND = 'a',
	OP_APPENDS = 'e',
	OP_EMPTY_TUPLE = ')',
	OP_TUPLE = 't',
	OP_EMPTY_DICT = '}',
	OP_DICT = 'd',
	OP_SETITEM = 's',
	OP_SETITEMS = 'u',
	OP_BINPUT = 'q',
	OP_LONG_BINPUT = 'r',
	OP_BINGET = 'h',
	OP_LONG_BINGET = 'j',
	OP_PROTO = 0x80,
	OP_TUPLE1 = 0x85,
	OP_TUPLE2 = 0x86,
	OP_TUPLE3 = 0x87,
	OP_NEWTRUE = 0x88,
	OP_NEWFALSE = 0x89,
	OP_LONG1 = 0x8A,
	OP_LONG4 = 0x8B,
	OP_SHORT_BINUNICODE = 0x8C,
	OP_BINUNICODE8 = 0x8D,
	OP_BINBYTES8 = 0x8E,
	OP_EMPTY_SET = 0x8F,
	OP_ADDITEMS = 0x90,
	OP_FROZENSET = 0x91,
	OP_MEMOIZE = 0x94,
	OP_FRAME = 0x95,
	OP_BYTEARRAY8 = 0x96,
};

/* Those that run code or ask for objects from elsewhere. */
static const char *dangerous_name(uint8_t op) {
	switch (op) {
	case 'c': return "GLOBAL";
	case 'R': return "REDUCE";
	case 'b': return "BUILD";
	case 'i': return "INST";
	case 'o': return "OBJ";
	case 'P': return "PERSID";
	case 'Q': return "BINPERSID";
	case 0x81: return "NEWOBJ";
	case 0x82: return "EXT1";
	case 0x83: return "EXT2";
	case 0x84: return "EXT4";
	case 0x92: return "NEWOBJ_EX";
	case 0x93: return "STACK_GLOBAL";
	case 0x97: return "NEXT_BUFFER";
	case 0x98: return "READONLY_BUFFER";
	default: return NULL;
	}
}

/* Always false. */
static bool fail(struct tm_pickle *p, const char *what) {
	if (!p->failed) snprintf(p->error, sizeof p->error, "%s at byte %zu", what, p->at);
	p->failed = true;
	return false;
}

static bool no_memory(struct tm_pickle *p) {
	return fail(p, "out of memory");
}

static bool take_memory(struct tm_pickle *p, uint64_t bytes) {
	if (bytes > p->memory_left) return fail(p, "it unfolds to far more than its size");
	p->memory_left -= bytes;
	return true;
}

static const uint8_t *take(struct tm_pickle *p, uint64_t n) {
	if (n > p->size - p->at) return fail(p, "it is cut off, or a length is too large,"), NULL;
	const uint8_t *at = p->data + p->at;
	p->at += n;
	return at;
}

static uint64_t take_number(struct tm_pickle *p, unsigned bytes) {
	const uint8_t *at = take(p, bytes);
	uint64_t n = 0;
	for (unsigned i = bytes; at && i-- > 0;) n = n << 8 | at[i];
	return n;
}

static bool push(struct tm_pickle *p, struct tm_pickle_value v) {
	if (p->stack.count == p->stack.capacity && !take_memory(p, sizeof v * (p->stack.capacity / 2 + 8))) return false;
	struct tm_pickle_value *place = tm_array_push(&p->stack);
	if (!place) return no_memory(p);
	*place = v;
	return true;
}

static bool push_number(struct tm_pickle *p, enum tm_pickle_type type, int64_t number) {
	return push(p, (struct tm_pickle_value){ .type = type, .number = number });
}

static bool push_text(struct tm_pickle *p, uint64_t n) {
	const char *text = (const char *)take(p, n);
	if (text && n > UINT32_MAX) return fail(p, "a text of more than 4 GiB");
	return text && push(p, (struct tm_pickle_value){ .type = TM_PICKLE_TEXT, .size = (uint32_t)n, .text = text });
}

/* Little endian, two's complement. */
static bool push_long(struct tm_pickle *p, uint64_t bytes) {
	const uint8_t *at = take(p, bytes);
	if (!at) return false;
	bool negative = bytes && at[bytes - 1] & 0x80, is_big = false;
	uint64_t n = negative ? UINT64_MAX : 0;
	for (uint64_t i = bytes; i-- > 0;) {
		if (i >= 8) is_big |= at[i] != (negative ? 0xFF : 0);
		else n = n << 8 | at[i];
	}
	is_big |= bytes > 8 && (n >> 63) != negative;
	return push_number(p, is_big ? TM_PICKLE_BIG : TM_PICKLE_INT, (int64_t)n);
}

static bool push_float(struct tm_pickle *p) {
	const uint8_t *at = take(p, 8);
	uint64_t bits = 0;
	struct tm_pickle_value v = { .type = TM_PICKLE_FLOAT };
	for (unsigned i = 0; at && i < 8; i++) bits = bits << 8 | at[i];
	memcpy(&v.real, &bits, sizeof bits);
	return at && push(p, v);
}

static struct tm_pickle_list *new_list(struct tm_pickle *p) {
	struct tm_pickle_list *list = take_memory(p, sizeof *list) ? calloc(1, sizeof *list) : NULL;
	if (!list) return no_memory(p), NULL;
	list->older = p->lists;
	return p->lists = list;
}

static bool add(struct tm_pickle *p, struct tm_pickle_list *list, const struct tm_pickle_value *items, size_t n) {
	if (n > UINT32_MAX / 4 || list->count > UINT32_MAX / 4) return fail(p, "a list of more than 2^30 values");
	if (list->count + n > list->capacity) {
		uint32_t more = list->count ? list->count / 2 + (uint32_t)n : (uint32_t)n;
		if (!take_memory(p, (uint64_t)more * sizeof *items)) return false;
		struct tm_pickle_value *grown = realloc(list->items, ((size_t)list->count + more) * sizeof *items);
		if (!grown) return no_memory(p);
		list->items = grown;
		list->capacity = list->count + more;
	}
	if (n) memcpy(list->items + list->count, items, n * sizeof *items);
	list->count += (uint32_t)n;
	return true;
}

/* The topmost values become one. */
static bool gather(struct tm_pickle *p, enum tm_pickle_type type, size_t n) {
	if (n > p->stack.count || (p->marks.count && p->stack.count - n < p->marks.items[p->marks.count - 1]))
		return fail(p, "the stack is empty");
	if (type == TM_PICKLE_DICT && n % 2) return fail(p, "a key without a value");
	struct tm_pickle_list *list = new_list(p);
	if (!list || (n && !add(p, list, p->stack.items + p->stack.count - n, n))) return false;
	p->stack.count -= n;
	return push(p, (struct tm_pickle_value){ .type = type, .list = list });
}

/* How many values lie above the last mark, which goes. */
static bool take_mark(struct tm_pickle *p, size_t *n) {
	if (!p->marks.count || p->marks.items[p->marks.count - 1] > p->stack.count) return fail(p, "there is no mark");
	*n = p->stack.count - p->marks.items[--p->marks.count];
	return true;
}

static bool gather_to_mark(struct tm_pickle *p, enum tm_pickle_type type) {
	size_t n;
	return take_mark(p, &n) && gather(p, type, n);
}

/* The topmost values go into the list or dictionary below them. */
static bool extend(struct tm_pickle *p, enum tm_pickle_type type, size_t n) {
	if (p->stack.count < n + 1) return fail(p, "the stack is empty");
	const struct tm_pickle_value *into = &p->stack.items[p->stack.count - n - 1];
	if (into->type != type) return fail(p, "values for what is no list or dictionary");
	if (type == TM_PICKLE_DICT && n % 2) return fail(p, "a key without a value");
	if (!add(p, into->list, p->stack.items + p->stack.count - n, n)) return false;
	p->stack.count -= n;
	return true;
}

static bool extend_to_mark(struct tm_pickle *p, enum tm_pickle_type type) {
	size_t n;
	return take_mark(p, &n) && extend(p, type, n);
}

/* Who writes pickles numbers the memo from 0; a number beyond all opcodes is there to take memory. */
static bool put(struct tm_pickle *p, uint64_t number) {
	size_t before = p->memo.count;
	if (!p->stack.count) return fail(p, "the stack is empty");
	if (number > p->opcodes) return fail(p, "a number of the memo out of order");
	if (number >= before && !take_memory(p, (number + 1 - before) * sizeof *p->memo.items)) return false;
	if (!tm_array_extend(&p->memo, number + 1)) return no_memory(p);
	p->memo.items[number] = p->stack.items[p->stack.count - 1];
	return true;
}

static bool get(struct tm_pickle *p, uint64_t number) {
	if (number >= p->memo.count) return fail(p, "a number that is not in the memo");
	return push(p, p->memo.items[number]);
}

static bool pop(struct tm_pickle *p, size_t n) {
	if (n > p->stack.count) return fail(p, "the stack is empty");
	p->stack.count -= n;
	return true;
}

static bool duplicate(struct tm_pickle *p) {
	return p->stack.count ? push(p, p->stack.items[p->stack.count - 1]) : fail(p, "the stack is empty");
}

static bool pop_to_mark(struct tm_pickle *p) {
	size_t n;
	return take_mark(p, &n) && pop(p, n);
}

static bool set_mark(struct tm_pickle *p) {
	if (!take_memory(p, 2 * sizeof(size_t))) return false;
	size_t *mark = tm_array_push(&p->marks);
	if (!mark) return no_memory(p);
	*mark = p->stack.count;
	return true;
}

static bool check_frame(struct tm_pickle *p) {
	uint64_t bytes = take_number(p, 8);
	return p->failed || bytes <= p->size - p->at ? !p->failed : fail(p, "it is cut off, or a length is too large,");
}

static bool check_protocol(struct tm_pickle *p) {
	uint64_t protocol = take_number(p, 1);
	return protocol <= 5 ? !p->failed : fail(p, "a protocol above 5");
}

static bool refuse(struct tm_pickle *p, uint8_t op) {
	char what[100];
	p->at--;
	const char *name = dangerous_name(op);
	if (name) snprintf(what, sizeof what, "it would run code: opcode %s is refused,", name);
	else snprintf(what, sizeof what, "unknown opcode 0x%02x", op);
	return fail(p, what);
}

/* The lengths are read before what they measure. */
static bool run(struct tm_pickle *p, uint8_t op) {
	switch (op) {
	case OP_PROTO: return check_protocol(p);
	case OP_FRAME: return check_frame(p);
	case OP_MARK: return set_mark(p);
	case OP_POP: return pop(p, 1);
	case OP_POP_MARK: return pop_to_mark(p);
	case OP_DUP: return duplicate(p);
	case OP_NONE: return push_number(p, TM_PICKLE_NONE, 0);
	case OP_NEWTRUE: return push_number(p, TM_PICKLE_BOOL, 1);
	case OP_NEWFALSE: return push_number(p, TM_PICKLE_BOOL, 0);
	case OP_BININT: return push_number(p, TM_PICKLE_INT, (int32_t)take_number(p, 4));
	case OP_BININT1: return push_number(p, TM_PICKLE_INT, (int64_t)take_number(p, 1));
	case OP_BININT2: return push_number(p, TM_PICKLE_INT, (int64_t)take_number(p, 2));
	case OP_LONG1: return push_long(p, take_number(p, 1));
	case OP_LONG4: return push_long(p, take_number(p, 4));
	case OP_BINFLOAT: return push_float(p);
	case OP_SHORT_BINSTRING:
	case OP_SHORT_BINBYTES:
	case OP_SHORT_BINUNICODE: return push_text(p, take_number(p, 1));
	case OP_BINSTRING:
	case OP_BINBYTES:
	case OP_BINUNICODE: return push_text(p, take_number(p, 4));
	case OP_BINUNICODE8:
	case OP_BYTEARRAY8:
	case OP_BINBYTES8: return push_text(p, take_number(p, 8));
	case OP_EMPTY_LIST:
	case OP_EMPTY_TUPLE:
	case OP_EMPTY_SET: return gather(p, TM_PICKLE_LIST, 0);
	case OP_EMPTY_DICT: return gather(p, TM_PICKLE_DICT, 0);
	case OP_LIST:
	case OP_TUPLE:
	case OP_FROZENSET: return gather_to_mark(p, TM_PICKLE_LIST);
	case OP_DICT: return gather_to_mark(p, TM_PICKLE_DICT);
	case OP_TUPLE1: return gather(p, TM_PICKLE_LIST, 1);
	case OP_TUPLE2: return gather(p, TM_PICKLE_LIST, 2);
	case OP_TUPLE3: return gather(p, TM_PICKLE_LIST, 3);
	case OP_APPEND: return extend(p, TM_PICKLE_LIST, 1);
	case OP_APPENDS:
	case OP_ADDITEMS: return extend_to_mark(p, TM_PICKLE_LIST);
	case OP_SETITEM: return extend(p, TM_PICKLE_DICT, 2);
	case OP_SETITEMS: return extend_to_mark(p, TM_PICKLE_DICT);
	case OP_BINPUT: return put(p, take_number(p, 1));
	case OP_LONG_BINPUT: return put(p, take_number(p, 4));
	case OP_MEMOIZE: return put(p, p->memo.count);
	case OP_BINGET: return get(p, take_number(p, 1));
	case OP_LONG_BINGET: return get(p, take_number(p, 4));
	default: return refuse(p, op);
	}
}

int tm_pickle_load(struct tm_pickle *p, const void *data, size_t n) {
	*p = (struct tm_pickle){ .data = data, .size = n, .memory_left = MEMORY_LEAST + (uint64_t)n * TM_PICKLE_MEMORY };
	p->visits_left = MEMORY_LEAST + (uint64_t)n * TM_PICKLE_VISITS;
	for (;;) {
		const uint8_t *op = take(p, 1);
		if (!op) return -1;
		p->opcodes++;
		if (*op == OP_STOP) break;
		if (!run(p, *op) || p->failed) return -1;
	}
	if (p->stack.count != 1) return fail(p, "it does not leave one value"), -1;
	p->root = p->stack.items[0];
	return 0;
}

void tm_pickle_release(struct tm_pickle *p) {
	while (p->lists) {
		struct tm_pickle_list *list = p->lists;
		p->lists = list->older;
		free(list->items);
		free(list);
	}
	tm_array_release(&p->stack);
	tm_array_release(&p->marks);
	tm_array_release(&p->memo);
}

bool tm_pickle_pay(struct tm_pickle *p, uint64_t visits) {
	if (visits > p->visits_left) {
		if (!p->failed) snprintf(p->error, sizeof p->error, "it repeats itself far beyond its size");
		p->failed = true;
		return false;
	}
	p->visits_left -= visits;
	return true;
}

struct tm_pickle_value tm_pickle_get(struct tm_pickle *p, struct tm_pickle_value dict, const char *key) {
	struct tm_pickle_value none = { .type = TM_PICKLE_NONE };
	size_t n = strlen(key);
	if (dict.type != TM_PICKLE_DICT || !tm_pickle_pay(p, dict.list->count / 2 + 1)) return none;
	for (uint32_t i = dict.list->count / 2; i-- > 0;) {
		const struct tm_pickle_value *k = &dict.list->items[2 * i];
		if (k->type == TM_PICKLE_TEXT && k->size == n && memcmp(k->text, key, n) == 0) return k[1];
	}
	return none;
}

const struct tm_pickle_list *tm_pickle_elements(struct tm_pickle_value v) {
	static const struct tm_pickle_list empty;
	return v.type == TM_PICKLE_LIST ? v.list : &empty;
}

uint64_t tm_pickle_number(struct tm_pickle_value v, uint64_t otherwise) {
	if (v.type == TM_PICKLE_FLOAT && v.real >= 0 && v.real < 9e18) return (uint64_t)v.real;
	return (v.type == TM_PICKLE_INT || v.type == TM_PICKLE_BOOL) && v.number >= 0 ? (uint64_t)v.number : otherwise;
}

uint64_t tm_pickle_size(struct tm_pickle_value v, uint64_t otherwise) {
	return v.type == TM_PICKLE_NONE ? otherwise : tm_pickle_number(v, TM_PICKLE_NO_SIZE);
}

uint64_t tm_pickle_address(struct tm_pickle_value v) {
	return v.type == TM_PICKLE_INT || v.type == TM_PICKLE_BIG ? (uint64_t)v.number & (TM_ADDRESS_LIMIT - 1) : 0;
}

struct tm_text tm_pickle_text(struct tm_pickle_value v) {
	return v.type == TM_PICKLE_TEXT ? (struct tm_text){ v.text, v.size } : (struct tm_text){ "", 0 };
}
