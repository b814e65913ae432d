/* See quick_sprintf.h. NetHack formats its lines of status at each change, with %s, %d, %X and widths. */

#define ONI_KEEP_SPRINTF
#include "quick_sprintf.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_DIGITS = 20 };

/* A conversion: %, a minus, a zero, a width, an l, and one of s, c, d, u, X. */
struct conversion {
    bool is_left, is_zero_padded, is_long;
    size_t width;
    char kind;
};

/* Reads the conversion after a percent sign. Returns what follows it; NULL: it is another. */
static const char *read_conversion(const char *text, struct conversion *found)
{
    memset(found, 0, sizeof *found);
    if ((found->is_left = *text == '-'))
        text++;
    if ((found->is_zero_padded = *text == '0'))
        text++;
    while (*text >= '0' && *text <= '9' && found->width < 1000)
        found->width = found->width * 10 + (size_t) (*text++ - '0');
    if ((found->is_long = *text == 'l'))
        text++;
    found->kind = *text;
    bool is_number = found->kind == 'd' || found->kind == 'u' || found->kind == 'X';
    bool is_text = (found->kind == 's' || found->kind == 'c') && !found->is_long && !found->is_zero_padded;
    return (is_number && !(found->is_zero_padded && found->is_left)) || is_text ? text + 1 : NULL;
}

static bool is_plain(const char *format)
{
    struct conversion found;
    while ((format = strchr(format, '%'))) {
        format = format[1] == '%' ? format + 2 : read_conversion(format + 1, &found);
        if (!format)
            return false;
    }
    return true;
}

/* Writes the number's digits so that they end before `end`. Returns where they begin. */
static char *write_digits(unsigned long number, unsigned base, char *end)
{
    do
        *--end = "0123456789ABCDEF"[number % base];
    while (number /= base);
    return end;
}

static char *write_padded(char *to, const struct conversion *as, const char *text, size_t length)
{
    size_t padding = as->width > length ? as->width - length : 0;
    if (!as->is_left) {
        memset(to, ' ', padding);
        to += padding;
    }
    memmove(to, text, length);
    to += length;
    if (as->is_left) {
        memset(to, ' ', padding);
        to += padding;
    }
    return to;
}

static char *write_number(char *to, const struct conversion *as, unsigned long number, bool is_negative)
{
    char digits[MAX_DIGITS + 1], *end = digits + sizeof digits;
    char *begin = as->kind == 'X' ? write_digits(number, 16, end) : write_digits(number, 10, end);
    if (!as->is_zero_padded) {
        if (is_negative)
            *--begin = '-';
        return write_padded(to, as, begin, (size_t) (end - begin));
    }
    size_t length = (size_t) (end - begin) + is_negative;
    if (is_negative)
        *to++ = '-';
    for (; length < as->width; length++)
        *to++ = '0';
    memcpy(to, begin, (size_t) (end - begin));
    return to + (end - begin);
}

static char *write_plain(char *to, const char *format, va_list values)
{
    while (*format) {
        struct conversion as;
        if (*format != '%' || *++format == '%') {
            *to++ = *format++;
            continue;
        }
        format = read_conversion(format, &as);
        if (as.kind == 's') {
            const char *text = va_arg(values, const char *);
            text = text ? text : "(null)";
            to = write_padded(to, &as, text, strlen(text));
        } else if (as.kind == 'c') {
            char letter = (char) va_arg(values, int);
            to = write_padded(to, &as, &letter, 1);
        } else if (as.kind == 'd') {
            long number = as.is_long ? va_arg(values, long) : va_arg(values, int);
            to = write_number(to, &as, number < 0 ? -(unsigned long) number : (unsigned long) number, number < 0);
        } else {
            to = write_number(to, &as, as.is_long ? va_arg(values, unsigned long) : va_arg(values, unsigned), false);
        }
    }
    return to;
}

int oni_sprintf(char *to, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int length;
    if (is_plain(format)) {
        char *end = write_plain(to, format, values);
        *end = 0;
        length = (int) (end - to);
    } else {
        length = vsprintf(to, format, values);
    }
    va_end(values);
    return length;
}
