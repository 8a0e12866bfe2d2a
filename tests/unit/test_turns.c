/* test_turns.c - stacks that are found with one look, and the same stacks found frame by frame.
 *
 * Goal:    the short cuts for the usual record (tm_ring_stack_turn, tm_ring_stack_known) give exactly the node that the long way gives, whatever came
 *          before it in the ring: native and Python stacks, frames that run Python among the new ones, deep and flat, unsound addresses, stacks that
 *          were learned and come by their number, numbers that begin anew or were never given, libraries that come and go, a stretch that was lost.
 * Method:  rings of one process get the same random records; one takes the short cut where there is one, another never, and a third gets each stack as a
 *          whole. Their tree is one, so the nodes must be the same numbers; and the frames of native stacks are compared with those that were put in. The
 *          seed is printed.
 */
#include "../../recorder/collector/collector.h"
#include "../../recorder/collector/controls.h"
#include "../../recorder/collector/drain.h"
#include "check.h"

#include <stdlib.h>

#define DEPTH_MAX 60u
#define PYTHON_MAX 20u
#define EVAL 0x5000u /* as wide as 0x100 */

static struct tm_collector c;
static struct tm_process process = { .id = 1 };
static struct tm_module library = { .process = 1, .low = 0x1000, .high = 0x1028 };
static uint64_t turned, taken, known_at_once, known;
#define LEARNED_MAX 40u

struct pair {
	struct tm_ring_view quick, slow, whole;
	uint64_t pcs[DEPTH_MAX]; /* outermost first */
	uint64_t python[PYTHON_MAX];
	size_t depth, python_depth;
	bool has_python;
	struct {
		uint64_t pcs[DEPTH_MAX];
		size_t depth;
	} learned[LEARNED_MAX]; /* by number */
	size_t learned_count;
	bool learned_lost; /* until numbers begin anew */
};

/* Few addresses, so that the same stacks come again; some run Python. */
static uint64_t random_pc(struct check_random *r, bool python) {
	if (python && !check_random_below(r, 12)) return EVAL + 1 + check_random_below(r, 3);
	return 0x1000 + check_random_below(r, 6) * 16;
}

static void check_native(const struct pair *p, uint32_t stack) {
	size_t at = p->depth;
	for (uint32_t node = stack; node; node = c.stacks.nodes[node - 1].parent) {
		if (!CHECK(at-- > 0)) return;
		if (!CHECK(c.stacks.frames[c.stacks.nodes[node - 1].frame - 1].address == p->pcs[at])) return;
	}
	CHECK(at == 0);
}

static void lose_both(struct pair *p) {
	tm_ring_stack_lose(&p->quick);
	tm_ring_stack_lose(&p->slow);
	tm_ring_stack_lose(&p->whole);
	p->depth = p->python_depth = 0;
	p->learned_lost = true;
}

static uint32_t take_whole(struct pair *p, unsigned flags) {
	uint64_t words[DEPTH_MAX];
	uint32_t stack = 0;
	for (size_t i = 0; i < p->python_depth; i++) words[i] = p->python[p->python_depth - 1 - i];
	if (p->python_depth) CHECK(tm_python_take_stack(&p->whole, 0, words, p->python_depth));
	CHECK(tm_ring_stack_take(&c, &p->whole, flags, 0, p->pcs, p->depth, &stack));
	return stack;
}

/* A stack that was learned comes again. */
static void take_known(struct check_random *r, struct pair *p) {
	bool python = p->has_python && check_random_below(r, 8);
	size_t number = check_random_below(r, check_random_below(r, 200) ? p->learned_count : p->learned_count + 3);
	unsigned flags = TM_RING_KNOWN | (python ? TM_RING_PYTHON : 0);
	uint64_t word = tm_ring_word(TM_OP_MALLOC, flags, TM_RING_ALLOC_WORDS, (unsigned)number, TM_RING_USABLE_UNKNOWN);
	uint32_t quick = tm_ring_stack_known(&p->quick, word), slow = 0;
	bool sound = quick || tm_ring_stack_take(&c, &p->quick, flags, number, NULL, 0, &quick);
	known++;
	known_at_once += quick != 0 && p->quick.known.current;
	CHECK(tm_ring_stack_take(&c, &p->slow, flags, number, NULL, 0, &slow) == sound);
	CHECK(sound == (p->learned_lost || number < p->learned_count));
	CHECK(quick == slow);
	if (!sound) {
		lose_both(p);
		return;
	}
	if (p->learned_lost || !p->learned[number].depth) { /* and what the next record would keep is not known */
		CHECK(quick == 0);
		p->depth = 0;
		return;
	}
	p->depth = p->learned[number].depth;
	memcpy(p->pcs, p->learned[number].pcs, sizeof p->pcs);
	if (!python) check_native(p, quick);
	CHECK(take_whole(p, flags & TM_RING_PYTHON) == quick);
}

static unsigned flags_of_learning(struct check_random *r, const struct pair *p) {
	if (check_random_below(r, 10)) return 0;
	bool first = !p->learned_count || p->learned_count == LEARNED_MAX || !check_random_below(r, p->learned_lost ? 4 : 60);
	return TM_RING_LEARN | (first ? TM_RING_LEARN_FIRST : 0);
}

static void learned(struct pair *p, unsigned flags) {
	if (flags & TM_RING_LEARN_FIRST) p->learned_count = p->learned_lost = 0;
	if (!(flags & TM_RING_LEARN) || p->learned_lost) return;
	p->learned[p->learned_count].depth = p->depth;
	memcpy(p->learned[p->learned_count++].pcs, p->pcs, sizeof p->pcs);
}

