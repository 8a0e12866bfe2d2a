/* help_text.c - help as it is written, or as wide as the terminal is; see help_text.h. */
#include "help_text.h"

#include <stdbool.h>
#include <string.h>

#include "json_text.h"
#include "render.h"

#define FLOWS_FROM 60 /* a line as wide as this goes on in the next one, unless it ends a sentence */
#define LEAST_ROOM 24 /* beside what a text explains; else it begins below */
#define BELOW 6

struct help_line {
	const char *text;
	size_t bytes, lead, left, hang; /* lead: spaces in front; left: what is explained ends; hang: the text begins that goes on below */
	bool is_command, is_entry;      /* entry: a word and, behind two spaces, what it means */
};

static struct help_line help_line_at(const char *text) {
	struct help_line l = { .text = text, .bytes = strcspn(text, "\n"), .lead = strspn(text, " ") };
	l.hang = l.lead;
	for (size_t i = l.lead + 1; i + 2 < l.bytes && !l.is_entry; i++) {
		if (strncmp(text + i, "  ", 2) != 0) continue;
		l.left = i;
		l.hang = i + strspn(text + i, " ");
		l.is_entry = true;
	}
	l.is_command = l.lead && strncmp(text + l.lead, "tidemark ", 9) == 0 && !l.is_entry;
	return l;
}

static bool goes_on(const struct help_line *before, const struct help_line *l) {
	char last = before->bytes ? before->text[before->bytes - 1] : '.';
	return before->bytes >= FLOWS_FROM && last != '.' && last != ':' && !before->is_command && !l->is_command && !l->is_entry &&
	       l->lead == before->hang;
}

static size_t begin_line(struct tm_bytes *out, size_t indent) {
	tm_put_format(out, "\n%*s", (int)indent, "");
	return indent;
}

/* One word; where it is wider than a line its alternatives go on in the next one: --by=stack|site| */
static size_t put_word(struct tm_bytes *out, const char *text, size_t n, size_t used, size_t indent, size_t width) {
	for (size_t piece; used + n > width; text += piece, n -= piece) {
		piece = used < width ? width - used : 0;
		while (piece && text[piece - 1] != '|') piece--;
		if (!piece) break;
		tm_put_raw(out, text, piece);
		used = begin_line(out, indent < BELOW ? BELOW : indent);
	}
	tm_put_raw(out, text, n);
	return used + n;
}

/* `used`: of the line that the words go on in; returns that of their last one. */
static size_t put_words(struct tm_bytes *out, const char *text, const char *end, size_t used, size_t indent, size_t width) {
	for (size_t n; text < end; text += n + strspn(text + n, " ")) {
		n = strcspn(text, " \n");
		if (used > indent && used + 1 + n > width) used = begin_line(out, indent);
		else if (used > indent) tm_put_format(out, " ");
		used = put_word(out, text, n, used + (used > indent), indent, width);
	}
	return used;
}

static void put_help(struct tm_bytes *out, const char *text, size_t width) {
	struct help_line before = { 0 };
	size_t used = 0, indent = 0;
	for (; *text; text += before.bytes + (text[before.bytes] == '\n')) {
		struct help_line l = help_line_at(text);
		const char *words = l.text + l.hang;
		if (!goes_on(&before, &l)) {
			if (before.text) begin_line(out, 0);
			used = indent = l.hang + LEAST_ROOM > width ? BELOW : l.hang;
			if (indent == l.hang || !l.is_entry) tm_put_raw(out, l.text, indent);
			else tm_put_raw(out, l.text, l.left);
			if (indent != l.hang && l.is_entry) begin_line(out, indent);
		}
		if (l.is_command) tm_put_raw(out, words, l.bytes - l.hang);
		else used = put_words(out, words, l.text + l.bytes, used, indent, width);
		l.hang = goes_on(&before, &l) ? before.hang : l.hang;
		before = l;
	}
	tm_put_raw(out, "\n", 1);
}

static size_t widest_line(const char *text) {
	size_t widest = 0;
	for (; *text; text += strspn(text, "\n")) {
		size_t n = strcspn(text, "\n");
		if (n > widest) widest = n;
		text += n;
	}
	return widest;
}

void tm_print_help(const char *text) {
	struct tm_bytes out = TM_BYTES_INIT;
	if (tm_must_fit() && widest_line(text) > tm_terminal_width()) put_help(&out, text, tm_terminal_width());
	if (out.failed || !out.size) tm_write_output(text, strlen(text)); /* tm_finish_output() says what failed */
	else tm_write_output(out.data, out.size);
	tm_bytes_release(&out);
}
