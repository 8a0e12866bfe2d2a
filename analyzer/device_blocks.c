/* device_blocks.c - the live blocks of one heap of a device by address; see device_blocks.h. A treap of numbers into an array: a block
 * is above those of lower priority, priorities are random, so the tree is about twice as deep as it must be, whatever the order of
 * insertions. */
#include "device_blocks.h"

void tm_device_blocks_release(struct tm_device_blocks *d) {
	tm_array_release(&d->all);
	d->root = d->gone = 0;
}

static struct tm_device_block *at(const struct tm_device_blocks *d, uint32_t n) {
	return &d->all.items[n - 1];
}

/* xorshift32 */
static uint32_t next_random(struct tm_device_blocks *d) {
	uint32_t x = d->random ? d->random : 0x9E3779B9u;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return d->random = x;
}

/* Parts the tree below *from: blocks before the address to *low, the others to *high. */
static void split(struct tm_device_blocks *d, uint32_t n, uint64_t address, uint32_t *low, uint32_t *high) {
	while (n) {
		struct tm_device_block *b = at(d, n);
		if (b->address < address) {
			*low = n;
			low = &b->right;
			n = b->right;
		} else {
			*high = n;
			high = &b->left;
			n = b->left;
		}
	}
	*low = *high = 0;
}

/* All of `low` stand before all of `high`. */
static uint32_t join(struct tm_device_blocks *d, uint32_t low, uint32_t high) {
	uint32_t root = 0, *place = &root;
	while (low && high) {
		if (at(d, low)->priority > at(d, high)->priority) {
			*place = low;
			place = &at(d, low)->right;
			low = *place;
		} else {
			*place = high;
			place = &at(d, high)->left;
			high = *place;
		}
	}
	*place = low ? low : high;
	return root;
}

static uint32_t new_number(struct tm_device_blocks *d) {
	uint32_t n = d->gone;
	if (n) {
		d->gone = at(d, n)->left;
		return n;
	}
	if (d->all.count >= UINT32_MAX || !tm_array_push(&d->all)) return 0;
	return (uint32_t)d->all.count;
}

struct tm_device_block *tm_device_blocks_insert(struct tm_device_blocks *d, uint64_t address, uint64_t size_bytes) {
	uint32_t n = new_number(d), *place = &d->root;
	if (!n) return NULL;
	struct tm_device_block *b = at(d, n);
	uint64_t end = address + size_bytes < address ? UINT64_MAX : address + size_bytes;
	*b = (struct tm_device_block){ .address = address, .end = end, .priority = next_random(d) };
	while (*place && at(d, *place)->priority >= b->priority)
		place = at(d, *place)->address < address ? &at(d, *place)->right : &at(d, *place)->left;
	split(d, *place, address, &b->left, &b->right);
	*place = n;
	return b;
}

struct tm_device_block *tm_device_blocks_find(struct tm_device_blocks *d, uint64_t address) {
	struct tm_device_block *found = NULL;
	for (uint32_t n = d->root; n;) {
		struct tm_device_block *b = at(d, n);
		if (b->address <= address) found = b;
		n = b->address <= address ? b->right : b->left;
	}
	return found && address < found->end ? found : NULL;
}

bool tm_device_blocks_take(struct tm_device_blocks *d, uint64_t address, struct tm_device_block *out) {
	uint32_t *place = &d->root;
	while (*place && at(d, *place)->address != address)
		place = at(d, *place)->address < address ? &at(d, *place)->right : &at(d, *place)->left;
	uint32_t n = *place;
	if (!n) return false;
	struct tm_device_block *b = at(d, n);
	*out = *b;
	*place = join(d, b->left, b->right);
	b->left = d->gone;
	d->gone = n;
	return true;
}

/* Depth is that of a treap: a few dozen. */
static void visit_below(const struct tm_device_blocks *d, uint32_t n, void (*visit)(void *context, const struct tm_device_block *b),
			void *context) {
	if (!n) return;
	visit_below(d, at(d, n)->left, visit, context);
	visit(context, at(d, n));
	visit_below(d, at(d, n)->right, visit, context);
}

void tm_device_blocks_each(const struct tm_device_blocks *d, void (*visit)(void *context, const struct tm_device_block *b), void *context) {
	visit_below(d, d->root, visit, context);
}
