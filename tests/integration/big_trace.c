/* big_trace.c - writes a trace of any size: so many events, so many live blocks, such a tree of stacks.
 *
 *     big_trace FILE EVENTS LIVE NODES THREADS [PID [SCOPES [SITE_EVERY]]]
 *
 * Method: a pool of LIVE slots; each step picks one at random, frees its block if it has one and allocates another there, on the next thread
 *         in turn, so that blocks are freed by other threads than those that made them. Standard output says in one line what the
 *         database must say: allocations, bytes allocated, blocks live at the end, highest live bytes.
 */
#include "../../schema/chunk.h"
#include "../../schema/events.h"
#include "../../schema/records.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_EVENTS (256u << 10)
#define CHUNK_NODES (16u << 10)
#define DEPTH 40u
#define STEP_NS 37u
#define SITE_EVERY 3u /* if not told: one node in three allocates, as in compilers and PyTorch */

struct writer {
	FILE *file;
	struct tm_packer packer;
	struct tm_encoder *encoder;
	uint64_t chunks, events;
};

struct block {
	uint64_t address, size;
};

struct pool {
	struct block *blocks;
	uint64_t site_every;          /* one node in so many allocates */
	uint64_t scope_every, scopes; /* one event in so many opens or closes a scope, 0 none; how many did */
	unsigned depth[64];
	uint64_t live_count, ns, allocations, allocated_bytes, live_bytes, peak_bytes, live, nodes, seed;
};

