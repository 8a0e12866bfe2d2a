/* cmd_query.c - `tidemark query`: SQL from the command line, a file, standard input or a prompt.
 *
 * The database is read-only in three ways: it is opened so, an authorizer lets only reading statements be prepared, and nothing else can be
 * attached. Ctrl-C stops the running query; at the prompt it leaves the prompt standing.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../schema/units.h"
#include "coverage.h"
#include "display_text.h"
#include "line_editor.h"
#include "listing.h"
#include "named_queries.h"
#include "talk.h"
#include "verbs.h"

static const struct tm_usage usage = {
	.verb = "query",
	.operands = "DB|TRACE ['SELECT ...'|FILE|-|@NAME]",
	.description =
		"Runs SQL against the database, read-only. The query is given in quotes, or comes from a file or, for -, from\n"
		"standard input. Without one there is a prompt, where statements end in ';' and .help lists what else is understood.\n"
		"@NAME runs one of the questions of schema/queries.sql, @ alone lists them. With --sql the query is printed and not run.\n"
		"README.md and `.schema NAME` describe the views; times are ns since the start, sizes bytes.\n",
	.examples = "tidemark query run.db 'SELECT heap, live_bytes FROM peak'\n"
		    "tidemark leaks run.db --sql | tidemark query run.db - --format=csv\n"
		    "tidemark query run.db questions.sql --format=json\n"
		    "tidemark query run.db @peak-makers\n"
		    "tidemark query run.db\n",
	.options = TM_OPTION_FORMAT | TM_OPTION_SQL,
	.operands_min = 1,
	.operands_max = 2,
};

static sqlite3 *volatile interruptible; /* what Ctrl-C stops */
static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int signal_number) {
	(void)signal_number;
	sqlite3 *handle = interruptible;
	was_interrupted = true;
	if (handle) sqlite3_interrupt(handle);
}

/* Catches Ctrl-C without restarting read(), so that it also ends a half-typed line. */
static void catch_interrupts(sqlite3 *handle) {
	struct sigaction action = { .sa_handler = on_interrupt };
	interruptible = handle;
	sigaction(SIGINT, &action, NULL);
}

static int authorize(void *unused, int action, const char *first, const char *second, const char *database, const char *trigger) {
	static const char *const pragmas[] = { "table_info",  "table_xinfo",   "table_list",      "index_list",    "index_info",
					       "index_xinfo", "function_list", "compile_options", "database_list", NULL };
	(void)unused, (void)database, (void)trigger;
	switch (action) {
	case SQLITE_SELECT:
	case SQLITE_READ:
	case SQLITE_RECURSIVE: return SQLITE_OK;
	case SQLITE_FUNCTION: return second && sqlite3_stricmp(second, "load_extension") == 0 ? SQLITE_DENY : SQLITE_OK;
	case SQLITE_PRAGMA:
		for (int i = 0; pragmas[i]; i++) {
			if (first && sqlite3_stricmp(first, pragmas[i]) == 0) return SQLITE_OK;
		}
		return SQLITE_DENY;
	default: return SQLITE_DENY;
	}
}

static int refuse(sqlite3 *handle) {
	if (sqlite3_errcode(handle) == SQLITE_AUTH)
		return tm_fail("cannot run the query: the database is opened read-only (%s)", sqlite3_errmsg(handle));
	return tm_fail("cannot run the query: %s", sqlite3_errmsg(handle));
}

/* Runs every statement of the text, or with --sql shows it, and stops at the first that fails. In JSON the rows of all are one array, also then. */
static int run_text(const struct tm_database *d, const struct tm_options *o, const char *text) {
	if (o->sql)
		return tm_write_output(text, strlen(text)) || (*text && text[strlen(text) - 1] != '\n' && tm_write_output("\n", 1))
			       ? TM_EXIT_FAILED
			       : 0;
	struct tm_render_plan plan = { .format = o->format, .path = d->path, .in_array = true };
	const char *rest = text;
	uint64_t rows = 0;
	bool is_json = o->format == TM_FORMAT_JSON, is_open = false;
	int status = 0;
	while (!status && *rest) {
		sqlite3_stmt *statement;
		if (sqlite3_prepare_v2(d->handle, rest, -1, &statement, &rest) != SQLITE_OK) {
			status = refuse(d->handle);
			break;
		}
		if (!statement) continue; /* white space or a comment */
		if (is_json && !is_open) tm_write_output("[", 1);
		is_open = true;
		status = tm_render(statement, &plan, &rows);
		sqlite3_finalize(statement);
		if (!status && o->format == TM_FORMAT_TABLE && !rows) tm_write_output("no rows\n", 8);
	}
	if (!status && is_json && !is_open) tm_write_output("[", 1);
	if (is_json && (is_open || !status)) tm_render_json_end(rows);
	return status;
}

