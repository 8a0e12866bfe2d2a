/* shared_rules.h - the rules that all processes of a recording share: which of their modules are the same.
 *
 * Flow:     modules.c, when the list of modules changed -> tm_shared_key() -> unwind_rule.c, by tm_modules_key() -> tm_shared_find(), tm_shared_add()
 * Idea:     working out the rules of an address takes thousands of instructions where functions are long, as a compiler's are, and a build starts hundreds
 *           of compilers. An address is named by its module's number, which is the module's place in a table by path and build-id, and its place in the module.
 *           At the first question about a module all that is known of it is taken over: to ask for each of a compiler's 2,000 rules by itself would
 *           take longer, as each lies in memory that this process has not touched.
 * Owns:     nothing; the table lies in the session's memory (struct tm_shared_rules in shm.h).
 * Threads:  any, of any process. A slot is taken once and never changes. Two processes may take one each for the same module: then each has its own rules.
 *           One thread of a process takes over at a time; another goes without.
 * When full: a module has no number, and its rules are worked out in each process. shm.h says what of rules.
 */
#ifndef TIDEMARK_GUEST_SHARED_RULES_H
#define TIDEMARK_GUEST_SHARED_RULES_H

#include <stdint.h>

struct tm_shared_rules;

/* The session's, NULL: there is none. */
struct tm_shared_rules *tm_shared_rules(void);

/* What names a module's first byte in every process, to which the place in the module is added: below 2^48 also then. 0: nothing does, as without
 * a build-id. `identity`: of path, build-id and file (modules.c), since a build-id that was chosen by hand may be that of a whole project. `span_bytes`: from
 * the first to the last byte mapped; `frames_offset`: where .eh_frame_hdr lies from the first. */
uint64_t tm_shared_key(const void *build_id, uint32_t build_id_bytes, uint64_t identity, uint64_t span_bytes, uint64_t frames_offset);

/* The rule of the address `ip`, whose key this is (tm_modules_key(), not 0); 0: nobody has left it. Gives those of its module that were left since the last
 * call to tm_rule_keep() (unwind_rule.h). */
uint32_t tm_shared_find(uint64_t key, uintptr_t ip);
/* One is about to be added: where it will stand is asked for, as that is seldom near. */
void tm_shared_fetch(uint64_t key);
void tm_shared_add(uint64_t key, uint32_t rule); /* for others to find */
void tm_shared_forget(void);                     /* the process forgot its rules: all are to be taken over again */
void tm_shared_forked(void);                     /* in a fork's child: whoever was taking over is not here */

#endif
