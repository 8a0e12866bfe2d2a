/* render_table.c - rows as a table for a person.
 *
 * The first rows are kept until the widths of the columns are known; from then on rows stream through with these widths: where a number is
 * wider, what stands behind it in its line gives way. A table that is
 * wider than the terminal first wraps its headings, then shortens its widest texts, leaves out columns that say least, shortens texts
 * further, and at last leaves out columns from the right; its last line says which. What room is left may show a bar. Some columns are
 * shown in another way than the query gives them: file and line as one "file:line", a function without a name as module+offset, `level`
 * as the indentation of a command, and under the row, as lines of their own, the `reason` of a score, `evidence`, `why` and `stack`,
 * innermost frame first. Where rows name their values (named_by), a value that is too wide is wrapped.
 */
#include "render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "schema/units.h"
#include "columns.h"
#include "display_text.h"
#include "json_text.h"

#define ROWS_MEASURED 500
#define NARROWEST_TEXT 10
#define SHORT_TEXT 16 /* is kept as long as there are more than COLUMNS_MAIN columns */
#define COLUMNS_MAIN 4
#define READABLE_TEXT 24   /* is kept as long as there are columns that say less */
#define AMPLE_TEXT 40      /* is shortened to this before any heading is wrapped */
#define WIDEST_WHOLE 80    /* of a column whose texts are not shortened: longer ones push the rest of their line */
#define NARROWEST_TITLE 16 /* of a name that cannot be wrapped */
#define TITLE_LINES_MAX 4
#define BAR_WIDTH 24      /* of a time line or histogram */
#define SHARE_NARROWEST 8 /* bars take what room is left */
#define SHARE_WIDEST 40
#define INDENT_MAX 16
#define ROOM_FOR_FIGURES 22
#define GAP "  "

struct table_column {
	int index, line_index; /* in the query; line_index: the line behind a file, or -1 */
	const char *name;
	bool right, estimated;
	bool flexible, left_out, is_empty; /* empty: no row has a value in it */
	enum tm_shorten shorten;
	size_t widest_cell, width, least; /* least: not shortened further, if it is a text */
};

struct table {
	sqlite3_stmt *statement;
	const struct tm_render_plan *plan;
	struct table_column *columns;
	int count, stack_index, reason_index, share_index, module_index, offset_index, level_index, named_by_index,
		estimated_index; /* the indexes are -1 for what the query lacks */
	bool has_changes;
	bool fits;               /* its lines must fit */
	double share_full;       /* the highest value of the share's column */
	double *shares;          /* of each row that is kept */
	size_t share_width;      /* 0: no room */
	struct tm_bytes *cells;  /* ROWS_MEASURED rows of count cells and a block for reason and stack */
	size_t rows;             /* kept in cells */
	int last_shown;          /* column */
	struct tm_bytes line;
	bool line_begun;
	size_t overrun; /* of this line: how much wider its numbers are than their columns, which what stands behind them makes good */
};

static bool is_listed(const char *const *list, const char *name) {
	for (; list && *list; list++) {
		if (strcmp(*list, name) == 0) return true;
	}
	return false;
}

static bool is_change(const char *name) {
	return strncmp(name, "change_", strlen("change_")) == 0;
}

static const char *show_signed_size(sqlite3_int64 bytes, char out[TM_UNIT_TEXT_MAX + 1]) {
	if (bytes >= 0) return tm_format_size((uint64_t)bytes, out);
	out[0] = '-';
	tm_format_size(-(uint64_t)bytes, out + 1);
	return out;
}

