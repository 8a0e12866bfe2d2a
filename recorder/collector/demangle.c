/* demangle.c - C++ and Rust symbols to readable names.
 *
 * libiberty does the work and hands out the text in pieces. Two things are done here so that no symbol can harm us:
 *
 *   length   substitutions let a symbol of 200 bytes expand to gigabytes, so we leave libiberty (it holds no memory on this way) by longjmp
 *            once enough text has come;
 *   depth    libiberty recurses. Its own limit refuses every C++ symbol above 1,024 bytes, and templates of numeric libraries have many
 *            of these. So short symbols are demangled under that limit, longer ones without it on a stack that is large enough for
 *            any symbol of TM_DEMANGLE_INPUT_MAX_BYTES.
 */
#include "recorder/collector/demangle.h"

#include <libiberty/demangle.h>
#include <pthread.h>
#include <setjmp.h>
#include <string.h>

/* Measured on the worst symbols of tests/unit/test_demangle.c: less than 1 KiB of stack for a byte of symbol. */
#define DEEP_STACK_BYTES ((size_t)64 << 20)
#define LIBIBERTY_LIMIT_BYTES 1024
#define CXX_OPTIONS (DMGL_PARAMS | DMGL_ANSI)

struct demangling {
	const char *symbol;
	struct tm_bytes *out;
	jmp_buf full;
	int options;
	int done; /* 1: out holds the name */
};

bool tm_demangle_is_mangled(const char *symbol) {
	return strncmp(symbol, "_Z", 2) == 0 || strncmp(symbol, "_R", 2) == 0;
}

static void take(const char *text, size_t n, void *opaque) {
	struct demangling *d = opaque;
	size_t room = TM_DEMANGLE_MAX_BYTES - d->out->size;
	tm_put_raw(d->out, text, n < room ? n : room);
	if (n > room || d->out->failed) longjmp(d->full, 1);
}

static void demangle_cxx(struct demangling *d) {
	if (setjmp(d->full)) {
		tm_put_raw(d->out, "...", 3);
		d->done = 1;
		return;
	}
	d->done = cplus_demangle_v3_callback(d->symbol, d->options, take, d);
}

static void demangle_rust(struct demangling *d) {
	if (setjmp(d->full)) {
		tm_put_raw(d->out, "...", 3);
		d->done = 1;
		return;
	}
	d->done = rust_demangle_callback(d->symbol, DMGL_PARAMS, take, d);
}

static void *deep_thread(void *opaque) {
	demangle_cxx(opaque);
	return NULL;
}

static void demangle_deep(struct demangling *d) {
	pthread_attr_t attributes;
	pthread_t thread;
	if (pthread_attr_init(&attributes)) return;
	d->options |= DMGL_NO_RECURSE_LIMIT;
	if (!pthread_attr_setstacksize(&attributes, DEEP_STACK_BYTES) && !pthread_create(&thread, &attributes, deep_thread, d))
		pthread_join(thread, NULL);
	pthread_attr_destroy(&attributes);
}

/* Rust's older scheme looks like C++, so Rust is asked first; it refuses what does not end in its hash. */
static bool demangle(struct tm_bytes *out, const char *symbol) {
	struct demangling d = { .symbol = symbol, .out = out, .options = CXX_OPTIONS };
	size_t length = strlen(symbol);
	demangle_rust(&d);
	if (d.done || symbol[1] != 'Z') return d.done;
	tm_bytes_clear(out);
	if (length <= LIBIBERTY_LIMIT_BYTES) demangle_cxx(&d);
	else if (length <= TM_DEMANGLE_INPUT_MAX_BYTES) demangle_deep(&d);
	return d.done;
}

/* One part of a compiler's suffix behind its dot: a number or a word of the list. */
static bool is_suffix_part(const char *part, size_t n) {
	static const char *const words[] = { "constprop", "isra", "part", "cold", "lto_priv", "localalias", "llvm", "__uniq" };
	if (n && strspn(part, "0123456789") >= n) return true;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strlen(words[i]) == n && !memcmp(words[i], part, n)) return true;
	return false;
}

/* The length of the symbol without version and compiler's suffix. */
static size_t base_length(const char *symbol) {
	size_t length = strlen(symbol);
	const char *at = strchr(symbol, '@');
	if (at && at != symbol) length = (size_t)(at - symbol);
	const char *dot = length ? memchr(symbol + 1, '.', length - 1) : NULL;
	for (const char *part = dot; part && part < symbol + length;) {
		const char *next = memchr(part + 1, '.', (size_t)(symbol + length - part - 1));
		if (!next) next = symbol + length;
		if (!is_suffix_part(part + 1, (size_t)(next - part - 1))) return length;
		part = next;
	}
	return dot ? (size_t)(dot - symbol) : length;
}

const char *tm_demangle(struct tm_bytes *out, const char *symbol) {
	struct tm_bytes base = TM_BYTES_INIT;
	tm_bytes_clear(out);
	tm_put_raw(&base, symbol, base_length(symbol));
	tm_put_u8(&base, 0);
	if (base.failed) return NULL;
	if (!tm_demangle_is_mangled((const char *)base.data) || !demangle(out, (const char *)base.data) || !out->size) {
		size_t n = base.size - 1;
		tm_bytes_clear(out);
		tm_put_raw(out, base.data, n < TM_DEMANGLE_MAX_BYTES ? n : TM_DEMANGLE_MAX_BYTES);
		if (n > TM_DEMANGLE_MAX_BYTES) tm_put_raw(out, "...", 3);
	}
	tm_bytes_release(&base);
	tm_put_u8(out, 0);
	if (out->failed) return NULL;
	out->size--;
	return (const char *)out->data;
}