static void take(struct check_random *r, struct pair *p) {
	if (p->learned_count && !check_random_below(r, 3)) {
		take_known(r, p);
		return;
	}
	bool python = p->has_python && check_random_below(r, 8);
	size_t inner = p->depth < 4 ? p->depth : 4, keep = check_random_below(r, p->depth + 1);
	if (check_random_below(r, 3)) keep = p->depth - check_random_below(r, inner + 1);
	size_t fresh = check_random_below(r, check_random_below(r, 6) ? 5 : 14);
	uint64_t pcs[16 + TM_RING_TURN_WORDS] = { 0 };
	uint32_t quick = 0, slow = 0;
	if (keep + fresh > DEPTH_MAX) keep = DEPTH_MAX - fresh < p->depth ? DEPTH_MAX - fresh : p->depth;
	if (!keep && !fresh) return;
	for (size_t i = 0; i < fresh + TM_RING_TURN_WORDS; i++) pcs[i] = random_pc(r, p->has_python);
	unsigned flags = (python ? TM_RING_PYTHON : 0) | flags_of_learning(r, p);
	if (!check_random_below(r, 300) && fresh) pcs[check_random_below(r, fresh)] = TM_ADDRESS_LIMIT;
	uint64_t word = tm_ring_word(TM_OP_MALLOC, flags, (unsigned)(TM_RING_ALLOC_WORDS + fresh), (unsigned)keep, TM_RING_USABLE_UNKNOWN);
	quick = tm_ring_stack_turn(&c, &p->quick, word, pcs);
	turned += quick != 0;
	taken++;
	bool sound = quick || tm_ring_stack_take(&c, &p->quick, flags, keep, pcs, fresh, &quick);
	CHECK(tm_ring_stack_take(&c, &p->slow, flags, keep, pcs, fresh, &slow) == sound);
	CHECK(quick == slow);
	if (!sound) { /* a reader skips what is left of the ring */
		lose_both(p);
		return;
	}
	for (size_t i = 0; i < fresh; i++) p->pcs[keep + i] = pcs[i];
	p->depth = keep + fresh;
	learned(p, flags);
	if (!python) check_native(p, quick);
	CHECK(take_whole(p, flags & TM_RING_PYTHON) == quick);
}

static void take_python(struct check_random *r, struct pair *p) {
	uint64_t words[8];
	size_t keep = check_random_below(r, p->python_depth + 1), n = 1 + check_random_below(r, 3);
	for (size_t i = 0; i < n; i++) words[i] = check_random_below(r, 4) | check_random_below(r, 3) << 32 | check_random_below(r, 2) << 63;
	if (keep + n > PYTHON_MAX) keep = 0;
	CHECK(tm_python_take_stack(&p->quick, keep, words, n) && tm_python_take_stack(&p->slow, keep, words, n));
	for (size_t i = 0; i < n; i++) p->python[keep + n - 1 - i] = words[i];
	p->python_depth = keep + n;
}

static void view_start(struct tm_ring_view *v, bool has_python) {
	*v = (struct tm_ring_view){ .process = &process, .path_known = true, .tid = 2, .pid = 1 };
	v->python.known = true;
	if (!has_python) return;
	tm_python_take_run(&c, v, true, EVAL, EVAL + 0x100);
	for (uint64_t i = 0; i < 4; i++) tm_python_take_code(&c, v, i, 10 * i | (uint64_t)TM_PYTHON_LNOTAB << 32, 4, "a.pyfun", 7);
}

static void view_end(struct tm_ring_view *v) {
	free(v->pcs);
	free(v->path);
	free(v->known.stacks);
	free(v->known.pcs);
	tm_python_ring_release(&v->python);
}

/* A library comes or goes, at some of the addresses. */
static void change_modules(struct pair *p) {
	static uint32_t id = 1;
	process.modules.ids = &id;
	process.modules.count = !process.modules.count;
	process.modules.epoch++;
	tm_module_order_check_stack(&p->quick);
	tm_module_order_check_stack(&p->slow);
	tm_module_order_check_stack(&p->whole);
}

static void test_rings(struct check_random *r, bool has_python) {
	static struct pair p;
	p = (struct pair){ .has_python = has_python };
	view_start(&p.quick, has_python);
	view_start(&p.slow, has_python);
	view_start(&p.whole, has_python);
	for (int i = 0; i < 3000; i++) {
		if (has_python && !check_random_below(r, 15)) take_python(r, &p);
		if (!check_random_below(r, 100)) change_modules(&p);
		if (!check_random_below(r, 500)) lose_both(&p);
		take(r, &p);
	}
	view_end(&p.quick);
	view_end(&p.slow);
	view_end(&p.whole);
}

int main(void) {
	struct check_random r = check_random_start("turns");
	c.group = calloc(1, sizeof *c.group);
	process.modules.epoch = 1;
	c.modules.all = &library;
	c.modules.count = 1;
	tm_stack_tree_init(&c.stacks);
	for (int i = 0; i < 40; i++) test_rings(&r, i % 2);
	printf("turns: %llu of %llu records; known: %llu of %llu at once\n", (unsigned long long)turned, (unsigned long long)taken,
	       (unsigned long long)known_at_once, (unsigned long long)known);
	CHECK(turned > taken / 8 && known_at_once > known / 4);
	tm_group_release(c.group);
	tm_stack_tree_release(&c.stacks);
	tm_python_stacks_release(&c.python);
	tm_interned_release(&c);
	return check_report("turns");
}