static void put_integer(struct tm_bytes *out, sqlite3_int64 n, enum tm_column_kind kind) {
	char text[TM_UNIT_TEXT_MAX + 1];
	switch (kind) {
	case TM_COLUMN_SIZE: tm_put_format(out, "%s", show_signed_size(n, text)); break;
	case TM_COLUMN_COUNT:
		tm_put_format(out, "%s%s", n < 0 ? "-" : "", tm_format_count(n < 0 ? -(uint64_t)n : (uint64_t)n, text));
		break;
	case TM_COLUMN_INSTANT:
		/* Fixed decimals line up, and the text is a time that --at, --from and --to understand. */
		tm_put_format(out, "%.6fs", (double)n / 1e9);
		break;
	case TM_COLUMN_DURATION:
		tm_put_format(out, "%s%s", n < 0 ? "-" : "", tm_format_time(n < 0 ? -(uint64_t)n : (uint64_t)n, text));
		break;
	default: tm_put_format(out, "%lld", (long long)n);
	}
}

static void put_double(struct tm_bytes *out, double number, enum tm_column_kind kind) {
	/* Estimates are not whole numbers; a table shows them as if they were. */
	bool whole = kind == TM_COLUMN_SIZE || kind == TM_COLUMN_COUNT || kind == TM_COLUMN_INSTANT || kind == TM_COLUMN_DURATION;
	if (whole && number > -9e18 && number < 9e18) put_integer(out, (sqlite3_int64)(number < 0 ? number - 0.5 : number + 0.5), kind);
	else if (kind == TM_COLUMN_SHARE) tm_put_format(out, "%.1f%%", 100 * number);
	else tm_put_format(out, "%.4g", number);
}

void tm_render_value(struct tm_bytes *out, sqlite3_stmt *statement, int column, const char *name) {
	switch (sqlite3_column_type(statement, column)) {
	case SQLITE_NULL: tm_put_raw(out, "-", 1); break;
	case SQLITE_INTEGER: put_integer(out, sqlite3_column_int64(statement, column), tm_column_kind(name)); break;
	case SQLITE_FLOAT: put_double(out, sqlite3_column_double(statement, column), tm_column_kind(name)); break;
	case SQLITE_BLOB: tm_put_format(out, "(%d bytes)", sqlite3_column_bytes(statement, column)); break;
	default: {
		const char *text = (const char *)sqlite3_column_text(statement, column);
		tm_display_name(out, text, (size_t)sqlite3_column_bytes(statement, column));
	}
	}
}

static void add_column(struct table *t, int index, const char *name) {
	struct table_column *column = &t->columns[t->count++];
	enum tm_column_kind kind = tm_column_kind(name);
	*column = (struct table_column){ .index = index, .line_index = -1, .name = name };
	if (t->plan->named_by && strcmp(name, "value") == 0) kind = TM_COLUMN_TEXT;
	column->flexible = kind == TM_COLUMN_TEXT || kind == TM_COLUMN_NAME || kind == TM_COLUMN_PATH;
	column->right = !column->flexible;
	column->shorten = kind == TM_COLUMN_PATH ? TM_SHORTEN_START : kind == TM_COLUMN_NAME ? TM_SHORTEN_MIDDLE : TM_SHORTEN_END;
	column->estimated = is_listed(t->plan->estimated, name);
}

static void plan_columns(struct table *t) {
	int n = sqlite3_column_count(t->statement);
	bool is_scored = false;
	for (int i = 0; i < n; i++) is_scored = is_scored || strcmp(sqlite3_column_name(t->statement, i), "score") == 0;
	for (int i = 0; i < n; i++) {
		const char *name = sqlite3_column_name(t->statement, i);
		const char *next = i + 1 < n ? sqlite3_column_name(t->statement, i + 1) : "";
		if (t->plan->bar_column && strcmp(name, t->plan->bar_column) == 0) t->share_index = i;
		if (t->plan->named_by && strcmp(name, t->plan->named_by) == 0) t->named_by_index = i;
		if (t->plan->share_column && isatty(STDOUT_FILENO) && strcmp(name, t->plan->share_column) == 0) t->share_index = i;
		if (strcmp(name, "module") == 0) t->module_index = i;
		if (strcmp(name, "module_offset") == 0) t->offset_index = i;
		if (strcmp(name, "level") == 0) t->level_index = i;
		if (strcmp(name, "estimated") == 0) t->estimated_index = i;
		if (is_listed(t->plan->hidden, name)) continue;
		if (strcmp(name, "stack") == 0) {
			t->stack_index = i;
			continue;
		}
		if ((is_scored && strcmp(name, "reason") == 0) || strcmp(name, "evidence") == 0 || strcmp(name, "why") == 0) {
			t->reason_index = i;
			continue;
		}
		add_column(t, i, name);
		t->has_changes = t->has_changes || is_change(name);
		if (strcmp(name, "file") != 0 || strcmp(next, "line") != 0) continue;
		t->columns[t->count - 1].line_index = ++i;
		t->columns[t->count - 1].name = "file:line";
	}
}

