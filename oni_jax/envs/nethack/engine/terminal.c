/* See terminal.h. It knows the sequences that win/tty sends to an `ansi` terminal, and does with them what NLE's emulator
 * does, edges included. Variables are the game's. */

#include "terminal.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { ROWS = 24, COLUMNS = 80, TAB = 8, MAX_ARGUMENTS = 8 };
enum { GRAY = 7, BRIGHT = 8, REVERSE = 16 };           /* colours of NetHack; REVERSE is added */
enum { ESCAPE = 27, FIRST_COLOR = 30, LAST_COLOR = 37, DEFAULT_COLOR = 39 };

static unsigned char *shown_chars, *shown_cursor;
static signed char *shown_colors;
static bool is_shown;
static size_t row, column;                             /* of the cursor */
static size_t flushed_row, flushed_column;
static int color;                                      /* of what is written next, or one of these: */
enum { DEFAULT = -1, NEVER_SET = -2 };
static bool is_bold, is_reverse;
static enum { IN_TEXT, AFTER_ESCAPE, IN_SEQUENCE } state;
static size_t arguments[MAX_ARGUMENTS], argument, num_arguments;

static void clear(size_t from, size_t end)
{
    if (shown_chars)
        memset(shown_chars + from, ' ', end - from);
    if (shown_colors)
        memset(shown_colors + from, 0, end - from);
}

static void scroll(void)
{
    size_t last = (ROWS - 1) * COLUMNS;
    if (shown_chars)
        memmove(shown_chars, shown_chars + COLUMNS, last);
    if (shown_colors)
        memmove(shown_colors, shown_colors + COLUMNS, last);
    clear(last, last + COLUMNS);
}

void oni_terminal_open(unsigned char *chars, signed char *colors, unsigned char *cursor)
{
    shown_chars = chars;
    shown_colors = colors;
    shown_cursor = cursor;
    is_shown = chars || colors || cursor;
    row = column = 0;
    flushed_row = 1; /* not where the cursor is: it is shown */
    color = NEVER_SET;
    is_bold = is_reverse = false;
    state = IN_TEXT;
    argument = num_arguments = 0;
    clear(0, ROWS * COLUMNS);
    oni_terminal_flush();
}

void oni_terminal_flush(void)
{
    if (shown_cursor && (row != flushed_row || column != flushed_column)) {
        shown_cursor[0] = (unsigned char) row;
        shown_cursor[1] = (unsigned char) column;
    }
    flushed_row = row;
    flushed_column = column;
}

static void go_to(size_t to_row, size_t to_column)
{
    row = to_row < ROWS ? to_row : ROWS - 1; /* also what has wrapped below 0 */
    column = to_column < COLUMNS ? to_column : COLUMNS - 1;
}

void oni_terminal_move(int to_column, int to_row)
{
    go_to(to_row > 0 ? (size_t) to_row : 0, to_column > 0 ? (size_t) to_column : 0);
}

static int shown_color(int byte)
{
    int shown = color + is_bold * BRIGHT;
    if (color == DEFAULT)
        shown = byte == ' ' ? 0 : GRAY;
    else if (color == NEVER_SET)
        shown = -1; /* NLE's emulator does so */
    return shown + is_reverse * REVERSE;
}

static void write_char(int byte)
{
    size_t at = row * COLUMNS + column;
    if (shown_chars)
        shown_chars[at] = (unsigned char) byte;
    if (shown_colors)
        shown_colors[at] = (signed char) shown_color(byte);
    if (++column < COLUMNS)
        return;
    column = 0;
    if (row < ROWS - 1)
        row++;
    else
        scroll();
}

/* Sets attributes. Whether one is set or taken back is told by the first argument, as in NLE's emulator. */
static void set_attributes(void)
{
    bool is_set = arguments[0] < 20;
    for (size_t i = 0; i < num_arguments; i++) {
        size_t code = arguments[i];
        if (code == 0) {
            color = DEFAULT;
            is_bold = is_reverse = false;
        } else if (code == 1 || code == 22) {
            is_bold = is_set;
        } else if (code == 7 || code == 27) {
            is_reverse = is_set;
        } else if (code >= FIRST_COLOR && code <= LAST_COLOR) {
            color = (int) code - FIRST_COLOR;
        } else if (code == DEFAULT_COLOR) {
            color = DEFAULT;
        }
    }
}

static void clear_line(void)
{
    size_t line = row * COLUMNS;
    if (arguments[0] == 0)
        clear(line + column, line + COLUMNS);
    else if (arguments[0] == 1)
        clear(line, line + (column + 1 < COLUMNS - 1 ? column + 1 : COLUMNS - 1));
    else if (arguments[0] == 2)
        clear(line, line + COLUMNS);
}

static void clear_screen(void)
{
    if (arguments[0] == 0)
        clear(row * COLUMNS + column, ROWS * COLUMNS);
    else if (arguments[0] == 2)
        clear(0, ROWS * COLUMNS);
}

static void end_sequence(int byte)
{
    if (num_arguments < MAX_ARGUMENTS)
        arguments[num_arguments++] = argument;
    size_t count = arguments[0] ? arguments[0] : 1, second = num_arguments > 1 && arguments[1] ? arguments[1] : 1;
    switch (byte) {
    case 'A': go_to(row - count, column); break;
    case 'B': go_to(row + count, column); break;
    case 'C': go_to(row, column + count); break;
    case 'D': go_to(row, count > column ? column : column - count); break;
    case 'H': case 'f': go_to(count - 1, second - 1); break;
    case 'J': clear_screen(); break;
    case 'K': clear_line(); break;
    case 'm': set_attributes(); break;
    default: break;
    }
    state = IN_TEXT;
}

static void take_argument(int byte)
{
    if (byte >= '0' && byte <= '9') {
        argument = argument * 10 + (size_t) (byte - '0');
    } else if (byte == ';') {
        if (num_arguments < MAX_ARGUMENTS)
            arguments[num_arguments++] = argument;
        argument = 0;
    } else if (byte == ESCAPE) {
        state = AFTER_ESCAPE;
    } else if (byte != '?') {
        end_sequence(byte);
    }
}

static void control(int byte)
{
    switch (byte) {
    case '\b':
        column -= column > 0;
        break;
    case '\t':
        while (++column < COLUMNS - 1 && column % TAB)
            continue;
        break;
    case '\n':
        if (row < ROWS - 1)
            row++;
        else
            scroll();
        break;
    case '\r':
        column = 0;
        break;
    case ESCAPE:
        state = AFTER_ESCAPE;
        argument = num_arguments = 0;
        break;
    case 0: case '\a': case 14: case 15: /* the last two choose a set of characters, which are shown alike */
        break;
    default:
        write_char(byte);
    }
    if (column >= COLUMNS)
        column = COLUMNS - 1;
}

void oni_terminal_put(int byte)
{
    if (!is_shown)
        return;
    if (state == IN_TEXT) {
        if ((unsigned) byte >= ' ')
            write_char(byte);
        else
            control(byte);
    } else if (state == IN_SEQUENCE) {
        take_argument(byte);
    } else if (byte != ESCAPE) {
        state = byte == '[' ? IN_SEQUENCE : IN_TEXT;
    }
}
