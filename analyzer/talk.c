/* talk.c - one line on standard error for everything that has to be said.
 *
 * A message is formatted, made harmless for a terminal (a newline or an escape sequence in a file name must not break the line) and
 * written in one piece, so that several tidemarks of one pipeline do not mix their lines.
 */
#include "talk.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "schema/wire.h"
#include "display_text.h"
#include "progress.h"

#define MESSAGE_MAX 4096

static void say_line(const char *format, va_list arguments, const char *verb, int hint) {
	char message[MESSAGE_MAX];
	int n = vsnprintf(message, sizeof(message), format, arguments);
	if (n < 0) return;
	struct tm_bytes line = TM_BYTES_INIT;
	tm_put_raw(&line, "tidemark: ", 10);
	tm_display_text(&line, message, (size_t)n < sizeof(message) ? (size_t)n : sizeof(message) - 1);
	if (hint) {
		char pointer[128];
		int m = snprintf(pointer, sizeof(pointer), " (see 'tidemark %s%s--help')", verb ? verb : "", verb ? " " : "");
		tm_put_raw(&line, pointer, (size_t)m < sizeof(pointer) ? (size_t)m : sizeof(pointer) - 1);
	}
	tm_put_raw(&line, "\n", 1);
	tm_progress_wipe();
	/* Nothing is left to be done when standard error itself cannot be written. */
	if (!line.failed && write(STDERR_FILENO, line.data, line.size) < 0) line.failed = true;
	tm_bytes_release(&line);
}

void tm_say(const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	say_line(format, arguments, NULL, 0);
	va_end(arguments);
}

int tm_fail(const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	say_line(format, arguments, NULL, 0);
	va_end(arguments);
	return TM_EXIT_FAILED;
}

int tm_misuse(const char *verb, const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	say_line(format, arguments, verb, 1);
	va_end(arguments);
	return TM_EXIT_USAGE;
}
