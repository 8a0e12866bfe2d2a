/* checkpoints.c - what lets any instant be answered without reading every allocation; see checkpoints.h.
 *
 * A range is two LEB128 numbers: how far its first row lies behind the last range's end (never 0), and how many rows follow the first. A
 * chunk holds whole ranges and ends with a 0 or its own end.
 */
#include "checkpoints.h"

#include "spill.h"

#include <errno.h>
#include <unistd.h>

#define RANGE_BYTES_MAX 20u
#define GAP_ROWS 3u /* reading so many rows in vain costs less than another range */

void tm_checkpoints_init(struct tm_checkpoints *c, const char *beside) {
	*c = (struct tm_checkpoints){ .beside = beside, .fd = -1, .stack_fd = -1 };
}

void tm_checkpoints_release(struct tm_checkpoints *c) {
	tm_array_release(&c->items);
	tm_array_release(&c->next_chunk);
	tm_array_release(&c->stacks);
	if (c->beside && c->fd >= 0) close(c->fd);
	if (c->beside && c->stack_fd >= 0) close(c->stack_fd);
	tm_checkpoints_init(c, c->beside);
}

void tm_checkpoints_take(struct tm_checkpoints *c, uint64_t ns, uint64_t row) {
	struct tm_checkpoint *p = tm_array_push(&c->items);
	if (!p) {
		c->error = ENOMEM;
		return;
	}
	p->ns = c->latest_ns = ns;
	p->row = p->coded = c->latest_row = row;
}

/* Writes the chunk behind the last one of the file. */
static void write_chunk(struct tm_checkpoints *c, struct tm_checkpoint *p) {
	size_t number = c->next_chunk.count;
	uint32_t *next = tm_array_push(&c->next_chunk);
	if (!next) c->error = ENOMEM;
	else if (c->fd < 0 && (c->fd = tm_scratch_open(c->beside)) < 0) c->error = errno;
	if (c->error) return;
	memset(p->chunk + p->used, 0, sizeof p->chunk - p->used);
	ssize_t n = pwrite(c->fd, p->chunk, sizeof p->chunk, (off_t)(number * sizeof p->chunk));
	if (n != (ssize_t)sizeof p->chunk) {
		c->error = n < 0 ? errno : ENOSPC;
		return;
	}
	if (p->final_chunk) c->next_chunk.items[p->final_chunk - 1] = (uint32_t)number + 1;
	else p->first_chunk = (uint32_t)number + 1;
	p->final_chunk = (uint32_t)number + 1;
	p->used = 0;
}

static void put_number(struct tm_checkpoint *p, uint64_t value) {
	for (; value >= 0x80; value >>= 7) p->chunk[p->used++] = (uint8_t)(value | 0x80);
	p->chunk[p->used++] = (uint8_t)value;
}

static void put_range(struct tm_checkpoints *c, struct tm_checkpoint *p) {
	if (!p->first) return;
	if (p->used + RANGE_BYTES_MAX > sizeof p->chunk) write_chunk(c, p);
	if (c->error) return;
	put_number(p, p->first - p->coded);
	put_number(p, p->last - p->first);
	p->coded = p->last;
}

void tm_checkpoints_note(struct tm_checkpoints *c, uint64_t alloc_ns, uint64_t row) {
	size_t low = 0, high = c->items.count - 1; /* the first one with ns > alloc_ns is in [low, high] */
	if (c->error) return;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (c->items.items[middle].ns > alloc_ns) high = middle;
		else low = middle + 1;
	}
	struct tm_checkpoint *p = &c->items.items[low];
	/* No range reaches over a checkpoint, so that those behind one can be told by their first rows. */
	if (p->first > c->latest_row && row - p->last <= 1 + GAP_ROWS) {
		p->last = row;
		return;
	}
	put_range(c, p);
	p->first = p->last = row;
}

void tm_checkpoints_keep_stacks(struct tm_checkpoints *c) {
	struct tm_checkpoint *p = &c->items.items[c->items.count - 1];
	size_t bytes = c->stacks.count * sizeof *c->stacks.items;
	if (c->error) return;
	if (c->stack_fd < 0 && (c->stack_fd = tm_scratch_open(c->beside)) < 0) {
		c->error = errno;
		return;
	}
	ssize_t n = pwrite(c->stack_fd, c->stacks.items, bytes, (off_t)(c->stacks_written * sizeof *c->stacks.items));
	if (n != (ssize_t)bytes) c->error = n < 0 ? errno : ENOSPC;
	p->has_stacks = true;
	p->first_stack = c->stacks_written;
	p->stack_count = c->stacks.count;
	c->stacks_written += c->stacks.count;
	c->stacks.count = 0;
}

static int compare_stacks(const void *a, const void *b) {
	const struct tm_checkpoint_stack *x = a, *y = b;
	if (x->heap != y->heap) return x->heap < y->heap ? -1 : 1;
	return (x->stack > y->stack) - (x->stack < y->stack);
}

void tm_checkpoints_read_stacks(struct tm_checkpoints *c, size_t index) {
	const struct tm_checkpoint *p = &c->items.items[index];
	size_t bytes = p->stack_count * sizeof *c->stacks.items;
	c->stacks.count = 0;
	if (c->error || !p->has_stacks || !p->stack_count) return;
	if (!tm_array_extend(&c->stacks, p->stack_count)) {
		c->error = ENOMEM;
		return;
	}
	ssize_t n = pread(c->stack_fd, c->stacks.items, bytes, (off_t)(p->first_stack * sizeof *c->stacks.items));
	if (n != (ssize_t)bytes) c->error = n < 0 ? errno : EIO;
	else qsort(c->stacks.items, c->stacks.count, sizeof *c->stacks.items, compare_stacks);
}

static uint64_t get_number(const uint8_t **at) {
	uint64_t value = 0;
	for (unsigned shift = 0;; shift += 7) {
		uint8_t byte = *(*at)++;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) return value;
	}
}

/* The ranges of a chunk; *row is the last row before them, and behind them. */
static void read_chunk(const uint8_t *chunk, size_t bytes, uint64_t *row, void (*range)(void *context, uint64_t first, uint64_t last),
		       void *context) {
	for (const uint8_t *at = chunk; at < chunk + bytes && *at;) {
		uint64_t first = *row + get_number(&at);
		*row = first + get_number(&at);
		range(context, first, *row);
	}
}

void tm_checkpoints_each(struct tm_checkpoints *c, size_t index, void (*range)(void *context, uint64_t first, uint64_t last),
			 void *context) {
	struct tm_checkpoint *p = &c->items.items[index];
	uint8_t chunk[TM_CHECKPOINT_CHUNK_BYTES];
	uint64_t row = p->row;
	put_range(c, p);
	p->first = 0;
	for (uint32_t n = p->first_chunk; n && !c->error; n = c->next_chunk.items[n - 1]) {
		ssize_t got = pread(c->fd, chunk, sizeof chunk, (off_t)((uint64_t)(n - 1) * sizeof chunk));
		if (got != (ssize_t)sizeof chunk) c->error = got < 0 ? errno : EIO;
		else read_chunk(chunk, sizeof chunk, &row, range, context);
	}
	if (!c->error) read_chunk(p->chunk, p->used, &row, range, context);
}
