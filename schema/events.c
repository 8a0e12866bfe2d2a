/* events.c - the EVENTS codec: arrays of events to columns and back (format.md section 5).
 *
 * Flow:  drain -> struct tm_event[] -> tm_encode_segment() -> chunk ... chunk -> tm_decode_segment() -> merge.
 *
 *     event ---> predictions (struct model) ---> codes ---> 11 columns of varints, the all-zero ones left out
 *                  P  the size a stack last asked for
 *                  Q  the stack that follows two stacks
 *                  F  the addresses a size class was lately given back, last in first out
 *
 * Idea:  a program repeats itself. Encoder and decoder keep the same small model of the segment so far; what the model foretells costs
 *        a zero, which zstd then squeezes to almost nothing. Both sides call the same model functions in the same order.
 * Reset: segments are independent and may be tiny, so tables are emptied by undoing what was touched, not by clearing them.
 */
#include "events.h"

#include <stdlib.h>
#include <sys/random.h>

/* The columns in file order. */
enum column {
	COLUMN_OP,
	COLUMN_TIME,
	COLUMN_BEGIN,
	COLUMN_HEAP,
	COLUMN_ADDR,
	COLUMN_OLD,
	COLUMN_SIZE,
	COLUMN_OLD_SIZE,
	COLUMN_USABLE,
	COLUMN_STACK,
	COLUMN_TEXT,
	COLUMN_COUNT
};

#define BIT(column) (1u << (column))
#define NEW_BLOCK (BIT(COLUMN_ADDR) | BIT(COLUMN_SIZE) | BIT(COLUMN_STACK) | BIT(COLUMN_HEAP))

/* Which columns an op's class uses, beside op and time: the table of format.md, turned on its side. */
static const unsigned columns_of_class[] = {
	[TM_CLASS_ALLOC] = NEW_BLOCK | BIT(COLUMN_USABLE),
	[TM_CLASS_FREE] = BIT(COLUMN_HEAP) | BIT(COLUMN_OLD),
	[TM_CLASS_REALLOC] = NEW_BLOCK | BIT(COLUMN_USABLE) | BIT(COLUMN_BEGIN) | BIT(COLUMN_OLD),
	[TM_CLASS_MAP] = NEW_BLOCK,
	[TM_CLASS_UNMAP] = BIT(COLUMN_BEGIN) | BIT(COLUMN_HEAP) | BIT(COLUMN_OLD) | BIT(COLUMN_OLD_SIZE),
	[TM_CLASS_REMAP] = NEW_BLOCK | BIT(COLUMN_BEGIN) | BIT(COLUMN_OLD) | BIT(COLUMN_OLD_SIZE),
	[TM_CLASS_TEXT] = BIT(COLUMN_TEXT),
	[TM_CLASS_RESERVED] = 0,
};

static bool is_tracked(unsigned class) {
	return class == TM_CLASS_ALLOC || class == TM_CLASS_REALLOC;
}

uint64_t tm_usable_default(uint64_t size) {
	uint64_t usable = ((size + 23) & ~15ull) - 8;
	return usable < 24 ? 24 : usable;
}

/* ---- the model: what both sides know of the segment so far ---- */

#define TABLE_SIZE 4096
#define TOUCHED_MAX 512
#define FREE_STACK_DEPTH 8
#define SIZE_CLASS_NONE 0

/* The indexes of a table's entries that are not 0; past the limit, clearing the whole table is as cheap. */
struct touched {
	uint32_t count;
	uint16_t index[TOUCHED_MAX];
};

struct free_stack {
	uint64_t address[FREE_STACK_DEPTH]; /* a ring: a push onto a full one overwrites the oldest */
	uint8_t next, count;
};

/* What changes with every event. The encoder works on a copy, which no pointer to bytes can change behind the compiler's back. */
struct latest {
	uint64_t time, addr, old;
	uint32_t stack, stack_before;
};

struct model {
	struct latest latest;
	uint64_t size_of_stack[TABLE_SIZE];      /* P */
	uint32_t stack_that_follows[TABLE_SIZE]; /* Q */
	struct touched touched_sizes, touched_stacks;
	struct free_stack free_stacks[TM_SIZE_CLASS_MAX + 1];
};

static void touch(struct touched *t, unsigned index) {
	if (t->count < TOUCHED_MAX) t->index[t->count] = (uint16_t)index;
	t->count += t->count <= TOUCHED_MAX;
}

