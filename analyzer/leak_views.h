/* leak_views.h - what a call stack is to who looks for leaks: which call site, and what is known about such.
 *
 * Flow:     leak_frames.c -> here -> leaks.c puts sites into groups by their keys
 * Idea:     from the innermost frame outward the site is the innermost Python frame, else the innermost that is no wrapper; the first native one of the
 *           program's own joins it. It depends on nothing but the stack, and takes most of the time that looking for leaks takes: of a large
 *           program a thread finds out the keys of the next sites while those before them are grouped, and whoever of the two needs some that nobody
 *           has begun with does these.
 * Owns:     tm_leak_keys: its memory, 64 KiB, and its thread.
 * Threads:  any may ask for views, at the same time.
 */
#ifndef TIDEMARK_ANALYZER_LEAK_VIEWS_H
#define TIDEMARK_ANALYZER_LEAK_VIEWS_H

#include "leak_frames.h"
#include "sites.h"

struct tm_leak_viewer {
	const struct tm_leak_frames *frames;
	uint64_t *hashes;     /* of strings by id; 0 not yet */
	bool has_python_heap; /* what gives it its arenas is no site of the program's */
};

/* What a stack is: the key of its call site, and what is known about such. */
struct tm_leak_view {
	uint64_t key, caller_key;   /* the latter also tells who called the site */
	struct tm_text caller, own; /* own: the program's function that called the library's, where the site is one of these */
	uint32_t caller_line;       /* 0: not known */
	bool suppressed, by_program, is_module, is_arena, spawns;
};

struct tm_leak_view tm_leak_view_of(const struct tm_leak_viewer *x, uint32_t stack);

/* The keys of all sites that have something live, found out ahead. */
struct tm_leak_keys;

/* NULL: out of memory. Without a thread the keys are found as they are needed. */
struct tm_leak_keys *tm_leak_keys_start(const struct tm_leak_viewer *viewer, const struct tm_sites *sites);
/* Of one that has something live; sites are asked for in the order of their numbers. */
uint64_t tm_leak_key(struct tm_leak_keys *k, size_t site);
void tm_leak_keys_end(struct tm_leak_keys *k);

static inline bool tm_leak_is_live(const struct tm_sites *sites, size_t site) {
	struct tm_amount live = tm_site_amount(sites, (uint32_t)site, TM_SITE_LIVE);
	return live.count || live.bytes;
}

#endif
