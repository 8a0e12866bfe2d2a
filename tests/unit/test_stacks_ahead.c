/* test_stacks_ahead.c - analyzer/stacks_ahead.c: chunks in the order of the file, some of them left out, some damaged, and a catalog that is read with it. */
#include "../../analyzer/catalog.h"
#include "../../analyzer/stacks_ahead.h"

#include "check.h"

#include <fcntl.h>
#include <unistd.h>

#define CHUNKS 9u
#define NODES 40000u      /* of each */
#define FRAMES 50u        /* all in the first */
#define LARGE (2u << 20)  /* of a chunk of a kind that nobody knows: the file is one that is worth a thread */

static char path[] = "/tmp/tidemark-stacks-ahead-XXXXXX";
static uint64_t offsets[CHUNKS];
static struct tm_node tree[CHUNKS * NODES]; /* node n at n - 1 */

static void write_all(int fd, const void *data, size_t n) {
	CHECK(write(fd, data, n) == (ssize_t)n);
}

static uint64_t put_chunk(int fd, struct tm_packer *p, uint8_t kind, const struct tm_bytes *raw) {
	uint64_t at = (uint64_t)lseek(fd, 0, SEEK_CUR);
	CHECK(tm_pack(p, kind, raw->data, raw->size) == 0);
	write_all(fd, p->out.data, p->out.size);
	return at;
}

/* malformed: the chunk whose last byte of content is missing, behind a sound checksum; CHUNKS: none. */
static void write_trace(struct check_random *random, unsigned malformed) {
	int fd = open(path, O_WRONLY | O_TRUNC);
	uint8_t head[TM_FILE_HEADER_BYTES];
	struct tm_packer p;
	struct tm_bytes raw = { 0 };
	struct tm_frame frames[FRAMES] = { 0 };
	CHECK(fd >= 0 && tm_packer_init(&p, 1) == 0);
	tm_file_header_write(head);
	write_all(fd, head, sizeof head);
	for (size_t i = 0; i < CHUNKS * NODES; i++)
		tree[i] = (struct tm_node){ .parent = check_random_next(random) % (i + 1), .frame = 1 + check_random_next(random) % FRAMES };
	for (unsigned k = 0; k < CHUNKS; k++) {
		tm_bytes_clear(&raw);
		tm_put_stacks(&raw, 1, frames, k ? 0 : FRAMES, 1 + k * NODES, tree + k * NODES, NODES);
		if (k == malformed) raw.size--;
		offsets[k] = put_chunk(fd, &p, TM_CHUNK_STACKS, &raw);
		if (k % 4 != 1) continue; /* others stand between them */
		tm_bytes_clear(&raw);
		for (unsigned i = 0; i < LARGE / 8 / 4; i++) {
			uint64_t word = check_random_next(random);
			tm_put_raw(&raw, &word, sizeof word);
		}
		for (int i = 0; i < 4; i++) put_chunk(fd, &p, 200, &raw);
	}
	close(fd);
	tm_bytes_release(&raw);
	tm_packer_release(&p);
}

static void damage(uint64_t offset) {
	int fd = open(path, O_RDWR);
	uint8_t byte = 0;
	CHECK(fd >= 0 && pread(fd, &byte, 1, (off_t)offset) == 1);
	byte ^= 1;
	CHECK(pwrite(fd, &byte, 1, (off_t)offset) == 1);
	close(fd);
}

static struct tm_stacks_ahead *start(struct tm_reader *r) {
	char error[256];
	CHECK(tm_reader_open(r, path, error, sizeof error) == 0);
	struct tm_stacks_ahead *a = tm_stacks_ahead_start(r);
	CHECK(a != NULL);
	return a;
}

static void check_nodes(const struct tm_stacks *s, unsigned chunk) {
	CHECK(s->first_node == 1 + chunk * NODES && s->node_count == NODES && s->frame_count == (chunk ? 0 : FRAMES));
	CHECK(!memcmp(s->nodes, tree + chunk * NODES, NODES * sizeof *s->nodes));
}

