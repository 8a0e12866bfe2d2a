/* report_page.c - one file of the page's sources, the report's text and its data.
 *
 * report/page.html has comments <!--@NAME--> where a part belongs. The data are base64 of gzip of JSON: no name in them can end the
 * element that holds them. The page's policy forbids every connection, and every script that does not carry this file's own random
 * number.
 */
#include "report_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zlib.h>

#include "json_text.h"
#include "report_html.h"
#include "report_text.h"
#include "talk.h"

/* report/NAME, made by the Makefile. */
extern const char tm_page_html[], tm_page_css[], tm_data_js[], tm_chart_js[], tm_flame_js[], tm_tables_js[], tm_page_js[];

#define NAME_BYTES_FIRST 400
#define KEYS_LEAST 50

static int no_memory(const struct tm_report *r) {
	return tm_fail("cannot report on '%s': out of memory", r->d->path);
}

/* --- data --- */

static void put_base64(struct tm_bytes *out, const uint8_t *data, size_t n) {
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	if (!tm_bytes_reserve(out, (n + 2) / 3 * 4)) return;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t three = (uint32_t)data[i] << 16 | (i + 1 < n ? (uint32_t)data[i + 1] << 8 : 0) | (i + 2 < n ? data[i + 2] : 0);
		char four[4] = { digits[three >> 18], digits[three >> 12 & 63], i + 1 < n ? digits[three >> 6 & 63] : '=',
				 i + 2 < n ? digits[three & 63] : '=' };
		tm_put_raw(out, four, 4);
	}
}

/* false: out of memory. */
static bool compress_data(const struct tm_bytes *json, struct tm_bytes *packed) {
	z_stream z = { 0 };
	if (json->failed || deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return false;
	bool fits = tm_bytes_reserve(packed, deflateBound(&z, json->size));
	if (fits) {
		z.next_in = json->data;
		z.avail_in = (uInt)json->size;
		z.next_out = packed->data;
		z.avail_out = (uInt)packed->capacity;
		fits = deflate(&z, Z_FINISH) == Z_STREAM_END;
		packed->size = z.total_out;
	}
	deflateEnd(&z);
	return fits;
}

/* As many call stacks as there is room for. */
static int put_data(struct tm_report *r, struct tm_bytes *out, size_t room) {
	size_t keys = r->shown_keys, name_bytes = NAME_BYTES_FIRST;
	for (;;) {
		struct tm_bytes json = TM_BYTES_INIT, packed = TM_BYTES_INIT;
		int status = tm_report_data(r, &json, keys, name_bytes);
		bool is_packed = !status && compress_data(&json, &packed);
		size_t size = (packed.size + 2) / 3 * 4;
		tm_bytes_release(&json);
		bool fits = size <= room || keys <= KEYS_LEAST;
		if (is_packed && fits) put_base64(out, packed.data, packed.size);
		tm_bytes_release(&packed);
		if (status || !is_packed) return status ? status : no_memory(r);
		if (fits) return 0;
		/* What is left out is nearly in proportion; a little less than that leaves room for what is not. */
		size_t next = (size_t)((double)keys * 0.9 * (double)room / (double)size);
		keys = next < keys * 3 / 4 ? next : keys * 3 / 4;
		if (keys < KEYS_LEAST) keys = KEYS_LEAST;
		name_bytes = name_bytes > 200 ? name_bytes / 2 : name_bytes;
	}
}

/* --- parts --- */

static int put_style(struct tm_report *r, struct tm_bytes *out) {
	(void)r;
	tm_html(out, tm_page_css);
	return 0;
}

static int put_script(struct tm_report *r, struct tm_bytes *out) {
	(void)r;
	tm_html(out, tm_data_js);
	tm_html(out, tm_chart_js);
	tm_html(out, tm_flame_js);
	tm_html(out, tm_tables_js);
	tm_html(out, tm_page_js);
	return 0;
}

static int put_followed(struct tm_report *r, struct tm_bytes *out) {
	tm_put_format(out, "%zu", r->grid.count);
	return 0;
}

static const struct {
	const char *name;
	int (*put)(struct tm_report *r, struct tm_bytes *out);
} parts[] = {
	{ "style", put_style },           { "script", put_script },
	{ "title", tm_report_title },     { "head", tm_report_head },
	{ "verdict", tm_report_verdict }, { "scopes", tm_report_scopes },
	{ "leaks", tm_report_leaks },     { "steps", tm_report_steps },
	{ "sizes", tm_report_sizes },     { "lifetimes", tm_report_lifetimes },
	{ "heaps", tm_report_heaps },     { "ooms", tm_report_ooms },
	{ "lost", tm_report_lost },       { "points", put_followed },
	{ "times", tm_report_times },
};

static int put_part(struct tm_report *r, struct tm_bytes *out, const char *name, size_t n, const char *nonce) {
	if (n == 5 && memcmp(name, "nonce", n) == 0) {
		tm_html(out, nonce);
		return 0;
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (strlen(parts[i].name) == n && memcmp(parts[i].name, name, n) == 0) return parts[i].put(r, out);
	}
	return 0;
}

#define PART_BEGIN "<!--@"
#define PART_END "-->"

/* From the template up to the part of this name, which stays; NULL: to its end. *text moves on. */
static int put_until(struct tm_report *r, struct tm_bytes *out, const char **text, const char *name, const char *nonce) {
	const char *part;
	while ((part = strstr(*text, PART_BEGIN))) {
		const char *begin = part + strlen(PART_BEGIN), *end = strstr(begin, PART_END);
		if (!end) break;
		tm_put_raw(out, *text, (size_t)(part - *text));
		*text = end + strlen(PART_END);
		size_t n = (size_t)(end - begin);
		if (name && strlen(name) == n && memcmp(begin, name, n) == 0) return 0;
		int status = put_part(r, out, begin, n, nonce);
		if (status) return status;
	}
	tm_html(out, *text);
	return 0;
}

int tm_report_page(struct tm_report *r, struct tm_bytes *out) {
	const char *text = tm_page_html;
	uint8_t random[16];
	char nonce[2 * sizeof(random) + 1];
	struct tm_bytes tail = TM_BYTES_INIT;
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return tm_fail("cannot report on '%s': %s", r->d->path, strerror(errno));
	for (size_t i = 0; i < sizeof(random); i++) snprintf(nonce + 2 * i, 3, "%02x", random[i]);
	int status = put_until(r, out, &text, "data", nonce);
	if (!status) status = put_until(r, &tail, &text, NULL, nonce);
	size_t used = out->size + tail.size;
	if (!status) status = put_data(r, out, used < TM_REPORT_FILE_BYTES ? TM_REPORT_FILE_BYTES - used : 0);
	tm_put_raw(out, tail.data, tail.size);
	if (!status && (out->failed || tail.failed)) status = no_memory(r);
	tm_bytes_release(&tail);
	return status;
}
