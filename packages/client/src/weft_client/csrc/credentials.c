/* Credentials: files, and tokens that servers on loopback publish to processes of their user. */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIN_TOKEN_BYTES = 16, MAX_TOKEN_BYTES = 1 << 10, MAX_PATH = 4096 };

void wc_credentials_free(wc_credentials *credentials) {
  free(credentials->certificate);
  free(credentials->key);
  free(credentials->authority);
  free(credentials->token);
  *credentials = (wc_credentials){0};
}

/* Read a small file from a descriptor and close it. */
static char *read_all(int file, size_t *size) {
  char *text = malloc(MAX_TOKEN_BYTES + 1);
  *size = 0;
  while (text && *size < MAX_TOKEN_BYTES) {
    ssize_t count = read(file, text + *size, MAX_TOKEN_BYTES - *size);
    if (count <= 0) break;
    *size += (size_t)count;
  }
  close(file);
  return text;
}

static weft_code read_token(wc_credentials *credentials, const char *path, weft_status *status) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return wc_fail(status, WEFT_NOT_FOUND, "the token file %s: %s", path, strerror(errno));
  char *text = read_all(file, &credentials->token_size);
  credentials->token = text;
  if (!text) return wc_no_memory(status);
  size_t start = 0, end = credentials->token_size;
  while (start < end && strchr(" \t\r\n", text[start]) && text[start]) start++;
  while (end > start && strchr(" \t\r\n", text[end - 1]) && text[end - 1]) end--;
  memmove(text, text + start, end - start);
  credentials->token_size = end - start;
  if (end - start < MIN_TOKEN_BYTES)
    return wc_fail(status, WEFT_INVALID_ARGUMENT, "the token in %s has fewer than %d bytes", path,
                   MIN_TOKEN_BYTES);
  return WEFT_OK;
}

/* --------------------------------------------------------------------- published tokens */

static bool is_private(const struct stat *file) {
  return file->st_uid == geteuid() && !(file->st_mode & 077);
}

/* Read the token in a file if a living server holds the lock of it. */
static bool read_published(wc_credentials *credentials, const char *path) {
  struct stat about;
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return false;
  bool is_alive = !fstat(file, &about) && is_private(&about) &&
                  flock(file, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
  if (!is_alive) {
    close(file);
    return false;
  }
  credentials->token = read_all(file, &credentials->token_size);
  return credentials->token && credentials->token_size;
}

static bool search_directory(wc_credentials *credentials, const char *directory,
                             const char *address, const char *port) {
  struct stat about;
  char suffix[128], path[MAX_PATH];
  if (lstat(directory, &about) || !S_ISDIR(about.st_mode) || !is_private(&about)) return false;
  DIR *entries = opendir(directory);
  if (!entries) return false;
  snprintf(suffix, sizeof suffix, "-%s-%s", address, port);
  bool is_read = false;
  for (struct dirent *entry; !is_read && (entry = readdir(entries));) {
    size_t size = strlen(entry->d_name), tail = strlen(suffix);
    if (size < tail || strcmp(entry->d_name + size - tail, suffix)) continue;
    int length = snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    is_read = length > 0 && (size_t)length < sizeof path && read_published(credentials, path);
  }
  closedir(entries);
  return is_read;
}

static void find_published(wc_credentials *credentials, const char *host, const char *port) {
  bool is_v4 = !strcmp(host, "localhost") || !strcmp(host, "127.0.0.1");
  if (!is_v4 && strcmp(host, "::1")) return;
  const char *address = is_v4 ? "127.0.0.1" : "__1"; /* file names have no colons */
  const char *named = getenv("WEFT_RUNTIME_DIR"), *home = getenv("HOME"), *tmp = getenv("TMPDIR");
  char path[MAX_PATH];
  if (named && *named) {
    search_directory(credentials, named, address, port);
    return;
  }
  if (home && *home) {
    int length = snprintf(path, sizeof path, "%s/.local/state/weft/servers", home);
    if (length > 0 && (size_t)length < sizeof path &&
        search_directory(credentials, path, address, port))
      return;
  }
  int length = snprintf(path, sizeof path, "%s/weft-%u", tmp && *tmp ? tmp : "/tmp",
                        (unsigned)geteuid());
  if (length > 0 && (size_t)length < sizeof path)
    search_directory(credentials, path, address, port);
}

/* ------------------------------------------------------------------------------ loading */

static char *path_of(const char *option, const char *variable) {
  const char *path = option && *option ? option : getenv(variable);
  return path && *path ? wc_copy_string(path, strlen(path)) : NULL;
}

weft_code wc_credentials_load(wc_credentials *credentials, const weft_client_options *options,
                              const char *host, const char *port, weft_status *status) {
  *credentials = (wc_credentials){0};
  credentials->certificate = path_of(options->certificate, "WEFT_CERTIFICATE");
  credentials->key = path_of(options->key, "WEFT_KEY");
  credentials->authority = path_of(options->authority, "WEFT_AUTHORITY");
  bool has_some = credentials->certificate || credentials->key || credentials->authority;
  bool has_all = credentials->certificate && credentials->key && credentials->authority;
  if (has_some && !has_all)
    return wc_fail(status, WEFT_INVALID_ARGUMENT,
                   "credentials need a certificate, its key and an authority; some are missing");
  char *token = path_of(options->token, "WEFT_TOKEN");
  weft_code code = token ? read_token(credentials, token, status) : WEFT_OK;
  if (!token && !has_all) find_published(credentials, host, port);
  free(token);
  return code;
}