static void model_reset(struct model *m, uint64_t base_ns) {
	if (m->touched_sizes.count > TOUCHED_MAX) memset(m->size_of_stack, 0, sizeof m->size_of_stack);
	else
		for (uint32_t i = 0; i < m->touched_sizes.count; i++) m->size_of_stack[m->touched_sizes.index[i]] = 0;
	if (m->touched_stacks.count > TOUCHED_MAX) memset(m->stack_that_follows, 0, sizeof m->stack_that_follows);
	else
		for (uint32_t i = 0; i < m->touched_stacks.count; i++) m->stack_that_follows[m->touched_stacks.index[i]] = 0;
	m->touched_sizes.count = m->touched_stacks.count = 0;
	for (unsigned c = 0; c <= TM_SIZE_CLASS_MAX; c++) m->free_stacks[c].count = 0;
	m->latest = (struct latest){ .time = base_ns };
}

static inline void push_free(struct model *m, unsigned class, uint64_t address) {
	if (class == SIZE_CLASS_NONE) return;
	struct free_stack *f = &m->free_stacks[class];
	f->address[f->next] = address;
	f->next = (f->next + 1) % FREE_STACK_DEPTH;
	f->count += f->count < FREE_STACK_DEPTH;
}

static inline bool top_free(const struct model *m, unsigned class, uint64_t *address) {
	const struct free_stack *f = &m->free_stacks[class];
	*address = f->address[(f->next - 1u) % FREE_STACK_DEPTH];
	return class != SIZE_CLASS_NONE && f->count;
}

static inline void pop_free(struct model *m, unsigned class) {
	struct free_stack *f = &m->free_stacks[class];
	f->next = (f->next - 1u) % FREE_STACK_DEPTH;
	f->count--;
}

static inline unsigned follower_index(const struct latest *l) {
	return ((l->stack * 0x9E3779B1u) ^ (l->stack_before * 0x85EBCA77u)) >> 20;
}

static inline void learn_stack(struct model *m, struct latest *l, unsigned index, uint32_t stack, bool foretold) {
	if (!foretold) {
		m->stack_that_follows[index] = stack;
		touch(&m->touched_stacks, index);
	}
	l->stack_before = l->stack;
	l->stack = stack;
}

static inline void learn_size(struct model *m, uint32_t stack, uint64_t size, bool foretold) {
	if (foretold) return;
	m->size_of_stack[stack % TABLE_SIZE] = size;
	touch(&m->touched_sizes, stack % TABLE_SIZE);
}

/* A(d) of format.md: nearly all addresses are multiples of 16. */
static inline uint64_t address_code(uint64_t from, uint64_t to) {
	int64_t d = (int64_t)(to - from);
	return d % 16 ? 2 * tm_zigzag(d) + 1 : 2 * tm_zigzag(d / 16);
}

static inline uint64_t address_step(uint64_t from, uint64_t code) {
	int64_t d = tm_unzigzag(code >> 1);
	return from + (code & 1 ? (uint64_t)d : (uint64_t)d * 16);
}

/* ---- the encoder ---- */

/* A block that was allocated in this segment (its address, and four bits of its heap: a tensor begins where its malloc block does), and the
 * ordinal of the event that did it. Slots of an older generation are empty. */
struct slot {
	uint64_t block;
	uint32_t ordinal;
	uint32_t generation : 24, size_class : 8;
};

#define GIVEN_BACK UINT32_MAX
#define GENERATION_MAX ((1u << 24) - 1)
#define SLOTS_MIN 256
#define BATCH_EVENTS 64       /* looked up together, so that their slots are fetched at the same time */
#define CODES_PER_ENTRY_MAX 4 /* column text of a scope */
#define BATCH_CODE_BYTES (BATCH_EVENTS * CODES_PER_ENTRY_MAX * TM_VARINT_MAX_BYTES)

struct tm_encoder {
	struct model model;
	struct tm_bytes columns[COLUMN_COUNT];
	struct slot *slots;        /* open addressing, linear probing */
	size_t capacity;           /* slots allocated, a power of two */
	size_t mask;               /* slots used by this segment, less one */
	size_t used;
	size_t count; /* events of this segment */
	uint64_t base_ns;
	uint32_t generation;
	uint32_t ordinals; /* alloc and realloc events so far */
	uint64_t seed[2];  /* the addresses come from the traced program: it must not be able to choose collisions */
	bool failed;
};

struct tm_encoder *tm_encoder_new(void) {
	struct tm_encoder *e = calloc(1, sizeof *e);
	if (!e) return NULL;
	e->slots = calloc(SLOTS_MIN, sizeof *e->slots);
	if (!e->slots) {
		free(e);
		return NULL;
	}
	e->capacity = SLOTS_MIN;
	if (getrandom(e->seed, sizeof e->seed, GRND_NONBLOCK) != sizeof e->seed) e->seed[0] = e->seed[1] = (uint64_t)(uintptr_t)e;
	e->seed[1] |= 1;
	return e;
}

