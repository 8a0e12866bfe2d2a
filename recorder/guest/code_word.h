/* code_word.h - which word of a module's data, or variable of a thread's, a function of few instructions reads.
 *
 * Flow:     python_find.c, for functions of the interpreter's that are asked at every event -> here: then the word is looked at instead
 * Failure:  0. Nothing is guessed: a function that does anything else is called.
 */
#ifndef TIDEMARK_GUEST_CODE_WORD_H
#define TIDEMARK_GUEST_CODE_WORD_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* The address of the word that the function of that module reads, if it does nothing else than that and answers with what it reads or, is_not_0, with whether
 * that is not 0 (an int); 0: it does, or is not understood. The module is relocated. */
uintptr_t tm_code_word(const struct dl_phdr_info *info, uintptr_t function, bool is_not_0);
/* The address of the calling thread's variable, if the function does nothing else than answer with what that holds; 0: it does, or is not understood. The first
 * time in a thread this may allocate. */
uintptr_t tm_code_thread_word(uintptr_t function);

#endif
