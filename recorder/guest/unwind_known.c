/* unwind_known.c - how known stacks are found where they were not expected, learned, and forgotten; see unwind_known.h. */
#include "unwind_known.h"

#include "attach.h"
#include "raw.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define FACTOR 0x9E3779B97F4A7C15u
#define MIXER 0xD6E8FEB86659FD93u
#define FIRST_STACKS 128u          /* are taken before there is memory for known ones */
#define FIRST_THREAD_BYTES (1u << 20)
#define ROOMY_BYTES (512u << 10) /* the first of other threads that take some stacks */
#define ROOMY_THREADS 6u
#define THREAD_BYTES (128u << 10)
#define STEP_BYTES (128u << 10)    /* so much can be written at first, and more when it is needed: it counts as the program's data */
#define LOOK_EVERY_MISSES 1024u    /* at whether knowing is of use */
#define OF_USE 6u /* it is where so many stacks were known for one that was not: that one takes as long as two without all this */
#define LOOKS 4u  /* else so many looks show that it is not, */
#define LOOKS_AT_RETURNS 16u       /* and as many where half of what is not known has come before */
#define WAIT_FIRST (64u << 10)     /* stacks go by before it is tried again: twice as many each time */
#define WAIT_MOST (256u << 10)
#define TRUNK_PART 2u /* a trunk is shared where it is at least half of the stack */
#define FAR_LOOKS 16u
#define SEEN_COUNT_BITS 3u
#define SEEN_OFTEN ((1u << SEEN_COUNT_BITS) - 1) /* then it is learned: most stacks of a compiler come a few times and never again */

struct tm_known tm_known_nobody;

/* --- beginning and end --- */

static _Atomic uint32_t roomy_threads;

static size_t take_share(const struct tm_thread *t) {
	if (t->number <= 1) return FIRST_THREAD_BYTES;
	if (atomic_fetch_add(&roomy_threads, 1) < ROOMY_THREADS) return ROOMY_BYTES;
	atomic_fetch_sub(&roomy_threads, 1);
	return THREAD_BYTES;
}

static void give_share_back(size_t bytes) {
	if (bytes == ROOMY_BYTES) atomic_fetch_sub(&roomy_threads, 1);
}

/* Nothing is expected after a stack that is not known. */
static void expect_nobody(struct tm_thread *t) {
	t->known_expected = &tm_known_nobody;
	t->known_nowhere = 0;
	t->known_next = &t->known_nowhere;
	t->known_last = 0;
}

void tm_known_prepare(struct tm_thread *t) {
	t->known = NULL;
	t->known_hits = t->known_misses = t->known_returns = t->known_looks = t->known_wait = 0;
	t->known_wait_left = FIRST_STACKS;
	expect_nobody(t);
}

/* What might lead to one goes first, and what says that there was none last: they can be left half forgotten. */
void tm_known_forget(struct tm_thread *t) {
	t->known = NULL;
	t->known_trunk = NULL;
	t->known_count = t->known_frames = 0;
	expect_nobody(t);
	if (!t->known_used) return;
	memset(t->knowns->heads, 0, sizeof t->knowns->heads);
	memset(t->knowns->nexts, 0, sizeof t->knowns->nexts);
	atomic_signal_fence(memory_order_seq_cst);
	t->known_used = 0;
}

void tm_known_release(struct tm_thread *t) {
	struct tm_knowns *all = t->knowns;
	t->knowns = NULL;
	t->known_used = 0;
	if (!all) return;
	tm_raw_unmap(all, t->known_bytes);
	give_share_back(t->known_bytes);
}

static bool open_to(struct tm_thread *t, size_t bytes) {
	while (t->known_open < bytes) {
		if (t->known_open == t->known_bytes || tm_is_sandboxed()) return false;
		if (tm_syscall(SYS_mprotect, (long)((uintptr_t)t->knowns + t->known_open), STEP_BYTES, PROT_READ | PROT_WRITE, 0, 0, 0) < 0) return false;
		t->known_open += STEP_BYTES;
	}
	return true;
}

