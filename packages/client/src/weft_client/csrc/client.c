/* Clients: connections to servers, and servers that are started for one program. */
#include "internal.h"
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  DEFAULT_TIMEOUT_MS = 60000,
  MAX_ARGUMENTS = 64,
  LINE_BYTES = 512,
  MAX_PORT = 65535,
  PORT_DIGITS = 5,
  STOP_MS = 5000,
  POLL_NS = 5000000
};

static const char scheme[] = "weft://";

/* Split "weft://host:port", where the host may be in brackets. */
static bool split_target(const char *target, char **host, char **port) {
  *host = *port = NULL;
  if (!target || strncmp(target, scheme, sizeof scheme - 1)) return false;
  const char *text = target + sizeof scheme - 1, *colon = strrchr(text, ':');
  size_t num_digits = colon ? strspn(colon + 1, "0123456789") : 0;
  if (colon == text || !num_digits || num_digits > PORT_DIGITS || colon[1 + num_digits] ||
      atoi(colon + 1) > MAX_PORT || !atoi(colon + 1))
    return false;
  size_t size = (size_t)(colon - text);
  if (*text == '[' && size > 2 && text[size - 1] == ']') {
    text++;
    size -= 2;
  }
  *host = wc_copy_string(text, size);
  *port = wc_copy_string(colon + 1, strlen(colon + 1));
  return *host && *port;
}

static void explain(weft_status *status, const char *target) {
  if (status->code != WEFT_UNAVAILABLE && status->code != WEFT_DEADLINE_EXCEEDED) return;
  char *message = status->message;
  status->message = NULL;
  wc_fail(status, status->code, "%s: %s", target, message ? message : "");
  free(message);
}

static weft_client *connect_to(const weft_client_options *options, int64_t deadline,
                               weft_status *status) {
  char *host, *port;
  wc_credentials credentials = {0};
  weft_client *client = calloc(1, sizeof *client);
  if (client) client->input = -1;
  if (!client) {
    wc_no_memory(status);
  } else if (!split_target(options->target, &host, &port)) {
    wc_fail(status, WEFT_INVALID_ARGUMENT,
            "a target is like weft://localhost:40123, as the server prints it, with a port of 1 to "
            "65535; got '%s'",
            options->target ? options->target : "");
    free(host);
    free(port);
  } else {
    client->target = wc_copy_string(options->target, strlen(options->target));
    client->timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    if (!wc_credentials_load(&credentials, options, host, port, status))
      client->connection = wc_connection_open(host, port, &credentials, deadline, status);
    wc_credentials_free(&credentials);
    free(host);
    free(port);
  }
  if (client && client->connection && client->target) return client;
  if (client) weft_client_close(client);
  return NULL;
}

weft_client *weft_client_connect(const weft_client_options *options, weft_status *status) {
  static const weft_client_options none;
  weft_status local = {0};
  if (!options) options = &none;
  int64_t deadline = wc_deadline(options->timeout_ms, DEFAULT_TIMEOUT_MS);
  weft_client *client = connect_to(options, deadline, &local);
  if (!client && options->target) explain(&local, options->target);
  if (!client) wc_status_copy(status, &local);
  wc_status_clear(&local);
  return client;
}

const char *weft_client_target(const weft_client *client) { return client ? client->target : NULL; }

weft_code weft_client_reset(weft_client *client, const char *const *containers, size_t count,
                            int64_t timeout_ms, weft_status *status) {
  if (!client || !wc_has_names(containers, count)) return wc_null_argument(status);
  wc_buffer meta = {0};
  wc_reply reply = {0};
  const wc_field fields[] = {{.kind = WC_FLAG, .number = !count}, wc_texts_field(containers, count)};
  wc_write_table(&meta, fields, 2);
  weft_code code = wc_call(client->connection, WC_RESET, &meta, NULL, 0, NULL,
                           wc_deadline(timeout_ms, client->timeout_ms), &reply, status);
  wc_buffer_free(&meta);
  wc_reply_free(&reply);
  return code;
}

/* -------------------------------------------------------------------------- local servers */

static void stop_process(int process) {
  int64_t deadline = wc_now() + STOP_MS;
  const struct timespec pause = {.tv_nsec = POLL_NS};
  kill(process, SIGTERM);
  while (waitpid(process, NULL, WNOHANG) == 0) {
    if (wc_now() > deadline) kill(process, SIGKILL);
    nanosleep(&pause, NULL);
  }
}

void weft_client_close(weft_client *client) {
  if (!client) return;
  wc_connection_close(client->connection);
  if (client->input >= 0) close(client->input);
  if (client->process > 0) stop_process(client->process);
  free(client->target);
  free(client);
}

