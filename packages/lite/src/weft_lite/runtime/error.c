/* Texts of errors. The C library's own formatting would bring in its files and locales. */
#include <stdarg.h>

#include "runtime.h"

typedef struct text {
  char *at, *end;
} text;

static void put(text *t, const char *s) {
  while (*s && t->at < t->end) {
    unsigned char c = (unsigned char)*s++;
    *t->at++ = c < 32 || c == 127 ? '?' : (char)c;
  }
}

static void put_number(text *t, int64_t value) {
  char digits[24];
  char *d = digits + sizeof digits - 1;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  *d = 0;
  do *--d = (char)('0' + rest % 10);
  while (rest /= 10);
  if (value < 0) *--d = '-';
  put(t, d);
}

/* %s a string, %d an int64_t, %t the name of a type (int), %S the dims of a tensor (pointer). */
static void format_into(text *t, const char *format, va_list arguments) {
  char one[2] = {0, 0};
  for (; *format; format++) {
    if (*format != '%') {
      one[0] = *format;
      put(t, one);
    } else if (*++format == 's') {
      put(t, va_arg(arguments, const char *));
    } else if (*format == 'd') {
      put_number(t, va_arg(arguments, int64_t));
    } else if (*format == 't') {
      put(t, wl_type_name((unsigned)va_arg(arguments, int)));
    } else if (*format == 'S') {
      const wl_tensor *tensor = va_arg(arguments, const wl_tensor *);
      put(t, "(");
      for (int i = 0; i < tensor->rank; i++) {
        if (i) put(t, ", ");
        put_number(t, tensor->dims[i]);
      }
      put(t, ")");
    }
  }
}

static wl_status finish(wl_error *error, wl_status status, text *t) {
  error->status = status;
  *t->at = 0;
  return status;
}

wl_status wl_refuse(wl_error *error, wl_status status, const char *format, ...) {
  if (!error) return status;
  text t = {error->text, error->text + sizeof error->text - 1};
  va_list arguments;
  va_start(arguments, format);
  format_into(&t, format, arguments);
  va_end(arguments);
  return finish(error, status, &t);
}

wl_status wl_fail(wl_interpreter *r, wl_status status, const char *format, ...) {
  if (!r->error) return status;
  text t = {r->error->text, r->error->text + sizeof r->error->text - 1};
  if (r->current) {
    put(&t, "op ");
    put_number(&t, r->current - r->ops);
    put(&t, " (");
    put(&t, r->current->kernel->name);
    const char *name = wl_text(r->metadata, r->current->table, WL_OP_NAME);
    if (*name) {
      put(&t, " \"");
      text part = {t.at, t.at + 120 < t.end ? t.at + 120 : t.end};
      put(&part, name);
      t.at = part.at;
      put(&t, "\"");
    }
    put(&t, "): ");
  }
  va_list arguments;
  va_start(arguments, format);
  format_into(&t, format, arguments);
  va_end(arguments);
  return finish(r->error, status, &t);
}