static bool map_memory(struct tm_thread *t, size_t bytes) {
	if (!tm_has_room(bytes)) return false;
	long at = tm_syscall(SYS_mmap, 0, (long)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at < 0 && at > -4096) return false;
	if (tm_syscall(SYS_mprotect, at, STEP_BYTES, PROT_READ | PROT_WRITE, 0, 0, 0) < 0) {
		tm_raw_unmap((void *)at, bytes);
		return false;
	}
	/* Looked at first, here and there, and then written: a page at a time that takes three times as long. */
	tm_raw_populate((uint8_t *)at + offsetof(struct tm_knowns, heads),
			sizeof(struct tm_knowns) - offsetof(struct tm_knowns, heads) + TM_SHM_PAGE);
	t->known_bytes = bytes;
	t->known_open = STEP_BYTES;
	atomic_signal_fence(memory_order_seq_cst); /* a handler that leaves by a jump finds memory that can be written, or none */
	t->knowns = (struct tm_knowns *)at;
	return true;
}
_Static_assert(sizeof(struct tm_knowns) <= STEP_BYTES, "what is not units can be written from the beginning");

static bool begin(struct tm_thread *t) {
	if (t->knowns) return true;
	size_t bytes = tm_is_sandboxed() ? 0 : take_share(t);
	if (bytes && map_memory(t, bytes)) return true;
	give_share_back(bytes);
	t->known_wait_left = WAIT_MOST;
	return false;
}

/* --- finding --- */

static uint16_t *head_of(struct tm_knowns *all, uintptr_t slot, uintptr_t pc) {
	return &all->heads[(pc * FACTOR ^ slot << 24) * FACTOR >> (64 - TM_KNOWN_HEADS_BITS)];
}

static inline bool is_it(const struct tm_known *k, uintptr_t slot) {
	return k->slot == slot && tm_known_holds(k, slot);
}

TM_HOT struct tm_known *tm_known_find(struct tm_thread *t, uintptr_t slot) {
	struct tm_known *k = tm_known_at(t->knowns, *t->known_next >> 16);
	if (!is_it(k, slot)) {
		unsigned looks = TM_KNOWN_LOOKS;
		k = tm_known_at(t->knowns, *head_of(t->knowns, slot, TM_UNWIND_WORD(slot)));
		while (!is_it(k, slot)) {
			if (!k->slot || !--looks) return NULL;
			k = tm_known_at(t->knowns, k->same);
		}
	}
	*t->known_next = *t->known_next << 16 | k->index;
	return k;
}

/* --- going back to how others are taken --- */

static struct tm_known_about *about_of(const struct tm_known *k) {
	return (struct tm_known_about *)(tm_known_places(k) + k->words);
}

static inline uintptr_t place_in(const struct tm_known *k, uint32_t i) {
	return k->slot - 8 + 8 * (uintptr_t)tm_known_places(k)[i];
}

static bool is_framed_in(const struct tm_trunk *trunk, uint32_t i) {
	return !(tm_trunk_passed_over(trunk)[i / TM_KNOWN_TOGETHER] >> 4 * (i % TM_KNOWN_TOGETHER) & TM_KNOWN_BELOW);
}

/* Its outermost framed frame; that of UINT32_MAX: none is. Its own are told from the outermost inward. */
static uint32_t first_framed_of(const struct tm_known *k, const struct tm_known_about *own) {
	for (uint32_t i = 0; k->trunk->by_pairs && i < k->trunk_depth; i++)
		if (is_framed_in(k->trunk, i)) return i;
	return k->framed_count ? own[0].frame : UINT32_MAX;
}