/* step: every so manyth chunk is asked for; most: and no more than so many. */
static void take_some(unsigned step, unsigned most) {
	struct tm_reader r;
	struct tm_stacks_ahead *a = start(&r);
	const struct tm_stacks *s = NULL;
	for (unsigned k = 0, n = 0; k < CHUNKS && n < most; k += step, n++) {
		if (CHECK(tm_stacks_ahead_take(a, offsets[k], &s) == 1)) check_nodes(s, k);
		CHECK(tm_stacks_ahead_take(a, offsets[k] + 1, &s) == 0); /* none is there, and what comes next is not lost by it */
	}
	if (most >= CHUNKS) CHECK(tm_stacks_ahead_take(a, UINT64_MAX, &s) == 0);
	tm_stacks_ahead_stop(a);
	tm_reader_release(&r);
}

/* The whole file by the catalog. Returns its result; nodes: that it is to have where all is sound. */
static int read_all(uint64_t *damaged, uint64_t limit, size_t nodes) {
	struct tm_reader r;
	struct tm_catalog c = { 0 };
	char error[256];
	CHECK(tm_reader_open(&r, path, error, sizeof error) == 0);
	*damaged = 0;
	int rc = tm_catalog_read(&c, &r, limit, damaged, NULL, NULL, NULL, NULL);
	if (rc == TM_CATALOG_OK) {
		CHECK(c.nodes.count == nodes && c.frames.count == FRAMES);
		for (size_t i = 0; i < c.nodes.count; i++)
			if (c.nodes.items[i].parent != tree[i].parent || c.nodes.items[i].frame != tree[i].frame) {
				CHECK(!"each node is the one that was written");
				break;
			}
	}
	tm_catalog_release(&c);
	tm_reader_release(&r);
	return rc;
}

int main(void) {
	struct check_random random = check_random_start("stacks_ahead");
	struct tm_reader r;
	const struct tm_stacks *s;
	uint64_t damaged;
	close(mkstemp(path));

	write_trace(&random, CHUNKS);
	for (unsigned step = 1; step <= 4; step++) take_some(step, CHUNKS);
	for (unsigned most = 0; most < CHUNKS; most++) take_some(1, most);
	CHECK(read_all(&damaged, UINT64_MAX, CHUNKS * NODES) == TM_CATALOG_OK);
	CHECK(read_all(&damaged, offsets[5], 5 * NODES) == TM_CATALOG_OK);

	/* A checksum that is wrong: the taker finds that out itself, and those behind it are still there. */
	damage(offsets[3] + TM_CHUNK_HEADER_BYTES + 100);
	struct tm_stacks_ahead *a = start(&r);
	CHECK(tm_stacks_ahead_take(a, offsets[2], &s) == 1);
	CHECK(tm_stacks_ahead_take(a, offsets[3], &s) == 0);
	if (CHECK(tm_stacks_ahead_take(a, offsets[4], &s) == 1)) check_nodes(s, 4);
	tm_stacks_ahead_stop(a);
	tm_reader_release(&r);
	CHECK(read_all(&damaged, UINT64_MAX, 3 * NODES) == TM_CATALOG_OK);

	/* A header that is: nothing behind it is found. */
	damage(offsets[2] + 4);
	a = start(&r);
	CHECK(tm_stacks_ahead_take(a, offsets[1], &s) == 1);
	CHECK(tm_stacks_ahead_take(a, offsets[2], &s) == 0);
	CHECK(tm_stacks_ahead_take(a, offsets[4], &s) == 0);
	tm_stacks_ahead_stop(a);
	tm_reader_release(&r);
	CHECK(read_all(&damaged, UINT64_MAX, 2 * NODES) == TM_CATALOG_OK);

	/* Content that does not parse, with the right checksum. */
	write_trace(&random, 6);
	a = start(&r);
	CHECK(tm_stacks_ahead_take(a, offsets[6], &s) == -1);
	if (CHECK(tm_stacks_ahead_take(a, offsets[7], &s) == 1)) check_nodes(s, 7);
	tm_stacks_ahead_stop(a);
	tm_reader_release(&r);
	CHECK(read_all(&damaged, UINT64_MAX, 0) == TM_CATALOG_DAMAGED && damaged == offsets[6]);
	CHECK(read_all(&damaged, damaged, 6 * NODES) == TM_CATALOG_OK);

	tm_stacks_ahead_stop(NULL);
	unlink(path);
	return check_report("stacks_ahead");
}
