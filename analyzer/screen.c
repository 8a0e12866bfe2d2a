/* screen.c - a terminal that is drawn anew again and again, and its keys; see screen.h. */
#include "screen.h"

#include "render.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_LINES 24

static volatile sig_atomic_t interrupted, stopping;

static void interrupt(int number) {
	(void)number;
	interrupted = 1;
}

static void stop_soon(int number) {
	(void)number;
	stopping = 1;
}

static bool is_terminal(void) {
	const char *terminal = getenv("TERM");
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

static void put(const char *text) {
	fputs(text, stdout);
	fflush(stdout);
}

/* In the background the first of these stops us until we are in front. */
static bool take_terminal(const struct tm_screen *s) {
	struct termios raw = s->before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) return false;
	put("\033[?1049h\033[?25l");
	return true;
}

static void give_terminal_back(const struct tm_screen *s) {
	put("\033[?25h\033[?1049l");
	tcsetattr(STDIN_FILENO, TCSANOW, &s->before);
}

static void handle_stop(void) {
	struct sigaction action = { .sa_handler = stop_soon, .sa_flags = SA_RESTART };
	sigaction(SIGTSTP, &action, NULL);
}

/* The shell finds the terminal as it was. */
static void stop(struct tm_screen *s) {
	stopping = 0;
	give_terminal_back(s);
	signal(SIGTSTP, SIG_DFL);
	raise(SIGTSTP);
	handle_stop();
	if (!take_terminal(s)) s->quit = true;
}

void tm_screen_open(struct tm_screen *s, bool wanted) {
	struct sigaction action = { .sa_handler = interrupt }, before;
	*s = (struct tm_screen){ .is_on = false };
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	if (!wanted || !is_terminal() || tcgetattr(STDIN_FILENO, &s->before) != 0) return;
	s->is_on = take_terminal(s);
	if (!s->is_on) return;
	unsetenv("COLUMNS"); /* the window may change its size */
	if (sigaction(SIGTSTP, NULL, &before) == 0 && before.sa_handler == SIG_DFL) handle_stop();
}

void tm_screen_close(struct tm_screen *s) {
	if (!s->is_on) return;
	give_terminal_back(s);
	s->is_on = false;
}

static void read_key(struct tm_screen *s) {
	char key;
	while (read(STDIN_FILENO, &key, 1) == 1) {
		if (key == 'q' || key == 'Q' || key == 4) s->quit = true;
		s->key_pressed = key;
	}
}

bool tm_screen_wait(struct tm_screen *s, unsigned milliseconds) {
	struct pollfd input = { .fd = s->is_on ? STDIN_FILENO : -1, .events = POLLIN };
	if (!interrupted && poll(&input, 1, (int)milliseconds) > 0) {
		if (input.revents & POLLIN) read_key(s);
		else s->quit = true; /* the terminal has gone */
	}
	if (interrupted) s->quit = true;
	else if (stopping) stop(s);
	return !s->quit;
}

static size_t count_lines(void) {
	struct winsize window;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 0) return window.ws_row;
	return DEFAULT_LINES;
}

size_t tm_screen_begin(struct tm_screen *s) {
	s->lines = count_lines();
	s->terminal = stdout;
	FILE *gathered = open_memstream(&s->text, &s->text_bytes);
	if (gathered) stdout = gathered;
	return s->lines;
}

void tm_screen_part_begin(struct tm_screen_part *p) {
	tm_screen_part_release(p);
	p->outer = stdout;
	FILE *gathered = open_memstream(&p->text, &p->text_bytes);
	if (gathered) stdout = gathered;
}

void tm_screen_part_end(struct tm_screen_part *p) {
	if (stdout == p->outer) return;
	FILE *gathered = stdout;
	stdout = p->outer;
	if (fclose(gathered) != 0) p->text_bytes = 0;
	for (size_t i = 0; i < p->text_bytes; i++) p->lines += p->text[i] == '\n';
}

void tm_screen_part_print(const struct tm_screen_part *p) {
	if (p->text_bytes) fwrite(p->text, 1, p->text_bytes, stdout);
}

void tm_screen_part_release(struct tm_screen_part *p) {
	free(p->text);
	*p = (struct tm_screen_part){ .lines = 0 };
}

/* Each line clears what stood behind it. */
static void draw(const struct tm_screen *s) {
	const char *p = s->text, *end = s->text + s->text_bytes;
	for (size_t line = 1; line < s->lines; line++) {
		const char *newline = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
		size_t n = newline ? (size_t)(newline - p) : (size_t)(end - p);
		fwrite(p, 1, n, stdout);
		fputs("\033[K\r\n", stdout);
		p += n + (newline != NULL);
	}
}

void tm_screen_end(struct tm_screen *s, const char *last_line) {
	if (stdout == s->terminal) return;
	FILE *gathered = stdout;
	stdout = s->terminal;
	fclose(gathered);
	fputs("\033[H", stdout);
	draw(s);
	printf("%s%.*s%s\033[K\033[J", tm_bold(), (int)tm_terminal_width() - 1, last_line, tm_plain());
	fflush(stdout);
	free(s->text);
	s->text = NULL;
}