/* All of a file as text, NUL-terminated; NULL after saying why. */
static char *read_all(FILE *file, const char *name) {
	char *text = NULL;
	size_t size = 0;
	errno = 0;
	ssize_t n = getdelim(&text, &size, '\0', file);
	if (n < 0 && (ferror(file) || errno)) {
		tm_fail("cannot read '%s': %s", name, strerror(errno));
		free(text);
		return NULL;
	}
	if (n > 0 && !text[n - 1]) {
		tm_fail("cannot read '%s': a byte 0 at offset %zd, so it is not SQL", name, n - 1);
		free(text);
		return NULL;
	}
	return n < 0 ? (free(text), strdup("")) : text;
}

static int run_file(const struct tm_database *d, const struct tm_options *o, const char *path) {
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	if (!file) return tm_fail("cannot open '%s': %s", path, strerror(errno));
	char *text = read_all(file, path);
	int status = text ? run_text(d, o, text) : TM_EXIT_FAILED;
	if (file != stdin) fclose(file);
	free(text);
	return status;
}

#define QUESTION_COLUMN 20

/* The list as rows, for those who read JSON or CSV. */
static int list_named_rows(const struct tm_database *d, const struct tm_options *o) {
	struct tm_named_query q;
	sqlite3_str *sql = sqlite3_str_new(d->handle);
	for (const char *at = NULL; tm_named_query_next(&at, &q);)
		sqlite3_str_appendf(sql, "%s('@%.*q', '%.*q')", sqlite3_str_length(sql) ? ", " : "SELECT column1 AS name, column2 AS question FROM (VALUES ",
				    (int)q.name_bytes, q.name, (int)q.question_bytes, q.question);
	sqlite3_str_appendall(sql, ")");
	char *text = sqlite3_str_finish(sql);
	int status = text ? run_text(d, o, text) : tm_fail("cannot list the questions: out of memory");
	sqlite3_free(text);
	return status;
}

static int list_named(const struct tm_database *d, const struct tm_options *o) {
	struct tm_named_query q;
	struct tm_bytes line = TM_BYTES_INIT;
	if (o->format != TM_FORMAT_TABLE) return list_named_rows(d, o);
	for (const char *at = NULL; tm_named_query_next(&at, &q);) {
		char *question = strndup(q.question, q.question_bytes);
		tm_bytes_clear(&line);
		if (question && tm_must_fit()) tm_wrap_words(&line, question, QUESTION_COLUMN, QUESTION_COLUMN);
		else if (question) tm_put_raw(&line, question, q.question_bytes);
		printf("@%-*.*s %.*s\n", QUESTION_COLUMN - 2, (int)q.name_bytes, q.name, (int)line.size, line.size ? (const char *)line.data : "");
		free(question);
	}
	tm_bytes_release(&line);
	return TM_EXIT_DONE;
}

/* What a question's answer does not say of itself. Who writes SQL of his own has the columns and tables that do. */
static void warn_of_answer(const struct tm_database *d, const struct tm_options *o) {
	char mean[TM_UNIT_TEXT_MAX];
	tm_warn_of_gaps(d, o);
	if (d->sample_bytes > 0)
		tm_say("'%s' holds a Poisson sample, one in %s on average: figures of sampled heaps are estimates, and what only a whole recording"
		       " knows is not told",
		       d->path, tm_format_size((uint64_t)d->sample_bytes, mean));
}

/* The query of this name, or for "" a list of all. */
static int run_named(const struct tm_database *d, const struct tm_options *o, const char *name) {
	struct tm_named_query q;
	if (!*name) return list_named(d, o);
	if (!tm_named_query_find(name, &q)) return tm_fail("no query '@%s' (`tidemark query DB @` lists them)", name);
	char *text = strndup(q.text, q.text_bytes);
	if (!o->sql) warn_of_answer(d, o);
	int status = text ? run_text(d, o, text) : tm_fail("cannot run '@%s': out of memory", name);
	free(text);
	return status;
}