/* Of frames that lie between framed ones it does not matter what lies below, as long as it is compared with what was there. */
static void restore_framed(struct tm_thread *t, const struct tm_known *k, const uintptr_t *values, const struct tm_known_about *own,
			   uintptr_t readable) {
	t->framed_low = first_framed_of(k, own);
	for (uint32_t i = t->framed_low; i < t->depth; i++) {
		t->framed[i] = i < k->trunk_depth && k->trunk->by_pairs && is_framed_in(k->trunk, i);
		t->pairs[i] = (struct tm_pair){ t->sps[i] - 8 >= readable ? TM_UNWIND_WORD(t->sps[i] - 8) : 0, t->pcs[i] };
		if (t->framed[i]) t->pairs[i].next = tm_trunk_pairs(k->trunk)[i].next;
	}
	for (uint32_t i = 0; i < k->framed_count; i++) {
		t->framed[own[i].frame] = 1;
		t->pairs[own[i].frame].next = values[i];
	}
}

void tm_known_restore(struct tm_thread *t, uintptr_t readable) {
	const struct tm_known *k = t->known;
	const uintptr_t *values = tm_known_values(k);
	const struct tm_known_about *about = about_of(k);
	uint32_t kept = k->trunk_depth, own = k->depth - kept;
	for (uint32_t i = 0; i < kept; i++) {
		t->pcs[i] = k->trunk->frames[i].pc;
		t->sps[i] = k->trunk->frames[i].slot;
	}
	for (uint32_t i = 0; i < own; i++) {
		t->pcs[k->depth - 1 - i] = values[i];
		t->sps[k->depth - 1 - i] = place_in(k, i);
	}
	for (uint32_t i = 0; i < k->check_count; i++)
		t->checks[i] = (struct tm_check){ place_in(k, own + i), values[own + i], about[i].frame, about[i].until };
	tm_unwind_set_check_count(t, k->check_count);
	t->depth = t->remembered = k->depth;
	t->cut_frame = tm_known_is_cut(k) ? 0 : UINT32_MAX;
	restore_framed(t, k, values + own + k->check_count, about + k->check_count, readable);
	t->truncated = 0;
	t->is_part = false;
	t->known = NULL;
}

/* --- learning --- */

static inline uint64_t rotated(uint64_t word, unsigned by) {
	return word << by | word >> (64 - by);
}

/* Not of all that it is, but of what makes nearly all the difference. */
static uint32_t hash_of_stack(const struct tm_thread *t) {
	uint64_t a = t->sps[t->depth - 1], b = t->depth, c = 0, d = 0;
	const uintptr_t *pc = t->pcs, *end = pc + t->depth;
	for (; pc + 4 <= end; pc += 4) {
		a = (a ^ pc[0]) * FACTOR;
		b = (b ^ pc[1]) * FACTOR;
		c = (c ^ pc[2]) * FACTOR;
		d = (d ^ pc[3]) * FACTOR;
	}
	for (; pc < end; pc++) a = (a ^ *pc) * FACTOR;
	uint64_t all = a ^ rotated(b, 7) ^ rotated(c, 17) ^ rotated(d, 29);
	all = (all ^ all >> 32) * MIXER;
	all = (all ^ all >> 32) * MIXER;
	return (uint32_t)(all ^ all >> 32);
}

enum come { COME_NEW, COME_BEFORE, COME_OFTEN };

/* Has it come often enough? The lower bits count. Of those that share a place the one that came longest ago is forgotten, so that two which come in turn are
 * both learned. */
static enum come note_that_it_came(struct tm_thread *t, uint32_t hash) {
	uint32_t *seen = t->knowns->seen[hash >> (32 - TM_KNOWN_SEEN_BITS)], found = seen[0];
	unsigned at = 0;
	while ((found ^ hash) >> SEEN_COUNT_BITS && ++at < TM_KNOWN_SEEN_WAYS) {
		uint32_t next = seen[at];
		seen[at] = found;
		found = next;
	}
	bool is_new = at == TM_KNOWN_SEEN_WAYS, often = !is_new && (found & SEEN_OFTEN) == SEEN_OFTEN;
	seen[0] = is_new ? hash & ~SEEN_OFTEN : often ? found : found + 1;
	return often ? COME_OFTEN : is_new ? COME_NEW : COME_BEFORE;
}