static void put_bar(struct tm_bytes *out, double value, double full, int width) {
	static const char *const parts[] = { "", "\u258F", "\u258E", "\u258D", "\u258C", "\u258B", "\u258A", "\u2589" };
	int eighths = full > 0 && value > 0 ? (int)(value / full * width * 8 + 0.5) : 0;
	if (eighths > width * 8) eighths = width * 8;
	tm_put_raw(out, GAP, strlen(GAP));
	if (!tm_display_unicode()) {
		for (int i = 0; i < (eighths + 4) / 8; i++) tm_put_raw(out, "#", 1);
		return;
	}
	for (int i = 0; i < eighths / 8; i++) tm_put_raw(out, "\u2588", 3);
	tm_put_raw(out, parts[eighths % 8], strlen(parts[eighths % 8]));
}

/* Frames come as main;load;parse and are read best from the innermost on, each on a line of its own. */
static void put_stack(struct table *t, struct tm_bytes *out) {
	struct tm_bytes shown = TM_BYTES_INIT;
	size_t room = t->fits ? tm_terminal_width() - strlen("      ") : SIZE_MAX;
	const char *text = (const char *)sqlite3_column_text(t->statement, t->stack_index);
	const char *end = text ? text + strlen(text) : NULL;
	while (text && end > text) {
		const char *frame = end;
		while (frame > text && frame[-1] != ';') frame--;
		tm_put_raw(out, "\n      ", 7);
		tm_bytes_clear(&shown);
		tm_display_text(&shown, frame, (size_t)(end - frame));
		if (!shown.failed) tm_display_fit(out, (const char *)shown.data, shown.size, room, TM_SHORTEN_MIDDLE);
		end = frame > text ? frame - 1 : text;
	}
	tm_bytes_release(&shown);
}

/* A sentence, wrapped between words. */
static void put_reason(struct table *t, struct tm_bytes *out) {
	const char *text = (const char *)sqlite3_column_text(t->statement, t->reason_index);
	if (!text || !*text) return;
	tm_put_raw(out, "\n    ", 5);
	tm_wrap_words(out, text, 4, 4);
}

/* The module's file name and the offset, for a function without a name; all of a module's together where they are not told apart by it. */
static bool put_module(struct table *t, struct tm_bytes *cell) {
	const char *path = t->module_index < 0 ? NULL : (const char *)sqlite3_column_text(t->statement, t->module_index);
	if (!path || (t->offset_index < 0 && !is_listed(t->plan->hidden, "module"))) return false;
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	tm_display_text(cell, name, strlen(name));
	if (t->offset_index >= 0 && sqlite3_column_type(t->statement, t->offset_index) != SQLITE_NULL)
		tm_put_format(cell, "+0x%llx", (unsigned long long)sqlite3_column_int64(t->statement, t->offset_index));
	return true;
}

static void put_spaces(struct tm_bytes *out, size_t n) {
	while (n--) tm_put_raw(out, " ", 1);
}

static void indent(struct table *t, struct tm_bytes *cell) {
	int level = sqlite3_column_int(t->statement, t->level_index);
	if (level > 0) put_spaces(cell, 2 * (size_t)(level < INDENT_MAX ? level : INDENT_MAX));
}