/* Shows what a query of names and texts finds. A stranger's database may have anything in them. */
static int run_words(const struct tm_database *d, const char *sql) {
	sqlite3_stmt *statement;
	struct tm_bytes shown = TM_BYTES_INIT;
	int status = tm_database_prepare(d, sql, &statement);
	while (!status && sqlite3_step(statement) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(statement, 0);
		for (size_t n; text && *text; text += n) {
			n = strcspn(text, "\t\n");
			tm_display_text(&shown, text, n);
			if (text[n]) tm_put_raw(&shown, text + n++, 1);
		}
		tm_put_raw(&shown, "\n", 1);
	}
	tm_write_output(shown.data, shown.size);
	tm_bytes_release(&shown);
	sqlite3_finalize(statement);
	return status;
}

static void set_format(struct tm_options *o, const char *name) {
	static const char *const names[] = { [TM_FORMAT_TABLE] = "table", [TM_FORMAT_JSON] = "json", [TM_FORMAT_CSV] = "csv" };
	for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
		if (names[i] && strcmp(names[i], name) == 0) {
			o->format = (enum tm_format)i;
			return;
		}
	tm_say("formats are table, json and csv");
}

/* Understands a line that begins with a dot. true: the prompt is done. */
static bool run_dot(const struct tm_database *d, struct tm_options *o, char *line) {
	line[strcspn(line, ";\r\n")] = '\0';
	char *word = strtok(line, " \t"), *name = strtok(NULL, " \t");
	if (strcmp(word, ".quit") == 0 || strcmp(word, ".exit") == 0) return true;
	if (strcmp(word, ".views") == 0) run_words(d, "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name");
	else if (strcmp(word, ".tables") == 0) run_words(d, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
	else if (strcmp(word, ".schema") == 0) {
		char *sql = name ? sqlite3_mprintf("SELECT sql || ';' FROM sqlite_schema WHERE name = %Q AND sql IS NOT NULL", name)
				 : sqlite3_mprintf("SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name");
		run_words(d, sql);
		sqlite3_free(sql);
	} else if (strcmp(word, ".queries") == 0) {
		list_named(d, o);
	} else if (strcmp(word, ".format") == 0) {
		set_format(o, name);
	} else {
		if (strcmp(word, ".help") != 0) tm_say("there is no %s here", word);
		printf(".views         what reports show, and the best place to ask\n"
		       ".tables        what import filled\n"
		       ".schema NAME   the columns of a table, or the query of a view\n"
		       ".queries       questions with a name; @NAME runs one\n"
		       ".format NAME   how rows are shown: table, json or csv\n"
		       ".quit          leave; so does the end of input\n"
		       "Anything else is SQL up to a ';' or the end of input.\n");
	}
	return false;
}

#define WORDS_MAX 4000

/* What may stand in a query: tables, views, their columns, the names of queries, and a few words of SQL. */
static char **words_of(const struct tm_database *d) {
	static const char *const more[] = { "SELECT ",  "FROM ",    "WHERE ",   "GROUP BY ", "ORDER BY ", "LIMIT ", "JOIN ",
					    "HAVING ",  "count(*)", "sum(",     "max(",      "DESC",      ".views", ".tables",
					    ".schema ", ".queries", ".format ", ".help",     ".quit" };
	char **words = calloc(WORDS_MAX + 1, sizeof *words);
	sqlite3_stmt *statement = NULL;
	struct tm_named_query q;
	size_t n = 0;
	if (!words) return NULL;
	for (size_t i = 0; i < sizeof more / sizeof *more; i++) words[n++] = strdup(more[i]);
	for (const char *at = NULL; n < WORDS_MAX && tm_named_query_next(&at, &q);)
		if (asprintf(&words[n], "@%.*s", (int)q.name_bytes, q.name) > 0) n++;
	if (sqlite3_prepare_v2(
		    d->handle,
		    "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') UNION SELECT c.name FROM sqlite_schema AS s\n"
		    "JOIN pragma_table_info(s.name) AS c WHERE s.type IN ('table', 'view') ORDER BY 1",
		    -1, &statement, NULL) == SQLITE_OK)
		while (n < WORDS_MAX && sqlite3_step(statement) == SQLITE_ROW)
			if ((words[n] = strdup((const char *)sqlite3_column_text(statement, 0)))) n++;
	sqlite3_finalize(statement);
	words[n] = NULL;
	return words;
}

static bool is_blank(const char *text) {
	return text[strspn(text, " \t\r\n")] == '\0';
}

/* Words that people type at prompts, and that no statement begins with. */
static const char *dot_of(const char *line) {
	static const char *const words[] = { "quit", "exit", "help" };
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strncasecmp(line, words[i], 4) == 0 && is_blank(line + 4 + (line[4] == ';'))) return i == 2 ? ".help" : ".quit";
	return NULL;
}

