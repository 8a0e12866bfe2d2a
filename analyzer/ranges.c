/* ranges.c - what a process has mapped; see ranges.h.
 *
 * A treap: a binary tree by address whose nodes are also a heap by a random priority, so that it stays balanced whatever the order of
 * insertions. Splitting it at the two ends of a hole leaves the touched ranges in a tree of their own.
 */
#include "ranges.h"

#include <stdlib.h>

struct tm_range_node {
	struct tm_range range;
	uint64_t priority;
	struct tm_range_node *left, *right;
};

static uint64_t next_random(struct tm_ranges *r) { /* splitmix64 */
	uint64_t x = r->random += 0x9E3779B97F4A7C15ull;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ x >> 27) * 0x94D049BB133111EBull;
	return x ^ x >> 31;
}

/* Everything in left lies before everything in right. */
static struct tm_range_node *merge(struct tm_range_node *left, struct tm_range_node *right) {
	if (!left) return right;
	if (!right) return left;
	if (left->priority > right->priority) {
		left->right = merge(left->right, right);
		return left;
	}
	right->left = merge(left, right->left);
	return right;
}

/* Ranges that begin below `limit` go to *left, the others to *right; with by_end it is their end that has to be at or below it. */
static void split(struct tm_range_node *node, uint64_t limit, bool by_end, struct tm_range_node **left, struct tm_range_node **right) {
	if (!node) {
		*left = *right = NULL;
	} else if (by_end ? node->range.end <= limit : node->range.block.address < limit) {
		*left = node;
		split(node->right, limit, by_end, &node->right, right);
	} else {
		*right = node;
		split(node->left, limit, by_end, left, &node->left);
	}
}

static void free_tree(struct tm_range_node *node) {
	if (!node) return;
	free_tree(node->left);
	free_tree(node->right);
	free(node);
}

void tm_ranges_release(struct tm_ranges *r) {
	free_tree(r->root);
	r->root = NULL;
}

static void append(struct tm_ranges *r, struct tm_range_node **tree, const struct tm_range *range) {
	struct tm_range_node *node = malloc(sizeof *node);
	if (!node) {
		r->failed = true;
		return;
	}
	*node = (struct tm_range_node){ .range = *range, .priority = next_random(r) };
	*tree = merge(*tree, node);
}

void tm_ranges_insert(struct tm_ranges *r, const struct tm_range *range) {
	struct tm_range_node *left, *right;
	if (range->end <= range->block.address) return;
	split(r->root, range->block.address, false, &left, &right);
	append(r, &left, range);
	r->root = merge(left, right);
}

/* The part of a range that lies in [start, end). */
static struct tm_range part_of(const struct tm_range *whole, uint64_t start, uint64_t end) {
	struct tm_range part = *whole;
	uint64_t requested_end = whole->block.address + whole->block.size_bytes;
	if (start < whole->block.address) start = whole->block.address;
	if (end > whole->end) end = whole->end;
	if (requested_end > end) requested_end = end;
	part.block.address = start;
	part.block.size_bytes = requested_end > start ? requested_end - start : 0;
	part.end = end;
	return part;
}

struct cut {
	struct tm_ranges *r;
	uint64_t start, end, before_ns;
	tm_range_sink *sink;
	void *context;
	struct tm_range_node *kept; /* what lives on, in order */
};

static void cut_range(struct cut *c, const struct tm_range *whole) {
	if (whole->block.alloc_ns > c->before_ns) {
		append(c->r, &c->kept, whole);
		return;
	}
	bool before = whole->block.address<c->start, after = whole->end> c->end;
	struct tm_range part = part_of(whole, c->start, c->end);
	part.split |= before || after;
	uint64_t row = c->sink(c->context, &part, (unsigned)before + (unsigned)after);
	struct tm_range rest = *whole;
	rest.split = true;
	rest.block.realloc_of = row;
	struct tm_range first = part_of(&rest, 0, c->start), last = part_of(&rest, c->end, UINT64_MAX);
	if (before) append(c->r, &c->kept, &first);
	if (after) append(c->r, &c->kept, &last);
}

static void cut_tree(struct cut *c, const struct tm_range_node *node) {
	if (!node) return;
	cut_tree(c, node->left);
	cut_range(c, &node->range);
	cut_tree(c, node->right);
}

void tm_ranges_cut(struct tm_ranges *r, uint64_t start, uint64_t end, uint64_t before_ns, tm_range_sink *sink, void *context) {
	struct tm_range_node *left, *touched, *right;
	if (end <= start) return;
	split(r->root, start, true, &left, &right);
	split(right, end, false, &touched, &right);
	struct cut c = { r, start, end, before_ns, sink, context, NULL };
	cut_tree(&c, touched);
	free_tree(touched);
	r->root = merge(merge(left, c.kept), right);
}

const struct tm_range *tm_ranges_at(const struct tm_ranges *r, uint64_t address) {
	const struct tm_range_node *node = r->root;
	while (node && (address < node->range.block.address || address >= node->range.end))
		node = address < node->range.block.address ? node->left : node->right;
	return node ? &node->range : NULL;
}

static void each(const struct tm_range_node *node, void (*visit)(void *, const struct tm_range *), void *context) {
	if (!node) return;
	each(node->left, visit, context);
	visit(context, &node->range);
	each(node->right, visit, context);
}

void tm_ranges_each(const struct tm_ranges *r, void (*visit)(void *, const struct tm_range *), void *context) {
	each(r->root, visit, context);
}