/* Behind those that were looked at, where many have the same caller at the same place: it comes to stand in front. */
static struct tm_known *find_far(struct tm_thread *t, uint32_t hash) {
	uintptr_t slot = t->sps[t->depth - 1];
	uint16_t *head = head_of(t->knowns, slot, t->pcs[t->depth - 1]), *link = head;
	for (unsigned looks = FAR_LOOKS; *link && looks; looks--) {
		struct tm_known *k = tm_known_at(t->knowns, *link);
		if (k->hash == hash && k->slot == slot && tm_known_holds(k, slot)) {
			uint16_t first = *head;
			if (link == head) return k;
			*link = k->same;
			k->same = first;
			*head = k->index;
			return k;
		}
		link = &k->same;
	}
	return NULL;
}

static void *take_room(struct tm_thread *t, size_t bytes) {
	size_t units = (bytes + TM_KNOWN_UNIT - 1) / TM_KNOWN_UNIT, all = (t->known_bytes - offsetof(struct tm_knowns, units)) / TM_KNOWN_UNIT;
	size_t from = offsetof(struct tm_knowns, units) + (size_t)TM_KNOWN_UNIT * t->known_used;
	if (t->known_used + units > all || !open_to(t, from + TM_KNOWN_UNIT * units)) return NULL;
	t->known_used += (uint32_t)units;
	return (uint8_t *)t->knowns + from;
}

/* The frames from here inward may be framed. */
static inline uint32_t first_framed(const struct tm_thread *t) {
	return t->framed_low < t->depth ? t->framed_low : t->depth;
}

static inline bool is_framed(const struct tm_thread *t, uint32_t i) {
	return i >= t->framed_low && t->framed[i];
}

/* Beyond the last TM_KNOWN_TOGETHER frames of it a trunk has no pairs. */
static uint32_t common_with(const struct tm_thread *t, const struct tm_trunk *trunk) {
	uint32_t n = 0, most = trunk->depth < t->depth ? trunk->depth : t->depth;
	if (trunk->by_pairs) most -= most % TM_KNOWN_TOGETHER;
	for (; n < most && trunk->frames[n].slot == t->sps[n] && trunk->frames[n].pc == t->pcs[n]; n++) {
		if (is_framed(t, n) != (trunk->by_pairs && is_framed_in(trunk, n))) break;
		if (is_framed(t, n) && tm_trunk_pairs(trunk)[n].next != t->pairs[n].next) break;
	}
	return n;
}

static void put_pairs(const struct tm_thread *t, struct tm_trunk *trunk) {
	uint32_t depth = t->depth - t->depth % TM_KNOWN_TOGETHER;
	struct tm_pair *pairs = (struct tm_pair *)(trunk->frames + t->depth);
	uint16_t *passed_over = (uint16_t *)(pairs + depth);
	memset(passed_over, 0, depth / TM_KNOWN_TOGETHER * sizeof *passed_over);
	for (uint32_t i = 0; i < depth; i++) {
		pairs[i] = (struct tm_pair){ is_framed(t, i) ? t->pairs[i].next : 0, t->pcs[i] };
		if (!is_framed(t, i)) passed_over[i / TM_KNOWN_TOGETHER] |= (uint16_t)(TM_KNOWN_BELOW << 4 * (i % TM_KNOWN_TOGETHER));
	}
}