void tm_encoder_free(struct tm_encoder *e) {
	if (!e) return;
	for (int i = 0; i < COLUMN_COUNT; i++) tm_bytes_release(&e->columns[i]);
	free(e->slots);
	free(e);
}

/* The table starts as large as the last segment needed it; a small segment uses only its front, which stays in the cache. */
static void slots_reset(struct tm_encoder *e) {
	size_t wanted = SLOTS_MIN;
	while (wanted < e->capacity && wanted < 2 * e->used) wanted *= 2;
	e->mask = wanted - 1;
	e->used = 0;
	if (e->generation++ < GENERATION_MAX) return;
	memset(e->slots, 0, e->capacity * sizeof *e->slots);
	e->generation = 1;
}

static inline uint64_t block_of(uint64_t address, uint32_t heap) {
	return address | (uint64_t)heap << 60;
}

static inline size_t slot_hash(const struct tm_encoder *e, uint64_t block) {
	unsigned __int128 product = (unsigned __int128)(block ^ e->seed[0]) * e->seed[1];
	return (size_t)(product >> 64) ^ (size_t)product;
}

/* The block's slot, or the empty one where it belongs. */
static inline struct slot *slot_find(const struct tm_encoder *e, uint64_t block, size_t hash) {
	for (size_t i = hash & e->mask;; i = (i + 1) & e->mask) {
		struct slot *s = &e->slots[i];
		if (s->generation != e->generation || s->block == block) return s;
	}
}

static bool slots_grow(struct tm_encoder *e) {
	struct slot *old = e->slots;
	size_t old_count = e->mask + 1;
	e->slots = calloc(old_count, 2 * sizeof *old);
	if (!e->slots) {
		e->slots = old;
		return false;
	}
	e->capacity = old_count * 2;
	e->mask = e->capacity - 1;
	e->used = 0;
	for (size_t i = 0; i < old_count; i++) {
		if (old[i].generation != e->generation || old[i].ordinal == GIVEN_BACK) continue;
		*slot_find(e, old[i].block, slot_hash(e, old[i].block)) = old[i];
		e->used++;
	}
	free(old);
	return true;
}

static inline bool remember_block(struct tm_encoder *e, uint64_t block, size_t hash, unsigned class) {
	struct slot *s = slot_find(e, block, hash);
	if (s->generation != e->generation) {
		if (++e->used * 2 > e->mask + 1) {
			if (!slots_grow(e)) return false;
			e->used++;
			s = slot_find(e, block, hash);
		}
	}
	*s = (struct slot){ .block = block, .ordinal = e->ordinals++, .generation = e->generation, .size_class = class & 0xff };
	return true;
}

/* A batch in work. */
struct batch {
	uint8_t *at[COLUMN_COUNT]; /* where the columns end; their sizes are set after it */
	struct latest latest;
};

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE void put_code(struct batch *b, enum column column, uint64_t code) {
	b->at[column] = tm_varint_write(b->at[column], code);
}

static ALWAYS_INLINE void encode_stack(struct tm_encoder *e, struct batch *b, uint32_t stack) {
	struct model *m = &e->model;
	unsigned index = follower_index(&b->latest);
	bool foretold = m->stack_that_follows[index] == stack;
	put_code(b, COLUMN_STACK, foretold ? 0 : (uint64_t)stack + 1);
	learn_stack(m, &b->latest, index, stack, foretold);
}

static ALWAYS_INLINE void encode_size(struct tm_encoder *e, struct batch *b, uint32_t stack, uint64_t size) {
	struct model *m = &e->model;
	bool foretold = m->size_of_stack[stack % TABLE_SIZE] == size;
	put_code(b, COLUMN_SIZE, foretold ? 0 : size + 1);
	learn_size(m, stack, size, foretold);
}

/* What tm_given_back() makes of the block's allocation in this segment, or 0. */
static ALWAYS_INLINE uint64_t look_up(struct tm_encoder *e, unsigned class, uint64_t old, uint32_t heap, size_t hash) {
	if (class != TM_CLASS_FREE && class != TM_CLASS_REALLOC) return 0;
	struct slot *s = slot_find(e, block_of(old, heap), hash);
	if (s->generation != e->generation || s->ordinal == GIVEN_BACK) return 0;
	uint64_t back = e->ordinals - s->ordinal;
	s->ordinal = GIVEN_BACK;
	return back << 7 | s->size_class;
}

