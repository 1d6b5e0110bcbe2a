/* Statuses, and the JSON in which servers report errors. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_MESSAGE = 4096 };

weft_status *weft_status_new(void) { return calloc(1, sizeof(weft_status)); }

void wc_status_clear(weft_status *status) {
  if (!status) return;
  free(status->message);
  free(status->node);
  free(status->op);
  free(status->device);
  *status = (weft_status){0};
}

void weft_status_clear(weft_status *status) { wc_status_clear(status); }

void weft_status_free(weft_status *status) {
  wc_status_clear(status);
  free(status);
}

weft_code weft_status_code(const weft_status *status) { return status ? status->code : WEFT_OK; }

static const char *text_of(const char *text) { return text ? text : ""; }

const char *weft_status_message(const weft_status *status) {
  return text_of(status ? status->message : NULL);
}
const char *weft_status_node(const weft_status *status) {
  return text_of(status ? status->node : NULL);
}
const char *weft_status_op(const weft_status *status) { return text_of(status ? status->op : NULL); }
const char *weft_status_device(const weft_status *status) {
  return text_of(status ? status->device : NULL);
}

const char *weft_code_name(weft_code code) {
  static const char *const names[] = {
      "OK",           "CANCELLED",         "UNKNOWN",           "INVALID_ARGUMENT",
      "DEADLINE_EXCEEDED", "NOT_FOUND",    "ALREADY_EXISTS",    "PERMISSION_DENIED",
      "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",   "OUT_OF_RANGE",
      "UNIMPLEMENTED", "INTERNAL",         "UNAVAILABLE",       "DATA_LOSS",
      "UNAUTHENTICATED"};
  unsigned index = (unsigned)code;
  return index < sizeof names / sizeof *names ? names[index] : "UNKNOWN";
}

weft_code wc_fail(weft_status *status, weft_code code, const char *format, ...) {
  if (!status) return code;
  char message[MAX_MESSAGE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  wc_status_clear(status);
  status->code = code;
  status->message = wc_copy_string(message, strlen(message));
  return code;
}

weft_code wc_no_memory(weft_status *status) {
  return wc_fail(status, WEFT_RESOURCE_EXHAUSTED, "the client has no more memory");
}

static char *copy_or_null(const char *text) {
  return text ? wc_copy_string(text, strlen(text)) : NULL;
}

void wc_status_copy(weft_status *to, const weft_status *from) {
  if (!to) return;
  wc_status_clear(to);
  to->code = from->code;
  to->message = copy_or_null(from->message);
  to->node = copy_or_null(from->node);
  to->op = copy_or_null(from->op);
  to->device = copy_or_null(from->device);
}

/* --------------------------------------------------------------------------------- JSON */

typedef struct reader {
  const char *at, *end;
} reader;

static void skip_space(reader *in) {
  while (in->at < in->end && strchr(" \t\r\n", *in->at) && *in->at) in->at++;
}

static bool take(reader *in, char expected) {
  skip_space(in);
  if (in->at == in->end || *in->at != expected) return false;
  in->at++;
  return true;
}

static bool read_hex(reader *in, unsigned *value) {
  *value = 0;
  for (int i = 0; i < 4; i++, in->at++) {
    if (in->at == in->end) return false;
    char digit = *in->at;
    unsigned number = digit >= '0' && digit <= '9'   ? (unsigned)(digit - '0')
                      : digit >= 'a' && digit <= 'f' ? (unsigned)(digit - 'a' + 10)
                      : digit >= 'A' && digit <= 'F' ? (unsigned)(digit - 'A' + 10)
                                                     : 16;
    if (number > 15) return false;
    *value = *value * 16 + number;
  }
  return true;
}

static void put_utf8(wc_buffer *out, unsigned code) {
  uint8_t bytes[4];
  size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = size; i-- > 1; code >>= 6) bytes[i] = (uint8_t)(0x80 | (code & 0x3f));
  bytes[0] = (uint8_t)(size == 1 ? code : ((0xf00u >> size) & 0xff) | code);
  wc_put(out, bytes, size);
}

static bool read_escape(reader *in, wc_buffer *out) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  if (in->at == in->end) return false;
  char name = *in->at++;
  const char *place = name ? strchr(names, name) : NULL;
  if (place) {
    wc_put(out, &values[place - names], 1);
    return true;
  }
  unsigned code, low;
  if (name != 'u' || !read_hex(in, &code)) return false;
  if (code >= 0xd800 && code < 0xdc00) { /* half of a pair */
    if (in->end - in->at < 6 || in->at[0] != '\\' || in->at[1] != 'u') return false;
    in->at += 2;
    if (!read_hex(in, &low) || low < 0xdc00 || low > 0xdfff) return false;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  put_utf8(out, code ? code : '?');
  return true;
}

static bool read_text(reader *in, wc_buffer *out) {
  out->size = 0;
  if (!take(in, '"')) return false;
  while (in->at < in->end && *in->at != '"') {
    if (*in->at == '\\') {
      in->at++;
      if (!read_escape(in, out)) return false;
    } else {
      wc_put(out, in->at++, 1);
    }
  }
  wc_put_zeros(out, 1);
  return take(in, '"') && !out->failed;
}

static bool skip_value(reader *in, wc_buffer *scratch, int depth) {
  skip_space(in);
  if (in->at == in->end || depth > MAX_DEPTH) return false;
  char first = *in->at;
  if (first == '"') return read_text(in, scratch);
  if (first != '{' && first != '[') {
    const char *start = in->at;
    while (in->at < in->end && *in->at && !strchr(",]} \t\r\n", *in->at)) in->at++;
    return in->at > start;
  }
  in->at++;
  char last = first == '{' ? '}' : ']';
  if (take(in, last)) return true;
  do {
    if (first == '{' && !(read_text(in, scratch) && take(in, ':'))) return false;
    if (!skip_value(in, scratch, depth + 1)) return false;
  } while (take(in, ','));
  return take(in, last);
}

static char **field_of(weft_status *status, const char *name) {
  if (!strcmp(name, "message")) return &status->message;
  if (!strcmp(name, "node")) return &status->node;
  if (!strcmp(name, "op")) return &status->op;
  if (!strcmp(name, "device")) return &status->device;
  return NULL;
}

static bool read_fields(weft_status *status, reader *in, wc_buffer *text) {
  if (!take(in, '{')) return false;
  do {
    if (!read_text(in, text) || !take(in, ':')) return false;
    char **field = field_of(status, (const char *)text->data);
    skip_space(in);
    if (field && in->at < in->end && *in->at == '"') {
      if (!read_text(in, text)) return false;
      free(*field);
      *field = wc_copy_string((const char *)text->data, text->size - 1);
    } else if (!skip_value(in, text, 0)) {
      return false;
    }
  } while (take(in, ','));
  return take(in, '}') && status->message;
}

weft_code wc_status_from_json(weft_status *status, int code, const char *json, size_t size) {
  weft_code result = code > 0 && code <= WEFT_UNAUTHENTICATED ? (weft_code)code : WEFT_UNKNOWN;
  if (!status) return result;
  reader in = {json, json + size};
  wc_buffer text = {0};
  wc_status_clear(status);
  bool is_read = read_fields(status, &in, &text);
  wc_buffer_free(&text);
  if (!is_read) {
    wc_status_clear(status);
    wc_fail(status, result, "the server reports an error that cannot be read");
  }
  status->code = result;
  return result;
}