/* The last trunk if much of the stack is in it, else one of the stack's own. NULL: there is no room. */
static struct tm_trunk *trunk_for(struct tm_thread *t, uint32_t *depth) {
	struct tm_trunk *trunk = t->known_trunk;
	*depth = trunk ? common_with(t, trunk) : 0;
	if (trunk && *depth >= t->depth / TRUNK_PART) return trunk;
	bool by_pairs = first_framed(t) < t->depth && memchr(t->framed + t->framed_low, 1, t->depth - t->framed_low);
	size_t pair_bytes = sizeof(struct tm_pair) * t->depth + sizeof(uint16_t) * (t->depth / TM_KNOWN_TOGETHER);
	trunk = take_room(t, sizeof *trunk + sizeof trunk->frames[0] * t->depth + (by_pairs ? pair_bytes : 0));
	if (!trunk) return NULL;
	*depth = trunk->depth = t->depth;
	trunk->by_pairs = by_pairs;
	for (uint32_t i = 0; i < t->depth; i++) trunk->frames[i] = (struct tm_trunk_frame){ t->sps[i], t->pcs[i] };
	if (by_pairs) put_pairs(t, trunk);
	return t->known_trunk = trunk;
}

/* Places are told as 32 bits. */
static bool is_in_reach(uintptr_t at, uintptr_t slot) {
	return at >= slot - 8 && (at - (slot - 8)) / 8 <= UINT32_MAX && at % 8 == 0;
}

static bool can_be_known(const struct tm_thread *t) {
	uintptr_t slot = t->sps[t->depth - 1];
	for (uint32_t i = 0; i < t->check_count; i++) {
		const struct tm_check *c = &t->checks[i];
		if (!is_in_reach(c->slot, slot) || TM_UNWIND_WORD(c->slot) != c->value) return false;
	}
	for (uint32_t i = first_framed(t); i < t->depth; i++)
		if (t->framed[i] && TM_UNWIND_WORD(t->sps[i] - 8) != t->pairs[i].next) return false;
	return is_in_reach(t->sps[0], slot);
}

/* Where the words of a known one are put. */
struct writer {
	uintptr_t *value;
	uint32_t *place;
	struct tm_known_about *about;
	uintptr_t base;
};

static void put_word(struct writer *w, uintptr_t at, uintptr_t value) {
	*w->value++ = value;
	*w->place++ = (uint32_t)((at - w->base) / 8);
}

static void put_word_about(struct writer *w, uintptr_t at, uintptr_t value, uint32_t frame, uint32_t until) {
	put_word(w, at, value);
	*w->about++ = (struct tm_known_about){ frame, until };
}

static void put_words(const struct tm_thread *t, struct tm_known *k) {
	uintptr_t *values = (uintptr_t *)(k + 1), slot = t->sps[t->depth - 1];
	struct writer w = { values, (uint32_t *)(values + k->words), about_of(k), slot - 8 };
	for (uint32_t i = t->depth; i-- > k->trunk_depth;) put_word(&w, t->sps[i], t->pcs[i]);
	for (const struct tm_check *c = t->checks, *end = c + k->check_count; c < end; c++) put_word_about(&w, c->slot, c->value, c->frame, c->until);
	for (uint32_t i = k->trunk_depth; i < t->depth; i++)
		if (is_framed(t, i)) put_word_about(&w, t->sps[i] - 8, t->pairs[i].next, i, 0);
	while (w.value < values + k->words) put_word(&w, slot, values[0]);
}

