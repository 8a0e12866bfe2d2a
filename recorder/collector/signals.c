/* signals.c - which signals are for the command, and were they meant for us alone? See signals.h. */
#include "signals.h"

#include "kernel_file.h"
#include "timebase.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define DECIDE_NS 100000000u /* a batch system that signals one process after the other needs some time */
#define SIGNAL_MAX 65
#define TYPED_NS 1000000000u /* what runs on got it as we did, and may need this long to end */
#define QUEUED 2
#define AFTER_THE_END 2
#define LOOK_SIGNAL SIGCHLD /* tells the witness to begin */
#define WITNESS_NAME "signal-witness" /* 15 bytes at most */
#define LOOK_NS 20000000    /* while we are stopped: whether the command still is */

static const int ignored[] = { SIGPIPE, SIGXFSZ, SIGTTIN, SIGTTOU };
#define IGNORED_COUNT (sizeof ignored / sizeof ignored[0])

static sigset_t start_mask;
static struct sigaction start_actions[SIGNAL_MAX];
static struct itimerval start_timers[3]; /* by ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF */
static _Atomic uint32_t nobody; /* sleeps on it */
static _Atomic uint32_t *_Atomic wake_word = &nobody;
static volatile sig_atomic_t arrived[SIGNAL_MAX]; /* or QUEUED: with a value, the last one's */
static void *volatile values[SIGNAL_MAX];
static volatile sig_atomic_t senders[SIGNAL_MAX]; /* pids */
static uint64_t arrived_ns[SIGNAL_MAX]; /* when the main thread saw it */
static bool from_command[SIGNAL_MAX];   /* and whether a recorded process had sent it */
static volatile sig_atomic_t typed[SIGNAL_MAX]; /* the terminal's, to our group; or AFTER_THE_END of the command */
static volatile sig_atomic_t is_command_over;
static volatile sig_atomic_t dump_asked;
static unsigned asked_to_end;
static uint64_t typed_end_ns; /* when the terminal asked us to end, after the command had */

static pid_t witness;
static struct {
	_Atomic uint32_t got[SIGNAL_MAX]; /* by signal number */
	_Atomic uint64_t ns[SIGNAL_MAX];  /* when it got the last one */
	_Atomic pid_t stopped;            /* the command that we are stopped for, 0: we are not */
} * witnessed;                            /* shared with the witness */
static uint32_t answered[SIGNAL_MAX]; /* how many of the witness's were taken into account */

/* All that may be meant for the command, but what tells of our own faults, terminal, pipes and children, and what is libc's. */
static bool is_passed_on(int number) {
	switch (number) {
	case SIGKILL:
	case SIGSTOP:
	case SIGTTIN:
	case SIGTTOU:
	case SIGCHLD:
	case SIGILL:
	case SIGTRAP:
	case SIGABRT:
	case SIGBUS:
	case SIGFPE:
	case SIGSEGV:
	case SIGSYS:
	case SIGPIPE:
	case SIGXFSZ: return false;
	}
	return number < 32 || (number >= SIGRTMIN && number != TM_SIGNAL_DUMP);
}

static bool asks_to_end(int number) {
	if (start_actions[number].sa_handler == SIG_IGN) return false; /* nohup */
	return number == SIGTERM || number == SIGHUP || number == SIGINT || number == SIGQUIT;
}

/* What a process sent. The kernel's own come to the command too, but for a terminal's end, of which only the session's leader is told. */
static bool may_be_for_us_alone(int number, const siginfo_t *info) {
	if (witness > 0 && info->si_pid == witness) return false;
	return info->si_code <= 0 || (number == SIGHUP && getsid(0) == getpid());
}

/* What the kernel sends a terminal's foreground group. */
static bool is_typed(int number, const siginfo_t *info) {
	if (info->si_code != SI_KERNEL) return false;
	return number == SIGINT || number == SIGQUIT || number == SIGTSTP || number == SIGWINCH || number == SIGHUP;
}