static weft_code collect_arguments(const weft_launch_options *options, char **arguments,
                                   weft_status *status) {
  static const char *const tied[] = {"--stop-at-eof", NULL};
  const char *named = getenv("WEFT_COMMAND");
  const char *const standard[] = {named && *named ? named : "weft", "server", NULL};
  const char *const *const groups[] = {options->command ? options->command : standard, tied,
                                       options->arguments};
  size_t count = 0;
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    for (const char *const *word = groups[i]; word && *word; word++) {
      if (count + 1 == MAX_ARGUMENTS)
        return wc_fail(status, WEFT_INVALID_ARGUMENT, "a server has at most %d arguments",
                       MAX_ARGUMENTS - 1);
      arguments[count++] = (char *)(uintptr_t)*word;
    }
  arguments[count] = NULL;
  return WEFT_OK;
}

/* In a new process: only calls that are safe after a fork in a program with threads. */
static void become_server(char **arguments, int input, int output, int errors) {
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, NULL);
  if (dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0)
    execvp(arguments[0], arguments);
  int error = errno;
  ssize_t ignored = write(errors, &error, sizeof error);
  (void)ignored;
  _exit(127);
}

static void close_pipe(const int *ends) {
  close(ends[0]);
  close(ends[1]);
}

static bool open_pipes(int pipes[][2], int count) {
  for (int i = 0; i < count; i++)
    if (pipe2(pipes[i], O_CLOEXEC)) {
      while (i--) close_pipe(pipes[i]);
      return false;
    }
  return true;
}

/* Start a program. `*output` receives what it prints; its input ends when `*input` is closed, also
 * by the end of this program. Returns the process, or -1. */
static int start_process(char **arguments, int *input, int *output, weft_status *status) {
  enum { INPUT, OUTPUT, ERRORS, NUM_PIPES };
  int pipes[NUM_PIPES][2], error = 0;
  if (!open_pipes(pipes, NUM_PIPES)) {
    wc_fail(status, WEFT_RESOURCE_EXHAUSTED, "no pipe: %s", strerror(errno));
    return -1;
  }
  int process = fork();
  if (!process) become_server(arguments, pipes[INPUT][0], pipes[OUTPUT][1], pipes[ERRORS][1]);
  close(pipes[INPUT][0]);
  close(pipes[OUTPUT][1]);
  close(pipes[ERRORS][1]);
  if (process < 0) error = errno;
  else if (read(pipes[ERRORS][0], &error, sizeof error) != sizeof error) error = 0;
  close(pipes[ERRORS][0]);
  *input = pipes[INPUT][1];
  *output = pipes[OUTPUT][0];
  if (!error) return process;
  wc_fail(status, WEFT_NOT_FOUND, "the server '%s' cannot be started: %s", arguments[0],
          strerror(error));
  if (process > 0) waitpid(process, NULL, 0);
  return -1;
}

/* Read until a line names the value port; the target is at `line`. */
static weft_code read_target(int output, char *line, int64_t deadline, weft_status *status) {
  size_t size = 0;
  for (;;) {
    weft_code code = wc_wait_for(output, POLLIN, deadline, NULL);
    if (code) return wc_fail(status, code, "the server has not started in time");
    if (size == LINE_BYTES - 1) size = 0;
    if (read(output, line + size, 1) != 1)
      return wc_fail(status, WEFT_UNAVAILABLE, "the server ended before it listened");
    if (line[size++] != '\n') continue;
    line[size - 1] = 0;
    char *target = strstr(line, scheme);
    if (target) {
      memmove(line, target, strlen(target) + 1);
      return WEFT_OK;
    }
    size = 0;
  }
}

weft_client *weft_client_launch_local(const weft_launch_options *options, weft_status *status) {
  static const weft_launch_options none;
  char *arguments[MAX_ARGUMENTS], line[LINE_BYTES];
  weft_status local = {0};
  weft_client *client = NULL;
  int input = -1, output = -1, process = -1;
  if (!options) options = &none;
  int64_t deadline = wc_deadline(options->timeout_ms, DEFAULT_TIMEOUT_MS);
  if (!collect_arguments(options, arguments, &local))
    process = start_process(arguments, &input, &output, &local);
  if (process > 0 && !read_target(output, line, deadline, &local)) {
    weft_client_options connect = {.target = line, .timeout_ms = options->timeout_ms};
    client = connect_to(&connect, deadline, &local);
  }
  if (output >= 0) close(output);
  if (client) {
    client->process = process;
    client->input = input;
  } else {
    if (input >= 0) close(input);
    if (process > 0) stop_process(process);
    wc_status_copy(status, &local);
  }
  wc_status_clear(&local);
  return client;
}
