/* bulk.c - rows into a table of an SQLite file as finished pages; see bulk.h.
 *
 *     level 1    [1|40] [2|80] ...       inner pages: a child and the last key under it, for each child but the last
 *     level 0    rows 1..40  41..80      leaves
 *
 * A page that is full is given a number and leaves; its last key goes up. Only the topmost page, which ends at the table's root, and the
 * rightmost page of each level wait until the table is finished. In a table WITHOUT ROWID a row lies once in the tree: the last row of a
 * leaf goes up instead of a copy of its key. An inner page gives up its last cell in the same way, so that none is ever without cells.
 * Of a row that is too long for a page, or of a keyed one for a quarter of a page, the end lies in a chain of pages.
 */
#include "bulk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUT_PAGES 128u
#define COPY_BYTES 16u
#define LOCK_PAGE (0x40000000u / TM_BULK_PAGE_BYTES + 1) /* SQLite locks bytes of this page and never uses it */
#define FILE_HEAD_BYTES 100u
#define VALUES_BYTES ((TM_BULK_COLUMNS_MAX + 1) * 8u) /* of all values but texts, and what tm_bulk_raw() writes too many */
/* Of a record, what lies in its cell where it all does; and at least, where a part lies elsewhere. */
#define TABLE_LOCAL_MAX (TM_BULK_PAGE_BYTES - 35u)
#define INDEX_LOCAL_MAX ((TM_BULK_PAGE_BYTES - 12u) * 64 / 255 - 23)
#define LOCAL_MIN ((TM_BULK_PAGE_BYTES - 12u) * 32 / 255 - 23)
#define KEY_BYTES_MAX (INDEX_LOCAL_MAX + 5 + 4) /* of an index cell, without its child: the record's length, and where it goes on */

/* A page can lose a cell and still has some. */
_Static_assert(4 * (KEY_BYTES_MAX + 4 + 2) < TM_BULK_PAGE_BYTES - 12 + 48, "an index page holds three cells");
_Static_assert(TM_BULK_COLUMNS_MAX + 4 * TM_BULK_TEXTS_MAX < 126, "a record's head is shorter than 128 bytes");

enum page_kind { INDEX_INNER = 2, TABLE_INNER = 5, INDEX_LEAF = 10, TABLE_LEAF = 13 };

static void put16(uint8_t *p, unsigned n) {
	p[0] = (uint8_t)(n >> 8);
	p[1] = (uint8_t)n;
}

static void put32(uint8_t *p, uint32_t n) {
	put16(p, n >> 16);
	put16(p + 2, n & 0xffff);
}

