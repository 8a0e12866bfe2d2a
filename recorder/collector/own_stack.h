/* own_stack.h - the recorder's stacks do not depend on what the command may use of its own (RLIMIT_STACK, which both inherit).
 *
 * Flow:     main() -> tm_own_stack_run() -> what main() does
 * Threads:  main's, before there are others; also those that begin later get as much.
 * Fails:    it runs on the stack that there is.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_OWN_STACK_H
#define TIDEMARK_RECORDER_COLLECTOR_OWN_STACK_H

int tm_own_stack_run(int (*run)(int argc, char **argv), int argc, char **argv);

#endif
