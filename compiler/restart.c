/* Linked to programs and not to libraries: with FARHEAP_LOCAL in its environment, the program restarts itself under
 * `farheap run`. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "support.h"

__attribute__((noreturn)) static void refuse(const char* what, const char* why) {
  fprintf(stderr, "farheap: FARHEAP_LOCAL is set, and %s: %s, or unset FARHEAP_LOCAL to run without far memory\n", what,
          why);
  _exit(127);
}

/* Whether this program was started as an argument of the dynamic loader, which has none itself. Of a static program
 * this is said, too, but `farheap run` refuses that. */
static bool is_started_by_loader(void) {
  return getauxval(AT_BASE) == 0;
}

/* In /proc/self/maps a line feed is written as a number, and a backslash as itself. So the path is first taken as it
 * stands. */
static void restore_line_feeds(char* path) {
  if (access(path, F_OK) == 0) return;
  for (char* at = path; (at = strstr(at, "\\012")) != NULL; ++at) {
    *at = '\n';
    memmove(at + 1, at + 4, strlen(at + 4) + 1);
  }
}

/* The file that this program was loaded from, where /proc/self/exe is the dynamic loader. */
static bool find_loaded_program(char program[PATH_MAX]) {
  FILE* const mappings = fopen("/proc/self/maps", "re");
  if (mappings == NULL) return false;
  const uintptr_t here = (uintptr_t)&__farheap_compiled;
  char line[PATH_MAX + 128]; /* "BEGIN-END rights offset device inode PATH" */
  bool is_found = false;
  while (!is_found && fgets(line, sizeof line, mappings) != NULL) {
    char* rest = line;
    const uintptr_t begin = strtoull(rest, &rest, 16);
    const uintptr_t end = *rest == '-' ? strtoull(rest + 1, NULL, 16) : 0;
    const char* const path = strchr(line, '/');
    if (here < begin || here >= end || path == NULL) continue;
    is_found = snprintf(program, PATH_MAX, "%.*s", (int)strcspn(path, "\n"), path) < PATH_MAX;
  }
  fclose(mappings);
  if (is_found) restore_line_feeds(program);
  return is_found;
}

static bool find_program(char program[PATH_MAX]) {
  if (is_started_by_loader()) return find_loaded_program(program);
  const ssize_t length = readlink("/proc/self/exe", program, PATH_MAX);
  if (length < 0 || length == PATH_MAX) return false;
  program[length] = 0;
  return true;
}

/* Whether the dynamic loader was given options, such as --library-path, before the program. `farheap run` cannot start
 * the loader, so they would be lost. */
static bool has_options_of_loader(int count) {
  if (!is_started_by_loader()) return false;
  FILE* const all = fopen("/proc/self/cmdline", "re");
  if (all == NULL) return false;
  int words = 0;
  for (int letter = 0; (letter = fgetc(all)) != EOF;) words += letter == 0;
  fclose(all);
  return words > count + 1;
}

/* Does not return if FARHEAP_LOCAL is set. The variable is gone in the program that it starts, so what the machine
 * cannot do runs natively. */
static void restart(int count, char** arguments, char** environment) {
  /* The C library has not set it yet, unless it is linked statically. */
  environ = environment;
  const char* const local = secure_getenv("FARHEAP_LOCAL");
  if (local == NULL || *local == 0) return;
  static const struct {
    const char* variable;
    const char* option;
  } passed[] = {{"FARHEAP_FAR", "--far"},       {"FARHEAP_FAULT_MODE", "--fault-mode"},
                {"FARHEAP_POLICY", "--policy"}, {"FARHEAP_FREE_AHEAD", "--free-ahead"},
                {"FARHEAP_BATCH", "--batch"},   {"FARHEAP_STATS_JSON", "--stats-json"}};
  char program[PATH_MAX];
  if (!find_program(program)) refuse("neither /proc/self/exe nor /proc/self/maps names this program", "mount /proc");
  if (has_options_of_loader(count)) {
    refuse("the dynamic loader was started with options, which `farheap run` cannot pass on",
           "start the program itself, with LD_LIBRARY_PATH in place of --library-path");
  }
  const char* command[(size_t)count + 4 + 2 * sizeof passed / sizeof *passed + 3];
  size_t used = 0;
  command[used++] = "farheap";
  command[used++] = "run";
  command[used++] = "--local";
  command[used++] = local;
  for (size_t i = 0; i < sizeof passed / sizeof *passed; ++i) {
    const char* const value = getenv(passed[i].variable);
    if (value == NULL || *value == 0) continue;
    command[used++] = passed[i].option;
    command[used++] = value;
  }
  command[used++] = "--";
  command[used++] = program;
  for (int i = 1; i < count; ++i) command[used++] = arguments[i];
  command[used] = NULL;
  unsetenv("FARHEAP_LOCAL");
  execvp("farheap", (char**)(uintptr_t)command);
  char failure[128];
  snprintf(failure, sizeof failure, "the command farheap cannot be started: %s", strerror(errno));
  refuse(failure, "install it where PATH leads");
}

/* Before constructors, of libraries too: what they did would be done twice. The linker knows it by the name. Whether
 * the runtime has been preloaded is known already: then it was `farheap run` that started the program. */
static void restart_unless_preloaded(int count, char** arguments, char** environment) {
  if (far_compiled_join == NULL && dlsym(NULL, "far_compiled_join") == NULL) restart(count, arguments, environment);
}
HIDDEN __attribute__((section(".preinit_array"),
                      used)) void (*const __farheap_restart)(int, char**, char**) = restart_unless_preloaded;