static uint32_t get32(const uint8_t *p) {
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* SQLite's varint: big-endian; the ninth byte would carry 8 bits, which row ids below 2^56 never need. */
static uint8_t *put_varint(uint8_t *p, uint64_t n) {
	unsigned bytes = 1;
	while (n >> 7 * bytes) bytes++;
	for (unsigned i = bytes; i-- > 1;) *p++ = (uint8_t)(n >> 7 * i | 0x80);
	*p++ = (uint8_t)(n & 0x7f);
	return p;
}

static void fail(struct tm_bulk *b, int error) {
	int none = 0;
	atomic_compare_exchange_strong(&b->error, &none, error);
	b->failed = true;
}

/* --- the file --- */

static bool write_at(struct tm_bulk *b, const void *data, size_t n, uint64_t offset) {
	for (size_t done = 0; done < n && !b->failed;) {
		ssize_t wrote = pwrite(b->fd, (const char *)data + done, n - done, (off_t)(offset + done));
		if (wrote > 0) done += (size_t)wrote;
		else if (wrote == 0 || errno != EINTR) fail(b, wrote ? errno : ENOSPC);
	}
	return !b->failed;
}

static uint64_t offset_of(uint32_t page) {
	return (uint64_t)(page - 1) * TM_BULK_PAGE_BYTES;
}

/* Until the thread has nothing to do. */
static void wait_for_writes(struct tm_bulk *b) {
	if (!b->has_thread) return;
	pthread_mutex_lock(&b->lock);
	while (b->sent_bytes) pthread_cond_wait(&b->changed, &b->lock);
	int error = b->sent_error;
	pthread_mutex_unlock(&b->lock);
	if (error) fail(b, error);
}

static void send(struct tm_bulk *b, size_t bytes, uint64_t offset) {
	uint8_t *full = b->out;
	wait_for_writes(b);
	b->out = b->sent;
	b->sent = full;
	pthread_mutex_lock(&b->lock);
	b->sent_bytes = bytes;
	b->sent_offset = offset;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

static void flush(struct tm_bulk *b) {
	size_t bytes = (size_t)b->waiting * TM_BULK_PAGE_BYTES;
	if (bytes && b->has_thread) send(b, bytes, offset_of(b->first));
	else if (bytes) write_at(b, b->out, bytes, offset_of(b->first));
	b->waiting = 0;
}

static void *write_sent(void *argument) {
	struct tm_bulk *b = argument;
	pthread_mutex_lock(&b->lock);
	for (;;) {
		while (!b->sent_bytes && !b->stopping) pthread_cond_wait(&b->changed, &b->lock);
		if (!b->sent_bytes) break;
		struct tm_bulk once = { .fd = b->fd };
		pthread_mutex_unlock(&b->lock);
		write_at(&once, b->sent, b->sent_bytes, b->sent_offset);
		pthread_mutex_lock(&b->lock);
		b->sent_bytes = 0;
		if (!b->sent_error) b->sent_error = once.error;
		pthread_cond_broadcast(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

/* Without a thread pages are written as they come. */
static void start_thread(struct tm_bulk *b) {
	if (b->failed || b->has_thread) return;
	b->stopping = false;
	b->has_thread = pthread_create(&b->thread, NULL, write_sent, b) == 0;
}

static void stop_thread(struct tm_bulk *b) {
	if (!b->has_thread) return;
	wait_for_writes(b);
	pthread_mutex_lock(&b->lock);
	b->stopping = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	b->has_thread = false;
}

static uint32_t append_in_turn(struct tm_bulk *b, const uint8_t *data) {
	if (b->failed) return 0;
	if (b->page_count >= UINT32_MAX - 2) {
		fail(b, EFBIG);
		return 0;
	}
	if (b->page_count + 1 == LOCK_PAGE) {
		flush(b);
		b->page_count++;
	}
	if (b->waiting == OUT_PAGES) flush(b);
	uint32_t number = ++b->page_count;
	if (!b->waiting) b->first = number;
	memcpy(b->out + (size_t)b->waiting++ * TM_BULK_PAGE_BYTES, data, TM_BULK_PAGE_BYTES);
	return number;
}

/* Puts the page on its way; returns its number. */
static uint32_t append_page(struct tm_bulk *b, const uint8_t *data) {
	pthread_mutex_lock(&b->turn);
	uint32_t number = append_in_turn(b, data);
	pthread_mutex_unlock(&b->turn);
	return number;
}

static bool read_at(struct tm_bulk *b, void *data, size_t n, uint64_t offset) {
	ssize_t got = b->failed ? -1 : pread(b->fd, data, n, (off_t)offset);
	if (got < 0) fail(b, errno);
	else if ((size_t)got < n) fail(b, EIO);
	return !b->failed;
}

int tm_bulk_open(struct tm_bulk *b, const char *path) {
	*b = (struct tm_bulk){ .fd = open(path, O_RDWR | O_CLOEXEC) };
	if (b->fd < 0) fail(b, errno);
	pthread_mutex_init(&b->turn, NULL);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	b->out = malloc((size_t)OUT_PAGES * TM_BULK_PAGE_BYTES);
	b->sent = malloc((size_t)OUT_PAGES * TM_BULK_PAGE_BYTES);
	if (!b->out || !b->sent) fail(b, ENOMEM);
	return b->failed ? -1 : 0;
}

void tm_bulk_release(struct tm_bulk *b) {
	stop_thread(b);
	if (b->fd > 0) close(b->fd);
	free(b->out);
	free(b->sent);
	pthread_mutex_destroy(&b->turn);
	pthread_mutex_destroy(&b->lock);
	pthread_cond_destroy(&b->changed);
	*b = (struct tm_bulk){ .fd = -1 };
}

void tm_bulk_begin(struct tm_bulk *b) {
	off_t bytes = b->failed ? 0 : lseek(b->fd, 0, SEEK_END);
	if (bytes < 0) fail(b, errno);
	else b->page_count = (uint32_t)(bytes / TM_BULK_PAGE_BYTES);
	start_thread(b);
}

/* The number of pages and two change counters, which say that it holds. */
void tm_bulk_end(struct tm_bulk *b) {
	uint8_t head[FILE_HEAD_BYTES];
	flush(b);
	stop_thread(b);
	if (!read_at(b, head, sizeof head, 0)) return;
	uint32_t changes = get32(head + 24) + 1;
	put32(head + 24, changes);
	put32(head + 28, b->page_count);
	put32(head + 92, changes);
	write_at(b, head, sizeof head, 0);
}

/* --- the pages of a table --- */

static unsigned head_bytes(unsigned level) {
	return level ? 12 : 8;
}

static enum page_kind kind_of(const struct tm_bulk_table *t, unsigned level) {
	if (t->is_index) return level ? INDEX_INNER : INDEX_LEAF;
	return level ? TABLE_INNER : TABLE_LEAF;
}

static void clear_page(struct tm_bulk_page *p) {
	p->cells = 0;
	p->content = TM_BULK_PAGE_BYTES;
}

/* What lies between the places and the cells is zero, so that no byte of the file depends on what a buffer held before. */
static void complete_page(const struct tm_bulk_table *t, unsigned level) {
	const struct tm_bulk_page *p = &t->pages[level];
	unsigned places_end = head_bytes(level) + 2 * p->cells;
	p->data[0] = (uint8_t)kind_of(t, level);
	put16(p->data + 1, 0);
	put16(p->data + 3, p->cells);
	put16(p->data + 5, p->content);
	p->data[7] = 0;
	memset(p->data + places_end, 0, p->content - places_end);
}

static uint8_t *cell_at(const struct tm_bulk_page *p, unsigned level, unsigned n) {
	const uint8_t *place = p->data + head_bytes(level) + 2 * n;
	return p->data + (place[0] << 8 | place[1]);
}

/* Room for a cell in the page, NULL: it is full. */
static uint8_t *add_cell(struct tm_bulk_page *p, unsigned level, size_t bytes) {
	size_t places_end = head_bytes(level) + 2 * (size_t)p->cells;
	if (p->content < places_end + 2 + bytes) return NULL;
	p->content -= (unsigned)bytes;
	put16(p->data + places_end, p->content);
	p->cells++;
	return p->data + p->content;
}

static bool open_level(struct tm_bulk_table *t, unsigned level) {
	if (level < t->levels) return true;
	uint8_t *data = level < TM_BULK_LEVELS_MAX ? malloc(TM_BULK_PAGE_BYTES) : NULL;
	if (!data) {
		fail(t->bulk, ENOMEM);
		return false;
	}
	t->pages[level].data = data;
	clear_page(&t->pages[level]);
	t->levels++;
	return true;
}

static uint8_t *make_room(struct tm_bulk_table *t, unsigned level, size_t bytes);

/* A cell of an inner page: the child's number and the last key under it. */
static void add_child(struct tm_bulk_table *t, unsigned level, uint32_t child, const uint8_t *key, size_t bytes) {
	uint8_t *cell = open_level(t, level) ? make_room(t, level, 4 + bytes) : NULL;
	if (!cell) return;
	put32(cell, child);
	memcpy(cell + 4, key, bytes);
}

/* The page is full: it leaves, and its last key goes up. */
static void turn_page(struct tm_bulk_table *t, unsigned level) {
	struct tm_bulk_page *p = &t->pages[level];
	uint8_t key[KEY_BYTES_MAX];
	size_t bytes;
	if (level == 0 && !t->is_index) {
		bytes = (size_t)(put_varint(key, t->row_id) - key);
	} else {
		const uint8_t *last = cell_at(p, level, p->cells - 1), *begin = last + (level ? 4 : 0);
		/* Cells were laid down one below the other, so the last one ends where the one before it begins. */
		bytes = (size_t)(cell_at(p, level, p->cells - 2) - begin);
		memcpy(key, begin, bytes);
		if (level) put32(p->data + 8, get32(last));
		p->content = (unsigned)(cell_at(p, level, p->cells - 2) - p->data);
		p->cells--;
	}
	complete_page(t, level);
	uint32_t number = append_page(t->bulk, p->data);
	clear_page(p);
	add_child(t, level + 1, number, key, bytes);
}

static uint8_t *make_room(struct tm_bulk_table *t, unsigned level, size_t bytes) {
	uint8_t *cell = add_cell(&t->pages[level], level, bytes);
	if (cell) return cell;
	turn_page(t, level);
	return t->bulk->failed ? NULL : add_cell(&t->pages[level], level, bytes);
}

/* --- the table --- */

int tm_bulk_table_open(struct tm_bulk_table *t, struct tm_bulk *b, uint32_t root, bool is_index) {
	*t = (struct tm_bulk_table){ .bulk = b, .root = root, .is_index = is_index, .body_room = VALUES_BYTES };
	uint8_t *room = calloc(1, COPY_BYTES + t->body_room);
	if (room) t->at = t->body = room + COPY_BYTES;
	else fail(b, ENOMEM);
	struct tm_bulk_page *leaf = &t->pages[0];
	if (!t->body || !open_level(t, 0) || !read_at(b, leaf->data, TM_BULK_PAGE_BYTES, offset_of(root))) return -1;
	if (leaf->data[0] != kind_of(t, 0)) fail(b, EINVAL);
	leaf->cells = (unsigned)(leaf->data[3] << 8 | leaf->data[4]);
	leaf->content = (unsigned)(leaf->data[5] << 8 | leaf->data[6]);
	return b->failed ? -1 : 0;
}

void tm_bulk_table_release(struct tm_bulk_table *t) {
	for (unsigned i = 0; i < t->levels; i++) free(t->pages[i].data);
	if (t->body) free(t->body - COPY_BYTES);
	t->body = NULL;
	t->levels = 0;
}

void tm_bulk_no_memory(struct tm_bulk_table *t) {
	fail(t->bulk, ENOMEM);
}

void tm_bulk_text(struct tm_bulk_table *t, const char *data, size_t n) {
	size_t used = (size_t)(t->at - t->body);
	if (used + n + VALUES_BYTES > t->body_room) {
		size_t room = 2 * (used + n + VALUES_BYTES);
		uint8_t *grown = realloc(t->body - COPY_BYTES, COPY_BYTES + room);
		if (!grown) return fail(t->bulk, ENOMEM);
		t->body = grown + COPY_BYTES;
		t->body_room = room;
		t->at = t->body + used;
	}
	memcpy(t->at, data, n);
	t->at += n;
	t->type_bytes = (unsigned)(put_varint(t->types + t->type_bytes, 13 + 2 * (uint64_t)n) - t->types);
}

/* Writes the end of a record, which begins in its cell, from the last page to the first; returns the number of this one. */
static uint32_t write_chain(struct tm_bulk *b, const uint8_t *data, size_t bytes) {
	uint8_t page[TM_BULK_PAGE_BYTES];
	uint32_t next = 0;
	for (size_t part_max = sizeof page - 4, left = bytes; left;) {
		size_t part = left % part_max ? left % part_max : part_max;
		left -= part;
		put32(page, next);
		memcpy(page + 4, data + left, part);
		memset(page + 4 + part, 0, part_max - part);
		next = append_page(b, page);
	}
	return next;
}

/* How much of a record lies in its cell, by SQLite's rule. */
static size_t local_bytes(const struct tm_bulk_table *t, size_t record_bytes) {
	size_t max = t->is_index ? INDEX_LOCAL_MAX : TABLE_LOCAL_MAX;
	if (record_bytes <= max) return record_bytes;
	size_t local = LOCAL_MIN + (record_bytes - LOCAL_MIN) % (TM_BULK_PAGE_BYTES - 4);
	return local <= max ? local : LOCAL_MIN;
}

/* Copies n bytes and some before them, both from their ends down: cells are laid down in the same direction, so that what is too much lies where
 * there is nothing yet. */
static uint8_t *copy_down(uint8_t *end, const uint8_t *from_end, size_t n) {
	uint8_t *begin = end - n;
	do {
		end -= COPY_BYTES;
		from_end -= COPY_BYTES;
		memcpy(end, from_end, COPY_BYTES);
	} while (end > begin);
	return begin;
}

/* The usual row: short, and far from filling the page. */
static bool add_short_row(struct tm_bulk_table *t, uint64_t row_id) {
	struct tm_bulk_page *p = &t->pages[0];
	size_t body_bytes = (size_t)(t->at - t->body), record_bytes = 1 + t->type_bytes + body_bytes;
	size_t places_end = head_bytes(0) + 2 * (size_t)p->cells;
	if (record_bytes > 127 || p->content < places_end + 2 + record_bytes + 10 + COPY_BYTES) return false;
	uint8_t *cell = copy_down(p->data + p->content, t->at, body_bytes), id[10];
	cell = copy_down(cell, t->types + t->type_bytes, t->type_bytes);
	*--cell = (uint8_t)(1 + t->type_bytes);
	if (!t->is_index) {
		size_t n = (size_t)(put_varint(id, row_id) - id);
		cell -= n;
		memcpy(cell, id, n);
	}
	*--cell = (uint8_t)record_bytes;
	p->content = (unsigned)(cell - p->data);
	put16(p->data + places_end, p->content);
	p->cells++;
	return true;
}

static void add_row(struct tm_bulk_table *t, uint64_t row_id) {
	uint8_t head[24], *end = head;
	size_t body_bytes = (size_t)(t->at - t->body), types_bytes = 1 + t->type_bytes, record_bytes = types_bytes + body_bytes;
	size_t local = local_bytes(t, record_bytes), chain = record_bytes > local ? 4 : 0;
	uint32_t rest = chain ? write_chain(t->bulk, t->body + local - types_bytes, record_bytes - local) : 0;
	end = put_varint(end, record_bytes);
	if (!t->is_index) end = put_varint(end, row_id);
	*end++ = (uint8_t)types_bytes;
	size_t head_size = (size_t)(end - head);
	uint8_t *cell = t->bulk->failed ? NULL : make_room(t, 0, head_size - 1 + local + chain);
	if (cell) {
		memcpy(cell, head, head_size);
		memcpy(cell + head_size, t->types, t->type_bytes);
		memcpy(cell + head_size + t->type_bytes, t->body, local - types_bytes);
		if (chain) put32(cell + head_size - 1 + local, rest);
	}
}

void tm_bulk_row(struct tm_bulk_table *t, uint64_t row_id) {
	if (!add_short_row(t, row_id)) add_row(t, row_id);
	t->row_id = row_id;
	t->type_bytes = 0;
	t->at = t->body;
}

void tm_bulk_finish(struct tm_bulk_table *t) {
	for (unsigned level = 0; level < t->levels && !t->bulk->failed; level++) {
		complete_page(t, level);
		if (level + 1 == t->levels) write_at(t->bulk, t->pages[level].data, TM_BULK_PAGE_BYTES, offset_of(t->root));
		else put32(t->pages[level + 1].data + 8, append_page(t->bulk, t->pages[level].data));
	}
}