/* Returns the size class of the block given back if this segment allocated it, so that its address may come again. */
static ALWAYS_INLINE unsigned encode_old(struct batch *b, unsigned class, uint64_t old, uint64_t given_back) {
	uint64_t reference = b->latest.old;
	b->latest.old = old;
	if (given_back) {
		put_code(b, COLUMN_OLD, given_back >> 7);
		return given_back & 0x7f;
	}
	if (class == TM_CLASS_FREE || class == TM_CLASS_REALLOC) put_code(b, COLUMN_OLD, 0);
	put_code(b, COLUMN_OLD, address_code(reference, old));
	return SIZE_CLASS_NONE;
}

static ALWAYS_INLINE void encode_addr(struct tm_encoder *e, struct batch *b, unsigned class, const struct tm_event *v) {
	struct model *m = &e->model;
	unsigned block_class = tm_size_class(v->size);
	uint64_t top, reference = class == TM_CLASS_REALLOC || class == TM_CLASS_REMAP ? v->old : b->latest.addr;
	b->latest.addr = v->addr;
	if (class == TM_CLASS_ALLOC && top_free(m, block_class, &top) && top == v->addr) {
		put_code(b, COLUMN_ADDR, 0);
		pop_free(m, block_class);
	} else {
		put_code(b, COLUMN_ADDR, address_code(reference, v->addr) + 1);
	}
}

static inline uint64_t usable_code(uint64_t size, uint64_t usable) {
	if (usable == TM_USABLE_UNKNOWN) return 1;
	uint64_t difference = usable - tm_usable_default(size);
	if (!difference) return 0;
	uint64_t code = tm_zigzag((int64_t)difference) + 1;
	return code ? code : 1;
}

static inline void encode_text(struct batch *b, const struct tm_event *v) {
	put_code(b, COLUMN_TEXT, v->text);
	if (!TM_OP_IS_SCOPE(v->op)) return;
	put_code(b, COLUMN_TEXT, v->addr);
	put_code(b, COLUMN_TEXT, v->old);
	put_code(b, COLUMN_TEXT, v->heap);
}

/* The order of the columns is that of format.md's last line. `class` and `is_told` are constants where that matters; hash: of the old block, or of the
 * new one if there is no old one; not used where the caller tells what is given back. */
static ALWAYS_INLINE bool encode_event(struct tm_encoder *e, struct batch *b, const struct tm_event *v, unsigned class, bool is_told, size_t hash) {
	struct model *m = &e->model;
	unsigned uses = columns_of_class[class], old_class = SIZE_CLASS_NONE;
	bool gives_back = class == TM_CLASS_FREE || class == TM_CLASS_REALLOC;
	*b->at[COLUMN_OP]++ = v->op;
	put_code(b, COLUMN_TIME, v->time_ns - b->latest.time);
	b->latest.time = v->time_ns;
	if (uses & BIT(COLUMN_BEGIN)) put_code(b, COLUMN_BEGIN, v->time_ns - v->begin_ns);
	if (uses & BIT(COLUMN_HEAP)) put_code(b, COLUMN_HEAP, v->heap);
	if (uses & BIT(COLUMN_STACK)) encode_stack(e, b, v->stack);
	if (uses & BIT(COLUMN_SIZE)) encode_size(e, b, v->stack, v->size);
	if (uses & BIT(COLUMN_OLD)) {
		uint64_t given_back = !is_told ? look_up(e, class, v->old, v->heap, hash) : gives_back ? v->old_size : 0;
		old_class = encode_old(b, class, v->old, given_back);
	}
	if (uses & BIT(COLUMN_ADDR)) encode_addr(e, b, class, v);
	if (gives_back && (class == TM_CLASS_FREE || v->addr != v->old)) push_free(m, old_class, v->old);
	if (uses & BIT(COLUMN_OLD_SIZE)) put_code(b, COLUMN_OLD_SIZE, v->old_size);
	if (uses & BIT(COLUMN_USABLE)) put_code(b, COLUMN_USABLE, usable_code(v->size, v->usable));
	if (uses & BIT(COLUMN_TEXT)) encode_text(b, v);
	if (!is_tracked(class) || is_told) return true;
	uint64_t block = block_of(v->addr, v->heap);
	return remember_block(e, block, class == TM_CLASS_ALLOC ? hash : slot_hash(e, block), tm_size_class(v->size));
}

/* Room is made for a batch at a time, so that the codes themselves are written without a check. */
static bool columns_reserve(struct tm_encoder *e) {
	bool ok = true;
	for (int i = 0; i < COLUMN_COUNT; i++) {
		struct tm_bytes *c = &e->columns[i];
		if (c->capacity - c->size < BATCH_CODE_BYTES) ok &= tm_bytes_reserve(c, BATCH_CODE_BYTES);
	}
	return ok;
}