static void on_signal(int number, siginfo_t *info, void *context) {
	(void)context;
	if (info->si_code == SI_QUEUE) values[number] = info->si_value.sival_ptr;
	senders[number] = info->si_code <= 0 ? info->si_pid : 0;
	if (may_be_for_us_alone(number, info)) arrived[number] = info->si_code == SI_QUEUE ? QUEUED : 1;
	else if (is_typed(number, info)) typed[number] = is_command_over ? AFTER_THE_END : 1;
	atomic_fetch_add(wake_word, 1);
}

static void on_child(int number) {
	(void)number;
	atomic_fetch_add(wake_word, 1);
}

static void on_dump(int number) {
	(void)number;
	dump_asked = 1;
	atomic_fetch_add(wake_word, 1);
}

void tm_signals_hold(void) {
	sigset_t every;
	static const struct itimerval none;
	for (int timer = 0; timer < 3; timer++) setitimer(timer, &none, &start_timers[timer]);
	for (int number = 1; number < SIGNAL_MAX; number++)
		if (is_passed_on(number)) sigaction(number, NULL, &start_actions[number]);
	for (size_t i = 0; i < IGNORED_COUNT; i++) sigaction(ignored[i], NULL, &start_actions[ignored[i]]);
	sigaction(SIGCHLD, NULL, &start_actions[SIGCHLD]);
	sigfillset(&every);
	sigprocmask(SIG_SETMASK, &every, &start_mask);
}

bool tm_signals_end_asked_within(uint64_t ns) {
	struct timespec time = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
	sigset_t set;
	sigemptyset(&set);
	for (int number = 1; number < SIGNAL_MAX; number++)
		if (asks_to_end(number)) sigaddset(&set, number);
	return sigtimedwait(&set, NULL, &time) > 0;
}

void tm_signals_take_early(sigset_t *early) {
	static const struct timespec at_once;
	sigset_t set;
	siginfo_t info;
	int number;
	sigemptyset(early);
	sigemptyset(&set);
	for (number = 1; number < SIGNAL_MAX; number++)
		if (is_passed_on(number) && number != SIGTSTP && number != SIGCONT) sigaddset(&set, number);
	while ((number = sigtimedwait(&set, &info, &at_once)) > 0) {
		if (info.si_code == SI_QUEUE) on_signal(number, &info, NULL); /* with its value */
		else sigaddset(early, number);
	}
}

void tm_signals_raise_early(const sigset_t *early) {
	sigset_t got;
	sigpending(&got);
	for (int number = 1; number < SIGNAL_MAX; number++)
		if (sigismember(early, number) == 1 && sigismember(&got, number) != 1) raise(number);
}

void tm_signals_restore(void) {
	for (int number = 1; number < SIGNAL_MAX; number++)
		if (is_passed_on(number)) sigaction(number, &start_actions[number], NULL);
	for (size_t i = 0; i < IGNORED_COUNT; i++) sigaction(ignored[i], &start_actions[ignored[i]], NULL);
	sigaction(SIGCHLD, &start_actions[SIGCHLD], NULL);
	sigprocmask(SIG_SETMASK, &start_mask, NULL);
	for (int timer = 0; timer < 3; timer++) setitimer(timer, &start_timers[timer], NULL);
}

/* Also what was ignored when we were started: the command then ignores it, unless it has asked for it since. */
static void handle_one(int number, bool attached) {
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_signal;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	if (attached) {
		action.sa_flags = 0;
		action.sa_handler = SIG_IGN;
	}
	sigaction(number, &action, NULL);
}