static void fill_cell(struct table *t, const struct table_column *column, struct tm_bytes *cell) {
	bool is_null = sqlite3_column_type(t->statement, column->index) == SQLITE_NULL;
	if (t->level_index >= 0 && strcmp(column->name, "command") == 0) indent(t, cell);
	if (is_null && strcmp(column->name, "function") == 0 && put_module(t, cell)) return;
	if (is_null && t->plan->null_heap && strcmp(column->name, "heap") == 0) {
		tm_put_raw(cell, t->plan->null_heap, strlen(t->plan->null_heap));
		return;
	}
	bool is_estimate = column->estimated && (t->estimated_index < 0 || sqlite3_column_int(t->statement, t->estimated_index));
	if (is_estimate && !is_null) tm_put_raw(cell, "~", 1);
	const char *name = column->line_index < 0 ? column->name : "file";
	if (t->plan->value_as && strcmp(name, "value") == 0) name = t->plan->value_as;
	if (t->named_by_index >= 0 && strcmp(name, "value") == 0) name = (const char *)sqlite3_column_text(t->statement, t->named_by_index);
	tm_render_value(cell, t->statement, column->index, name ? name : "");
	if (column->line_index < 0 || is_null || sqlite3_column_type(t->statement, column->line_index) == SQLITE_NULL) return;
	tm_put_format(cell, ":%lld", (long long)sqlite3_column_int64(t->statement, column->line_index));
}

static struct tm_bytes *row_cells(struct table *t, size_t row) {
	return t->cells + row * (size_t)(t->count + 1);
}

static void fill_row(struct table *t, struct tm_bytes *cells) {
	for (int i = 0; i <= t->count; i++) tm_bytes_clear(&cells[i]);
	for (int i = 0; i < t->count; i++) fill_cell(t, &t->columns[i], &cells[i]);
	if (t->reason_index >= 0) put_reason(t, &cells[t->count]);
	if (t->stack_index >= 0) put_stack(t, &cells[t->count]);
}

/* --- widths --- */

/* The next line of a heading that is wrapped behind underscores: *n bytes at *p. false: there is no more. */
static bool next_title_line(const char **p, size_t *n, size_t width) {
	const char *line = *p + *n;
	if (!*line) return false;
	size_t take = 0;
	for (const char *end = line; *end;) {
		size_t piece = strcspn(end, "_");
		end += piece + (end[piece] == '_');
		if (take && (size_t)(end - line) > width) break;
		take = (size_t)(end - line);
	}
	*p = line;
	*n = take;
	return true;
}

static size_t title_lines(const char *name, size_t width) {
	size_t lines = 0, n = 0;
	while (next_title_line(&name, &n, width)) lines++;
	return lines;
}

/* The least width that a heading can do with. */
static size_t least_title(const char *name) {
	size_t least = 0, n = 0;
	for (const char *p = name; next_title_line(&p, &n, 1);)
		if (n > least) least = n;
	while (title_lines(name, least) > TITLE_LINES_MAX) least++;
	return least > NARROWEST_TITLE ? NARROWEST_TITLE : least;
}

static void measure_cells(struct table *t) {
	for (int i = 0; i < t->count; i++) t->columns[i].is_empty = true;
	for (size_t row = 0; row < t->rows; row++) {
		struct tm_bytes *cells = row_cells(t, row);
		for (int i = 0; i < t->count; i++) {
			size_t width = tm_display_width((const char *)cells[i].data, cells[i].size);
			if (width > t->columns[i].widest_cell) t->columns[i].widest_cell = width;
			if (cells[i].size != 1 || cells[i].data[0] != '-') t->columns[i].is_empty = false;
		}
		if (t->shares[row] > t->share_full) t->share_full = t->shares[row];
	}
}

static size_t larger(size_t a, size_t b) {
	return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b) {
	return a < b ? a : b;
}

/* How many columns a heading could give, without its cells giving any. */
static size_t title_surplus(const struct table_column *column) {
	size_t least = larger(least_title(column->name), column->widest_cell);
	return column->width > least ? column->width - least : 0;
}

static size_t ample_surplus(const struct table_column *column) {
	return column->flexible && column->width > AMPLE_TEXT ? column->width - AMPLE_TEXT : 0;
}