/* Takes one line: *text is the statement so far, NULL none. true: the prompt is done. */
static bool take_line(const struct tm_database *d, struct tm_options *o, char *line, char **text) {
	const char *dot = *text ? NULL : dot_of(line);
	char word[8];
	if (dot) return run_dot(d, o, strcpy(word, dot));
	if (!*text && line[0] == '.') return run_dot(d, o, line);
	if (!*text && line[0] == '@') {
		line[strcspn(line, " ;\r\n")] = '\0';
		run_named(d, o, line + 1);
		return false;
	}
	char *longer = sqlite3_mprintf("%s%s", *text ? *text : "", line);
	sqlite3_free(*text);
	*text = longer;
	bool is_whole = longer && !is_blank(longer) && sqlite3_complete(longer);
	if (is_whole) run_text(d, o, longer);
	if (longer && !is_whole && !is_blank(longer)) return false;
	sqlite3_free(*text);
	*text = NULL;
	return false;
}

/* Reads statements from the terminal until it ends. A failed statement has been reported and is not the end. One that has no ';' yet
 * ends where the terminal does, and what comes of it then is the command's status. */
static int converse(const struct tm_database *d, const struct tm_options *given) {
	struct tm_options own = *given, *o = &own;
	char *text = NULL;
	bool done = false;
	fprintf(tm_line_editor_talk(), "%s - SQL ending in ';', .help for help, .quit to leave\n", d->path);
	/* Asking for columns takes more than users may do. */
	sqlite3_set_authorizer(d->handle, NULL, NULL);
	tm_line_editor_start(words_of(d));
	sqlite3_set_authorizer(d->handle, authorize, NULL);
	while (!done) {
		fflush(stdout);
		char *line = tm_line_editor_read(text ? "     ...> " : "tidemark> ");
		if (!line && errno != EINTR) break;
		if (line) {
			done = take_line(d, o, line, &text);
		} else {
			fputc('\n', tm_line_editor_talk());
			sqlite3_free(text);
			text = NULL;
		}
		free(line);
		if (was_interrupted) tm_forgive_interrupted_output();
		was_interrupted = false;
	}
	tm_line_editor_stop();
	fputc('\n', tm_line_editor_talk());
	int status = text ? run_text(d, o, text) : TM_EXIT_DONE;
	sqlite3_free(text);
	return status;
}

/* A word that names a file is a file; nothing that is SQL does. */
static bool names_file(const char *operand) {
	struct stat status;
	size_t n = strlen(operand);
	if (strcmp(operand, "-") == 0) return true;
	if (n > 4 && strcmp(operand + n - 4, ".sql") == 0 && !strchr(operand, ' ')) return true;
	return stat(operand, &status) == 0 && S_ISREG(status.st_mode);
}

/* SQLite makes its own tables of functions when they are first asked, which takes more than users may do; then they are there. */
static void open_table_functions(sqlite3 *handle) {
	sqlite3_exec(handle, "SELECT 1 FROM json_each('[]'), json_tree('[]')", NULL, NULL, NULL);
}

static int answer(const struct tm_database *d, const struct tm_options *o) {
	const char *operand = o->operand_count > 1 ? o->operands[1] : NULL;
	open_table_functions(d->handle);
	sqlite3_set_authorizer(d->handle, authorize, NULL);
	catch_interrupts(d->handle);
	int status;
	if (operand && operand[0] == '@') status = run_named(d, o, operand + 1);
	else if (operand) status = names_file(operand) ? run_file(d, o, operand) : run_text(d, o, operand);
	else status = isatty(STDIN_FILENO) ? converse(d, o) : run_file(d, o, "-");
	signal(SIGINT, SIG_DFL);
	interruptible = NULL;
	return status;
}

int tm_cmd_query(int argc, char **argv) {
	return tm_answer(&usage, argc, argv, answer);
}