void tm_signals_handle(_Atomic uint32_t *wake, bool attached) {
	struct sigaction action;
	sigset_t none;
	wake_word = wake;
	for (int number = 1; number < SIGNAL_MAX; number++)
		if (is_passed_on(number)) handle_one(number, attached);
	for (size_t i = 0; i < IGNORED_COUNT; i++) signal(ignored[i], SIG_IGN);
	memset(&action, 0, sizeof action);
	action.sa_handler = on_child;
	action.sa_flags = SA_RESTART;
	sigaction(SIGCHLD, &action, NULL);
	action.sa_handler = on_dump;
	sigaction(TM_SIGNAL_DUMP, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Without /proc it is believed to be. */
static bool is_stopped(pid_t pid) {
	char name[32], text[512];
	snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
	if (!tm_kernel_file(name, text, sizeof text)) return true;
	const char *end = strrchr(text, ')'); /* the name before it may hold anything */
	return !end || end[1] != ' ' || end[2] == 'T' || end[2] == 't';
}

/* Who looks for us by name or command line, as pkill does, means us alone, and must not meet the witness: it is born with another name, here and in /proc. We
 * have that too while it is made, which is over before there is a command. */
static char *take_another_name(int argc, char **argv, size_t *bytes) {
	char *end = argv[0] + strlen(argv[0]) + 1;
	for (int i = 1; i < argc && argv[i] == end; i++) end += strlen(argv[i]) + 1;
	*bytes = (size_t)(end - argv[0]);
	char *words = malloc(*bytes);
	if (!words) return NULL;
	memcpy(words, argv[0], *bytes);
	memset(argv[0], 0, *bytes);
	snprintf(argv[0], *bytes, WITNESS_NAME);
	prctl(PR_SET_NAME, WITNESS_NAME);
	return words;
}

/* All signals are blocked here since before the fork; they are taken one by one. The witness ends with us. */
static _Noreturn void be_witness(pid_t parent) {
	static const struct timespec look = { .tv_nsec = LOOK_NS };
	sigset_t set;
	siginfo_t info;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) _exit(0);
	syscall(SYS_close_range, 0u, ~0u, 0u);
	for (int fd = 0; fd < 3; fd++) close(fd);
	sigemptyset(&set);
	for (int number = 1; number < SIGNAL_MAX; number++)
		if (is_passed_on(number)) sigaddset(&set, number);
	sigaddset(&set, LOOK_SIGNAL);
	for (;;) {
		pid_t stopped = atomic_load(&witnessed->stopped);
		int number = stopped ? sigtimedwait(&set, &info, &look) : sigwaitinfo(&set, &info);
		/* Were it continued already, and only waits for a processor, this would take a stop away that came since. */
		if (number <= 0 && stopped && !is_stopped(stopped) && is_stopped(parent)) kill(parent, SIGCONT);
		if (number <= 0 || number >= SIGNAL_MAX || number == LOOK_SIGNAL) continue;
		if (!may_be_for_us_alone(number, &info)) continue;
		atomic_store(&witnessed->ns[number], tm_monotonic_ns());
		atomic_fetch_add(&witnessed->got[number], 1);
	}
}

void tm_signals_start_witness(int argc, char **argv) {
	pid_t parent = getpid();
	witnessed = mmap(NULL, sizeof *witnessed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (witnessed == MAP_FAILED) {
		witnessed = NULL;
		return;
	}
	char name[16];
	size_t bytes;
	prctl(PR_GET_NAME, name);
	char *words = take_another_name(argc, argv, &bytes);
	if (!words) return;
	witness = fork();
	if (witness == 0) be_witness(parent);
	memcpy(argv[0], words, bytes);
	prctl(PR_SET_NAME, name);
	free(words);
}

void tm_signals_dismiss_witness(void) {
	if (witness > 0) kill(witness, SIGKILL);
}

/* Where a filter refuses kill(2) the witness ends when we do. */
void tm_signals_stop_witness(void) {
	bool ends = witness > 0 && kill(witness, SIGKILL) == 0;
	while (ends && waitpid(witness, NULL, 0) < 0 && errno == EINTR) continue;
	witness = 0;
}

void tm_signals_wake_nobody(void) {
	wake_word = &nobody;
}

/* Without us it would lead our job, and could not have left that for a group of its own, as timeout(1) does: it would have got what the terminal sends. */
static bool leads_another_group(pid_t pid) {
	return pid > 0 && getpgrp() == getpid() && pid != getpid() && getpgid(pid) == pid && getsid(pid) == getsid(0);
}

/* Our terminal's foreground goes from one group to the other, if it has it. SIGTTOU is ignored here. */
static bool pass_terminal(pid_t from, pid_t to) {
	int terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (terminal < 0) return false;
	bool passed = tcgetpgrp(terminal) == from && tcsetpgrp(terminal, to) == 0;
	close(terminal);
	return passed;
}

/* Who read before it could has been stopped. Where a shell has just continued us that is passed on, and is enough. */
void tm_signals_lend_terminal(pid_t pid) {
	if (!leads_another_group(pid) || !pass_terminal(getpgrp(), pid)) return;
	if (!arrived[SIGCONT]) kill(-pid, SIGCONT);
}

void tm_signals_command_ended(pid_t pid) {
	static const int stops[] = { SIGTSTP, SIGTTIN, SIGTTOU };
	is_command_over = 1;
	if (getpgrp() == getpid()) pass_terminal(pid, getpgrp());
	for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) sigaction(stops[i], &start_actions[stops[i]], NULL);
}

/* True if the witness got a signal of this number that has not been counted yet, not long before `since_ns`. */
static bool witness_got(int number, uint64_t since_ns) {
	uint32_t count = witnessed ? atomic_load(&witnessed->got[number]) : 0;
	if (count == answered[number]) return false;
	answered[number] = count;
	return atomic_load(&witnessed->ns[number]) + DECIDE_NS >= since_ns;
}

/* What continued us before has been overtaken, as the kernel has it, too: who continues us now is looked at anew. */
void tm_signals_stop_like(pid_t pid, int number) {
	struct sigaction ours = { 0 }, theirs = { .sa_handler = SIG_DFL };
	if (witness <= 0) return;
	arrived[SIGCONT] = 0;
	arrived_ns[SIGCONT] = 0;
	witness_got(SIGCONT, 0);
	atomic_store(&witnessed->stopped, pid);
	kill(witness, LOOK_SIGNAL);
	sigaction(number, &theirs, &ours);
	raise(number);
	sigaction(number, &ours, NULL);
	atomic_store(&witnessed->stopped, 0);
}

/* What was typed while the command ran, or ended it, asks nothing of us. */
static void take_typed(pid_t pid) {
	for (int number = 1; number < SIGNAL_MAX; number++) {
		if (!typed[number]) continue;
		bool is_ours = typed[number] == AFTER_THE_END;
		typed[number] = 0;
		if (leads_another_group(pid)) kill(-pid, number);
		else if (is_ours && asks_to_end(number) && !typed_end_ns) typed_end_ns = tm_monotonic_ns();
	}
}

void tm_signals_forward(pid_t pid, bool (*is_recorded)(pid_t pid)) {
	uint64_t now = 0;
	take_typed(pid);
	for (int number = 1; number < SIGNAL_MAX; number++) {
		if (!arrived[number]) continue;
		if (!now) now = tm_monotonic_ns();
		if (!arrived_ns[number]) {
			arrived_ns[number] = now;
			from_command[number] = senders[number] > 0 && is_recorded(senders[number]); /* it may be gone later */
		}
		pid_t to = from_command[number] ? getppid() : pid;
		if (to <= 0 && asks_to_end(number)) asked_to_end++;
		if (to > 0 && now - arrived_ns[number] < DECIDE_NS) continue;
		bool queued = arrived[number] == QUEUED;
		bool shared = witness_got(number, arrived_ns[number]);
		arrived[number] = 0;
		arrived_ns[number] = 0;
		bool has_left = to == pid && pid > 0 && getpgid(pid) != getpgrp(); /* our group's, and the command has its own */
		bool whole = shared && has_left && leads_another_group(pid);
		if ((shared && !has_left) || to <= 0) continue;
		if (queued) sigqueue(to, number, (union sigval){ .sival_ptr = values[number] });
		else kill(whole ? -to : to, number);
	}
}

bool tm_signals_pending(void) {
	for (int number = 1; number < SIGNAL_MAX; number++)
		if (arrived[number]) return true;
	return false;
}

bool tm_signals_dump_asked(void) {
	bool asked = dump_asked;
	dump_asked = 0;
	return asked;
}

unsigned tm_signals_asked_to_end(void) {
	return asked_to_end + (typed_end_ns && tm_monotonic_ns() - typed_end_ns > TYPED_NS);
}