static size_t text_surplus(const struct table_column *column) {
	size_t least = larger(least_title(column->name), column->least);
	return column->flexible && column->width > least ? column->width - least : 0;
}

/* Takes columns away, always from where most are to be had; returns how wide the table is then. */
static size_t narrow(struct table *t, size_t total, size_t room, size_t (*surplus)(const struct table_column *column), bool widest) {
	while (total > room) {
		struct table_column *most = NULL;
		for (int i = 0; i < t->count; i++) {
			struct table_column *c = &t->columns[i];
			if (c->left_out || !surplus(c)) continue;
			if (!most || (widest ? c->width > most->width : surplus(c) > surplus(most))) most = c;
		}
		if (!most) return total;
		most->width--;
		total--;
	}
	return total;
}

/* The width of the table with the columns it has, as narrow as it must and can be. */
static size_t choose_widths(struct table *t, size_t room) {
	size_t total = 0;
	bool is_first = true;
	for (int i = 0; i < t->count; i++) {
		struct table_column *c = &t->columns[i];
		if (c->left_out) continue;
		c->width = larger(strlen(c->name), c->widest_cell);
		/* Nothing wider than the room can be shown; this also keeps the loops short. */
		size_t widest = t->fits || !c->flexible ? room : WIDEST_WHOLE;
		if (c->width > widest && (c->flexible || c->widest_cell < room)) c->width = widest;
		total += c->width + (is_first ? 0 : strlen(GAP));
		is_first = false;
	}
	if (t->fits) total = narrow(t, total, room, ample_surplus, true);
	total = narrow(t, total, room, title_surplus, false);
	return t->fits ? narrow(t, total, room, text_surplus, true) : total;
}

/* Least important first. */
static const char *const expendable[] = {
	/* clang-format off */
	"exit_count_relative_error", "allocated_count_relative_error", "count_relative_error",
	"survived_relative_error", "live_end_relative_error", "freed_relative_error", "total_net_relative_error", "net_relative_error",
	"self_relative_error", "retained_relative_error", "total_relative_error", "change_peak_relative_error", "change_live_relative_error",
	"change_retained_relative_error",
	"job",         "frees",     "end_code",        "live_at_exit_count", "allocated_relative_error", "stack_id",
	"start_ns",    "temporary", "sample_bytes",    "allocations",        "exit_relative_error",      "live_count",
	"host",        "category",  "total_net_bytes", "peak_own_bytes",     "peak_growth_bytes",        "allocations_per_second",
	"duration_ns",
	/* clang-format on */
};

/* Where these are not enough: what stands beside what a list is about, as both sides of a change do. Then they go from the right. */
static const char *const secondary[] = {
	/* clang-format off */
	"change_count", "against_count", "against_bytes", "live_at_exit_bytes", "change_live_count",
	"change_allocations", "before_live_count", "after_live_count", "before_live_bytes", "after_live_bytes",
	"before_peak_bytes", "after_peak_bytes", "change_peak_bytes", "before_retained_bytes", "after_retained_bytes",
	"change_allocated_bytes", "mean_life_duration_ns", "near_peak_duration_ns", "end_kind", "end_ns",
	"pid", "complete", "self_allocated_bytes", "calls", "pss_bytes",
	"cgroup_bytes", "tool_bytes", "allowed_count", "measured_count", "suppressed",
	"bytes_per_second", "freed_bytes", "allocated_bytes",
	/* clang-format on */
};

static struct table_column *column_of(struct table *t, const char *name) {
	for (int i = 0; i < t->count; i++)
		if (!t->columns[i].left_out && strcmp(t->columns[i].name, name) == 0) return &t->columns[i];
	return NULL;
}

/* What a list is about goes last: changes, or else the levels that it has; whose they are; and what it is sorted by. */
static bool is_essential(const struct table *t, const char *name) {
	static const char *const always[] = { "function", "name", "phase", "verdict", NULL }, *const levels[] = { "live_bytes", "gap_bytes",
														  NULL };
	if (is_change(name)) return true;
	if (!t->plan->hidden) return false;
	return (t->plan->main_column && strcmp(name, t->plan->main_column) == 0) || is_listed(always, name) ||
	       (!t->has_changes && is_listed(levels, name));
}

