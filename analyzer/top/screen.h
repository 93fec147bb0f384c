/* A terminal for drawing: the alternate screen, keys as they are typed, restored however the program ends. Plain
 * ECMA-48, which every terminal supports: the few sequences that are needed (home, erase to the end of the line,
 * alternate screen) are the same in all relevant terminfo entries. */
#pragma once

#include <stdbool.h>

enum top_screen_key { /* besides characters */
                      KEY_NONE = 0,
                      KEY_ESCAPE = 27,
                      KEY_ENTER = 13,
                      KEY_BACK = 127,
                      KEY_TAB = 9,
                      KEY_UP = 1000,
                      KEY_DOWN,
                      KEY_PAGE_UP,
                      KEY_PAGE_DOWN,
                      KEY_HOME,
                      KEY_END,
                      KEY_BACK_TAB,
                      KEY_RESIZE,
                      KEY_QUIT /* a signal, or the terminal is closed */
};

/* False: stdin or stdout is not a terminal that can do this. */
bool top_screen_open(void);
void top_screen_close(void);
void top_screen_size(int *columns, int *rows);
/* Draws `text`, lines that fit; the last one (without \n) at the bottom. */
void top_screen_draw(const char *text);
/* The next key, or KEY_NONE after this many milliseconds. */
int top_screen_key(int milliseconds);
