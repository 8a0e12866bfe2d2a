/* signals.h - signals that reach the recorder while the command runs.
 *
 * What the terminal sends (Ctrl-C, Ctrl-\, hang-up) reaches the command by itself: we ignore it; but where we lead the session, hang-up is
 * told to us alone, and passed on. A command that makes a group of its own, as timeout(1) does, would go on leading the terminal's
 * foreground job without us: it is lent the terminal, and until then passed on what is typed. Once the command has ended what is typed is
 * ours. What a process sends is passed on to the command once, if it was meant for us alone. A batch system signals a whole process group,
 * or every process of a job, and must not be echoed. The kernel does not tell which it was; so a witness, a tiny process in our process
 * group, sees whether it gets it too. A command that has left our group gets what the group gets: timeout(1) signals its child and then the
 * group, and we are that child. What the command or a process of it sends us, as a service that tells its supervisor that it is ready does,
 * is for who started us: without us that one would be its parent.
 *
 * Job control: Ctrl-Z is the command's to obey or not; where it has stopped, we stop as it did, so that our shell is told. The shell continues our
 * process group, the command with it. Where only we are continued the signal is passed on as any other; where only the command is, the witness
 * sees that, and continues us.
 *
 * Threads: handlers only set flags; everything else is the main thread's.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_SIGNALS_H
#define TIDEMARK_RECORDER_COLLECTOR_SIGNALS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TM_SIGNAL_DUMP (SIGRTMIN + 5) /* asks for a dump (dumps.h); never passed on */

/* Remembers what we were started with, and blocks what would be handled, until tm_signals_handle(). Our alarm() and timers are then
 * the command's. */
void tm_signals_hold(void);
/* While they are held: sleeps for so long, or until a signal comes that asks us to end. True: one came. */
bool tm_signals_end_asked_within(uint64_t ns);
/* While they are held, and the command's process is there: takes those that came. A group's that came before that process, the witness got and the command did
 * not. The command's process raises what it did not get, before tm_signals_restore(). */
void tm_signals_take_early(sigset_t *early);
void tm_signals_raise_early(const sigset_t *early);
/* In the command's process before exec: signal mask, dispositions and timers as we were started with. */
void tm_signals_restore(void);
/* Handles signals from now on; each one also changes *wake, so that a sleep on it ends. `attached`: ignores all. */
void tm_signals_handle(_Atomic uint32_t *wake, bool attached);

/* Makes the witness; without one, everything a process sends is passed on. What it shows in place of our arguments overwrites those in its own memory. */
void tm_signals_start_witness(int argc, char **argv);
void tm_signals_dismiss_witness(void); /* no signal is passed on any more; it need not end at once */
void tm_signals_stop_witness(void);

/* Stops us as this signal has stopped the command; returns when we are continued. */
void tm_signals_stop_like(pid_t pid, int number);
/* Before the word that tm_signals_handle() was given is unmapped: signals come until the very end. */
void tm_signals_wake_nobody(void);
/* Where our job has the terminal's foreground, and the command has left it for a group of its own: hands that the terminal. */
void tm_signals_lend_terminal(pid_t pid);
/* The command has ended: from here on we stop for ourselves, and the terminal is our job's again. */
void tm_signals_command_ended(pid_t pid);

/* Passes on what is due. `pid` <= 0: the command has ended; what comes is only counted. is_recorded: is this one of the command's processes? */
void tm_signals_forward(pid_t pid, bool (*is_recorded)(pid_t pid));
/* True while something waits to be passed on. */
bool tm_signals_pending(void);
/* True once after each time that TM_SIGNAL_DUMP came. */
bool tm_signals_dump_asked(void);
/* How many signals asked us to end since the command ended. */
unsigned tm_signals_asked_to_end(void);

#endif