/* The first one that is shown, but for what the list is sorted by; NULL: none. */
static struct table_column *first_of(struct table *t, const char *const *names, size_t count) {
	struct table_column *found = NULL;
	for (size_t k = 0; !found && t->plan->hidden && k < count; k++)
		if (!t->plan->main_column || strcmp(names[k], t->plan->main_column) != 0) found = column_of(t, names[k]);
	return found;
}

static struct table_column *expendable_column(struct table *t) {
	for (int i = 0; t->plan->hidden && i < t->count; i++)
		if (!t->columns[i].left_out && t->columns[i].is_empty) return &t->columns[i];
	return first_of(t, expendable, sizeof expendable / sizeof *expendable);
}

static struct table_column *last_column(struct table *t) {
	struct table_column *last = NULL, *found = first_of(t, secondary, sizeof secondary / sizeof *secondary);
	int shown = 0;
	for (int i = 0; i < t->count; i++) {
		if (t->columns[i].left_out) continue;
		if (!last || !is_essential(t, t->columns[i].name) || is_essential(t, last->name)) last = &t->columns[i];
		shown++;
	}
	return shown <= 1 ? NULL : found ? found : last;
}

static struct table_column *minor_column(struct table *t) {
	int shown = 0;
	for (int i = 0; i < t->count; i++) shown += !t->columns[i].left_out;
	return shown > COLUMNS_MAIN ? last_column(t) : NULL;
}

/* Leaves columns out until the table is as narrow as the room; returns its width. */
static size_t leave_out(struct table *t, size_t room, size_t least_text, struct table_column *(*choose)(struct table *t)) {
	struct table_column *victim;
	size_t total;
	for (int i = 0; i < t->count; i++) t->columns[i].least = least_text;
	while ((total = choose_widths(t, room)) > room && t->fits && (victim = choose(t))) victim->left_out = true;
	return total;
}

static struct table_column *no_column(struct table *t) {
	(void)t;
	return NULL;
}

static void fit_widths(struct table *t) {
	size_t room = tm_terminal_width(), bar = strlen(GAP) + BAR_WIDTH, widest = t->plan->bar_column ? BAR_WIDTH : SHARE_WIDEST;
	measure_cells(t);
	/* A name is shortened for the sake of a bar, but only as far as it is still ample. */
	size_t total = t->share_index < 0 ? SIZE_MAX : leave_out(t, room - bar, AMPLE_TEXT, no_column);
	if (total > room - bar) total = leave_out(t, room, READABLE_TEXT, expendable_column);
	if (total > room) total = leave_out(t, room, SHORT_TEXT, minor_column);
	if (total > room) total = leave_out(t, room, NARROWEST_TEXT, last_column);
	for (int i = 0; i < t->count; i++)
		if (!t->columns[i].left_out) t->last_shown = i;
	if (!t->fits) room = larger(room, total + strlen(GAP) + widest);
	if (t->share_index < 0 || t->share_full <= 0 || total + strlen(GAP) + SHARE_NARROWEST > room) return;
	t->share_width = room - total - strlen(GAP);
	if (t->share_width > widest) t->share_width = widest;
}

/* --- lines --- */

static void put_cell(struct table *t, int i, const char *text, size_t n, bool is_last) {
	const struct table_column *column = &t->columns[i];
	size_t width = tm_display_width(text, n), room = column->width;
	size_t least = column->right ? width : t->fits ? smaller(room, NARROWEST_TEXT) : room;
	size_t given = room > least ? smaller(t->overrun, room - least) : 0;
	room -= given;
	t->overrun -= given;
	if (column->right && width > room) t->overrun += width - room;
	if (t->line_begun) tm_put_raw(&t->line, GAP, strlen(GAP));
	t->line_begun = true;
	if (column->right && width < room) put_spaces(&t->line, room - width);
	/* A number is never shortened, nor is a name that need not fit: it pushes the rest of its line. */
	if (column->right || !t->fits) tm_put_raw(&t->line, text, n);
	else width = tm_display_fit(&t->line, text, n, room, column->shorten);
	if (!column->right && !is_last && width < room) put_spaces(&t->line, room - width);
}