/* The stack becomes a known one. NULL: there is no room. */
static struct tm_known *learn(struct tm_thread *t, uint32_t hash) {
	uint32_t trunk_depth, depth = t->depth, framed = 0;
	if (!t->known_used) t->known_used = sizeof(struct tm_known) / TM_KNOWN_UNIT + 1; /* nobody's */
	struct tm_trunk *trunk = trunk_for(t, &trunk_depth);
	if (!trunk) return NULL;
	if (trunk_depth == depth) trunk_depth--; /* one word is its own at least */
	trunk_depth -= trunk_depth % TM_KNOWN_TOGETHER;
	for (uint32_t i = trunk_depth; i < depth; i++) framed += is_framed(t, i);
	uint32_t no_frames = t->check_count + framed, words = depth - trunk_depth + no_frames;
	words = (words + TM_KNOWN_TOGETHER - 1) / TM_KNOWN_TOGETHER * TM_KNOWN_TOGETHER;
	struct tm_known *k = take_room(t, sizeof *k + words * (sizeof(uintptr_t) + sizeof(uint32_t)) + no_frames * sizeof(struct tm_known_about));
	if (!k || words > UINT16_MAX) return NULL;
	*k = (struct tm_known){
		.word = tm_ring_word(0, TM_RING_KNOWN | (t->cut_frame == UINT32_MAX ? 0 : TM_RING_CUT), 0, t->known_count, 0),
		.trunk = trunk,
		.index = (uint16_t)(((uint8_t *)k - t->knowns->units) / TM_KNOWN_UNIT),
		.trunk_depth = (uint16_t)trunk_depth,
		.depth = (uint16_t)depth,
		.words = (uint16_t)words,
		.check_count = (uint16_t)t->check_count,
		.framed_count = (uint16_t)framed,
		.hash = hash,
	};
	put_words(t, k);
	uint16_t *head = head_of(t->knowns, t->sps[depth - 1], t->pcs[depth - 1]);
	k->same = *head;
	atomic_signal_fence(memory_order_seq_cst);
	k->slot = t->sps[depth - 1];
	atomic_signal_fence(memory_order_seq_cst);
	*head = k->index;
	t->known_count++;
	t->known_frames += depth;
	return k;
}

/* After some that were not known: are enough, or will they be? If not, none are for a while. */
static void look_at_use(struct tm_thread *t) {
	bool of_use = t->known_hits >= OF_USE * LOOK_EVERY_MISSES, return_often = t->known_returns >= LOOK_EVERY_MISSES / 2;
	t->known_hits = t->known_misses = t->known_returns = 0;
	t->known_looks = of_use ? 0 : t->known_looks + 1;
	if (of_use) t->known_wait /= 2;
	if (of_use || t->known_looks < (return_often ? LOOKS_AT_RETURNS : LOOKS)) return;
	t->known_looks = 0;
	t->known_wait = t->known_wait < WAIT_FIRST ? WAIT_FIRST : t->known_wait < WAIT_MOST ? 2 * t->known_wait : WAIT_MOST;
	t->known_wait_left = t->known_wait;
	tm_known_forget(t);
}

static bool is_fit(const struct tm_thread *t) {
	bool has_end = t->cut_frame == UINT32_MAX || t->by_frame_pointers;
	return t->remembered && !t->after_loss && !t->truncated && has_end && t->depth <= UINT16_MAX;
}

TM_REALIGN uint64_t tm_known_note_now(struct tm_thread *t, uint64_t taken) {
	if (!is_fit(t) || !begin(t)) return taken;
	expect_nobody(t);
	if (++t->known_misses == LOOK_EVERY_MISSES) look_at_use(t);
	if (t->known_wait_left) return taken;
	uint32_t hash = hash_of_stack(t);
	enum come come = note_that_it_came(t, hash);
	t->known_returns += come != COME_NEW;
	if (come != COME_OFTEN) return taken;
	struct tm_known *k = find_far(t, hash);
	if (k) {
		t->known = k;
		return k->word;
	}
	if (!can_be_known(t)) return taken;
	if (t->known_count < TM_RING_KNOWN_MOST && t->known_frames + t->depth <= tm_ring_known_frames(t->number)) k = learn(t, hash);
	if (!k) {
		tm_known_forget(t);
		return taken;
	}
	tm_known_go_on(t, k);
	return taken | tm_ring_word(0, t->known_count == 1 ? TM_RING_LEARN | TM_RING_LEARN_FIRST : TM_RING_LEARN, 0, 0, 0);
}
