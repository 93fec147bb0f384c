/* A terminal that is drawn on: the alternate screen, keys as they are typed, put back as it was whatever
 * ends the program. Plain ECMA-48 as every terminal of the last decades has it: the little that is
 * needed (home, erase to the end of the line, alternate screen) is the same in all of terminfo's
 * entries that anybody runs a training under. */
#ifndef GPUSPY_TOP_SCREEN_H
#define GPUSPY_TOP_SCREEN_H

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
                      KEY_QUIT /* a signal, or the terminal is gone */
};

/* False: stdin or stdout is no terminal that can do this. */
bool top_screen_open(void);
void top_screen_close(void);
void top_screen_size(int *columns, int *rows);
/* Draws `text`, lines that fit; the last one (without \n) at the bottom. */
void top_screen_draw(const char *text);
/* The next key, or KEY_NONE after so many milliseconds. */
int top_screen_key(int milliseconds);

#endif
