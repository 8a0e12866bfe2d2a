/* verbs.h - the commands of `tidemark`, one function a verb, each in the file cmd_VERB.c.
 *
 * argv[0] is the verb. Each returns the exit status; what failed has been said on standard error.
 */
#ifndef TIDEMARK_ANALYZER_VERBS_H
#define TIDEMARK_ANALYZER_VERBS_H

int tm_cmd_record(int argc, char **argv);
int tm_cmd_names(int argc, char **argv);
int tm_cmd_import(int argc, char **argv);
int tm_cmd_info(int argc, char **argv);
int tm_cmd_summary(int argc, char **argv);
int tm_cmd_peak(int argc, char **argv);
int tm_cmd_snapshot(int argc, char **argv);
int tm_cmd_scopes(int argc, char **argv);
int tm_cmd_leaks(int argc, char **argv);
int tm_cmd_diff(int argc, char **argv);
int tm_cmd_check(int argc, char **argv);
int tm_cmd_temporary(int argc, char **argv);
int tm_cmd_timeline(int argc, char **argv);
int tm_cmd_alerts(int argc, char **argv);
int tm_cmd_processes(int argc, char **argv);
int tm_cmd_gpu(int argc, char **argv);
int tm_cmd_top(int argc, char **argv);
int tm_cmd_query(int argc, char **argv);
int tm_cmd_export(int argc, char **argv);
int tm_cmd_report(int argc, char **argv);
int tm_cmd_doctor(int argc, char **argv);

#endif
