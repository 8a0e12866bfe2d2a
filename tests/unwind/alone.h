/* alone.h - what the unwinder needs of the guest library's other parts, for programs that hold the unwinder alone: no module is listed, and wherever code can
 * be there is one, whose rules are kept. Included once in a program. */
#ifndef TIDEMARK_TESTS_UNWIND_ALONE_H
#define TIDEMARK_TESTS_UNWIND_ALONE_H

#include "../../recorder/guest/guest.h"
#include "../../recorder/guest/unwind.h"

struct tm_guest tm_guest;
__thread struct tm_tls tm_tls;
union tm_versions tm_versions;
_Atomic uint64_t tm_modules_pages[TM_MODULES_PAGES];

bool tm_modules_find(uintptr_t pc, uintptr_t *low, uintptr_t *high, uintptr_t *header) {
	(void)pc;
	(void)low;
	(void)high;
	(void)header;
	return false;
}

bool tm_has_room(uint64_t bytes) {
	(void)bytes;
	return true;
}

bool tm_modules_look(uintptr_t pc) {
	return !tm_unwind_is_no_code(pc);
}

#endif