/* The hash that encode_event() wants; what it will find is fetched meanwhile. */
static inline size_t fetch_slot(const struct tm_encoder *e, const struct tm_event *v) {
	size_t hash = slot_hash(e, block_of(TM_OP_CLASS(v->op) == TM_CLASS_ALLOC ? v->addr : v->old, v->heap));
	__builtin_prefetch(&e->slots[hash & e->mask], 1);
	return hash;
}

static ALWAYS_INLINE bool encode_batch(struct tm_encoder *e, const struct tm_event *events, size_t n, bool is_told) {
	size_t hashes[BATCH_EVENTS] = { 0 };
	struct batch b;
	bool ok = columns_reserve(e);
	if (!ok) return false;
	b.latest = e->model.latest;
	for (int i = 0; i < COLUMN_COUNT; i++) b.at[i] = e->columns[i].data + e->columns[i].size;
	for (size_t i = 0; i < n && !is_told; i++) hashes[i] = fetch_slot(e, &events[i]);
	for (size_t i = 0; i < n && ok; i++) {
		const struct tm_event *v = &events[i];
		unsigned class = TM_OP_CLASS(v->op);
		if (class == TM_CLASS_ALLOC) ok = encode_event(e, &b, v, TM_CLASS_ALLOC, is_told, hashes[i]);
		else if (class == TM_CLASS_FREE) ok = encode_event(e, &b, v, TM_CLASS_FREE, is_told, hashes[i]);
		else ok = encode_event(e, &b, v, class, is_told, hashes[i]);
	}
	e->model.latest = b.latest;
	for (int i = 0; i < COLUMN_COUNT; i++) e->columns[i].size = (size_t)(b.at[i] - e->columns[i].data);
	return ok;
}

/* Allocations and frees of the default heap are nearly all there is. A batch that holds nothing else is written in two runs, in each of which
 * the ends of its columns stay in registers. False: it holds something else, and nothing was written. */
static bool encode_heads(struct tm_encoder *e, const struct tm_event *events, size_t n) {
	uint8_t *op = e->columns[COLUMN_OP].data + e->columns[COLUMN_OP].size, *time = e->columns[COLUMN_TIME].data + e->columns[COLUMN_TIME].size;
	uint64_t before = e->model.latest.time;
	uint32_t odd = 0;
	for (size_t i = 0; i < n; i++) {
		const struct tm_event *v = &events[i];
		odd |= (uint32_t)(v->op & 0xc0) | v->heap;
		*op++ = v->op;
		time = tm_varint_write(time, v->time_ns - before);
		before = v->time_ns;
	}
	if (odd) return false;
	memset(e->columns[COLUMN_HEAP].data + e->columns[COLUMN_HEAP].size, 0, n);
	e->columns[COLUMN_HEAP].size += n;
	e->columns[COLUMN_OP].size += n;
	e->columns[COLUMN_TIME].size = (size_t)(time - e->columns[COLUMN_TIME].data);
	e->model.latest.time = before;
	return true;
}

static void encode_bodies(struct tm_encoder *e, const struct tm_event *events, size_t n) {
	struct batch b;
	b.latest = e->model.latest;
	for (int i = COLUMN_ADDR; i <= COLUMN_STACK; i++) b.at[i] = e->columns[i].data + e->columns[i].size;
	for (const struct tm_event *v = events, *end = events + n; v < end; v++) {
		if (TM_OP_CLASS(v->op) == TM_CLASS_ALLOC) {
			encode_stack(e, &b, v->stack);
			encode_size(e, &b, v->stack, v->size);
			encode_addr(e, &b, TM_CLASS_ALLOC, v);
			put_code(&b, COLUMN_USABLE, usable_code(v->size, v->usable));
		} else {
			push_free(&e->model, encode_old(&b, TM_CLASS_FREE, v->old, v->old_size), v->old);
		}
	}
	e->model.latest = b.latest;
	for (int i = COLUMN_ADDR; i <= COLUMN_STACK; i++) e->columns[i].size = (size_t)(b.at[i] - e->columns[i].data);
}

static __attribute__((noinline)) bool encode_batch_told(struct tm_encoder *e, const struct tm_event *events, size_t n) {
	if (!columns_reserve(e)) return false;
	if (!encode_heads(e, events, n)) return encode_batch(e, events, n, true);
	encode_bodies(e, events, n);
	return true;
}

