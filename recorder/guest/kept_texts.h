/* kept_texts.h - texts that a program registers once and then names by a pointer: NVTX's registered strings, ITT's string handles and domains.
 *
 * Flow:     nvtx.c, itt.c -> tm_kept_text() -> a struct tm_kept_text that stays; its address is the handle
 * Idea:     the same text gives the same handle. ITT's programs read the fields of what they are given, so the entry begins as those structures do.
 * Owns:     one mapping of TM_KEPT_BYTES, made at the first need; never freed.
 * Threads:  any; lock-free.
 * When full: NULL, and a note says so once; whoever asks for the text of a handle that is none gets NULL, too. Not between enter and leave.
 */
#ifndef TIDEMARK_GUEST_KEPT_TEXTS_H
#define TIDEMARK_GUEST_KEPT_TEXTS_H

#include "guest.h"

#define TM_KEPT_BYTES (16u << 20)

struct tm_kept_text {
	union {
		struct { /* as ITT's domains begin: flags 1 are "on" */
			int flags;
			const char *text;
		} domain;
		struct { /* as its string handles do */
			const char *text;
			void *wide;
			int extra_number;
			void *extra, *next;
		} handle;
	};
	void *zeros[3];                  /* the rest of either */
	uint32_t magic, bytes;
	uint32_t category, place; /* of a domain: the category of its scopes, and where its depths are counted; 0 until asked for */
	char text[];
};

enum tm_kept_kind { TM_KEPT_DOMAIN = 0x4b444d54, TM_KEPT_STRING = 0x4b534d54 };

struct tm_kept_text *tm_kept_text(enum tm_kept_kind kind, const char *text, size_t n);
/* The entry that a pointer of the program's names; NULL: it names none. */
struct tm_kept_text *tm_kept_of(enum tm_kept_kind kind, const void *handle);

#endif