/* A value of many things by name that is wider than its column, which is the last: figures stand in it, and what they mean. Wrapped between words, behind the
 * names, or below them where not even a large figure has room there. */
static void put_wrapped(struct table *t, const struct tm_bytes *cell) {
	struct tm_bytes text = TM_BYTES_INIT;
	size_t indent = tm_display_width((const char *)t->line.data, t->line.size) + strlen(GAP);
	tm_put_raw(&text, cell->data, cell->size);
	tm_put_raw(&text, "", 1);
	if (indent + ROOM_FOR_FIGURES <= tm_terminal_width()) {
		tm_put_raw(&t->line, GAP, strlen(GAP));
	} else {
		indent = 4;
		while (t->line.size && t->line.data[t->line.size - 1] == ' ') t->line.size--;
		tm_put_raw(&t->line, "\n    ", 1 + indent);
	}
	if (text.failed) t->line.failed = true;
	else tm_wrap_words(&t->line, (const char *)text.data, indent, indent);
	tm_bytes_release(&text);
}

static bool is_wrapped(const struct table *t, int i, const struct tm_bytes *cell) {
	const struct table_column *column = &t->columns[i];
	return t->fits && t->named_by_index >= 0 && i == t->last_shown && i > 0 && strcmp(column->name, "value") == 0 &&
	       tm_display_width((const char *)cell->data, cell->size) > column->width;
}

static int print_line(struct table *t) {
	tm_put_raw(&t->line, "\n", 1);
	int rc = t->line.failed ? -1 : tm_write_output(t->line.data, t->line.size);
	tm_bytes_clear(&t->line);
	t->line_begun = false;
	t->overrun = 0;
	return rc;
}

/* Line `line` of the headings, of which the last one is nearest to the rows. */
static int print_title_line(struct table *t, size_t line, size_t lines) {
	struct tm_bytes title = TM_BYTES_INIT;
	size_t bold = strlen(tm_bold());
	tm_put_format(&t->line, "%s", tm_bold());
	for (int i = 0; i < t->count; i++) {
		const struct table_column *column = &t->columns[i];
		const char *p = column->name;
		size_t n = 0, first = lines - title_lines(p, column->width);
		if (column->left_out) continue;
		for (size_t k = first; k <= line; k++) next_title_line(&p, &n, column->width);
		tm_bytes_clear(&title);
		tm_display_fit(&title, p, n, column->width, TM_SHORTEN_END);
		if (title.failed) t->line.failed = true;
		else put_cell(t, i, (const char *)title.data, title.size, i == t->last_shown);
	}
	while (t->line.size > bold && t->line.data[t->line.size - 1] == ' ') t->line.size--;
	tm_put_format(&t->line, "%s", tm_plain());
	tm_bytes_release(&title);
	return print_line(t);
}

static int print_titles(struct table *t) {
	size_t lines = 1;
	int rc = 0;
	for (int i = 0; i < t->count; i++)
		if (!t->columns[i].left_out) lines = larger(lines, title_lines(t->columns[i].name, t->columns[i].width));
	for (size_t line = 0; !rc && line < lines; line++) rc = print_title_line(t, line, lines);
	return rc;
}

/* Below the table: what a wider terminal would have shown. */
static int print_left_out(struct table *t) {
	struct tm_bytes text = TM_BYTES_INIT;
	int n = 0;
	for (int i = 0; i < t->count; i++) n += t->columns[i].left_out;
	if (!n) return 0;
	tm_put_format(&text, "%d column%s left out here:", n, n == 1 ? "" : "s");
	for (int i = 0; i < t->count; i++)
		if (t->columns[i].left_out) tm_put_format(&text, " %s%s", t->columns[i].name, --n ? "," : "");
	tm_put_raw(&text, "", 1);
	if (text.failed) t->line.failed = true;
	else tm_wrap_words(&t->line, (const char *)text.data, 0, 2);
	tm_bytes_release(&text);
	return print_line(t);
}

