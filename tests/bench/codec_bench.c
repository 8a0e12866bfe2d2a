/* codec_bench.c - how fast the events codec is, and how many bytes an event takes.
 *
 * Goal:    a number to look at when the codec changes: events per second on one core and bytes per event, before and after zstd.
 * Method:  codec_bench [EVENTS [SEGMENT_EVENTS [FILE]]]. Without FILE it makes up a stream as programs give it: a few hundred stacks in
 *          loops, temporaries freed at once, long-lived blocks, addresses that come again last in first out. FILE holds struct tm_event as memory
 *          has them. Each figure is the best of several passes; the decoded events are compared with the encoded ones.
 */
#include "../../schema/chunk.h"
#include "../../schema/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PASSES 5
#define CHUNK_RAW_BYTES (256 * 1024)
#define BINS 64
#define BIN_DEPTH 64
#define LIVE_MAX 4096

static uint64_t random_state = 1;

static uint64_t random_next(void) {
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static uint64_t random_below(uint64_t n) {
	return random_next() % n;
}

static double seconds_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the made-up program: an allocator with bins that are last in first out, and loops over call sites ---- */

struct bin {
	uint64_t address[BIN_DEPTH];
	size_t count;
};

struct live_block {
	uint64_t address, size;
};

static struct bin bins[BINS];
static struct live_block live[LIVE_MAX];
static size_t live_count;
static uint64_t heap_end = 0x555555780010, now_ns = 1000;

static size_t bin_of(uint64_t size) {
	return size <= 1000 ? (size + 23) / 16 : 0;
}

static uint64_t take_address(uint64_t size) {
	struct bin *b = &bins[bin_of(size)];
	if (bin_of(size) && b->count) return b->address[--b->count];
	uint64_t address = heap_end;
	heap_end += tm_usable_default(size) + 8;
	return address;
}

static void return_address(const struct live_block *block) {
	struct bin *b = &bins[bin_of(block->size)];
	if (bin_of(block->size) && b->count < BIN_DEPTH) b->address[b->count++] = block->address;
}

static struct tm_event make_alloc(uint32_t site) {
	uint64_t size = site % 5 ? 16 + 8 * (site % 40) : 1 + random_below(300);
	struct live_block *block = &live[live_count++];
	*block = (struct live_block){ take_address(size), size };
	now_ns += 30 + random_below(120);
	return (struct tm_event){ .time_ns = now_ns,
				  .begin_ns = now_ns,
				  .addr = block->address,
				  .size = size,
				  .usable = tm_usable_default(size),
				  .stack = 100 + site * 7,
				  .op = TM_OP_MALLOC };
}

static struct tm_event make_free(void) {
	size_t i = random_below(10) < 7 ? live_count - 1 : random_below(live_count);
	struct live_block block = live[i];
	live[i] = live[--live_count];
	return_address(&block);
	now_ns += 20 + random_below(80);
	return (struct tm_event){
		.time_ns = now_ns, .begin_ns = now_ns, .old = block.address, .usable = TM_USABLE_UNKNOWN, .op = TM_OP_FREE
	};
}

static void make_stream(struct tm_event *events, size_t n) {
	uint32_t loop = 0, step = 0;
	for (size_t i = 0; i < n; i++) {
		if (!random_below(200)) loop = (uint32_t)random_below(30);
		bool frees = live_count == LIVE_MAX || (live_count && random_below(100) < 49);
		events[i] = frees ? make_free() : make_alloc(loop * 10 + step++ % 6);
	}
}

/* ---- measuring ---- */

struct stream {
	struct tm_event *events;
	size_t count, segment_events;
};

static size_t segment_size(const struct stream *s, size_t from) {
	return s->count - from < s->segment_events ? s->count - from : s->segment_events;
}

static double encode_all(struct tm_encoder *e, const struct stream *s, struct tm_bytes *out) {
	double start = seconds_now();
	tm_bytes_clear(out);
	for (size_t i = 0; i < s->count; i += s->segment_events)
		tm_encode_segment(e, out, 1, s->events[i].time_ns, s->events + i, segment_size(s, i));
	return seconds_now() - start;
}

static double decode_all(struct tm_decoder *d, const struct stream *s, const struct tm_bytes *encoded, bool compare) {
	double start = seconds_now();
	struct tm_cursor c = tm_cursor_over(encoded->data, encoded->size);
	struct tm_segment segment;
	for (size_t i = 0; i < s->count; i += segment.count) {
		if (tm_decode_segment(d, &c, &segment) || segment.count != segment_size(s, i)) goto wrong;
		for (size_t k = 0; compare && k < segment.count; k++) {
			const struct tm_event *a = &segment.events[k], *b = &s->events[i + k];
			if (a->time_ns != b->time_ns || a->addr != b->addr || a->old != b->old || a->size != b->size ||
			    a->stack != b->stack)
				goto wrong;
		}
	}
	return seconds_now() - start;
wrong:
	fprintf(stderr, "codec_bench: decoded events differ from the encoded ones\n");
	exit(1);
}

static size_t packed_bytes(const struct tm_bytes *encoded) {
	struct tm_packer p;
	size_t total = 0;
	if (tm_packer_init(&p, 1)) exit(1);
	for (size_t i = 0; i < encoded->size; i += CHUNK_RAW_BYTES) {
		size_t n = encoded->size - i < CHUNK_RAW_BYTES ? encoded->size - i : CHUNK_RAW_BYTES;
		if (tm_pack(&p, TM_CHUNK_EVENTS, encoded->data + i, n)) exit(1);
		total += p.out.size;
	}
	tm_packer_release(&p);
	return total;
}

/* Column by column, which shows where the bytes go. */
static void print_columns(const struct stream *s) {
	static const char *const names[] = { "op", "time", "begin", "heap", "addr", "old", "size", "old_size", "usable", "stack", "text" };
	struct tm_encoder *e = tm_encoder_new();
	struct tm_bytes out = TM_BYTES_INIT, columns[11] = { TM_BYTES_INIT };
	for (size_t i = 0; i < s->count; i += s->segment_events) {
		tm_bytes_clear(&out);
		tm_encode_segment(e, &out, 1, s->events[i].time_ns, s->events + i, segment_size(s, i));
		struct tm_cursor c = tm_cursor_over(out.data, out.size);
		for (int k = 0; k < 3; k++) tm_get_varint(&c);
		for (int k = 0; k < 11; k++) {
			struct tm_text column = tm_get_string(&c);
			tm_put_raw(&columns[k], column.data, column.size);
		}
	}
	for (int k = 0; k < 11; k++) {
		printf("  %-8s %6.3f raw %6.3f packed bytes/event\n", names[k], (double)columns[k].size / (double)s->count,
		       (double)packed_bytes(&columns[k]) / (double)s->count);
		tm_bytes_release(&columns[k]);
	}
	tm_bytes_release(&out);
	tm_encoder_free(e);
}

static void read_stream(struct stream *s, const char *path) {
	FILE *f = fopen(path, "rb");
	if (!f) {
		perror(path);
		exit(1);
	}
	s->count = fread(s->events, sizeof *s->events, s->count, f);
	fclose(f);
}

int main(int argc, char **argv) {
	struct stream s = { NULL, argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000, argc > 2 ? strtoull(argv[2], NULL, 10) : 32768 };
	struct tm_encoder *e = tm_encoder_new();
	struct tm_decoder *d = tm_decoder_new();
	struct tm_bytes out = TM_BYTES_INIT;
	double encode = 1e9, decode = 1e9;
	s.events = calloc(s.count + 1, sizeof *s.events);
	if (!e || !d || !s.events || !s.count || !s.segment_events) return 1;
	if (argc > 3) read_stream(&s, argv[3]);
	else make_stream(s.events, s.count);
	for (int pass = 0; pass < PASSES; pass++) {
		double took = encode_all(e, &s, &out);
		if (took < encode) encode = took;
		took = decode_all(d, &s, &out, false);
		if (took < decode) decode = took;
	}
	decode_all(d, &s, &out, true);
	printf("%zu events in segments of %zu: encode %.1f M events/s, decode %.1f M events/s, %.3f raw %.3f packed bytes/event\n", s.count,
	       s.segment_events, (double)s.count / encode / 1e6, (double)s.count / decode / 1e6, (double)out.size / (double)s.count,
	       (double)packed_bytes(&out) / (double)s.count);
	print_columns(&s);
	tm_bytes_release(&out);
	tm_encoder_free(e);
	tm_decoder_free(d);
	free(s.events);
	return 0;
}