static __attribute__((noinline)) bool encode_batch_looked_up(struct tm_encoder *e, const struct tm_event *events, size_t n) {
	return encode_batch(e, events, n, false);
}

void tm_encoder_begin(struct tm_encoder *e, uint64_t base_ns) {
	model_reset(&e->model, base_ns);
	slots_reset(e);
	e->base_ns = base_ns;
	e->count = 0;
	e->ordinals = 0;
	e->failed = false;
	for (int i = 0; i < COLUMN_COUNT; i++) tm_bytes_clear(&e->columns[i]);
}

static void add(struct tm_encoder *e, const struct tm_event *events, size_t n, bool (*encode)(struct tm_encoder *, const struct tm_event *, size_t)) {
	if (n > TM_SEGMENT_EVENTS_MAX - e->count) e->failed = true;
	for (size_t done = 0, batch; done < n && !e->failed; done += batch) {
		batch = n - done < BATCH_EVENTS ? n - done : BATCH_EVENTS;
		e->failed = !encode(e, events + done, batch);
		e->count += batch;
	}
}

void tm_encoder_add(struct tm_encoder *e, const struct tm_event *events, size_t n) {
	add(e, events, n, encode_batch_looked_up);
}

void tm_encoder_add_told(struct tm_encoder *e, const struct tm_event *events, size_t n) {
	add(e, events, n, encode_batch_told);
}

/* All codes are 0 where all bytes are. */
static bool is_zero(const struct tm_bytes *b) {
	return !b->size || (!b->data[0] && !memcmp(b->data, b->data + 1, b->size - 1));
}

void tm_encoder_finish(struct tm_encoder *e, struct tm_bytes *out, uint64_t thread) {
	if (e->failed) {
		out->failed = true;
		return;
	}
	tm_put_varint(out, thread);
	tm_put_varint(out, e->base_ns);
	tm_put_varint(out, e->count);
	for (int i = 0; i < COLUMN_COUNT; i++) {
		const struct tm_bytes *c = &e->columns[i];
		tm_put_string(out, c->data, i != COLUMN_OP && is_zero(c) ? 0 : c->size);
	}
}

void tm_encode_segment(struct tm_encoder *e, struct tm_bytes *out, uint64_t thread, uint64_t base_ns, const struct tm_event *events,
		       size_t n) {
	tm_encoder_begin(e, base_ns);
	tm_encoder_add(e, events, n);
	tm_encoder_finish(e, out, thread);
}

/* ---- the decoder ---- */

struct in_column {
	struct tm_cursor cursor;
	bool absent; /* every varint of it is 0 */
};

/* What the nth alloc or realloc of the segment gave; live until a code refers to it. */
struct block {
	uint64_t address;
	uint8_t size_class;
	bool live;
};

struct tm_decoder {
	struct model model;
	struct in_column columns[COLUMN_COUNT];
	struct tm_event *events;
	struct block *blocks; /* of the whole segment */
	size_t event_capacity, block_capacity;
	uint64_t thread;
	size_t done, count; /* events of the segment: decoded so far, and all */
	uint32_t block_count;
	bool damaged;
};

struct tm_decoder *tm_decoder_new(void) {
	return calloc(1, sizeof(struct tm_decoder));
}

void tm_decoder_free(struct tm_decoder *d) {
	if (!d) return;
	free(d->events);
	free(d->blocks);
	free(d);
}

static uint64_t get_code_slow(struct in_column *c) {
	return c->absent ? 0 : tm_get_varint_slow(&c->cursor);
}

static inline uint64_t get_code(struct tm_decoder *d, enum column column) {
	struct in_column *c = &d->columns[column];
	const uint8_t *p = c->cursor.p;
	if (c->cursor.end - p < 3) return get_code_slow(c);
	if (p[0] < 0x80) {
		c->cursor.p = p + 1;
		return p[0];
	}
	if (p[1] < 0x80) {
		c->cursor.p = p + 2;
		return (p[0] & 0x7fu) | (uint64_t)p[1] << 7;
	}
	if (p[2] < 0x80) {
		c->cursor.p = p + 3;
		return (p[0] & 0x7fu) | (p[1] & 0x7fu) << 7 | (uint64_t)p[2] << 14;
	}
	return get_code_slow(c);
}

static inline uint32_t get_id(struct tm_decoder *d, enum column column) {
	uint64_t id = get_code(d, column);
	if (id > UINT32_MAX) d->damaged = true;
	return (uint32_t)id;
}

