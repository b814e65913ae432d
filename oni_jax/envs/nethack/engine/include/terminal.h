/* The terminal that a game's bytes are for: written straight into the arrays that NLE shows. */
#ifndef ONI_TERMINAL_H
#define ONI_TERMINAL_H

/* Clears the terminal. Arrays that are NULL are left out; without any, nothing is done from here on.
 *
 * chars, colors: [24, 80]. cursor: [2], row and column, written by `oni_terminal_flush`. */
void oni_terminal_open(unsigned char *chars, signed char *colors, unsigned char *cursor);

/* Takes a byte of the game's output: text, or a part of an ANSI sequence. */
void oni_terminal_put(int byte);

/* Moves the cursor, as ESC [ row + 1 ; column + 1 H. */
void oni_terminal_move(int column, int row);

/* Shows where the cursor is. */
void oni_terminal_flush(void);

#endif