static uint64_t next_random(uint64_t *seed) { /* splitmix64 */
	uint64_t z = *seed += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static void need(int kept, const char *what) {
	if (kept) return;
	fprintf(stderr, "big_trace: %s\n", what);
	exit(1);
}

static void put_chunk(struct writer *w, uint8_t kind, struct tm_bytes *payload) {
	need(!payload->failed && tm_pack(&w->packer, kind, payload->data, payload->size) == 0, "out of memory");
	need(fwrite(w->packer.out.data, w->packer.out.size, 1, w->file) == 1, "cannot write");
	tm_bytes_clear(payload);
	w->chunks++;
}

static void write_processes(struct writer *w, unsigned threads, uint64_t pid) {
	struct tm_bytes b = TM_BYTES_INIT;
	tm_put_info(&b, tm_text_of("start_unix_ns"), tm_text_of("1700000000000000000"));
	tm_put_process_start(&b, &(struct tm_process_start){ .id = 1,
							     .pid = pid,
							     .rank = -1,
							     .local_rank = -1,
							     .world_size = -1,
							     .exe = tm_text_of("/bin/big"),
							     .command = tm_text_of("big"),
							     .host = tm_text_of("node") });
	tm_put_module_load(&b, &(struct tm_module_load){ .id = 1,
							 .process = 1,
							 .bias = 0x400000,
							 .low = 0x400000,
							 .size_bytes = 1u << 30,
							 .path = tm_text_of("/bin/big"),
							 .build_id = tm_text_of("") });
	for (unsigned i = 1; i <= threads; i++)
		tm_put_thread_start(&b, &(struct tm_thread_start){ .id = i, .process = 1, .tid = 1000 + i });
	put_chunk(w, TM_CHUNK_META, &b);
	tm_bytes_release(&b);
}

/* Stacks of up to DEPTH frames: a run of nodes goes inward, the next run branches off somewhere. */
static uint64_t write_stacks(struct writer *w, uint64_t count, uint64_t *seed) {
	uint64_t frame_count = count / 16 + 1;
	struct tm_frame *frames = calloc(frame_count, sizeof *frames);
	struct tm_node *nodes = calloc(count + 1, sizeof *nodes);
	uint8_t *depth = calloc(count + 1, 1);
	struct tm_bytes b = TM_BYTES_INIT;
	need(frames && nodes && depth, "out of memory");
	for (uint64_t i = 0; i < frame_count; i++) frames[i] = (struct tm_frame){ TM_FRAME_NATIVE, 1, 1, 0x400000 + i * 64 };
	for (uint64_t i = 1; i <= count; i++) {
		uint64_t parent = depth[i - 1] < DEPTH && next_random(seed) % 8 ? i - 1 : next_random(seed) % i;
		if (depth[parent] >= DEPTH) parent = 0;
		depth[i] = (uint8_t)(depth[parent] + 1);
		nodes[i - 1] = (struct tm_node){ parent, 1 + next_random(seed) % frame_count };
	}
	tm_put_stacks(&b, 1, frames, frame_count, 1, nodes, 0);
	put_chunk(w, TM_CHUNK_STACKS, &b);
	for (uint64_t first = 0; first < count; first += CHUNK_NODES) {
		tm_put_stacks(&b, frame_count + 1, NULL, 0, first + 1, nodes + first,
			      count - first < CHUNK_NODES ? count - first : CHUNK_NODES);
		put_chunk(w, TM_CHUNK_STACKS, &b);
	}
	tm_bytes_release(&b);
	free(frames);
	free(nodes);
	free(depth);
	return frame_count;
}

static void write_names(struct writer *w, uint64_t frame_count) {
	struct tm_bytes b = TM_BYTES_INIT;
	char name[64];
	for (uint64_t i = 1; i <= frame_count; i++) {
		snprintf(name, sizeof name, "name_space::function_%llu(int)", (unsigned long long)i);
		tm_put_string_record(&b, i, tm_text_of(name));
		tm_put_name(&b, i, &(struct tm_function){ .function = i }, 1);
		if (b.size > 1u << 20) put_chunk(w, TM_CHUNK_NAMES, &b);
	}
	put_chunk(w, TM_CHUNK_NAMES, &b);
	tm_bytes_release(&b);
}

static void free_block(struct pool *p, struct block *b, struct tm_event *e) {
	*e = (struct tm_event){ .time_ns = p->ns, .begin_ns = p->ns, .old = b->address, .usable = TM_USABLE_UNKNOWN, .op = TM_OP_FREE };
	p->live_bytes -= b->size;
	p->live_count--;
	b->address = 0;
}

static void make_block(struct pool *p, uint64_t slot, struct tm_event *e) {
	struct block *b = &p->blocks[slot];
	uint64_t random = next_random(&p->seed);
	*b = (struct block){ 0x7f0000000000u + (slot * 4 + random % 4) * 1024, 16 + (random >> 8) % 500 };
	*e = (struct tm_event){ .time_ns = p->ns,
				.begin_ns = p->ns,
				.addr = b->address,
				.size = b->size,
				.usable = tm_usable_default(b->size),
				.stack = (uint32_t)(p->nodes ? (random >> 20) % p->nodes / p->site_every * p->site_every + 1 : 0),
				.op = TM_OP_MALLOC };
	p->allocations++;
	p->allocated_bytes += b->size;
	p->live_bytes += b->size;
	p->live_count++;
	if (p->live_bytes > p->peak_bytes) p->peak_bytes = p->live_bytes;
}

/* Opens a range, or closes the innermost one: up to four lie in each other, as PyTorch's operators do. */
static void scope_event(struct pool *p, unsigned thread, struct tm_event *e) {
	uint64_t random = next_random(&p->seed);
	bool opens = !p->depth[thread] || (p->depth[thread] < 4 && random % 2);
	uint64_t key = 1 + thread * 8 + (opens ? p->depth[thread]++ : --p->depth[thread]);
	*e = (struct tm_event){ .time_ns = p->ns,
				.begin_ns = p->ns,
				.addr = key,
				.usable = TM_USABLE_UNKNOWN,
				.text = opens ? (uint32_t)(1 + (random >> 8) % (p->nodes < 1600 ? p->nodes / 16 + 1 : 100)) : 0,
				.op = opens ? TM_OP_SCOPE_RANGE : TM_OP_SCOPE_END };
	p->scopes += opens;
}

/* One chunk: a segment of each thread, which took turns event by event. */
static void write_events(struct writer *w, struct pool *p, uint64_t count, unsigned threads, struct tm_event *events) {
	struct tm_bytes b = TM_BYTES_INIT;
	uint64_t base_ns = p->ns, room = count / threads + 1;
	size_t used[64] = { 0 };
	for (uint64_t done = 0; done < count; done++) {
		unsigned thread = (unsigned)(done % threads);
		struct tm_event *e = &events[thread * room + used[thread]++];
		uint64_t slot = next_random(&p->seed) % p->live;
		p->ns += STEP_NS;
		if (p->scope_every && next_random(&p->seed) % p->scope_every == 0) scope_event(p, thread, e);
		else if (p->blocks[slot].address) free_block(p, &p->blocks[slot], e);
		else make_block(p, slot, e);
	}
	tm_put_events_header(&b, p->ns, threads);
	for (unsigned i = 0; i < threads; i++) tm_encode_segment(w->encoder, &b, i + 1, base_ns, events + i * room, used[i]);
	put_chunk(w, TM_CHUNK_EVENTS, &b);
	tm_bytes_release(&b);
	w->events += count;
}

static void write_end(struct writer *w, uint64_t ns) {
	struct tm_bytes b = TM_BYTES_INIT;
	tm_put_process_exit(&b, &(struct tm_process_exit){ 1, ns });
	tm_put_process_end(&b, &(struct tm_process_end){ 1, ns, TM_END_EXIT, 0 });
	put_chunk(w, TM_CHUNK_META, &b);
	tm_put_totals(&b, &(struct tm_totals){ w->events, w->chunks, ns });
	put_chunk(w, TM_CHUNK_END, &b);
	tm_bytes_release(&b);
}

int main(int argc, char **argv) {
	if (argc < 6) return fprintf(stderr, "usage: big_trace FILE EVENTS LIVE NODES THREADS [PID [SCOPES [SITE_EVERY]]]\n"), 2;
	uint64_t events = strtoull(argv[2], NULL, 10), done = 0;
	unsigned threads = (unsigned)strtoul(argv[5], NULL, 10);
	struct writer w = { .file = fopen(argv[1], "wb"), .encoder = tm_encoder_new() };
	struct pool p = { .live = 2 * strtoull(argv[3], NULL, 10), .nodes = strtoull(argv[4], NULL, 10), .ns = 1000, .seed = 1 };
	need(w.file && w.encoder && tm_packer_init(&w.packer, 1) == 0 && threads && threads <= 64 && p.live, "cannot begin");
	p.site_every = argc > 8 ? strtoull(argv[8], NULL, 10) : SITE_EVERY;
	p.scope_every = argc > 7 ? strtoull(argv[7], NULL, 10) : 0;
	p.blocks = calloc(p.live, sizeof *p.blocks); /* half of the slots are in use at any time */
	struct tm_event *room = calloc(CHUNK_EVENTS + 64, sizeof *room);
	need(p.blocks && room, "out of memory");
	uint8_t header[TM_FILE_HEADER_BYTES];
	tm_file_header_write(header);
	need(fwrite(header, sizeof header, 1, w.file) == 1, "cannot write");
	write_processes(&w, threads, argc > 6 ? strtoull(argv[6], NULL, 10) : 100);
	uint64_t frames = write_stacks(&w, p.nodes, &p.seed);
	for (uint64_t n; done < events; done += n) {
		n = events - done < CHUNK_EVENTS ? events - done : CHUNK_EVENTS;
		write_events(&w, &p, n, threads, room);
	}
	write_names(&w, frames);
	write_end(&w, p.ns + 1);
	need(fclose(w.file) == 0, "cannot write");
	printf("%llu %llu %llu %llu\n", (unsigned long long)p.allocations, (unsigned long long)p.allocated_bytes,
	       (unsigned long long)p.live_count, (unsigned long long)p.peak_bytes);
	tm_packer_release(&w.packer);
	tm_encoder_free(w.encoder);
	free(p.blocks);
	free(room);
	return 0;
}