static inline uint32_t decode_stack(struct tm_decoder *d) {
	struct model *m = &d->model;
	unsigned index = follower_index(&m->latest);
	uint64_t code = get_code(d, COLUMN_STACK);
	if (code > (uint64_t)UINT32_MAX + 1) d->damaged = true;
	uint32_t stack = code ? (uint32_t)(code - 1) : m->stack_that_follows[index];
	learn_stack(m, &m->latest, index, stack, !code);
	return stack;
}

static inline uint64_t decode_size(struct tm_decoder *d, uint32_t stack) {
	struct model *m = &d->model;
	uint64_t code = get_code(d, COLUMN_SIZE);
	uint64_t size = code ? code - 1 : m->size_of_stack[stack % TABLE_SIZE];
	learn_size(m, stack, size, !code);
	return size;
}

/* The address given back by the block `back` places before the newest; *block_class is its size class. */
static inline uint64_t give_back(struct tm_decoder *d, uint64_t back, unsigned *block_class) {
	if (back >= d->block_count || !d->blocks[d->block_count - 1 - back].live) {
		d->damaged = true;
		return 0;
	}
	struct block *b = &d->blocks[d->block_count - 1 - back];
	b->live = false;
	*block_class = b->size_class;
	return b->address;
}

static inline uint64_t decode_old(struct tm_decoder *d, unsigned class, unsigned *block_class) {
	struct latest *l = &d->model.latest;
	uint64_t code = class == TM_CLASS_FREE || class == TM_CLASS_REALLOC ? get_code(d, COLUMN_OLD) : 0;
	if (code) l->old = give_back(d, code - 1, block_class);
	else l->old = address_step(l->old, get_code(d, COLUMN_OLD));
	if (l->old >= TM_ADDRESS_LIMIT) d->damaged = true;
	return l->old;
}

static inline uint64_t decode_addr(struct tm_decoder *d, unsigned class, const struct tm_event *v) {
	struct model *m = &d->model;
	unsigned block_class = tm_size_class(v->size);
	uint64_t reference = class == TM_CLASS_REALLOC || class == TM_CLASS_REMAP ? v->old : m->latest.addr;
	uint64_t code = get_code(d, COLUMN_ADDR), address;
	if (code) {
		address = address_step(reference, code - 1);
	} else if (class == TM_CLASS_ALLOC && top_free(m, block_class, &address)) {
		pop_free(m, block_class);
	} else {
		d->damaged = true;
		address = 0;
	}
	if (address >= TM_ADDRESS_LIMIT) d->damaged = true;
	return m->latest.addr = address;
}

static inline uint64_t decode_usable(struct tm_decoder *d, uint64_t size) {
	uint64_t code = get_code(d, COLUMN_USABLE);
	if (code == 1) return TM_USABLE_UNKNOWN;
	return tm_usable_default(size) + (code ? (uint64_t)tm_unzigzag(code - 1) : 0);
}

static inline uint64_t decode_time(struct tm_decoder *d) {
	uint64_t *time = &d->model.latest.time, before = *time;
	*time += get_code(d, COLUMN_TIME);
	if (*time < before) d->damaged = true;
	return *time;
}

static inline uint64_t decode_begin(struct tm_decoder *d) {
	uint64_t ago = get_code(d, COLUMN_BEGIN);
	uint64_t time = d->model.latest.time;
	if (ago > time) d->damaged = true;
	return time - ago;
}

static inline void decode_text(struct tm_decoder *d, struct tm_event *v) {
	v->text = get_id(d, COLUMN_TEXT);
	if (!TM_OP_IS_SCOPE(v->op)) return;
	v->addr = get_code(d, COLUMN_TEXT);
	v->old = get_code(d, COLUMN_TEXT);
	v->heap = get_id(d, COLUMN_TEXT);
}

/* Mirrors encode_event(). The event is made where it will stand: made elsewhere and copied, it would be read back in wider pieces than it was
 * written in, before the writes are through. */
