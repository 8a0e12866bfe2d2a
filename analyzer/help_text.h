/* help_text.h - help as it is written, or as wide as the terminal is.
 *
 * Flow:     main.c, options.c, cmd_import.c -> here -> standard output
 * Idea:     help is written in lines of its own. Where one is wider than the terminal (or COLUMNS), lines end earlier, and go on where their text began:
 *           behind the name of an option, say. Sentences that were written in several lines flow on. Commands are left as they are. In a pipe nothing changes.
 */
#ifndef TIDEMARK_ANALYZER_HELP_TEXT_H
#define TIDEMARK_ANALYZER_HELP_TEXT_H

void tm_print_help(const char *text);

#endif
