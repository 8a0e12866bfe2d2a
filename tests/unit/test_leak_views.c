/* test_leak_views.c - the keys of many call sites, found out by two threads at once.
 *
 * Method: a tree of one root and one node for each site, whose functions come round in turn, so that it is plain which sites have one key: those of one
 *         function. Many sites and few, some without anything live, whoever asks fast, slow, or not to the end.
 */
#include "check.h"

#include "../../analyzer/leak_views.h"

#include <unistd.h>

#define FUNCTIONS 97u
#define MANY 40123u /* no multiple of what is done at a time */
#define QUIET_FIRST 5000u
#define QUIET_END 9000u

static struct tm_catalog catalog;
static struct tm_stack_ids stacks;
static struct tm_leak_frames frames;

/* Frame 1 is the root's. */
static void make_catalog(void) {
	static char names[FUNCTIONS + 1][8];
	for (uint32_t i = 0; i <= FUNCTIONS; i++) {
		struct tm_text *name = tm_array_push(&catalog.strings);
		struct tm_catalog_function *function = tm_array_push(&catalog.functions);
		struct tm_catalog_frame *frame = tm_array_push(&catalog.frames);
		snprintf(names[i], sizeof names[i], "f%u", i);
		*name = tm_text_of(names[i]);
		*function = (struct tm_catalog_function){ .name = i + 1 };
		*frame = (struct tm_catalog_frame){ .kind = TM_FRAME_NATIVE, .functions = i, .function_count = 1 };
	}
	*(struct tm_catalog_node *)tm_array_push(&catalog.nodes) = (struct tm_catalog_node){ .frame = 1 };
	for (uint32_t i = 0; i < MANY; i++)
		*(struct tm_catalog_node *)tm_array_push(&catalog.nodes) = (struct tm_catalog_node){ .parent = 1, .frame = i % FUNCTIONS + 2 };
	*(struct tm_catalog_process *)tm_array_push(&catalog.processes) = (struct tm_catalog_process){ .defined = true };
}

static bool is_live(uint32_t site) {
	return site % 3 && (site < QUIET_FIRST || site >= QUIET_END);
}

/* Site i is that of row i + 2 of the tree. */
static void make_sites(struct tm_sites *sites, uint32_t count) {
	unsigned failed = 0;
	*sites = (struct tm_sites){ .stacks = MANY + 2 };
	for (uint32_t i = 0; i < count; i++) {
		struct tm_site room, *s = tm_site_open(sites, tm_sites_take(sites, i + 2), &room);
		s->amounts[TM_SITE_ALLOCATED] = (struct tm_amount){ 8, 1 };
		if (is_live(i)) s->amounts[TM_SITE_LIVE] = (struct tm_amount){ 8, 1 };
		failed += !tm_site_close(sites, i, s);
	}
	CHECK(failed == 0);
}

/* Asks for the keys of the first `asked` of so many sites. pause_every: it sleeps before each such site; 0 never. */
static void ask(uint32_t count, uint32_t asked, uint32_t pause_every) {
	struct tm_sites sites;
	struct tm_leak_viewer viewer = { .frames = &frames, .hashes = calloc(catalog.strings.count + 1, sizeof *viewer.hashes) };
	uint64_t keys[FUNCTIONS] = { 0 };
	unsigned wrong = 0, found = 0;
	make_sites(&sites, count);
	struct tm_leak_keys *all = tm_leak_keys_start(&viewer, &sites);
	for (uint32_t i = 0; i < asked; i++) {
		if (!is_live(i)) continue;
		if (pause_every && i % pause_every == 0) usleep(1000);
		uint64_t key = tm_leak_key(all, i), *known = &keys[i % FUNCTIONS];
		if (!*known) found++;
		else if (*known != key) wrong++;
		*known = key;
	}
	tm_leak_keys_end(all);
	CHECK(wrong == 0);
	CHECK(found == (asked < FUNCTIONS ? asked - (asked + 2) / 3 : FUNCTIONS));
	for (uint32_t a = 0; a < FUNCTIONS; a++)
		for (uint32_t b = 0; b < a; b++)
			if (keys[a] && keys[a] == keys[b]) wrong++;
	CHECK(wrong == 0);
	free(viewer.hashes);
	tm_sites_release(&sites);
}

int main(void) {
	make_catalog();
	CHECK(tm_stack_ids_init(&stacks, &catalog) == 0);
	tm_leak_frames_start(&frames, &stacks);
	CHECK(tm_leak_frames_take(&frames, 1));
	ask(50, 50, 0);
	ask(1000, 1000, 0);
	for (unsigned i = 0; i < 5; i++) {
		ask(MANY, MANY, 0);
		ask(MANY, MANY, 1024);
		ask(MANY, MANY, 7001);
		ask(MANY, 20000, 0);
		ask(MANY, 300, 0);
	}
	tm_leak_frames_release(&frames);
	tm_stack_ids_release(&stacks);
	tm_catalog_release(&catalog);
	return check_report("leak_views");
}
