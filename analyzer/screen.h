/* screen.h - a terminal that is drawn anew again and again, and its keys.
 *
 * Flow:     cmd_top.c -> tm_screen_begin(), prints to standard output, tm_screen_end() -> the terminal, in one write
 * Owns:     the terminal's mode and its other screen, from open to close; SIGINT, SIGTERM and SIGHUP meanwhile end tm_screen_wait(), and Ctrl-Z stops
 *           us there, with the terminal as it was.
 * Elsewhere (no terminal, TERM=dumb): is_on stays false; tm_screen_wait() waits, and the signals end it as well.
 */
#ifndef TIDEMARK_ANALYZER_SCREEN_H
#define TIDEMARK_ANALYZER_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <termios.h>

struct tm_screen {
	bool is_on, quit;
	char key_pressed; /* 0: none since it was cleared */
	struct termios before;
	size_t lines;
	FILE *terminal;
	char *text; /* what is being drawn */
	size_t text_bytes;
};

/* A part of what is being drawn, gathered by itself, so that one with fewer rows can take its place where it is too long. Starts as { 0 }. */
struct tm_screen_part {
	FILE *outer;
	char *text;
	size_t text_bytes;
	size_t lines;
};

void tm_screen_open(struct tm_screen *s, bool wanted);
void tm_screen_close(struct tm_screen *s);
/* false: the user wants to quit. Ends early where a key was pressed. */
bool tm_screen_wait(struct tm_screen *s, unsigned milliseconds);
/* Until the end, standard output is gathered. Returns how many lines there are. */
size_t tm_screen_begin(struct tm_screen *s);
/* In between: until its end, standard output is gathered in the part, instead of what was in it. Out of memory: it is printed at once, as no lines. */
void tm_screen_part_begin(struct tm_screen_part *p);
void tm_screen_part_end(struct tm_screen_part *p);
void tm_screen_part_print(const struct tm_screen_part *p);
void tm_screen_part_release(struct tm_screen_part *p);
/* Draws what was gathered, cut where the screen ends, above a last line. */
void tm_screen_end(struct tm_screen *s, const char *last_line);

#endif