static int print_row(struct table *t, const struct tm_bytes *cells, double share) {
	const struct tm_bytes *below = &cells[t->count];
	bool has_share = t->share_width && share > 0;
	for (int i = 0; i < t->count; i++) {
		if (cells[i].failed) t->line.failed = true;
		if (t->columns[i].left_out) continue;
		bool is_last = i == t->last_shown && !has_share;
		if (is_wrapped(t, i, &cells[i])) put_wrapped(t, &cells[i]);
		else put_cell(t, i, (const char *)cells[i].data, cells[i].size, is_last);
	}
	if (has_share) put_bar(&t->line, share, t->share_full, (int)(t->share_width - smaller(t->overrun, t->share_width)));
	if (below->failed) t->line.failed = true;
	else tm_put_raw(&t->line, below->data, below->size);
	return print_line(t);
}

static int print_kept(struct table *t) {
	if (!t->rows) return 0;
	fit_widths(t);
	int rc = print_titles(t);
	for (size_t row = 0; !rc && row < t->rows; row++) rc = print_row(t, row_cells(t, row), t->shares[row]);
	return rc;
}

static bool is_shown(const struct table *t, uint64_t row) {
	return !t->plan->rows_max || row < t->plan->rows_max;
}

static double share_of(const struct table *t) {
	return t->share_index < 0 ? 0 : sqlite3_column_double(t->statement, t->share_index);
}

/* Everything behind the rows that were measured: printed as it comes, or only counted. */
static int stream_rest(struct table *t, int step, uint64_t *rows) {
	int rc = 0;
	for (; !rc && step == SQLITE_ROW; step = sqlite3_step(t->statement)) {
		if (is_shown(t, *rows)) {
			fill_row(t, row_cells(t, 0));
			rc = print_row(t, row_cells(t, 0), share_of(t));
		}
		++*rows;
	}
	return rc || step != SQLITE_DONE ? -1 : 0;
}

int tm_render_table(sqlite3_stmt *statement, const struct tm_render_plan *plan, uint64_t *rows) {
	struct table t = { .statement = statement,
			   .plan = plan,
			   .stack_index = -1,
			   .reason_index = -1,
			   .share_index = -1,
			   .share_full = plan->bar_full,
			   .fits = tm_must_fit(),
			   .module_index = -1,
			   .offset_index = -1,
			   .level_index = -1,
			   .named_by_index = -1,
			   .estimated_index = -1 };
	size_t columns = (size_t)sqlite3_column_count(statement);
	int step = SQLITE_DONE, rc = -1;
	*rows = 0;
	t.columns = calloc(columns + 1, sizeof(*t.columns));
	t.cells = calloc(ROWS_MEASURED * (columns + 1), sizeof(*t.cells));
	t.shares = calloc(ROWS_MEASURED, sizeof(*t.shares));
	if (!t.columns || !t.cells || !t.shares) goto out;
	plan_columns(&t);
	while ((step = sqlite3_step(statement)) == SQLITE_ROW && t.rows < ROWS_MEASURED && is_shown(&t, t.rows)) {
		t.shares[t.rows] = share_of(&t);
		fill_row(&t, row_cells(&t, t.rows++));
	}
	*rows = t.rows;
	rc = print_kept(&t);
	if (!rc) rc = stream_rest(&t, step, rows);
	if (!rc) rc = print_left_out(&t);
out:
	for (size_t i = 0; t.cells && i < ROWS_MEASURED * (columns + 1); i++) tm_bytes_release(&t.cells[i]);
	tm_bytes_release(&t.line);
	free(t.cells);
	free(t.shares);
	free(t.columns);
	return rc;
}