static inline void decode_event(struct tm_decoder *d, uint8_t op, struct tm_event *v) {
	struct model *m = &d->model;
	unsigned class = TM_OP_CLASS(op), uses = columns_of_class[class], old_class = SIZE_CLASS_NONE;
	*v = (struct tm_event){ .time_ns = decode_time(d), .usable = TM_USABLE_UNKNOWN, .op = op };
	v->begin_ns = uses & BIT(COLUMN_BEGIN) ? decode_begin(d) : v->time_ns;
	if (class == TM_CLASS_RESERVED) d->damaged = true;
	if (uses & BIT(COLUMN_HEAP)) v->heap = get_id(d, COLUMN_HEAP);
	if (uses & BIT(COLUMN_STACK)) v->stack = decode_stack(d);
	if (uses & BIT(COLUMN_SIZE)) v->size = decode_size(d, v->stack);
	if (uses & BIT(COLUMN_OLD)) v->old = decode_old(d, class, &old_class);
	if (uses & BIT(COLUMN_ADDR)) v->addr = decode_addr(d, class, v);
	if (class == TM_CLASS_FREE || v->addr != v->old) push_free(m, old_class, v->old);
	if (uses & BIT(COLUMN_OLD_SIZE)) v->old_size = get_code(d, COLUMN_OLD_SIZE);
	if (uses & BIT(COLUMN_USABLE)) v->usable = decode_usable(d, v->size);
	if (uses & BIT(COLUMN_TEXT)) decode_text(d, v);
	if (is_tracked(class)) d->blocks[d->block_count++] = (struct block){ v->addr, (uint8_t)tm_size_class(v->size), true };
}

static bool reserve_blocks(struct tm_decoder *d, size_t n) {
	if (n <= d->block_capacity) return true;
	free(d->blocks);
	d->blocks = malloc(n * sizeof *d->blocks);
	d->block_capacity = d->blocks ? n : 0;
	return d->blocks != NULL;
}

static bool reserve_events(struct tm_decoder *d, size_t n) {
	if (n <= d->event_capacity) return true;
	free(d->events);
	d->events = malloc(n * sizeof *d->events);
	d->event_capacity = d->events ? n : 0;
	return d->events != NULL;
}

/* Splits the segment into its columns; their lengths are checked here, their content as it is decoded. */
static bool take_columns(struct tm_decoder *d, struct tm_cursor *c, uint64_t n) {
	for (int i = 0; i < COLUMN_COUNT; i++) {
		struct tm_cursor block = tm_get_block(c);
		d->columns[i] = (struct in_column){ block, block.p == block.end };
	}
	const struct tm_cursor *ops = &d->columns[COLUMN_OP].cursor;
	return !c->bad && n <= TM_SEGMENT_EVENTS_MAX && n == (uint64_t)(ops->end - ops->p);
}

static bool columns_are_used_up(const struct tm_decoder *d) {
	for (int i = COLUMN_OP + 1; i < COLUMN_COUNT; i++) {
		const struct tm_cursor *c = &d->columns[i].cursor;
		if (c->bad || c->p != c->end) return false;
	}
	return true;
}

int tm_decode_begin(struct tm_decoder *d, struct tm_cursor *c, struct tm_segment *out) {
	*out = (struct tm_segment){ 0 };
	uint64_t thread = tm_get_varint(c), base_ns = tm_get_varint(c), n = tm_get_varint(c);
	d->done = d->count = 0;
	if (!take_columns(d, c, n)) {
		c->bad = true;
		return -1;
	}
	if (!reserve_blocks(d, (size_t)n)) return -2;
	model_reset(&d->model, base_ns);
	d->thread = thread;
	d->count = (size_t)n;
	d->block_count = 0;
	d->damaged = false;
	*out = (struct tm_segment){ thread, NULL, (size_t)n };
	return 0;
}

static int decode_some(struct tm_decoder *d, size_t most, struct tm_segment *out) {
	size_t n = d->count - d->done < most ? d->count - d->done : most;
	const uint8_t *ops = d->columns[COLUMN_OP].cursor.p + d->done;
	*out = (struct tm_segment){ 0 };
	if (!reserve_events(d, n ? n : 1)) return -2;
	for (size_t i = 0; i < n && !d->damaged; i++) decode_event(d, ops[i], &d->events[i]);
	d->done += n;
	if (d->damaged || (d->done == d->count && !columns_are_used_up(d))) return -1;
	*out = (struct tm_segment){ d->thread, d->events, n };
	return 0;
}

int tm_decode_next(struct tm_decoder *d, struct tm_segment *out) {
	return decode_some(d, TM_DECODE_EVENTS, out);
}

int tm_decode_segment(struct tm_decoder *d, struct tm_cursor *c, struct tm_segment *out) {
	int rc = tm_decode_begin(d, c, out);
	if (rc == 0) rc = decode_some(d, d->count, out);
	if (rc == -1) c->bad = true;
	return rc;
}

/* ---- the payload's head ---- */

void tm_put_events_header(struct tm_bytes *b, uint64_t watermark_ns, uint64_t segments) {
	tm_put_varint(b, watermark_ns);
	tm_put_varint(b, segments);
}

void tm_get_events_header(struct tm_cursor *c, uint64_t *watermark_ns, uint64_t *segments) {
	*watermark_ns = tm_get_varint(c);
	*segments = tm_get_varint(c);
}
